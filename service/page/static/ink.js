import { useTurn } from "./hooks.js";
import { useEffect } from "./html.js";

export function ink(color) {
	const probe = document.createElement("span");
	probe.style.color = /^[a-z]+\d*$/.test(color) ? `var(--${color})` : color;
	document.body.append(probe);
	const found = getComputedStyle(probe).color;
	probe.remove();
	return found;
}

export function useInk() {
	const [turn, next] = useTurn();
	useEffect(() => {
		addEventListener("themechange", next);
		return () => removeEventListener("themechange", next);
	}, []);
	return turn;
}
