import { html, useMemo, useState } from "./vendor/preact.js";
import { at, get, post } from "./api.js";
import { go, href } from "./address.js";
import { useAsk } from "./hooks.js";
import { Skeleton, Stat, Table, Tabs, Text, Trouble } from "./parts.js";
import { Chart } from "./chart.js";
import { Estimates } from "./estimates.js";
import * as figures from "./figures.js";

const RECALLS = [0.7, 0.8, 0.9, 0.95, 0.99];
const QUERIES = 100;
const SERIES = [["pairs", "random pairs", "muted"], ["tenth", "10th neighbour", "right"], ["first", "1st neighbour", "left"]];

const total = (histogram) => histogram.counts.reduce((sum, count) => sum + count, 0);

function Key({ items }) {
  return html`<ul class="legend" aria-label="Lines">${items.map(([name, color, isDashed]) => html`<li class="class"><i class=${isDashed ? "dashed" : ""} style=${{ background: `var(--${color})` }}></i>${name}</li>`)}</ul>`;
}

function Similarities({ profile, depth }) {
  const rows = useMemo(() => profile.similarities.map((similarity, place) => ({
    similarity,
    ...Object.fromEntries(SERIES.map(([key]) => {
      const all = total(profile[key]);
      return [key, all && place < profile[key].counts.length ? profile[key].counts[place] / all : null];
    })),
    chance: depth ? depth.probabilities[place] : null,
  })), [profile, depth]);
  const data = useMemo(() => [rows.map((row) => row.similarity), ...SERIES.map(([key]) => rows.map((row) => row[key])), rows.map((row) => row.chance)], [rows]);
  const options = useMemo(() => (ink, Plot) => ({
    scales: { x: { time: false, range: [0, 1] }, chance: { range: [0, 1.02] }, y: { range: (_, __, max) => [0, (max || 1) * 1.05] } },
    axes: [{ label: "similarity" }, { label: "share", size: 52, values: (_, ticks) => ticks.map((x) => `${figures.value(100 * x)} %`) },
      { label: "chance of a shared bucket", side: 1, scale: "chance", size: 48, grid: { show: false } }],
    series: [{}, ...SERIES.map(([, label, color]) => ({ label, stroke: ink(color), width: 1.5, fill: `color-mix(in srgb, ${ink(color)} 22%, transparent)`, paths: Plot.paths.stepped({ align: 1 }), points: { show: false } })),
      { label: "S-curve", scale: "chance", stroke: ink("shared"), width: 2.5, dash: [6, 4], points: { show: false } }],
  }), []);
  const figure = { figure: true, show: (x) => (x === null ? "" : x.toFixed(4)) };
  return html`<${Chart} label="Similarities of pairs and of neighbours, over the S-curve of the hash tables" options=${options} data=${data} height=${280}
    columns=${[{ key: "similarity", name: "from", figure: true, show: (x) => x.toFixed(2) }, ...SERIES.map(([key, name]) => ({ key, name, ...figure })), { key: "chance", name: "shared bucket", ...figure }]} rows=${rows} />
    <${Key} items=${[...SERIES.map(([, name, color]) => [name, color]), ...(depth ? [["S-curve", "shared", true]] : [])]} />`;
}

function Recall({ collection }) {
  const primary = collection.backends.find((backend) => backend.primary);
  const { data, problem } = useAsk(async (signal) => {
    const found = [];
    for (const recall of RECALLS) {
      const answer = await post(at(collection.name, "/compare"), { sample: Math.min(QUERIES, collection.items), recall, backends: [primary.name] }, signal);
      found.push({ asked: recall, found: answer.backends[0].recall, candidates: answer.backends[0].candidates, seconds: answer.backends[0].latency_p50_seconds });
    }
    return found;
  }, [collection.name, collection.items]);
  const audits = useAsk((signal) => get(at(collection.name, "/recall"), signal), [collection.name]);
  const plotted = useMemo(() => data && [data.map((row) => row.asked), data.map((row) => row.found), data.map((row) => row.asked)], [data]);
  const options = useMemo(() => (ink) => ({
    scales: { x: { time: false, range: [0.68, 1.01] }, y: { range: (_, min) => [Math.min(0.68, min), 1.01] } },
    axes: [{ label: "recall asked for" }, { label: "recall found", size: 52 }],
    series: [{}, { stroke: ink("accent"), width: 2, points: { show: true, size: 8, fill: ink("accent") } }, { stroke: ink("muted"), width: 1, dash: [4, 4], points: { show: false } }],
  }), []);
  const audited = audits.data?.audited || [];
  return html`<section class="panel"><h2>Recall asked against recall found</h2><${Trouble} problem=${problem} />
    ${data ? html`<${Chart} label="Recall found by recall asked for; the dashed line is what was asked" options=${options} data=${plotted} height=${240}
      columns=${[{ key: "asked", name: "asked", figure: true, show: (x) => x.toFixed(2) }, { key: "found", name: "found", figure: true, show: (x) => x.toFixed(4) }, { key: "candidates", name: "candidates", figure: true, show: (x) => figures.count(Math.round(x)) }, { key: "seconds", name: "p50", figure: true, show: figures.duration }]} rows=${data} />
      <p class="small">${figures.plural(Math.min(QUERIES, collection.items), "item")} as queries, ten hits each, against exact scans. Below the dashed line is less than was asked.</p>` : !problem && html`<${Skeleton} rows=${1} kind="block" />`}
    ${audited.length > 0 && html`<${Table} caption="Audited live queries" columns=${[{ key: "week", name: "week" }, { key: "limit", name: "hits", figure: true }, { key: "recall", name: "asked", figure: true, show: (x) => x.toFixed(2) },
      { key: "found", name: "found", figure: true, show: (x) => x.toFixed(4) }, { key: "queries", name: "queries", figure: true }]} rows=${audited} />`}</section>`;
}

