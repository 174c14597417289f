import { useEffect, useState } from "./html.js";

export function ink(color) {
	const probe = document.createElement("span");
	probe.style.color = /^[a-z]+\d*$/.test(color) ? `var(--${color})` : color;
	document.body.append(probe);
	const found = getComputedStyle(probe).color;
	probe.remove();
	return found;
}

export function useInk() {
	const [turn, next] = useState(0);
	useEffect(() => {
		const changed = () => next((count) => count + 1);
		const system = matchMedia("(prefers-color-scheme: dark)");
		addEventListener("themechange", changed);
		system.addEventListener("change", changed);
		return () => {
			removeEventListener("themechange", changed);
			system.removeEventListener("change", changed);
		};
	}, []);
	return turn;
}
