import * as figures from "./figures.js";
import { html } from "./html.js";

export function save(name, what) {
	const link = document.createElement("a");
	link.download = name;
	link.href = typeof what === "string" ? what : URL.createObjectURL(what);
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Save({ name, text }) {
	const press = () => save(name, new Blob([text()].flat()));
	return html`<button class="quiet" onClick=${press}>
    ${name.split(".").pop().toUpperCase()}</button>`;
}

function cell(value) {
	const text = figures.text(value ?? "");
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`);
