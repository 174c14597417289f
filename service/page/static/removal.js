import { ask, at, itemsOf, post } from "./api.js";
import { chunksOf } from "./vectors.js";

const CHUNK = 100;

// An item as it is written: never over one that has come in its place.
function written({ id, vector, text, payload, expires }) {
	const what = text === undefined ? { vector } : { text };
	return { id, ...what, ...(payload && { payload }), ...(expires && { expires }), if_version: 0 };
}

export async function remove(name, ids, onDeleted) {
	for (const chunk of chunksOf(ids, CHUNK)) {
		const items = await itemsOf(name, chunk);
		await post(at(name, "/items/delete"), { ids: chunk });
		onDeleted(items);
	}
}

export async function restore(name, items, onStored) {
	for (const chunk of chunksOf(items, CHUNK)) {
		await ask("PUT", at(name, "/items"), { items: chunk.map(written) });
		onStored(chunk);
	}
}
