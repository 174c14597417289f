const LINE = /^(\w+)(?:\{(.*)\})? ([-+\d.eInf]+)$/;
const QUERIES = /route="[^"]*\/query(\/batch)?"/;

export function parse(text) {
	const found = {
		at: performance.now() / 1000,
		buckets: new Map(),
		queries: 0,
		commits: 0,
		queue: 0,
		memory: 0,
	};
	for (const line of text.split("\n")) {
		const [, name, labels = "", figure] = line.match(LINE) || [];
		if (!name) continue;
		const value = Number(figure.replace("+Inf", "Infinity"));
		if (name === "gcws_request_seconds_bucket" && QUERIES.test(labels)) {
			const bound = Number(labels.match(/le="([^"]+)"/)[1].replace("+Inf", "Infinity"));
			found.buckets.set(bound, (found.buckets.get(bound) || 0) + value);
		} else if (name === "gcws_request_seconds_count") {
			if (QUERIES.test(labels)) found.queries += value;
		} else if (name === "gcws_commit_seconds_count") found.commits += value;
		else if (name === "gcws_queue") found.queue += value;
		else if (name === "gcws_resident_bytes") found.memory = value;
	}
	return found;
}

function quantile(before, now, share) {
	const bounds = [...now.buckets.keys()].sort((a, b) => a - b);
	const counts = bounds.map((bound) => now.buckets.get(bound) - (before.buckets.get(bound) || 0));
	const total = counts[counts.length - 1];
	if (!total) return null;
	const place = counts.findIndex((count) => count >= share * total);
	const below = place ? counts[place - 1] : 0;
	const low = place ? bounds[place - 1] : 0;
	const high = Number.isFinite(bounds[place]) ? bounds[place] : low;
	return low + ((high - low) * (share * total - below)) / (counts[place] - below || 1);
}

export function difference(before, now) {
	const rate = (key) => before && (now[key] - before[key]) / (now.at - before.at);
	return {
		queries: rate("queries"),
		commits: rate("commits"),
		p50: before && quantile(before, now, 0.5),
		p99: before && quantile(before, now, 0.99),
		queue: now.queue,
		memory: now.memory,
	};
}
