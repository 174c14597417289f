import { html, useMemo } from "./vendor/preact.js";
import { at, get } from "./api.js";
import { useAsk } from "./hooks.js";
import { Chart } from "./chart.js";
import * as figures from "./figures.js";

function near(points, recall) {
  return points.find((point) => point.recall >= recall) || null;
}

const COLUMNS = [
  { key: "recall", name: "recall", figure: true, show: (x) => x.toFixed(3) },
  { key: "candidates", name: "candidates", figure: true, show: (x) => figures.count(Math.round(x)) },
  { key: "microseconds", name: "time", figure: true, show: (x) => figures.duration(x / 1e6) },
];

export function Recall({ collection, limit, recall, onChange }) {
  const { data, problem } = useAsk((signal) => get(at(collection.name, `/curve?limit=${limit}`), signal), [collection.name, limit, collection.items]);
  const points = data?.points || [];
  const from = data?.scanned_from ?? 1;
  const isScanned = recall < 1 && recall >= from;
  const chosen = recall >= 1 || isScanned ? null : near(points, recall);
  const plotted = useMemo(() => [
    points.map((point) => point.recall), points.map((point) => point.candidates), points.map((point) => point.microseconds),
    points.map((point) => (point === chosen ? point.candidates : null)),
  ], [data, chosen]);
  const options = useMemo(() => (ink) => ({
    scales: { x: { time: false }, y: { distr: 3 }, time: { distr: 3 } },
    axes: [
      { label: "recall", values: (_, ticks) => ticks.map((x) => x.toFixed(2)) },
      { label: "candidates", size: 48, stroke: ink("left"), values: (_, ticks) => ticks.map((x) => (x === null ? "" : figures.value(x))) },
      { label: "µs", side: 1, scale: "time", size: 40, grid: { show: false }, stroke: ink("right"), values: (_, ticks) => ticks.map((x) => (x === null ? "" : figures.value(x))) },
    ],
    series: [
      {},
      { stroke: ink("left"), width: 2, points: { size: 5 } },
      { stroke: ink("right"), width: 1.5, dash: [5, 4], scale: "time", points: { show: false } },
      { stroke: ink("left"), width: 0, points: { show: true, size: 12, fill: ink("accent") } },
    ],
  }), []);
  return html`<div class="recall">
    <label>Recall asked for: <output class="figure">${recall >= 1 ? "1 (exact scan)" : recall.toFixed(2)}</output>
      <input type="range" min="0.5" max="1" step="0.01" value=${recall} onInput=${(event) => onChange(Number(event.target.value))} /></label>
    ${points.length > 1 && html`<${Chart} label=${`What recall costs at limit ${limit}: candidates and time by recall`} options=${options} data=${plotted} columns=${COLUMNS} rows=${points} />`}
    ${chosen && html`<p class="small">Expected at ${recall.toFixed(2)}: about <strong class="figure">${figures.count(Math.round(chosen.candidates))}</strong> of ${figures.count(collection.items)} items met,
      <strong class="figure">${" "}${figures.duration(chosen.microseconds / 1e6)}</strong>.</p>`}
    ${isScanned && html`<p class="small">${from <= 0.5 ? `Queries for ${figures.plural(limit, "hit")} are scanned` : `Queries for a recall of ${from.toFixed(2)} or more are scanned`}: that is quicker here than a search of the graph, and finds all hits.</p>`}
    ${data && points.length > 1 && html`<p class="small">Measured on ${figures.plural(data.rows, "item")} of this collection${data.holds ? "" : "; it does not hold any more, and is measured again in the background"}.</p>`}
    ${data && points.length < 2 && html`<p class="small">${data.reason ? `No curve: ${data.reason}.` : "No curve is measured yet."}</p>`}
    ${problem && html`<p class="small">${problem.message}</p>`}
  </div>`;
}
