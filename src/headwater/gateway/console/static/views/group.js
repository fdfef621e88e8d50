// One group or queue: its lag, its members and why some left; for a queue what is in flight and what it gave up on.

import { get, isGone, request } from "../api.js";
import { h, link, path, show } from "../dom.js";
import { ago, count, time } from "../format.js";
import { badge, chips, confirm, empty, facts, failed, field, head, live, notice, panel, settingValue, stat, stateBadge, table, toast } from "../widgets.js";
import { isQueue, withoutPosition } from "./groups.js";
import { keyCell, openable, valueCell } from "./record.js";

const DEAD_LETTERS = 50;

export async function group(main, { parts: [name], signal }) {
  const errors = h("div");
  const badges = h("span", { class: "chips" });
  const figures = { lag: stat("Lag", { trend: true }), members: stat("Members"), partitions: stat("Partitions") };
  const flight = stat("In flight");
  const lags = [];
  const members = table([
    { label: "Member", class: "name", cell: (row) => [row.client_id || "–", h("div", { class: "muted mono" }, row.id)] },
    { label: "Host", class: "mono", cell: (row) => row.host ?? "–" },
    { label: "Has", cell: (row) => assignment(row.assignment) },
  ], { caption: "Members", key: (row) => row.id, empty: empty("Nobody reads now", "The group keeps its position until somebody comes back.") });
  const positions = table([
    { label: "Topic", class: "name", cell: (row) => link(row.topic, "topics", row.topic) },
    { label: "Partition", class: "num", cell: (row) => row.partition },
    { label: "Position", class: "num", cell: (row) => count(row.committed) },
    { label: "End", class: "num", cell: (row) => count(row.end_offset) },
    { label: "In flight", class: "num", cell: (row) => count(row.inFlight) },
    { label: "Lag", class: "num", cell: (row) => lagBar(row) },
  ], { caption: "Positions", key: (row) => `${row.topic}/${row.partition}`, empty: empty("No position yet", "It has not finished any record.") });
  const noneLeft = h("div");
  const left = table([
    { label: "When", class: "tight", cell: (row) => h("span", { title: time(row.at) }, ago(row.at)) },
    { label: "Member", class: "name", cell: (row) => row.member },
    { label: "Why", cell: (row) => why(row.reason) },
  ], { caption: "Members that left", key: (row) => `${row.member}@${row.at}`, empty: noneLeft });
  const queuePart = h("div");
  show(main, head(name, { where: [h("a", { href: "#/groups" }, "Groups and queues"), " / "], badges }), errors,
    h("div", { class: "stats" }, figures.lag.element, figures.members.element, figures.partitions.element, flight.element),
    panel("Members", {}, members.element), panel("Positions", {}, positions.element), queuePart,
    panel("Who left, and why", { note: "As the broker saw it." }, left.element));
  flight.element.hidden = true;
  let letters = null;

  await live(errors, 3000, signal, async () => {
    const found = await get(`/v1/groups/${path(name)}`, signal);
    const queue = isQueue(found);
    show(badges, badge(queue ? "queue" : "stream", "accent"), stateBadge(found.state));
    members.update(found.members);
    const most = Math.max(1, ...found.partitions.map((one) => one.lag ?? 0));
    const lent = queue ? await leases(name, signal) : null;
    positions.update(found.partitions.map((one) => ({ ...one, part: (one.lag ?? 0) / most, inFlight: lent?.get(`${one.topic}/${one.partition}`) })));
    show(noneLeft, found.departures ? empty("Nobody left since its coordinator started") : empty("Not known", "No broker that this gateway can ask coordinates the group."));
    left.update([...(found.departures ?? [])].sort((a, b) => b.at - a.at));
    lags.push(found.lag);
    figures.lag.set(count(found.lag), { unit: found.unknown_partitions > 0 ? `records, ${withoutPosition(found.unknown_partitions)}` : "records", values: lags.slice(-60) });
    figures.members.set(count(found.members.length));
    figures.partitions.set(count(found.partitions.length));
    if (!queue) return;
    flight.element.hidden = false;
    const all = lent && [...lent.values()].reduce((sum, records) => sum + records, 0);
    const toldOf = lent && found.partitions.filter((one) => lent.has(`${one.topic}/${one.partition}`)).length;
    flight.set(count(all), { unit: lent && toldOf < found.partitions.length ? `in ${toldOf} of ${found.partitions.length} partitions` : "records" });
    const subscription = await get(`/v1/subscriptions/${path(name)}`, signal).catch((error) => {
      if (isGone(error)) return null;
      throw error;
    });
    if (!subscription) return;
    if (!lent) flight.set(count(subscription.in_flight), { unit: "through this gateway" });
    letters ??= deadLetters(queuePart, name, subscription, signal);
  });
}

