export const root = new URL("../../", import.meta.url);

const KEY = "gcws-key";
const LONGEST = 6000;
const listeners = new Set();
const state = { gone: null, phase: null, service: null, keyWanted: false, epoch: 0 };
let given = null;

export class Problem extends Error {
	constructor({ detail, code = "unreachable", errors = [] }) {
		super(detail);
		this.code = code;
		this.errors = errors;
	}
}

export const server = () => state;

export function watch(listener) {
	listeners.add(listener);
	return () => listeners.delete(listener);
}

function change(part) {
	const before = { ...state };
	Object.assign(state, part);
	const isBack = before.gone && !state.gone;
	const isReady = before.phase && before.phase !== "ready" && state.phase === "ready";
	if (isBack || isReady) state.epoch += 1;
	if (Object.keys(part).some((name) => before[name] !== state[name])) {
		for (const listener of listeners) listener();
	}
}

const lost = () => change({ gone: state.gone || new Date() });

function headersWith(more) {
	const key = sessionStorage.getItem(KEY);
	return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

// Long integers, which JavaScript would round.
const exact = (_, value, context) =>
	/^-?\d{16,}$/.test(context?.source) ? BigInt(context.source) : value;
BigInt.prototype.toJSON = function toJSON() {
	return JSON.rawJSON(String(this));
};

export const parse = (text, reviver = /(?<![.\d])\d{16}/.test(text) ? exact : undefined) =>
	JSON.parse(text, reviver);

async function problemOf(response) {
	const text = await response.text();
	const detail = `${response.status} ${text.slice(0, 300)}`;
	try {
		return new Problem({ detail, ...JSON.parse(text) });
	} catch {
		return new Problem({ detail });
	}
}

/** @type {Raw} */
export async function raw(method, path, { body, headers, signal } = {}) {
	const key = sessionStorage.getItem(KEY);
	let response;
	try {
		response = await fetch(new URL(path, root), {
			method,
			body,
			signal,
			headers: headersWith(headers || {}),
			cache: "no-store",
		});
	} catch (error) {
		if (error.name === "AbortError") throw error;
		lost();
		throw new Problem({ detail: "The server does not answer." });
	}
	if (state.gone) change({ gone: null });
	if (response.status === 401) {
		// One that was sent before the key was given may be refused after that.
		if (sessionStorage.getItem(KEY) === key) await keyGiven();
		return raw(method, path, { body, headers, signal });
	}
	if (!response.ok) throw await problemOf(response);
	return response;
}

export async function ask(method, path, body, signal) {
	const headers = body === undefined ? {} : { "Content-Type": "application/json" };
	const text = body === undefined ? undefined : JSON.stringify(body);
	const response = await raw(method, path, { body: text, headers, signal });
	return response.status === 204 ? null : parse(await response.text());
}

/** @type {GetAnswer} */
export const get = (path, signal) => ask("GET", path, undefined, signal);
/** @type {PostAnswer} */
export const post = (path, body, signal) => ask("POST", path, body, signal);

// In parts whose addresses proxies take.
export async function itemsOf(name, ids, signal, reviver) {
	const listed = ids.length === 1 ? [...ids, ...ids] : ids; // of one alone a comma would end it
	const chosen = listed.map((id) => `&ids=${encodeURIComponent(id)}`).join("");
	if (chosen.length > LONGEST && ids.length > 1) {
		const half = ids.length >> 1;
		const parts = [ids.slice(0, half), ids.slice(half)];
		const found = parts.map((part) => itemsOf(name, part, signal, reviver));
		return (await Promise.all(found)).flat();
	}
	const path = at(name, `/items?with_vector=true&limit=${listed.length}${chosen}`);
	const text = await (await raw("GET", path, { signal })).text();
	return parse(text, reviver).items;
}

export async function itemOf(name, id, signal) {
	const [item] = await itemsOf(name, [id], signal);
	if (item) return item;
	throw new Problem({ code: "item_not_found", detail: `no item has the id '${id}'` });
}

export const at = /** @type {At} */ (
	(name, rest = "") => `v1/collections/${encodeURIComponent(name)}${rest}`
);

function keyGiven() {
	given ??= Promise.withResolvers();
	change({ keyWanted: true });
	return given.promise;
}

export async function tryKey(key) {
	const response = await fetch(new URL("v1", root), {
		headers: { Authorization: `Bearer ${key}` },
	});
	if (!response.ok) throw await problemOf(response);
	sessionStorage.setItem(KEY, key);
	change({ keyWanted: false, service: await response.json() });
	given?.resolve();
	given = null;
}

export function forgetKey() {
	for (const key of Object.keys(sessionStorage)) {
		if (key.startsWith("gcws-")) sessionStorage.removeItem(key);
	}
	location.reload();
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export async function start() {
	if (document.visibilityState === "visible") {
		try {
			const response = await fetch(new URL("livez", root), { cache: "no-store" });
			change({ gone: null, phase: (await response.json()).phase });
			if (!state.service && !state.keyWanted) await introduce();
		} catch {
			lost();
		}
	}
	const isCalm = !state.gone && state.phase === "ready";
	setTimeout(start, isCalm ? 5000 : 1000);
}

async function introduce() {
	try {
		change({ service: await get("v1") });
	} catch (problem) {
		if (problem.code === "key_refused") {
			sessionStorage.removeItem(KEY);
			change({ service: await get("v1") });
		}
	}
}
