import * as figures from "./figures.js";
import { html, useEffect, useRef, useState } from "./html.js";

const SHOWN = 240;
const SORTED = [[], ["descending", " ↓"], ["ascending", " ↑"]];
const PASSING = {
	loading: "The service is still starting.",
	unreachable: "The server does not answer.",
};

/** What is in the fields of a form that is submitted.
 * @returns {Record<string, any>} */
export function fieldsOf(event) {
	event.preventDefault();
	return Object.fromEntries(new FormData(event.target));
}

export function Text({ value, limit = SHOWN }) {
	const [shown, set] = useState(limit);
	const text = figures.text(value);
	if (text.length <= 1.2 * shown) {
		return html`<bdi class=${typeof value === "number" ? "number" : undefined}>${text}</bdi>`;
	}
	return html`<bdi>${text.slice(0, shown)}…</bdi> <button class="link"
    onClick=${() => set(shown * 10)}>more (${figures.count(text.length)} characters)</button>`;
}

export const WORD = /([\p{L}\p{N}_]+)/u;

export function Words({ text, limit, isMarked, kind }) {
	const marked = (part, place) =>
		place % 2 && isMarked(part.toLowerCase()) ? html`<mark class=${kind}>${part}</mark>` : part;
	return html`<p class="text"><bdi>${text.slice(0, limit).split(WORD).map(marked)}</bdi>
    ${text.length > limit ? "…" : ""}</p>`;
}

export function Cut({ value, limit }) {
	const text = figures.text(value);
	return html`<bdi>${text.length > limit ? `${text.slice(0, limit)}…` : text}</bdi>`;
}

export function Trouble({ problem }) {
	if (!problem) return null;
	const passing = PASSING[problem.code];
	if (passing) return html`<p class="passing" role="status">${passing} This goes on by itself.</p>`;
	return html`<div class="trouble" role="alert">
    <p>${problem.message}</p>
    ${problem.code && html`<p class="small"><code>${problem.code}</code></p>`}
  </div>`;
}

export function Copy({ text, label = "Copy" }) {
	const [isDone, set] = useState(false);
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			const area = document.createElement("textarea");
			area.value = text;
			document.body.append(area);
			area.select();
			document.execCommand("copy");
			area.remove();
		}
		set(true);
		setTimeout(() => set(false), 1500);
	};
	return html`<button class="quiet" onClick=${copy}>
    ${isDone ? "Copied" : label}</button>`;
}

export function Command({ text }) {
	return html`<div class="command"><pre tabindex="0"><code>${text}</code></pre>
    <${Copy} text=${text} /></div>`;
}

export function Empty({ title, children }) {
	return html`<div class="empty"><h1>${title}</h1>${children}</div>`;
}

export function Skeleton({ rows = 3, kind = "line" }) {
	return html`<div class=${`skeletons ${kind}`} aria-hidden="true">
    ${Array.from({ length: rows }, () => html`<div class="skeleton"></div>`)}</div>`;
}

export const Awaited = ({ data, problem, rows = 3 }) =>
	problem
		? html`<${Trouble} problem=${problem} />`
		: !data && html`<${Skeleton} rows=${rows} kind="block" />`;

export function Tabs({ label, options, chosen, onChoose }) {
	return html`<div class="segments" role="radiogroup" aria-label=${label}>
    ${options.map(
			([value, name]) => html`<label class=${value === chosen ? "on" : ""}>
      <input type="radio" name=${label} checked=${value === chosen}
        onChange=${() => onChoose(value)} /><span>${name}</span></label>`,
		)}
  </div>`;
}

export const Select = ({ options, chosen, onChoose, ...more }) => html`<select ...${more}
    value=${chosen} onChange=${(event) => onChoose?.(event.target.value)}>${options.map(
			([value, words = value]) => html`<option value=${value} selected=${value === chosen}>${words}
    </option>`,
		)}</select>`;

export const Layouts = ({ isTable, onChoose }) => html`<${Tabs} label="Shown as"
  chosen=${isTable ? "table" : "cards"} options=${[["cards", "Cards"], ["table", "Table"]]}
  onChoose=${onChoose} />`;

export const texts = (key, name, limit) => ({
	key,
	name,
	show: (value) => html`<${Text} value=${value ?? ""} limit=${limit} />`,
});

export const links = (key, name, hrefOf, limit = 60) => ({
	key,
	name,
	show: (value) => html`<a href=${hrefOf(value)}><${Cut} ...${{ value, limit }} /></a>`,
});

