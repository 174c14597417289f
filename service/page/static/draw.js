import { at, get } from "./api.js";
import * as figures from "./figures.js";
import { useKnown } from "./hooks.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { useInk } from "./ink.js";
import { Cut } from "./parts.js";
import { script } from "./script.js";
import { chunksOf, dense, entries, greatest } from "./vectors.js";
import { payloadAt, safeUrl, textOf, title } from "./view.js";

const BARS = 6;
const CELLS = 256;
// Colours of the sign in pictures; those of the two sides of a comparison are others.
const ABOVE = [64, 122, 20];
const BELOW = [190, 20, 120];

function shade(value, low, high, isSigned) {
	if (!isSigned) {
		const grey = 255 * Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
		return [grey, grey, grey];
	}
	const size = Math.min(1, Math.abs(value) / (Math.max(Math.abs(low), Math.abs(high)) || 1));
	const [red, green, blue] = value < 0 ? BELOW : ABOVE;
	return [red, green, blue].map((part) => 245 + (part - 245) * size);
}

export function paint(canvas, vector, image, range) {
	const { width, height, channels = 1 } = image;
	const values = dense(vector, width * height * channels);
	let low = Infinity;
	let high = -Infinity;
	for (const value of values) {
		low = Math.min(low, value);
		high = Math.max(high, value);
	}
	const isSigned = low < 0 || range?.[0] < 0;
	const said = range || image.range;
	if (said) [low, high] = said;
	else if (!isSigned) low = 0;
	canvas.width = width;
	canvas.height = height;
	const context = canvas.getContext("2d");
	const picture = context.createImageData(width, height);
	for (let pixel = 0; pixel < width * height; pixel += 1) {
		const first = pixel * channels;
		const part = (place) => (255 * (values[first + place] - low)) / (high - low || 1);
		const color =
			channels === 1 ? shade(values[first], low, high, isSigned) : [part(0), part(1), part(2)];
		picture.data.set([...color, channels === 4 ? part(3) : 255], pixel * 4);
	}
	context.putImageData(picture, 0, 0);
}

export function Picture({ vector, image, range, label }) {
	const canvas = useRef();
	useEffect(() => paint(canvas.current, vector, image, range), [vector, image, range]);
	return html`<canvas ref=${canvas} class="pixels" role="img" aria-label=${label}
    width=${image.width} height=${image.height}></canvas>`;
}

export function Molecule({ smiles, label }) {
	const canvas = useRef();
	const [isBroken, broken] = useState(false);
	const turn = useInk();
	useEffect(() => {
		let isOver = false;
		const failed = () => broken(true);
		script("vendor/smiles-drawer.js", "SmilesDrawer")
			.then((library) => {
				if (isOver) return;
				const theme = document.documentElement.style.colorScheme;
				const drawer = new library.Drawer({ width: 240, height: 180, padding: 8 });
				library.parse(
					smiles,
					(tree) => {
						try {
							drawer.draw(tree, canvas.current, theme, false);
							canvas.current.removeAttribute("style");
						} catch {
							failed();
						}
					},
					failed,
				);
			})
			.catch(failed);
		return () => {
			isOver = true;
		};
	}, [smiles, turn]);
	if (isBroken) return html`<p class="text small"><${Cut} value=${smiles} limit=${80} /></p>`;
	return html`<canvas ref=${canvas} class="molecule" width="240" height="180" role="img"
    aria-label=${label}></canvas>`;
}

/** @returns {Promise<any[]>} */
export async function namesOf(collection, indices, signal) {
	const asked = chunksOf(indices, 500).map((some) =>
		get(at(collection, `/names?indices=${some}`), signal),
	);
	const answers = await Promise.all(asked);
	return answers.flatMap(({ names }) => names.map(({ index, name }) => [index, name]));
}

