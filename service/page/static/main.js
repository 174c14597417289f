import { go, href, read, useAddress } from "./address.js";
import { forgetKey, hasKey, root, start, tryKey } from "./api.js";
import * as figures from "./figures.js";
import { useAct, useAnswer, useAsk, useKeys, useServer, useTimer } from "./hooks.js";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./html.js";
import { Command, Dialog, Empty, Progress, Select, Skeleton, Trouble } from "./parts.js";
import { keepPlace } from "./place.js";
import { collectionOf } from "./view.js";

const VIEWS = [
	["browse", "Browse"],
	["query", "Query"],
	["duplicates", "Duplicates"],
	["map", "Map"],
	["understand", "Understand"],
	["backends", "Backends"],
	["load", "Data"],
];
const HIDDEN = { item: "browse", why: "query", audit: "understand" };
const WITHOUT_ITEMS = ["backends", "load", "audit"];
const OF_COLLECTION = [...VIEWS.map(([view]) => view), ...Object.keys(HIDDEN)];
const ahead = window.requestIdleCallback || setTimeout;
const KEYS = [
	["/", "Find an item by a part of its id or payload"],
	["← → ↑ ↓", "Move through items and hits"],
	["Enter", "Find items similar to this one"],
	["e", "Explain: why is this one similar"],
	["d", "Details of this one"],
	["o", "Open the link of this one"],
];

const loaded = new Map();

async function load(view) {
	loaded.set(view, (await import(`./${view}.js`)).default);
	return loaded.get(view);
}

function Lazy({ name, waiting = html`<${Skeleton} />`, ...more }) {
	const [view, set] = useState(() => loaded.get(name));
	const [problem, fail] = useState(null);
	const { epoch } = useServer();
	useEffect(() => {
		// A browser does not ask again for code that it could not get.
		if (problem) return location.reload();
		load(name).then((found) => {
			set(() => found);
			ahead(() =>
				["overview", "find", ...OF_COLLECTION].map((later) => load(later).catch(() => {})),
			);
		}, fail);
	}, [name, epoch]);
	if (problem) return html`<${Trouble} problem=${problem} />`;
	return view ? html`<${view} ...${more} />` : waiting;
}

function Guarded({ address, children }) {
	const [problem, again] = useErrorBoundary();
	useEffect(() => problem && again(), [address]);
	const message = `This view failed: ${problem?.message}`;
	return problem ? html`<${Trouble} problem=${{ message }} />` : children;
}

function KeyDialog() {
	const { act, problem } = useAct();
	const field = useRef();
	const submit = (event) => {
		event.preventDefault();
		act(() => tryKey(field.current.value.trim())).then(() => field.current?.select());
	};
	return html`<${Dialog} title="This service asks for a key">
    <form onSubmit=${submit}>
      <label>Key <input ref=${field} type="password" autocomplete="off" required autofocus
        aria-invalid=${problem ? "true" : undefined} /></label>
      <p class="small">It stays in this tab until you close it, and in no address.</p>
      <${Trouble} problem=${problem} />
      <div class="actions"><button class="primary">Use this key</button></div>
    </form><//>`;
}

const THEMES = [
	["auto", "◐ auto"],
	["light", "☀ light"],
	["dark", "☾ dark"],
];

function Theme() {
	const choose = (theme) => {
		localStorage.setItem("gcws-theme", theme);
		dispatchEvent(new Event("themechange"));
	};
	return html`<${Select} aria-label="Theme" class="theme" onChoose=${choose}
    chosen=${localStorage.getItem("gcws-theme")} options=${THEMES} />`;
}

function Gone({ since }) {
	return html`<div class="away" role="status">The server has not answered since${" "}
    <time>${since.toLocaleTimeString()}</time>. This page goes on by itself when it does.</div>`;
}

const PHASES = {
	compiling: "compiling kernels, once on this machine",
	loading: "reading items",
	failed: "it failed, and the log says why",
};

function Start({ phase }) {
	const { data, repeat } = useAsk(
		async () => (await fetch(new URL("readyz", root))).json(),
		[phase],
	);
	useTimer(1000, repeat, []);
	const isGoing = phase !== "failed";
	const { loaded = 0, total, seconds_left: left } = data || {};
	const done = total ? `${figures.count(loaded)} of ${figures.count(total)}` : "…";
	const rest = left === undefined ? "" : `, about ${Math.round(left)} s more`;
	return html`<section class="panel starting">
    <p role="status"><strong>Starting: ${PHASES[phase] || phase}.</strong>
      ${isGoing && " Collections answer once they can, those of fixed dimension first."}</p>
    ${
			isGoing && html`<${Progress} value=${loaded} max=${total || 1} words=${done + rest} />`
		}</section>`;
}

// Not scrollIntoView: a browser may begin with the tabulator behind what came into view.
function center(links) {
	const current = links?.querySelector("[aria-current]")?.getBoundingClientRect();
	if (!current) return;
	const { left } = links.getBoundingClientRect();
	links.scrollLeft += current.left - left - (links.clientWidth - current.width) / 2;
}

