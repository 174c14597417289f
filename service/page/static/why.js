import { html, useMemo, useState } from "./vendor/preact.js";
import { at, itemOf, post, Problem } from "./api.js";
import { href } from "./address.js";
import { useAsk } from "./hooks.js";
import { Skeleton, Table, Text, Trouble } from "./parts.js";
import { Drawn, Picture, useNames } from "./draw.js";
import { queryOf } from "./vectors.js";
import { textOf, title, viewOf } from "./view.js";
import * as figures from "./figures.js";

const CUTS = 14;
const LISTED = 200;
const SHOWN = 25;
const WHOLE = 4096;

const isUnlike = ({ a, b }) => a * b < 0;
const leftOver = (row) => (isUnlike(row) ? Math.abs(row.a) : Math.max(0, Math.abs(row.a) - row.min));
const either = (row) => row.min + leftOver(row) + rightOver(row);
const rightOver = (row) => (isUnlike(row) ? Math.abs(row.b) : Math.max(0, Math.abs(row.b) - row.min));

function sums(answer) {
  let left = 0;
  let right = 0;
  for (const row of answer.coordinates) {
    left += leftOver(row);
    right += rightOver(row);
  }
  return { shared: answer.shared, left, right, rest: answer.rest.max - answer.rest.min };
}

function Cut({ parts, total, label }) {
  return html`<div class="fraction-bar" role="img" aria-label=${label}>${parts.map(({ size, kind, name }) => html`<span class=${kind}
    style=${{ width: `${(100 * size) / total}%` }} title=${`${name}: ${figures.value(size)}`}>${size / total > 0.06 ? html`<bdi>${name}</bdi>` : ""}</span>`)}</div>`;
}

function cutBy(of, kind, whole, { coordinates, total }, nameOf) {
  const cuts = coordinates.filter((row) => of(row) > 0).sort((x, y) => of(y) - of(x)).slice(0, CUTS);
  const listed = cuts.reduce((sum, row) => sum + of(row), 0);
  const parts = cuts.map((row) => ({ size: of(row), kind, name: nameOf(row) }));
  if (whole - listed > 1e-9 * total) parts.push({ size: whole - listed, kind: `${kind} other`, name: "others" });
  return parts;
}

function Amounts({ parts }) {
  return html`<ul class="amounts">${parts.map(([kind, name, size]) => html`<li class="class"><i class=${kind}></i>${name} <strong class="figure">${figures.value(size)}</strong></li>`)}</ul>`;
}

function RowBar({ row, longest }) {
  const part = (kind, size) => size > 0 && html`<i class=${kind} style=${{ width: `${(100 * size) / longest}%` }}></i>`;
  return html`<span class="row-bar" aria-hidden="true">${part("shared", row.min)}${part("left", leftOver(row))}${part("right", rightOver(row))}</span>`;
}

function Fraction({ answer, nameOf }) {
  const { shared, total, rest } = answer;
  const top = cutBy((row) => row.min, "shared", shared, answer, nameOf);
  const { left, right, rest: other } = sums(answer);
  const bottom = [{ size: shared, kind: "shared", name: "shared" }, ...cutBy(leftOver, "left", left, answer, nameOf), ...cutBy(rightOver, "right", right, answer, nameOf)];
  if (other > 1e-9 * total) bottom.push({ size: other, kind: "unlisted", name: "not listed" });
  const amounts = [["shared", "shared", shared], ["left", "only left", left], ["right", "only right", right], ...(other > 1e-9 * total ? [["unlisted", "not listed", other]] : [])];
  return html`<div class="fraction panel">
    <div class="number"><span class="small">Similarity</span><strong class="figure">${figures.score(answer.score)}</strong></div>
    <div class="sides">
      <p class="small">What both have, Σ min = <strong class="figure">${figures.value(shared)}</strong></p>
      <${Cut} parts=${top} total=${total || 1} label=${`Shared: ${figures.value(shared)} of ${figures.value(total)}`} />
      <hr />
      <${Cut} parts=${bottom} total=${total || 1} label=${`Total: shared ${figures.value(shared)}, only left ${figures.value(left)}, only right ${figures.value(right)}`} />
      <p class="small">What either has, Σ max = <strong class="figure">${figures.value(total)}</strong>${rest.coordinates > 0 && `; ${figures.plural(rest.coordinates, "coordinate")} not listed`}</p>
      <${Amounts} parts=${amounts} />
    </div></div>`;
}

