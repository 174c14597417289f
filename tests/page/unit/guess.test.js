import assert from "node:assert/strict";
import test from "node:test";
import { guessOf } from "../../../service/page/static/guess.js";

const guess = (name, ...parts) => guessOf(new File(parts, name));

test("NDJSON is guessed by its first line", async () => {
	const dense = await guess("my file.ndjson", '{"vector": [1, 2, 3]}\n', "{ not read");
	assert.deepEqual([dense.name, dense.holds, dense.dim], ["my-file", "vectors", 3]);
	const sparse = await guess("a.jsonl", '{"vector": {"indices": [7]}}');
	assert.deepEqual([sparse.holds, sparse.dim], ["vectors", null]);
	const text = await guess("a.ndjson", '{"text": "words"}');
	assert.equal(text.holds, "texts");
});

test("packed files are guessed as they are without", async () => {
	const whole = new Blob(['{"vector": [1, 2]}\n']).stream();
	const packed = await new Response(whole.pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
	const found = await guess("a.ndjson.gz", packed);
	assert.deepEqual([found.name, found.dim], ["a", 2]);
});

test("an array of NumPy tells its shape", async () => {
	const head = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5, 7), }";
	const found = await guess("a.npy", head);
	assert.deepEqual([found.holds, found.dim], ["vectors", 7]);
});

test("of what cannot be read nothing is said", async () => {
	for (const [name, text] of [
		["a.ndjson", "no JSON"],
		["a.npy", "no array"],
		["a.parquet", "PAR1"],
	]) {
		const found = await guess(name, text);
		assert.equal(found.holds, undefined);
		assert.equal(found.name, "a");
	}
});
