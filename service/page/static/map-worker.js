/* global importScripts, UMAP */
const SPREAD = 10;

self.onmessage = ({ data: { files, x, y, neighbours, scores } }) => {
	self.window = self;
	importScripts(files.umap);
	const count = x.length;
	const near = Math.min(...neighbours.map((row) => row.length));
	const Umap = UMAP.UMAP || UMAP;
	const layout = new Umap({ nComponents: 2, nNeighbors: near + 1, minDist: 0.15 });
	layout.setPrecomputedKNN(
		neighbours.map((row, item) => [item, ...row.slice(0, near)]),
		scores.map((row) => [0, ...row.slice(0, near).map((score) => 1 - score)]),
	);
	const epochs = layout.initializeFit(Array.from({ length: count }, () => [0]));
	const places = layout.getEmbedding();
	const max = Math.max(...x.map(Math.abs), ...y.map(Math.abs)) || 1;
	for (let item = 0; item < count; item += 1) {
		places[item][0] = (x[item] / max) * SPREAD;
		places[item][1] = (y[item] / max) * SPREAD;
	}
	let epoch = 0;
	const turn = () => {
		const end = performance.now() + 30;
		do epoch = layout.step();
		while (epoch < epochs && performance.now() < end);
		const out = new Float32Array(2 * count);
		for (let item = 0; item < count; item += 1) {
			out[2 * item] = places[item][0];
			out[2 * item + 1] = places[item][1];
		}
		self.postMessage({ places: out, epoch, epochs }, { transfer: [out.buffer] });
		if (epoch < epochs) setTimeout(turn);
	};
	turn();
};