function Header({ address, server, onHelp, onFind }) {
	const { data } = useAnswer("v1/collections", undefined, address.collection);
	const names = (data?.collections || []).map(({ name }) => name);
	const chosen = address.collection;
	const shown = HIDDEN[address.view] || address.view;
	const state = server.gone ? "gone" : server.phase || "…";
	const links = useRef();
	useEffect(() => center(links.current), [shown, chosen]);
	return html`<header>
    <a class="brand" href="#/"><img src=${new URL("icon.svg", import.meta.url).href} alt=""
      width="22" height="22" />gcws-search</a>
    ${
			chosen &&
			html`<${Select} aria-label="Collection" chosen=${chosen}
      onChoose=${(name) => go(href(name, "browse"))}
      options=${(names.includes(chosen) ? names : [chosen, ...names]).map((name) => [name])} />
    <nav ref=${links} aria-label="Views of this collection">${VIEWS.map(
			([view, name]) => html`<a
      href=${href(chosen, view)} aria-current=${view === shown ? "page" : undefined}>${name}</a>`,
		)}
    </nav>`
		}
    <button class="find" onClick=${onFind}>Find <kbd>/</kbd></button>
    <span class="space"></span>
    <span class=${`state ${state}`}>${state}</span>
    ${server.service?.permits === "read" && html`<span class="tag">read only</span>`}
    <a class="quiet" href=${new URL("docs", root).href}>API</a>
    <${Theme} />
    ${
			hasKey() &&
			html`<button class="quiet" onClick=${forgetKey}>Forget key
      </button>`
		}
    <button class="quiet" aria-label="All keys" onClick=${onHelp}>?</button>
  </header>`;
}

const HEADING_PATIENCE = 3000;

function useHeading({ collection, view, params }) {
	const place = `${collection}/${view}`;
	const whole = `${place}?${["id", "row", "names", "text", "a", "b"].map((key) => params[key])}`;
	const before = useRef({ place, whole });
	useEffect(() => {
		const { place: old, whole: oldWhole } = before.current;
		before.current = { place, whole };
		if (old === place && (oldWhole === whole || document.activeElement !== document.body)) return;
		const left = document.activeElement;
		const end = performance.now() + HEADING_PATIENCE;
		let timer;
		let heading = null;
		const turn = () => {
			const isElsewhere = ![left, heading, document.body].includes(document.activeElement);
			if (isElsewhere || performance.now() > end) return;
			const found = document.querySelector("main h1");
			if (found && found !== document.activeElement) {
				// the first may give way to another
				heading = found;
				heading.tabIndex = -1;
				heading.focus({ preventScroll: true });
			}
			timer = setTimeout(turn, 30);
		};
		timer = setTimeout(turn);
		return () => clearTimeout(timer);
	}, [place, whole]);
}

function viewIn({ collection, view }) {
	if (!collection) return "overview";
	return OF_COLLECTION.includes(view) ? view : "browse";
}

function View({ address, server }) {
	const { collection: name, params } = address;
	const writes = server.service?.permits === "write";
	const found = useAsk((signal) => name && collectionOf(name, signal), [name]);
	if (!name) {
		return html`<${Lazy} name="overview" server=${server} params=${params}
      writes=${writes} />`;
	}
	const collection = found.data?.name === name ? found.data : null;
	if (found.problem && !collection) {
		return html`<section><h1><bdi>${name}</bdi></h1><${Trouble} problem=${found.problem} />
      <p><a href="#/">All collections</a></p></section>`;
	}
	if (!collection) return html`<${Skeleton} rows=${6} />`;
	const shown = viewIn(address);
	if (!collection.items && !WITHOUT_ITEMS.includes(shown)) {
		return html`<${Empty} title=${`${name} has no items yet`}><p>Load a file, from a terminal:</p>
      <${Command} text=${`gcws-search load items.csv --into ${name} --url ${root.href}`} />
      <p>or <a href=${href(name, "load")}>drop one on this page</a>.</p><//>`;
	}
	return html`<${Lazy} key=${`${name}/${shown}`} name=${shown} collection=${collection}
    params=${params} writes=${writes} refresh=${found.repeat} />`;
}

function App() {
	const address = useAddress();
	const server = useServer();
	const [isHelped, help] = useState(false);
	const [isFinding, find] = useState(false);
	const isStarting = !server.gone && server.phase && server.phase !== "ready";
	useHeading(address);
	useKeys({
		"?": () => help(true),
		"/": () => find(true),
	});
	useEffect(() => {
		const place = address.collection && `${address.view}: ${address.collection}`;
		document.title = [place, "gcws-search"].filter(Boolean).join(" · ");
	}, [address]);
	return html`<a class="skip" href="#main" onClick=${(event) => {
		event.preventDefault();
		document.getElementById("main").focus();
	}}>To the content</a>
    <${Header} address=${address} server=${server} onHelp=${() => help(true)}
      onFind=${() => find(true)} />
    ${server.gone && html`<${Gone} since=${server.gone} />`}
    <main id="main" tabindex="-1">
      ${isStarting && html`<${Start} phase=${server.phase} />`}<${Guarded} address=${address}>
      <${View} address=${address} server=${server} /><//></main>
    ${server.keyWanted && html`<${KeyDialog} />`}
    ${
			isFinding &&
			html`<${Lazy} name="find" waiting=${null}
      collection=${address.collection} onClose=${() => find(false)} />`
		}
    ${
			isHelped &&
			html`<${Dialog} title="Keys" onClose=${() => help(false)}>
      <dl class="keys">${KEYS.map(
				([key, what]) => html`<dt><kbd>${key}</kbd></dt>
        <dd>${what}</dd>`,
			)}</dl>
      <form method="dialog" class="actions"><button autofocus>Close</button></form><//>`
		}`;
}

load(viewIn(read())).catch(() => {});
start();
keepPlace();
render(html`<${App} />`, document.getElementById("app"));
