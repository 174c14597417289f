import { entries } from "./vectors.js";

export function payloadAt(payload, key) {
  if (!payload || !key) return undefined;
  const own = (inner, part) => (inner && typeof inner === "object" && Object.hasOwn(inner, part) ? inner[part] : undefined);
  return Object.hasOwn(payload, key) ? payload[key] : key.split(".").reduce(own, payload);
}

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

function commonKeys(items) {
  const found = new Map();
  for (const { payload } of items) {
    for (const [key, value] of Object.entries(payload || {})) {
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(value);
    }
  }
  return found;
}

export function guess(collection, items) {
  const view = {};
  const side = Math.sqrt(collection.dim || 0);
  const isPositive = items.every(({ vector }) => entries(vector).every(([, value]) => value >= 0));
  if (items.length && Number.isInteger(side) && side >= 8 && side <= 256 && isPositive) {
    const wide = Array.isArray(items[0].vector);
    if (wide) view.image = { width: side, height: side };
  }
  for (const [key, values] of commonKeys(items)) {
    const name = key.toLowerCase();
    const texts = values.filter((value) => typeof value === "string");
    const length = texts.reduce((sum, text) => sum + text.length, 0) / (texts.length || 1);
    const isShort = values.every((value) => ["string", "number", "boolean"].includes(typeof value));
    const kinds = new Set(values).size;
    if (!view.smiles && name === "smiles" && texts.length) view.smiles = key;
    else if (!view.title && ["title", "name"].includes(name)) view.title = key;
    else if (!view.url && ["url", "link"].includes(name)) view.url = key;
    else if (!view.text && texts.length && length > 24) view.text = key;
    else if (!view.color && isShort && kinds > 1 && (kinds <= 20 || ["label", "class"].includes(name)) && kinds < values.length) view.color = key;
  }
  return view;
}

export function viewOf(collection, items) {
  const said = collection.metadata && collection.metadata.view;
  return said || guess(collection, items);
}

export const title = (view, item) => {
  const found = payloadAt(item.payload, view.title);
  return found === undefined || found === null ? item.id : String(found);
};

export const OKABE_ITO = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#d9cc1f"];
const DARKER = ["#5b3fa0", "#8a5a00", "#7fbf3f", "#8c2f39", "#333f8f", "#2f7f86", "#e78ac3"];
const PALETTE = [...OKABE_ITO, ...DARKER];
const OTHER = "#8c8c8c";

export function colors(values) {
  const counts = new Map();
  for (const value of values) if (value !== undefined) counts.set(String(value), (counts.get(String(value)) || 0) + 1);
  const order = [...counts].sort(([a, x], [b, y]) => y - x || a.localeCompare(b, "en", { numeric: true })).map(([value]) => value);
  const classes = order.slice(0, PALETTE.length).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const areSmall = classes.every((value) => /^\d+$/.test(value) && Number(value) < PALETTE.length);
  return {
    counts,
    classes,
    of: (value) => {
      const place = classes.includes(String(value)) && areSmall ? Number(value) : classes.indexOf(String(value));
      return place < 0 ? OTHER : PALETTE[place];
    },
  };
}
