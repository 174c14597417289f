const PATIENCE = 3000;
const SETTLED = 500;
const MOVES = ["wheel", "pointerdown", "keydown", "touchstart"];

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
	const end = performance.now() + PATIENCE;
	let reached = null;
	const turn = () => {
		if (signal.aborted) return;
		const now = performance.now();
		if (Math.abs(scrollY - wanted) > 1) {
			reached = null;
			scrollTo(0, wanted);
		} else reached = reached ?? now;
		if (now < end && !(reached !== null && now - reached > SETTLED)) requestAnimationFrame(turn);
		else moved.abort();
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
