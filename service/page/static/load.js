import { href } from "./address.js";
import { ask, at, hasKey, post, raw, root } from "./api.js";
import * as figures from "./figures.js";
import { handed, isTable, kindOf, LEFT_OUT, previewOf, queryOf, rolesOf } from "./guess.js";
import { useAct, useAnswer, useTimer, useTurn } from "./hooks.js";
import { html, useEffect, useRef, useState } from "./html.js";
import {
	Command,
	Dialog,
	Drop,
	GraphBar,
	LoadBar,
	moment,
	number,
	Select,
	Table,
	Text,
	Trouble,
	texts,
} from "./parts.js";
import { save } from "./save.js";

const MOST_COLUMNS = 200;
const choicesOf = ({ text }) => [["id"], [text ? "text" : "vector"], ["payload"], [LEFT_OUT]];
const MISSING = [
	["error", "are refused"],
	["drop", "are left out"],
	["zero", "have a 0 there"],
];
const ENCODINGS = [
	"utf-8",
	"utf-16",
	"cp1252",
	"cp1250",
	"cp1251",
	"gb18030",
	"shift_jis",
	"euc_kr",
];

const REJECTED = [number("row", "row"), { key: "code", name: "code" }, texts("detail", "why")];

function Result({ answer, name }) {
	if (!answer) return null;
	const { inserted, updated, rejected_count: refused, rejected, ids, seconds } = answer;
	const dropped = answer.dropped_count;
	const figure = (number) => html`<strong class="figure">${figures.count(number)}</strong>`;
	const some = refused > rejected.length ? `, the first ${rejected.length}` : "";
	return html`<div role="status"><p>${figure(inserted)} new, ${figure(updated)} updated,
      ${" "}${figure(refused)} rejected, ${dropped && html`${figure(dropped)} left out, `}in
      ${" "}${figures.duration(seconds)}.${
				ids && ` Rows without ids have the numbers ${ids.first} to ${ids.last}.`
			}</p>
    ${
			rejected.length > 0 &&
			html`<${Table} caption=${`Rejected rows${some}`} columns=${REJECTED}
      rows=${rejected.slice(0, 200)} />`
		}
    <p><a class="button primary" href=${href(name, "browse")}>Browse the items</a></p></div>`;
}