function Pictures({ answer, view, sides }) {
  const { image } = view;
  const { vectors, range } = useMemo(() => {
    const indices = answer.coordinates.map(({ coordinate }) => coordinate);
    const of = (value) => ({ indices, values: answer.coordinates.map(value) });
    const max = Math.max(...answer.coordinates.map((row) => Math.max(Math.abs(row.a), Math.abs(row.b))), 1e-30);
    const hasNegative = answer.coordinates.some(({ a, b }) => a < 0 || b < 0);
    return {
      range: [hasNegative ? -max : 0, max],
      vectors: [
        [sides[0], of((row) => row.a)],
        [sides[1], of((row) => row.b)],
        ["Shared", of((row) => row.min * Math.sign(row.a || row.b)), "shared"],
        ["Only left", of((row) => leftOver(row) * Math.sign(row.a)), "left"],
        ["Only right", of((row) => rightOver(row) * Math.sign(row.b)), "right"],
      ],
    };
  }, [answer]);
  return html`<section class="panel five">${vectors.map(([name, vector, kind]) => html`<figure><${Picture} vector=${vector} image=${image} range=${range} label=${typeof name === "string" ? name : name.label} />
    <figcaption class="class">${kind && html`<i class=${kind}></i>`}${typeof name === "string" ? name : html`${name.label}: <a href=${name.href}><bdi>${name.text}</bdi></a>`}</figcaption></figure>`)}</section>`;
}

function Marked({ text, words }) {
  const parts = String(text).slice(0, 20_000).split(/([\p{L}\p{N}_]+)/u);
  return html`<p class="text"><bdi>${parts.map((part, place) => (place % 2 && words.has(part.toLowerCase()) ? html`<mark>${part}</mark>` : part))}</bdi></p>`;
}

function Side({ label, item, asked, view, names, words, collection }) {
  if (!item) return html`<section class="panel side"><p class="small">${label}</p><p><code><${Text} value=${asked ?? ""} limit=${200} /></code></p></section>`;
  const text = textOf(view, item);
  return html`<section class="panel side"><p class="small">${label}</p>
    <h2><a href=${href(collection.name, "item", { id: item.id })}><bdi>${title(view, item).slice(0, 120)}</bdi></a></h2>
    ${typeof text === "string" && html`<${Marked} text=${text} words=${words} />`}
    <div class="drawn"><${Drawn} item=${{ ...item, text: undefined }} view=${typeof text === "string" ? { ...view, text: undefined } : view} names=${names} limit=${8} /></div></section>`;
}

const useItem = (name, id) => useAsk((signal) => id !== undefined && itemOf(name, id, signal), [name, id]);