export function useNames(collection, items, limit = BARS) {
	const wanted = useMemo(() => {
		const shown = collection.names ? items.flatMap(({ vector }) => greatest(vector, limit)) : [];
		return [...new Set(shown.map(([index]) => index))];
	}, [collection.name, items]);
	return useKnown(wanted, (indices, signal) => namesOf(collection.name, indices, signal)).known;
}

export function Bars({ vector, names, limit = BARS }) {
	const all = entries(vector);
	const rows = Array.isArray(vector) && all.length <= limit ? all : greatest(vector, limit);
	const max = Math.max(...rows.map(([, value]) => Math.abs(value)), 1e-30);
	const isSigned = rows.some(([, value]) => value < 0);
	return html`<div class=${isSigned ? "bars signed" : "bars"}>
    ${rows.map(
			([index, value]) => html`<div class="row">
      <span class="name"><bdi>${names?.get(index) ?? index}</bdi></span>
      <span class="track"><i class=${value < 0 ? "negative" : ""}
        style=${{ width: `${(Math.abs(value) / max) * (isSigned ? 50 : 100)}%` }}></i></span>
      <span class="figure">${figures.value(value)}</span></div>`,
		)}
    ${
			all.length > rows.length &&
			html`<p class="small">and
      ${" "}${figures.plural(all.length - rows.length, "more value")}</p>`
		}
  </div>`;
}

const farther = (one, other) => (Math.abs(other) > Math.abs(one) ? other : one);

// Not a canvas, which costs a millisecond a frame. A cell of many shows that farthest from 0.
function Heat({ vector, label }) {
	const parts = chunksOf(vector, Math.ceil(vector.length / CELLS));
	const cells = parts.map((some) => some.reduce(farther));
	const most = Math.abs(cells.reduce(farther));
	const width = 100 / cells.length;
	const stops = cells.map(
		(value, place) =>
			`rgb(${shade(value, -most, most, true)}) ${place * width}% ${(place + 1) * width}%`,
	);
	const all = figures.plural(vector.length, "number");
	return html`<span class="heat" role="img" aria-label=${`${label}: ${all}`}
    title=${`${all} up to ±${figures.value(most)}; green above zero, pink below`}
    style=${{ background: `linear-gradient(to right, ${stops})` }}></span>`;
}

function drawing(item, view) {
	if (view.image && item.vector) return ["picture", item.vector];
	const smiles = payloadAt(item.payload, view.smiles);
	if (typeof smiles === "string" && smiles.length < 2000) return ["molecule", smiles];
	const url = payloadAt(item.payload, view.url);
	const address = typeof url === "string" && url.startsWith("data:") ? safeUrl(url) : null;
	if (address) return ["address", address];
	const text = textOf(view, item);
	return (text ?? null) === null ? ["bars", item.vector] : ["words", text];
}

export const isBars = (item, view) => drawing(item, view)[0] === "bars";

export function Drawn({ item, view, names, limit }) {
	const label = `Item ${title(view, item).slice(0, 80)}`;
	const [kind, what] = drawing(item, view);
	if (kind === "picture") {
		return html`<${Picture} vector=${what} image=${view.image} label=${label} />`;
	}
	if (kind === "molecule") return html`<${Molecule} smiles=${what} label=${label} />`;
	if (kind === "address") return html`<img src=${what} alt=${label} />`;
	if (kind === "words") return html`<p class="text"><${Cut} value=${what} limit=${160} /></p>`;
	const isBare = Array.isArray(what) && what.length > BARS && !names?.size;
	if (isBare) return html`<${Heat} vector=${what} label=${label} />`;
	return html`<${Bars} vector=${what} names=${names} limit=${limit} />`;
}

export function Link({ item, view, tabindex }) {
	const url = safeUrl(payloadAt(item.payload, view.url));
	if (!url || url.startsWith("data:")) return null;
	return html`<a href=${url} target="_blank" rel="noopener noreferrer" tabindex=${tabindex}>open
    link ↗</a>`;
}
