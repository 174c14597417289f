import { go, href, numberIn } from "./address.js";
import { ask, at, post } from "./api.js";
import { Chart } from "./chart.js";
import * as figures from "./figures.js";
import { useAct, useAnswer, useTimer } from "./hooks.js";
import { html, useMemo } from "./html.js";
import { classColor } from "./palette.js";
import { Awaited, Bar, fieldsOf, number, Select, Table, Trouble } from "./parts.js";

const KINDS = [
	["exact", "Scan of all items"],
	["nrff", "Random Fourier features, normalised"],
	["rff", "Random Fourier features"],
	["folded_rff", "Folded random Fourier features"],
	["random_binning", "Random binning"],
	["gmm_nystroem", "Nyström features of GMM"],
	["rbf_nystroem", "Nyström features of RBF"],
	["gcws", "GCWS with other parameters"],
];

const recall = (x) => x.toFixed(3);
const whole = (x) => figures.count(Math.round(x));
const COLUMNS = [
	{
		key: "name",
		name: "backend",
		show: (name, row) => html`<span class="class">
    <i style=${{ background: row.color }}></i><bdi>${name}</bdi></span>`,
	},
	{ key: "kernel", name: "kernel" },
	number("recall", "recall", recall),
	number("recall_own", "own recall", recall),
	number("latency_p50_seconds", "p50", figures.duration),
	number("latency_p95_seconds", "p95", figures.duration),
	number("candidates", "candidates", whole),
	number("bytes_per_item", "bytes an item", whole),
	number("build_seconds", "build", figures.duration),
];

function alone(row) {
	const time = figures.duration(row.latency_p50_seconds);
	const size = whole(row.bytes_per_item);
	const found = `${row.name} finds ${recall(row.recall)} of the exact neighbours`;
	return html`${found}, in ${time} a query (median), with ${size} bytes an item.
    ${" "}Attach another backend to compare the two.`;
}

function beside(rows) {
	const best = rows.reduce((one, other) => (other.recall > one.recall ? other : one));
	const quickest = rows.reduce((one, other) =>
		other.latency_p50_seconds < one.latency_p50_seconds ? other : one,
	);
	const finds = `${best.name} finds most: ${recall(best.recall)} of the exact neighbours`;
	const time = figures.duration(quickest.latency_p50_seconds);
	return best === quickest
		? `${finds}, and is quickest: ${time} a query.`
		: `${finds}. ${quickest.name} is quickest: ${time} a query.`;
}

const share = (x) => (x > 1 ? "" : x.toFixed(2));

function Plot({ rows }) {
	const axes = useMemo(() => {
		const most = Math.max(...rows.map((row) => row.bytes_per_item), 1);
		const line = ({ color, bytes_per_item: size }, place) => ({
			key: place,
			color,
			isLoose: true,
			dots: 10 + 26 * Math.sqrt(size / most),
		});
		const timed = rows.map((row, place) => ({ ...row, [place]: row.latency_p50_seconds * 1e6 }));
		timed.sort((one, other) => one.recall - other.recall); // a chart reads from left to right
		return {
			x: { key: "recall", label: "recall", show: share, range: [timed[0].recall - 0.05, 1.03] },
			y: { label: "p50, µs", isLog: true, show: figures.count },
			lines: rows.map(line),
			rows: timed,
		};
	}, [rows]);
	return html`<${Chart} ...${axes} height=${300}
      label="Recall against median time of a query; the size is the bytes an item" />
    <p class="small">Recall of the exact GMM neighbours. The larger, the more bytes an item.</p>`;
}

