import { html, useEffect, useRef, useState } from "./html.js";
import { ink, useInk } from "./ink.js";
import { Table, Trouble } from "./parts.js";
import { script } from "./script.js";

export function Chart({ label, options, data, height = 190, columns, rows }) {
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
			const grid = { stroke: ink("line"), width: 1 };
			const line = {
				stroke: ink("muted"),
				grid,
				ticks: grid,
				labelSize: 18,
				font: "11px system-ui, sans-serif",
				labelFont: "12px system-ui, sans-serif",
			};
			const said = options(ink, Plot);
			plot = new Plot(
				{
					legend: { show: false },
					cursor: { y: false, drag: { x: false, y: false } },
					...said,
					width: box.current.clientWidth,
					height,
					axes: (said.axes || [{}, {}]).map((axis) => ({ ...line, ...axis })),
				},
				data,
				box.current,
			);
			fit.observe(box.current);
		}, fail);
		return () => {
			isOver = true;
			fit.disconnect();
			plot?.destroy();
		};
	}, [data, options, turn, height]);
	if (problem) return html`<${Trouble} problem=${problem} />`;
	return html`<figure><div class="chart" role="img" aria-label=${label} ref=${box}
      style=${{ minHeight: `${height}px` }}></div>
    ${
			rows &&
			html`<details><summary>As a table</summary>
      <${Table} caption=${label} ...${{ columns, rows }} /></details>`
		}</figure>`;
}
