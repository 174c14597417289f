import { html } from "./vendor/preact.js";
import { href } from "./address.js";
import { Bar, Cut, Table, Text } from "./parts.js";
import { csv, save } from "./save.js";
import { sorted, turned } from "./sorting.js";
import * as figures from "./figures.js";

const KEYS = 12;

export const keysOf = (items) => [
  ...new Set(items.flatMap(({ payload }) => Object.keys(payload || {})))];

const valueOf = (hit, key) => {
  if (key.startsWith("payload ")) return hit.payload?.[key.slice(8)];
  return key === "rank" ? hit.rank && -hit.rank : hit[key];
};

const payloadColumn = (key) => ({
  key: `payload ${key}`,
  name: key,
  show: (_, { payload }) => Object.hasOwn(payload || {}, key)
    && html`<${Text} value=${payload[key]} limit=${60} />`,
});

// Hits as a table: rank, score, id, payload; each column sorts.
export function HitTable({ collection, hits, why, sort, onSort }) {
  const { name } = collection;
  const link = (id) => html`<a href=${href(name, "query", { id })}>
    <${Cut} value=${id} limit=${40} /></a>`;
  const digits = figures.decimals(hits.map((hit) => hit.score));
  const score = (value) => html`<strong>${figures.score(value, digits)}</strong>
    <${Bar} value=${Math.max(0, value)} label=${`score ${figures.score(value, digits)}`} />`;
  const columns = [
    { key: "rank", name: "rank", figure: true, show: (rank) => rank ?? "missed" },
    { key: "score", name: "score", figure: true, show: score },
    { key: "id", name: "id", show: link },
    ...(hits.some(({ text }) => text !== undefined) ? [{
      key: "text", name: "text", show: (text) => html`<${Text} value=${text ?? ""} />` }] : []),
    ...keysOf(hits).slice(0, KEYS).map(payloadColumn),
    { key: "why", name: "", show: (_, hit) => html`<a class="quiet" href=${why(hit)}
      aria-label=${`Why is ${hit.id} similar`}>why</a>` },
  ];
  return html`<${Table} caption="Hits" columns=${columns} rows=${sorted(hits, sort, valueOf)}
    sort=${sort} onSort=${(key) => onSort(turned(sort, key))} />`;
}

export function HitExport({ name, hits }) {
  const keys = keysOf(hits);
  const hasText = hits.some(({ text }) => text !== undefined);
  const rows = () => csv([["rank", "id", "score", ...(hasText ? ["text"] : []), ...keys],
    ...hits.map(({ id, score, text, payload }, place) => [
      place + 1, id, score, ...(hasText ? [text] : []), ...keys.map((key) => payload?.[key])])]);
  const json = () => JSON.stringify(hits.map(({ vector, ...hit }) => hit), null, 1);
  return html`<button type="button" class="quiet" onClick=${() => save(`${name}-hits.csv`, rows(),
      "text/csv")}>CSV</button><button type="button" class="quiet"
      onClick=${() => save(`${name}-hits.json`, json(), "application/json")}>JSON</button>`;
}
