import { at, Problem, post } from "./api.js";
import * as figures from "./figures.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Cut, fieldsOf, Trouble } from "./parts.js";
import { payloadAt } from "./view.js";

const VALUES = 20;

export function parseFilter(text) {
	if (!text) return null;
	const wrong = (expected) =>
		new Problem({ code: "filter", detail: `filter: expected ${expected}` });
	let filter;
	try {
		filter = JSON.parse(text);
	} catch (error) {
		throw wrong(`JSON (${error.message})`);
	}
	if (typeof filter === "object" && !Array.isArray(filter)) return filter;
	throw wrong("an object with 'must', 'should' or 'must_not'");
}

const listed = (part) => [part ?? []].flat();

function conditions(text) {
	try {
		return listed(parseFilter(text)?.must);
	} catch {
		return [];
	}
}

function write(filter) {
	const isEmpty = ["must", "should", "must_not"].every((part) => !listed(filter[part]).length);
	return isEmpty ? "" : JSON.stringify(filter);
}

export function added(text, condition) {
	let filter = {};
	try {
		filter = parseFilter(text) || {};
	} catch {
		filter = {};
	}
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
    <button type="button" class="chip" onClick=${() => onChange(added(text, condition))}
      aria-label=${`Remove ${said(condition)}`}><${Cut} value=${said(condition)}
      limit=${60} /> ×</button></li>`,
	)}</ul>`;
}

export function Filter({ text, problem, onChange }) {
	const [typed, set] = useState(text || "");
	useEffect(() => set(text || ""), [text]);
	const [wrong, fail] = useState(null);
	const apply = () => {
		try {
			parseFilter(typed.trim());
			fail(null);
			onChange(typed.trim());
		} catch (error) {
			fail(error);
		}
	};
	const clear = () => {
		fail(null);
		onChange("");
	};
	const shown = wrong || problem;
	return html`<div class="filter">
    <details open=${Boolean(shown)}><summary>Filter as JSON</summary>
      <label>Only items whose payload passes
        <textarea rows="3" spellcheck="false" value=${typed}
          aria-invalid=${shown ? "true" : undefined}
          placeholder='{"must": [{"key": "label", "match": {"value": 3}}]}'
          onInput=${(event) => set(event.target.value)}></textarea></label>
      <${Trouble} problem=${shown} />
      <p class="actions"><button type="button" onClick=${apply}>Apply filter</button>
        ${text && html`<button type="button" onClick=${clear}>Clear</button>`}</p>
    </details></div>`;
}

function scalars(value) {
	return listed(value).filter((one) => ["string", "number", "boolean"].includes(typeof one));
}

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
	return kinds > 1 && kinds <= VALUES && kinds < values.length;
}

export function Facets({ collection, items, filter, onChange, isEager = false }) {
	const all = items.slice(0, 300).flatMap(({ payload }) => keysOf(payload));
	const keys = [...new Set(all)].slice(0, 40);
	if (!keys.length) return html`<p class="small">Items here have no payloads.</p>`;
	const open = isEager ? keys.filter((key) => comesAgain(items, key)).slice(0, EAGER) : [];
	return html`${keys.map(
		(key) => html`<${Facet} key=${key} name=${key}
    isFirst=${open.includes(key)} ...${{ collection, items, filter, onChange }} />`,
	)}`;
}

function Range({ name, numbers, filter, onChange }) {
	const before = conditions(filter).find((one) => one.key === name && one.range);
	const submit = (event) => {
		const { gte, lte } = fieldsOf(event);
		const range = { ...(gte && { gte: Number(gte) }), ...(lte && { lte: Number(lte) }) };
		const rest = before ? added(filter, before) : filter;
		onChange(gte || lte ? added(rest, { key: name, range }) : rest);
	};
	const field = (sign, word, number) => html`<input name=${sign} type="number" step="any"
    aria-label=${`${name} ${word}`} placeholder=${figures.value(number)}
    defaultValue=${before?.range[sign] ?? ""} />`;
	// What is typed stays when counts come; another range is another form.
	return html`<form class="range" key=${JSON.stringify(before?.range)} onSubmit=${submit}>
    ${field("gte", "from", Math.min(...numbers))} to ${field("lte", "to", Math.max(...numbers))}
    <button>Apply</button></form>`;
}

