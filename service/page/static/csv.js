import { script } from "./script.js";

export const MAX_CSV_BYTES = 50e6;
const SAMPLE = 200;

export const isCsv = (file) => /\.(csv|tsv|txt)$/i.test(file.name);

export async function parsed(file) {
  if (!window.Papa) await script("vendor/papaparse.js");
  return new Promise((resolve, reject) => {
    window.Papa.parse(file, {
      header: true,
      skipEmptyLines: true,
      complete: ({ data, meta, errors }) => {
        const serious = errors.find(({ type }) => type !== "Delimiter");
        if (!data.length) reject(new Error("expected a line with names of columns and a line with values, got less"));
        else if (serious) reject(new Error(`line ${(serious.row ?? 0) + 2}: ${serious.message}`));
        else resolve({ columns: meta.fields, rows: data });
      },
      error: reject,
    });
  });
}

const isNumber = (text) => text !== "" && text !== undefined && Number.isFinite(Number(text));

export function columnsOf({ columns, rows }, collection) {
  const sample = rows.slice(0, SAMPLE);
  const id = columns.find((name) => ["id", "", "_id", "key"].includes(name.toLowerCase()));
  const figures = columns.filter((name) => name !== id && sample.every((row) => isNumber(row[name])));
  const labels = ["label", "class", "target", "y"];
  const surplus = collection.dim === null ? 0 : figures.length - collection.dim;
  const rank = (name) => (labels.indexOf(name.toLowerCase()) + labels.length + 1) % (labels.length + 1);
  const payload = new Set(surplus > 0 ? [...figures].reverse().sort((a, b) => rank(a) - rank(b)).slice(0, surplus) : []);
  return Object.fromEntries(columns.map((name) => [name, name === id ? "id" : figures.includes(name) && !payload.has(name) ? "vector" : "payload"]));
}

function typed(text) {
  if (text === "" || text === undefined) return null;
  if (isNumber(text) && String(Number(text)) === text.trim()) return Number(text);
  return text;
}

export function itemsOf({ columns, rows }, roles, collection) {
  const of = (role) => columns.filter((name) => roles[name] === role);
  const [id] = of("id");
  const vector = of("vector");
  const payload = of("payload");
  if (!vector.length) throw new Error("expected a column that becomes the vector, got none");
  const isOpen = collection.dim === null;
  const lines = rows.map((row, place) => {
    const values = vector.map((name) => (row[name] === "" ? 0 : Number(row[name])));
    const kept = vector.map((name, index) => [name, values[index]]).filter(([, value]) => value !== 0);
    const item = { id: id === undefined ? place : row[id], vector: isOpen ? { names: kept.map(([name]) => name), values: kept.map(([, value]) => value) } : values };
    if (payload.length) item.payload = Object.fromEntries(payload.map((name) => [name, typed(row[name])]));
    return `${JSON.stringify(item)}\n`;
  });
  return new Blob(lines, { type: "application/x-ndjson" });
}
