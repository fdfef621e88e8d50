// Pipelines, as their runs report themselves.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { ago, bytes, count, duration, rate } from "../format.js";
import { empty, head, live, panel, stateBadge, table } from "../widgets.js";

export async function pipelines(main, { signal }) {
  const errors = h("div");
  const place = h("div");
  const known = new Map();
  show(main, head("Pipelines"), errors, place);
  await live(errors, 3000, signal, async () => {
    const { pipelines: found } = await get("/v1/pipelines", signal);
    for (const [name, one] of known) if (!found.some((each) => each.pipeline === name)) { one.element.remove(); known.delete(name); }
    if (found.length === 0) {
      show(place, panel("None yet", {}, empty("No pipeline has run on this cluster", "A pipeline is a file that names sources, steps and sinks; Spark runs it.", ["headwater pipeline ready ecommerce --to pipelines", "headwater pipeline run pipelines/ecommerce.toml"])));
      return;
    }
    if (known.size === 0) show(place);
    for (const status of found) {
      if (!known.has(status.pipeline)) {
        known.set(status.pipeline, run(status));
        place.append(known.get(status.pipeline).element);
      }
      known.get(status.pipeline).update(status);
    }
  });
}

function run(status) {
  const state = h("span");
  const note = h("span");
  const wrong = h("div");
  const queries = table([
    { label: "Sink", class: "name", cell: (row) => row.query },
    { label: "Batch", class: "num", cell: (row) => (row.batch === null || row.batch < 0 ? "–" : count(row.batch)) },
    { label: "Rows", class: "num", cell: (row) => (row.batch === null && !row.rows ? "–" : count(row.rows)) },
    { label: "In/s", class: "num", cell: (row) => rate(row.rows_per_s) },
    { label: "Out/s", class: "num wide-only", cell: (row) => rate(row.processed_per_s) },
    { label: "Lag", class: "num", cell: (row) => count(row.lag) },
    { label: "Batch takes", class: "num wide-only", cell: (row) => (row.batch_ms === null ? "–" : duration(row.batch_ms)) },
    { label: "State", class: "num wide-only", cell: (row) => (row.state_rows ? `${count(row.state_rows)} rows, ${bytes(row.state_bytes)}` : "–") },
    { label: "Restarts", class: "num wide-only", cell: (row) => count(row.restarts) },
  ], { caption: `Sinks of ${status.pipeline}`, key: (row) => row.query, empty: h("p", { class: "panel-body muted" }, "No query has run.") });
  return {
    element: panel(status.pipeline, { note, tools: state }, wrong, queries.element),
    update(now) {
      show(state, stateBadge(now.state));
      note.textContent = `${now.file} · on ${now.host}, process ${now.pid} · started ${ago(now.started_ms)} · told ${ago(now.updated_ms)}`;
      show(wrong, now.error && h("pre", { class: "panel-body bad-text" }, now.error));
      queries.update(now.queries);
    },
  };
}
