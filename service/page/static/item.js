import { html, useMemo } from "./vendor/preact.js";
import { itemOf } from "./api.js";
import { href } from "./address.js";
import { useAsk } from "./hooks.js";
import { Copy, Skeleton, Table, Text, Trouble } from "./parts.js";
import { Bars, Drawn, Link, useNames } from "./draw.js";
import { entries } from "./vectors.js";
import { title } from "./view.js";
import * as figures from "./figures.js";

const LARGEST = 40;

export default function Item({ collection, params }) {
  const { name } = collection;
  const { data: item, problem } = useAsk((signal) => itemOf(name, params.id ?? "", signal), [name, params.id]);
  const items = useMemo(() => (item ? [item] : []), [item]);
  const names = useNames(collection, items, LARGEST);
  if (problem) return html`<h1>Item <bdi>${params.id}</bdi></h1><${Trouble} problem=${problem} />`;
  if (!item) return html`<${Skeleton} rows=${5} />`;
  const { view } = collection;
  const payload = Object.entries(item.payload || {});
  return html`<div class="head"><h1><bdi>${title(view, item).slice(0, 200)}</bdi></h1>
      <span class="tag">id <bdi>${item.id}</bdi></span><${Copy} text=${item.id} label="Copy id" /><span class="space"></span>
      <a class="button primary" href=${href(name, "query", { id: item.id })}>Find similar</a></div>
    <div class="halves"><div class="stack">
      <section class="panel"><h2>${view.image ? "Picture" : "Shown"}</h2><div class="large"><${Drawn} item=${item} view=${view} names=${names} limit=${20} /></div><${Link} item=${item} view=${view} /></section>
      <section class="panel"><h2>Payload</h2>${payload.length ? html`<${Table} caption="All keys" columns=${[
        { key: 0, name: "key", show: (key) => html`<${Text} value=${key} />` },
        { key: 1, name: "value", show: (value) => html`<${Text} value=${value} />` }]} rows=${payload} />` : html`<p class="small">None.</p>`}</section></div>
      <section class="panel"><h2>Vector</h2><p class="small">${figures.plural(entries(item.vector).length, "value")} that ${entries(item.vector).length === 1 ? "is" : "are"} not 0; the greatest:</p>
        <${Bars} vector=${item.vector} names=${names} limit=${LARGEST} />
        <p><${Copy} text=${JSON.stringify(item.vector)} label="Copy vector as JSON" /></p></section></div>`;
}
