import { useEffect, useState } from "./html.js";

const KEPT = 4;
const arranged = new Map(); // of this tab: ids and places by the map's name

function flat({ x, y }) {
	const out = new Float32Array(2 * x.length);
	x.forEach((value, item) => {
		out.set([value, -y[item]], 2 * item);
	});
	return out;
}

const isSame = (one, other) =>
	one.length === other.length && one.every((id, place) => id === other[place]);

function keep(name, ids, places) {
	arranged.delete(name);
	arranged.set(name, { ids, places });
	if (arranged.size > KEPT) arranged.delete(arranged.keys().next().value);
}

export const isArranged = (name) => arranged.has(name);

// Places of a map: those that the server sent, and from then on those that a worker arranges by
// `near`, the neighbours; `progress` is 1 at the end. What was arranged in this tab stays.
export function useArrangement(name, map, near, isMoving, stop) {
	const [places, set] = useState(null);
	const [progress, tell] = useState(0);
	useEffect(() => {
		const kept = map && arranged.get(name);
		const isKept = Boolean(kept) && isSame(kept.ids, map.ids);
		set(map && (isKept ? kept.places : flat(map)));
		tell(isKept ? 1 : 0);
	}, [map]);
	useEffect(() => {
		if (!map || !near || !isMoving) return undefined;
		const worker = new Worker(new URL("map-worker.js", import.meta.url));
		worker.onmessage = ({ data }) => {
			set(data.places);
			tell(data.epoch / data.epochs);
			keep(name, map.ids, data.places);
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
		return () => worker.terminate();
	}, [map, near, isMoving]);
	return { places, progress };
}
