import { href } from "./address.js";
import { at, itemsOf, post } from "./api.js";
import { Drawn, isBars, Picture } from "./draw.js";
import * as figures from "./figures.js";
import { useAsk } from "./hooks.js";
import { html, useMemo, useState } from "./html.js";
import { Awaited, Cut, Differing, number, Skeleton, Table, Text, Words } from "./parts.js";
import { sorted } from "./sorting.js";
import { queryOf } from "./vectors.js";
import { nameOfCoordinate, textOf, title } from "./view.js";

const CUTS = 14;
const NAMED = 5;
const LISTED = 200;
const SHOWN = 25;
const WHOLE = 4096;

const isUnlike = ({ a, b }) => a * b < 0;
const beyond = (row, value) =>
	isUnlike(row) ? Math.abs(value) : Math.max(0, Math.abs(value) - row.min);
const leftOver = (row) => beyond(row, row.a);
const rightOver = (row) => beyond(row, row.b);
const either = (row) => row.min + leftOver(row) + rightOver(row);

const sumOf = (rows, of) => rows.reduce((sum, row) => sum + of(row), 0);
const longestOf = (rows) =>
	rows.reduce((most, { a, b }) => Math.max(most, Math.abs(a), Math.abs(b)), 1e-30);

function Slices({ parts, total, label }) {
	return html`<div class="fraction-bar" role="img" aria-label=${label}>${parts.map(
		({ size, kind, name }) => html`<span class=${kind} title=${`${name}: ${figures.value(size)}`}
      style=${{ width: `${(100 * size) / total}%` }}>
      ${size / total > 0.06 ? html`<bdi>${name}</bdi>` : ""}</span>`,
	)}</div>`;
}

function cutBy(of, kind, whole, { coordinates, total }, nameOf) {
	const some = coordinates.filter((row) => of(row) > 0);
	const cuts = some.sort((x, y) => of(y) - of(x)).slice(0, CUTS);
	const parts = cuts.map((row) => ({ size: of(row), kind, name: nameOf(row) }));
	const others = whole - sumOf(cuts, of);
	if (others > 1e-9 * total) parts.push({ size: others, kind: `${kind} other`, name: "others" });
	return parts;
}

function Largest({ kind, label, size, parts }) {
	const named = parts.filter((part) => part.kind === kind).slice(0, NAMED);
	return html`<li><span class="class"><i class=${kind}></i>${label}
      ${" "}<strong class="figure">${figures.value(size)}</strong></span>
    ${
			named.length > 0 &&
			html`<span class="small">${named.map(
				({ name, size: one }, place) => html`
      ${place ? " · " : " "}<bdi>${name.slice(0, 40)}</bdi>:
      ${" "}<span class="figure">${figures.value(one)}</span>`,
			)}
      ${parts.length > named.length && " · …"}</span>`
		}</li>`;
}

function Fraction({ answer, nameOf }) {
	const { shared, total, rest, coordinates } = answer;
	const [left, right] = [sumOf(coordinates, leftOver), sumOf(coordinates, rightOver)];
	const other = rest.max - rest.min;
	const top = cutBy((row) => row.min, "shared", shared, answer, nameOf);
	const lefts = cutBy(leftOver, "left", left, answer, nameOf);
	const rights = cutBy(rightOver, "right", right, answer, nameOf);
	const bottom = [{ size: shared, kind: "shared", name: "shared" }, ...lefts, ...rights];
	const hasOther = other > 1e-9 * total;
	if (hasOther) bottom.push({ size: other, kind: "unlisted", name: "not listed" });
	const only = `only left ${figures.value(left)}, only right ${figures.value(right)}`;
	return html`<div class="fraction panel">
    <div class="number"><span class="small">Similarity</span>
      <strong class="figure">${figures.score(answer.score)}</strong></div>
    <div class="sides">
      <p class="small">What both have, Σ min = <strong class="figure">${figures.value(shared)}
        </strong></p>
      <${Slices} parts=${top} total=${total || 1}
        label=${`Shared: ${figures.value(shared)} of ${figures.value(total)}`} />
      <hr />
      <${Slices} parts=${bottom} total=${total || 1}
        label=${`Total: shared ${figures.value(shared)}, ${only}`} />
      <p class="small">What either has, Σ max = <strong class="figure">${figures.value(total)}
        </strong>${
					rest.coordinates > 0 && `; ${figures.plural(rest.coordinates, "coordinate")} not listed`
				}</p>
      <ul class="amounts">
        <${Largest} kind="shared" label="shared" size=${shared} parts=${top} />
        <${Largest} kind="left" label="only left" size=${left} parts=${lefts} />
        <${Largest} kind="right" label="only right" size=${right} parts=${rights} />
        ${
					hasOther &&
					html`<${Largest} kind="unlisted" label="not listed" size=${other}
          parts=${[]} />`
				}</ul>
    </div></div>`;
}

