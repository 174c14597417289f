import { useLayoutEffect, useState } from "./html.js";

function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

export function read() {
	const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
	const [collection = "", view = ""] = path.split("/").map(decoded);
	const params = Object.fromEntries(new URLSearchParams(query));
	return { collection, view: view || (collection ? "browse" : "overview"), params };
}

export function numberIn(text, missing) {
	if (text === undefined) return missing;
	const number = Number(text);
	return text.trim() && Number.isFinite(number) ? number : text;
}

export function href(collection, view, params = {}) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(params)) {
		// No colour is a choice, too.
		const isSaid = name === "color" || value !== "";
		if (value !== undefined && value !== null && isSaid) query.set(name, value);
	}
	const path = collection ? `#/${encodeURIComponent(collection)}/${view}` : "#/";
	return query.size ? `${path}?${query}` : path;
}

export function go(target, { replace = false } = {}) {
	if (replace) {
		history.replaceState(history.state, "", target);
		dispatchEvent(new HashChangeEvent("hashchange"));
	} else {
		location.hash = target;
	}
}

export function useAddress() {
	const [address, set] = useState(read);
	useLayoutEffect(() => {
		const changed = () => set(read());
		addEventListener("hashchange", changed);
		return () => removeEventListener("hashchange", changed);
	}, []);
	return address;
}
