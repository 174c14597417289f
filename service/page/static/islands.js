// Names of islands: of each class the place where most of its points lie together, if most there
// are its own.

const CELLS = 24;
const MOST = 24;

function gridOf(places) {
	const low = [Infinity, Infinity];
	const high = [-Infinity, -Infinity];
	places.forEach((value, place) => {
		low[place % 2] = Math.min(low[place % 2], value);
		high[place % 2] = Math.max(high[place % 2], value);
	});
	const cell = (value, axis) =>
		Math.min(CELLS - 1, Math.floor((CELLS * (value - low[axis])) / (high[axis] - low[axis] || 1)));
	return (item) => cell(places[2 * item], 0) + CELLS * cell(places[2 * item + 1], 1);
}

function around(sums) {
	const out = new Float64Array(sums.length);
	for (let y = 0; y < CELLS; y += 1) {
		for (let x = 0; x < CELLS; x += 1) {
			for (let up = Math.max(0, y - 1); up <= Math.min(CELLS - 1, y + 1); up += 1) {
				for (let left = Math.max(0, x - 1); left <= Math.min(CELLS - 1, x + 1); left += 1) {
					out[x + CELLS * y] += sums[left + CELLS * up];
				}
			}
		}
	}
	return out;
}

const empty = () => new Float64Array(CELLS * CELLS);

export function labelsOf(places, values, classes) {
	if (!classes.length) return [];
	const cellOf = gridOf(places);
	const all = empty();
	const found = new Map(classes.map((name) => [name, { n: empty(), x: empty(), y: empty() }]));
	values.forEach((value, item) => {
		const cell = cellOf(item);
		all[cell] += 1;
		const sums = found.get(String(value));
		if (!sums) return;
		sums.n[cell] += 1;
		sums.x[cell] += places[2 * item];
		sums.y[cell] += places[2 * item + 1];
	});
	const near = around(all);
	const labels = classes.map((name) => {
		const [n, x, y] = ["n", "x", "y"].map((sum) => around(found.get(name)[sum]));
		const best = n.indexOf(Math.max(...n));
		const isIsland = n[best] > 3 && n[best] > near[best] / 2;
		return (
			isIsland && {
				x: x[best] / n[best],
				y: y[best] / n[best],
				text: name.slice(0, MOST),
				size: n[best],
			}
		);
	});
	return labels.filter(Boolean).sort((one, other) => other.size - one.size);
}
