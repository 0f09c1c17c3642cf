// All groups, those that need attention first.

import { element, keep, link, mark, say } from "../dom.js";
import { here } from "../here.js";
import { follow } from "../live.js";
import { duration, inOrder, number, plural, VERDICTS } from "../words.js";

const COLUMNS = ["Group", "Verdict", "State", "Lag", "Oldest", "Members", "Partitions", "Being handed over", "Moves in the last hour", "Needs attention"];

// What comes first. Where it is unknown or the same, the order is the server's: what needs attention.
const ORDERS = {
  "what needs attention": () => 0,
  name: (a, b) => inOrder(a.name, b.name),
  lag: (a, b) => (b.lag ?? -1) - (a.lag ?? -1),
  "oldest message": (a, b) => (b.oldest_ms ?? -1) - (a.oldest_ms ?? -1),
  "being handed over": (a, b) => (b.draining ?? -1) - (a.draining ?? -1),
  "moves in the last hour": (a, b) => (b.moves_last_hour ?? -1) - (a.moves_last_hour ?? -1),
};

export function show(main) {
  const body = element("tbody");
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  const empty = element("p", { class: "empty", hidden: true }, "There is no group in this Redis yet. A first member, or ", element("code", {}, "cobalance group create NAME"), " with the URL and the key prefix of this dashboard, makes one.");
  const table = element("table", { class: "stack" }, element("thead", {}, head), body);
  const filter = element("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter groups by name" });
  const order = element("select", { "aria-label": "First" }, ...Object.keys(ORDERS).map((it) => element("option", { value: it }, `first: ${it}`)));
  const total = element("p", { class: "sum" });
  main.append(element("div", { class: "title" }, element("h1", {}, "Groups"), total, order, filter), element("div", { class: "card scrolls", tabindex: "0", role: "region", "aria-label": "Groups" }, table), empty);
  const notice = element("p", { class: "notice", role: "status", hidden: true });
  main.insertBefore(notice, main.querySelector(".card"));
  let rows = [];
  const draw = () => {
    const wanted = filter.value.trim().toLowerCase();
    const shown = rows.filter((it) => it.name.toLowerCase().includes(wanted)).sort(ORDERS[order.value]);
    keep(body, shown, (it) => it.name, make, update);
    empty.hidden = rows.length > 0 || !notice.hidden;
    table.hidden = !rows.length;
    const bad = rows.filter((it) => it.verdict && it.verdict !== "OK").length;
    say(total, `${plural(rows.length, "group")}${bad ? `, ${bad} not OK` : ""}`);
  };
  filter.addEventListener("input", draw);
  order.addEventListener("change", draw);
  follow([], (message) => {
    rows = message.groups;
    notify(notice, message.problem);
    draw();
  });
}

function make(it) {
  const name = element("th", { scope: "row" }, link(here.path("groups", it.name), it.name));
  const cells = COLUMNS.slice(1).map((column) => element("td", { "data-label": column }));
  cells[0].append(element("span", { class: "badge" }));
  cells.at(-1).className = "wide attention";
  return element("tr", {}, name, ...cells);
}

function update(row, it) {
  const [verdict, state, lag, oldest, members, partitions, pending, moves, attention] = [...row.cells].slice(1);
  badge(verdict.firstChild, it.verdict);
  say(state, it.state);
  say(lag, number(it.lag));
  say(oldest, duration(it.oldest_ms));
  say(members, it.idle_members ? `${number(it.members)} (${it.idle_members} idle)` : number(it.members));
  say(partitions, number(it.partitions));
  say(pending, number(it.draining));
  say(moves, number(it.moves_last_hour));
  const texts = [it.problem, ...(it.attention ?? [])].filter(Boolean);
  say(attention, texts.length === 0 ? "nothing" : texts.slice(0, 2).join(" ") + (texts.length > 2 ? ` And ${texts.length - 2} more.` : ""));
}

// Why some groups may be missing.
export function notify(node, problem) {
  say(node, problem ?? "");
  node.hidden = !problem;
}

export function badge(node, verdict) {
  say(node, verdict ?? "–");
  mark(node, "class", `badge ${verdict ?? "none"}`);
  mark(node, "title", VERDICTS[verdict] ?? "not known yet");
}
