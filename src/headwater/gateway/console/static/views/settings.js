// The settings of a topic: what differs from the cluster's defaults first, each editable in its place.

import { get, request } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, count, duration, meaning } from "../format.js";
import { badge, confirm, failed, field, panel, settingValue, stat, toast } from "../widgets.js";

export async function settings(place, { name, api, facts, signal }) {
  const retention = { time: stat("Kept for"), size: stat("Kept up to, per partition"), policy: stat("What becomes of old records") };
  const search = h("input", { type: "search", placeholder: "Find a setting ( / )", "aria-label": "Find a setting" });
  const list = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Settings" });
  const grow = h("button", { type: "button", on: { click: addPartitions } }, "Add partitions");
  show(place, h("div", { class: "stats" }, Object.values(retention).map((one) => one.element)),
    panel("Settings", { note: "Changes take effect at once.", tools: [search, grow] }, list));
  let config = facts.config;
  let partitions = facts.partitions.length;
  search.addEventListener("input", draw);
  draw();

  function draw() {
    const value = (key) => config.find((one) => one.name === key)?.value;
    const told = (key, shown) => { const given = value(key) ?? null; return given === null ? "–" : meaning(key, given) ?? shown(Number(given)); };
    retention.time.set(told("retention.ms", duration));
    retention.size.set(told("retention.bytes", bytes));
    retention.policy.set(value("cleanup.policy") === "" ? "none: kept for ever" : value("cleanup.policy") ?? "–");
    const wanted = search.value.trim().toLowerCase();
    const rows = config.filter((one) => one.name.toLowerCase().includes(wanted)).sort((a, b) => a.is_default - b.is_default || a.name.localeCompare(b.name));
    show(list, rows.length === 0 ? h("div", { class: "empty" }, "No setting has that in its name.") :
      h("table", {}, h("caption", { class: "visually-hidden" }, "Settings"), h("thead", {}, h("tr", {}, ["Name", "Value", ""].map((label, place) => h("th", { scope: "col" }, label || h("span", { class: "visually-hidden" }, "Change"))))),
        h("tbody", {}, rows.map(line))));
  }

  function line(one) {
    const change = h("button", { type: "button", class: "small", "aria-label": `Change ${one.name}`, on: { click: () => edit(one) } }, "Change");
    const reset = !one.is_default && h("button", { type: "button", class: "small", "aria-label": `Reset ${one.name}`, on: { click: () => save(one.name, null) } }, "Reset");
    return h("tr", {},
      h("td", { class: "name" }, one.name, !one.is_default && [" ", badge("set here", "accent")]),
      h("td", { class: "mono" }, one.is_sensitive ? "(hidden)" : settingValue(one.name, one.value)),
      h("td", { class: "num" }, one.is_read_only ? h("span", { class: "muted" }, "read only") : h("div", { class: "actions" }, change, reset)));
  }

  async function edit(one) {
    const given = await confirm({
      title: one.name, text: `Of the topic ${name}.`, action: "Save",
      fields: field({}, "Value", h("input", { name: "value", value: one.value ?? "", autocomplete: "off", autofocus: true })),
    });
    if (given && given.value !== one.value) await save(one.name, given.value);
  }

  async function save(key, value) {
    try {
      config = (await request("PATCH", api, { body: { config: { [key]: value } } })).config;
      toast(value === null ? `${key} is back to the default.` : `${key} is ${value} now.`);
      draw();
    } catch (error) {
      failed(error);
    }
  }

  async function addPartitions() {
    const given = await confirm({
      title: "Add partitions", text: "A topic never has fewer again, and keys may go to other partitions than before.", action: "Add",
      fields: field({}, `Partitions (now ${count(partitions)})`, h("input", { name: "partitions", type: "number", min: partitions + 1, value: partitions + 1, required: true })),
    });
    if (!given) return;
    try {
      partitions = (await request("PATCH", api, { body: { partitions: Number(given.partitions) } })).partitions.length;
      toast(`The topic has ${partitions} partitions now.`);
    } catch (error) {
      failed(error);
    }
  }
}
