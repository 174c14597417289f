import { go, href } from "./address.js";
import { at, itemsOf, post } from "./api.js";
import { Tiles } from "./cards.js";
import { Drawn, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { added } from "./filters.js";
import { useAsk, useItem } from "./hooks.js";
import { html, useMemo } from "./html.js";
import { nameOfCoordinate, title } from "./view.js";

const LISTED = 60;
const PATIENCE = 120;
const REASONS = 3;
const COORDINATES = 100;

const settled = () =>
	new Promise((resolve) => {
		setTimeout(resolve, PATIENCE);
	});

function Between({ collection: { name, view }, a, b }) {
	const { data } = useAsk(
		async (signal) => {
			await settled(); // a hand that passes by asks for nothing
			const body = { a: { id: a }, b: { id: b }, limit: COORDINATES };
			return { a, b, ...(await post(at(name, "/explain"), body, signal)) };
		},
		[name, a, b],
	);
	if (data?.a !== a || data.b !== b) return html`<p class="small">…</p>`;
	const shared = data.coordinates.filter(({ min }) => min > 0).sort((x, y) => y.min - x.min);
	const names = shared.slice(0, REASONS).map((row) => nameOfCoordinate(view, row).slice(0, 30));
	return html`<p class="small between">${figures.score(data.score)} similar to
    ${" "}<bdi>${a.slice(0, 40)}</bdi>${
			names.length
				? html`: both have <bdi>${names.join(", ")}</bdi>${shared.length > REASONS && ", …"}`
				: ": they share nothing"
		}</p>`;
}

export function Hovered({ collection, id, other, place }) {
	const { view } = collection;
	const { data } = useItem(collection.name, id);
	const item = data?.id === id ? data : null;
	const items = useMemo(() => (item ? [item] : []), [item]);
	const names = useNames(collection, items);
	const style = { left: `${place[0] + 16}px`, top: `${place[1] + 12}px` };
	return html`<div class="hovered panel" style=${style}>
    ${
			item
				? html`<${Drawn} ...${{ item, view, names }} limit=${5} />
      <strong><bdi>${title(view, item).slice(0, 80)}</bdi></strong>`
				: html`<bdi>${id.slice(0, 80)}</bdi>`
		}
    ${
			other !== undefined &&
			other !== id &&
			html`<${Between} collection=${collection}
      a=${other} b=${id} />`
		}</div>`;
}

function Listed({ collection, ids, hits, why, label }) {
	const shown = ids.slice(0, LISTED);
	const { name } = collection;
	const { data } = useAsk(
		(signal) => (shown.length ? itemsOf(name, shown, signal) : null),
		[name, shown.join("\n")],
	);
	const items = useMemo(() => {
		const known = new Map((data || []).map((item) => [item.id, item]));
		if (!hits) return [...known.values()];
		const found = hits.filter(({ id }) => known.has(id));
		return found.map((hit, place) => ({ ...known.get(hit.id), ...hit, rank: place + 1 }));
	}, [data, hits]);
	const names = useNames(collection, items);
	return html`${ids.length > LISTED && html`<p class="small">The first ${LISTED}:</p>`}
    <${Tiles} ...${{ collection, items, names, why, label }} view=${collection.view} />`;
}

export function Chosen({ collection, ids, color, values, filter, onClear }) {
	const kinds = [...new Set(values.filter((value) => value !== null && value !== undefined))];
	const narrowed = () => added(filter, { key: color, match: { any: kinds } });
	const words = kinds.length < 4 ? kinds.join(" or ") : `one of ${kinds.length}`;
	return html`<section class="panel"><div class="head">
      <h2>${figures.plural(ids.length, "item")} chosen</h2><span class="space"></span>
      ${
				color &&
				kinds.length > 0 &&
				kinds.length <= 20 &&
				html`<button type="button"
        onClick=${() => go(href(collection.name, "browse", { filter: narrowed() }))}>Filter:
        ${" "}${color} is ${words}</button>`
			}
      <button type="button" onClick=${onClear}>Clear</button></div>
    <${Listed} ...${{ collection, ids }} label="Items chosen" /></section>`;
}

export function Lit({ collection, id, hits, onClear }) {
	const { name } = collection;
	return html`<section class="panel"><div class="head"><h2>Similar to
      ${" "}<a href=${href(name, "query", { id })}><bdi>${id.slice(0, 80)}</bdi></a></h2>
      <span class="space"></span>
      <button type="button" onClick=${onClear}>Clear</button></div>
    <${Listed} ...${{ collection, hits }} ids=${hits.map((hit) => hit.id)} label="Hits"
      why=${(hit) => href(name, "why", { a: id, b: hit.id })} /></section>`;
}
