// The registry: subjects, their versions, and what changed from one to the next.

import { get, isGone } from "../api.js";
import { h, link, path, show } from "../dom.js";
import { count, pretty } from "../format.js";
import { badge, copyButton, empty, head, notice, panel, table } from "../widgets.js";
import { lineDiff } from "./diff.js";

export async function schemas(main, { parts: [subject], signal }) {
  if (subject !== undefined) return one(main, subject, signal);
  const errors = h("div");
  const search = h("input", { type: "search", placeholder: "Find a subject ( / )", "aria-label": "Find a subject" });
  const grid = table([{ label: "Subject", class: "name", cell: (row) => link(row.name, "schemas", row.name) }],
    { caption: "Subjects", empty: empty("No schemas yet", "Clients of Confluent's registry register them here; so does curl:", [`curl ${location.origin}/subjects/orders-value/versions \\`, `  -H 'Content-Type: application/json' -d '{"schema": "\\"string\\""}'`]) });
  const level = h("span", {});
  show(main, head("Schemas"), errors, panel("Subjects", { note: level, tools: [search] }, grid.element));
  try {
    const [subjects, config] = await Promise.all([get("/subjects", signal), get("/config", signal)]);
    level.textContent = `Compatibility unless a subject says otherwise: ${config.compatibilityLevel}`;
    const draw = () => grid.update(subjects.filter((name) => name.toLowerCase().includes(search.value.trim().toLowerCase())).sort().slice(0, 1000).map((name) => ({ name })));
    search.addEventListener("input", draw);
    draw();
  } catch (error) {
    if (signal.aborted) return;
    show(errors, isGone(error) ? notice(Object.assign(error, { message: "This gateway has no registry." })) : notice(error));
  }
}

async function one(main, subject, signal) {
  const place = h("div");
  const badges = h("span", { class: "chips" });
  show(main, head(subject, { where: [h("a", { href: "#/schemas" }, "Schemas"), " / "], badges }), place);
  const api = `/subjects/${path(subject)}/versions`;
  let versions;
  try {
    versions = await get(api, signal);
  } catch (error) {
    if (!isGone(error)) throw error;
    show(place, panel("Not here", {}, empty(`There is no subject ${subject}`, "It may have been deleted.")));
    return;
  }
  const config = await get(`/config/${path(subject)}?defaultToGlobal=true`, signal).catch(() => null);
  show(badges, config && badge(config.compatibilityLevel, "accent"), badge(`${count(versions.length)} ${versions.length === 1 ? "version" : "versions"}`));
  const cache = new Map();
  const load = async (version) => {
    if (!cache.has(version)) cache.set(version, await get(`${api}/${version}`, signal));
    return cache.get(version);
  };
  const options = () => [...versions].reverse().map((version) => h("option", { value: version }, `Version ${version}`));
  const chosen = h("select", { "aria-label": "Version" }, options());
  const against = h("select", { "aria-label": "Compare with" }, h("option", { value: "" }, "Compare with…"), options());
  const note = h("span", {});
  const body = h("div", { class: "panel-body" });
  show(place, panel("Schema", { note, tools: [chosen, against] }, body));
  const draw = async () => {
    const schema = await load(chosen.value);
    const text = pretty(schema.schema);
    note.textContent = `${schema.schemaType ?? "AVRO"} · id ${schema.id}`;
    if (against.value && against.value !== chosen.value) {
      const other = await load(against.value);
      show(body, h("p", { class: "hint" }, `From version ${against.value} to version ${chosen.value}.`), diffView(lineDiff(pretty(other.schema), text)));
    } else {
      show(body, h("div", { class: "part-head" }, copyButton(() => schema.schema)), h("pre", { class: "body", tabindex: "0" }, text));
    }
  };
  const redraw = () => draw().catch((error) => signal.aborted || show(body, notice(error, redraw)));
  chosen.addEventListener("change", redraw);
  against.addEventListener("change", redraw);
  await redraw();
}

function diffView(lines) {
  const marks = { added: "+ ", removed: "- ", same: "  " };
  return h("div", { class: "diff body", tabindex: "0", role: "group", "aria-label": "Changes" }, lines.map(({ kind, text }) => h("div", { class: kind }, marks[kind] + text)));
}
