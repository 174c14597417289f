import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { at, get, itemOf, post } from "./api.js";
import { go, href, numberIn } from "./address.js";
import { useAsk } from "./hooks.js";
import { Skeleton, Text, Trouble } from "./parts.js";
import { Plane } from "./plane.js";
import { Tiles, useTileKeys } from "./cards.js";
import { added, Filter, parseFilter } from "./filters.js";
import { Drawn, useNames } from "./draw.js";
import { colors, title } from "./view.js";
import * as figures from "./figures.js";

const SAMPLES = [1000, 5000, 20000];
const HITS = 15;
const LISTED = 60;
const BESIDE = 3;
const ARRANGED = 20;

function flat({ x, y }) {
  const out = new Float32Array(2 * x.length);
  x.forEach((value, item) => out.set([value, -y[item]], 2 * item));
  return out;
}

function useArrangement(map, isMoving, stop) {
  const [places, set] = useState(null);
  const [progress, tell] = useState(0);
  useEffect(() => {
    set(map ? flat(map) : null);
    tell(0);
  }, [map]);
  useEffect(() => {
    if (!map || !isMoving || map.ids.length < ARRANGED) return undefined;
    const worker = new Worker(new URL("map-worker.js", import.meta.url));
    worker.onmessage = ({ data }) => {
      set(data.places);
      tell(data.epoch / data.epochs);
      if (data.epoch >= data.epochs) stop();
    };
    worker.onerror = stop;
    worker.postMessage({ files: { umap: new URL("vendor/umap.js", import.meta.url).href }, x: map.x, y: map.y.map((y) => -y), neighbours: map.neighbours, scores: map.scores });
    return () => worker.terminate();
  }, [map, isMoving]);
  return { places, progress };
}

function litPlaces({ ids, rows, places, outside, beside, isArranged }) {
  return ids.map((id) => {
    const item = rows.get(id);
    if (item !== undefined) return { x: places[2 * item], y: places[2 * item + 1] };
    const place = outside.indexOf(id);
    if (!beside) return null;
    if (!isArranged) return { x: beside.x[place], y: -beside.y[place] };
    const near = beside.neighbours[place].slice(0, BESIDE);
    const mean = (axis) => near.reduce((sum, row) => sum + places[2 * row + axis], 0) / (near.length || 1);
    return { x: mean(0), y: mean(1) };
  });
}

function Hovered({ collection, id, place, view }) {
  const { data } = useAsk((signal) => itemOf(collection.name, id, signal), [collection.name, id]);
  const item = data?.id === id ? data : null;
  const items = useMemo(() => (item ? [item] : []), [item]);
  const names = useNames(collection, items);
  return html`<div class="hovered panel" style=${{ left: `${place[0] + 16}px`, top: `${place[1] + 12}px` }}>
    ${item ? html`<${Drawn} item=${item} view=${view} names=${names} limit=${5} /><strong><bdi>${title(view, item).slice(0, 80)}</bdi></strong>` : html`<bdi>${id.slice(0, 80)}</bdi>`}</div>`;
}

function Listed({ collection, ids, hits, view, why, label }) {
  const shown = ids.slice(0, LISTED);
  const { data } = useAsk((signal) => (shown.length ? get(at(collection.name, `/items?limit=${LISTED}&with_vector=true&${shown.map((id) => `ids=${encodeURIComponent(id)}`).join("&")}`), signal) : null), [collection.name, shown.join("\n")]);
  const items = useMemo(() => {
    const known = new Map((data?.items || []).map((item) => [item.id, item]));
    return hits ? hits.filter(({ id }) => known.has(id)).map((hit, place) => ({ ...known.get(hit.id), ...hit, rank: place + 1 })) : data?.items || [];
  }, [data, hits]);
  const names = useNames(collection, items);
  return html`${ids.length > LISTED && html`<p class="small">The first ${LISTED}:</p>`}
    <${Tiles} collection=${collection} items=${items} view=${view} names=${names} why=${why} label=${label} />`;
}

