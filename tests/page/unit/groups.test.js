import assert from "node:assert/strict";
import test from "node:test";
import {
	edgesOf,
	groupsAt,
	histogram,
	scoresWith,
	without,
} from "../../../service/page/static/grouping.js";
import { sorted, turned } from "../../../service/page/static/sorting.js";
import { kindOf, parseNames, parseRow } from "../../../service/page/static/vectors.js";

const PAIRS = [
	{ a: "1", b: "2", score: 0.9 },
	{ a: "3", b: "10", score: 0.8 },
	{ a: "2", b: "3", score: 0.6 },
];
const edges = edgesOf(PAIRS.map((pair) => `${JSON.stringify(pair)}\n`).join(""));

test("groups are what pairs of at least a score join", () => {
	const at = (threshold) =>
		groupsAt(edges, threshold).map(({ members, weakest }) => [members, weakest]);
	assert.deepEqual(at(0.95), []);
	assert.deepEqual(at(0.8), [
		[["1", "2"], 0.9],
		[["3", "10"], 0.8],
	]);
	assert.deepEqual(at(0.5), [[["1", "2", "3", "10"], 0.6]]);
	const rest = without(edges, new Set(["2"]));
	assert.deepEqual(
		groupsAt(rest, 0.5).map(({ members }) => members),
		[["3", "10"]],
	);
	const [group] = groupsAt(edges, 0.5);
	assert.deepEqual([...scoresWith(edges, group, "2")].sort(), [
		["1", 0.9],
		["3", 0.6],
	]);
});

test("a list of pairs that ended early is no list", () => {
	assert.throws(() => edgesOf('{"error": {"detail": "too slow"}}\n'), /too slow/);
});

test("a histogram counts each score once, those at the ends too", () => {
	assert.deepEqual(histogram([0.5, 0.74, 0.75, 1], 0.5, 2), [2, 2]);
});

test("rows are sorted by a column, back, and what has none is last both ways", () => {
	const rows = [{ n: 2 }, { n: null }, { n: 10 }, { n: 1 }];
	const by = (sort) => sorted(rows, sort, (row, key) => row[key]).map(({ n }) => n);
	assert.deepEqual(by("n"), [10, 2, 1, null]);
	assert.deepEqual(by("-n"), [1, 2, 10, null]);
	assert.deepEqual(by(""), [2, null, 10, 1]);
	assert.deepEqual(
		["", "n", "-n"].map((sort) => turned(sort, "n")),
		["n", "-n", ""],
	);
});

test("what is typed is an id, a row, or names", () => {
	const kinds = ["item 7", "7", "1, 0, 2.5", "3:0.5 17:1", "[1, 2]", "copy file:2"].map(kindOf);
	assert.deepEqual(kinds, ["names", "id", "row", "row", "row", "names"]);
	assert.deepEqual(parseRow("3:0.5 17:1"), { indices: [3, 17], values: [0.5, 1] });
	assert.deepEqual(parseRow("1; -2 .5"), [1, -2, 0.5]);
	assert.throws(() => parseRow("1 x"), /"x"/);
	assert.deepEqual(parseNames("copy file:2 copy"), { names: ["copy", "file"], values: [2, 2] });
});