function Compare({ collection, params }) {
	const sample = numberIn(params.sample, 100);
	const asked = numberIn(params.recall, 0.9);
	const shown = (number) => (typeof number === "number" ? number : "");
	const ready = collection.backends.filter(({ status }) => status === "ready").length;
	const { name } = collection;
	const { data, problem, waiting, repeat } = useAnswer(
		at(name, "/compare"),
		{ sample, recall: asked },
		ready,
	);
	const rows = useMemo(
		() => (data?.backends || []).map((row, place) => ({ ...row, color: classColor(place) })),
		[data],
	);
	const submit = (event) => {
		go(href(name, "backends", fieldsOf(event)));
		repeat();
	};
	return html`<section class="panel"><div class="head"><h2>Compare</h2><span class="space"></span>
      <form class="actions" onSubmit=${submit}><label class="inline">Queries <input name="sample"
          type="number" min="1" max="1000" key=${sample} defaultValue=${shown(sample)} /></label>
        <label class="inline">Recall <input name="recall" type="number" min="0.01" max="1"
          step="0.01" key=${asked} defaultValue=${shown(asked)} /></label>
        <button>Run again</button></form></div>
    <${Awaited} ...${{ data, problem }} rows=${1} />
    ${
			rows.length > 0 &&
			html`<div class=${waiting ? "waiting" : ""}>
      <p class="verdict">${rows.length === 1 ? alone(rows[0]) : beside(rows)}</p>
      ${rows.length > 1 && html`<${Plot} rows=${rows} />`}
      <details open=${rows.length > 1}><summary>As a table</summary><${Table}
        caption=${`${data.queries} items as queries, ${data.limit} hits each, recall ${
					data.recall
				} asked for`} columns=${COLUMNS} rows=${rows} /></details></div>`
		}</section>`;
}

function Attach({ collection, refresh }) {
	const { act, isBusy, problem } = useAct();
	const submit = async (event) => {
		const { kind, name, params } = fieldsOf(event);
		await act(async () => {
			const body = { kind, name: name.trim() || undefined };
			try {
				if (params.trim()) Object.assign(body, { params: JSON.parse(params) });
			} catch (error) {
				throw new Error(`params: expected JSON (${error.message})`);
			}
			const asked = post(at(collection.name, "/backends"), body);
			refresh();
			await asked;
		});
		refresh();
	};
	return html`<form class="panel attach" onSubmit=${submit}><h2>Attach a backend</h2>
    <label>Kind <${Select} name="kind"
      options=${KINDS.map(([kind, what]) => [kind, `${kind}: ${what}`])} /></label>
    <label>Name (its kind, where empty) <input name="name" maxlength="128" /></label>
    <label>Parameters as JSON <textarea name="params" rows="2" spellcheck=${false}
      placeholder='{"features": 1024, "gamma": 2}'></textarea></label>
    <${Trouble} problem=${problem} />
    <p class="actions"><button class="primary" disabled=${isBusy}>
      ${isBusy ? "Building…" : "Attach"}</button></p></form>`;
}

export default function Backends({ collection, params, writes, refresh }) {
	const isBuilding = collection.backends.some(({ status }) => status === "building");
	const { act, problem } = useAct();
	useTimer(1000, () => (isBuilding ? refresh() : undefined), [isBuilding]);
	const drop = async (name) => {
		const path = at(collection.name, `/backends/${encodeURIComponent(name)}`);
		await act(() => ask("DELETE", path));
		refresh();
	};
	const built = ({ bytes_in_memory: size, build_seconds: time }) => html`<p class="small figure">
    ${figures.bytes(size)}, built in ${figures.duration(time)}</p>`;
	const attached = (backend) => {
		const { name, kind, primary, progress } = backend;
		const tag = primary ? "primary" : kind === name ? "" : kind;
		return html`<li><div class="actions"><strong><bdi>${name}</bdi></strong>
        ${tag && html`<span class="tag">${tag}</span>`}<span class="space"></span>
        ${
					writes &&
					!primary &&
					html`<button class="quiet danger"
          onClick=${() => drop(name)} aria-label=${`Drop ${name}`}>drop</button>`
				}</div>
      ${
				backend.status === "building"
					? html`<${Bar} value=${progress}
        label=${`Built: ${figures.share(progress)}`} />`
					: built(backend)
			}</li>`;
	};
	const note = (title, words) => html`<section class="panel"><h2>${title}</h2>
    <p class="small">${words}</p></section>`;
	return html`<div class="head"><h1>Backends of <bdi>${collection.name}</bdi></h1></div>
    <div class="two wide"><aside class="stack">
      <section class="panel"><h2>Attached</h2>
        <ul class="plain">${collection.backends.map(attached)}</ul>
        <${Trouble} problem=${problem} /></section>
      ${
				writes
					? html`<${Attach} collection=${collection} refresh=${refresh} />`
					: note("Attach a backend", "Needs a key that writes.")
			}
    </aside>${
			collection.items > 1
				? html`<${Compare} collection=${collection} params=${params} />`
				: note("Compare", "Needs two items at least.")
		}</div>`;
}