function Pictures({ answer, view, collection, a, b }) {
	const { vectors, range } = useMemo(() => {
		const indices = answer.coordinates.map(({ coordinate }) => coordinate);
		const of = (value) => ({ indices, values: answer.coordinates.map(value) });
		const max = longestOf(answer.coordinates);
		const hasNegative = answer.coordinates.some(({ a, b }) => a < 0 || b < 0);
		return {
			range: [hasNegative ? -max : 0, max],
			vectors: [
				[a ? "Left" : "Left, as asked", of((row) => row.a), "", a],
				["Right", of((row) => row.b), "", b],
				["Shared", of((row) => row.min * Math.sign(row.a || row.b)), "shared"],
				["Only left", of((row) => leftOver(row) * Math.sign(row.a)), "left"],
				["Only right", of((row) => rightOver(row) * Math.sign(row.b)), "right"],
			],
		};
	}, [answer, a, b]);
	return html`<section class="panel five">${vectors.map(
		([name, vector, kind, item]) => html`<figure>
    <${Picture} image=${view.image} label=${name} ...${{ vector, range }} />
    <figcaption class="class">${kind && html`<i class=${kind}></i>`}${name}${
			item &&
			html`: <a href=${href(collection.name, "item", { id: item.id })}>
      <${Cut} value=${title(view, item)} limit=${60} /></a>`
		}
    </figcaption></figure>`,
	)}</section>`;
}

function Side({ label, item, other, asked, view, words, collection }) {
	const text = item && textOf(view, item);
	const isMarked = (word) => words.has(word);
	const target = item && href(collection.name, "item", { id: item.id });
	return html`<section class="panel side"><p class="small class">
      <i class=${label.toLowerCase()}></i>${label}</p>
    ${
			!item
				? html`<p><code><${Text} value=${asked ?? ""} limit=${200} /></code></p>`
				: html`<h2><a href=${target}><bdi>${title(view, item).slice(0, 120)}</bdi></a></h2>
      ${
				typeof text === "string"
					? html`<${Words} ...${{ text, isMarked }} limit=${20_000} />`
					: !isBars(item, view) && html`<div class="drawn"><${Drawn} ...${{ item, view }} /></div>`
			}
      <${Differing} ...${{ item, other, view }} />`
		}
  </section>`;
}

// One coordinate of both: left and right from the middle, on one scale for all rows. Away from the
// middle is above zero, towards it below. The green foot is what they share.
function Mirror({ row, longest, isSigned }) {
	const half = (kind, value) => {
		const size = (Math.abs(value) / longest) * (isSigned ? 50 : 100);
		const shared = isUnlike(row) ? 0 : (row.min / longest) * (isSigned ? 50 : 100);
		const side = kind === "left" ? "right" : "left";
		const from = { [value < 0 ? kind : side]: isSigned ? "50%" : "0" };
		return html`<span class=${isSigned ? "half signed" : "half"}>
      ${value !== 0 && html`<i class=${kind} style=${{ ...from, width: `${size}%` }}></i>`}
      ${shared > 0 && html`<i class="shared" style=${{ ...from, width: `${shared}%` }}></i>`}
    </span>`;
	};
	return html`<span class="mirror" aria-hidden="true">${half("left", row.a)}
    ${half("right", row.b)}</span>`;
}

