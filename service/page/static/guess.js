import { raw } from "./api.js";
import * as figures from "./figures.js";

const HEAD = 1 << 20; // As much as the server looks at of a table.
const KINDS = {
	"text/csv": /\.(csv|txt)(\.gz)?$/i,
	"text/tab-separated-values": /\.(tsv|tab)(\.gz)?$/i,
	"application/x-ndjson": /\.(ndjson|jsonl)(\.gz)?$/i,
	"application/x-npy": /\.npy(\.gz)?$/i,
	"application/vnd.apache.arrow.stream": /\.arrows?(\.gz)?$/i,
};

export const kindOf = (file) => Object.keys(KINDS).find((kind) => KINDS[kind].test(file.name));

export const isTable = (file) => (kindOf(file) || "").startsWith("text/");

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
	return new Uint8Array(await new Blob(parts).arrayBuffer()).slice(0, HEAD);
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

/** What the server takes a table for.
 * @returns {Promise<Answers.PreviewAnswer>} */
export async function previewOf(given, query) {
	const headers = { "Content-Type": kindOf(given) };
	const body = await headOf(given);
	return (await raw("POST", `v1/preview?${query}`, { body, headers })).json();
}

async function guessTable(given) {
	const { holds, dim } = await previewOf(given, "");
	const words = holds === "texts" ? "no column" : figures.plural(dim, "column");
	return { holds, dim, why: `it has ${words} of numbers` };
}

/** Without `holds` where nothing can be said.
 * @returns {Promise<{ name: string, holds?: string, dim?: number, why: string }>} */
export async function guessOf(given) {
	const stem = given.name.replace(/(\.\w+){1,2}$/, "");
	const name = stem.replace(/[^\p{L}\p{N}._-]+/gu, "-") || "items";
	try {
		const kind = kindOf(given);
		if (isTable(given)) return { name, ...(await guessTable(given)) };
		if (kind === "application/x-ndjson") return { name, ...guessLine(await headOf(given)) };
		if (kind === "application/x-npy") return { name, ...guessNpy(await headOf(given)) };
	} catch (error) {
		return { name, why: `it could not be read (${error.message})` };
	}
	return { name, why: "such files are not looked into here" };
}
