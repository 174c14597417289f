import { script } from "./script.js";

export const MAX_CSV_BYTES = 50e6;
const HEAD = 1 << 20; // Characters of rows that tell what a column is.
const LINES = 5;
const ENOUGH = 3; // Cells of which one may be no number, or one in ten.
const DELIMITERS = [",", ";", "|", "\t", " "];
const MISSING = new Set(["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL"]);
const TRUTHS = { true: true, True: true, TRUE: true, false: false, False: false, FALSE: false };
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const NUMBER = {
	".": /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/,
	",": /^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$/,
};
const UTF_16 = { "255 254": "utf-16le", "254 255": "utf-16be" };

export const isCsv = (file) => /\.(csv|tsv|txt)$/i.test(file.name);

export class OtherEncoding extends Error {}

function decoded(bytes) {
	const mark = bytes.slice(0, 2).join(" ");
	try {
		return new TextDecoder(UTF_16[mark] || "utf-8", { fatal: true }).decode(bytes);
	} catch {
		const [before] = new TextDecoder().decode(bytes).split("\ufffd", 1);
		const line = before.split("\n").length;
		throw new OtherEncoding(`line ${line}: expected text in UTF-8, got bytes that are none`);
	}
}

const quoted = (text) => JSON.stringify(text);

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
	const isDecimal = even[1] && !lines.some((line) => /(?<!\d),|,(?!\d)/.test(line));
	if (counts[0][0] && !isDecimal) return ",";
	const found = even.some(Boolean) ? even : counts.slice(0, -1).map((each) => each[0]);
	found[0] = 0;
	return DELIMITERS[found.indexOf(Math.max(...found))];
}

