import { ask, itemOf, server, watch } from "./api.js";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./html.js";

const RETRIED = new Set(["loading", "unreachable"]);

export function useServer() {
	const [, changed] = useTurn();
	// useEffect would watch a frame later, and miss what changes before that.
	useLayoutEffect(() => watch(changed), []);
	return server();
}

export const useTurn = () => useReducer((count) => count + 1, 0);

/** @type {UseAsk} */
export function useAsk(make, inputs) {
	const { epoch } = useServer();
	const [state, set] = useState({ waiting: true });
	const [again, repeat] = useTurn();
	// useEffect would ask a frame later.
	useLayoutEffect(() => {
		const stop = new AbortController();
		let timer;
		const asked = make(stop.signal);
		if (!asked) {
			set({});
			return undefined;
		}
		set((before) => ({ data: before.data, waiting: true }));
		asked.then(
			(data) => stop.signal.aborted || set({ data }),
			(problem) => {
				if (stop.signal.aborted) return;
				set((before) => ({ data: RETRIED.has(problem.code) ? before.data : undefined, problem }));
				if (problem.code === "loading") timer = setTimeout(repeat, 1000);
			},
		);
		return () => {
			stop.abort();
			clearTimeout(timer);
		};
	}, [...inputs, epoch, again]);
	return { ...state, repeat };
}

/** @type {UseAnswer} */
export const useAnswer = (path, body, ...inputs) =>
	useAsk(
		(signal) => path && ask(body ? "POST" : "GET", path, body, signal),
		[path, JSON.stringify(body), ...inputs],
	);

export const useItem = (name, id) =>
	useAsk((signal) => id !== undefined && itemOf(name, id, signal), [name, id]);

// A map that grows by what is wanted; `read` gives the entries of keys.
export function useKnown(wanted, read) {
	const [known, set] = useState(new Map());
	const missing = wanted.filter((key) => !known.has(key));
	const { problem } = useAsk(
		(signal) =>
			missing.length > 0 &&
			read(missing, signal).then((found) => set((before) => new Map([...before, ...found]))),
		[missing.join("\n")],
	);
	return { known, problem };
}

export function useAct() {
	const [state, set] = useState({});
	const act = async (work) => {
		set({ isBusy: true });
		try {
			await work();
			set({});
		} catch (problem) {
			// What was begun does not go on by itself.
			if (RETRIED.has(problem.code)) problem.code = "";
			set({ problem });
		}
	};
	return { ...state, act };
}

export function useSeen(element, work, inputs) {
	useEffect(() => {
		const watcher = new IntersectionObserver(([entry]) => entry.isIntersecting && work(), {
			rootMargin: "600px",
		});
		watcher.observe(element.current);
		return () => watcher.disconnect();
	}, inputs);
}

// Does the last of what is asked for, once nothing more is for so many milliseconds.
export function useLater() {
	const timer = useRef();
	const stop = () => clearTimeout(timer.current);
	useEffect(() => stop, []);
	return (work, milliseconds) => {
		stop();
		timer.current = setTimeout(work, milliseconds);
	};
}

export function useTimer(milliseconds, work, inputs) {
	useEffect(() => {
		let timer;
		let ended = false;
		const turn = async () => {
			if (document.visibilityState === "visible") await work();
			if (!ended) timer = setTimeout(turn, milliseconds);
		};
		turn();
		return () => {
			ended = true;
			clearTimeout(timer);
		};
	}, inputs);
}

export function useKeys(handlers) {
	useEffect(() => {
		const pressed = (event) => {
			if (event.ctrlKey || event.metaKey || event.altKey) return;
			const isTyping = event.target.closest("input:not([type=range]), textarea, select, dialog");
			if (isTyping) return;
			const handler = handlers[event.key];
			if (handler && handler(event) !== false) event.preventDefault();
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	});
}