export const moment = (key, name) => ({
	key,
	name,
	show: (time) => new Date(time).toLocaleString(),
});

export const number = (key, name, show = figures.count) => ({ key, name, show, figure: true });

export function Table({ caption, columns, rows, sort, onSort }) {
	const order = (key) => SORTED[sort === key ? 1 : sort === `-${key}` ? 2 : 0];
	return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table><caption>${caption}</caption>
      <thead><tr>${columns.map(
				({ key, name, figure }) => html`<${name ? "th" : "td"}
        scope=${name ? "col" : undefined} class=${figure ? "figure" : ""}
        aria-sort=${order(key)[0]}>
        ${
					onSort && name
						? html`<button class="link" onClick=${() => onSort(key)}>
          ${name}${order(key)[1]}</button>`
						: name
				}</${name ? "th" : "td"}>`,
			)}</tr></thead>
      <tbody>${rows.map(
				(row) =>
					html`<tr>${columns.map(
						({ key, figure, show }) => html`<td
        class=${figure ? "figure" : ""}>${show ? show(row[key], row) : row[key]}</td>`,
					)}</tr>`,
			)}</tbody>
    </table></div>`;
}

export const Payload = ({ rows }) =>
	rows.length > 0 &&
	html`<dl class="payload">${rows.map(
		([key, value, kind]) =>
			html`<div><dt><bdi>${key}</bdi></dt><dd class=${kind}>${value}</dd></div>`,
	)}</dl>`;

// The payload of an item; what another one has otherwise is marked.
export function Differing({ item, other, view }) {
	const isOther = (key, value) =>
		other && JSON.stringify(other.payload?.[key]) !== JSON.stringify(value);
	const rows = Object.entries(item.payload || {})
		.filter(([key]) => key !== view.text)
		.slice(0, 12)
		.map(([key, value]) => {
			const shown = html`<${Cut} value=${value} limit=${120} />`;
			return [key, isOther(key, value) ? html`<mark class="differs">${shown}</mark>` : shown];
		});
	return html`<${Payload} rows=${rows} />`;
}

export function Dialog({ title, onClose, children }) {
	const box = useRef();
	const show = () => box.current?.showModal();
	useEffect(show, []);
	const clicked = ({ target }) => target === box.current && onClose && target.close();
	return html`<dialog ref=${box} aria-label=${title} onClose=${onClose || show} onClick=${clicked}>
    <div class="inside"><h2>${title}</h2>${children}</div></dialog>`;
}

export function Bar({ value, max = 1, label }) {
	return html`<div class="bar" role="img" aria-label=${label}>
    <div style=${{ width: `${(100 * value) / max}%` }}></div></div>`;
}

export const Progress = ({
	value,
	max,
	words,
}) => html`<${Bar} ...${{ value, max }} label=${words} />
  <p class="small figure">${words}</p>`;

export const Heights = ({
	label,
	bars,
}) => html`<div class="heights" role="img" aria-label=${label}>
  ${bars.map(
		({ size, ...more }) => html`<i style=${{ height: `${100 * size}%` }} ...${more}></i>`,
	)}</div>`;

export function LoadBar({ load: { bytes, total_bytes: total } }) {
	const read = `${figures.bytes(bytes)} read`;
	if (!total) return html`<p class="small figure">${read}</p>`;
	const words =
		bytes < total ? `${read}, of ${figures.bytes(total)}` : `all ${read}; committing the last rows`;
	return html`<${Progress} value=${bytes} max=${total} words=${words} />`;
}

export function GraphBar({ collection }) {
	const primary = collection.backends.find((backend) => backend.primary);
	if (primary?.status !== "building") return null;
	const words = `Building the graph: ${figures.share(primary.progress)}`;
	return html`<${Progress} value=${primary.progress}
    words=${`${words}. Queries are answered meanwhile.`} />`;
}

export function Drop({ label, words, onFile }) {
	const [isOver, over] = useState(false);
	const dropped = (event) => {
		event.preventDefault();
		over(false);
		onFile(event.dataTransfer.files[0]);
	};
	const hover = (event) => {
		event.preventDefault();
		over(true);
	};
	return html`<div class=${isOver ? "drop over" : "drop"} onDragOver=${hover}
      onDragLeave=${() => over(false)} onDrop=${dropped}><p>${words}</p>
    <input type="file" aria-label=${label} onChange=${(event) => onFile(event.target.files[0])} />
  </div>`;
}