function Chosen({ collection, ids, view, color, values, filter, onClear }) {
  const kinds = [...new Set(values.filter((value) => value !== null && value !== undefined))];
  const narrowed = () => added(filter, { key: color, match: { any: kinds } });
  return html`<section class="panel"><div class="head"><h2>${figures.plural(ids.length, "item")} chosen</h2><span class="space"></span>
      ${color && kinds.length > 0 && kinds.length <= 20 && html`<button type="button" onClick=${() => go(href(collection.name, "browse", { filter: narrowed() }))}>Filter: ${color} is ${kinds.length < 4 ? kinds.join(" or ") : `one of ${kinds.length}`}</button>`}
      <button type="button" onClick=${onClear}>Clear</button></div>
    <${Listed} collection=${collection} ids=${ids} view=${view} label="Items chosen" /></section>`;
}

function Lit({ collection, id, hits, view, onClear }) {
  const { name } = collection;
  return html`<section class="panel"><div class="head"><h2>Similar to <a href=${href(name, "query", { id })}><bdi>${id.slice(0, 80)}</bdi></a></h2><span class="space"></span>
      <button type="button" onClick=${onClear}>Clear</button></div>
    <${Listed} collection=${collection} ids=${hits.map((hit) => hit.id)} hits=${hits} view=${view} label="Hits"
      why=${(hit) => href(name, "why", { a: id, b: hit.id })} /></section>`;
}

