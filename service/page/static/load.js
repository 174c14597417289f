import { ask, at, get, hasKey, post, raw, root } from "./api.js";
import {
	columnNames,
	columnsOf,
	isCsv,
	itemsOf,
	MAX_CSV_BYTES,
	OtherEncoding,
	parsed,
	requireSame,
	sharesOf,
	textColumnsOf,
} from "./csv.js";
import * as figures from "./figures.js";
import { handed } from "./guess.js";
import { useAct, useAnswer, useTimer } from "./hooks.js";
import { html, useEffect, useRef, useState } from "./html.js";
import {
	Command,
	Dialog,
	Drop,
	GraphBar,
	LoadBar,
	number,
	Table,
	Text,
	Trouble,
	texts,
} from "./parts.js";

const KINDS = [
	{ called: /\.(ndjson|jsonl)(\.gz)?$/i, type: "application/x-ndjson" },
	{ called: /\.npy(\.gz)?$/i, type: "application/x-npy" },
	{ called: /\.arrows?(\.gz)?$/i, type: "application/vnd.apache.arrow.stream" },
];
const MOST_COLUMNS = 200;
const rolesOf = ({ text }) => ["id", text ? "text" : "vector", "payload", "leave out"];

const REJECTED = [
	{ key: "row", name: "row", figure: true },
	{ key: "code", name: "code" },
	texts("detail", "why"),
];

function Result({ answer }) {
	if (!answer) return null;
	const { inserted, updated, rejected_count: refused, rejected, ids, seconds } = answer;
	const figure = (number) => html`<strong class="figure">${figures.count(number)}</strong>`;
	const some = refused > rejected.length ? `, the first ${rejected.length}` : "";
	return html`<div role="status"><p>${figure(inserted)} new, ${figure(updated)} updated,
      ${" "}${figure(refused)} rejected, in ${figures.duration(seconds)}.${
				ids && ` Rows without ids have the numbers ${ids.first} to ${ids.last}.`
			}</p>
    ${
			rejected.length > 0 &&
			html`<${Table} caption=${`Rejected rows${some}`} columns=${REJECTED}
      rows=${rejected.slice(0, 200)} />`
		}</div>`;
}

function Columns({ table, roles, onChange, collection }) {
	const { name, dim, text } = collection;
	const count = table.names.filter((column) => roles[column] === "vector").length;
	const shares = sharesOf(table, roles);
	const largest = shares.findIndex((share) => count > 1 && share > Math.max(0.5, 1.5 / count));
	const choice = (role, row) => html`<select value=${role}
      aria-label=${`What ${row.name || "(no name)"} becomes`}
      onChange=${(event) => onChange({ ...roles, [row.name]: event.target.value })}>
    ${rolesOf(collection).map(
			(one) => html`<option value=${one} selected=${one === role}>${one}
      </option>`,
		)}</select>`;
	const columns = [
		{
			key: "name",
			name: "column",
			show: (one) => html`<${Text} value=${one || "(no name)"} limit=${60} />`,
		},
		texts("example", "first value", 40),
		number("share", "share of Σ|x|", (share) => share !== undefined && figures.share(share)),
		{ key: "role", name: "becomes", show: choice },
	];
	const rows = table.names.slice(0, MOST_COLUMNS).map((one, place) => ({
		name: one,
		example: table.rows[0][place] ?? "",
		share: shares[place],
		role: roles[one],
	}));
	return html`<${Table} caption="Columns of the file" columns=${columns} rows=${rows} />
    ${
			table.names.length > rows.length &&
			html`<p class="small">and
      ${" "}${figures.plural(table.names.length - rows.length, "more column")}, each as the page
      guessed it.</p>`
		}
    ${
			largest >= 0 &&
			html`<p role="status">Scores are mostly those of
      ${" "}<${Text} value=${table.names[largest]} limit=${60} />, which has
      ${" "}${figures.share(shares[largest])} of Σ|x| in the first rows.</p>`
		}
    ${
			!text &&
			dim !== null &&
			count !== dim &&
			html`<p role="status">
      ${figures.plural(count, "column")} ${count === 1 ? "becomes" : "become"} the vector; one of
      ${" "}<bdi>${name}</bdi> has ${figures.plural(dim, "coordinate")}.</p>`
		}`;
}

const putNames = (name, names) => ask("PUT", at(name, "/names"), { names });
const NAMES = 10000;

async function coordinatesOf({ name, dim }, columns) {
	if (!columns || dim === null) return {};
	const { names, count } = await get(at(name, `/names?limit=${Math.min(dim, NAMES)}`));
	if (!count && columns.length === dim && (await isEmpty(name))) {
		await putNames(name, columns);
		return { isNew: true };
	}
	if (count < dim || dim > NAMES) return {};
	const coordinates = names.map((one) => one.name);
	requireSame(columns, coordinates);
	return { coordinates };
}

