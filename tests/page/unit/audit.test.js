import assert from "node:assert/strict";
import test from "node:test";

globalThis.preact = { h: () => null };
globalThis.preactHooks = {};
globalThis.htm = { bind: () => () => null };
globalThis.location = { hash: "" };
const { adviceOf, stateOf } = await import("../../../service/page/static/audit.js");

const row = (found, high, week = "2026-W02") => ({
	week,
	recall: 0.9,
	limit: 10,
	queries: 100,
	found,
	low: 2 * found - high,
	high,
});
const advice = (audited, allowance = []) => adviceOf({ audited, allowance });

test("less than asked is told from what may be chance", () => {
	assert.equal(stateOf(row(0.9, 0.95)), "enough");
	assert.equal(stateOf(row(0.85, 0.92)), "less, maybe by chance");
	assert.equal(stateOf(row(0.85, 0.88)), "less than asked");
});

test("the last week alone is judged, and what can be done depends on the allowance", () => {
	const old = row(0.5, 0.6, "2026-W01");
	assert.deepEqual(advice([row(0.95, 0.97), old]).todo, []);
	assert.equal(advice([]).todo.length, 1);
	const searched = advice([row(0.8, 0.85), old], [{ limit: null, share: 0.5 }]).todo;
	const scanned = advice([row(0.8, 0.85), old], [{ limit: null, share: 0 }]).todo;
	assert.notEqual(searched[0], scanned[0]);
	assert.equal(searched[1], scanned[1]);
	assert.equal(advice([row(0.85, 0.92), row(0.8, 0.85)]).todo.length, 3);
});