export default function MapView({ collection, params }) {
  const { name } = collection;
  const sample = numberIn(params.sample, 5000);
  const first = useAsk((signal) => get(at(name, "/items?limit=24&with_vector=true"), signal), [name]);
  const { view } = collection;
  const keys = useMemo(() => [...new Set((first.data?.items || []).flatMap(({ payload }) => Object.keys(payload || {})))].filter((key) => key !== view.text).slice(0, 30), [first.data]);
  const color = params.color ?? view.color ?? "";
  const hits = useAsk((signal) => (params.id === undefined ? null : post(at(name, "/query"), { id: params.id, limit: HITS, with_payload: false }, signal)), [name, params.id]);
  const lit = useMemo(() => (params.id === undefined || !hits.data ? [] : [params.id, ...hits.data.hits.map(({ id }) => id)]), [params.id, hits.data]);
  const drawn = (more, signal) => {
    try {
      return post(at(name, "/map"), { sample, ...more, ...(params.filter && { filter: parseFilter(params.filter) }) }, signal);
    } catch (error) {
      return Promise.reject(error);
    }
  };
  const { data: map, problem } = useAsk((signal) => drawn(color ? { key: color } : {}, signal), [name, sample, color, params.filter]);
  const rows = useMemo(() => new Map((map?.ids || []).map((id, item) => [id, item])), [map]);
  const outside = useMemo(() => (map ? lit.filter((id) => !rows.has(id)) : []), [lit, rows]);
  const beside = useAsk((signal) => (outside.length ? drawn({ also: outside }, signal) : null), [outside]);
  const same = useRef(null);
  if (map && !(same.current?.ids.length === map.ids.length && map.ids.every((id, item) => same.current.ids[item] === id))) same.current = map;
  const [isMoving, move] = useState(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  const { places, progress } = useArrangement(same.current, isMoving, () => move(false));
  const [isLasso, lasso] = useState(false);
  const [chosen, choose] = useState([]);
  const [hover, set] = useState(null);
  const values = useMemo(() => (map?.values || []).map((value) => (value === null ? undefined : value)), [map]);
  const palette = useMemo(() => colors(values), [values]);
  const painted = useMemo(() => {
    const found = map ? map.ids.map((_, item) => palette.of(values[item])) : [];
    return { found, order: found.map((_, item) => item).sort((a, b) => (found[a] < found[b] ? -1 : found[a] > found[b] ? 1 : 0)) };
  }, [map, palette]);
  const scene = useMemo(() => places && map && places.length === 2 * map.ids.length && {
    places, colors: painted.found, order: painted.order, marked: new Set(chosen),
    lit: litPlaces({ ids: lit, rows, places, outside, beside: beside.waiting ? null : beside.data?.also, isArranged: progress > 0 }), radius: map.ids.length > 6000 ? 1.3 : map.ids.length > 300 ? 2.2 : 4,
  }, [places, painted, chosen, lit, beside.data, beside.waiting]);
  useEffect(() => choose([]), [same.current]);
  const change = (part) => go(href(name, "map", { ...params, ...part }));
  const box = useRef();
  useTileKeys(collection);
  const trouble = problem || first.problem || hits.problem;
  const ofFilter = params.filter && problem;
  return html`<div class="head"><h1>Map of <bdi>${name}</bdi></h1>${map && html`<span class="small figure">${figures.count(map.ids.length)} of ${figures.plural(collection.items, "item")}</span>`}
      <span class="space"></span>
      <label class="inline">Colour <select onChange=${(event) => change({ color: event.target.value })}>
        <option value="" selected=${!color}>none</option>${[...new Set([...keys, ...(color ? [color] : [])])].map((key) => html`<option value=${key} selected=${key === color}>${key}</option>`)}</select></label>
      <label class="inline">Sample <select onChange=${(event) => change({ sample: event.target.value })}>${[...new Set([...SAMPLES, sample])].map((size) => html`<option value=${size} selected=${size === sample}>${figures.count(size)}</option>`)}</select></label>
      <button type="button" aria-pressed=${isLasso} class=${isLasso ? "on" : ""} onClick=${() => lasso(!isLasso)}>Lasso</button>
      ${map?.ids.length >= ARRANGED && html`<button type="button" onClick=${() => move(!isMoving)}>${isMoving && progress < 1 ? "Stop" : "Arrange"}</button>`}</div>
    <${Filter} text=${params.filter} problem=${ofFilter ? problem : null} onChange=${(filter) => change({ filter })} />
    ${!ofFilter && html`<${Trouble} problem=${trouble} />`}
    ${scene ? html`<div class="map panel" ref=${box}>
      <${Plane} scene=${scene} isLasso=${isLasso} label=${`Map of ${figures.plural(map.ids.length, "item")}; similar items lie near each other. Arrows pan, plus and minus zoom, Enter takes the item at the cross.`}
        onHover=${(item, place) => set(item === null ? null : { item, place })} onPick=${(item) => item !== null && change({ id: map.ids[item] })}
        onLasso=${(items) => { choose(items); lasso(false); }} />
      ${hover && html`<${Hovered} collection=${collection} id=${map.ids[hover.item]} place=${hover.place} view=${view} />`}
      ${progress > 0 && progress < 1 && html`<p class="arranging small figure">arranging, ${figures.share(progress)}</p>`}</div>
      <ul class="legend" aria-label="Colours">${palette.classes.map((value) => html`<li><button type="button" class="quiet class" aria-label=${`Choose ${value.slice(0, 60)}`} onClick=${() => choose(map.ids.map((_, item) => item).filter((item) => String(values[item]) === value))}>
        <i style=${{ background: palette.of(value) }}></i><bdi>${value.slice(0, 30)}</bdi> <span class="figure">${figures.count(palette.counts.get(value))}</span></button></li>`)}
        ${palette.counts.size > palette.classes.length && html`<li class="class"><i style=${{ background: palette.of(null) }}></i>others</li>`}</ul>
      <p class="small">Click a point to light its neighbours; drag to move, turn the wheel to zoom, shift and drag for a lasso. Click a colour to choose its items. By keys: arrows, <kbd>+</kbd>, <kbd>-</kbd>, and <kbd>Enter</kbd> for the item at the cross.</p>
      ${params.id !== undefined && hits.data && html`<${Lit} collection=${collection} id=${params.id} hits=${hits.data.hits} view=${view} onClear=${() => change({ id: undefined })} />`}
      ${chosen.length > 0 && html`<${Chosen} collection=${collection} ids=${chosen.map((item) => map.ids[item])} view=${view} color=${color} values=${chosen.map((item) => values[item])} filter=${params.filter} onClear=${() => choose([])} />`}
      <details><summary>Items as a list</summary><ul class="list">${map.ids.slice(0, 200).map((id) => html`<li><a href=${href(name, "map", { ...params, id })}><bdi>${id.slice(0, 80)}</bdi></a></li>`)}</ul></details>`
      : !trouble && html`<div class="map"><${Skeleton} rows=${1} kind="block" /></div>`}`;
}