const DATE = /^\d{4}-\d{2}(-\d{2}([T ].*)?)?$/;

function dateLength(values) {
	if (!values.length || !values.every((value) => DATE.test(value))) return 0;
	const kinds = (length) => new Set(values.map((value) => value.slice(0, length))).size;
	return [10, 7, 4].find((length) => kinds(length) <= VALUES) || 4;
}

function choices(items, name) {
	const all = items.flatMap(({ payload }) => scalars(payloadAt(payload, name)));
	const counts = new Map();
	for (const value of all) counts.set(value, (counts.get(value) || 0) + 1);
	const kinds = [...counts.keys()];
	const areNumbers = kinds.length > 2 && kinds.every((value) => typeof value === "number");
	const length = dateLength(kinds);
	const values = length
		? [...new Set(kinds.map((date) => date.slice(0, length)))].sort().reverse()
		: kinds.sort((one, other) => counts.get(other) - counts.get(one));
	return {
		values: values.slice(0, VALUES),
		numbers: areNumbers ? kinds : null,
		isDate: length > 0,
	};
}

function Facet({ name, collection, items, filter, onChange, isFirst }) {
	const [isOpen, open] = useState(isFirst);
	const [counts, set] = useState(null);
	const [problem, fail] = useState(null);
	const found = useRef(null);
	const { numbers, isDate } = found.current || {};
	const matching = (value) => ({
		key: name,
		match: found.current.isDate ? { prefix: value } : { value },
	});
	useEffect(() => {
		if (!isOpen) return undefined;
		if (!found.current) found.current = choices(items, name);
		const chosen = found.current.values;
		set(new Map(chosen.map((value) => [value, null])));
		const stop = new AbortController();
		const others = conditions(filter).filter((one) => one.key !== name);
		const count = (value) =>
			post(
				at(collection.name, "/count"),
				{ filter: { must: [...others, matching(value)] } },
				stop.signal,
			);
		Promise.all(chosen.map(count)).then(
			(answers) => set(new Map(chosen.map((value, place) => [value, answers[place].count]))),
			(error) => stop.signal.aborted || fail(error),
		);
		return () => stop.abort();
	}, [isOpen, filter, collection.name]);
	const chosen = new Set(
		conditions(filter)
			.filter((one) => one.key === name && one.match)
			.map((one) => one.match.prefix ?? one.match.value),
	);
	const order = isDate ? ([a], [b]) => (a < b ? 1 : -1) : ([, a], [, b]) => b - a;
	const shown = counts ? [...counts].sort(order) : [];
	const most = Math.max(1, ...shown.map(([, count]) => count || 0));
	return html`<details class="facet" open=${isOpen} onToggle=${(event) => open(event.target.open)}>
    <summary><bdi>${name}</bdi></summary>
    <${Trouble} problem=${problem} />
    ${counts && !shown.length && html`<p class="small">No single values to choose from.</p>`}
    <ul>${shown.map(
			([value, count]) => html`<li><button type="button"
      class=${chosen.has(value) ? "value on" : "value"} aria-pressed=${chosen.has(value)}
      onClick=${() => onChange(added(filter, matching(value)))}>
      <bdi>${String(value).slice(0, 60)}</bdi>${" "}
      <span class="figure">${count === null ? "…" : figures.count(count)}</span>
      <i style=${{ width: `${(100 * (count || 0)) / most}%` }}></i></button></li>`,
		)}</ul>
    ${counts && numbers && html`<${Range} ...${{ name, filter, onChange, numbers }} />`}
  </details>`;
}
