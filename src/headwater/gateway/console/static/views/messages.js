// The records of a topic: by offset, time or key, page by page, or live.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { count, time } from "../format.js";
import { empty, failed, field, notice, panel } from "../widgets.js";
import { MAX_PARTITIONS, Pages } from "./paging.js";
import { keyCell, openable, valueCell } from "./record.js";

const TAIL_EVERY_MS = 1000;
// On a phone the day is left out: the record in full has it.
const moments = (at) => {
  const [day, clock = ""] = time(at).split(" ");
  return clock ? [h("span", { class: "wide-only" }, `${day} `), clock] : day;
};
const SIZES = [25, 50, 100, 250];
const PLACES = [["newest", "Newest"], ["beginning", "Oldest"], ["offset", "Offset"], ["time", "Time"]];

export async function messages(place, { name, api, facts, query, signal }) {
  const all = facts.partitions;
  const tooMany = all.length > MAX_PARTITIONS;
  const partition = h("select", {}, !tooMany && h("option", { value: "" }, "All"), all.map((one) => h("option", { value: one.partition }, String(one.partition))));
  const from = h("select", {}, PLACES.map(([id, label]) => h("option", { value: id }, label)));
  const offset = h("input", { type: "number", min: "0", step: "1", value: "0" });
  const moment = h("input", { type: "datetime-local", step: "1" });
  const key = h("input", { placeholder: "exactly", autocomplete: "off" });
  const size = h("select", {}, SIZES.map((one) => h("option", { value: one, selected: one === 50 }, String(one))));
  const decode = h("input", { type: "checkbox", checked: true });
  const tail = h("button", { type: "button", "aria-pressed": "false" }, "Live");
  const offsetField = field({ hidden: true }, "Offset", offset);
  const timeField = field({ hidden: true }, "Since", moment);
  const tools = h("form", { class: "tools", "aria-label": "Which messages" },
    field({}, "Partition", partition), field({}, "Start at", from), offsetField, timeField,
    field({}, "Key", key), field({}, "At once", size),
    h("label", { class: "check" }, decode, "Decode"),
    h("button", { type: "submit", class: "primary" }, "Read"), tail);
  const body = h("tbody");
  const columns = [["", ""], ["Time", "tight"], ["Partition", "num wide-only"], ["Offset", "num"], ["Key", "key"], ["Value", "value"]];
  const grid = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Messages" },
    h("table", { class: "messages" }, h("caption", { class: "visually-hidden" }, "Messages, the newest first"),
      h("thead", {}, h("tr", {}, columns.map(([label, kind]) => h("th", { scope: "col", class: kind }, label || h("span", { class: "visually-hidden" }, "Open"))))), body));
  const older = h("button", { type: "button" }, "← Older");
  const newer = h("button", { type: "button" }, "Newer →");
  const told = h("span", { class: "note", role: "status" });
  const rest = h("div");
  show(place, panel("Messages", { note: "The newest first. Looking moves no group." }, tools, rest, grid, h("div", { class: "pager" }, older, newer, told)));

  let pages = null;
  let shown = [];
  let tailing = null;
  if (query.has("partition")) partition.value = query.get("partition");
  if (query.has("offset")) { from.value = "offset"; offset.value = query.get("offset"); }
  adapt();

  function adapt() {
    offsetField.hidden = from.value !== "offset";
    timeField.hidden = from.value !== "time";
  }

  async function open() {
    stopTail();
    const chosen = all.filter((one) => partition.value === "" || one.partition === Number(partition.value));
    const opened = new Pages(api, { partitions: chosen, size: Number(size.value), key: key.value, decode: decode.checked }, signal);
    pages = opened;
    await refresh(opened);
    await turn(opened, () => {
      if (from.value === "offset") return opened.at(Number(offset.value));
      if (from.value === "time" && moment.value) return opened.from(new Date(moment.value).toISOString());
      return from.value === "newest" && !key.value ? opened.newest() : opened.from("beginning");
    });
  }

  async function refresh(pages) {
    // Ends and beginnings as they are now: the topic may have grown, or been cleaned, since the tab was opened.
    const now = new Map((await get(api, signal)).partitions.map((one) => [one.partition, one]));
    for (const one of pages.partitions) {
      const facts = now.get(one);
      if (!facts) continue;
      pages.start.set(one, facts.start_offset ?? 0);
      pages.ends.set(one, facts.end_offset ?? 0);
    }
  }

  // Someone may ask for other pages while these are read: what was asked for last is shown, whatever arrives last.
  async function turn(asked, read) {
    if (asked !== pages) return;
    for (const button of [older, newer]) button.disabled = true;
    let found = null;
    try {
      found = await read();
    } catch (error) {
      if (!signal.aborted && asked === pages) show(rest, notice(error, open));
    }
    if (asked !== pages) return;
    if (found) {
      shown = found;
      draw();
    }
    older.disabled = !pages.hasOlder;
    newer.disabled = !pages.hasNewer;
  }

  function draw(fresh = new Set()) {
    const isEmpty = shown.length === 0;
    grid.hidden = isEmpty;
    show(rest, isEmpty && nothing());
    show(body, [...shown].reverse().flatMap((record) => rows(record, fresh.has(record))));
    told.textContent = isEmpty ? "" : `${count(shown.length)} shown${pages.key && pages.hasNewer ? "; the search goes on with Newer" : ""}`;
  }

  function nothing() {
    if (pages.key && pages.hasNewer) return empty("Not found so far", "The search stopped after a while. Newer goes on from there.");
    if (pages.key) return empty("No record has this key", "Keys are compared exactly, as text.");
    if (pages.hasOlder) return empty("Nothing from here on", "There are older records. Live waits for new ones.");
    return empty("No records", "Write one in the tab Produce, or:", [`echo hello | headwater produce ${name}`]);
  }

  function rows(record, isFresh) {
    return openable(record, `Record ${record.partition}/${record.offset}`, columns.length, (opener) => h("tr", { class: isFresh ? "fresh" : null },
      h("td", {}, opener), h("td", { class: "tight" }, moments(record.timestamp)), h("td", { class: "num wide-only" }, record.partition),
      h("td", { class: "num" }, count(record.offset)), h("td", { class: "key" }, keyCell(record)), h("td", { class: "value" }, valueCell(record))));
  }

  function stopTail() {
    clearTimeout(tailing);
    tailing = null;
    tail.setAttribute("aria-pressed", "false");
    tail.textContent = "Live";
  }

  async function follow() {
    try {
      if (!document.hidden) {
        const followed = pages;
        const fresh = await followed.arrived();
        if (tailing === null || followed !== pages || signal.aborted) return;
        if (fresh.length) {
          shown = [...shown, ...fresh].slice(-pages.size);
          for (const one of pages.partitions) {
            const own = shown.filter((record) => record.partition === one);
            pages.low.set(one, own.length ? own[0].offset : pages.high.get(one));
          }
          if (!body.querySelector("[aria-expanded=true]")) draw(new Set(fresh));
          older.disabled = !pages.hasOlder;
        }
        newer.disabled = true;
        told.textContent = `Live · ${count(shown.length)} shown${body.querySelector("[aria-expanded=true]") ? " · held while a record is open" : ""}`;
      }
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
      stopTail();
      return;
    }
    tailing = setTimeout(follow, TAIL_EVERY_MS);
  }

  tail.addEventListener("click", async () => {
    if (tailing !== null) {
      stopTail();
      await refresh(pages);
      newer.disabled = !pages.hasNewer;
      return;
    }
    from.value = "newest";
    key.value = "";
    adapt();
    await open();
    tail.setAttribute("aria-pressed", "true");
    tail.textContent = "Live ●";
    tailing = setTimeout(follow, 0);
  });
  older.addEventListener("click", () => { stopTail(); turn(pages, () => pages.older()); });
  newer.addEventListener("click", () => turn(pages, () => pages.newer()));
  from.addEventListener("change", adapt);
  tools.addEventListener("submit", (event) => { event.preventDefault(); open().catch((error) => signal.aborted || failed(error)); });
  signal.addEventListener("abort", stopTail, { once: true });
  await open();
}