function Coordinates({ answer: { coordinates, rest }, nameOf }) {
	const [sort, order] = useState("min");
	const [isWhole, show] = useState(false);
	const rows = useMemo(() => {
		const of = { name: nameOf, either, left: leftOver, right: rightOver };
		const cellOf = (row, key) => of[key]?.(row) ?? Math.abs(row[key]);
		return sorted(coordinates, sort, cellOf).slice(0, isWhole ? LISTED : SHOWN);
	}, [coordinates, sort, isWhole]);
	const longest = useMemo(() => longestOf(coordinates), [coordinates]);
	const isSigned = coordinates.some(({ a, b }) => a < 0 || b < 0);
	const listed = Math.min(LISTED, coordinates.length);
	const all = coordinates.length + rest.coordinates;
	const figure = (of) => (_, row) => figures.value(of(row));
	const side = (value, row) => figures.apart(value, row.a, row.b);
	const columns = [
		{
			key: "name",
			name: "coordinate",
			show: (_, row) => html`<${Text} value=${nameOf(row)} limit=${60} />`,
		},
		number("a", "left", side),
		{
			key: "either",
			name: "left | right",
			show: (_, row) => html`<${Mirror} ...${{ row, longest, isSigned }} />`,
		},
		number("b", "right", side),
		number("min", "shared", figures.value),
		number("left", "only left", figure(leftOver)),
		number("right", "only right", figure(rightOver)),
	];
	return html`<section class="panel"><h2>By coordinate</h2>
    <p class="small">All bars have one scale.
      ${isSigned && " Away from the middle is above zero, towards it below."}
      ${" "}The green foot is what both have.</p>
    <${Table} caption=${`${
			all > rows.length
				? `The ${rows.length} of ${all} coordinates that count most`
				: "All coordinates"
		}, under the collection's transform`}
      columns=${columns} rows=${rows} sort=${sort} onSort=${order} />
    ${
			!isWhole &&
			listed > rows.length &&
			html`<p class="actions"><button
      onClick=${() => show(true)}>Show ${figures.count(listed)}</button></p>`
		}</section>`;
}

export default function Why({ collection, params }) {
	const { name } = collection;
	const { a: id, row, names, text } = params;
	const { view } = collection;
	const limit = view.image ? WHOLE : LISTED;
	const explained = useAsk(
		async (signal) => {
			const a = queryOf({ id, row, names, text });
			return post(at(name, "/explain"), { a, b: { id: params.b }, limit }, signal);
		},
		[name, id, row, names, text, params.b, limit],
	);
	const answer = explained.data;
	const read = useAsk(
		(signal) =>
			answer &&
			itemsOf(name, id === undefined ? [params.b] : [id, params.b], signal).then(
				(items) => new Map(items.map((item) => [item.id, item])),
			),
		[name, id, params.b, answer],
	);
	const [a, b] = [read.data?.get(id), read.data?.get(params.b)];
	const nameOf = (one) => nameOfCoordinate(view, one);
	const words = useMemo(
		() =>
			new Set(
				(answer?.coordinates || [])
					.filter(({ min }) => min > 0)
					.map((one) => nameOf(one).toLowerCase()),
			),
		[answer],
	);
	const problem = explained.problem || read.problem;
	if (problem || !answer) return html`<h1>Why</h1><${Awaited} problem=${problem} />`;
	const shown = { view, words, collection };
	return html`<div class="head">
      <h1>Why these two are ${answer.score > 0 ? "similar" : "not similar"}</h1>
      <span class="space"></span>
      <a class="button" href=${href(name, "query", { id, row, names, text })}>Back to the hits${
				id !== undefined && html` of <bdi>${id.slice(0, 40)}</bdi>`
			}</a>
      <a class="button" href=${href(name, "query", { id: params.b })}>Find similar to
        ${" "}<bdi>${params.b.slice(0, 40)}</bdi></a></div>
    <${Fraction} ...${{ answer, nameOf }} />
    ${
			!b
				? html`<${Skeleton} rows=${2} kind="block" />`
				: view.image
					? html`<${Pictures} ...${{ answer, a, b, view, collection }} />`
					: html`<div class="halves sides-by">
      <${Side} label="Left" item=${a} other=${b} asked=${row ?? names ?? text} ...${shown} />
      <${Side} label="Right" item=${b} other=${a} ...${shown} /></div>`
		}
    ${b && html`<${Coordinates} ...${{ answer, nameOf }} />`}`;
}
