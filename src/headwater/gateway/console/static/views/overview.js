// What goes in and out right now, and whether anything needs a look.

import { get } from "../api.js";
import { h, link, show } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { latest, watchRates } from "../rates.js";
import { badge, empty, head, live, outcome, panel, sparkline, stat, stateBadge, table } from "../widgets.js";
import { downBadge, nodesUp } from "./nodes.js";

const BUSIEST = 8;
const MOST_LAG = 8;

export async function overview(main, { signal }) {
  const errors = h("div");
  const rateErrors = h("div");
  const figures = {
    recordsIn: stat("Records in", { trend: true }),
    bytesIn: stat("Bytes in", { trend: true }),
    bytesOut: stat("Bytes out", { trend: true }),
    lag: stat("Lag of all groups", { trend: true }),
  };
  const health = { nodes: stat("Nodes"), topics: stat("Topics"), under: stat("Under-replicated partitions"), offline: stat("Partitions without a leader") };
  const lines = new Map();
  const busiest = table([
    { label: "Topic", class: "name", cell: (row) => link(row.name, "topics", row.name) },
    { label: "Records/s", class: "num", cell: (row) => rate(latest(row.series.recordsIn)) },
    { label: "In/s", class: "num wide-only", cell: (row) => bytes(latest(row.series.bytesIn)) },
    { label: "Out/s", class: "num wide-only", cell: (row) => bytes(latest(row.series.bytesOut)) },
    { label: "Lately", class: "num", cell: (row) => trend(lines, row) },
  ], { caption: "Busiest topics", empty: noTopics() });
  const lagging = table([
    { label: "Group", class: "name", cell: (row) => link(row.name, "groups", row.name) },
    { label: "Kind", class: "tight wide-only", cell: (row) => (row.kind === "share" ? badge("queue", "accent") : "stream") },
    { label: "State", class: "tight", cell: (row) => stateBadge(row.state) },
    { label: "Members", class: "num wide-only", cell: (row) => count(row.members) },
    { label: "Lag", class: "num", cell: (row) => count(row.lag) },
  ], { caption: "Groups by lag", empty: empty("No groups yet", "A group appears when somebody reads with its name.", ["headwater consume orders --group billing"]) });
  const nodeTable = table([
    { label: "Node", class: "tight", cell: (row) => ["Node ", row.node_id, row.isController && [" ", badge("controller", "accent")], downBadge(row)] },
    { label: "Address", class: "mono", cell: (row) => `${row.host}:${row.port}` },
    { label: "Leads", class: "num", cell: (row) => count(row.leads) },
    { label: "Replicas", class: "num", cell: (row) => count(row.replicas) },
    { label: "Data", class: "num", cell: (row) => bytes(row.size_bytes) },
  ], { caption: "Nodes", key: (row) => row.node_id });
  const lags = [];
  const whose = h("p", { class: "hint", hidden: true }, "Records and bytes per second are those of the broker that this gateway asks, not of the whole cluster.");
  show(main, head("Overview"), rateErrors, errors,
    h("div", { class: "stats" }, Object.values(figures).map((one) => one.element)),
    whose,
    h("div", { class: "stats" }, Object.values(health).map((one) => one.element)),
    h("div", { class: "pair" },
      panel("Busiest topics", { tools: h("a", { href: "#/topics" }, "All topics") }, busiest.element),
      panel("Groups by lag", { tools: h("a", { href: "#/groups" }, "All groups") }, lagging.element)),
    panel("Nodes", { tools: h("a", { href: "#/nodes" }, "Nodes and leaders") }, nodeTable.element));

  let manyNodes = false;
  watchRates((state) => {
    whose.hidden = !manyNodes || !state.hasTraffic;
    outcome(rateErrors, state.error);
    const own = state.topics.filter((topic) => !topic.internal);
    const { recordsIn, bytesIn, bytesOut } = state.total;
    figures.recordsIn.set(rate(latest(recordsIn)), { unit: "/s", values: recordsIn });
    figures.bytesIn.set(bytes(latest(bytesIn)), { unit: "/s", values: bytesIn });
    figures.bytesOut.set(bytes(latest(bytesOut)), { unit: "/s", values: bytesOut });
    health.topics.set(count(own.length), { unit: `${count(own.reduce((sum, topic) => sum + topic.partitions, 0))} partitions` });
    const rows = own.map((topic) => ({ ...topic, series: state.rates.get(topic.name) ?? { recordsIn: [], bytesIn: [], bytesOut: [] } }));
    const recent = (row) => row.series.recordsIn.reduce((sum, value) => sum + value, 0);
    busiest.update(rows.sort((a, b) => recent(b) - recent(a) || (b.records ?? 0) - (a.records ?? 0)).slice(0, BUSIEST));
  }, signal);
  await live(errors, 3000, signal, async () => {
    const [cluster, listed] = await Promise.all([get("/v1/cluster", signal), get("/v1/groups", signal)]);
    nodeTable.update(cluster.nodes.map((node) => ({ ...node, isController: node.node_id === cluster.controller })));
    manyNodes = cluster.nodes.length > 1;
    const [up, { state }] = nodesUp(cluster);
    health.nodes.set(up, { state, unit: (cluster.controller ?? -1) >= 0 ? `controller ${cluster.controller}` : "" });
    health.under.set(count(cluster.under_replicated), { state: cluster.under_replicated ? "warn" : "" });
    health.offline.set(count(cluster.offline), { state: cluster.offline ? "bad" : "" });
    const known = listed.groups.filter((group) => group.lag !== null);
    const total = known.length || !listed.groups.length ? known.reduce((sum, group) => sum + group.lag, 0) : null;
    lags.push(total);
    figures.lag.set(count(total), { unit: "records", values: lags.slice(-60) });
    lagging.update([...listed.groups].sort((a, b) => (b.lag ?? 0) - (a.lag ?? 0)).slice(0, MOST_LAG));
  });
}

function trend(lines, row) {
  const line = sparkline(`Records per second of ${row.name}`, { small: true });
  line.draw(row.series.recordsIn);
  return line.element;
}

export function noTopics() {
  return empty("No topics yet", "Create one, and write to it with any Kafka client, the command line or HTTP:", [
    "headwater topic create orders --partitions 3",
    `curl ${location.origin}/v1/topics/orders/records \\`,
    `  -H 'Content-Type: application/json' -d '{"key": "a", "value": {"total": 12}}'`,
  ]);
}