const isEmpty = async (name) => !(await post(at(name, "/count"), {})).count;

async function loadTable(table, roles, collection) {
	const { name } = collection;
	const { coordinates, isNew } = await coordinatesOf(collection, columnNames(table, roles));
	try {
		return await loadItems(name, itemsOf(table, roles, { ...collection, coordinates }));
	} finally {
		if (isNew && (await isEmpty(name))) await putNames(name, []);
	}
}

async function loadItems(name, { lines, numbers, rejected }) {
	const none = { inserted: 0, updated: 0, rejected: [], rejected_count: 0, seconds: 0 };
	const stored = lines.length
		? await loadBody(name, new Blob(lines), "application/x-ndjson")
		: none;
	const refused = stored.rejected.map((one) => ({ ...one, row: numbers[one.row] }));
	return {
		...stored,
		rejected: [...rejected, ...refused].sort((a, b) => a.row - b.row),
		rejected_count: stored.rejected_count + rejected.length,
	};
}

async function loadBody(name, body, type) {
	const headers = { "Content-Type": type };
	const response = await raw("POST", at(name, "/load?on_error=skip"), { body, headers });
	return response.json();
}

function Loader({ collection, refresh, onLoaded }) {
	const { name } = collection;
	const [file, choose] = useState(null);
	const [table, tabulate] = useState(null);
	const [roles, assign] = useState({});
	const [answer, tell] = useState(null);
	const { act, isBusy, problem } = useAct();
	const latest = useRef();
	const take = async (chosen) => {
		if (!chosen) return;
		latest.current = chosen;
		choose(chosen);
		tell(null);
		tabulate(null);
		act(async () => {
			if (!isCsv(chosen) || chosen.size > MAX_CSV_BYTES) return;
			const read = await parsed(chosen);
			if (latest.current !== chosen) return;
			tabulate(read);
			assign(collection.text ? textColumnsOf(read) : columnsOf(read));
		});
	};
	useEffect(() => {
		take(handed());
	}, []);
	const kind = file && KINDS.find(({ called }) => called.test(file.name));
	const send = async () => {
		tell(null);
		await act(async () =>
			tell(await (table ? loadTable(table, roles, collection) : loadBody(name, file, kind.type))),
		);
		refresh();
		onLoaded();
	};
	const isKnown = table || kind;
	const isShort = file && isCsv(file) && file.size <= MAX_CSV_BYTES;
	const isForeign = problem instanceof OtherEncoding || (file && !isKnown && !isShort);
	const why =
		file && isCsv(file) && !isShort
			? "That is more than this page reads. "
			: "This page does not read such files. ";
	const quoted = file?.name.replaceAll("'", "");
	const command = `gcws-search load '${quoted}' --into ${name} --url ${root.href}`;
	return html`<section class="panel"><h2>Load a file</h2>
    <${Drop} label="File to load" onFile=${take}
      words="Drop a file here: NDJSON, .npy, an Arrow stream, or CSV." />
    ${
			file &&
			html`<p><strong><${Text} value=${file.name} /></strong> <span class="small">
      ${figures.bytes(file.size)}${table && `, ${figures.plural(table.rows.length, "row")}`}
      </span></p>`
		}
    ${isForeign && html`<p>${why}The command does:</p><${Command} text=${command} />`}
    ${table && html`<${Columns} ...${{ table, roles, collection }} onChange=${assign} />`}
    ${
			isKnown &&
			html`<p class="actions"><button type="button" class="primary"
      disabled=${isBusy} onClick=${send}>${isBusy ? "Loading…" : `Load into ${name}`}
    </button></p>`
		}
    <${Trouble} problem=${problem} /><${Result} answer=${answer} /></section>`;
}

const ENDED = [
	{ key: "started", name: "started", show: (time) => new Date(time).toLocaleString() },
	{ key: "state", name: "state" },
	number("rows", "rows"),
	number("rejected", "rejected"),
	number("rate", "rows/s", (x) => figures.count(Math.round(x))),
	texts("error", "error"),
];

