import { href } from "./address.js";
import { at, post } from "./api.js";
import { Chart } from "./chart.js";
import * as figures from "./figures.js";
import { useAnswer, useAsk } from "./hooks.js";
import { html, useMemo } from "./html.js";
import { Awaited, number } from "./parts.js";

const RECALLS = [0.7, 0.8, 0.9, 0.95, 0.99];
const QUERIES = 100;
const line = (key, name, color) => ({ key, name, color, isStepped: true, width: 1.5, dash: null });
const SERIES = [
	line("pairs", "random pairs", "muted"),
	line("tenth", "10th neighbour", "right"),
	line("first", "1st neighbour", "left"),
];
const WITH_CHANCE = [
	...SERIES,
	{ key: "chance", name: "S-curve", color: "shared", dash: [6, 4], scale: "y2" },
];
const AXES = {
	x: { key: "similarity", label: "similarity", range: [0, 1] },
	y: {
		label: "share",
		range: (_, __, max) => [0, (max || 1) * 1.05],
		show: (x) => `${figures.value(100 * x)} %`,
	},
};
const BUCKET = { label: "chance of a shared bucket", range: [0, 1.02] };
const FOUND = {
	x: { key: "asked", label: "recall asked for", range: [0.68, 1.01] },
	y: { label: "recall found", range: (_, min) => [Math.min(0.68, min), 1.01] },
	lines: [
		{ key: "found", color: "accent", dots: 8 },
		{ key: "asked", color: "muted", width: 1, dash: [4, 4] },
	],
};
const RARE = 0.9;
const CLEAR = 0.9;
const SLACK = 0.01;

const total = ({ counts }) => counts.reduce((sum, count) => sum + count, 0);

function binAt(histogram, share) {
	let left = share * total(histogram);
	return histogram.counts.findIndex((count) => {
		left -= count;
		return left <= 0;
	});
}

function middle(histogram) {
	if (!total(histogram)) return "–";
	const place = binAt(histogram, 0.5);
	const [low, high] = [histogram.edges[place], histogram.edges[place + 1]];
	return figures.value(high - low === 1 ? low : (low + high) / 2);
}

export function verdictOf({ pairs, first, tenth }) {
	const near = total(tenth) ? tenth : first;
	if (!total(pairs) || !total(near)) return "There are too few items to tell.";
	if (pairs.counts.at(-1) === total(pairs)) return "All items looked at are equal, or nearly so.";
	const chance = binAt(pairs, RARE);
	const beyond = near.counts.reduce(
		(sum, count, bin) => sum + (near.edges[bin] > pairs.edges[chance] ? count : 0),
		0,
	);
	const share = beyond / total(near);
	if (share > CLEAR) return "Neighbours stand clear of random pairs: easy data.";
	if (share > 0.5)
		return `Most neighbours stand clear of random pairs; ${figures.share(
			1 - share,
		)} are hardly nearer than chance.`;
	return "Neighbours are hardly nearer than random pairs: hard data. Another transform may help.";
}

function shareRows(profile, depth) {
	// The last step ends where the last bin does.
	const share = ({ counts }, place) =>
		counts[Math.min(place, counts.length - 1)] / (total({ counts }) || 1);
	return profile.similarities.map((similarity, place) => ({
		similarity,
		...Object.fromEntries(SERIES.map(({ key }) => [key, share(profile[key], place)])),
		chance: depth?.probabilities[place],
	}));
}

function Similarities({ profile, depth }) {
	const rows = useMemo(() => shareRows(profile, depth), [profile, depth]);
	const axes = depth ? { ...AXES, y2: BUCKET, lines: WITH_CHANCE } : { ...AXES, lines: SERIES };
	const columns = [
		number("similarity", "from", (x) => x.toFixed(2)),
		...axes.lines.map(({ key, name }) => number(key, name, (x) => x?.toFixed(4) ?? "")),
	];
	const label = `Similarities of pairs and of neighbours${
		depth ? ", over the S-curve of the hash tables" : ""
	}`;
	return html`<${Chart} ...${{ label, columns, rows }} ...${axes} height=${260}
      listed=${rows.slice(0, -1)} />
    <ul class="legend" aria-label="Lines">${axes.lines.map(
			({ name, color, dash }) => html`<li class="class"><i class=${dash ? "dashed" : ""}
      style=${{ background: `var(--${color})` }}></i>${name}</li>`,
		)}</ul>`;
}

