import { html, useEffect, useRef } from "./html.js";
import { ink, useInk } from "./ink.js";

const REACH = 14;
const REACH_OF_CROSS = 80;
const CROSS = 9;
const MARGIN = 24;
const EDGE = 4;
const STEP = 1.3;
const FONT = "600 12px system-ui, sans-serif";

function bounds(places) {
	const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
	for (let place = 0; place < places.length; place += 2) {
		box.left = Math.min(box.left, places[place]);
		box.right = Math.max(box.right, places[place]);
		box.top = Math.min(box.top, places[place + 1]);
		box.bottom = Math.max(box.bottom, places[place + 1]);
	}
	return box;
}

function fitted(places, width, height) {
	const { left, right, top, bottom } = bounds(places);
	const across = (width - 2 * MARGIN) / (right - left || 1);
	const scale = Math.min(across, (height - 2 * MARGIN) / (bottom - top || 1));
	return {
		scale,
		x: width / 2 - (scale * (left + right)) / 2,
		y: height / 2 - (scale * (top + bottom)) / 2,
	};
}

function disc(context, center, radius) {
	context.beginPath();
	context.arc(...center, radius, 0, 2 * Math.PI);
}

function line(context, ...places) {
	context.beginPath();
	for (const [x, y] of places) context.lineTo(x, y);
	context.stroke();
}

// Round points are copies of one picture a colour: to draw each as a path takes five times as long.
function dotsOf(colors, radius, ratio, inkOf) {
	const size = Math.ceil(2 * radius * ratio) + 2;
	const made = new Map();
	return (place) => {
		const color = colors[place];
		let dot = made.get(color);
		if (!dot) {
			dot = document.createElement("canvas");
			dot.width = size;
			dot.height = size;
			const context = dot.getContext("2d");
			context.fillStyle = inkOf(color);
			disc(context, [size / 2, size / 2], radius * ratio);
			context.fill();
			made.set(color, dot);
		}
		return dot;
	};
}

function paintPoints(context, { places, colors, marked }, frame, radius, ratio, inkOf) {
	const dotOf = dotsOf(colors, radius, ratio, inkOf);
	const size = Math.ceil(2 * radius * ratio) + 2;
	const draw = (item, factor) => {
		const side = (size / ratio) * factor;
		context.drawImage(
			dotOf(item),
			frame.x + frame.scale * places[2 * item] - side / 2,
			frame.y + frame.scale * places[2 * item + 1] - side / 2,
			side,
			side,
		);
	};
	for (let item = 0; item < colors.length; item += 1) draw(item, 1);
	context.globalAlpha = 1;
	for (const item of marked) draw(item, 1 + 1.5 / radius);
}

// Lit points keep their colours; a ring tells them, and a double one the first.
function paintLit(context, lit, frame, inkOf) {
	const placeOf = ({ x, y }) => [frame.x + frame.scale * x, frame.y + frame.scale * y];
	const ring = (center, radius, width, stroke) => {
		disc(context, center, radius);
		context.lineWidth = width;
		context.strokeStyle = stroke;
		context.stroke();
	};
	const [query, ...hits] = lit;
	const shown = hits.filter(Boolean);
	const [text, surface] = [inkOf("var(--text)"), inkOf("var(--surface)")];
	context.strokeStyle = text;
	context.lineWidth = 1;
	for (const hit of query ? shown : []) line(context, placeOf(query), placeOf(hit));
	for (const point of query ? [...shown, query] : shown) {
		const [center, radius] = [placeOf(point), point === query ? 7 : 5];
		disc(context, center, radius);
		context.fillStyle = inkOf(point.color);
		context.fill();
		ring(center, radius + 1, 2, text);
		if (point !== query) continue;
		ring(center, radius + 3, 2, surface);
		ring(center, radius + 5, 2, text);
	}
}

