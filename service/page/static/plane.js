import { html, useEffect, useRef } from "./vendor/preact.js";
import { ink, useInk } from "./ink.js";

const REACH = 14;
const REACH_OF_CROSS = 80;
const CROSS = 9;
const MARGIN = 24;

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
  const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (bottom - top || 1));
  return { scale, x: width / 2 - (scale * (left + right)) / 2, y: height / 2 - (scale * (top + bottom)) / 2 };
}

export function isInside(polygon, x, y) {
  let isIn = false;
  for (let here = 0, before = polygon.length - 1; here < polygon.length; before = here, here += 1) {
    const [ax, ay] = polygon[here];
    const [bx, by] = polygon[before];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) isIn = !isIn;
  }
  return isIn;
}

function paint(canvas, { places, colors, order, lit, marked, radius }, frame, { lasso, isKeyed }) {
  const ratio = devicePixelRatio;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const zoomed = radius * Math.min(3, Math.max(1, Math.sqrt(frame.zoom)));
  const isDim = lit.length > 0 || marked.size > 0;
  context.globalAlpha = isDim ? 0.35 : 0.85;
  let color = null;
  for (const item of order) {
    if (colors[item] !== color) {
      color = colors[item];
      context.fillStyle = color;
    }
    context.fillRect(frame.x + frame.scale * places[2 * item] - zoomed, frame.y + frame.scale * places[2 * item + 1] - zoomed, 2 * zoomed, 2 * zoomed);
  }
  context.globalAlpha = 1;
  const dot = (x, y, size, fill) => {
    context.beginPath();
    context.arc(frame.x + frame.scale * x, frame.y + frame.scale * y, size, 0, 2 * Math.PI);
    context.fillStyle = fill;
    context.fill();
  };
  for (const item of marked) dot(places[2 * item], places[2 * item + 1], zoomed + 1.5, colors[item]);
  if (lit.length) {
    const query = lit[0];
    const hits = query ? lit.slice(1).filter(Boolean) : [];
    context.strokeStyle = ink("text");
    context.lineWidth = 1;
    for (const hit of hits) {
      context.beginPath();
      context.moveTo(frame.x + frame.scale * query.x, frame.y + frame.scale * query.y);
      context.lineTo(frame.x + frame.scale * hit.x, frame.y + frame.scale * hit.y);
      context.stroke();
    }
    for (const hit of hits) dot(hit.x, hit.y, 5, ink("accent"));
    if (query) dot(query.x, query.y, 7, ink("right"));
  }
  if (lasso.length) {
    context.strokeStyle = ink("accent");
    context.lineWidth = 2;
    context.beginPath();
    lasso.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
  }
  if (isKeyed) {
    const [x, y] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    context.strokeStyle = ink("text");
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x - CROSS, y);
    context.lineTo(x + CROSS, y);
    context.moveTo(x, y - CROSS);
    context.lineTo(x, y + CROSS);
    context.stroke();
  }
}

export function Plane({ scene, isLasso, label, onHover, onPick, onLasso }) {
  const canvas = useRef();
  const state = useRef({ pan: [0, 0], zoom: 1, lasso: [], drag: null, wanted: false, isKeyed: false });
  const current = useRef(scene);
  current.current = scene;
  const turn = useInk();

  const frame = () => {
    const { clientWidth: width, clientHeight: height } = canvas.current;
    const base = fitted(current.current.places, width, height);
    const { pan, zoom } = state.current;
    return { scale: base.scale * zoom, zoom, x: (base.x - width / 2) * zoom + width / 2 + pan[0], y: (base.y - height / 2) * zoom + height / 2 + pan[1] };
  };
  const draw = () => {
    if (state.current.wanted) return;
    state.current.wanted = true;
    requestAnimationFrame(() => {
      state.current.wanted = false;
      if (canvas.current) paint(canvas.current, current.current, frame(), state.current);
    });
  };
  const zoomBy = (factor, x, y) => {
    const { clientWidth: width, clientHeight: height } = canvas.current;
    const { pan, zoom } = state.current;
    const next = Math.min(60, Math.max(0.5, zoom * factor));
    const done = next / zoom;
    pan[0] = x - width / 2 - (x - width / 2 - pan[0]) * done;
    pan[1] = y - height / 2 - (y - height / 2 - pan[1]) * done;
    state.current.zoom = next;
    draw();
  };
  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const middle = () => [canvas.current.clientWidth / 2, canvas.current.clientHeight / 2];
  const nearest = ([x, y], reach = REACH) => {
    const { places } = current.current;
    const { scale, x: left, y: top } = frame();
    let best = reach ** 2;
    let found = null;
    for (let item = 0; 2 * item < places.length; item += 1) {
      const distance = (left + scale * places[2 * item] - x) ** 2 + (top + scale * places[2 * item + 1] - y) ** 2;
      if (distance < best) [best, found] = [distance, item];
    }
    return found;
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
    state.current.isKeyed = isKeyed;
    if (isKeyed) onHover(nearest(middle(), REACH_OF_CROSS), middle());
    draw();
  };
  const down = (event) => {
    state.current.isKeyed = false;
    canvas.current.setPointerCapture(event.pointerId);
    state.current.drag = { from: at(event), last: at(event), moved: false };
    if (isLasso || event.shiftKey) state.current.lasso = [at(event)];
  };
  const move = (event) => {
    const here = at(event);
    const { drag, lasso, pan } = state.current;
    if (!drag) {
      onHover(nearest(here), here);
      return;
    }
    drag.moved = drag.moved || Math.hypot(here[0] - drag.from[0], here[1] - drag.from[1]) > 4;
    if (lasso.length) lasso.push(here);
    else {
      pan[0] += here[0] - drag.last[0];
      pan[1] += here[1] - drag.last[1];
    }
    drag.last = here;
    draw();
  };
  const up = (event) => {
    const { drag, lasso } = state.current;
    state.current.drag = null;
    state.current.lasso = [];
    if (lasso.length > 3) {
      const { scale, x, y } = frame();
      const { places } = current.current;
      const found = [];
      for (let item = 0; 2 * item < places.length; item += 1) {
        if (isInside(lasso, x + scale * places[2 * item], y + scale * places[2 * item + 1])) found.push(item);
      }
      onLasso(found);
    } else if (drag && !drag.moved) onPick(nearest(at(event)));
    draw();
  };
  const pressed = (event) => {
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    if (moves[event.key]) {
      state.current.pan[0] += moves[event.key][0];
      state.current.pan[1] += moves[event.key][1];
    } else if (event.key === "+" || event.key === "=") zoomBy(1.3, ...middle());
    else if (event.key === "-") zoomBy(1 / 1.3, ...middle());
    else if (event.key === "0") Object.assign(state.current, { pan: [0, 0], zoom: 1 });
    else if (event.key === "Enter") onPick(nearest(middle(), REACH_OF_CROSS));
    else return;
    event.preventDefault();
    event.stopPropagation();
    keyed(true);
  };
  return html`<canvas ref=${canvas} class=${isLasso ? "plane lasso" : "plane"} tabindex="0" role="img" aria-label=${label}
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerLeave=${() => onHover(null)} onKeyDown=${pressed}
    onFocus=${() => canvas.current.matches(":focus-visible") && keyed(true)} onBlur=${() => { keyed(false); onHover(null); }}></canvas>`;
}
