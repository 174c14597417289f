import { href } from "./address.js";
import * as figures from "./figures.js";
import { html } from "./html.js";
import { Bar, links, number, Table, Text, texts } from "./parts.js";
import { csv, Save } from "./save.js";
import { sorted, turned } from "./sorting.js";

const KEYS = 12;

const keysOf = (items) => [...new Set(items.flatMap(({ payload }) => Object.keys(payload || {})))];

const haveTexts = (hits) => hits.some(({ text }) => text !== undefined);

export function columnValue(item, key) {
	if (key.startsWith("payload ")) return item.payload?.[key.slice(8)];
	return key === "rank" ? item.rank && -item.rank : item[key];
}

export const payloadColumns = (items) =>
	keysOf(items)
		.slice(0, KEYS)
		.map((key) => ({
			key: `payload ${key}`,
			name: key,
			show: (_, { payload }) =>
				Object.hasOwn(payload || {}, key) && html`<${Text} value=${payload[key]} limit=${60} />`,
		}));

export function HitTable({ collection, hits, why, sort, onSort }) {
	const { name } = collection;
	const digits = figures.decimals(hits.map((hit) => hit.score));
	const score = (value) => html`<strong>${figures.score(value, digits)}</strong>
    <${Bar} value=${Math.max(0, value)} label=${`score ${figures.score(value, digits)}`} />`;
	const columns = [
		number("rank", "rank", (rank) => rank ?? "missed"),
		number("score", "score", score),
		links("id", "id", (id) => href(name, "query", { id }), 40),
		...(haveTexts(hits) ? [texts("text", "text")] : []),
		...payloadColumns(hits),
		{
			key: "why",
			name: "",
			show: (_, hit) => html`<a class="quiet" href=${why(hit)}
      aria-label=${`Why is ${hit.id} similar`}>why</a>`,
		},
	];
	return html`<${Table} caption="Hits" columns=${columns} rows=${sorted(hits, sort, columnValue)}
    sort=${sort} onSort=${(key) => onSort(turned(sort, key))} />`;
}

export function HitExport({ name, hits }) {
	const keys = keysOf(hits);
	const own = ["id", "score", ...(haveTexts(hits) ? ["text"] : [])];
	const rows = () =>
		csv([
			["rank", ...own, ...keys],
			...hits.map((hit, place) => [
				place + 1,
				...own.map((key) => hit[key]),
				...keys.map((key) => hit.payload?.[key]),
			]),
		]);
	const bare = hits.map(({ vector, ...hit }) => hit);
	const json = () => JSON.stringify(bare, null, 1);
	return html`<${Save} name=${`${name}-hits.csv`} text=${rows} />
    <${Save} name=${`${name}-hits.json`} text=${json} />`;
}
