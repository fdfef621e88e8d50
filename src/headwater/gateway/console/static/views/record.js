// One record: as a line, and in full. Whatever is in it is shown as text.

import { h } from "../dom.js";
import { bytes, oneLine, pretty, time } from "../format.js";
import { badge, copyButton, facts } from "../widgets.js";

const NOTHING = (text) => h("span", { class: "muted" }, text);

export function keyCell(record) {
  if (record.key_base64 != null) return h("span", { class: "clip", title: "Not text: in base64" }, record.key_base64);
  return record.key == null ? NOTHING("–") : h("span", { class: "clip" }, oneLine(record.key, 100));
}

export function valueCell(record) {
  if (record.value_base64 != null) return h("span", { class: "clip muted" }, `${bytes(record.size)} that are not text`);
  return record.value === null && !record.schema ? NOTHING("tombstone") : h("span", { class: "clip" }, oneLine(record.value));
}

// A line that shows its record beneath it, by its button or by a click anywhere on it. Marking text is not a click.
export function openable(record, label, columns, row) {
  const detail = h("tr", { class: "detail", hidden: true }, h("td", { colspan: columns }));
  const opener = h("button", { type: "button", class: "open", "aria-expanded": "false", "aria-label": label });
  const toggle = () => {
    const isOpen = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!isOpen));
    detail.hidden = isOpen;
    if (!isOpen && !detail.firstChild.hasChildNodes()) detail.firstChild.append(recordDetail(record));
  };
  const line = row(opener);
  line.classList.add("openable");
  line.addEventListener("click", (event) => {
    const other = event.target.closest("a, button, input");
    if (other ? other === opener : getSelection().isCollapsed) toggle();
  });
  return [line, detail];
}

export function recordDetail(record) {
  return h("div", {},
    part("Value", valueText(record), record.schema && badge(`${record.schema.type}${record.schema.subject ? ` · ${record.schema.subject}` : ""}${record.schema.version ? ` v${record.schema.version}` : ""} · id ${record.schema.id}`, "accent")),
    (record.headers ?? []).length > 0 && h("div", {}, h("h3", {}, "Headers"), h("div", { class: "body" }, facts(record.headers.map((header) => [h("code", {}, header.name), h("code", {}, header.value_base64 != null ? `${header.value_base64} (base64)` : header.value ?? "(nothing)")])))),
    h("div", { class: "part-head" }, h("span", { class: "muted" }, `Partition ${record.partition} · offset ${record.offset} · ${time(record.timestamp)} · ${record.timestamp} · ${bytes(record.size)}`),
      copyButton(() => JSON.stringify(record, null, 2), "Copy record as JSON"), record.key != null && copyButton(() => String(record.key), "Copy key")));
}

function valueText(record) {
  if (record.value_base64 != null) return `${record.value_base64}`;
  return record.value === null && !record.schema ? "" : pretty(record.value);
}

function part(title, text, more) {
  return h("div", {}, h("div", { class: "part-head" }, h("h3", {}, title), more, text && copyButton(() => text)),
    h("pre", { class: "body", tabindex: "0" }, text || "(nothing: a tombstone)"));
}
