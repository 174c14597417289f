import { Chart } from "./chart.js";
import * as figures from "./figures.js";
import { html, useMemo } from "./html.js";
import { number } from "./parts.js";

const COLUMNS = [
	number("recall", "recall", (x) => x.toFixed(3)),
	number("candidates", "items", (x) => figures.count(Math.round(x))),
	number("microseconds", "time by the cost model", (x) => figures.duration(x / 1e6)),
];

const AXES = {
	x: { key: "recall", label: "recall", show: (x) => x.toFixed(2) },
	y: { label: "items looked at", isLog: true, show: figures.count },
	lines: [
		{ key: "candidates", color: "left", dots: 5 },
		{ key: "chosen", color: "accent", dots: 12 },
	],
};

export function typical(curve, recall) {
	const isScanned = recall >= 1 || recall >= (curve?.scanned_from ?? 1);
	return isScanned ? null : (curve?.points || []).find((point) => point.recall >= recall) || null;
}

export function Recall({ curve, problem, limit, recall, onChange }) {
	const points = curve?.points || [];
	const from = curve?.scanned_from ?? 1;
	const chosen = typical(curve, recall);
	const rows = useMemo(
		() => points.map((point) => ({ ...point, chosen: point === chosen ? point.candidates : null })),
		[curve, chosen],
	);
	const scanned =
		from <= 0.5
			? `Queries for ${figures.plural(limit, "hit")}`
			: `Queries for a recall of ${from.toFixed(2)} or more`;
	const again = "; it does not hold any more, and is measured again in the background";
	return html`<label>Recall asked for: <output class="figure">
        ${recall >= 1 ? "1 (exact scan)" : recall.toFixed(2)}</output>
      <input type="range" min="0.5" max="1" step="0.01" value=${recall}
        onInput=${(event) => onChange(Number(event.target.value))} /></label>
    ${
			points.length > 1 &&
			html`<${Chart}
      label=${`What recall costs at limit ${limit}: items looked at by recall`}
      ...${{ ...AXES, columns: COLUMNS, rows }} height=${190} />`
		}
    ${
			recall < 1 &&
			recall >= from &&
			html`<p class="small">${scanned} are scanned: that is
      quicker here than a search of the graph, and finds all hits.</p>`
		}
    ${
			curve &&
			(points.length > 1
				? html`<p class="small">Measured on
      ${" "}${figures.plural(curve.rows, "item")} of this collection${
				curve.holds ? "" : again
			}.</p>`
				: html`<p class="small">${
						curve.reason ? `No curve: ${curve.reason}.` : "No curve is measured yet."
					}</p>`)
		}
    ${problem && html`<p class="small">${problem.message}</p>`}`;
}
