// Groups and queues: who reads, and how far behind they are.

import { get } from "../api.js";
import { h, link, show } from "../dom.js";
import { count } from "../format.js";
import { badge, empty, head, live, panel, stateBadge, table } from "../widgets.js";

const MAX_ROWS = 500;

export async function groups(main, { signal }) {
  const errors = h("div");
  const search = h("input", { type: "search", placeholder: "Find a group ( / )", "aria-label": "Find a group" });
  const kind = h("select", { "aria-label": "Kind" }, [["", "All kinds"], ["stream", "Streams"], ["queue", "Queues"]].map(([id, label]) => h("option", { value: id }, label)));
  const grid = table([
    { label: "Name", class: "name", cell: (row) => link(row.name, "groups", row.name) },
    { label: "Kind", class: "tight", cell: (row) => (isQueue(row) ? badge("queue", "accent") : badge("stream")) },
    { label: "State", class: "tight", cell: (row) => stateBadge(row.state) },
    { label: "Members", class: "num", cell: (row) => count(row.members) },
    { label: "Lag", class: "num", cell: (row) => lag(row) },
  ], { caption: "Groups and queues", empty: empty("No groups yet", "A group appears when somebody reads with its name; a queue when somebody asks for one:", ["headwater consume orders --group billing", "headwater subscription create orders billing --queue"]) });
  show(main, head("Groups and queues"), errors, panel("All groups", { tools: [search, kind] }, grid.element));
  let all = [];
  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = (row) => row.name.toLowerCase().includes(wanted) && (kind.value === "" || isQueue(row) === (kind.value === "queue"));
    grid.update(all.filter(fits).slice(0, MAX_ROWS));
  };
  search.addEventListener("input", draw);
  kind.addEventListener("change", draw);
  await live(errors, 3000, signal, async () => {
    all = (await get("/v1/groups", signal)).groups.sort((a, b) => a.name.localeCompare(b.name));
    draw();
  });
}

export const isQueue = (group) => group.kind === "share" || group.kind === "queue";

function lag(row) {
  return [count(row.lag), row.lag > 0 && row.members === 0 && [" ", h("span", { title: "Nobody reads." }, badge("no readers", "warn"))],
    row.unknown_partitions > 0 && h("div", { class: "muted", title: "What they hold is counted from where the group would begin; partitions without a leader are not counted." }, withoutPosition(row.unknown_partitions))];
}

export const withoutPosition = (partitions) => `${count(partitions)} ${partitions === 1 ? "partition" : "partitions"} without a position`;
