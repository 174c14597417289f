import { html } from "./html.js";

const WIDTH = 120;
const HEIGHT = 28;

export function Spark({ values, length, label }) {
	const max = Math.max(...values, 1e-12);
	const place = (value, index) => {
		const across = ((index + length - values.length) / (length - 1)) * WIDTH;
		return [across, HEIGHT - 2 - (value / max) * (HEIGHT - 4)];
	};
	const lines = [[]];
	values.forEach((value, index) => {
		if (value === null) lines.push([]);
		else lines.at(-1).push(place(value, index));
	});
	return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
      aria-label=${label}>
    ${lines.map(([first, ...more]) =>
			more.length || !first
				? html`<polyline points=${[first, ...more].join(" ")} />`
				: html`<circle cx=${first[0]} cy=${first[1]} r="1.5" />`,
		)}</svg>`;
}
