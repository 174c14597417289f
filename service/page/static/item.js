import { href } from "./address.js";
import { Bars, Drawn, Link, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { useItem } from "./hooks.js";
import { html, useMemo } from "./html.js";
import { Awaited, Copy, Table, texts } from "./parts.js";
import { entries } from "./vectors.js";
import { title } from "./view.js";

const LARGEST = 40;
const COLUMNS = [texts(0, "key"), texts(1, "value")];

export default function Item({ collection, params }) {
	const { name, view } = collection;
	const { data: item, problem } = useItem(name, params.id ?? "");
	const items = useMemo(() => (item ? [item] : []), [item]);
	const names = useNames(collection, items, LARGEST);
	if (!item) {
		return html`<h1>Item <bdi>${params.id}</bdi></h1><${Awaited} ...${{ problem }} rows=${2} />`;
	}
	const payload = Object.entries(item.payload || {});
	const { vector } = item;
	const filled = entries(vector).length;
	return html`<div class="head"><h1><bdi>${title(view, item).slice(0, 200)}</bdi></h1>
      <span class="tag">id <bdi>${item.id}</bdi></span><${Copy} text=${item.id} label="Copy id" />
      <span class="space"></span>
      <a class="button primary" href=${href(name, "query", { id: item.id })}>Find similar</a></div>
    <div class="halves"><div class="stack">
      <section class="panel"><h2>${view.image ? "Picture" : "Preview"}</h2>
        <div class="large"><${Drawn} ...${{ item, view, names }} limit=${20} /></div>
        <${Link} ...${{ item, view }} /></section>
      <section class="panel"><h2>Payload</h2>${
				payload.length
					? html`<${Table} caption="All keys" columns=${COLUMNS} rows=${payload} />`
					: html`<p class="small">None.</p>`
			}</section></div>
      <section class="panel"><h2>Vector</h2>
        <p class="small">${figures.plural(filled, "value")} other than 0; the greatest:</p>
        <${Bars} ...${{ vector, names }} limit=${LARGEST} />
        <p><${Copy} text=${JSON.stringify(vector)} label="Copy vector as JSON" /></p></section>
    </div>`;
}
