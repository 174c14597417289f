import { go, href } from "./address.js";
import { ask, at, get, post } from "./api.js";
import { Tiles, useTileKeys } from "./cards.js";
import { Drawn, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { Chips, Facets, Filter, parseFilter } from "./filters.js";
import { columnValue, payloadColumns } from "./hits.js";
import { useAct, useAnswer, useAsk, useSeen, useTurn } from "./hooks.js";
import { html, useRef, useState } from "./html.js";
import { fieldsOf, Layouts, links, Skeleton, Table, Tabs, Trouble } from "./parts.js";
import { sorted, turned } from "./sorting.js";
import { keepView } from "./view.js";

const PAGE = 48;
const FIRST = 500;

function useItems(collection, filter) {
	const [turn, next] = useTurn();
	const shown = useRef({});
	const { data, problem, waiting } = useAsk(
		async (signal) => {
			const before = shown.current;
			const cursor = before.filter === filter && before.cursor;
			const from = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
			const filtered = filter ? `&filter=${encodeURIComponent(filter)}` : "";
			const path = at(collection.name, `/items?limit=${PAGE}&with_vector=true${filtered}${from}`);
			const page = await get(path, signal);
			const items = [...(cursor ? before.items : []), ...page.items];
			shown.current = { filter, items, cursor: page.next_cursor };
			return shown.current;
		},
		[collection.name, turn, filter],
	);
	const isWhole = data?.cursor === null;
	const more = () => isWhole || problem || waiting || next();
	return { items: [], ...data, problem, isWhole, more };
}

const KINDS = [
	["bars", "Bars"],
	["text", "Words"],
	["smiles", "Molecule"],
	["image", "Picture"],
];
const KIND = "Drawn as";
const PICTURE = ["width", "height"];

function viewFrom(fields, kind, image) {
	const filled = Object.entries(fields).filter(([key, value]) => key !== KIND && value.trim());
	const { width, height, ...view } = Object.fromEntries(filled);
	if (kind !== "image") return view;
	return { ...view, image: { ...image, width: Number(width), height: Number(height) } };
}

function ViewForm({ collection, writes, refresh, onClose }) {
	const { view: start } = collection;
	const first = ["image", "smiles", "text"].find((kind) => start[kind]) || "bars";
	const [kind, choose] = useState(first);
	const { act, problem } = useAct();
	const save = (event) => {
		const view = viewFrom(fieldsOf(event), kind, start.image);
		act(async () => {
			const metadata = { ...collection.metadata, view };
			if (writes) await ask("PATCH", at(collection.name), { metadata });
			else keepView(collection, view);
			refresh();
			onClose();
		});
	};
	const field = (key, label, value, more) => html`<label>${label}
    <input name=${key} defaultValue=${value} ...${more} /></label>`;
	const keys = [...(["text", "smiles"].includes(kind) ? [kind] : []), "title", "url", "color"];
	return html`<form class="panel view-form" onSubmit=${save}>
    <h2>How items are shown</h2><p class="small">Kept ${
			writes ? "with the collection, for everybody" : "in this browser"
		}. Each field is a key of the payload; what is empty is not shown.</p>
    ${
			!collection.text &&
			html`<${Tabs} label=${KIND} chosen=${kind} options=${KINDS}
      onChoose=${choose} />`
		}
    <div class="fields">${keys.map((key) => field(key, key, start[key]))}
      ${
				kind === "image" &&
				PICTURE.map((key) =>
					field(key, `picture ${key}`, start.image?.[key], {
						inputmode: "decimal",
						required: true,
					}),
				)
			}</div>
    <${Trouble} problem=${problem} />
    <p class="actions"><button class="primary">Save</button>
      <button type="button" onClick=${onClose}>Cancel</button></p></form>`;
}

export default function Browse({ collection, params, writes, refresh }) {
	const { name } = collection;
	const { items, problem, isWhole, more } = useItems(collection, params.filter);
	const { view } = collection;
	const names = useNames(collection, items);
	const total = useAsk(
		async (signal) => post(at(name, "/count"), { filter: parseFilter(params.filter) }, signal),
		[name, params.filter],
	);
	const first = useAnswer(items.length > 0 && at(name, `/items?limit=${FIRST}`));
	const [isEditing, edit] = useState(false);
	const end = useRef();
	const change = (part) => go(href(name, "browse", { ...params, ...part }));
	const onFilter = (filter) => change({ filter });
	useTileKeys(collection);
	useSeen(end, more);
	const asTable = params.as === "table";
	const all = total.data && figures.plural(total.data.count, "item");
	const columns = [
		links("id", "id", (id) => href(name, "item", { id })),
		{
			key: "drawn",
			name: "",
			show: (_, item) => html`<div class="small-drawn">
      <${Drawn} item=${item} view=${view.image ? view : {}} names=${names} limit=${3} /></div>`,
		},
		...payloadColumns(items),
	];
	const onSort = (key) =>
		go(href(name, "browse", { ...params, sort: turned(params.sort, key) }), { replace: true });
	return html`<div class="two">
    <aside class="panel"><h2>Payload</h2>
      ${
				collection.items > FIRST &&
				html`<p class="small">Values of the first ${figures.count(FIRST)} items, counts of
        all.</p>`
			}
      <${Chips} text=${params.filter} onChange=${onFilter} />
      ${
				first.data &&
				html`<${Facets} key=${name} isEager=${innerWidth > 900} items=${first.data.items}
        collection=${collection} filter=${params.filter} onChange=${onFilter} />`
			}
      <${Filter} text=${params.filter} problem=${params.filter ? problem : null}
        onChange=${onFilter} />
    </aside>
    <section>
      <div class="head"><h1><bdi>${name}</bdi></h1>
        <span class="small figure">${all || "…"}${
					all && params.filter && ` of ${figures.count(collection.items)}`
				}</span>
        <span class="space"></span>
        <${Layouts} isTable=${asTable} onChoose=${(as) => change({ as })} />
        ${
					(writes || !collection.metadata?.view) &&
					html`<button
          onClick=${() => edit(!isEditing)} aria-expanded=${isEditing}>Change view…</button>`
				}</div>
      ${
				isEditing &&
				html`<${ViewForm} ...${{ collection, writes, refresh }}
        onClose=${() => edit(false)} />`
			}
      ${problem && !params.filter && html`<${Trouble} problem=${problem} />`}
      ${!items.length && !problem && !isWhole && html`<${Skeleton} rows=${4} kind="block" />`}
      ${
				!items.length &&
				isWhole &&
				html`<p>No item passes this filter. <button
        class="link" onClick=${() => onFilter("")}>Remove it</button></p>`
			}
      ${
				asTable
					? html`<${Table} caption=${`Items of ${name}`} sort=${params.sort}
          rows=${sorted(items, params.sort, columnValue)} ...${{ columns, onSort }} />
        ${
					params.sort &&
					!isWhole &&
					html`<p class="small" role="status">Sorted among the
          ${" "}${figures.plural(items.length, "item")} that are read so far.</p>`
				}`
					: html`<${Tiles} ...${{ collection, items, names }} view=${view}
          label=${`Items of ${name}`} />`
			}
      <div ref=${end} class="end">${
				!isWhole &&
				!problem &&
				items.length > 0 &&
				html`<button onClick=${more}>More items</button>`
			}</div>
    </section></div>`;
}
