import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { ink, useInk } from "./ink.js";
import { script } from "./script.js";
import { Table, Trouble } from "./parts.js";

let library = null;

function plots() {
  library = library || script("vendor/uplot.js").then(() => window.uPlot);
  return library;
}

export function Chart({ label, options, data, height = 190, columns, rows }) {
  const box = useRef();
  const turn = useInk();
  const [problem, fail] = useState(null);
  useEffect(() => {
    let plot = null;
    let isOver = false;
    const fit = new ResizeObserver(([entry]) => plot?.setSize({ width: entry.contentRect.width, height }));
    plots().then((Plot) => {
      if (isOver || !box.current) return;
      const line = { stroke: ink("muted"), grid: { stroke: ink("line"), width: 1 }, ticks: { stroke: ink("line"), width: 1 }, font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
      const said = options(ink, Plot);
      plot = new Plot({
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        ...said,
        width: box.current.clientWidth,
        height,
        axes: (said.axes || [{}, {}]).map((axis) => ({ ...line, ...axis })),
      }, data, box.current);
      fit.observe(box.current);
    }, fail);
    return () => {
      isOver = true;
      fit.disconnect();
      plot?.destroy();
    };
  }, [data, options, turn, height]);
  if (problem) return html`<${Trouble} problem=${problem} />`;
  return html`<figure><div class="chart" role="img" aria-label=${label} ref=${box} style=${{ minHeight: `${height}px` }}></div>
    ${rows && html`<details><summary>As a table</summary><${Table} caption=${label} columns=${columns} rows=${rows} /></details>`}</figure>`;
}
