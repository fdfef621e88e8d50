// One record by hand.

import { request } from "../api.js";
import { h, path, show } from "../dom.js";
import { failed, field, panel, toast } from "../widgets.js";

const KINDS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["null", "Nothing (tombstone)"]];

export function produce(place, { name, api, facts }) {
  const key = h("input", { name: "key", autocomplete: "off" });
  const partition = h("select", {}, h("option", { value: "" }, "By key"), facts.partitions.map((one) => h("option", { value: one.partition }, String(one.partition))));
  const kind = h("select", {}, KINDS.map(([id, label]) => h("option", { value: id }, label)));
  const value = h("textarea", { rows: "8", spellcheck: "false", name: "value" });
  const headers = h("textarea", { rows: "2", spellcheck: "false", placeholder: "name: value" });
  const problem = h("p", { class: "bad-text", role: "alert" });
  const send = h("button", { type: "submit", class: "primary" }, "Send");
  const form = h("form", { class: "form panel-body" },
    h("div", { class: "row" }, field({ class: "grow" }, "Key (empty: none)", key), field({}, "Partition", partition), field({}, "Value is", kind)),
    field({}, "Value", value),
    field({}, "Headers, one a line", headers),
    problem, h("div", { class: "actions" }, send, h("span", { class: "hint" }, "Ctrl+Enter sends, too.")));
  show(place, panel("Produce a test message", { note: "It is a real record: every reader of the topic gets it." }, form));
  kind.addEventListener("change", () => { value.disabled = kind.value === "null"; });
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    let record;
    try {
      record = read();
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    send.disabled = true;
    try {
      const { records: [written] } = await request("POST", `${api}/records`, { body: record });
      if (written.error) throw Object.assign(new Error(written.error.message), { title: written.error.code });
      const at = `#/${path("topics", name, "messages")}?partition=${written.partition}&offset=${written.offset}`;
      toast(`Written to partition ${written.partition} at offset ${written.offset}.`, { more: h("a", { href: at }, "Show it") });
    } catch (error) {
      failed(error);
    } finally {
      send.disabled = false;
    }
  });

  function read() {
    const record = {};
    if (key.value) record.key = key.value;
    if (partition.value) record.partition = Number(partition.value);
    if (kind.value === "null") record.value = null;
    else if (kind.value === "base64") record.value_base64 = value.value.replace(/\s/g, "");
    else if (kind.value === "json") {
      try {
        JSON.parse(value.value);
      } catch (error) {
        throw new Error(`The value is not JSON: ${error.message}`);
      }
      record.value = value.value; // as it was typed: numbers of any size stay what they are
    } else record.value = value.value;
    const lines = headers.value.split("\n").filter((line) => line.trim());
    if (lines.length) record.headers = lines.map((line) => {
      const [header, ...rest] = line.split(":");
      if (rest.length === 0) throw new Error(`A header is "name: value", not "${line}".`);
      return { name: header.trim(), value: rest.join(":").trim() };
    });
    return record;
  }
}
