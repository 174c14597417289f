import { compare } from "./sorting.js";

export function edgesOf(lines) {
	const places = new Map();
	const ids = [];
	const place = (id) => {
		if (!places.has(id)) {
			places.set(id, ids.length);
			ids.push(id);
		}
		return places.get(id);
	};
	const pairs = lines
		.split("\n")
		.filter(Boolean)
		.map((line) => JSON.parse(line));
	const wrong = pairs.find(({ error }) => error);
	if (wrong) throw new Error(wrong.error.detail || "The list of pairs ended early.");
	return {
		ids,
		a: Uint32Array.from(pairs, (pair) => place(pair.a)),
		b: Uint32Array.from(pairs, (pair) => place(pair.b)),
		scores: Float64Array.from(pairs, (pair) => pair.score),
	};
}

function rootOf(parents, start) {
	let root = start;
	while (parents[root] !== root) {
		parents[root] = parents[parents[root]];
		root = parents[root];
	}
	return root;
}

// Groups, the largest first: members by id, the weakest pair that joins them, and their edges.
export function groupsAt({ ids, a, b, scores }, threshold) {
	const parents = Uint32Array.from(ids, (_, place) => place);
	let count = 0;
	while (count < scores.length && scores[count] >= threshold) count += 1;
	const weakest = new Float64Array(ids.length).fill(1);
	for (let edge = 0; edge < count; edge += 1) {
		const [left, right] = [rootOf(parents, a[edge]), rootOf(parents, b[edge])];
		if (left !== right) {
			parents[right] = left;
			weakest[left] = scores[edge];
		}
	}
	const all = Array.from({ length: count }, (_, edge) => edge);
	return [...Map.groupBy(all, (edge) => rootOf(parents, a[edge]))]
		.map(([root, edges]) => {
			const places = new Set(edges.flatMap((edge) => [a[edge], b[edge]]));
			const members = [...places].map((place) => ids[place]).sort(compare);
			return { members, edges, weakest: weakest[root], key: members[0] };
		})
		.sort((x, y) => y.members.length - x.members.length || compare(x.key, y.key));
}

export function scoresWith({ ids, a, b, scores }, { edges }, kept) {
	const found = new Map();
	for (const edge of edges) {
		if (ids[a[edge]] === kept) found.set(ids[b[edge]], scores[edge]);
		if (ids[b[edge]] === kept) found.set(ids[a[edge]], scores[edge]);
	}
	return found;
}

export function without({ ids, a, b, scores }, gone) {
	const isGone = (place) => gone.has(ids[place]);
	const rest = [...scores.keys()].filter((edge) => !isGone(a[edge]) && !isGone(b[edge]));
	return {
		ids,
		a: Uint32Array.from(rest, (edge) => a[edge]),
		b: Uint32Array.from(rest, (edge) => b[edge]),
		scores: Float64Array.from(rest, (edge) => scores[edge]),
	};
}

export function histogram(scores, low, bins) {
	const counts = new Array(bins).fill(0);
	for (const score of scores) {
		counts[Math.min(bins - 1, Math.max(0, Math.floor(((score - low) / (1 - low)) * bins)))] += 1;
	}
	return counts;
}
