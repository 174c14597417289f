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

// A number as it was sent: JavaScript does not have all.
const exact = (_, value, context) =>
	typeof value === "number" && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
const signed = (value) => (Object.is(value, -0) ? exact("", value, { source: "-0.0" }) : value);

function vectorOf(vector, names) {
	if (Array.isArray(vector)) return vector.map(signed);
	const { indices, values } = vector;
	const named = indices.map((index) => names.get(index));
	return named.every(Boolean) ? { names: named, values } : vector;
}

// By names of coordinates: one may go with its last item.
export async function linesOf({ name, dim, names }, ids) {
	const [items, others] = await Promise.all([itemsOf(name, ids), itemsOf(name, ids, null, exact)]);
	const payloads = new Map(others.map(({ id, payload }) => [id, payload]));
	const all = names && dim === null ? items.flatMap(({ vector }) => vector.indices) : [];
	const known = new Map(await namesOf(name, [...new Set(all)]));
	return items.map(({ id, vector, text, expires }) => {
		const what = text === undefined ? { vector: vectorOf(vector, known) } : { text };
		return `${JSON.stringify({ id, ...what, payload: payloads.get(id), expires })}\n`;
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
