import { Chart } from "./chart.js";
import * as figures from "./figures.js";
import { html, useMemo } from "./html.js";

const COLUMNS = [
	{ key: "recall", name: "recall", figure: true, show: (x) => x.toFixed(3) },
	{ key: "candidates", name: "items", figure: true, show: (x) => figures.count(Math.round(x)) },
	{
		key: "microseconds",
		name: "time by the cost model",
		figure: true,
		show: (x) => figures.duration(x / 1e6),
	},
];

// The point of a curve that reaches a recall; null where queries are scanned, or none does.
export function typical(curve, recall) {
	const isScanned = recall >= 1 || recall >= (curve?.scanned_from ?? 1);
	return isScanned ? null : (curve?.points || []).find((point) => point.recall >= recall) || null;
}

export function Recall({ curve, problem, limit, recall, onChange }) {
	const points = curve?.points || [];
	const from = curve?.scanned_from ?? 1;
	const chosen = typical(curve, recall);
	const plotted = useMemo(
		() => [
			points.map((point) => point.recall),
			points.map((point) => point.candidates),
			points.map((point) => (point === chosen ? point.candidates : null)),
		],
		[curve, chosen],
	);
	const options = useMemo(
		() => (ink) => ({
			scales: { x: { time: false }, y: { distr: 3 } },
			axes: [
				{ label: "recall", values: (_, ticks) => ticks.map((x) => x.toFixed(2)) },
				{
					label: "items looked at",
					size: 52,
					values: (_, ticks) => ticks.map((x) => (x === null ? "" : figures.value(x))),
				},
			],
			series: [
				{},
				{ stroke: ink("left"), width: 2, points: { size: 5 } },
				{ stroke: ink("left"), width: 0, points: { show: true, size: 12, fill: ink("accent") } },
			],
		}),
		[],
	);
	const scanned =
		from <= 0.5
			? `Queries for ${figures.plural(limit, "hit")}`
			: `Queries for a recall of ${from.toFixed(2)} or more`;
	const again = "; it does not hold any more, and is measured again in the background";
	return html`<div class="recall">
    <label>Recall asked for: <output class="figure">
        ${recall >= 1 ? "1 (exact scan)" : recall.toFixed(2)}</output>
      <input type="range" min="0.5" max="1" step="0.01" value=${recall}
        onInput=${(event) => onChange(Number(event.target.value))} /></label>
    ${
			points.length > 1 &&
			html`<${Chart}
      label=${`What recall costs at limit ${limit}: items looked at by recall`}
      options=${options} data=${plotted} columns=${COLUMNS}
      rows=${points} />`
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
    ${problem && html`<p class="small">${problem.message}</p>`}
  </div>`;
}