function paintLabels(context, labels, frame, inkOf) {
	context.font = FONT;
	context.textAlign = "center";
	context.textBaseline = "middle";
	context.lineJoin = "round";
	context.lineWidth = 4;
	context.strokeStyle = inkOf("var(--surface)");
	context.fillStyle = inkOf("var(--text)");
	const taken = [];
	for (const { x, y, text } of labels) {
		const [middle, top] = [frame.x + frame.scale * x, frame.y + frame.scale * y];
		const { clientWidth: width } = context.canvas;
		const wide = context.measureText(text).width;
		const isSeen = middle > 0 && middle < width;
		const side = wide / 2 + EDGE;
		const left = isSeen ? Math.max(side, Math.min(width - side, middle)) : middle;
		const isOver = taken.some(
			(one) =>
				Math.abs(one.top - top) < 16 && Math.abs(one.left - left) < (one.wide + wide) / 2 + 6,
		);
		if (isOver) continue;
		taken.push({ left, top, wide });
		context.strokeText(text, left, top);
		context.fillText(text, left, top);
	}
}

function paint(canvas, scene, frame, { lasso, isKeyed }) {
	const ratio = devicePixelRatio;
	const context = canvas.getContext("2d");
	const known = new Map();
	const inkOf = (color) => {
		if (!known.has(color)) known.set(color, ink(color));
		return known.get(color);
	};
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.clearRect(0, 0, canvas.width, canvas.height);
	const radius = scene.radius * Math.min(3, Math.max(1, Math.sqrt(frame.zoom)));
	context.globalAlpha = scene.lit.length > 0 || scene.marked.size > 0 ? 0.35 : 1;
	paintPoints(context, scene, frame, radius, ratio, inkOf);
	paintLit(context, scene.lit, frame, inkOf);
	paintLabels(context, scene.labels, frame, inkOf);
	context.strokeStyle = inkOf("var(--accent)");
	context.lineWidth = 2;
	line(context, ...lasso);
	if (!isKeyed) return;
	const [x, y] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
	context.strokeStyle = inkOf("var(--text)");
	line(context, [x - CROSS, y], [x + CROSS, y]);
	line(context, [x, y - CROSS], [x, y + CROSS]);
}

