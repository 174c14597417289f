import assert from "node:assert/strict";
import test from "node:test";
import { queryOf, rolesOf } from "../../../service/page/static/guess.js";

const columns = [
	["id", "id"],
	["10", "vector"],
	["9", "vector"],
	["a, *", "payload"],
	["", null],
].map(([name, role]) => ({ name, role }));

test("a query says what each column becomes, in the order of the file", () => {
	const roles = rolesOf({ columns });
	assert.equal(roles[""], "leave out");
	const query = queryOf({ columns }, roles, false);
	assert.deepEqual(
		[...query],
		[
			["id", "id"],
			["vector", "10"],
			["vector", "9"],
			["payload", "a, *"],
		],
	);
});

test("what no column becomes is empty, and texts take the place of vectors", () => {
	const roles = {
		id: "leave out",
		10: "leave out",
		9: "leave out",
		"a, *": "text",
		"": "leave out",
	};
	const query = queryOf({ columns }, roles, true);
	assert.equal(String(query), "id=&text=a%2C+*&payload=");
});
