import assert from "node:assert/strict";
import test from "node:test";
import * as csv from "../../../service/page/static/csv.js";

const table = (names, kinds, rows, more) => ({
	names,
	kinds,
	rows,
	hasNames: true,
	point: ".",
	sums: names.map(() => 1),
	...more,
});

test("columns become what their names and kinds say", () => {
	const roles = csv.columnsOf(
		table(["", "ID", "x", "flag", "word"], ["number", "text", "number", "truth", "text"], []),
	);
	assert.deepEqual(roles, {
		"": "leave out",
		ID: "id",
		x: "vector",
		flag: "vector",
		word: "payload",
	});
});

test("of a collection of texts the longest words are the text, unless a column is called so", () => {
	const rows = [["a", "a long text that is read", "7"]];
	const kinds = ["text", "text", "number"];
	assert.equal(csv.textColumnsOf(table(["id", "says", "n"], kinds, rows)).says, "text");
	const named = csv.textColumnsOf(table(["text", "says", "n"], kinds, rows));
	assert.deepEqual(named, { text: "text", says: "payload", n: "payload" });
});

test("shares are those of the columns that become the vector", () => {
	const some = table(["a", "b", "c"], ["number", "number", "number"], [], { sums: [3, 1, 50] });
	const roles = { a: "vector", b: "vector", c: "payload" };
	assert.deepEqual(csv.sharesOf(some, roles), [0.75, 0.25, undefined]);
});

test("items keep each digit, leave out what is missing, and tell what is no number", () => {
	const rows = [
		["a", "1", "9007199254740993", ""],
		["b", "oops", "", "w"],
		["c", "2"],
	];
	const read = table(["id", "x", "n", "w"], ["text", "number", "number", "text"], rows);
	const roles = { id: "id", x: "vector", n: "payload", w: "payload" };
	const { lines, numbers, rejected } = csv.itemsOf(read, roles, { dim: 1 });
	assert.deepEqual(lines, ['{"id":"a","vector":[1],"payload":{"n":9007199254740993}}\n']);
	assert.deepEqual(numbers, [0]);
	assert.deepEqual(
		rejected.map(({ row }) => row),
		[1, 2],
	);
	assert.match(rejected[0].detail, /"x".*"oops"/);
});

test("coordinates are taken by name, and an open collection takes names of what is not 0", () => {
	const read = table(["a", "b"], ["number", "number"], [["1", "0"]]);
	const roles = { a: "vector", b: "vector" };
	const named = csv.itemsOf(read, roles, { dim: 2, coordinates: ["b", "a"] });
	assert.equal(named.lines[0], '{"vector":[0,1]}\n');
	const open = csv.itemsOf(read, roles, { dim: null });
	assert.equal(open.lines[0], '{"vector":{"names":["a"],"values":[1]}}\n');
	assert.deepEqual(csv.columnNames(read, roles), ["a", "b"]);
	assert.equal(csv.columnNames({ ...read, names: ["0", "1"] }, { 0: "vector" }), null);
	assert.throws(() => csv.requireSame(["a", "c"], ["a", "b"]), /"b".*"c"/);
	csv.requireSame(["b", "a"], ["a", "b"]);
});
