import { at, itemsOf, post } from "./api.js";
import { Chart } from "./chart.js";
import { useAsk } from "./hooks.js";
import { html } from "./html.js";
import { Skeleton, Trouble } from "./parts.js";

const SAMPLE = 120;
const SHOWN = 1500;
const FEWEST = 0.9; // of the pairs within two standard deviations

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
			const spread = 2 * Math.sqrt(Math.max(0, exact * (1 - exact)) / samples);
			const estimate = slots[a].filter(isSame).length / samples;
			return { exact, estimate, low: exact - spread, high: exact + spread };
		});
	return { samples, pairs: pairs.sort((x, y) => x.exact - y.exact) };
}

const AXES = {
	x: { key: "exact", label: "exact similarity", range: [0, 1] },
	y: { label: "share of equal samples", range: [0, 1] },
	lines: [
		{ key: "estimate", color: "left", dots: 4, isLoose: true },
		{ key: "exact", color: "muted", width: 1 },
		{ key: "low", color: "muted", width: 1, dash: [4, 4] },
		{ key: "high", color: "muted", width: 1, dash: [4, 4] },
	],
};

export function Estimates({ collection }) {
	const { name } = collection;
	const { data, problem } = useAsk((signal) => estimated(name, signal), [name, collection.items]);
	const isInside = ({ low, high, estimate }) => estimate >= low - 1e-9 && estimate <= high + 1e-9;
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
      <${Chart} label="Share of equal samples by exact similarity" ...${AXES} rows=${data.pairs} />
      <p class="small">${data.pairs.length} pairs of neighbours in a small sample,
        ${" "}${data.samples} samples a vector. Within two standard deviations, the dashed
        lines: ${(100 * inside).toFixed(1)} %; the law says 95.</p>`
				: data
					? html`<p class="small">There are no pairs to compare.</p>`
					: !problem && html`<${Skeleton} rows=${1} kind="block" />`
		}</section>`;
}
