import * as figures from "./figures.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { ink, useInk } from "./ink.js";
import { Table, Trouble } from "./parts.js";
import { script } from "./script.js";

function axisOf({ label, show = figures.value, range, isLog, ...more }) {
	const grid = { stroke: ink("line"), width: 1 };
	return {
		stroke: ink("muted"),
		grid,
		ticks: grid,
		labelSize: 18,
		font: "11px system-ui, sans-serif",
		labelFont: "12px system-ui, sans-serif",
		label,
		size: more.side === undefined ? 50 : 56,
		values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : show(tick))),
		...more,
	};
}

const scaleOf = ({ range, isLog }) => ({ time: false, distr: isLog ? 3 : 1, range });

function seriesOf(Plot, { color, dots, isStepped, isLoose, scale = "y", width = 2, dash }) {
	const stroke = ink(color);
	return {
		scale,
		stroke,
		dash,
		width,
		fill: isStepped && `color-mix(in srgb, ${stroke} 22%, transparent)`,
		paths: isLoose ? () => null : isStepped ? Plot.paths.stepped({ align: 1 }) : undefined,
		points: { show: Boolean(dots), size: dots, fill: stroke, width: 0 },
	};
}

// Lines over rows, by their keys: stepped, dashed, with dots of a size, or of loose dots alone.
// `y2` is an axis on the right, of the lines that have it as their scale.
export function Chart({ label, x, y, y2, lines, rows, listed = rows, columns, height = 240 }) {
	const box = useRef();
	const turn = useInk();
	const [problem, fail] = useState(null);
	useEffect(() => {
		let plot = null;
		let isOver = false;
		const fit = new ResizeObserver(([entry]) =>
			plot?.setSize({ width: entry.contentRect.width, height }),
		);
		script("vendor/uplot.js", "uPlot").then((Plot) => {
			if (isOver || !box.current) return;
			const right = y2 && axisOf({ ...y2, side: 1, scale: "y2", grid: { show: false } });
			plot = new Plot(
				{
					legend: { show: false },
					cursor: { show: false },
					width: box.current.clientWidth,
					height,
					axes: [axisOf(x), axisOf({ ...y, side: 3 }), ...(right ? [right] : [])],
					scales: { x: scaleOf(x), y: scaleOf(y), ...(y2 && { y2: scaleOf(y2) }) },
					series: [{}, ...lines.map((line) => seriesOf(Plot, line))],
				},
				[x, ...lines].map(({ key }) => rows.map((row) => row[key] ?? null)),
				box.current,
			);
			fit.observe(box.current);
		}, fail);
		return () => {
			isOver = true;
			fit.disconnect();
			plot?.destroy();
		};
	}, [rows, lines, turn]);
	if (problem) return html`<${Trouble} problem=${problem} />`;
	return html`<figure><div class="chart" role="img" aria-label=${label} ref=${box}
      style=${{ minHeight: `${height}px` }}></div>
    ${
			columns &&
			html`<details><summary>As a table</summary>
      <${Table} caption=${label} ...${{ columns }} rows=${listed} /></details>`
		}</figure>`;
}
