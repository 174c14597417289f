import { go, href } from "./address.js";
import { at } from "./api.js";
import * as figures from "./figures.js";
import { useAnswer, useAsk, useLater } from "./hooks.js";
import { html, useEffect, useState } from "./html.js";
import { Dialog, Select, Trouble } from "./parts.js";
import { collectionOf, title } from "./view.js";

const SHOWN = 12;
const WAIT = 80;
const AROUND = 30;

const placeOf = (text, part) => text.toLowerCase().indexOf(part.toLowerCase());

function Marked({ text, part }) {
	const place = placeOf(text, part);
	if (place < 0) return html`<bdi>${text.slice(0, 2 * AROUND)}</bdi>`;
	const first = Math.max(0, place - AROUND);
	const end = place + part.length;
	const before = `${first > 0 ? "…" : ""}${text.slice(first, place)}`;
	const after = text.slice(end, end + 2 * AROUND);
	return html`<bdi>${before}<mark>${text.slice(place, end)}</mark>${after}</bdi>`;
}

function said({ payload, text }, part) {
	const values = Object.entries(payload || {});
	if (text !== undefined) values.unshift(["text", text]);
	const texts = values.map(([key, value]) => [key, figures.text(value)]);
	return texts.find(([, value]) => placeOf(value, part) >= 0) || texts[0];
}

function Found({ item, part, view, number, isChosen, target, onPoint }) {
	const name = title(view, item);
	const [key, value] = said(item, part) || [];
	const shown = value !== undefined && value !== name;
	return html`<li role="option" id=${`found-${number}`} aria-selected=${isChosen}
      class=${isChosen ? "found-item on" : "found-item"} onMouseMove=${() => onPoint(number)}
      onClick=${() => go(target)}>
    <strong><${Marked} text=${name} part=${part} /></strong>
    ${
			name !== item.id &&
			html`${" "}<span class="small"><${Marked} text=${item.id} part=${part} /></span>`
		}
    ${
			shown &&
			html`<span class="small what">${key}:${" "}
      <${Marked} text=${value} part=${part} /></span>`
		}
  </li>`;
}

function Results({ data, settled, view, chosen, targetOf, onPoint }) {
	if (!settled || !data) return null;
	const { items, complete } = data;
	return html`<p class="small" role="status">${
		items.length
			? `${items.length}${items.length === SHOWN ? " or more" : ""} found`
			: "No id begins with it, and no id or payload contains it"
	}${complete === false ? "; the search ended after its time, so some may be missing." : "."}</p>
    <ul id="found" role="listbox" aria-label="Items found" class="found-list">
      ${items.map(
				(item, number) => html`<${Found} key=${item.id} part=${settled}
        isChosen=${number === chosen} target=${targetOf(item)}
        ...${{ item, view, number, onPoint }} />`,
			)}</ul>`;
}

export default function Find({ collection, onClose }) {
	const { data: all } = useAnswer("v1/collections");
	const names = (all?.collections || []).map(({ name }) => name);
	const [name = names[0], search] = useState(collection || undefined);
	const [typed, type] = useState("");
	const [chosen, choose] = useState(0);
	const [settled, settle] = useState("");
	const later = useLater();
	const about = useAsk((signal) => name && collectionOf(name, signal), [name]);
	const { data, problem, waiting } = useAnswer(
		name && settled && at(name, `/items?limit=${SHOWN}&q=${encodeURIComponent(settled)}`),
	);
	const items = (settled && data?.items) || [];
	const view = about.data?.view || {};
	const targetOf = (item) => href(name, "item", { id: item.id });
	useEffect(() => {
		addEventListener("hashchange", onClose);
		return () => removeEventListener("hashchange", onClose);
	}, []);
	useEffect(() => choose(0), [settled]);
	const typing = ({ target }) => {
		type(target.value);
		// At once, or a while after the last key while the answer to another is awaited.
		later(() => settle(target.value.trim()), settled && waiting ? WAIT : 0);
	};
	const open = (event) => {
		event.preventDefault();
		const item = typed.trim() === settled && !waiting && items[chosen];
		if (item) go(targetOf(item));
	};
	const move = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (!step || !items.length) return;
		event.preventDefault();
		choose((chosen + step + items.length) % items.length);
	};
	return html`<${Dialog} title="Find an item" onClose=${onClose}>
    <form class="query-form" onSubmit=${open}>
      <label>In <${Select} chosen=${name} onChoose=${search} options=${names.map((one) => [one])} />
      </label><label>Begins an id, or is in an id or a payload
      <input autofocus type="search" role="combobox" aria-expanded=${items.length > 0}
        aria-controls="found" aria-autocomplete="list" autocomplete="off" spellcheck=${false}
        aria-activedescendant=${items.length ? `found-${chosen}` : undefined} data-find
        value=${typed} onInput=${typing} onKeyDown=${move} />
    </label></form>
    <${Trouble} problem=${problem} />
    <${Results} ...${{ data, settled, view, chosen, targetOf }} onPoint=${choose} />
  <//>`;
}
