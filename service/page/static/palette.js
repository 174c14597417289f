import { compare, isNumber } from "./sorting.js";

// Each color of style.css is at least 3:1 to the ground, in light and dark.

const CLASSES = 14;
const STEPS = 16;
const OTHER = "var(--other)";

export const classColor = (place) => `var(--c${place % CLASSES})`;

const stepColor = (step) =>
	`color-mix(in oklab, var(--high) ${Math.round((100 * step) / (STEPS - 1))}%, var(--low))`;

function scaleOf(numbers) {
	const order = Float64Array.from(numbers, Number).sort();
	const [low, high] = [0.02, 0.98].map((share) => order[Math.round(share * (order.length - 1))]);
	const stepOf = (value) => Math.floor((STEPS * (Number(value) - low)) / (high - low || 1));
	const colors = Array.from({ length: STEPS }, (_, step) => stepColor(step));
	return {
		counts: new Map(),
		classes: [],
		scale: { low, high },
		of: (value) =>
			isNumber(value) ? colors[Math.min(STEPS - 1, Math.max(0, stepOf(value)))] : OTHER,
	};
}

export function colors(values) {
	const said = values.filter((value) => (value ?? null) !== null);
	const named = Map.groupBy(said, String);
	if (named.size > CLASSES && said.every(isNumber)) return scaleOf(said);
	const counts = new Map([...named].map(([name, all]) => [name, all.length]));
	const order = [...counts].sort(([a, x], [b, y]) => y - x || compare(a, b)).map(([name]) => name);
	const classes = order.slice(0, CLASSES).sort(compare);
	const areSmall = classes.every((value) => /^\d+$/.test(value) && Number(value) < CLASSES);
	const places = new Map(classes.map((name, place) => [name, areSmall ? Number(name) : place]));
	return {
		counts,
		classes,
		of: (value) => {
			const place = places.get(String(value));
			return place === undefined ? OTHER : classColor(place);
		},
	};
}
