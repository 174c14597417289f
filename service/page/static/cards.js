import { go, href } from "./address.js";
import { Drawn, Link } from "./draw.js";
import * as figures from "./figures.js";
import { useKeys } from "./hooks.js";
import { html } from "./html.js";
import { colors } from "./palette.js";
import { Cut, Payload } from "./parts.js";
import { isScalar, payloadAt, title } from "./view.js";

function step(way, isDown = false) {
	const tiles = [...document.querySelectorAll("[data-tile]")];
	const here = tiles.indexOf(document.activeElement.closest("[data-tile]"));
	const below = tiles.findIndex(({ offsetTop }) => offsetTop > tiles[0].offsetTop);
	const next = tiles[here < 0 ? 0 : here + way * (isDown ? Math.max(1, below) : 1)];
	next?.querySelector("a").focus();
	return Boolean(next);
}

export function useTileKeys(collection) {
	const chosen = () => document.activeElement.closest?.("[data-tile]")?.dataset;
	useKeys({
		ArrowRight: () => step(1),
		ArrowLeft: () => step(-1),
		ArrowDown: () => step(1, true),
		ArrowUp: () => step(-1, true),
		e: () => {
			const why = chosen()?.why;
			if (why) go(why);
			return Boolean(why);
		},
		o: () => {
			const link = document.activeElement.closest?.("[data-tile]")?.querySelector("a[target]");
			link?.click();
			return Boolean(link);
		},
		d: () => {
			const tile = chosen();
			if (tile) go(href(collection.name, "item", { id: tile.tile }));
			return Boolean(tile);
		},
	});
}

const SHOWN = 3;

function Values({ item, view, palette }) {
	const drawn = new Set([view.title, view.text, view.smiles, view.url, view.color]);
	const rows = Object.entries(item.payload || {})
		.filter(([key, value]) => !drawn.has(key) && isScalar(value))
		.slice(0, SHOWN);
	const color = payloadAt(item.payload, view.color);
	const hasColor = (color ?? null) !== null;
	if (hasColor) rows.unshift([view.color, String(color)]);
	const shown = rows.map(([key, value], place) => [
		key,
		html`${hasColor && !place && html`<i style=${{ background: palette.of(color) }}></i>`}
      <${Cut} value=${value} limit=${40} />`,
		"class",
	]);
	return html`<${Payload} rows=${shown} />`;
}

export function Tiles({ collection, items, view, names, label, why }) {
	const palette = colors(items.map((item) => payloadAt(item.payload, view.color)));
	const digits = figures.decimals(items.flatMap(({ score }) => score ?? []));
	return html`<ol class=${`tiles ${view.image ? "pictures" : ""}`} aria-label=${label}>
    ${items.map((item) => {
			const reason = why?.(item);
			const name = title(view, item).slice(0, 120);
			const score = item.score === undefined ? "" : figures.score(item.score, digits);
			return html`<li key=${item.id} class=${`hit ${item.missed ? "missed" : ""}`}
          data-tile=${item.id} data-why=${reason}>
        <a class="main" href=${href(collection.name, "query", { id: item.id })}
          aria-label=${`Find items similar to ${name}${score && `, score ${score}`}`}>
          <span class="title"><bdi>${name}</bdi></span>
          ${
						score &&
						html`<span class="foot">
            ${item.rank !== undefined && html`<span class="figure small">${item.rank}.</span>`}
            <strong class="figure">${score}</strong>
            ${item.missed && html`<span class="tag">missed</span>`}</span>`
					}
          <span class="drawn"><${Drawn} item=${item} view=${view} names=${names} /></span></a>
        <${Values} ...${{ item, view, palette }} />
        <span class="links">
          ${
						reason &&
						html`<a class="quiet" href=${reason} tabindex="-1"
            aria-label=${`Why is ${item.id} similar`}>why</a>`
					}
          <a class="quiet" href=${href(collection.name, "item", { id: item.id })} tabindex="-1"
            aria-label=${`Details of ${item.id}`}>details</a>
        </span>
        <${Link} item=${item} view=${view} tabindex="-1" /></li>`;
		})}</ol>`;
}