function Loads({ collection, refresh, turn }) {
	const { name } = collection;
	const [isRunning, running] = useState(false);
	const { data, problem, repeat } = useAnswer(at(name, "/loads"), undefined, turn);
	useEffect(() => {
		running((data?.loads || []).some(({ state }) => state === "running"));
	}, [data]);
	const isBuilding = collection.backends.some(({ status }) => status === "building");
	useTimer(isRunning || isBuilding ? 1000 : 5000, () => {
		repeat();
		if (isRunning || isBuilding) refresh();
	}, [isRunning, isBuilding]);
	const loads = data?.loads || [];
	return html`<section class="panel"><h2>Loads</h2><${Trouble} problem=${problem} />
    ${loads
			.filter(({ state }) => state === "running")
			.map((load) => html`<${LoadBar} load=${load} />`)}
    <${GraphBar} collection=${collection} />
    ${
			loads.length
				? html`<${Table} caption="Under way, and the last 20" columns=${ENDED}
      rows=${loads} />`
				: html`<p class="small">None so far.</p>`
		}</section>`;
}

const snapshotOf = (name, one) => at(name, `/snapshots/${encodeURIComponent(one)}`);

function Restore({ name, snapshot, onClose, onDone }) {
	const [typed, type] = useState("");
	const { act, problem } = useAct();
	const submit = (event) => {
		event.preventDefault();
		act(async () => {
			await post(`${snapshotOf(name, snapshot)}/restore?replace=true`);
			onDone();
			onClose();
		});
	};
	return html`<${Dialog} title="Restore this snapshot?" onClose=${onClose}>
    <form onSubmit=${submit}>
    <p>All items of <strong><bdi>${name}</bdi></strong> are replaced by those of the snapshot
      ${" "}<bdi>${snapshot}</bdi>. What was stored since is gone.</p>
    <label>Type the collection's name <input autofocus value=${typed} autocomplete="off"
      onInput=${(event) => type(event.target.value)} /></label>
    <${Trouble} problem=${problem} />
    <p class="actions"><button class="primary" disabled=${typed !== name}>Restore</button>
      <button type="button" onClick=${onClose}>Cancel</button></p></form></${Dialog}>`;
}

async function download(name, snapshot) {
	const path = snapshotOf(name, snapshot);
	const link = document.createElement("a");
	link.download = `${snapshot}.sqlite`;
	link.href = hasKey()
		? URL.createObjectURL(await (await raw("GET", path)).blob())
		: new URL(path, root).href;
	link.click();
}

function Snapshots({ collection, writes, refresh }) {
	const { name } = collection;
	const { data, problem, repeat } = useAnswer(at(name, "/snapshots"));
	const { act, ...state } = useAct();
	const [chosen, choose] = useState(null);
	const snapshots = data?.snapshots || [];
	const change = (work) => act(work).then(repeat);
	const acts = (_, { name: one }) => html`<span class="actions">
    <button type="button" class="quiet" onClick=${() => act(() => download(name, one))}>download
    </button>
    ${
			writes &&
			html`<button type="button" class="quiet" onClick=${() => choose(one)}>restore…
      </button><button type="button" class="quiet danger" aria-label=${`Remove ${one}`}
        onClick=${() => change(() => ask("DELETE", snapshotOf(name, one)))}>remove</button>`
		}</span>`;
	const columns = [
		texts("name", "name"),
		{ key: "created", name: "made", show: (time) => new Date(time).toLocaleString() },
		number("bytes", "size", figures.bytes),
		{ key: "act", name: "", show: acts },
	];
	return html`<section class="panel"><div class="head"><h2>Snapshots</h2><span class="space"></span>
      ${
				writes &&
				html`<button type="button" class="primary" disabled=${state.isBusy}
        onClick=${() => change(() => post(at(name, "/snapshots")))}>
        ${state.isBusy ? "At work…" : "Make a snapshot"}</button>`
			}</div>
    <${Trouble} problem=${state.problem || problem} />
    ${
			snapshots.length
				? html`<${Table} caption="Copies of the collection's file"
      columns=${columns} rows=${snapshots} />`
				: html`<p class="small">None so far. A snapshot is a
      copy of the collection's file at one moment.</p>`
		}
    ${
			chosen &&
			html`<${Restore} name=${name} snapshot=${chosen} onClose=${() => choose(null)}
      onDone=${refresh} />`
		}</section>`;
}

export default function Load({ collection, writes, refresh }) {
	const [turn, next] = useState(0);
	const onLoaded = () => next((count) => count + 1);
	return html`<div class="head"><h1>Data of <bdi>${collection.name}</bdi></h1>
      <span class="small figure">${figures.plural(collection.items, "item")}</span></div>
    <div class="halves"><div class="stack">
      ${
				writes
					? html`<${Loader} ...${{ collection, refresh, onLoaded }} />`
					: html`<section class="panel"><h2>Load a file</h2>
          <p class="small">Needs a key that writes.</p></section>`
			}
      <${Loads} ...${{ collection, refresh, turn }} /></div>
    <${Snapshots} ...${{ collection, writes, refresh }} /></div>`;
}
