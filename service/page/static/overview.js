import { go, href } from "./address.js";
import { ask, at, get, raw } from "./api.js";
import { Drawn, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { hand, nameFor, previewOf } from "./guess.js";
import { useAct, useAnswer, useAsk, useSeen, useTimer, useTurn } from "./hooks.js";
import { html, useRef, useState } from "./html.js";
import { difference, parse } from "./metrics.js";
import {
	Command,
	Cut,
	Drop,
	Empty,
	fieldsOf,
	Heights,
	Layouts,
	LoadBar,
	links,
	number,
	Select,
	Skeleton,
	Table,
	Trouble,
} from "./parts.js";
import { sorted, turned } from "./sorting.js";
import { collectionOf, title } from "./view.js";

const EVERY = 2000;
const POINTS = 60;

function heightsOf(series, key) {
	const most = Math.max(...series.map((point) => point[key]), 1e-12);
	const before = Array.from({ length: POINTS - series.length }, () => ({}));
	return [...before, ...series].map((point) => ({ size: (point[key] ?? 0) / most, class: "on" }));
}

const known = (show) => (x) => (x === null ? "–" : show(x));
const LIVE = [
	{ name: "queries/s", key: "queries", show: known(figures.value) },
	{ name: "commits/s", key: "commits", show: known(figures.value) },
	{ name: "queue", key: "queue", show: figures.value },
	{ name: "memory", key: "memory", show: figures.bytes },
];

function Strip({ collection, items }) {
	const { view } = collection;
	const names = useNames(collection, items, 4);
	const isText = view.text || collection.text;
	const kind = view.image || view.smiles ? "pictures" : isText ? "texts" : "charts";
	return html`<div class=${`strip ${kind}`}>${items.map(
		(item) => html`<a class="tile"
    href=${href(collection.name, "query", { id: item.id })}
    title=${title(view, item).slice(0, 120)}>
    <${Drawn} item=${item} view=${view} names=${names} limit=${4} />
    ${
			kind === "charts" &&
			html`<span class="small">
      <bdi>${title(view, item).slice(0, 80)}</bdi></span>`
		}</a>`,
	)}</div>`;
}

const dimension = (dim) => (dim === null ? "open" : figures.count(dim));

function graphState(backend, { reason }) {
	if (backend.status === "building") return `building, ${figures.share(backend.progress)}`;
	if (backend.kind !== "gcws") return backend.kind;
	return backend.stats.graph ? "graph ready" : `no graph${reason ? `: ${reason}` : " yet"}`;
}

async function detailed(name, signal) {
	const [collection, page, loads, curve] = await Promise.all([
		collectionOf(name, signal),
		get(at(name, "/items?limit=8&with_vector=true"), signal),
		get(at(name, "/loads"), signal),
		get(at(name, "/curve?limit=10"), signal),
	]);
	return { collection, items: page.items, loads: loads.loads, curve };
}

function Card({ summary, epoch }) {
	const { name } = summary;
	const box = useRef();
	const [isSeen, seen] = useState(false);
	useSeen(box, () => seen(true), []);
	const { data } = useAsk(
		(signal) => isSeen && detailed(name, signal),
		[name, summary.items, epoch, isSeen],
	);
	const collection = data?.collection;
	const primary = collection?.backends.find((each) => each.primary);
	const others = (collection?.backends.length ?? 1) - 1;
	const running = (data?.loads || []).filter(({ state }) => state === "running");
	return html`<article class="card" ref=${box}>
    <h2><a href=${href(name, "browse")}><bdi>${name}</bdi></a></h2>
    ${
			!data
				? html`<div class="strip"><${Skeleton} rows=${1} kind="block" /></div>`
				: data.items.length
					? html`<${Strip} collection=${collection} items=${data.items} />`
					: html`<p class="small">No items yet.</p>`
		}
    <dl class="stats">${[
			["items", figures.count(summary.items)],
			["dimension", dimension(summary.dim)],
			["memory", collection ? figures.bytes(collection.bytes_in_memory) : "…"],
			["disk", figures.bytes(summary.bytes)],
		].map(([label, figure]) => html`<div><dt>${label}</dt><dd>${figure}</dd></div>`)}</dl>
    <p class="small">${primary ? graphState(primary, data.curve) : "…"}${
			others > 0 && ` · ${figures.plural(others, "comparison backend")}`
		}</p>
    ${running.map(
			(load) => html`<div class="load"><p class="small">
      Loading${load.key && html` <bdi>${load.key}</bdi>`}:
      ${" "}${figures.plural(load.rows, "row")}, ${figures.count(Math.round(load.rate))} rows/s</p>
      <${LoadBar} load=${load} /></div>`,
		)}
    <p class="actions"><a class="button" href=${href(name, "browse")}>Browse</a>
      <a class="button primary" href=${href(name, "query")}>Query</a></p>
  </article>`;
}

function Live() {
	const [series, set] = useState([]);
	const before = useRef(null);
	const [problem, fail] = useState(null);
	useTimer(EVERY, async () => {
		try {
			const now = parse(await (await raw("GET", "metrics")).text());
			const point = difference(before.current, now);
			set((points) => [...points, point].slice(-POINTS));
			before.current = now;
			fail(null);
		} catch (error) {
			before.current = null;
			if (error.code !== "unreachable") fail(error);
		}
	}, []);
	const last = series[series.length - 1];
	if (problem) return html`<${Trouble} problem=${problem} />`;
	const shown = LIVE.filter(({ key }) => key === "memory" || series.some((point) => point[key]));
	const most = (key, show) => show(Math.max(0, ...series.map((point) => point[key])));
	const tile = ({ name, key, show }) => html`<div class="spark"><span class="small">${name}</span>
    <strong class="figure">${last ? show(last[key]) : "…"}</strong>
    <${Heights} label=${`${name}, last two minutes: at most ${most(key, show)}`}
      bars=${heightsOf(series, key)} /></div>`;
	return html`<div class="live" aria-label="Measured every two seconds" role="group">
    ${shown.map(tile)}</div>`;
}

const NORMS = [
	["none", "nothing"],
	["l1", "their L1 norm"],
	["l2", "their L2 norm"],
];

function Create() {
	const [holds, hold] = useState("vectors");
	const [name, call] = useState("");
	const [dim, size] = useState("");
	const [file, choose] = useState(null);
	const [guess, say] = useState("");
	const [isOpen, open] = useState(false);
	const { act, problem } = useAct();
	const take = async (chosen) => {
		if (!chosen) return;
		open(true);
		choose(chosen);
		call((before) => before || nameFor(chosen));
		try {
			const { holds: kind, dim } = await previewOf(chosen);
			hold(kind);
			size(dim ? String(dim) : "");
			const length = dim ? `of ${figures.plural(dim, "number")}` : "that are sparse";
			say(`Guessed: ${kind === "texts" ? "texts" : `vectors ${length}`}.`);
		} catch (unread) {
			size("");
			say(`Say what it holds; it could not be read: ${unread.message}`);
		}
	};
	const submit = (event) => {
		const { normalize } = fieldsOf(event);
		const vectors = { dim: dim.trim() ? Number(dim) : null, transform: { normalize } };
		act(async () => {
			await ask("PUT", at(name.trim()), holds === "texts" ? { text: {} } : vectors);
			hand(file);
			go(href(name.trim(), "load"));
		});
	};
	const typed = (change) => (event) => change(event.target.value);
	return html`<details class="new" open=${isOpen} onToggle=${(event) => open(event.target.open)}>
    <summary>New collection</summary><form class="panel" onSubmit=${submit}>
    <${Drop} label="File that the collection is for" onFile=${take}
      words="Drop a file here to begin with, or type." />
    ${
			file &&
			html`<p role="status"><strong><${Cut} value=${file.name} limit=${60} /></strong>
      <span class="small">${" "}${figures.bytes(file.size)}. ${guess}</span></p>`
		}
    <label>Name <input name="name" required value=${name} onInput=${typed(call)} /></label>
    <label>Items are <${Select} chosen=${holds} onChoose=${hold}
      options=${[["vectors"], ["texts"]]} /></label>
    ${
			holds === "vectors" &&
			html`<label>Dimension; empty for sparse vectors of any coordinates
      <input name="dim" inputmode="numeric" pattern="[0-9]*" value=${dim} onInput=${typed(size)} />
    </label>
    <label>Divide vectors by <${Select} name="normalize" options=${NORMS} /></label>`
		}
    <${Trouble} problem=${problem} /><p class="actions"><button class="primary">
      ${file ? "Create, and look at the file" : "Create, and load a file"}</button></p>
    </form></details>`;
}

const MANY = 12;

function List({ collections, sort, onSort }) {
	return html`<${Table} caption="Collections" sort=${sort} onSort=${onSort}
    rows=${sorted(collections, sort, (row, key) => row[key])} columns=${[
			links("name", "name", (name) => href(name, "browse")),
			number("items", "items"),
			number("dim", "dimension", dimension),
			number("bytes", "disk", figures.bytes),
			{
				key: "go",
				name: "",
				show: (_, { name }) => html`<a class="quiet"
        href=${href(name, "query")} aria-label=${`Query ${name}`}>query</a>`,
			},
		]} />`;
}

function Collections({ collections, params, epoch }) {
	const [part, type] = useState("");
	const isMany = collections.length >= MANY;
	const isTable = params.as ? params.as === "table" : isMany;
	const change = (more) => go(href("", "", { ...params, ...more }), { replace: true });
	const wanted = part.trim().toLowerCase();
	const found = collections.filter(({ name }) => name.toLowerCase().includes(wanted));
	return html`${
		(isMany || params.as) &&
		html`<div class="head">
      <label class="inline">Search <input type="search" value=${part}
        onInput=${(event) => type(event.target.value)} /></label>
      <span class="small" role="status">${figures.count(found.length)} of
        ${" "}${figures.plural(collections.length, "collection")}</span><span class="space"></span>
      <${Layouts} isTable=${isTable} onChoose=${(as) => change({ as })} /></div>`
	}
    ${
			isTable
				? html`<${List} collections=${found} sort=${params.sort}
      onSort=${(key) => change({ sort: turned(params.sort, key) })} />`
				: html`<div class="cards">${found.map(
						(summary) => html`<${Card} key=${summary.name}
        summary=${summary} epoch=${epoch} />`,
					)}</div>`
		}`;
}

export default function Overview({ server, params, writes }) {
	const [turn, next] = useTurn();
	const { data, problem } = useAnswer("v1/collections", undefined, turn);
	const collections = data?.collections;
	const isStarting = server.phase && server.phase !== "ready";
	const isFilled = collections?.length && collections.every(({ items }) => items);
	const every = isStarting || !isFilled ? EVERY / 4 : EVERY * 2;
	useTimer(every, next, [every]);
	return html`<div class="overview">
    <h1>Collections</h1>
    ${!isStarting && html`<${Live} />`}
    ${writes && collections && html`<${Create} />`}
    ${
			problem &&
			!["loading", "unreachable"].includes(problem.code) &&
			html`<${Trouble} problem=${problem} />`
		}
    ${
			collections === undefined
				? !problem && html`<${Skeleton} rows=${3} kind="block" />`
				: collections.length
					? html`<${Collections} ...${{ collections, params }}
        epoch=${server.phase} />`
					: html`<${Empty} title="There is no collection yet">
        <p>Make one above, or see one first, from a terminal:</p>
        <${Command} text="gcws-search demo --port 8001" /><//>`
		}
  </div>`;
}
