import { at, itemsOf, Problem, raw, root } from "./api.js";
import { namesOf } from "./draw.js";

// Deleted items, as lines of a load; a reload keeps them, unless they are too many.
const placeOf = (name) => `gcws-deleted ${new URL(at(name), root)}`;

export const deletedFrom = (name) => sessionStorage.getItem(placeOf(name)) ?? "";

export function keep(name, lines) {
	try {
		sessionStorage.setItem(placeOf(name), lines);
	} catch {
		sessionStorage.removeItem(placeOf(name));
	}
}

// All numbers as they came.
const sent = (_, value, context) =>
	typeof value === "number" && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
const indicesOf = ({ indices }) => indices.map((index) => Number(index.rawJSON ?? index));

function vectorOf(vector, names) {
	if (Array.isArray(vector)) return vector;
	const named = indicesOf(vector).map((index) => names.get(index));
	return named.every(Boolean) ? { names: named, values: vector.values } : vector;
}

// By names of coordinates: one may go with its last item.
export async function linesOf({ name, dim, names }, ids) {
	const items = await itemsOf(name, ids, null, sent);
	const all = names && dim === null ? items.flatMap(({ vector }) => indicesOf(vector)) : [];
	const known = new Map(await namesOf(name, [...new Set(all)]));
	return items.map(({ id, vector, text, payload, expires }) => {
		const what = text === undefined ? { vector: vectorOf(vector, known) } : { text };
		return `${JSON.stringify({ id, ...what, payload, expires })}\n`;
	});
}

export async function restore(name, body) {
	const path = at(name, "/load?mode=insert&on_error=skip&max_rejected=10000");
	const headers = { "Content-Type": "application/x-ndjson" };
	const answer = await (await raw("POST", path, { body, headers })).json();
	const wrong = answer.rejected.find(({ code }) => code !== "item_exists");
	if (wrong) throw new Problem(wrong);
	return answer;
}
