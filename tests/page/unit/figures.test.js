import assert from "node:assert/strict";
import test from "node:test";
import * as figures from "../../../service/page/static/figures.js";

test("sizes, times and shares are for people", () => {
	assert.deepEqual([0, 999, 1000, 123456, 7.5e9].map(figures.bytes), [
		"0 B",
		"999 B",
		"1.0 kB",
		"123 kB",
		"7.5 GB",
	]);
	assert.deepEqual([5e-7, 0.00123, 0.0456, 0.789, 1.5, 61].map(figures.duration), [
		"1 µs",
		"1.23 ms",
		"45.6 ms",
		"789 ms",
		"1.50 s",
		"61 s",
	]);
	assert.equal(figures.share(0.997), "99.7 %");
	assert.equal(figures.share(1), "100 %");
	assert.equal(figures.plural(1, "item"), "1 item");
	assert.equal(figures.plural(1234, "item"), "1,234 items");
});

test("scores have as many decimals as tell them apart, and from 1", () => {
	assert.equal(figures.score(0.5), "0.5000");
	assert.equal(figures.score(0.99999), "0.99999");
	assert.equal(figures.decimals([0.123456, 0.123457]), 6);
	assert.equal(figures.apart(1.00001, 1.00002), "1.00001");
	assert.equal(figures.apart(1.5, 1.5), "1.5");
});

test("any value is text", () => {
	const values = ["a", 1, null, { a: [1] }, undefined];
	assert.deepEqual(values.map(figures.text), ["a", "1", "null", '{"a":[1]}', ""]);
});