// Numbers with even steps between them are names, such as 0, 1, 2 or years.
function isRow(lines, delimiter, point) {
	const valuesOf = (line) =>
		line.split(delimiter).map((text) => number(text, point) ?? truth(text));
	const cells = lines.slice(0, 2).map(valuesOf);
	const first = cells[0].filter((value) => value !== undefined).map(Number);
	const shapes = cells.map((line) => line.map((value) => value === undefined).join());
	if (first.length < 2 || (lines.length > 1 && shapes[0] !== shapes[1])) return false;
	const steps = first.slice(1).map((value, place) => value - first[place]);
	if (steps.length === 1) return steps[0] !== 1;
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

function firstLines(text, unquoted) {
	return text
		.slice(0, HEAD)
		.replace(/(?<![^,;|\t \n\r])"[^"]*(?:""[^"]*)*"/g, unquoted)
		.split("\n", LINES)
		.map((line) => line.replace(/\r$/, ""))
		.filter((line) => line.trim());
}

export async function parsed(file) {
	const Papa = await script("vendor/papaparse.js", "Papa");
	const text = decoded(new Uint8Array(await file.arrayBuffer()));
	let lines = firstLines(text, () => '""');
	const delimiter = /\.tsv$/i.test(file.name) ? "\t" : delimiterOf(lines.length ? lines : [""]);
	lines = firstLines(text, (cell) =>
		[delimiter, "\r", "\n"].some((each) => cell.includes(each)) ? '""' : cell.slice(1, -1),
	);
	const point =
		delimiter === ";" && lines.some((line) => /(^|;)-?\d+,\d+(;|$)/.test(line)) ? "," : ".";
	const { data, errors } = Papa.parse(text, { delimiter, skipEmptyLines: true });
	if (errors.length) throw new Error(`line ${(errors[0].row ?? 0) + 1}: ${errors[0].message}`);
	const hasNames = !lines.length || !isRow(lines, delimiter, point);
	const names = hasNames ? data.shift() || [] : data[0].map((_, place) => `f${place}`);
	if (!data.length) {
		throw new Error("expected a line with names of columns and a line with values, got less");
	}
	const twice = names.find((name, place) => names.indexOf(name) !== place);
	if (twice !== undefined) {
		throw new Error(`expected columns of different names, got ${quoted(twice)} twice`);
	}
	const head = [];
	for (let size = 0, row = 0; row < data.length && size < HEAD; row += 1) {
		if (data[row].length === names.length) head.push(data[row]);
		size += data[row].reduce((sum, cell) => sum + cell.length + 1, 0);
	}
	const kinds = names.map((_, place) =>
		kindOf(
			head.map((row) => row[place]),
			point,
		),
	);
	const sizeOf = (cell) => Math.abs(Number(truth(cell) ?? number(cell, point) ?? 0));
	const sums = names.map((_, place) => head.reduce((sum, row) => sum + sizeOf(row[place]), 0));
	return { names, hasNames, rows: data, kinds, point, sums };
}

export function sharesOf({ names, sums }, roles) {
	const own = names.map((name, place) => (roles[name] === "vector" ? sums[place] : undefined));
	const total = own.reduce((sum, one) => sum + (one || 0), 0);
	return own.map((one) => (total && one !== undefined ? one / total : undefined));
}

export function columnsOf({ names, kinds }) {
	const called = names.filter((name) => name.toLowerCase() === "id");
	// A column of numbers without a name only counts rows, as pandas and R write them.
	const isCount = (name, place) => name === "" && kinds[place].startsWith("number");
	const unnamed = names.filter((name, place) => name === "" && !isCount(name, place));
	const [id] = [...called, ...unnamed];
	const roleOf = (name, place) => {
		if (name === id) return "id";
		if (isCount(name, place)) return "leave out";
		const isFree = name !== "" && !called.includes(name);
		return isFree && kinds[place] !== "text" ? "vector" : "payload";
	};
	return Object.fromEntries(names.map((name, place) => [name, roleOf(name, place)]));
}

function coordinate(text, kind, point) {
	if (isMissing(text)) throw new Error("expected a number, got a missing value");
	const value = kind === "truth" ? truth(text) : number(text, point);
	const expected = kind === "truth" ? "true or false" : "a number";
	if (value === undefined)
		throw new Error(`expected ${expected}, got ${quoted(text.slice(0, 60))}`);
	return Number(value);
}

function idOf(text) {
	if (text === "") throw new Error("expected an id, got a blank");
	return quoted(text);
}

function field(text, kind, point) {
	const isNumber = kind === "number" || kind === "truth";
	if (text === "" || (isNumber && isMissing(text))) return undefined;
	const value = { number: number(text, point), truth: truth(text) }[kind];
	const isExact = kind === "number" && JSON_NUMBER.test(text.trim()); // JavaScript would round it.
	return isExact ? text.trim() : quoted(value ?? text);
}

function itemOf(row, places, table, isOpen) {
	const { names, kinds, point } = table;
	if (row.length !== names.length) {
		throw new Error(`expected ${names.length} columns, got ${row.length}`);
	}
	const read = (work) => (place) => {
		try {
			return work(row[place], kinds[place], point);
		} catch (error) {
			throw new Error(`column ${quoted(names[place])}: ${error.message}`);
		}
	};
	const values = places.vector.map(read(coordinate));
	const filled = places.vector
		.map((place, index) => [names[place], values[index]])
		.filter(([, value]) => value !== 0);
	const [named, weights] = [0, 1].map((part) => filled.map((pair) => pair[part]));
	const vector = isOpen ? { names: named, values: weights } : values;
	const fields = places.payload
		.map((place) => [names[place], read(field)(place)])
		.filter(([, json]) => json !== undefined)
		.map(([name, json]) => `${quoted(name)}:${json}`);
	const parts = [
		...places.id.map((place) => `"id":${read(idOf)(place)}`),
		places.text.length ? `"text":${quoted(row[places.text[0]])}` : `"vector":${quoted(vector)}`,
		...(fields.length ? [`"payload":{${fields.join()}}`] : []),
	];
	return `{${parts.join()}}\n`;
}

export function textColumnsOf(table) {
	const roles = columnsOf(table);
	const lengthOf = (name) => {
		const place = table.names.indexOf(name);
		return table.rows.slice(0, 100).reduce((sum, row) => sum + row[place].length, 0);
	};
	const free = table.names.filter((name) => name && ["vector", "payload"].includes(roles[name]));
	const [longest] = [...free].sort((one, other) => lengthOf(other) - lengthOf(one));
	const text = free.find((name) => name.toLowerCase() === "text") ?? longest;
	for (const name of free) roles[name] = name === text ? "text" : "payload";
	return roles;
}

export function columnNames({ names, hasNames }, roles) {
	const columns = names.filter((name) => roles[name] === "vector");
	const isNumbered = !hasNames || columns.every((name) => /^\d+$/.test(name));
	return isNumbered || columns.some((name) => !name || name.length > 255) ? null : columns;
}

const listed = (names) =>
	names.slice(0, 8).map(quoted).join(", ") +
	(names.length > 8 ? ` and ${names.length - 8} more` : "");

export function requireSame(columns, coordinates) {
	const missing = coordinates.filter((name) => !columns.includes(name));
	const unknown = columns.filter((name) => !coordinates.includes(name));
	const told = [
		["none for", missing],
		["unknown", unknown],
	]
		.filter(([, some]) => some.length)
		.map(([words, some]) => `${words} ${listed(some)}`)
		.join(" and ");
	const expected = `expected a column for each coordinate by its name, ${listed(coordinates)}`;
	if (told) throw new Error(`${expected}, got ${told}`);
}

export function itemsOf(table, roles, collection) {
	const placesOf = (role) =>
		table.names.flatMap((name, place) => (roles[name] === role ? [place] : []));
	const places = Object.fromEntries(
		["id", "vector", "text", "payload"].map((role) => [role, placesOf(role)]),
	);
	if (collection.coordinates) {
		places.vector = collection.coordinates.map((name) => table.names.indexOf(name));
	}
	const what = collection.text ? "text" : "vector";
	const many = places[what].length;
	if (!many || (many > 1 && collection.text)) {
		throw new Error(`expected a column that becomes the ${what}, got ${many || "none"}`);
	}
	if (places.id.length > 1) {
		const ids = places.id.map((place) => quoted(table.names[place])).join(" and ");
		throw new Error(`expected one column that becomes the id, got ${ids}`);
	}
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
