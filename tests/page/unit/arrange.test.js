import assert from "node:assert/strict";
import test from "node:test";

globalThis.preact = {};
globalThis.preactHooks = {};
globalThis.htm = { bind: () => null };
const { keep, kept } = await import("../../../service/page/static/arrange.js");

test("the last four maps are kept, each for its own items, without what these are called", () => {
	localStorage.clear();
	localStorage.setItem("other", "stays");
	for (const name of ["a", "b", "c", "d", "e"]) {
		keep(name, ["one", "two"], Float32Array.of(1, -2.5, 0.25, 4));
	}
	assert.deepEqual([...kept("e", ["one", "two"])], [1, -2.5, 0.25, 4]);
	assert.equal(kept("e", ["one", "three"]), null);
	assert.equal(kept("none", ["one", "two"]), null);
	assert.equal(localStorage.length, 5);
	assert.equal(localStorage.getItem("other"), "stays");
	assert.doesNotMatch(JSON.stringify({ ...localStorage }), /one|two/);
	localStorage.clear();
});
