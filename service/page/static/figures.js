const whole = new Intl.NumberFormat("en");

export const count = (number) => (Number.isFinite(number) ? whole.format(number) : String(number));

export const text = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

export const plural = (number, word, many = `${word}s`) =>
	`${count(number)} ${number === 1 ? word : many}`;

export function bytes(number) {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let size = number;
	let unit = 0;
	while (size >= 1000 && unit < units.length - 1) {
		size /= 1000;
		unit += 1;
	}
	return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function duration(seconds) {
	if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
	const digits = seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0;
	if (seconds < 1) return `${(seconds * 1e3).toFixed(digits)} ms`;
	return `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;
}

export function value(number) {
	if (number === 0) return "0";
	const size = Math.abs(number);
	if (size >= 1e6 || size < 1e-4) return number.toExponential(2);
	return String(Number(number.toPrecision(4)));
}

export function apart(number, ...others) {
	for (let digits = 4; digits < 12; digits += 1) {
		const shown = Number(number.toPrecision(digits));
		if (others.every((one) => one === number || Number(one.toPrecision(digits)) !== shown)) {
			return digits === 4 ? value(number) : number.toPrecision(digits);
		}
	}
	return String(number);
}

const MOST_DECIMALS = 7; // Stored numbers have no more.

export function decimals(scores) {
	const different = (digits) => new Set([...scores, 1].map((one) => one.toFixed(digits))).size;
	const wanted = different(MOST_DECIMALS);
	let digits = 4;
	while (different(digits) < wanted) digits += 1;
	return digits;
}

export const score = (number, digits = decimals([number])) => number.toFixed(digits);
export const share = (number) =>
	`${(number * 100).toFixed(number > 0.995 && number < 1 ? 1 : 0)} %`;
