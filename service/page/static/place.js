const PATIENCE = 3000;
const SETTLED = 500;
const MOVES = ["wheel", "pointerdown", "keydown"];

let timer = null;
let moved = new AbortController();
moved.abort();

function forget() {
	clearTimeout(timer);
	timer = null;
}

function save() {
	forget();
	history.replaceState({ ...history.state, scroll: scrollY }, "");
}

function restore(wanted) {
	moved.abort();
	if (!wanted) {
		scrollTo(0, 0);
		return;
	}
	moved = new AbortController();
	const { signal } = moved;
	const stop = () => moved.abort();
	for (const move of MOVES) addEventListener(move, stop, { signal, once: true, passive: true });
	let end = performance.now() + PATIENCE;
	const turn = (now) => {
		if (now > end) stop();
		if (signal.aborted) return;
		if (Math.abs(scrollY - wanted) > 1) scrollTo(0, wanted);
		else end = Math.min(end, now + SETTLED);
		requestAnimationFrame(turn);
	};
	requestAnimationFrame(turn);
}

export function keepPlace() {
	history.scrollRestoration = "manual";
	addEventListener("scroll", () => {
		forget();
		if (moved.signal.aborted) timer = setTimeout(save, 100);
	});
	addEventListener("click", () => timer && save(), { capture: true });
	addEventListener("popstate", ({ state }) => {
		forget();
		restore(state?.scroll ?? 0);
	});
	restore(history.state?.scroll ?? 0);
}
