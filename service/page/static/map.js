import { go, href, numberIn } from "./address.js";
import { at, itemsOf, post } from "./api.js";
import { Tiles, useTileKeys } from "./cards.js";
import { Drawn, useNames } from "./draw.js";
import * as figures from "./figures.js";
import { added, Filter, parseFilter } from "./filters.js";
import { useAnswer, useAsk, useItem } from "./hooks.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { colors } from "./palette.js";
import { Select, Skeleton, Trouble } from "./parts.js";
import { Plane } from "./plane.js";
import { nameOfCoordinate, payloadAt, title } from "./view.js";

const SAMPLES = [1000, 5000, 20000];
const HITS = 15;
const ARRANGED = 20;
const KEYS = 30;
const LONGEST = 40;
const WORDS = "Placed by two axes. Bringing similar items together…";
const ZOOMS = [
	["zoomIn", "Zoom in", "+"],
	["zoomOut", "Zoom out", "−"],
	["showAll", "Show all", "⤢"],
];

function flat({ x, y }) {
	const out = new Float32Array(2 * x.length);
	for (let item = 0; item < x.length; item += 1) out.set([x[item], -y[item]], 2 * item);
	return out;
}

const LISTED = 60;
const PATIENCE = 120;
const REASONS = 3;
const COORDINATES = 100;

const settled = () =>
	new Promise((resolve) => {
		setTimeout(resolve, PATIENCE);
	});

function Between({ collection: { name, view }, a, b }) {
	const { data } = useAsk(
		async (signal) => {
			await settled(); // a hand that passes by asks for nothing
			const body = { a: { id: a }, b: { id: b }, limit: COORDINATES };
			return { a, b, ...(await post(at(name, "/explain"), body, signal)) };
		},
		[name, a, b],
	);
	if (data?.a !== a || data.b !== b) return html`<p class="small">…</p>`;
	const shared = data.coordinates.filter(({ min }) => min > 0).sort((x, y) => y.min - x.min);
	const names = shared.slice(0, REASONS).map((row) => nameOfCoordinate(view, row).slice(0, 30));
	return html`<p class="small between">${figures.score(data.score)} similar to
    ${" "}<bdi>${a.slice(0, 40)}</bdi>${
			names.length
				? html`: both have <bdi>${names.join(", ")}</bdi>${shared.length > REASONS && ", …"}`
				: ": they share nothing"
		}</p>`;
}

function Hovered({ collection, id, other, place }) {
	const { view } = collection;
	const { data } = useItem(collection.name, id);
	const item = data?.id === id ? data : null;
	const items = useMemo(() => (item ? [item] : []), [item]);
	const names = useNames(collection, items);
	const style = { left: `${place[0] + 16}px`, top: `${place[1] + 12}px` };
	return html`<div class="hovered panel" style=${style}>
    ${
			item
				? html`<${Drawn} ...${{ item, view, names }} limit=${5} />
      <strong><bdi>${title(view, item).slice(0, 80)}</bdi></strong>`
				: html`<bdi>${id.slice(0, 80)}</bdi>`
		}
    ${
			other !== undefined &&
			other !== id &&
			html`<${Between} collection=${collection}
      a=${other} b=${id} />`
		}</div>`;
}

function Listed({ collection, ids, hits, why, label }) {
	const shown = ids.slice(0, LISTED);
	const { name } = collection;
	const { data } = useAsk(
		(signal) => (shown.length ? itemsOf(name, shown, signal) : null),
		[name, shown.join("\n")],
	);
	const items = useMemo(() => {
		const known = new Map((data || []).map((item) => [item.id, item]));
		if (!hits) return [...known.values()];
		const found = hits.filter(({ id }) => known.has(id));
		return found.map((hit, place) => ({ ...known.get(hit.id), ...hit, rank: place + 1 }));
	}, [data, hits]);
	const names = useNames(collection, items);
	return html`${ids.length > LISTED && html`<p class="small">The first ${LISTED}:</p>`}
    <${Tiles} ...${{ collection, items, names, why, label }} view=${collection.view} />`;
}

