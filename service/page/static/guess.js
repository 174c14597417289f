import { columnsOf, isCsv, MAX_CSV_BYTES, parsed } from "./csv.js";
import * as figures from "./figures.js";

const HEAD = 1 << 16;

let file = null;

export const hand = (given) => {
	file = given;
};

export function handed() {
	const given = file;
	file = null;
	return given;
}

async function headOf(given) {
	const isPacked = /\.gz$/i.test(given.name);
	const stream = isPacked
		? given.stream().pipeThrough(new DecompressionStream("gzip"))
		: given.stream();
	const reader = stream.getReader();
	const parts = [];
	let size = 0;
	while (size < HEAD) {
		const { value, done } = await reader.read();
		if (done) break;
		parts.push(value);
		size += value.length;
	}
	reader.cancel().catch(() => {});
	return new Uint8Array(await new Blob(parts).arrayBuffer());
}

function guessLine(bytes) {
	const [line] = new TextDecoder().decode(bytes).split("\n", 1);
	const { vector, text } = JSON.parse(line);
	if (text !== undefined) return { holds: "texts", why: "its first line has a text" };
	if (!Array.isArray(vector)) {
		return { holds: "vectors", dim: null, why: "its first vector is sparse" };
	}
	const why = `its first vector has ${figures.plural(vector.length, "number")}`;
	return { holds: "vectors", dim: vector.length, why };
}

function guessNpy(bytes) {
	const shape = new TextDecoder("latin1")
		.decode(bytes.slice(0, 1024))
		.match(/'shape': \((\d+), (\d+)\)/);
	if (!shape) throw new Error("expected an array of rows and columns");
	const [rows, columns] = shape.slice(1).map(Number);
	return {
		holds: "vectors",
		dim: columns,
		why: `it has ${figures.plural(rows, "row")} of ${figures.plural(columns, "number")}`,
	};
}

async function guessCsv(given) {
	const table = await parsed(given);
	const roles = columnsOf(table);
	const numbers = table.names.filter((name) => roles[name] === "vector");
	if (!numbers.length) return { holds: "texts", why: "it has no column of numbers" };
	return {
		holds: "vectors",
		dim: numbers.length,
		why: `it has ${figures.plural(numbers.length, "column")} of numbers`,
	};
}

/** Without `holds` where nothing can be said.
 * @returns {Promise<{ name: string, holds?: string, dim?: number, why: string }>} */
export async function guessOf(given) {
	const stem = given.name.replace(/(\.\w+){1,2}$/, "");
	const name = stem.replace(/[^\p{L}\p{N}._-]+/gu, "-") || "items";
	try {
		if (isCsv(given) && given.size <= MAX_CSV_BYTES) return { name, ...(await guessCsv(given)) };
		if (/\.(ndjson|jsonl)(\.gz)?$/i.test(given.name)) {
			return { name, ...guessLine(await headOf(given)) };
		}
		if (/\.npy(\.gz)?$/i.test(given.name)) return { name, ...guessNpy(await headOf(given)) };
	} catch (error) {
		return { name, why: `it could not be read (${error.message})` };
	}
	return { name, why: "such files are not looked into here" };
}
