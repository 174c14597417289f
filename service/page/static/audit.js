import { href } from "./address.js";
import { at } from "./api.js";
import * as figures from "./figures.js";
import { useAnswer } from "./hooks.js";
import { html } from "./html.js";
import { Awaited, Bar, number, Table } from "./parts.js";

const kind = ({ limit, recall }) => `${figures.plural(limit, "hit")} at a recall of ${recall}`;

export function stateOf({ recall, found, high }) {
	if (found >= recall) return "enough";
	return high < recall ? "less than asked" : "less, maybe by chance";
}

// What the last audited week says, and what can be done about it.
export function adviceOf({ audited, allowance }) {
	const week = audited[0]?.week;
	if (!week) {
		return {
			verdict: "No query has been audited yet.",
			todo: ["One query in 1,000 is, unless set otherwise. Look again after more queries."],
		};
	}
	const last = audited.filter((one) => one.week === week);
	const short = last.filter((one) => stateOf(one) === "less than asked");
	const unsure = last.filter((one) => stateOf(one) === "less, maybe by chance");
	const todo = [];
	if (unsure.length) todo.push("Wait for more audited queries, or audit more of them.");
	if (!short.length) {
		const verdict = unsure.length
			? `Too few queries to tell whether those for ${unsure.map(kind).join(", ")} find enough.`
			: `Live queries found what they asked for in ${week}.`;
		return { verdict, todo };
	}
	const verdict = `Queries for ${short.map(kind).join(", ")} found less than asked in ${week}.`;
	const isAtEnd = allowance.some(({ share }) => share === 0);
	todo.unshift(
		isAtEnd
			? "The search graph is no longer used where it falls short: scans or tables answer there."
			: "Searches go further by themselves: look again after more audited queries.",
		"Until then ask for a higher recall; a recall of 1 is an exact scan, and finds all.",
	);
	return { verdict, todo };
}

const part = (share) => {
	if (share === 1) return "the recall asked for";
	if (share === 0) return "no miss: tables or a scan answer";
	return `a ${figures.value(1 / share)}th of the miss that is allowed`;
};

const exactly = (x) => x.toFixed(3);
const COLUMNS = [
	{ key: "week", name: "week" },
	number("limit", "hits"),
	{ key: "recall", name: "asked", figure: true },
	number(
		"found",
		"found",
		(found) => html`${exactly(found)} <${Bar} value=${found} label=${`found ${exactly(found)}`} />`,
	),
	{
		key: "low",
		name: "95 % interval",
		show: (low, { high }) => `${exactly(low)} – ${exactly(high)}`,
	},
	number("queries", "queries"),
	{ key: "state", name: "so", show: (_, row) => stateOf(row) },
];
const ALLOWANCE = [
	{
		key: "limit",
		name: "hits",
		show: (limit) => (limit === null ? "more" : `up to ${figures.count(limit)}`),
	},
	{ key: "share", name: "searches aim at", show: part },
];

export default function Audit({ collection }) {
	const { name } = collection;
	const { data, problem } = useAnswer(at(name, "/recall"), undefined, collection.items);
	const { verdict, todo } = data ? adviceOf(data) : {};
	return html`<div class="head"><h1>Recall audit of <bdi>${name}</bdi></h1>
      <span class="space"></span>
      <a class="button" href=${href(name, "understand")}>Understand</a></div>
    <${Awaited} ...${{ data, problem }} />
    ${
			data &&
			html`<section class="panel"><h2>Asked and found</h2><p class="verdict">${verdict}</p>
      ${todo.map((words) => html`<p>${words}</p>`)}
      <p class="small">Live queries that were answered exactly as well, drawn at random.
        ${" "}${figures.plural(data.waiting, "query", "queries")} waiting. GCWS_AUDIT_SHARE sets the
        share that is drawn.</p>
      ${
				data.audited.length > 0 &&
				html`<${Table} caption="Audited queries, the last week first"
        columns=${COLUMNS} rows=${data.audited} />`
			}</section>
      ${
				data.allowance.length > 0 &&
				html`<section class="panel"><h2>Allowance</h2>
        <p>Where queries found less than asked, further ones search farther.</p>
        ${
					data.allowance.every(({ share }) => share === 1)
						? html`<p>Now all searches aim at ${part(1)}.</p>`
						: html`<${Table} caption="What searches aim at, by the number of hits"
          columns=${ALLOWANCE} rows=${data.allowance} />`
				}</section>`
			}`
		}`;
}
