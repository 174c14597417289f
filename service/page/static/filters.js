import { at, Problem, parse, post } from "./api.js";
import * as figures from "./figures.js";
import { useAsk } from "./hooks.js";
import { html, useMemo, useState } from "./html.js";
import { Cut, fieldsOf, Trouble } from "./parts.js";
import { ascending, isNumber } from "./sorting.js";
import { isScalar, payloadAt } from "./view.js";

const VALUES = 20;

export function parseFilter(text) {
	if (!text) return null;
	const wrong = (expected) =>
		new Problem({ code: "filter", detail: `filter: expected ${expected}` });
	let filter;
	try {
		filter = parse(text);
	} catch (error) {
		throw wrong(`JSON (${error.message})`);
	}
	if (typeof filter === "object" && !Array.isArray(filter)) return filter;
	throw wrong("an object with 'must', 'should' or 'must_not'");
}

const listed = (part) => [part ?? []].flat();

function filterIn(text) {
	try {
		return parseFilter(text) || {};
	} catch {
		return {};
	}
}

const conditions = (text) => listed(filterIn(text).must);

function write(filter) {
	const isEmpty = ["must", "should", "must_not"].every((part) => !listed(filter[part]).length);
	return isEmpty ? "" : JSON.stringify(filter);
}

export function added(text, condition) {
	const filter = filterIn(text);
	const must = listed(filter.must);
	const same = JSON.stringify(condition);
	const rest = must.filter((one) => JSON.stringify(one) !== same);
	return write({ ...filter, must: rest.length === must.length ? [...must, condition] : rest });
}

const SIGNS = { gt: ">", gte: "≥", lt: "<", lte: "≤" };

function said(condition) {
	if (!condition.key) return JSON.stringify(condition);
	if (condition.match) {
		const { value, any, prefix } = condition.match;
		return `${condition.key} = ${any ? any.join(" or ") : prefix ? `${prefix}…` : value}`;
	}
	const range = Object.entries(condition.range || {});
	return `${condition.key} ${range.map(([sign, value]) => `${SIGNS[sign]} ${value}`).join(", ")}`;
}

export function Chips({ text, onChange }) {
	const all = conditions(text);
	if (!all.length) return null;
	return html`<ul class="chips" aria-label="Conditions">${all.map(
		(condition) => html`<li>
    <button class="chip" onClick=${() => onChange(added(text, condition))}
      aria-label=${`Remove ${said(condition)}`}><${Cut} value=${said(condition)}
      limit=${60} /> ×</button></li>`,
	)}</ul>`;
}

// Another text is another form: what is typed is read when it is applied.
export function Filter({ text = "", problem, onChange }) {
	const apply = (event) => onChange(fieldsOf(event).filter.trim());
	return html`<form class="filter" key=${text} onSubmit=${apply}>
    <details open=${Boolean(problem)}><summary>Filter as JSON</summary>
      <label>Only items whose payload passes
        <textarea name="filter" rows="3" spellcheck=${false} defaultValue=${text}
          aria-invalid=${problem ? "true" : undefined}
          placeholder='{"must": [{"key": "label", "match": {"value": 3}}]}'></textarea></label>
      <${Trouble} problem=${problem} />
      <p class="actions"><button>Apply filter</button>
        ${text && html`<button type="button" onClick=${() => onChange("")}>Clear</button>`}</p>
    </details></form>`;
}

const scalars = (value) => listed(value).filter(isScalar);

function keysOf(payload, prefix = "") {
	const isDeep = (value) => value && typeof value === "object" && !Array.isArray(value);
	return Object.entries(payload || {}).flatMap(([key, value]) =>
		isDeep(value) ? keysOf(value, `${prefix}${key}.`) : [`${prefix}${key}`],
	);
}

const EAGER = 3;

function comesAgain(items, key) {
	const values = items.flatMap(({ payload }) => scalars(payloadAt(payload, key)));
	const kinds = new Set(values).size;
	return kinds > 1 && (kinds <= 0.8 * values.length || DATE.test(values[0]));
}

export function Facets({ collection, items, filter, onChange, isEager }) {
	const all = items.slice(0, 300).flatMap(({ payload }) => keysOf(payload));
	const keys = [...new Set(all)].slice(0, 40);
	if (!keys.length) return html`<p class="small">Items here have no payloads.</p>`;
	const open = isEager ? keys.filter((key) => comesAgain(items, key)).slice(0, EAGER) : [];
	return html`${keys.map(
		(key) => html`<${Facet} key=${key} name=${key}
    isFirst=${open.includes(key)} ...${{ collection, items, filter, onChange }} />`,
	)}`;
}

const NUMBERS = { to: "lte", type: "number", read: Number, shown: (bound) => bound };
const DATE = /^\d{4}-\d\d-\d\d([T ].*)?$/;

// The day of a date in UTC, as ranges have it: without a zone it is UTC.
function day(date, days = 0) {
	const isWhole = date.length < 11 || /(Z|[+-]\d\d:?\d\d)$/.test(date);
	const moved = new Date(`${date.replace(" ", "T")}${isWhole ? "" : "Z"}`);
	moved.setUTCDate(moved.getUTCDate() + days);
	return DATE.test(date) && !Number.isNaN(moved.getTime()) ? moved.toISOString().slice(0, 10) : "";
}

