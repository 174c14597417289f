import { go, href, numberIn } from "./address.js";
import { at, itemsOf, post, raw } from "./api.js";
import { deletedFrom, keep, linesOf, restore } from "./deleted.js";
import { Drawn, Picture, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { edgesOf, groupsAt, histogram, scoresWith, without } from "./grouping.js";
import { useAct, useAsk, useKnown, useLater } from "./hooks.js";
import { html, useMemo, useState } from "./html.js";
import { Differing, Heights, Payload, Skeleton, Trouble, WORD, Words } from "./parts.js";
import { csv, Save } from "./save.js";
import { chunksOf, dense, entries } from "./vectors.js";
import { textOf } from "./view.js";

const LOWEST = 0.5;
const START = 0.8;
const PAIRS = 300_000;
const RECALL = 0.99;
const PAGE = 8;
const ABREAST = 8;
const BINS = 50;
const CHUNK = 100;

const COORDINATES = 6;
const LONGEST = 4000;

const wordsOf = (text) => new Set(text.slice(0, LONGEST).toLowerCase().split(WORD));

function differing(one, other, limit) {
	const rows = new Map(entries(one).map(([index, value]) => [index, [index, value, 0]]));
	for (const [index, value] of entries(other)) {
		if (rows.has(index)) rows.get(index)[2] = value;
		else rows.set(index, [index, 0, value]);
	}
	const size = ([, a, b]) => Math.abs(a - b);
	const unlike = [...rows.values()].filter((row) => size(row) > 0);
	return { count: unlike.length, rows: unlike.sort((x, y) => size(y) - size(x)).slice(0, limit) };
}

function Coordinates({ item, kept, names }) {
	const { count, rows } = differing(item.vector, kept.vector, COORDINATES);
	if (!count) return html`<p class="small">The same vector.</p>`;
	const shown = rows.map(([index, mine, other]) => [
		names?.get(index) ?? index,
		html`<mark class="differs">${figures.value(mine)}</mark> not ${figures.value(other)}`,
		"figure",
	]);
	return html`<${Payload} rows=${shown} />
    ${
			count > rows.length &&
			html`<p class="small">and at
      ${" "}${figures.plural(count - rows.length, "more coordinate")}.</p>`
		}`;
}

function Pictures({ item, kept, view }) {
	const { width, height, channels = 1 } = view.image;
	const size = width * height * channels;
	const other = dense(kept.vector, size);
	const change = Array.from(dense(item.vector, size), (value, place) => value - other[place]);
	const most = change.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
	if (!most) return html`<p class="small">The same picture.</p>`;
	return html`<figure class="change"><${Picture} vector=${change} image=${view.image}
    range=${[-most, most]} label="Difference" /><figcaption>difference</figcaption></figure>`;
}

function Member({ item, kept, view, names, reference }) {
	const isKept = item.id === kept.id;
	const text = textOf(view, item);
	if (typeof text === "string" && !view.image) {
		const other = isKept ? reference && textOf(view, reference) : textOf(view, kept);
		const known = typeof other === "string" ? wordsOf(other) : null;
		const isMarked = (word) => known && !known.has(word);
		return html`<${Words} ...${{ text, isMarked }} kind="differs" limit=${LONGEST} />`;
	}
	return html`<div class="drawn"><${Drawn} ...${{ item, view, names }} limit=${COORDINATES} /></div>
    ${
			!isKept &&
			(view.image
				? html`<${Pictures} ...${{ item, kept, view }} />`
				: html`<${Coordinates} ...${{ item, kept, names }} />`)
		}`;
}

async function pairsOf(name, low, signal) {
	const body = JSON.stringify({ min_score: low, limit: PAIRS, recall: RECALL });
	const headers = { "Content-Type": "application/json" };
	const response = await raw("POST", at(name, "/pairs"), { body, headers, signal });
	return edgesOf(await response.text());
}

function Histogram({ scores, low, threshold }) {
	const counts = useMemo(() => histogram(scores, low, BINS), [scores, low]);
	const most = Math.log1p(Math.max(...counts));
	const step = (1 - low) / BINS;
	const bars = counts.map((count, bin) => ({
		size: most ? Math.log1p(count) / most : 0,
		class: low + (bin + 0.5) * step >= threshold ? "on" : "",
		title: `${(low + bin * step).toFixed(2)}: ${figures.plural(count, "pair")}`,
	}));
	const label = `Scores of ${figures.plural(scores.length, "pair")}; heights by logarithm`;
	return html`<${Heights} ...${{ label, bars }} />`;
}

function Card({ item, id, kept, group, ...more }) {
	const { collection, view, names, reference, scores, onKeep } = more;
	const isKept = id === kept.id;
	return html`<li class=${isKept ? "hit keep" : "hit"}>
    <span class="foot"><label class="inline"><input type="radio" name=${`keep ${group.key}`}
        checked=${isKept} onChange=${() => onKeep(id)} /> keep</label>
      ${scores.has(id) && html`<strong class="figure">${figures.score(scores.get(id))}</strong>`}
      <a href=${href(collection.name, "item", { id })}><bdi>${id.slice(0, 60)}</bdi></a></span>
    ${
			item &&
			kept.vector &&
			html`<${Member} ...${{ item, kept, view, names, reference }} />
      <${Differing} ...${{ item, view }} other=${kept} />`
		}
    ${
			!isKept &&
			html`<a class="quiet" href=${href(collection.name, "why", { a: kept.id, b: id })}
      aria-label=${`Why is ${id} similar`}>why</a>`
		}</li>`;
}

function Group({ group, items, keep, edges, isBusy, writes, onKeep, onRemove, ...more }) {
	const [isWhole, show] = useState(false);
	const first = [keep, ...group.members.filter((id) => id !== keep)];
	const shown = first.slice(0, isWhole ? 200 : ABREAST);
	const kept = items.get(keep) || { id: keep };
	const scores = useMemo(() => scoresWith(edges, group, keep), [edges, group, keep]);
	const reference = items.get(first[1]);
	const others = figures.plural(group.members.length - 1, "other");
	return html`<section class="panel group">
    <div class="head"><h2>${group.members.length} items</h2>
      <span class="small">weakest pair ${figures.score(group.weakest)}</span>
      <span class="space"></span>
      ${
				writes &&
				html`<button class="danger" disabled=${isBusy}
        onClick=${onRemove}>Keep one, delete ${others}</button>`
			}</div>
    <ul class="members">${shown.map(
			(id) => html`<${Card} key=${id} item=${items.get(id)}
      ...${{ id, kept, group, scores, reference, ...more }} onKeep=${onKeep} />`,
		)}</ul>
    ${
			shown.length < first.length &&
			!isWhole &&
			html`<p><button class="link"
      onClick=${() => show(true)}>${figures.plural(
				first.length - shown.length,
				"more item",
			)}</button></p>`
		}
  </section>`;
}

function useItems(name, groups) {
	const wanted = groups.flatMap(({ members }) => members.slice(0, ABREAST + 1));
	const read = async (ids, signal) =>
		(await itemsOf(name, ids, signal)).map((item) => [item.id, item]);
	const { known, problem } = useKnown(wanted, read);
	return { items: known, problem };
}

function Export({ collection, groups, keepOf }) {
	const { name } = collection;
	const asCsv = () =>
		csv([
			["group", "id", "keep"],
			...groups.flatMap((group, place) =>
				group.members.map((id) => [place + 1, id, id === keepOf(group)]),
			),
		]);
	return html`<p class="small">Export groups as
    <${Save} name=${`${name}-groups.csv`} text=${asCsv} /></p>`;
}

function Undo({ lines, isKept, said, isBusy, onUndo, onClear }) {
	const count = lines.split("\n").length - 1;
	if (!count) return said && html`<p class="undo panel" role="status">${said}</p>`;
	return html`<p class="undo panel" role="status">${figures.plural(count, "item")} deleted.
    <button class="primary" disabled=${isBusy} onClick=${onUndo}>Undo</button>
    <button disabled=${isBusy} onClick=${onClear}>Delete for good</button>
    ${!isKept && html`<span class="small">Too many to undo after a reload.</span>`}</p>`;
}

function useRemoval(collection, refresh) {
	const { name } = collection;
	const [lines, set] = useState(() => deletedFrom(name));
	const [gone, hide] = useState(new Set());
	const [said, say] = useState("");
	const { act, ...state } = useAct();
	const change = (all) => {
		keep(name, all);
		set(all);
	};
	const removeIds = async (ids) => {
		let all = lines;
		for (const some of chunksOf(ids, CHUNK)) {
			all += (await linesOf(collection, some)).join("");
			change(all); // first, so that nothing is lost
			await post(at(name, "/items/delete"), { ids: some });
			hide((before) => new Set([...before, ...some]));
		}
	};
	const undo = async () => {
		const { inserted, rejected_count: stay } = await restore(name, lines);
		hide(new Set());
		change("");
		const others = stay ? `; ${figures.count(stay)} that came since stay as they are` : "";
		say(`${figures.plural(inserted, "item")} stored again${others}.`);
	};
	return {
		...state,
		lines,
		isKept: deletedFrom(name) === lines,
		gone,
		said,
		removeIds: (ids) => act(() => removeIds(ids)).then(refresh),
		undo: () => act(undo).then(refresh),
		clear: () => change(""),
	};
}

function Controls({ edges, low, threshold, groups, isCut, onSlide, onLow }) {
	const inGroups = groups.reduce((sum, { members }) => sum + members.length, 0);
	return html`<${Histogram} scores=${edges.scores} low=${low} threshold=${threshold} />
    <label>Least score of a pair <output>${threshold.toFixed(2)}</output>
      <input type="range" min=${low} max="1" step="0.01" value=${threshold}
        onInput=${(event) => onSlide(Number(event.target.value))} /></label>
    <p role="status"><strong class="figure">${figures.plural(groups.length, "group")}</strong> of
      ${" "}${figures.plural(inGroups, "item")}; one of each kept,
      ${" "}${figures.plural(inGroups - groups.length, "item")} less.</p>
    <label>Pairs from <input type="number" min="0.05" max="0.99" step="0.05" value=${low}
      onChange=${(event) => onLow(event.target.value)} /></label>
    ${
			isCut &&
			html`<p class="small">Only the ${figures.count(edges.scores.length)} most similar
      pairs are here: those from ${figures.score(edges.scores.at(-1))}.</p>`
		}`;
}

export default function Duplicates({ collection, params, writes, refresh }) {
	const { name } = collection;
	const low = Math.min(0.99, Math.max(0.05, Number(numberIn(params.low, LOWEST)) || LOWEST));
	const asked = useAsk((signal) => pairsOf(name, low, signal), [name, low]);
	const { gone, removeIds, undo, clear, ...told } = useRemoval(collection, refresh);
	const { isBusy, problem } = told;
	const edges = useMemo(() => asked.data && without(asked.data, gone), [asked.data, gone]);
	const [threshold, slide] = useState(Number(numberIn(params.min_score, START)) || START);
	const bounded = Math.max(low, threshold);
	const groups = useMemo(() => (edges ? groupsAt(edges, bounded) : []), [edges, bounded]);
	const [chosen, choose] = useState({});
	const [pages, turn] = useState(1);
	const shown = groups.slice(0, pages * PAGE);
	const { items, problem: unread } = useItems(name, shown);
	const drawn = useMemo(() => [...items.values()], [items]);
	const { view } = collection;
	const names = useNames(collection, drawn);
	const keepOf = ({ key, members }) => (members.includes(chosen[key]) ? chosen[key] : key);
	const othersOf = (group) => group.members.filter((id) => id !== keepOf(group));
	const later = useLater();
	const change = (part) => go(href(name, "duplicates", { ...params, ...part }), { replace: true });
	const onSlide = (score) => {
		slide(score);
		later(() => change({ min_score: score }), 300);
	};
	const all = groups.flatMap(othersOf);
	const isCut = asked.data?.scores.length >= PAIRS;
	const trouble = asked.problem || problem || unread;
	return html`<div class="two wide"><aside class="panel"><h2>Pairs by score</h2>
      ${
				edges
					? html`<${Controls} ...${{ edges, low, groups, isCut, onSlide }} threshold=${bounded}
        onLow=${(text) => change({ low: text })} />
        <${Export} ...${{ collection, groups, keepOf }} />`
					: !trouble &&
						html`<p class="small" role="status">Comparing all pairs…</p>
          <${Skeleton} rows=${4} />`
			}</aside>
    <section><div class="head"><h1>Duplicates in <bdi>${name}</bdi></h1><span class="space"></span>
        ${
					writes &&
					all.length > 0 &&
					html`<button class="danger" disabled=${isBusy}
          onClick=${() => removeIds(all)}>Keep one of each, delete${" "}
          ${figures.count(all.length)}</button>`
				}</div>
      <${Trouble} problem=${trouble} />
      <${Undo} ...${told} onUndo=${() => undo().then(asked.repeat)} onClear=${clear} />
      ${!edges && !trouble && html`<${Skeleton} rows=${3} kind="block" />`}
      ${edges && !groups.length && html`<p>No two items score ${bounded.toFixed(2)} or more.</p>`}
      ${shown.map(
				(group) => html`<${Group} key=${group.key} keep=${keepOf(group)}
        ...${{ group, items, edges, isBusy, writes, collection, view, names }}
        onKeep=${(id) => choose({ ...chosen, [group.key]: id })}
        onRemove=${() => removeIds(othersOf(group))} />`,
			)}
      ${
				shown.length < groups.length &&
				html`<p class="end"><button
        onClick=${() => turn(pages + 1)}>More groups</button></p>`
			}</section></div>`;
}
