import { html } from "./vendor/preact.js";
import { go, href } from "./address.js";
import { useKeys } from "./hooks.js";
import { Drawn, Link } from "./draw.js";
import { Text } from "./parts.js";
import { colors, payloadAt, title } from "./view.js";
import * as figures from "./figures.js";

function step(event, sideways) {
  const tiles = [...document.querySelectorAll("[data-tile]")];
  const here = tiles.indexOf(document.activeElement.closest("[data-tile]"));
  if (here < 0) {
    const first = tiles[0]?.querySelector("a");
    first?.focus();
    return Boolean(first);
  }
  let next = tiles[here + sideways];
  if (Math.abs(sideways) > 1) {
    const box = tiles[here].getBoundingClientRect();
    const sign = Math.sign(sideways);
    const after = tiles.filter((tile) => sign * (tile.getBoundingClientRect().top - box.top) > 4);
    const ordered = sign > 0 ? after : after.reverse();
    const row = ordered[0]?.getBoundingClientRect().top;
    next = ordered.filter((tile) => Math.abs(tile.getBoundingClientRect().top - row) < 4)
      .sort((a, b) => Math.abs(a.getBoundingClientRect().left - box.left) - Math.abs(b.getBoundingClientRect().left - box.left))[0];
  }
  next?.querySelector("a").focus();
  return Boolean(next);
}

export function useTileKeys(collection) {
  const chosen = () => document.activeElement.closest?.("[data-tile]")?.dataset;
  useKeys({
    ArrowRight: (event) => step(event, 1),
    ArrowLeft: (event) => step(event, -1),
    ArrowDown: (event) => step(event, 2),
    ArrowUp: (event) => step(event, -2),
    e: () => {
      const why = chosen()?.why;
      if (why) go(why);
      return Boolean(why);
    },
    d: () => {
      const tile = chosen();
      if (tile) go(href(collection.name, "item", { id: tile.tile }));
      return Boolean(tile);
    },
  });
}

export function Tiles({ collection, items, view, names, label, why }) {
  const palette = view.color ? colors(items.map((item) => payloadAt(item.payload, view.color))) : null;
  return html`<ol class=${`tiles ${view.image ? "pictures" : ""}`} aria-label=${label}>
    ${items.map((item) => {
      const color = view.color ? payloadAt(item.payload, view.color) : undefined;
      const reason = why?.(item);
      return html`<li key=${item.id} class=${`hit ${item.missed ? "missed" : ""}`} data-tile=${item.id} data-why=${reason}>
        <a class="main" href=${href(collection.name, "query", { id: item.id })} aria-label=${`Find items similar to ${title(view, item).slice(0, 80)}`}>
          <span class="drawn"><${Drawn} item=${item} view=${view} names=${names} /></span>
          <span class="title"><bdi>${title(view, item).slice(0, 120)}</bdi></span></a>
        <span class="foot">
          ${item.rank !== undefined && html`<span class="figure small">${item.rank}.</span>`}
          ${item.score !== undefined && html`<strong class="figure">${figures.score(item.score)}</strong>`}
          ${item.missed && html`<span class="tag">missed</span>`}
          ${color !== undefined && color !== null && html`<span class="class"><i style=${{ background: palette.of(color) }}></i><${Text} value=${String(color)} limit=${24} /></span>`}
        </span>
        <span class="links">
          ${reason && html`<a class="quiet" href=${reason} aria-label=${`Why is ${item.id} similar`}>why</a>`}
          <a class="quiet" href=${href(collection.name, "item", { id: item.id })} aria-label=${`Details of ${item.id}`}>details</a>
        </span>
        <${Link} item=${item} view=${view} /></li>`;
    })}</ol>`;
}
