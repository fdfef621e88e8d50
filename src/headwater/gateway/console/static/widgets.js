// What the views are made of.

import { ApiError } from "./api.js";
import { h, show, svg } from "./dom.js";
import { meaning, time } from "./format.js";

const LATE_MS = 3000;

export function head(title, { where, tools = [], badges = [] } = {}) {
  document.title = `${title} · Headwater`;
  return h("div", { class: "head" }, where && h("div", { class: "where" }, where), h("h1", {}, title), badges, h("span", { class: "spacer" }), tools);
}

export function panel(title, { note, tools = [], id } = {}, ...body) {
  return h("section", { class: "panel", id, "aria-label": title },
    h("div", { class: "panel-head" }, h("h2", {}, title), note && h("span", { class: "note" }, note), h("span", { class: "spacer" }), tools), body);
}

export function stat(label, { trend = false } = {}) {
  const figure = h("span", {});
  const unit = h("span", { class: "unit" });
  const line = trend ? sparkline(label) : null;
  const element = h("div", { class: "stat" }, h("div", { class: "label" }, label), h("div", { class: "figure" }, figure, " ", unit), line?.element);
  return {
    element,
    set(text, { unit: unitText = "", state = "", values } = {}) {
      figure.textContent = text;
      unit.textContent = unitText;
      element.className = `stat ${state}`;
      if (values) line?.draw(values);
    },
  };
}

// A line of the last values. Its width is that of its place; the newest is on the right.
export function sparkline(label, { small = false, points = 45 } = {}) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const element = svg("svg", { class: small ? "spark small" : "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": `${label}, lately` }, area, line);
  if (!small) element.setAttribute("hidden", ""); // until there is a line to see
  return {
    element,
    draw(values) {
      const shown = values.slice(-points).map((value) => value ?? 0);
      if (shown.length < 2 || values.every((value) => value == null)) return;
      element.removeAttribute("hidden");
      const top = Math.max(...shown, 1e-9);
      const step = 100 / (points - 1);
      const left = 100 - step * (shown.length - 1);
      const places = shown.map((value, index) => `${(left + index * step).toFixed(2)} ${(29 - (value / top) * 27).toFixed(2)}`);
      line.setAttribute("d", `M${places.join("L")}`);
      area.setAttribute("d", `M${left.toFixed(2)} 30L${places.join("L")}L100 30Z`);
    },
  };
}

// Rows keep their elements while their cells say the same, so that a refresh takes neither focus nor selection away.
export function table(columns, { caption, key = (row) => row.name, empty } = {}) {
  const body = h("tbody");
  const header = columns.map((column) => h("th", { scope: "col", class: column.class }, column.label));
  const grid = h("table", {}, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, h("tr", {}, header)), body);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, grid);
  const rest = h("div", { hidden: true }, empty);
  const known = new Map();
  return {
    element: h("div", {}, scroll, rest),
    update(rows) {
      const seen = new Set();
      rows.forEach((row, index) => {
        const id = String(key(row));
        seen.add(id);
        let line = known.get(id);
        if (!line) known.set(id, (line = h("tr")));
        columns.forEach((column, place) => {
          const cell = h("td", { class: column.class }, column.cell(row));
          const old = line.children[place];
          if (!old) line.append(cell);
          else if (!old.isEqualNode(cell)) old.replaceWith(cell);
        });
        if (body.children[index] !== line) body.insertBefore(line, body.children[index] ?? null);
      });
      for (const [id, line] of known) if (!seen.has(id)) { line.remove(); known.delete(id); }
      scroll.hidden = rows.length === 0 && Boolean(empty);
      rest.hidden = !scroll.hidden;
    },
  };
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

const GOOD = new Set(["stable", "active", "running", "ok", "live"]);
const BAD = new Set(["dead", "failed", "lost", "offline", "error"]);
export function stateBadge(state) {
  const word = String(state ?? "unknown").toLowerCase().replaceAll("_", " ");
  return badge(word, GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : word === "empty" ? "" : "warn");
}

export const chips = (items) => h("div", { class: "chips" }, items);

export function empty(title, text, commands = []) {
  return h("div", { class: "empty" }, h("h3", {}, title), text && h("p", {}, text), commands.length > 0 && h("pre", {}, commands.join("\n")));
}

