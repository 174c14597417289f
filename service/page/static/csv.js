/** @typedef {Record<string, string>} Roles */

export const LEFT_OUT = "leave out";

/** @returns {Roles} */
export const rolesOf = ({ columns }) =>
	Object.fromEntries(columns.map(({ name, role }) => [name, role ?? LEFT_OUT]));

/** Say what columns become, as a load is asked for it.
 * @param {Answers.PreviewAnswer} table
 * @param {Roles} roles */
export function queryOf({ columns }, roles, isText) {
	const query = new URLSearchParams();
	for (const role of ["id", isText ? "text" : "vector", "payload"]) {
		const chosen = columns.filter(({ name }) => roles[name] === role);
		for (const { name } of chosen.length ? chosen : [{ name: "" }]) query.append(role, name);
	}
	return query;
}
