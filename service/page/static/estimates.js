import { at, itemsOf, post } from "./api.js";
import { Chart } from "./chart.js";
import { useAsk } from "./hooks.js";
import { html, useMemo } from "./html.js";
import { Skeleton, Trouble } from "./parts.js";

const SAMPLE = 120;
const SHOWN = 1500;
const FEWEST = 0.9; // of the pairs within two standard deviations
const LABEL =
	"Share of equal samples by exact similarity, one dot a pair; " +
	"dashed: two standard deviations";
const STEPS = Array.from({ length: 51 }, (_, step) => step / 50);

const LINE = { width: 1, points: { show: false } };

// Two standard deviations.
const spread = (exact, samples) => 2 * Math.sqrt(Math.max(0, exact * (1 - exact)) / samples);

function pairsOf({ neighbours, scores }) {
	const pairs = neighbours.flatMap((row, a) =>
		row.map((b, place) => [
			`${Math.min(a, b)} ${Math.max(a, b)}`,
			{ a, b, exact: scores[a][place] },
		]),
	);
	return [...new Map(pairs).values()];
}

async function estimated(name, signal) {
	const map = await post(at(name, "/map"), { sample: SAMPLE }, signal);
	const items = map.ids.length ? await itemsOf(name, map.ids, signal) : [];
	const vectors = new Map(items.map(({ id, vector }) => [id, vector]));
	const body = { vectors: map.ids.map((id) => vectors.get(id)), encoding: "full" };
	const { slots, levels } = await post(at(name, "/sketch"), body, signal);
	const samples = slots[0].length;
	const pairs = pairsOf(map)
		.slice(0, SHOWN)
		.map(({ a, b, exact }) => {
			const isSame = (slot, place) =>
				slot === slots[b][place] && levels[a][place] === levels[b][place];
			return { exact, estimate: slots[a].filter(isSame).length / samples };
		});
	return { samples, pairs: pairs.sort((x, y) => x.exact - y.exact) };
}

function dots(color) {
	return (plot, series, first, last) => {
		const { ctx } = plot;
		const [xs, ys] = [plot.data[0], plot.data[series]];
		ctx.save();
		ctx.fillStyle = color;
		ctx.globalAlpha = 0.5;
		for (let place = first; place <= last; place += 1) {
			if (ys[place] === null) continue;
			const [x, y] = [plot.valToPos(xs[place], "x", true), plot.valToPos(ys[place], "y", true)];
			ctx.beginPath();
			ctx.arc(x, y, 2.2 * devicePixelRatio, 0, 2 * Math.PI);
			ctx.fill();
		}
		ctx.restore();
		return null;
	};
}

export function Estimates({ collection }) {
	const { name } = collection;
	const { data, problem } = useAsk((signal) => estimated(name, signal), [name, collection.items]);
	const plotted = useMemo(() => {
		if (!data) return null;
		const steps = STEPS.map((exact) => ({ exact, estimate: null }));
		const points = [...data.pairs, ...steps].sort((one, other) => one.exact - other.exact);
		const xs = points.map(({ exact }) => exact);
		const band = (sign) => xs.map((x) => x + sign * spread(x, data.samples));
		return [xs, points.map(({ estimate }) => estimate), xs, band(-1), band(1)];
	}, [data]);
	const options = useMemo(
		() => (ink) => ({
			scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1] } },
			axes: [{ label: "exact similarity" }, { label: "share of equal samples", size: 52 }],
			series: [
				{},
				{ paths: dots(ink("left")), points: { show: false } },
				...[[], [4, 4], [4, 4]].map((dash) => ({ ...LINE, stroke: ink("muted"), dash })),
			],
		}),
		[],
	);
	const isInside = ({ exact, estimate }) =>
		Math.abs(estimate - exact) <= spread(exact, data.samples) + 1e-9;
	const figure = { figure: true, show: (x) => x.toFixed(4) };
	const columns = [
		{ key: "exact", name: "exact", ...figure },
		{ key: "estimate", name: "estimated", ...figure },
	];
	const inside = data?.pairs.length ? data.pairs.filter(isInside).length / data.pairs.length : 1;
	const verdict =
		inside >= FEWEST
			? "Samples estimate similarity as the law says."
			: "Estimates stray more than the law says.";
	return html`<section class="panel"><h2>Similarity estimated by samples</h2>
    <${Trouble} problem=${problem} />
    ${
			data && data.pairs.length > 0
				? html`<p class="verdict">${verdict}</p>
      <${Chart} label=${LABEL} ...${{ options, columns }} data=${plotted} height=${240}
        rows=${data.pairs.slice(-200)} />
      <p class="small">${data.pairs.length} pairs of neighbours in a small sample,
        ${" "}${data.samples} samples a vector. Within two standard deviations:
        ${" "}${(100 * inside).toFixed(1)} %; the law says 95.</p>`
				: data
					? html`<p class="small">There are no pairs to compare.</p>`
					: !problem && html`<${Skeleton} rows=${1} kind="block" />`
		}</section>`;
}
