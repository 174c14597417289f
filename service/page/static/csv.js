import { script } from "./script.js";

export const MAX_CSV_BYTES = 50e6;
const HEAD = 1 << 20; // Characters of rows that tell what a column is.
const LINES = 5;
const ENOUGH = 3; // Cells of which one may be no number, or one in ten.
const DELIMITERS = [",", ";", "|", "\t", " "];
const MISSING = new Set(["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL"]);
const TRUTHS = { true: true, True: true, TRUE: true, false: false, False: false, FALSE: false };
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const NUMBER = { ".": /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/, ",": /^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$/ };

export const isCsv = (file) => /\.(csv|tsv|txt)$/i.test(file.name);

export class OtherEncoding extends Error {}

function decoded(bytes) {
  const mark = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[bytes[0] * 256 + bytes[1]];
  try {
    return new TextDecoder(mark || "utf-8", { fatal: true }).decode(bytes);
  } catch {
    const [before] = new TextDecoder().decode(bytes).split("\ufffd", 1);
    throw new OtherEncoding(`line ${before.split("\n").length}: expected text in UTF-8, got bytes that are none`);
  }
}

const isMissing = (text) => MISSING.has(text.trim());

function truth(text) {
  const word = text.trim();
  return Object.hasOwn(TRUTHS, word) ? TRUTHS[word] : undefined;
}

function number(text, point) {
  const word = text.trim();
  return NUMBER[point].test(word) ? Number(word.replace(point, ".")) : undefined;
}

function delimiterOf(lines) {
  const counts = DELIMITERS.map((each) => lines.map((line) => line.split(each).length - 1));
  const even = counts.map((found) => (Math.min(...found) === Math.max(...found) ? found[0] : 0));
  const most = Math.max(...even);
  return counts[0][0] || !most ? "," : DELIMITERS[even.indexOf(most)];
}

// Numbers with even steps between them are names, such as 0, 1, 2 or years.
function isRow(lines, delimiter) {
  const cells = lines.slice(0, 2).map((line) => line.split(delimiter).map((text) => number(text, ".") ?? truth(text)));
  const first = cells[0].filter((value) => value !== undefined).map(Number);
  const shapes = cells.map((line) => line.map((value) => value === undefined).join());
  if (first.length < 2 || (lines.length > 1 && shapes[0] !== shapes[1])) return false;
  const steps = first.slice(1).map((value, place) => value - first[place]);
  const widest = Math.max(...steps.map(Math.abs));
  return Math.max(...steps) - Math.min(...steps) > 0.1 * widest || widest === 0;
}

function kindOf(cells, point) {
  const present = cells.filter((text) => !isMissing(text));
  const numbers = present.filter((text) => number(text, point) !== undefined).length;
  const isPadded = numbers > 0 && present.some((text) => /^\s*[+-]?0\d/.test(text));
  if (isPadded || !present.length) return "text";
  if (present.every((text) => truth(text) !== undefined)) return "truth";
  const others = present.length - numbers;
  const allowed = present.length >= ENOUGH ? Math.max(1, Math.floor(present.length / 10)) : 0;
  if (others > allowed) return "text";
  return others ? "number, with others" : "number";
}

export async function parsed(file) {
  if (!window.Papa) await script("vendor/papaparse.js");
  const text = decoded(new Uint8Array(await file.arrayBuffer()));
  const lines = text.slice(0, HEAD).split("\n", LINES).map((line) => line.replace(/\r$/, "")).filter((line) => line.trim());
  const delimiter = /\.tsv$/i.test(file.name) ? "\t" : delimiterOf(lines.length ? lines : [""]);
  const point = delimiter === ";" && lines.some((line) => /(^|;)-?\d+,\d+(;|$)/.test(line)) ? "," : ".";
  const { data, errors } = window.Papa.parse(text, { delimiter, skipEmptyLines: true });
  if (errors.length) throw new Error(`line ${(errors[0].row ?? 0) + 1}: ${errors[0].message}`);
  const hasNames = !lines.length || !isRow(lines, delimiter);
  const names = hasNames ? data.shift() || [] : data[0].map((_, place) => `f${place}`);
  if (!data.length) throw new Error("expected a line with names of columns and a line with values, got less");
  const twice = names.find((name, place) => names.indexOf(name) !== place);
  if (twice !== undefined) throw new Error(`expected columns of different names, got ${JSON.stringify(twice)} twice`);
  const head = [];
  for (let size = 0, row = 0; row < data.length && size < HEAD; row += 1) {
    if (data[row].length === names.length) head.push(data[row]);
    size += data[row].reduce((sum, cell) => sum + cell.length + 1, 0);
  }
  const kinds = names.map((_, place) => kindOf(head.map((row) => row[place]), point));
  const sums = names.map((_, place) => head.reduce((sum, row) => sum + Math.abs(Number(truth(row[place]) ?? number(row[place], point) ?? 0)), 0));
  return { names, hasNames, rows: data, kinds, point, sums };
}

// The share of Σ|x| that each column of the vectors has in the first rows.
export function sharesOf({ names, sums }, roles) {
  const total = names.reduce((sum, name, place) => sum + (roles[name] === "vector" ? sums[place] : 0), 0);
  return names.map((name, place) => (roles[name] === "vector" && total ? sums[place] / total : undefined));
}