export function notice(error, again) {
  const known = error instanceof ApiError;
  return h("div", { class: "notice", role: "alert" }, h("b", {}, known ? error.title : "This page failed"), h("span", {}, error.message), again && h("button", { type: "button", class: "small", on: { click: again } }, "Try again"));
}

let fields = 0;

// A control and its label. Beside it, not around it: the options of a select are no part of its name.
export function field(props, label, control) {
  control.id ||= `field-${++fields}`;
  return h("div", { ...props, class: `field ${props.class ?? ""}` }, h("label", { for: control.id }, label), control);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// A value as it is, and what it means.
export function settingValue(name, value) {
  if (value === null || value === undefined || value === "") return h("span", { class: "muted" }, "(empty)");
  const words = meaning(name, value);
  return [String(value), words && h("span", { class: "muted" }, ` · ${words}`)];
}

export function toast(text, { bad = false, more } = {}) {
  const close = h("button", { type: "button", class: "quiet small", "aria-label": "Dismiss" }, "×");
  const element = h("div", { class: bad ? "toast bad" : "toast" }, h("div", {}, text, more && [" ", more]), close);
  close.addEventListener("click", () => element.remove());
  const place = document.getElementById("toasts");
  while (place.children.length > 3) place.firstChild.remove();
  place.append(element);
  if (!bad) setTimeout(() => element.remove(), 6000);
}

export const failed = (error) => toast(`${error.title ? error.title + ": " : ""}${error.message}`, { bad: true });

// As if they had been cancelled.
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

// Asks before something that cannot be undone. With `word`, that word must be typed.
export function confirm({ title, text, action, word, danger = false, fields: asked = [] }) {
  return new Promise((resolve) => {
    const typed = word && h("input", { autocomplete: "off", spellcheck: "false", "aria-label": `Type ${word}` });
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: Boolean(word) }, action);
    typed?.addEventListener("input", () => { go.disabled = typed.value !== word; });
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text), asked,
      word && field({}, `Type ${word} to confirm`, typed), h("div", { class: "actions" }, cancel, go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let answer = null;
    form.addEventListener("submit", () => { answer = Object.fromEntries(new FormData(form)); });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { dialog.remove(); resolve(answer); });
    document.body.append(dialog);
    dialog.showModal();
    (typed ?? cancel).focus();
  });
}

export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "small" }, label);
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      // Without TLS there is no clipboard API; the old way still works.
      const area = h("textarea", { class: "visually-hidden", value: text() });
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = done ? "Copied" : "Cannot copy";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}

const behind = new Map(); // what failed, and what is told of it there
let answeredAt = null;

// What became of the last attempt to learn what a page shows. While any failed its figures are those of before, and grey.
// What two attempts failed of is told once.
export function outcome(place, error, again) {
  behind.delete(place);
  if (!error) answeredAt = Date.now();
  const isTold = [...behind.values()].includes(error?.message);
  if (error) behind.set(place, isTold ? null : error.message);
  show(place, error && error.status !== 401 && !isTold && notice(error, again));
  tellBehind();
}

// Of a page that begins.
export function upToDate() {
  behind.clear();
  answeredAt = null;
  tellBehind();
}

function tellBehind() {
  const main = document.getElementById("main");
  const told = document.getElementById("connection");
  const isBehind = behind.size > 0;
  if (isBehind === main.classList.contains("behind")) return;
  main.classList.toggle("behind", isBehind);
  told.textContent = !isBehind ? "" : answeredAt === null ? "No answer" : `As of ${time(answeredAt).split(" ")[1]}`;
}

// Runs `load` now and every `everyMs` while the page is visible, until the view is left. An error is shown in `place` and
// goes away with the next success.
export async function live(place, everyMs, signal, load) {
  let wake = () => {};
  const again = () => wake();
  document.addEventListener("visibilitychange", again, { signal });
  while (!signal.aborted) {
    const late = setTimeout(() => signal.aborted || outcome(place, new ApiError(0, "No answer yet", "What is shown is of before.")), everyMs + LATE_MS);
    try {
      if (!document.hidden) {
        await load();
        if (!signal.aborted) outcome(place);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) console.error(error);
      outcome(place, error, again);
    } finally {
      clearTimeout(late);
    }
    await new Promise((resolve) => { wake = resolve; setTimeout(resolve, everyMs); signal.addEventListener("abort", resolve, { once: true }); });
  }
}