function Buckets({ profile, depth }) {
	return html`<details class="panel"><summary>What hash tables see: the S-curve</summary>
    <p class="verdict">Items of a bucket share ${figures.plural(depth.samples, "sample")}. The first
      table has ${figures.plural(depth.buckets, "bucket")}; an item lies in one of
      ${" "}${figures.value(depth.mean_size)} items on average.</p>
    <${Similarities} ...${{ profile, depth }} /></details>`;
}

function foundWords(rows) {
	const short = rows.filter(({ asked, found }) => found < asked - SLACK);
	if (!short.length) return "Searches find at least what is asked for.";
	const shown = short.map(({ asked, found }) => `${asked.toFixed(2)} (${found.toFixed(3)} found)`);
	return `Searches find less than is asked for at ${shown.join(", ")}.`;
}

async function measured(collection, signal) {
	const primary = collection.backends.find((backend) => backend.primary);
	const sample = Math.min(QUERIES, collection.items);
	const found = [];
	for (const recall of RECALLS) {
		const body = { sample, recall, backends: [primary.name] };
		const { backends } = await post(at(collection.name, "/compare"), body, signal);
		const [{ recall: got, candidates, latency_p50_seconds: seconds }] = backends;
		found.push({ asked: recall, found: got, candidates, seconds });
	}
	return found;
}

function Recall({ collection }) {
	const { data, problem } = useAsk(
		(signal) => measured(collection, signal),
		[collection.name, collection.items],
	);
	const columns = [
		number("asked", "asked", (x) => x.toFixed(2)),
		number("found", "found", (x) => x.toFixed(4)),
		number("candidates", "items looked at", (x) => figures.count(Math.round(x))),
		number("seconds", "p50", figures.duration),
	];
	return html`<section class="panel"><h2>Recall asked against recall found</h2>
    <${Awaited} ...${{ data, problem }} rows=${1} />
    ${
			data &&
			html`<p class="verdict">${foundWords(data)}</p>
      <${Chart} label="Recall found by recall asked for"
        ...${FOUND} columns=${columns} rows=${data} />
      <p class="small">${figures.plural(Math.min(QUERIES, collection.items), "item")} as queries,
        ten hits each, against exact scans. Below the dashed line is less than was asked.</p>`
		}
    <p><a href=${href(collection.name, "audit")}>What live queries found</a></p></section>`;
}

const lookedAt = (depth, items) => depth.mean_size < Math.max(50, items / 50);

export default function Understand({ collection }) {
	const { name } = collection;
	const { data: profile, problem } = useAnswer(at(name, "/profile"), {}, collection.items);
	const heading = html`<h1>Understand <bdi>${name}</bdi></h1>`;
	if (problem || !profile) return html`${heading}<${Awaited} problem=${problem} />`;
	const { depths } = profile;
	const depth = depths.find((one) => lookedAt(one, profile.items)) || depths.at(-1);
	return html`<div class="head">${heading}<span class="small figure">
      ${figures.count(profile.sample)} of ${figures.plural(profile.items, "item")} looked at</span>
    </div>
    <section class="panel"><h2>How similar items are</h2>
      <p class="verdict">${verdictOf(profile)}</p>
      <p>An item scores <strong class="figure">${middle(profile.first)}</strong> with its nearest
        neighbour, <strong class="figure">${middle(profile.tenth)}</strong> with its tenth, and
        ${" "}<strong class="figure">${middle(profile.pairs)}</strong> with a random item: medians.
        It has <strong class="figure">${middle(profile.nonzeros)}</strong> values that are not 0;
        ${" "}<strong class="figure">${figures.share(profile.negative)}</strong> of them are below
        0.</p>
      <${Similarities} profile=${profile} /></section>
    ${collection.items > 1 && html`<${Recall} collection=${collection} />`}
    ${depth && html`<${Buckets} ...${{ profile, depth }} />`}`;
}
