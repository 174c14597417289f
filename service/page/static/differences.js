import { Drawn, Picture } from "./draw.js";
import * as figures from "./figures.js";
import { html } from "./html.js";
import { Payload, WORD, Words } from "./parts.js";
import { dense, entries } from "./vectors.js";
import { textOf } from "./view.js";

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

export function Member({ item, kept, view, names, reference }) {
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

export function Values({ item, kept, skip }) {
	const isOther = (key, value) =>
		item.id !== kept.id && JSON.stringify(kept.payload?.[key]) !== JSON.stringify(value);
	const rows = Object.entries(item.payload || {})
		.filter(([key]) => key !== skip)
		.slice(0, 12)
		.map(([key, value]) => {
			const shown = html`<bdi>${figures.text(value).slice(0, 120)}</bdi>`;
			return [key, isOther(key, value) ? html`<mark class="differs">${shown}</mark>` : shown];
		});
	return html`<${Payload} rows=${rows} />`;
}
