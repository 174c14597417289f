import { raw } from "./api.js";

/** @typedef {Record<string, string>} Roles */

export const LEFT_OUT = "leave out";

/** @returns {Roles} */
export const rolesOf = ({ columns }) =>
	Object.fromEntries(columns.map(({ name, role }) => [name, role ?? LEFT_OUT]));

/** Say what columns become, as a load is asked for it.
 * @param {Answers.PreviewAnswer} table
 * @param {Roles} roles */
export function queryOf({ columns }, roles, isText) {
	const query = new URLSearchParams();
	for (const role of ["id", isText ? "text" : "vector", "payload"]) {
		const chosen = columns.filter(({ name }) => roles[name] === role);
		for (const { name } of chosen.length ? chosen : [{ name: "" }]) query.append(role, name);
	}
	return query;
}

const HEAD = 1 << 20; // As much as the server looks at.
const KINDS = {
	"text/csv": ["csv", "txt"],
	"text/tab-separated-values": ["tsv", "tab"],
	"application/x-ndjson": ["ndjson", "jsonl"],
	"application/x-npy": ["npy"],
	"application/vnd.apache.arrow.stream": ["arrow", "arrows"],
};

export function kindOf({ name }) {
	const [, end] = name.toLowerCase().match(/\.(\w+)(?:\.gz)?$/) || [];
	return Object.keys(KINDS).find((kind) => KINDS[kind].includes(end));
}

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

/** What the server takes a file for.
 * @returns {Promise<Answers.PreviewAnswer>} */
export async function previewOf(given, query = "") {
	const headers = { "Content-Type": kindOf(given) };
	const body = given.slice(0, HEAD);
	return (await raw("POST", `v1/preview?${query}`, { body, headers })).json();
}

export const nameFor = ({ name }) =>
	name.replace(/(\.\w+){1,2}$/, "").replace(/[^\p{L}\p{N}._-]+/gu, "-") || "items";
