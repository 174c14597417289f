const LINE = /^(\w+)(?:\{(.*)\})? (\S+)$/;
const QUERIES = /route="[^"]*\/query(\/batch)?"/;

export function parse(text) {
	const found = { at: performance.now() / 1000, queries: 0, commits: 0, queue: 0, memory: 0 };
	for (const line of text.split("\n")) {
		const [, name, labels = "", figure] = line.match(LINE) || [];
		const value = Number(figure);
		if (name === "gcws_request_seconds_count") {
			if (QUERIES.test(labels)) found.queries += value;
		} else if (name === "gcws_commit_seconds_count") found.commits += value;
		else if (name === "gcws_queue") found.queue += value;
		else if (name === "gcws_resident_bytes") found.memory = value;
	}
	return found;
}

export function difference(before, now) {
	const rate = (key) => before && (now[key] - before[key]) / (now.at - before.at);
	return { ...now, queries: rate("queries"), commits: rate("commits") };
}
