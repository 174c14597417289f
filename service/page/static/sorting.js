import { text } from "./figures.js";

export const { compare } = new Intl.Collator("en", { numeric: true });

export const isNumber = (value) => /^(n|bi)/.test(typeof value);

export const ascending = (x, y) => Number(x > y) - Number(x < y);

const isNothing = (value) => (value ?? null) === null;

// Rows by a column: numbers from the greatest, others from a to z, what has none last; the other
// way round with a minus before the key.
export function sorted(rows, sort, cellOf) {
	if (!sort) return rows;
	const isBack = sort.startsWith("-");
	const key = isBack ? sort.slice(1) : sort;
	const order = (x, y) =>
		isNumber(x) && isNumber(y) ? ascending(y, x) : compare(text(x), text(y));
	const values = new Map(rows.map((row) => [row, cellOf(row, key)]));
	return [...rows].sort((one, other) => {
		const [x, y] = [values.get(one), values.get(other)];
		if (isNothing(x) || isNothing(y)) return Number(isNothing(x)) - Number(isNothing(y));
		return isBack ? order(y, x) : order(x, y);
	});
}

export const turned = (sort, key) => (sort === key ? `-${key}` : sort === `-${key}` ? "" : key);