export function columnsOf({ names, kinds }) {
  const called = names.filter((name) => name.toLowerCase() === "id");
  // A column of numbers without a name only counts rows, as pandas and R write them.
  const isCount = (name, place) => name === "" && kinds[place].startsWith("number");
  const id = [...called, ...names.filter((name, place) => name === "" && !isCount(name, place))][0];
  const isFree = (name) => name !== "" && !called.includes(name);
  const roleOf = (name, place) => (isFree(name) && kinds[place] !== "text" ? "vector" : "payload");
  return Object.fromEntries(names.map((name, place) => [name, name === id ? "id" : isCount(name, place) ? "leave out" : roleOf(name, place)]));
}

function coordinate(text, kind, point) {
  if (isMissing(text)) throw new Error("expected a number, got a missing value");
  const value = kind === "truth" ? truth(text) : number(text, point);
  if (value === undefined) throw new Error(`expected ${kind === "truth" ? "true or false" : "a number"}, got ${JSON.stringify(text.slice(0, 60))}`);
  return Number(value);
}

// The JSON of a cell; undefined where there is nothing.
function field(text, kind, point) {
  const isNumber = kind === "number" || kind === "truth";
  if (text === "" || (isNumber && isMissing(text))) return undefined;
  const value = { number: number(text, point), truth: truth(text) }[kind];
  const isExact = kind === "number" && JSON_NUMBER.test(text.trim()); // JavaScript would round it.
  return isExact ? text.trim() : JSON.stringify(value ?? text);
}

function itemOf(row, places, table, isOpen) {
  const { names, kinds, point } = table;
  if (row.length !== names.length) throw new Error(`expected ${names.length} columns, got ${row.length}`);
  const at = (place, work) => {
    try {
      return work(row[place], kinds[place], point);
    } catch (error) {
      throw new Error(`column ${JSON.stringify(names[place])}: ${error.message}`);
    }
  };
  const parts = [];
  for (const place of places.id) {
    parts.push(`"id":${at(place, (text) => {
      if (text === "") throw new Error("expected an id, got a blank");
      return JSON.stringify(text);
    })}`);
  }
  for (const place of places.text) parts.push(`"text":${JSON.stringify(row[place])}`);
  const values = places.vector.map((place) => at(place, coordinate));
  const filled = places.vector.map((place, index) => [names[place], values[index]]).filter(([, value]) => value !== 0);
  if (!places.text.length) parts.push(`"vector":${JSON.stringify(isOpen ? { names: filled.map(([name]) => name), values: filled.map(([, value]) => value) } : values)}`);
  const fields = places.payload.map((place) => [names[place], field(row[place], kinds[place], point)]).filter(([, json]) => json !== undefined);
  if (fields.length) parts.push(`"payload":{${fields.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join()}}`);
  return `{${parts.join()}}\n`;
}

// As columnsOf, for a collection of texts: the longest words in the first rows are the text.
export function textColumnsOf(table) {
  const roles = columnsOf(table);
  const length = (place) => table.rows.slice(0, 100).reduce((sum, row) => sum + row[place].length, 0);
  const free = table.names.filter((name) => name && ["vector", "payload"].includes(roles[name]));
  const longest = (one, other) => length(table.names.indexOf(other)) - length(table.names.indexOf(one));
  const text = free.find((name) => name.toLowerCase() === "text") ?? [...free].sort(longest)[0];
  return { ...roles, ...Object.fromEntries(free.map((name) => [name, name === text ? "text" : "payload"])) };
}

// The columns that name coordinates; null where they only number them.
export function columnNames({ names, hasNames }, roles) {
  const columns = names.filter((name) => roles[name] === "vector");
  const isNumbered = !hasNames || columns.every((name) => /^\d+$/.test(name));
  return isNumbered || columns.some((name) => !name || name.length > 255) ? null : columns;
}

const listed = (names) => names.slice(0, 8).map((name) => JSON.stringify(name)).join(", ") + (names.length > 8 ? ` and ${names.length - 8} more` : "");

// Throws unless each coordinate has a column, and each column a coordinate.
export function requireSame(columns, coordinates) {
  const missing = coordinates.filter((name) => !columns.includes(name));
  const unknown = columns.filter((name) => !coordinates.includes(name));
  const told = [["none for", missing], ["unknown", unknown]].filter(([, some]) => some.length).map(([words, some]) => `${words} ${listed(some)}`);
  if (told.length) throw new Error(`expected a column for each coordinate by its name, ${listed(coordinates)}, got ${told.join(" and ")}`);
}

// Lines of JSON, the rows that they are of, and the rows that are no items.
export function itemsOf(table, roles, collection) {
  const placesOf = (role) => table.names.flatMap((name, place) => (roles[name] === role ? [place] : []));
  const places = Object.fromEntries(
    ["id", "vector", "text", "payload"].map((role) => [role, placesOf(role)]));
  if (collection.coordinates) places.vector = collection.coordinates.map((name) => table.names.indexOf(name));
  const what = collection.text ? "text" : "vector";
  const many = places[what].length;
  if (!many || (many > 1 && collection.text)) {
    throw new Error(`expected a column that becomes the ${what}, got ${many || "none"}`);
  }
  if (places.id.length > 1) throw new Error(`expected one column that becomes the id, got ${places.id.map((place) => JSON.stringify(table.names[place])).join(" and ")}`);
  const [lines, numbers, rejected] = [[], [], []];
  table.rows.forEach((row, number) => {
    try {
      lines.push(itemOf(row, places, table, collection.dim === null));
      numbers.push(number);
    } catch (error) {
      rejected.push({ row: number, code: "invalid_row", detail: error.message });
    }
  });
  return { lines, numbers, rejected };
}
