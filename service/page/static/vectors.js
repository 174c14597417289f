import { Problem } from "./api.js";

export function entries(vector) {
	if (!vector) return [];
	if (Array.isArray(vector)) {
		return vector.map((value, index) => [index, value]).filter(([, value]) => value !== 0);
	}
	const values = vector.values || vector.indices.map(() => 1);
	return vector.indices.map((index, place) => [index, values[place]]);
}

export function dense(vector, size) {
	const out = new Float64Array(size);
	for (const [index, value] of entries(vector)) if (index < size) out[index] = value;
	return out;
}

export function greatest(vector, limit) {
	return entries(vector)
		.sort(([a, x], [b, y]) => Math.abs(y) - Math.abs(x) || a - b)
		.slice(0, limit);
}

export const chunksOf = (all, size) =>
	Array.from({ length: Math.ceil(all.length / size) }, (_, chunk) =>
		all.slice(chunk * size, (chunk + 1) * size),
	);

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
const PAIR = /^(.+):([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)$/i;

const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

export function kindOf(text) {
	const words = wordsOf(text);
	if (/^\s*[[{]/.test(text)) return "row";
	if (words.length > 1 && words.every((word) => NUMBER.test(word))) return "row";
	if (words.length && words.every((word) => /^\d+:/.test(word) && PAIR.test(word))) return "row";
	return words.length > 1 ? "names" : "id";
}

export function parseRow(text) {
	if (/^\s*[[{]/.test(text)) return JSON.parse(text);
	const words = wordsOf(text);
	if (words.length && words.every((word) => PAIR.test(word))) {
		const pairs = words.map((word) => word.match(PAIR));
		const [indices, values] = [1, 2].map((part) => pairs.map((pair) => Number(pair[part])));
		return { indices, values };
	}
	const wrong = words.find((word) => !NUMBER.test(word));
	if (wrong !== undefined) {
		const got = JSON.stringify(wrong.slice(0, 40));
		throw new SyntaxError(`expected numbers, or index:number, got ${got}`);
	}
	return words.map(Number);
}

export function parseNames(text) {
	const words = text.trim().split(/\s+/).filter(Boolean);
	const weights = new Map();
	for (const word of words) {
		const pair = word.match(PAIR);
		const [name, weight] = pair ? [pair[1], Number(pair[2])] : [word, 1];
		weights.set(name, (weights.get(name) || 0) + weight);
	}
	return { names: [...weights.keys()], values: [...weights.values()] };
}

export function queryOf({ id, row, names, text }) {
	if (id !== undefined) return { id };
	if (text !== undefined) return { text };
	if (names !== undefined) return { vector: parseNames(names) };
	try {
		if (row === undefined) throw new Error("expected an id, a row or names, got none of them");
		return { vector: parseRow(row) };
	} catch (error) {
		throw new Problem({ code: "row", detail: `row: ${error.message}` });
	}
}