export function Plane({ scene, isLasso, label, commands, onHover, onPick, onLasso }) {
	const canvas = useRef();
	const { current: state } = useRef({
		pan: [0, 0],
		zoom: 1,
		lasso: [],
		drag: null,
		wanted: false,
		isKeyed: false,
		touches: new Map(),
	});
	const current = useRef(scene);
	current.current = scene;
	const turn = useInk();

	const frame = () => {
		const { clientWidth: width, clientHeight: height } = canvas.current;
		const base = fitted(current.current.places, width, height);
		const { pan, zoom } = state;
		return {
			scale: base.scale * zoom,
			zoom,
			x: (base.x - width / 2) * zoom + width / 2 + pan[0],
			y: (base.y - height / 2) * zoom + height / 2 + pan[1],
		};
	};
	const draw = () => {
		if (state.wanted) return;
		state.wanted = true;
		requestAnimationFrame(() => {
			state.wanted = false;
			if (canvas.current) paint(canvas.current, current.current, frame(), state);
		});
	};
	const zoomBy = (factor, x, y) => {
		const { clientWidth: width, clientHeight: height } = canvas.current;
		const { pan, zoom } = state;
		const next = Math.min(60, Math.max(0.5, zoom * factor));
		const done = next / zoom;
		pan[0] = x - width / 2 - (x - width / 2 - pan[0]) * done;
		pan[1] = y - height / 2 - (y - height / 2 - pan[1]) * done;
		state.zoom = next;
		draw();
	};
	const at = (event) => {
		const box = canvas.current.getBoundingClientRect();
		return [event.clientX - box.left, event.clientY - box.top];
	};
	const middle = () => [canvas.current.clientWidth / 2, canvas.current.clientHeight / 2];
	commands.current = {
		zoomIn: () => zoomBy(STEP, ...middle()),
		zoomOut: () => zoomBy(1 / STEP, ...middle()),
		showAll: () => {
			Object.assign(state, { pan: [0, 0], zoom: 1 });
			draw();
		},
	};
	const nearest = (place, reach = REACH) => {
		const [x, y] = place;
		const { places } = current.current;
		const { scale, x: left, y: top } = frame();
		let best = reach ** 2;
		let found = null;
		for (let item = 0; 2 * item < places.length; item += 1) {
			const across = left + scale * places[2 * item] - x;
			const distance = across ** 2 + (top + scale * places[2 * item + 1] - y) ** 2;
			if (distance < best) [best, found] = [distance, item];
		}
		return found;
	};
	const inside = (polygon) => {
		const { scale, x, y } = frame();
		const { places, colors } = current.current;
		const path = new Path2D(`M${polygon.join("L")}Z`);
		const context = document.createElement("canvas").getContext("2d");
		const isIn = (item) =>
			context.isPointInPath(path, x + scale * places[2 * item], y + scale * places[2 * item + 1]);
		return [...colors.keys()].filter(isIn);
	};

	useEffect(() => {
		const element = canvas.current;
		const fit = new ResizeObserver(() => {
			element.width = element.clientWidth * devicePixelRatio;
			element.height = element.clientHeight * devicePixelRatio;
			draw();
		});
		fit.observe(element);
		const wheel = (event) => {
			event.preventDefault();
			zoomBy(Math.exp(-event.deltaY / 400), ...at(event));
		};
		element.addEventListener("wheel", wheel, { passive: false });
		return () => {
			fit.disconnect();
			element.removeEventListener("wheel", wheel);
		};
	}, []);
	useEffect(draw, [scene, turn]);

	const keyed = (isKeyed) => {
		state.isKeyed = isKeyed;
		if (isKeyed) onHover(nearest(middle(), REACH_OF_CROSS), middle());
		draw();
	};
	const panBy = (here, last) => {
		state.pan[0] += here[0] - last[0];
		state.pan[1] += here[1] - last[1];
	};
	const pinch = (event) => {
		const { touches } = state;
		const span = () => {
			const [[ax, ay], [bx, by]] = [...touches.values()];
			return { size: Math.hypot(ax - bx, ay - by) || 1, middle: [(ax + bx) / 2, (ay + by) / 2] };
		};
		const before = span();
		touches.set(event.pointerId, at(event));
		const after = span();
		panBy(after.middle, before.middle);
		zoomBy(after.size / before.size, ...after.middle);
	};
	const down = (event) => {
		const here = at(event);
		const { touches } = state;
		state.isKeyed = false;
		canvas.current.setPointerCapture(event.pointerId);
		touches.set(event.pointerId, here);
		state.drag = { from: here, last: here, moved: touches.size > 1 };
		const isDrawn = (isLasso || event.shiftKey) && touches.size === 1;
		state.lasso = isDrawn ? [here] : [];
	};
	const move = (event) => {
		const here = at(event);
		const { drag, lasso, touches } = state;
		if (!drag) {
			onHover(nearest(here), here);
			return;
		}
		if (touches.size > 1) {
			pinch(event);
			return;
		}
		drag.moved = drag.moved || Math.hypot(here[0] - drag.from[0], here[1] - drag.from[1]) > 4;
		touches.set(event.pointerId, here);
		if (lasso.length) lasso.push(here);
		else panBy(here, drag.last);
		drag.last = here;
		draw();
	};
	const up = (event) => {
		const { drag, lasso, touches } = state;
		touches.delete(event.pointerId);
		if (touches.size) {
			drag.last = [...touches.values()][0]; // the finger that stays pans on
			return;
		}
		state.drag = null;
		state.lasso = [];
		if (lasso.length > 3) onLasso(inside(lasso));
		else if (drag && !drag.moved && event.type === "pointerup") onPick(nearest(at(event)));
		draw();
	};
	const MOVES = {
		ArrowLeft: [40, 0],
		ArrowRight: [-40, 0],
		ArrowUp: [0, 40],
		ArrowDown: [0, -40],
	};
	const ZOOMS = { "+": "zoomIn", "=": "zoomIn", "-": "zoomOut", 0: "showAll" };
	const pressed = (event) => {
		if (MOVES[event.key]) panBy(MOVES[event.key], [0, 0]);
		else if (ZOOMS[event.key]) commands.current[ZOOMS[event.key]]();
		else if (event.key === "Enter") onPick(nearest(middle(), REACH_OF_CROSS));
		else return;
		event.preventDefault();
		event.stopPropagation();
		keyed(true);
	};
	return html`<canvas ref=${canvas} class=${isLasso ? "plane lasso" : "plane"} tabindex="0"
    role="img" aria-label=${label} aria-describedby="guide"
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}
    onPointerCancel=${up} onPointerLeave=${() => onHover(null)} onKeyDown=${pressed}
    onFocus=${() => canvas.current.matches(":focus-visible") && keyed(true)}
    onBlur=${() => {
			keyed(false);
			onHover(null);
		}}></canvas>`;
}