// Records that workers hold, by partition, as the broker tells; null if nobody can be asked.
async function leases(name, signal) {
  const traffic = await get("/console/traffic", signal);
  if (!traffic.is_known) return null;
  return new Map(traffic.leases.filter((one) => one.group === name).map((one) => [`${one.topic}/${one.partition}`, one.records]));
}

function deadLetters(place, name, subscription, signal) {
  const topic = subscription.dead_letter_topic;
  const settings = Object.entries(subscription.config ?? {});
  const push = subscription.push;
  const list = h("div");
  const redrive = h("button", { type: "button", class: "primary", disabled: true, on: { click: start } }, "Redrive");
  const reload = h("button", { type: "button", on: { click: load } }, "Refresh");
  show(place,
    panel("Delivery", {}, h("div", { class: "panel-body" }, facts([
      ["Topic", link(subscription.topic, "topics", subscription.topic)],
      ["Way", push ? `pushed to ${push.url ?? push.webhook ?? "a webhook"}` : "pulled"],
      ["Dead letters", topic ? link(topic, "topics", topic) : "not kept"],
      ...settings.map(([key, value]) => [key, h("code", {}, settingValue(key, value))]),
    ]))),
    panel("Dead letters", { note: "Records that the queue gave up on.", tools: [reload, redrive] }, list));
  load();

  async function load() {
    if (!topic) {
      show(list, empty("None are kept", "Give the queue a dead-letter topic to keep what it gives up on."));
      return;
    }
    try {
      const { letters } = await get(`/v1/subscriptions/${path(name)}/dead-letters?limit=${DEAD_LETTERS}`, signal);
      redrive.disabled = letters.length === 0;
      show(list, letters.length === 0 ? empty("None", "Everything was accepted, or is still tried.") : letterTable(letters));
    } catch (error) {
      if (!signal.aborted) show(list, notice(error, load));
    }
  }

  async function start() {
    const given = await confirm({
      title: "Redrive dead letters", text: `They go back to ${subscription.topic} as new records and are delivered again.`, action: "Redrive",
      fields: field({}, "At most (empty: all)", h("input", { name: "limit", type: "number", min: "1" })),
    });
    if (!given) return;
    redrive.disabled = true;
    try {
      const done = await request("POST", `/v1/subscriptions/${path(name)}/redrive`, { body: given.limit ? { limit: Number(given.limit) } : {} });
      toast(`${count(done.redriven)} ${done.redriven === 1 ? "record is" : "records are"} on the way again.`);
      await load();
    } catch (error) {
      redrive.disabled = false;
      failed(error);
    }
  }
}

function letterTable(letters) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Dead letters" }, h("table", { class: "messages" },
    h("caption", { class: "visually-hidden" }, "Dead letters"),
    h("thead", {}, h("tr", {}, ["Time", "From", "Key", "Why", "Value"].map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", {}, letters.flatMap(({ record, origin, reason, delivery_count: tries }) =>
      openable(record, `Dead letter ${record.partition}/${record.offset}`, 5, (opener) => h("tr", {},
        h("td", { class: "tight" }, opener, time(record.timestamp)), h("td", { class: "tight" }, origin ?? "–"),
        h("td", { class: "key" }, keyCell(record)), h("td", { class: "tight" }, reason ?? h("span", { class: "muted" }, "–"), tries != null && h("div", { class: "muted" }, `${count(tries)} ${tries === 1 ? "delivery" : "deliveries"}`)),
        h("td", { class: "value" }, valueCell(record))))))));
}

// "session expired: it was silent for 45 s" is a kind and, mostly, an explanation.
function why(reason) {
  const [kind, ...rest] = String(reason).split(": ");
  return [badge(kind, kind === "left" ? "" : "warn"), rest.length > 0 && h("div", { class: "muted" }, rest.join(": "))];
}

function assignment(given) {
  const shown = (given ?? []).slice(0, 24).map((one) => badge(typeof one === "string" ? one : `${one.topic}/${one.partition ?? (one.partitions ?? []).join(",")}`));
  return shown.length ? chips([...shown, given.length > 24 && h("span", { class: "muted" }, `and ${given.length - 24} more`)].filter(Boolean)) : h("span", { class: "muted" }, "nothing");
}

function lagBar(row) {
  const bar = h("span", { class: "lagbar wide-only", "aria-hidden": "true" }, h("span", { vars: { "--part": `${Math.round((row.part ?? 0) * 100)}%` } }));
  return [bar, count(row.lag)];
}