export default function Why({ collection, params }) {
  const { name } = collection;
  const a = useItem(name, params.a);
  const b = useItem(name, params.b);
  const items = useMemo(() => [a.data, b.data].filter(Boolean), [a.data, b.data]);
  const view = viewOf(collection, items);
  const limit = view.image ? WHOLE : LISTED;
  const explained = useAsk((signal) => {
    let left;
    try {
      left = queryOf({ id: params.a, row: params.row, names: params.names, text: params.text });
    } catch (error) {
      return Promise.reject(new Problem({ code: "row", detail: `row: ${error.message}` }, 0));
    }
    return post(at(name, "/explain"), { a: left, b: { id: params.b }, limit }, signal);
  }, [name, params.a, params.row, params.names, params.text, params.b, limit]);
  const names = useNames(collection, items, 8);
  const [sort, order] = useState("min");
  const [isWhole, show] = useState(false);
  const answer = explained.data;
  const nameOf = (row) => row.name ?? String(row.coordinate);
  const words = useMemo(() => new Set((answer?.coordinates || []).filter(({ min }) => min > 0).map((row) => nameOf(row).toLowerCase())), [answer]);
  const problem = explained.problem || a.problem || b.problem;
  const rows = useMemo(() => {
    const sorts = { name: (x, y) => nameOf(x).localeCompare(nameOf(y), "en", { numeric: true }), a: (x, y) => Math.abs(y.a) - Math.abs(x.a), b: (x, y) => Math.abs(y.b) - Math.abs(x.b), min: (x, y) => y.min - x.min, either: (x, y) => either(y) - either(x), left: (x, y) => leftOver(y) - leftOver(x), right: (x, y) => rightOver(y) - rightOver(x) };
    return [...(answer?.coordinates || [])].sort(sorts[sort]).slice(0, isWhole ? LISTED : SHOWN);
  }, [answer, sort, isWhole]);
  const longest = Math.max(...(answer?.coordinates || []).map(either), 1e-30);
  const listed = Math.min(LISTED, answer?.coordinates.length ?? 0);
  const linked = (label, item) => ({ label, text: title(view, item).slice(0, 60), href: href(name, "item", { id: item.id }) });
  const figure = (of) => (_, row) => html`<span>${figures.value(of(row))}</span>`;
  const columns = [
    { key: "name", name: "coordinate", show: (_, row) => html`<${Text} value=${nameOf(row)} limit=${60} />` },
    { key: "either", name: "either", show: (_, row) => html`<${RowBar} row=${row} longest=${longest} />` },
    { key: "a", name: "left", figure: true, show: figure((row) => row.a) },
    { key: "b", name: "right", figure: true, show: figure((row) => row.b) },
    { key: "min", name: "shared", figure: true, show: figure((row) => row.min) },
    { key: "left", name: "only left", figure: true, show: figure(leftOver) },
    { key: "right", name: "only right", figure: true, show: figure(rightOver) },
  ];
  if (problem) return html`<h1>Why</h1><${Trouble} problem=${problem} />`;
  if (!answer || (params.a !== undefined && !a.data) || !b.data) return html`<${Skeleton} rows=${4} kind="block" />`;
  return html`<div class="head"><h1>Why these two are ${answer.score > 0 ? "similar" : "not similar"}</h1><span class="space"></span>
      <a class="button" href=${href(name, "query", { id: params.a, row: params.row, names: params.names, text: params.text })}>Back to the hits${params.a !== undefined && html` of <bdi>${params.a.slice(0, 40)}</bdi>`}</a>
      <a class="button" href=${href(name, "query", { id: params.b })}>Find similar to <bdi>${params.b.slice(0, 40)}</bdi></a></div>
    <${Fraction} answer=${answer} nameOf=${nameOf} />
    ${view.image ? html`<${Pictures} answer=${answer} view=${view} sides=${[a.data ? linked("Left", a.data) : "Left, as asked", linked("Right", b.data)]} />`
      : html`<div class="halves sides-by">
      <${Side} label="Left" item=${a.data} asked=${params.row ?? params.names ?? params.text} ...${{ view, names, words, collection }} />
      <${Side} label="Right" item=${b.data} ...${{ view, names, words, collection }} /></div>`}
    <section class="panel"><h2>By coordinate</h2>
      <${Table} caption=${`The ${rows.length} of ${answer.coordinates.length + answer.rest.coordinates} coordinates that count most, under the collection's transform`} columns=${columns} rows=${rows} sort=${sort} onSort=${order} />
      ${!isWhole && listed > rows.length && html`<p class="actions"><button type="button" onClick=${() => show(true)}>Show ${figures.count(listed)}</button></p>`}</section>`;
}
