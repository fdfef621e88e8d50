// All topics: find one, make one.

import { request } from "../api.js";
import { h, link, path, show } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { latest, watchRates } from "../rates.js";
import { badge, confirm, failed, field, head, outcome, panel, sparkline, table, toast } from "../widgets.js";
import { noTopics } from "./overview.js";

const MAX_ROWS = 500;

export function topics(main, { signal, query }) {
  const errors = h("div");
  const search = h("input", { type: "search", placeholder: "Find a topic ( / )", "aria-label": "Find a topic", value: query.get("q") ?? "" });
  const internal = h("input", { type: "checkbox" });
  const create = h("button", { type: "button", class: "primary", on: { click: () => createTopic(signal) } }, "New topic");
  const more = h("div", { class: "pager", hidden: true });
  let state = null;
  const grid = table([
    { label: "Name", class: "name", cell: (row) => [link(row.name, "topics", row.name), row.internal && [" ", badge("internal")]] },
    { label: "Partitions", class: "num", cell: (row) => count(row.partitions) },
    { label: "Replicas", class: "num wide-only", cell: (row) => count(row.replication_factor) },
    { label: "Records", class: "num", cell: (row) => [count(row.records), row.unknown_partitions > 0 && h("div", { class: "muted" }, `without ${count(row.unknown_partitions)} that nobody leads`)] },
    { label: "Size", class: "num wide-only", cell: (row) => bytes(row.size_bytes) },
    { label: "In/s", class: "num", cell: (row) => rate(row.series ? latest(row.series.recordsIn) : null) },
    { label: "Lately", class: "num wide-only", cell: (row) => drawn(row) },
  ], { caption: "Topics", empty: h("div", {}, noTopics()) });
  const none = h("div", { class: "empty", hidden: true }, "No topic has that in its name.");
  show(main, head("Topics", { tools: [create] }), errors,
    panel("All topics", { tools: [search, h("label", { class: "check" }, internal, "Internal ones")] }, grid.element, none, more));

  function draw() {
    if (!state) return;
    outcome(errors, state.error);
    const wanted = search.value.trim().toLowerCase();
    const all = state.topics.filter((topic) => internal.checked || !topic.internal);
    const rows = all.filter((topic) => topic.name.toLowerCase().includes(wanted)).sort((a, b) => a.name.localeCompare(b.name));
    grid.element.hidden = all.length > 0 && rows.length === 0;
    none.hidden = !grid.element.hidden;
    grid.update(rows.slice(0, MAX_ROWS).map((topic) => ({ ...topic, series: state.rates.get(topic.name) })));
    more.hidden = rows.length <= MAX_ROWS;
    more.textContent = `${count(rows.length - MAX_ROWS)} more: search for them.`;
  }
  search.addEventListener("input", draw);
  internal.addEventListener("change", draw);
  watchRates((now) => { state = now; draw(); }, signal);
}

function drawn(row) {
  const line = sparkline(`Records per second of ${row.name}`, { small: true });
  if (row.series) line.draw(row.series.recordsIn);
  return line.element;
}

async function createTopic(signal) {
  const given = await confirm({
    title: "New topic", text: "More partitions let more consumers share the work.", action: "Create",
    fields: h("div", { class: "form" },
      field({}, "Name", h("input", { name: "name", required: true, maxlength: "249", pattern: "[a-zA-Z0-9._\\-]+", autocomplete: "off", autofocus: true })),
      h("div", { class: "row" },
        field({ class: "grow" }, "Partitions", h("input", { name: "partitions", type: "number", min: "1", max: "10000", value: "3" })),
        field({ class: "grow" }, "Replicas (empty: the cluster's default)", h("input", { name: "replication", type: "number", min: "1", max: "100" })))),
  });
  if (!given) return;
  try {
    const body = { name: given.name, partitions: Number(given.partitions) };
    if (given.replication) body.replication_factor = Number(given.replication);
    await request("POST", "/v1/topics", { body });
    toast(`Topic ${given.name} is there.`);
    if (!signal.aborted) location.hash = `#/${path("topics", given.name)}`;
  } catch (error) {
    failed(error);
  }
}
