// Starts the console: navigation, the theme, logging in, and which view is shown. The address behind the # names the
// view, so that every view can be linked to and the browser's back works.

import { ApiError, get, request } from "./api.js";
import { h, show } from "./dom.js";
import { closeDialogs, field, head, notice, panel, upToDate } from "./widgets.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { nodes } from "./views/nodes.js";
import { overview } from "./views/overview.js";
import { pipelines } from "./views/pipelines.js";
import { schemas } from "./views/schemas.js";
import { topic } from "./views/topic.js";
import { topics } from "./views/topics.js";

const SECTIONS = [
  ["", "Overview", overview],
  ["topics", "Topics", topics, topic],
  ["groups", "Groups and queues", groups, group],
  ["nodes", "Nodes", nodes],
  ["pipelines", "Pipelines", pipelines],
  ["schemas", "Schemas", schemas, schemas],
];
const main = document.getElementById("main");
let leave = new AbortController();

function route() {
  const [way, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = way.split("/").filter(Boolean).map(decoded);
  const [section = "", ...rest] = parts;
  const found = SECTIONS.find(([name]) => name === section);
  leavePage();
  leave = new AbortController();
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.section === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = found && (rest.length > 0 ? found[3] : found[2]);
  const { signal } = leave;
  show(main);
  window.scrollTo(0, 0);
  if (!view) {
    show(main, head("Nothing here"), panel("No such page", {}, h("div", { class: "panel-body" }, h("a", { href: "#/" }, "Go to the overview"))));
    return;
  }
  Promise.resolve(view(main, { parts: rest, query: new URLSearchParams(query), signal })).catch((error) => {
    if (signal.aborted || error.status === 401) return;
    if (!(error instanceof ApiError)) console.error(error);
    main.append(notice(error, route));
  });
}

// What belongs to a page goes with it: its requests, its dialogs, and its word that it is behind.
function leavePage() {
  leave.abort();
  closeDialogs();
  upToDate();
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function login() {
  if (main.querySelector(".login")) return;
  leavePage();
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true });
  const wrong = h("div");
  const form = h("form", { class: "form panel-body" },
    field({}, "Token", token),
    h("p", { class: "hint" }, "It is in the file that http_token_file names on the gateway's machine."), wrong,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Log in")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await request("POST", "/v1/session", { body: { token: token.value } });
      route();
      tellCluster();
    } catch (error) {
      show(wrong, notice(error));
      token.select();
    }
  });
  document.title = "Log in · Headwater";
  show(main, h("div", { class: "login" }, panel("This gateway asks for its token", {}, form)));
  token.focus();
}

async function tellCluster() {
  try {
    const cluster = await get("/v1/cluster");
    document.getElementById("cluster").textContent = cluster.cluster_id;
  } catch {
    // The view says what is wrong.
  }
}

// Auto follows the system; the others are remembered by this browser.
const THEMES = ["auto", "light", "dark"];
function theme(chosen) {
  document.documentElement.dataset.theme = chosen;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[chosen];
  button.setAttribute("aria-label", `Colours: ${chosen}. Change`);
}

function remembered() {
  try {
    const found = localStorage.getItem("headwater-theme");
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  theme(next);
  try {
    localStorage.setItem("headwater-theme", next);
  } catch {
    // A browser that keeps nothing asks again next time.
  }
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", (event) => {
  const search = main.querySelector("input[type=search]");
  if (event.key === "/" && search && !/^(input|textarea|select)$/i.test(event.target.tagName)) {
    event.preventDefault();
    search.focus();
  }
});
document.addEventListener("headwater:login", login);
window.addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
});
theme(remembered());
show(document.getElementById("nav"), h("ul", {}, SECTIONS.map(([name, label]) => h("li", {}, h("a", { href: `#/${name}`, "data-section": name }, label)))));
route();
tellCluster();
