// Rates, from the difference of counters. One sampler for the whole page: it goes on while views change, so that a
// line is there when one comes back. The broker's own counters tell what was read and written; where the gateway does
// not reach them, the growth of the topics tells at least what was written.

import { get } from "./api.js";

const EVERY_MS = 2000;
const KEPT = 60;

const none = () => ({ recordsIn: [], bytesIn: [], bytesOut: [] });
const state = { topics: [], rates: new Map(), total: none(), hasTraffic: true, error: null, last: null };
const listeners = new Set();
let running = false;

export function watchRates(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
  if (state.last) listener(state);
  if (!running) sample();
}

export const latest = (values) => values.at(-1) ?? null;

async function sample() {
  running = true;
  try {
    if (!document.hidden) await take();
    state.error = null;
  } catch (error) {
    state.error = error;
  }
  for (const listener of [...listeners]) listener(state);
  if (listeners.size === 0 && state.error) running = false;
  else setTimeout(sample, EVERY_MS);
}

async function take() {
  const [listed, traffic] = await Promise.all([get("/v1/topics?internal=true"), state.hasTraffic ? counters() : null]);
  const now = { at: performance.now(), topics: listed.topics, traffic };
  const before = state.last;
  state.topics = listed.topics;
  state.last = now;
  if (!before) return;
  const seconds = (now.at - before.at) / 1000;
  const sums = { recordsIn: 0, bytesIn: 0, bytesOut: 0 };
  const old = new Map(before.topics.map((topic) => [topic.name, topic]));
  for (const name of [...state.rates.keys()]) if (!now.topics.some((topic) => topic.name === name)) state.rates.delete(name);
  for (const topic of now.topics) {
    const found = now.traffic && before.traffic
      ? fromCounters(now.traffic.get(topic.name), before.traffic.get(topic.name), seconds)
      : fromGrowth(topic, old.get(topic.name), seconds);
    if (!state.rates.has(topic.name)) state.rates.set(topic.name, none());
    push(state.rates.get(topic.name), found);
    if (!topic.internal) for (const kind of Object.keys(sums)) sums[kind] += found[kind] ?? 0;
  }
  push(state.total, now.traffic ? sums : { ...sums, bytesOut: null });
}

async function counters() {
  const answer = await get("/console/traffic");
  state.hasTraffic = answer.is_known;
  return answer.is_known ? new Map(answer.topics.map((topic) => [topic.name, topic])) : null;
}

function fromCounters(now, before, seconds) {
  const grown = (field) => (now ? Math.max(0, now[field] - (before?.[field] ?? 0)) / seconds : 0);
  return { recordsIn: grown("produced_records"), bytesIn: grown("produced_bytes"), bytesOut: grown("fetched_bytes") };
}

function fromGrowth(now, before, seconds) {
  const isWhole = !now.unknown_partitions && !before?.unknown_partitions;
  const grown = (field) => (now[field] == null || !isWhole ? null : before?.[field] == null ? 0 : Math.max(0, now[field] - before[field]) / seconds);
  return { recordsIn: grown("records"), bytesIn: grown("size_bytes"), bytesOut: null };
}

function push(series, values) {
  for (const [kind, value] of Object.entries(values)) {
    series[kind].push(value);
    if (series[kind].length > KEPT) series[kind].shift();
  }
}
