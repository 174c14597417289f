import assert from "node:assert/strict";
import test from "node:test";
import { kindOf, nameFor } from "../../../service/page/static/guess.js";

test("a file is of the kind that its name ends with, packed or not", () => {
	const kinds = {
		"a.CSV": "text/csv",
		"a.tsv.gz": "text/tab-separated-values",
		"a.jsonl": "application/x-ndjson",
		"a.npy.gz": "application/x-npy",
		"a.arrow": "application/vnd.apache.arrow.stream",
		"a.parquet": undefined,
	};
	for (const [name, kind] of Object.entries(kinds)) assert.equal(kindOf({ name }), kind);
});

test("a collection has the name of its file without its ends", () => {
	for (const [file, name] of [
		["my file.ndjson.gz", "my-file"],
		["größe.csv", "größe"],
		["??.csv", "-"],
		[".csv", "items"],
	]) {
		assert.equal(nameFor({ name: file }), name);
	}
});