export default function Understand({ collection, params }) {
  const { name } = collection;
  const { data: profile, problem } = useAsk((signal) => post(at(name, "/profile"), {}, signal), [name, collection.items]);
  const depths = profile?.depths || [];
  const chosen = depths.find(({ samples }) => String(samples) === params.depth) || depths.find((depth) => depth.mean_size < Math.max(50, profile.items / 50)) || depths[depths.length - 1];
  if (problem) return html`<h1>Understand <bdi>${name}</bdi></h1><${Trouble} problem=${problem} />`;
  if (!profile) return html`<h1>Understand <bdi>${name}</bdi></h1><${Skeleton} rows=${3} kind="block" />`;
  const middle = (histogram) => {
    if (!total(histogram)) return "–";
    let left = total(histogram) / 2;
    const place = histogram.counts.findIndex((count) => (left -= count) <= 0);
    const [low, high] = [histogram.edges[place], histogram.edges[place + 1]];
    return figures.value(high - low === 1 ? low : (low + high) / 2);
  };
  return html`<div class="head"><h1>Understand <bdi>${name}</bdi></h1><span class="small figure">${figures.count(profile.sample)} of ${figures.plural(profile.items, "item")} looked at</span></div>
    <section class="panel"><dl class="stats wide"><${Stat} label="median of random pairs">${middle(profile.pairs)}</${Stat}><${Stat} label="median of 1st neighbours">${middle(profile.first)}</${Stat}>
      <${Stat} label="median of 10th neighbours">${middle(profile.tenth)}</${Stat}><${Stat} label="median of values not 0">${middle(profile.nonzeros)}</${Stat}><${Stat} label="of these below 0">${figures.share(profile.negative)}</${Stat}></dl></section>
    <section class="panel"><div class="head"><h2>Similarities, and what hash tables see of them</h2><span class="space"></span>
      ${depths.length > 1 && html`<span class="small">samples of a bucket</span><${Tabs} label="Samples of a bucket" chosen=${chosen.samples} options=${depths.map(({ samples }) => [samples, samples])} onChoose=${(samples) => go(href(name, "understand", { depth: samples }), { replace: true })} />`}</div>
      <${Similarities} profile=${profile} depth=${chosen} />
      ${chosen && html`<p class="small">Items of a bucket share ${figures.plural(chosen.samples, "sample")}. The first table has ${figures.plural(chosen.buckets, "bucket")}; an item lies in one of ${figures.value(chosen.mean_size)} items on average.</p>`}</section>
    ${collection.items > 1 && html`<div class="halves gap"><${Recall} collection=${collection} />${depths.length > 0 && html`<${Estimates} collection=${collection} />`}</div>`}
    ${chosen && html`<section class="panel"><${Table} caption=${`Largest buckets of the first table, at ${figures.plural(chosen.samples, "sample")}`} columns=${[{ key: "size", name: "items", figure: true, show: figures.count },
      { key: "share", name: "of all", figure: true, show: (_, row) => figures.share(row.size / profile.items) }, { key: "id", name: "one of them", show: (id) => html`<a href=${href(name, "query", { id })}><${Text} value=${id} limit=${80} /></a>` }]} rows=${chosen.largest} /></section>`}`;
}
