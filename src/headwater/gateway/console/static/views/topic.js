// One topic: its messages, where they lie, how it is set, and writing to it.

import { get, isGone, request } from "../api.js";
import { h, link, path, show } from "../dom.js";
import { ago, bytes, count, time } from "../format.js";
import { badge, chips, confirm, copyButton, empty, failed, head, live, panel, stat, table, toast } from "../widgets.js";
import { messages } from "./messages.js";
import { produce } from "./produce.js";
import { settings } from "./settings.js";

const TABS = [["messages", "Messages"], ["partitions", "Partitions"], ["segments", "Segments"], ["settings", "Settings"], ["produce", "Produce"]];
const VIEWS = { messages, partitions, segments, settings, produce };

export async function topic(main, { parts, query, signal }) {
  const [name, tab = "messages"] = parts;
  const api = `/v1/topics/${path(name)}`;
  const place = h("div");
  const remove = h("button", { type: "button", class: "danger", on: { click: () => deleteTopic(name, api, signal) } }, "Delete topic");
  const badges = h("span", {});
  show(main, head(name, { where: [h("a", { href: "#/topics" }, "Topics"), " / "], badges, tools: [copyButton(() => name, "Copy name"), remove] }),
    h("nav", { class: "tabs", "aria-label": "Of this topic" }, TABS.map(([id, label]) =>
      h("a", { href: `#/${path("topics", name, id)}`, "aria-current": id === tab ? "page" : null }, label))), place);
  let facts;
  try {
    facts = await get(api, signal);
  } catch (error) {
    if (!isGone(error)) throw error;
    remove.disabled = true;
    show(place, panel("Not here", {}, empty(`There is no topic ${name}`, "It may have been deleted. Create it with:", [`headwater topic create ${name}`])));
    return;
  }
  if (facts.internal) {
    show(badges, badge("internal"));
    remove.disabled = true;
    remove.title = "The cluster itself needs this topic.";
  }
  await (VIEWS[tab] ?? messages)(place, { name, api, facts, query, signal });
}

async function partitions(place, { api, signal }) {
  const errors = h("div");
  const figures = { records: stat("Records"), size: stat("Size, of one copy"), under: stat("Under-replicated") };
  const grid = table([
    { label: "Partition", class: "num", cell: (row) => row.partition },
    { label: "Leader", class: "tight", cell: (row) => (row.leader === null || row.leader < 0 ? badge("nobody", "bad") : `Node ${row.leader}`) },
    { label: "Replicas", class: "tight", cell: (row) => replicas(row) },
    { label: "From", class: "num", cell: (row) => count(row.start_offset) },
    { label: "To", class: "num", cell: (row) => count(row.end_offset) },
    { label: "Records", class: "num", cell: (row) => count(held(row)) },
    { label: "Size", class: "num", cell: (row) => bytes(row.size_bytes) },
  ], { caption: "Partitions", key: (row) => row.partition });
  show(place, errors, h("div", { class: "stats" }, Object.values(figures).map((one) => one.element)), panel("Partitions", {}, grid.element));
  await live(errors, 3000, signal, async () => {
    const facts = await get(api, signal);
    grid.update(facts.partitions);
    const sum = (read) => facts.partitions.reduce((total, one) => total + (read(one) ?? 0), 0);
    const told = facts.partitions.filter((one) => held(one) !== null).length;
    figures.records.set(count(told > 0 ? sum(held) : null), { unit: told < facts.partitions.length ? `in ${told} of ${facts.partitions.length} partitions` : "" });
    figures.size.set(bytes(sum((one) => one.size_bytes)));
    const under = sum((one) => (one.in_sync.length < one.replicas.length ? 1 : 0));
    figures.under.set(count(under), { unit: `of ${facts.partitions.length}`, state: under ? "warn" : "" });
  });
}

const held = (row) => (row.end_offset === null || row.start_offset === null ? null : row.end_offset - row.start_offset);

function replicas(row) {
  return chips(row.replicas.map((node) => badge(`${node}`, row.in_sync.includes(node) ? "good" : "warn")).concat(
    row.in_sync.length < row.replicas.length ? h("span", { class: "muted" }, `${row.in_sync.length} of ${row.replicas.length} in sync`) : []));
}

async function segments(place, { api, facts, signal }) {
  const errors = h("div");
  const choice = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "All partitions"), facts.partitions.map((one) => h("option", { value: one.partition }, `Partition ${one.partition}`)));
  const none = h("div");
  const grid = table([
    { label: "Partition", class: "num", cell: (row) => row.partition },
    { label: "Offsets", class: "tight", cell: (row) => `${count(row.start_offset)} – ${row.end_offset === null ? "…" : count(row.end_offset)}` },
    { label: "State", class: "tight", cell: (row) => badge(row.state, row.state === "open" ? "accent" : "") },
    { label: "Size", class: "num", cell: (row) => bytes(row.size_bytes) },
    { label: "On nodes", class: "tight", cell: (row) => chips(row.nodes.map((node) => badge(`${node}`))) },
    { label: "Newest record", class: "tight wide-only", cell: (row) => newest(row) },
  ], { caption: "Segments", key: (row) => `${row.partition}/${row.start_offset}/${row.state}`, empty: none });
  show(place, errors, panel("Segments and where they live", { note: "Sealed ones never change; each partition has one that is open.", tools: [choice] }, grid.element));
  let all = [];
  const draw = () => grid.update(all.filter((row) => choice.value === "" || row.partition === Number(choice.value)));
  choice.addEventListener("change", draw);
  await live(errors, 5000, signal, async () => {
    const told = await get(`${api}/segments`, signal).catch((error) => {
      if (error.status !== 404) throw error;
      return { segments: [], why: error.message };
    });
    show(none, told.why ? empty("Not known", told.why) : empty("No segments told", "The broker that this gateway asks told of none."));
    all = told.segments;
    draw();
  });
}

function newest(row) {
  const at = row.last_timestamp ?? row.first_timestamp;
  return at == null ? "–" : h("span", { title: time(at) }, ago(at));
}

async function deleteTopic(name, api, signal) {
  const sure = await confirm({
    title: `Delete ${name}?`, text: "All its records are gone for good, for every group that reads them.",
    action: "Delete topic", word: name, danger: true,
  });
  if (!sure) return;
  try {
    await request("DELETE", api);
    toast(`Topic ${name} is deleted.`);
    if (!signal.aborted) location.hash = "#/topics";
  } catch (error) {
    failed(error);
  }
}

export const topicLink = (name, ...rest) => link(name, "topics", name, ...rest);
