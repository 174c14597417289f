import { at, get } from "./api.js";

const SAMPLE = 24;
const LIKE_BELOW = 0.2;

export function payloadAt(payload, key) {
	if (!payload || !key) return undefined;
	const has = (inner, part) => inner && typeof inner === "object" && Object.hasOwn(inner, part);
	const own = (inner, part) => (has(inner, part) ? inner[part] : undefined);
	return Object.hasOwn(payload, key) ? payload[key] : key.split(".").reduce(own, payload);
}

export const isScalar = (value) => /^[snb]/.test(typeof value);

export const textOf = (view, item) => item.text ?? payloadAt(item.payload, view.text);

export function safeUrl(text) {
	if (typeof text !== "string" || text.length > 100_000) return null;
	if (/^data:image\/(png|jpeg|gif|webp);base64,/i.test(text)) return text;
	try {
		const url = new URL(text);
		return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
	} catch {
		return null;
	}
}

function isSmooth(vectors, side) {
	const sums = [0, 0, 0];
	for (const vector of vectors) {
		const mean = vector.reduce((sum, value) => sum + value, 0) / vector.length;
		vector.forEach((value, place) => {
			const size = value - mean;
			sums[0] += size * size;
			if ((place + 1) % side) sums[1] += size * (vector[place + 1] - mean);
			if (place + side < vector.length) sums[2] += size * (vector[place + side] - mean);
		});
	}
	return Math.min(sums[1], sums[2]) > LIKE_BELOW * sums[0];
}

function imageOf(dim, vectors) {
	const side = Math.sqrt(dim || 0);
	const isSquare = Number.isInteger(side) && side >= 8 && side <= 256;
	if (!isSquare || !vectors.length || !vectors.every(Array.isArray)) return undefined;
	const isPositive = vectors.every((vector) => vector.every((value) => value >= 0));
	return isPositive || isSmooth(vectors, side) ? { width: side, height: side } : undefined;
}

function guess(collection, items) {
	const view = {};
	const image = imageOf(
		collection.dim,
		items.map(({ vector }) => vector),
	);
	if (image) view.image = image;
	const entries = items.flatMap(({ payload }) => Object.entries(payload || {}));
	for (const [key, all] of Map.groupBy(entries, ([key]) => key)) {
		const values = all.map(([, value]) => value);
		const name = key.toLowerCase();
		const texts = values.filter((value) => typeof value === "string");
		const length = texts.reduce((sum, text) => sum + text.length, 0) / (texts.length || 1);
		const isShort = values.every(isScalar);
		const kinds = new Set(values).size;
		const isClass = kinds > 1 && (kinds <= 20 || ["label", "class"].includes(name));
		if (!view.smiles && name === "smiles" && texts.length) view.smiles = key;
		else if (!view.title && ["title", "name"].includes(name)) view.title = key;
		else if (!view.url && ["url", "link"].includes(name)) view.url = key;
		else if (!view.text && texts.length && length > 24) view.text = key;
		else if (!view.color && isShort && isClass && kinds < values.length) view.color = key;
	}
	return view;
}

const placeOf = ({ name, dim }) => `gcws-view ${name} ${dim}`;

export const keepView = (collection, view) =>
	localStorage.setItem(placeOf(collection), JSON.stringify({ view, first: collection.first }));

// A collection with the view of its items: its metadata's, else what is kept here, else a guess.
export async function collectionOf(name, signal) {
	const collection = await get(at(name), signal);
	if (collection.metadata?.view) return { ...collection, view: collection.metadata.view };
	if (!collection.items) return { ...collection, view: {} };
	const kept = JSON.parse(localStorage.getItem(placeOf(collection)));
	const limit = kept ? 1 : SAMPLE;
	const path = at(name, `/items?limit=${limit}&with_vector=${!kept}`);
	const { items } = await get(path, signal);
	const found = { ...collection, first: items[0]?.id };
	if (kept && kept.first === found.first) return { ...found, view: kept.view };
	if (kept) {
		localStorage.removeItem(placeOf(collection));
		return collectionOf(name, signal);
	}
	const view = guess(collection, items);
	keepView(found, view);
	return { ...found, view };
}

export const title = (view, item) => String(payloadAt(item.payload, view.title) ?? item.id);

export function nameOfCoordinate(view, row) {
	const { name, coordinate } = row;
	const { width, channels = 1 } = view.image || {};
	if (name !== undefined || !width || channels > 1) return name ?? String(coordinate);
	return `row ${Math.floor(coordinate / width)}, column ${coordinate % width}`;
}