function Chosen({ collection, ids, color, values, filter, onClear }) {
	const kinds = [...new Set(values.filter((value) => (value ?? null) !== null))];
	const narrowed = () => added(filter, { key: color, match: { any: kinds } });
	const words = kinds.length < 4 ? kinds.join(" or ") : `one of ${kinds.length}`;
	return html`<section class="panel"><div class="head">
      <h2>${figures.plural(ids.length, "item")} chosen</h2><span class="space"></span>
      ${
				color &&
				kinds.length > 0 &&
				kinds.length <= 20 &&
				html`<button
        onClick=${() => go(href(collection.name, "browse", { filter: narrowed() }))}>Filter:
        ${" "}${color} is ${words}</button>`
			}
      <button onClick=${onClear}>Clear</button></div>
    <${Listed} ...${{ collection, ids }} label="Items chosen" /></section>`;
}

function Lit({ collection, id, hits, onClear }) {
	const { name } = collection;
	return html`<section class="panel"><div class="head"><h2>Similar to
      ${" "}<a href=${href(name, "query", { id })}><bdi>${id.slice(0, 80)}</bdi></a></h2>
      <span class="space"></span>
      <button onClick=${onClear}>Clear</button></div>
    <${Listed} ...${{ collection, hits }} ids=${hits.map((hit) => hit.id)} label="Hits"
      why=${(hit) => href(name, "why", { a: id, b: hit.id })} /></section>`;
}

const radiusFor = (count) => (count > 6000 ? 1.6 : count > 300 ? 2.4 : 4);

function litPlaces({ lit, rows, places, outside, beside, colorOf }) {
	return lit.map(({ id, payload }) => {
		const color = colorOf(id, payload);
		const item = rows.get(id);
		if (item !== undefined) return { x: places[2 * item], y: places[2 * item + 1], color };
		const place = outside.indexOf(id);
		return beside ? { x: beside.x[place], y: -beside.y[place], color } : null;
	});
}

function Legend({ palette, values, onChoose }) {
	const chosen = (name) => values.flatMap((value, item) => (String(value) === name ? [item] : []));
	if (palette.scale) {
		const { low, high } = palette.scale;
		return html`<p class="legend scale" role="img"
      aria-label=${`Colours from ${figures.value(low)} to ${figures.value(high)}`}>
      <span class="figure">${figures.value(low)}</span><i></i>
      <span class="figure">${figures.value(high)}</span></p>`;
	}
	return html`<ul class="legend" aria-label="Colours">${palette.classes.map(
		(name) => html`<li>
      <button class="quiet class" aria-label=${`Choose ${name.slice(0, 60)}`}
        onClick=${() => onChoose(chosen(name))}><i style=${{ background: palette.of(name) }}></i>
        <bdi>${name.slice(0, 30)}</bdi>
        ${" "}<span class="figure">${figures.count(palette.counts.get(name))}</span>
      </button></li>`,
	)}
    ${
			palette.counts.size > palette.classes.length &&
			html`<li class="class">
      <i style=${{ background: palette.of(null) }}></i>others</li>`
		}</ul>`;
}

function Options({ change, color, keys, sample }) {
	const sizes = [...new Set([...SAMPLES, sample])];
	return html`<label class="inline">Colour <${Select} chosen=${color}
      options=${[["", "none"], ...keys.map((key) => [key])]}
      onChoose=${(key) => change({ color: key })} /></label>
    <label class="inline">Sample <${Select} chosen=${sample}
      options=${sizes.map((size) => [size, figures.count(size)])}
      onChoose=${(size) => change({ sample: size })} /></label>`;
}