function Columns({ table, roles, onChange, onEncoding, missing, onMissing, collection }) {
	const { name, dim, text } = collection;
	const count = table.columns.filter((column) => roles[column.name] === "vector").length;
	const gaps = table.columns.some((one) => one.missing && roles[one.name] === "vector");
	const choice = (_, row) => html`<${Select} options=${choicesOf(collection)}
      aria-label=${`What ${row.name || "(no name)"} becomes`} chosen=${roles[row.name]}
      onChoose=${(role) => onChange({ ...roles, [row.name]: role })} />`;
	const columns = [
		{
			key: "name",
			name: "column",
			show: (one) => html`<${Text} value=${one || "(no name)"} limit=${60} />`,
		},
		texts("example", "first value", 40),
		number("share", "share of vector", (share) => share !== null && figures.share(share)),
		{ key: "role", name: "becomes", show: choice },
	];
	const rows = table.columns
		.slice(0, MOST_COLUMNS)
		.map((one) => ({ ...one, example: table.rows[0]?.[one.name] ?? "" }));
	const encodings = [...new Set([table.encoding, ...ENCODINGS])];
	return html`<label>Encoding <${Select} options=${encodings.map((one) => [one])}
      chosen=${table.encoding} onChoose=${onEncoding} /></label>
    <p class="small">Columns divided by
      ${" "}<code>${JSON.stringify(table.delimiter)}</code>${
				table.decimal === "," && ", decimal commas"
			}${!table.header && ", without names of columns"}.</p>
    <${Table} caption="Columns of the file" columns=${columns} rows=${rows} />
    ${
			table.columns.length > rows.length &&
			html`<p class="small">and
      ${" "}${figures.plural(table.columns.length - rows.length, "more column")}, each as it was
      guessed.</p>`
		}
    ${table.warnings.map((words) => html`<p role="status">Look at this: ${words}.</p>`)}
    ${
			gaps &&
			html`<p><label>Rows that lack a number <${Select} options=${MISSING} chosen=${missing}
      onChoose=${onMissing} /></label></p>`
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

async function load(name, file, query) {
	const headers = { "Content-Type": kindOf(file) };
	query.set("on_error", "skip");
	return (await raw("POST", at(name, `/load?${query}`), { body: file, headers })).json();
}

function Loader({ collection, refresh, onLoaded }) {
	const { name, text } = collection;
	const [file, choose] = useState(null);
	const [table, tabulate] = useState(null);
	const [roles, assign] = useState(null);
	const [encoding, encode] = useState("");
	const [missing, decide] = useState("error");
	const [answer, tell] = useState(null);
	const { act, isBusy, problem } = useAct();
	const latest = useRef();
	const holds = text ? "holds=texts" : "holds=vectors";
	const look = (chosen, query, then) =>
		act(async () => {
			const turn = {};
			latest.current = turn;
			const found = await previewOf(chosen, query);
			if (latest.current !== turn) return;
			tabulate(found);
			then?.(found);
		});
	const take = (chosen) => {
		if (!chosen) return;
		latest.current = null;
		choose(chosen);
		tell(null);
		tabulate(null);
		decide("error");
		encode("");
		if (isTable(chosen)) look(chosen, holds, (found) => assign(rolesOf(found)));
	};
	const asked = (chosen) => `${queryOf(table, chosen, text)}${encoding}`;
	const change = (changed) => {
		assign(changed);
		look(file, asked(changed));
	};
	// Columns may have other names in another encoding, so what they become is guessed anew.
	const decode = (chosen) => {
		const said = `&encoding=${chosen}`;
		look(file, holds + said, (found) => {
			encode(said);
			assign(rolesOf(found));
		});
	};
	useEffect(() => {
		take(handed());
	}, []);
	const kind = file && kindOf(file);
	const isReady = table || (kind && !isTable(file));
	const send = async () => {
		tell(null);
		const query = new URLSearchParams(table ? asked(roles) : "");
		if (table) query.set("missing", missing);
		await act(async () => tell(await load(name, file, query)));
		refresh();
		onLoaded();
	};
	const quoted = file?.name.replaceAll("'", "");
	const command = `gcws-search load '${quoted}' --into ${name} --url ${root.href}`;
	return html`<section class="panel"><h2>Load a file</h2>
    <${Drop} label="File to load" onFile=${take}
      words="Drop a file here: NDJSON, .npy, an Arrow stream, or CSV." />
    ${
			file &&
			html`<p><strong><${Text} value=${file.name} /></strong> <span class="small">
      ${figures.bytes(file.size)}</span></p>`
		}
    ${
			file &&
			!kind &&
			html`<p>This page does not read such files. The command does:</p>
      <${Command} text=${command} />`
		}
    ${
			table &&
			html`<${Columns} ...${{ table, roles, missing, collection }} onChange=${change}
      onEncoding=${decode} onMissing=${decide} />`
		}
    ${
			isReady &&
			html`<p class="actions"><button class="primary"
      disabled=${isBusy} onClick=${send}>${isBusy ? "Loading…" : `Load into ${name}`}
    </button></p>`
		}
    <${Trouble} problem=${problem} /><${Result} ...${{ answer, name }} /></section>`;
}

const ENDED = [
	moment("started", "started"),
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
      <button type="button" onClick=${onClose}>Cancel</button></p></form><//>`;
}

async function download(name, snapshot) {
	const path = snapshotOf(name, snapshot);
	const what = hasKey() ? await (await raw("GET", path)).blob() : new URL(path, root).href;
	save(`${snapshot}.sqlite`, what);
}

function Snapshots({ collection, writes, refresh }) {
	const { name } = collection;
	const { data, problem, repeat } = useAnswer(at(name, "/snapshots"));
	const { act, ...state } = useAct();
	const [chosen, choose] = useState(null);
	const snapshots = data?.snapshots || [];
	const change = (work) => act(work).then(repeat);
	const acts = (_, { name: one }) => html`<span class="actions">
    <button class="quiet" onClick=${() => act(() => download(name, one))}>download
    </button>
    ${
			writes &&
			html`<button class="quiet" onClick=${() => choose(one)}>restore…
      </button><button class="quiet danger" aria-label=${`Remove ${one}`}
        onClick=${() => change(() => ask("DELETE", snapshotOf(name, one)))}>remove</button>`
		}</span>`;
	const columns = [
		texts("name", "name"),
		moment("created", "made"),
		number("bytes", "size", figures.bytes),
		{ key: "act", name: "", show: acts },
	];
	return html`<section class="panel"><div class="head"><h2>Snapshots</h2><span class="space"></span>
      ${
				writes &&
				html`<button class="primary" disabled=${state.isBusy}
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
	const [turn, onLoaded] = useTurn();
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