// The last day counts as a whole: what comes before the next.
const DATES = {
	to: "lt",
	type: "date",
	read: (date, isEnd) => day(date, isEnd ? 1 : 0),
	shown: (bound, isEnd) => day(bound, isEnd ? -1 : 0),
};

// All of a day, a month or a year.
function rangeOf(date) {
	const first = `${date}-01-01`.slice(0, 10);
	const size = { 10: 1, 7: 31, 4: 366 }[date.length];
	return { gte: first, lt: day(`${day(first, size).slice(0, date.length)}-01-01`.slice(0, 10)) };
}

const ranged = (name, filter) => conditions(filter).find((one) => one.key === name && one.range);

function withRange(filter, key, range) {
	const before = ranged(key, filter);
	const rest = before ? added(filter, before) : filter;
	return Object.keys(range).length ? added(rest, { key, range }) : rest;
}

function Range({ name, ends, isDate, filter, onChange }) {
	const { to, type, read, shown } = isDate ? DATES : NUMBERS;
	const before = ranged(name, filter);
	const submit = (event) => {
		const { from, until } = fieldsOf(event);
		const range = { ...(from && { gte: read(from) }), ...(until && { [to]: read(until, true) }) };
		onChange(withRange(filter, name, range));
	};
	const field = (id, word, sign, end) => {
		const bound = before?.range[sign];
		return html`<input name=${id} type=${type} step=${isDate ? 1 : "any"}
      aria-label=${`${name} ${word}`} placeholder=${isDate ? "" : figures.value(Number(end))}
      defaultValue=${bound === undefined ? "" : shown(bound, id === "until")} />`;
	};
	// What is typed stays when counts come; another range is another form.
	return html`<form class="range" key=${JSON.stringify(before?.range)} onSubmit=${submit}>
    ${field("from", "from", "gte", ends[0])} to ${field("until", "to", to, ends[1])}
    <button>Apply</button></form>`;
}

function dateLength(days) {
	if (!days.length || !days.every(Boolean)) return 0;
	const kinds = (length) => new Set(days.map((one) => one.slice(0, length))).size;
	return [10, 7, 4].find((length) => kinds(length) <= VALUES) || 4;
}

// The commonest values of a key: dates from the last, numbers from the least.
function choices(items, name) {
	const all = items.flatMap(({ payload }) => scalars(payloadAt(payload, name)));
	const kinds = [...Map.groupBy(all, (value) => value).values()]
		.sort((one, other) => other.length - one.length)
		.map(([value]) => value);
	const numbers = kinds.every(isNumber) ? kinds.toSorted(ascending) : [];
	const days = kinds.map((value) => day(String(value)));
	const length = dateLength(days);
	const dates = length ? [...new Set(days.map((date) => date.slice(0, length)))] : [];
	const values = (length ? dates.sort().reverse() : kinds).slice(0, VALUES);
	const isOrdered = length || numbers.length;
	return {
		others: (length ? dates : kinds).length - values.length,
		values: numbers.length ? values.sort(ascending) : values,
		ends: numbers.length > 2 ? [numbers[0], numbers.at(-1)] : dates.length > 1 && [],
		isDate: length > 0,
		order: isOrdered ? () => 0 : ([, one], [, other]) => other - one,
	};
}

function Facet({ name, collection, items, filter, onChange, isFirst }) {
	const [isOpen, open] = useState(isFirst);
	const found = useMemo(() => isOpen && choices(items, name), [isOpen]);
	const { values = [], others, ends, isDate, order } = found || {};
	const matching = (value) =>
		isDate ? { key: name, range: rangeOf(value) } : { key: name, match: { value } };
	const count = async (value, signal) => {
		const others = conditions(filter).filter((one) => one.key !== name);
		const body = { filter: { must: [...others, matching(value)] } };
		return [value, (await post(at(collection.name, "/count"), body, signal)).count];
	};
	const { data: counts, problem } = useAsk(
		(signal) => found && Promise.all(values.map((value) => count(value, signal))),
		[found, filter, collection.name],
	);
	const chosen = new Set(conditions(filter).map((one) => JSON.stringify(one)));
	const isChosen = (value) => chosen.has(JSON.stringify(matching(value)));
	const choose = (value) =>
		isDate && !isChosen(value)
			? withRange(filter, name, rangeOf(value))
			: added(filter, matching(value));
	const shown = counts ? [...counts].sort(order) : values.map((value) => [value, null]);
	const most = Math.max(1, ...shown.map(([, number]) => number));
	return html`<details class="facet" open=${isOpen} onToggle=${(event) => open(event.target.open)}>
    <summary><bdi>${name}</bdi></summary>
    <${Trouble} problem=${problem} />
    ${found && !shown.length && html`<p class="small">No single values to choose from.</p>`}
    <ul>${shown.map(
			([value, number]) => html`<li><button
      class=${isChosen(value) ? "value on" : "value"} aria-pressed=${isChosen(value)}
      onClick=${() => onChange(choose(value))}>
      <bdi>${String(value).slice(0, 60)}</bdi>${" "}
      <span class="figure">${number === null ? "…" : figures.count(number)}</span>
      <i style=${{ width: `${(100 * number) / most}%` }}></i></button></li>`,
		)}</ul>
    ${others > 0 && html`<p class="small">and ${figures.plural(others, "other")}</p>`}
    ${ends && html`<${Range} ...${{ name, ends, isDate, filter, onChange }} />`}
  </details>`;
}
