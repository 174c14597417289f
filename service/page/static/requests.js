import { hasKey, root } from "./api.js";
import { html, useState } from "./html.js";
import { Command, Tabs } from "./parts.js";

const WORDS = { null: "None", true: "True", false: "False", ",": ", ", ":": ": " };

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// Strings of JSON are those of Python.
const python = (value) =>
	JSON.stringify(value).replace(
		/"(\\.|[^"\\])*"|null|true|false|[,:]/g,
		(word) => WORDS[word] ?? word,
	);

function curl(name, body) {
	const key = hasKey() ? ' -H "X-API-Key: $GCWS_API_KEY"' : "";
	const address = new URL(`v1/collections/${name}/query`, root).href;
	return `curl -s ${quoted(address)}${key} --json ${quoted(JSON.stringify(body))}`;
}

function vectorInPython(vector) {
	const { names, indices, values } = vector;
	const keys = names || indices;
	if (!keys) return python(vector);
	const pairs = keys.map((key, place) => `${python(key)}: ${values ? values[place] : 1}`);
	return `{${pairs.join(", ")}}`;
}

function program(name, { vector, id, text, limit, recall, filter }) {
	let what = vector && vectorInPython(vector);
	if (id !== undefined) what = `id=${python(id)}`;
	if (text !== undefined) what = `text=${python(text)}`;
	const words = [what, `limit=${limit}`, `recall=${recall}`];
	if (filter) words.push(`where=${python(filter)}`);
	const key = hasKey() ? ', api_key=os.environ["GCWS_API_KEY"]' : "";
	return `${key ? "import os, " : "import "}gcws_search
items = gcws_search.connect(${python(root.href)}${key}).collection(${python(name)})
for hit in items.query(${words.join(", ")}):
    print(hit.id, hit.score)`;
}

function wordsOf({ vector, id, text }) {
	if (id !== undefined) return `--id ${quoted(id)}`;
	return text === undefined ? `--row ${quoted(JSON.stringify(vector))}` : `--text ${quoted(text)}`;
}

function command(name, body) {
	const { limit, recall, filter } = body;
	const asked = `gcws-search query ${name} ${wordsOf(body)} --limit ${limit} --recall ${recall}`;
	const where = filter ? ` --where ${quoted(JSON.stringify(filter))}` : "";
	return `${asked}${where} --url ${root.href}`;
}

const FORMS = { curl, Python: program, CLI: command };

export function Requests({ name, body }) {
	const [form, set] = useState("curl");
	return html`<div><${Tabs} label="Request as" chosen=${form} onChoose=${set}
    options=${Object.keys(FORMS).map((one) => [one, one])} />
    <${Command} text=${FORMS[form](name, body)} /></div>`;
}
