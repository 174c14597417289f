import assert from "node:assert/strict";
import test from "node:test";
import { classColor, colors } from "../../../service/page/static/palette.js";

const OTHER = "var(--other)";

test("the fourteen most frequent classes have a colour each, all others one", () => {
	const values = Array.from({ length: 20 }, (_, place) => Array(20 - place).fill(`k${place}`));
	const { classes, of, counts } = colors(values.flat());
	assert.equal(classes.length, 14);
	assert.equal(new Set(classes.map(of)).size, 14);
	assert.deepEqual(
		classes,
		Array.from({ length: 14 }, (_, place) => `k${place}`),
	);
	assert.equal(of("k14"), OTHER);
	assert.equal(of(null), OTHER);
	assert.equal(counts.get("k3"), 17);
});

test("a small whole number keeps its own colour, whatever else there is", () => {
	const { of } = colors([3, 3, 7, null, undefined]);
	assert.equal(of(3), classColor(3));
	assert.equal(of(7), classColor(7));
});

test("long integers have a scale as others do", () => {
	const { scale, of } = colors(
		Array.from({ length: 101 }, (_, value) => 2n ** 60n + BigInt(value)),
	);
	assert.equal(scale.low, 2 ** 60);
	assert.notEqual(of(2n ** 60n), OTHER);
});

test("many numbers have a scale that rises, and ends where the outermost hundredths begin", () => {
	const { scale, of, classes } = colors(Array.from({ length: 101 }, (_, value) => value));
	assert.deepEqual([scale.low, scale.high, classes], [2, 98, []]);
	const steps = [0, 2, 50, 98, 100].map((value) => Number(of(value).match(/(\d+)%/)[1]));
	assert.deepEqual([steps[0], steps[4]], [0, 100]);
	assert.deepEqual(
		steps,
		[...steps].sort((one, other) => one - other),
	);
	assert.equal(of("none"), OTHER);
});
