import * as figures from "./figures.js";
import { html } from "./html.js";

export function Save({ name, text, type }) {
	const save = () => {
		const link = document.createElement("a");
		link.download = name;
		link.href = URL.createObjectURL(new Blob([text()].flat(), { type }));
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
	};
	return html`<button type="button" class="quiet" onClick=${save}>
    ${name.split(".").pop().toUpperCase()}</button>`;
}

function cell(value) {
	const text = figures.text(value ?? "");
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`);