const GUIDE = html`<p class="small" id="guide">Similar items lie together. Click a point to
  light its neighbours, and point at another to see why they are similar. Drag to move; shift and
  drag for a lasso. Click a colour to choose its items. By keys: arrows, <kbd>+</kbd>,
  ${" "}<kbd>-</kbd>, <kbd>0</kbd> for all, and <kbd>Enter</kbd> for the item at the cross.</p>`;

function usePlaced({ name, view }, params) {
	const sample = numberIn(params.sample, 5000);
	const color = params.color ?? view.color ?? "";
	const first = useAnswer(at(name, "/items?limit=24"));
	const keys = useMemo(() => {
		const all = (first.data?.items || []).flatMap(({ payload }) => Object.keys(payload || {}));
		const shown = [...new Set(all)].filter((key) => key !== view.text).slice(0, KEYS);
		return [...new Set([...shown, ...(color ? [color] : [])])];
	}, [first.data, color]);
	const ask = async (more, signal) => {
		const filter = parseFilter(params.filter);
		const body = {
			sample,
			neighbours: false,
			places: "cached",
			...more,
			...(filter && { filter }),
		};
		return post(at(name, "/map"), body, signal);
	};
	const key = color && { key: color };
	const asked = [name, sample, color, params.filter];
	const found = useAsk((signal) => ask(key, signal), asked);
	const isLeft = found.data && !found.data.islands && found.data.ids.length >= ARRANGED;
	const arranged = useAsk(
		(signal) =>
			isLeft &&
			ask({ ...key, places: "islands" }, signal).then((more) => ({ of: found.data, ...more })),
		[found.data],
	);
	const map = arranged.data && arranged.data.of === found.data ? arranged.data : found.data;
	const rows = useMemo(() => new Map((map?.ids || []).map((id, item) => [id, item])), [map]);
	const places = useMemo(() => map && flat(map), [map]);
	const problem = found.problem || arranged.problem;
	const words = map === found.data && isLeft && !problem ? WORDS : null;
	return { map, rows, places, words, sample, color, keys, ask, problem, unread: first.problem };
}

function useLit(name, id, { map, rows, ask }) {
	const hits = useAnswer(id !== undefined && at(name, "/query"), { id, limit: HITS });
	const lit = useMemo(
		() => (id === undefined || !hits.data ? [] : [{ id }, ...hits.data.hits]),
		[id, hits.data],
	);
	const outside = useMemo(
		() => (rows.size ? lit.map((one) => one.id).filter((one) => !rows.has(one)) : []),
		[lit, rows],
	);
	const beside = useAsk(
		(signal) => (outside.length ? ask({ also: outside }, signal) : null),
		[outside, map?.islands],
	);
	return { hits, lit, outside, beside: beside.waiting ? null : beside.data?.also };
}

// An island that is of no one class has the names of its coordinates.
const labelsIn = ({ islands }) =>
	(islands || []).map(({ x, y, value, names }) => ({
		x,
		y: -y,
		text: String(value ?? names.slice(0, 2).join(", ")).slice(0, LONGEST),
	}));

function useScene({ map, rows, color, places }, { lit, outside, beside }, chosen) {
	const values = map?.values || [];
	const palette = useMemo(() => colors(values), [map]);
	const painted = useMemo(
		() => (map ? map.ids.map((_, item) => palette.of(values[item])) : []),
		[map, palette],
	);
	const labels = useMemo(() => (map ? labelsIn(map) : []), [map]);
	const colorOf = (id, payload) => {
		const item = rows.get(id);
		return item === undefined ? palette.of(payloadAt(payload, color)) : painted[item];
	};
	const scene = useMemo(
		() =>
			places && {
				places,
				colors: painted,
				marked: new Set(chosen),
				labels,
				lit: litPlaces({ lit, rows, places, outside, beside, colorOf }),
				radius: radiusFor(map.ids.length),
			},
		[places, painted, chosen, lit, beside, labels],
	);
	return { scene, palette, values };
}

