import { useEffect, useState } from "./html.js";

const KEPT = 4;
const MAP = "gcws-map ";

function flat({ x, y }) {
	const out = new Float32Array(2 * x.length);
	x.forEach((value, item) => {
		out.set([value, -y[item]], 2 * item);
	});
	return out;
}

// Of a map this browser keeps places alone: what its items are called stays with the service.
function sumOf(ids) {
	const text = ids.join("\n");
	let sum = 0;
	for (let place = 0; place < text.length; place += 1) {
		sum = (Math.imul(sum, 31) + text.charCodeAt(place)) | 0;
	}
	return sum;
}

export function keep(name, ids, places) {
	const old = Object.keys(localStorage).filter((key) => key.startsWith(MAP));
	for (const key of old.slice(0, Math.max(0, old.length - KEPT + 1))) localStorage.removeItem(key);
	const rounded = Array.from(places, (value) => Math.round(1000 * value) / 1000);
	try {
		localStorage.setItem(MAP + name, JSON.stringify({ sum: sumOf(ids), places: rounded }));
	} catch {
		localStorage.removeItem(MAP + name); // there is no room: it is arranged anew
	}
}

export function kept(name, ids) {
	const found = JSON.parse(localStorage.getItem(MAP + name));
	return found?.sum === sumOf(ids) ? Float32Array.from(found.places) : null;
}

// Places of a map: those that the server sent, and from then on those that a worker arranges by
// `near`, the neighbours; `progress` is 1 at the end. What was arranged stays in this browser.
export function useArrangement(name, map, near, isMoving, stop) {
	const [places, set] = useState(null);
	const [progress, tell] = useState(0);
	useEffect(() => {
		const before = map && kept(name, map.ids);
		set(before || (map && flat(map)));
		tell(before ? 1 : 0);
	}, [map]);
	useEffect(() => {
		if (!map || !near || !isMoving) return undefined;
		const worker = new Worker(new URL("map-worker.js", import.meta.url));
		let last = null;
		worker.onmessage = ({ data }) => {
			last = data.places;
			set(last);
			tell(data.epoch / data.epochs);
			if (data.epoch >= data.epochs) stop();
		};
		worker.onerror = stop;
		const { neighbours, scores } = near;
		worker.postMessage({
			files: { umap: new URL("vendor/umap.js", import.meta.url).href },
			x: map.x,
			y: map.y.map((y) => -y),
			neighbours,
			scores,
		});
		return () => {
			worker.terminate();
			if (last) keep(name, map.ids, last);
		};
	}, [map, near, isMoving]);
	return { places, progress };
}
