import { compare } from "./sorting.js";

// Colours of values: classes by 14 colours, numbers by a scale. Each is at least 3:1 to the ground,
// in light and dark; style.css holds them.

const CLASSES = 14;
const STEPS = 16;
const OTHER = "var(--other)";

export const classColor = (place) => `var(--c${place % CLASSES})`;

const stepColor = (step) =>
	`color-mix(in oklab, var(--high) ${Math.round((100 * step) / (STEPS - 1))}%, var(--low))`;

function scaleOf(numbers) {
	const order = Float64Array.from(numbers).sort();
	const [low, high] = [0.02, 0.98].map((share) => order[Math.round(share * (order.length - 1))]);
	const stepOf = (value) => Math.floor((STEPS * (value - low)) / (high - low || 1));
	const colors = Array.from({ length: STEPS }, (_, step) => stepColor(step));
	return {
		counts: new Map(),
		classes: [],
		scale: { low, high },
		of: (value) =>
			typeof value === "number" ? colors[Math.min(STEPS - 1, Math.max(0, stepOf(value)))] : OTHER,
	};
}

export function colors(values) {
	const counts = new Map();
	for (const value of values) {
		if (value !== undefined && value !== null) counts.set(value, (counts.get(value) || 0) + 1);
	}
	const areNumbers = [...counts.keys()].every((value) => typeof value === "number");
	if (areNumbers && counts.size > CLASSES) {
		return scaleOf(values.filter((value) => typeof value === "number"));
	}
	const named = new Map();
	for (const [value, count] of counts) {
		named.set(String(value), (named.get(String(value)) || 0) + count);
	}
	const order = [...named].sort(([a, x], [b, y]) => y - x || compare(a, b)).map(([name]) => name);
	const classes = order.slice(0, CLASSES).sort(compare);
	const areSmall = classes.every((value) => /^\d+$/.test(value) && Number(value) < CLASSES);
	const places = new Map(classes.map((name, place) => [name, areSmall ? Number(name) : place]));
	return {
		counts: named,
		classes,
		of: (value) => {
			const place = places.get(String(value));
			return place === undefined ? OTHER : classColor(place);
		},
	};
}
