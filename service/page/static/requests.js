import { html, useState } from "./vendor/preact.js";
import { hasKey, root } from "./api.js";
import { Command, Tabs } from "./parts.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
}

function curl(name, body) {
  const key = hasKey() ? ` -H "X-API-Key: $GCWS_API_KEY"` : "";
  return `curl -s ${quoted(new URL(`v1/collections/${name}/query`, root).href)}${key} --json ${quoted(JSON.stringify(body))}`;
}

function vectorInPython(vector) {
  if (Array.isArray(vector)) return python(vector);
  const keys = vector.names || vector.indices;
  if (!keys) return python(vector);
  const values = vector.values || keys.map(() => 1);
  return `{${keys.map((key, place) => `${python(key)}: ${values[place]}`).join(", ")}}`;
}

function program(name, { vector, id, text, limit, recall, filter }) {
  const what = id !== undefined ? `id=${python(id)}` : text !== undefined ? `text=${python(text)}` : vectorInPython(vector);
  const words = [what, `limit=${limit}`, `recall=${recall}`];
  if (filter) words.push(`where=${python(filter)}`);
  const key = hasKey() ? ', api_key=os.environ["GCWS_API_KEY"]' : "";
  return `${key ? "import os, " : "import "}gcws_search
items = gcws_search.connect(${python(root.href)}${key}).collection(${python(name)})
for hit in items.query(${words.join(", ")}):
    print(hit.id, hit.score)`;
}

function command(name, { vector, id, text, limit, recall, filter }) {
  const what = id !== undefined ? `--id ${quoted(id)}` : text !== undefined ? `--text ${quoted(text)}`
    : vector.names ? `--names ${quoted(vector.names.map((word, place) => `${word}:${vector.values[place]}`).join(" "))}`
      : `--row ${quoted(Array.isArray(vector) ? vector.join(",") : JSON.stringify(vector))}`;
  const where = filter ? ` --where ${quoted(JSON.stringify(filter))}` : "";
  return `gcws-search query ${name} ${what} --limit ${limit} --recall ${recall}${where} --url ${root.href}`;
}

export function Requests({ name, body }) {
  const [form, set] = useState("curl");
  const texts = { curl, python: program, cli: command };
  return html`<div><${Tabs} label="Request as" chosen=${form} onChoose=${set} options=${[["curl", "curl"], ["python", "Python"], ["cli", "CLI"]]} />
    <${Command} text=${texts[form](name, body)} /></div>`;
}
