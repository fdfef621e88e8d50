// The nodes of the cluster, and who leads what.

import { each, get, isGone } from "../api.js";
import { h, link, path, show } from "../dom.js";
import { bytes, count, time } from "../format.js";
import { badge, chips, empty, head, live, panel, stat, table } from "../widgets.js";

const TOPICS_SHOWN = 40;
const PARTITIONS_SHOWN = 64;

export async function nodes(main, { signal }) {
  const errors = h("div");
  const figures = { nodes: stat("Nodes"), controller: stat("Controller"), under: stat("Under-replicated partitions"), offline: stat("Partitions without a leader") };
  const grid = table([
    { label: "Node", class: "tight", cell: (row) => ["Node ", row.node_id, row.isController && [" ", badge("controller", "accent")], downBadge(row)] },
    { label: "Address", class: "mono", cell: (row) => `${row.host}:${row.port}` },
    { label: "Rack", class: "tight wide-only", cell: (row) => row.rack ?? "–" },
    { label: "Leads", class: "num", cell: (row) => share(row) },
    { label: "Replicas", class: "num", cell: (row) => count(row.replicas) },
    { label: "Data", class: "num", cell: (row) => bytes(row.size_bytes) },
  ], { caption: "Nodes", key: (row) => row.node_id });
  const leaders = table([
    { label: "Topic", class: "name", cell: (row) => link(row.name, "topics", row.name, "partitions") },
    { label: "Partitions, and the node that leads each", cell: (row) => chips(row.partitions.slice(0, PARTITIONS_SHOWN).map(led).concat(row.partitions.length > PARTITIONS_SHOWN ? h("span", { class: "muted" }, `and ${row.partitions.length - PARTITIONS_SHOWN} more`) : [])) },
  ], { caption: "Leaders", empty: empty("No topics yet", "", ["headwater topic create orders --partitions 3"]) });
  const note = h("span", {});
  show(main, head("Nodes and leaders"), errors, h("div", { class: "stats" }, Object.values(figures).map((one) => one.element)),
    panel("Nodes", {}, grid.element), panel("Leaders", { note }, leaders.element));
  await live(errors, 5000, signal, async () => {
    const [cluster, listed] = await Promise.all([get("/v1/cluster", signal), get("/v1/topics", signal)]);
    const most = Math.max(1, ...cluster.nodes.map((node) => node.leads));
    grid.update(cluster.nodes.map((node) => ({ ...node, most, isController: node.node_id === cluster.controller })));
    figures.nodes.set(...nodesUp(cluster));
    figures.controller.set((cluster.controller ?? -1) >= 0 ? `Node ${cluster.controller}` : "nobody", { state: (cluster.controller ?? -1) >= 0 ? "" : "warn" });
    figures.under.set(count(cluster.under_replicated), { state: cluster.under_replicated ? "warn" : "" });
    figures.offline.set(count(cluster.offline), { state: cluster.offline ? "bad" : "" });
    const some = listed.topics.slice(0, TOPICS_SHOWN);
    note.textContent = listed.topics.length > some.length ? `The first ${some.length} of ${listed.topics.length} topics.` : "";
    const found = await each(some, (topic) => get(`/v1/topics/${path(topic.name)}`, signal).catch((error) => { if (isGone(error)) return null; throw error; }));
    leaders.update(found.filter(Boolean));
  });
}

// "3", or "3 of 4" if one is down.
export function nodesUp(cluster) {
  const up = cluster.nodes.filter((node) => node.is_up).length;
  const all = cluster.nodes.length;
  return up === all ? [count(all), {}] : [`${count(up)} of ${count(all)}`, { state: "bad" }];
}

export function downBadge(node) {
  if (node.is_up) return null;
  const since = node.down_since_ms === null ? "" : ` since ${time(node.down_since_ms)}`;
  return [" ", badge(`down${since}`, "bad")];
}

function led(one) {
  const nobody = one.leader === null || one.leader < 0;
  const few = one.in_sync.length < one.replicas.length;
  return h("span", { class: `badge ${nobody ? "bad" : few ? "warn" : ""}`, title: `In sync: ${one.in_sync.join(", ") || "none"} of ${one.replicas.join(", ")}` }, `${one.partition} → ${nobody ? "nobody" : one.leader}`);
}

// Of the topics that this page lists; those of the cluster itself are beside them.
function share({ leads, most, internal_leads: internal }) {
  const bar = h("span", { class: "lagbar wide-only", "aria-hidden": "true" }, h("span", { vars: { "--part": `${Math.round((leads / most) * 100)}%` } }));
  return [bar, count(leads), internal > 0 && h("span", { class: "muted wide-only" }, ` + ${count(internal)} internal`)];
}
