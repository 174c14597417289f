import { go, href, numberIn } from "./address.js";
import { at, post } from "./api.js";
import { Tiles, useTileKeys } from "./cards.js";
import { Drawn, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { Chips, Facets, Filter, parseFilter } from "./filters.js";
import { HitExport, HitTable } from "./hits.js";
import { useAnswer, useAsk, useItem, useLater } from "./hooks.js";
import { html, useMemo, useState } from "./html.js";
import { Cut, Layouts, Skeleton, Tabs, Text, Trouble } from "./parts.js";
import { Recall, typical } from "./recall.js";
import { Requests } from "./requests.js";
import { kindOf, queryOf } from "./vectors.js";
import { title } from "./view.js";

// What is asked by: its tab, the label of its field, and an example.
const FORMS = {
	text: ["Text", "Text", "any words"],
	id: ["Item", "Item id", "the id of an item"],
	row: ["Row", "Row of numbers", "1, 0, 2.5 · 3:0.5 17:1 · JSON"],
	names: ["Names", "Names, with weights", "copy file:2 permission"],
};
const ALL_FORMS = Object.keys(FORMS);

function numberOr(text, missing) {
	const number = numberIn(text, missing);
	return typeof number === "number" ? number : missing;
}

function bodyOf(params) {
	const recall = numberIn(params.recall, 0.9);
	const limit = numberIn(params.limit, 20);
	const filter = parseFilter(params.filter);
	return { ...queryOf(params), limit, recall, ...(filter && { filter }) };
}

function inWords(explain, collection, curve, recall) {
	const all = figures.count(collection.items);
	const met = figures.count(explain.candidates);
	const time = figures.duration(explain.seconds);
	const unknown = explain.unknown_names
		? ` No coordinate is called ${explain.unknown_names.slice(0, 8).join(", ")}.`
		: "";
	if (explain.method === "scan") {
		const whole = `This query was scanned: it looked at ${met} of ${all} items in ${time}`;
		return `${whole}, and no hit is missed.${unknown}`;
	}
	const ways = {
		graph: "along the graph",
		tables: `in ${figures.plural(explain.bands, "hash table")}`,
	};
	const way = ways[explain.method] || `by the backend ${explain.method}`;
	const usual = typical(curve, recall);
	const many = usual && figures.count(Math.round(usual.candidates));
	const others = usual ? `; typical here for a recall of ${recall.toFixed(2)}: ${many}` : "";
	const audited = explain.measured_recall
		? ` Audited queries like it found ${explain.measured_recall.toFixed(3)} this week.`
		: "";
	const did = `This query looked at ${met} of ${all} items ${way} in ${time}${others}.`;
	return `${did} Expected recall ${explain.expected_recall.toFixed(3)}.${audited}${unknown}`;
}

function withMissed(hits, exact) {
	const ranked = hits.map((hit, place) => ({ ...hit, rank: place + 1 }));
	if (!exact) return { shown: ranked };
	const known = new Set(hits.map(({ id }) => id));
	const worst = exact.length ? exact[exact.length - 1].score : 0;
	const good = hits.filter(({ score }) => score >= worst - 1e-12).length;
	const unknown = exact.filter(({ id }) => !known.has(id));
	const missed = unknown.slice(0, Math.max(0, exact.length - good));
	const shown = [...ranked, ...missed.map((hit) => ({ ...hit, missed: true }))];
	shown.sort((a, b) => b.score - a.score);
	return { shown, good, wanted: exact.length };
}

function nothing({ filter, id }) {
	const other = id === undefined ? "" : "other ";
	return filter ? `No ${other}item passes the filter.` : `This collection has no ${other}item.`;
}

function Form({ collection, params, problem }) {
	const forms = collection.text ? ["text", "id"] : ["id", "row", "names"];
	const given = forms.find((form) => params[form] !== undefined);
	const [form, choose] = useState(given || forms[0]);
	const [, label, placeholder] = FORMS[form];
	const [text, set] = useState(given ? params[given] : "");
	const change = (value) => {
		set(value);
		const isPasted = value.length > text.length + 3;
		if (isPasted && form === "id" && !collection.text && kindOf(value) === "row") choose("row");
	};
	const submit = (event) => {
		event.preventDefault();
		const { id, row, names, text: before, ...rest } = params;
		const limit = new FormData(event.target).get("limit");
		const asks = { ...rest, [form]: text.trim(), limit: limit === "20" ? "" : limit };
		go(href(collection.name, "query", asks));
	};
	const isLong = form !== "id";
	const field = {
		"data-query": true,
		value: text,
		spellcheck: false,
		placeholder,
		onInput: (event) => change(event.target.value),
		"aria-invalid": problem ? "true" : undefined,
	};
	return html`<form onSubmit=${submit} class="query-form">
    <${Tabs} label="Search by" chosen=${form} onChoose=${choose}
      options=${forms.map((one) => [one, FORMS[one][0]])} />
    <label>${label}
      ${
				isLong
					? html`<textarea rows="3" ...${field} onKeyDown=${(event) => {
							if (event.key === "Enter" && !event.shiftKey) {
								event.preventDefault();
								event.target.form.requestSubmit();
							}
						}}></textarea>`
					: html`<input ...${field} />`
			}</label>
    <${Trouble} problem=${problem} />
    <div class="actions"><label class="inline">Hits <input key=${params.limit} name="limit"
        type="number" min="1" max="1000" defaultValue=${numberOr(params.limit, 20)} /></label>
      <span class="space"></span><button class="primary">Search</button></div></form>`;
}

function Asked({ collection, params, view, names, item }) {
	if (item) {
		return html`<div class="asked panel"><div class="asked-drawn">
        <${Drawn} ...${{ item, view, names }} limit=${5} /></div>
      <div><p class="small">Similar to</p><p><strong>
        <a href=${href(collection.name, "item", { id: item.id })}>
          <${Cut} value=${title(view, item)} limit=${80} /></a></strong></p></div></div>`;
	}
	const text = params.row ?? params.names ?? params.text;
	return text === undefined
		? null
		: html`<div class="asked panel"><p class="small">Similar to</p>
    <p><code><${Text} value=${text} limit=${160} /></code></p></div>`;
}

function Start({ collection }) {
	const { name, view } = collection;
	const { data } = useAnswer(at(name, "/items?limit=12&with_vector=true"));
	const items = data?.items || [];
	const names = useNames(collection, items);
	if (!data) return html`<${Skeleton} rows=${3} kind="block" />`;
	return html`<h1>Query <bdi>${name}</bdi></h1>
    <p>${collection.text ? "Type a text" : "Type an id, paste a row"}, or begin with one of
      these:</p>
    <${Tiles} ...${{ collection, items, view, names }} label="Items to begin with" />`;
}

function Found({ isExact, data, good, wanted }) {
	const words = isExact
		? "Found: all, by an exact scan."
		: wanted === 0
			? "There is nothing to find."
			: wanted === undefined || !data
				? "Comparing with an exact scan…"
				: html`Found by this very query: <strong class="figure">${good} of ${wanted}</strong>
          ${" "}(${(good / wanted).toFixed(2)})
          ${good < wanted && "; the missed are shown ghosted"}.`;
	return html`<p class="found" role="status">${words}</p>`;
}

export default function Query({ collection, params }) {
	const { name } = collection;
	const isAsked = ALL_FORMS.some((form) => params[form] !== undefined);
	const asked = JSON.stringify(ALL_FORMS.map((form) => params[form]));
	const { body, wrong } = useMemo(() => {
		if (!isAsked) return {};
		try {
			return { body: bodyOf(params) };
		} catch (problem) {
			return { wrong: problem };
		}
	}, [JSON.stringify(params)]);
	const key = body && JSON.stringify(body);
	const query = (more, signal) =>
		post(at(name, "/query"), { ...body, with_vector: true, ...more }, signal);
	const { data, problem, waiting } = useAsk(
		(signal) => body && query({ explain: true }, signal),
		[name, key],
	);
	const [limit, recall] = [numberOr(params.limit, 20), numberOr(params.recall, 0.9)];
	// The hits come first: what is read beside them would hold them up.
	const isShown = !isAsked || data || problem;
	const curve = useAnswer(
		isShown && at(name, `/curve?limit=${limit}`),
		undefined,
		collection.items,
	);
	const isExact = body?.recall >= 1;
	const current = !waiting && data;
	const exact = useAsk(
		(signal) => current && !isExact && query({ recall: 1 }, signal),
		[name, key, current],
	);
	const origin = useItem(name, params.id);
	const { shown, ...compared } = useMemo(
		() => withMissed(data?.hits || [], exact.waiting ? null : exact.data?.hits),
		[data, exact.data, exact.waiting],
	);
	const item = origin.data?.id === params.id ? origin.data : null;
	const drawn = useMemo(() => (item ? [item, ...shown] : shown), [item, shown]);
	const { view } = collection;
	const names = useNames(collection, drawn);
	const later = useLater();
	useTileKeys(collection);
	const change = (part, more) => go(href(name, "query", { ...params, ...part }), more);
	const slide = (value) => later(() => change({ recall: value }, { replace: true }), 120);
	const ofFilter = (one) =>
		Boolean(one) &&
		(one.code.includes("filter") || (one.errors || []).some(({ loc }) => loc[0] === "filter"));
	const trouble = wrong || problem;
	const asTable = params.as === "table";
	const { id, row, text } = params;
	const why = (hit) => href(name, "why", { a: id, row, text, names: params.names, b: hit.id });
	const narrow = (filter) => change({ filter });
	return html`<div class="two wide split">
    <aside class="panel">
      <${Form} key=${asked} ...${{ collection, params }}
        problem=${ofFilter(trouble) ? null : trouble} />
      <${Chips} text=${params.filter} onChange=${narrow} />
      ${
				data &&
				!trouble &&
				html`<details class="narrow"><summary>Values of these hits</summary>
        <${Facets} key=${asked} collection=${collection}
          items=${data.hits} filter=${params.filter} onChange=${narrow} /></details>`
			}
      <${Filter} text=${params.filter} problem=${ofFilter(trouble) ? trouble : null}
        onChange=${narrow} />
    </aside>
    <section>${
			!isAsked
				? html`<${Start} collection=${collection} />`
				: html`
      <div class="head"><h1>${trouble ? "No hits" : html`Hits in <bdi>${name}</bdi>`}</h1>
        <span class="space"></span>
        ${
					data?.hits.length > 0 &&
					!trouble &&
					html`<${HitExport} name=${name} hits=${data.hits} />
          <${Layouts} isTable=${asTable} onChoose=${(as) => change({ as })} />`
				}</div>
      <${Asked} ...${{ collection, params, view, names, item }} />
      ${
				data?.explain &&
				!trouble &&
				html`<p class="words">
        ${inWords(data.explain, collection, curve.data, recall)}</p>`
			}
      ${!data && !trouble && html`<${Skeleton} rows=${3} kind="block" />`}
      ${data && !data.hits.length && html`<p>${nothing(params)}</p>`}
      ${
				!trouble &&
				(asTable && shown.length
					? html`<${HitTable} hits=${shown} sort=${params.sort}
        ...${{ collection, why }} onSort=${(sort) => change({ sort }, { replace: true })} />`
					: html`<${Tiles} items=${shown} label="Hits" ...${{ collection, view, names, why }} />`)
			}
      ${
				body &&
				!trouble &&
				html`<details class="request"><summary>This request, to copy</summary>
        <${Requests} name=${name} body=${body} /></details>`
			}`
		}
    </section>
    <div class="panel recall">
      <${Recall} curve=${curve.data} problem=${curve.problem} onChange=${slide}
        ...${{ limit, recall }} />
      ${isAsked && !trouble && html`<${Found} ...${{ isExact, data, ...compared }} />`}
      ${exact.problem && html`<p class="small">No comparison: ${exact.problem.message}</p>`}
    </div></div>`;
}