function Stage({ collection, ids, scene, isLasso, words, first, onPick, onLasso }) {
	const [hover, set] = useState(null);
	const commands = useRef({});
	const point = (item, spot) =>
		set((before) => {
			if (item === null) return before && { ...before, item };
			const last = before?.item === item ? before.last : (before?.item ?? before?.last);
			return { item, place: spot, last };
		});
	const id = hover && hover.item !== null ? ids[hover.item] : undefined;
	const label = `Map of ${figures.plural(ids.length, "item")}`;
	return html`<div class="map panel">
    <div class="zoom">${ZOOMS.map(
			([command, name, sign]) => html`<button
      aria-label=${name} title=${name} onClick=${() => commands.current[command]()}>${sign}
    </button>`,
		)}</div>
    <${Plane} ...${{ scene, isLasso, label, commands, onLasso }} onHover=${point}
      onPick=${(item) => item !== null && onPick(ids[item])} />
    ${
			id !== undefined &&
			html`<${Hovered} ...${{ collection, id }} other=${first ?? ids[hover.last]}
      place=${hover.place} />`
		}
    <p class="arranging small figure" role="status">${words}</p></div>`;
}

function List({ ids, addressOf }) {
	return html`<details><summary>Items as a list</summary><ul class="list">${ids
		.slice(0, 200)
		.map((id) => html`<li><a href=${addressOf(id)}><bdi>${id.slice(0, 80)}</bdi></a></li>`)}</ul>
  </details>`;
}

export default function MapView({ collection, params }) {
	const { name } = collection;
	const placed = usePlaced(collection, params);
	const found = useLit(name, params.id, placed);
	const [isLasso, lasso] = useState(false);
	const [chosen, choose] = useState([]);
	const { scene, palette, values } = useScene(placed, found, chosen);
	useEffect(() => choose([]), [name, placed.sample, params.filter]);
	useTileKeys(collection);
	const { map, color, problem } = placed;
	const { hits } = found;
	const addressOf = (part) => href(name, "map", { ...params, ...part });
	const change = (part) => go(addressOf(part));
	const ofFilter = params.filter && problem;
	const trouble = problem || placed.unread || hits.problem;
	const cut = (items) => {
		choose(items);
		lasso(false);
	};
	return html`<div class="head"><h1>Map of <bdi>${name}</bdi></h1>
      ${
				map &&
				html`<span class="small figure">${figures.count(map.ids.length)} of
        ${" "}${figures.plural(collection.items, "item")}</span>`
			}
      <span class="space"></span>
      <${Options} ...${placed} change=${change} />
      <button aria-pressed=${isLasso} class=${isLasso ? "on" : ""}
        onClick=${() => lasso(!isLasso)}>Lasso</button></div>
    <${Filter} text=${params.filter} problem=${ofFilter ? problem : null}
      onChange=${(filter) => change({ filter })} />
    ${!ofFilter && html`<${Trouble} problem=${trouble} />`}
    ${
			!scene
				? !trouble &&
					html`<p role="status" class="small">Placing up to
        ${" "}${figures.count(placed.sample)} items by their similarity…</p>
        <div class="map"><${Skeleton} rows=${1} kind="block" /></div>`
				: html`<${Stage} ...${{ collection, scene, isLasso }} ids=${map.ids} words=${placed.words}
        first=${params.id} onPick=${(id) => change({ id })} onLasso=${cut} />
      <${Legend} ...${{ palette, values }} onChoose=${choose} />
      ${GUIDE}
      ${
				params.id !== undefined &&
				hits.data &&
				html`<${Lit} collection=${collection}
        id=${params.id} hits=${hits.data.hits} onClear=${() => change({ id: undefined })} />`
			}
      ${
				chosen.length > 0 &&
				html`<${Chosen} ...${{ collection, color }}
        ids=${chosen.map((item) => map.ids[item])} values=${chosen.map((item) => values[item])}
        filter=${params.filter} onClear=${() => choose([])} />`
			}
      <${List} ids=${map.ids} addressOf=${(id) => addressOf({ id })} />`
		}`;
}
