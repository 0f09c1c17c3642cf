// The topics of all groups, each as far as one group works it; those that need attention first.

import { element, keep, link, say } from "../dom.js";
import { here } from "../here.js";
import { follow } from "../live.js";
import { duration, number, plural } from "../words.js";
import { badge, notify } from "./groups.js";

const COLUMNS = ["Topic", "Group", "Verdict", "Partitions", "Lag", "Most of one partition", "In flight", "Oldest"];

export function show(main) {
  const body = element("tbody");
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", { class: "stack" }, element("thead", {}, head), body);
  const empty = element("p", { class: "empty", hidden: true }, "No group of this Redis has partitions yet: its first member names them.");
  const filter = element("input", { type: "search", placeholder: "Filter by topic or group", "aria-label": "Filter by topic or group" });
  const total = element("p", { class: "sum" });
  main.append(element("div", { class: "title" }, element("h1", {}, "Topics"), total, filter), element("div", { class: "card scrolls", tabindex: "0", role: "region", "aria-label": "Topics" }, table), empty);
  const notice = element("p", { class: "notice", role: "status", hidden: true });
  main.insertBefore(notice, main.querySelector(".card"));
  let found = { topics: [], left_out: 0 };
  const draw = () => {
    const wanted = filter.value.trim().toLowerCase();
    const shown = found.topics.filter((it) => `${it.topic ?? ""} ${it.group}`.toLowerCase().includes(wanted));
    keep(body, shown, (it) => JSON.stringify([it.group, it.topic]), make, update);
    empty.hidden = found.topics.length > 0 || !notice.hidden;
    table.hidden = !found.topics.length;
    const bad = found.topics.filter((it) => it.verdict && it.verdict !== "OK").length;
    const left = found.left_out ? `, and ${number(found.left_out)} more that are not shown` : "";
    say(total, `${plural(found.topics.length, "topic")}${bad ? `, ${bad} not OK` : ""}${left}`);
  };
  filter.addEventListener("input", draw);
  follow(["topics"], (message) => {
    found = message;
    notify(notice, message.problem);
    draw();
  });
}

function make(it) {
  const path = here.path("groups", it.group);
  const name = it.topic === null ? "(no topic)" : it.topic;
  const query = it.topic === null ? "" : `?filter=${encodeURIComponent(`${it.topic}-`)}`;
  const cells = COLUMNS.slice(1).map((column) => element("td", { "data-label": column }));
  cells[0].append(link(path, it.group));
  cells[1].append(element("span", { class: "badge" }));
  return element("tr", {}, element("th", { scope: "row" }, link(path + query, name)), ...cells);
}

function update(row, it) {
  const [verdict, partitions, lag, most, flight, oldest] = [...row.cells].slice(2);
  badge(verdict.firstChild, it.verdict);
  say(partitions, number(it.partitions));
  say(lag, number(it.lag));
  say(most, number(it.max_lag));
  say(flight, number(it.in_flight));
  say(oldest, duration(it.oldest_ms));
}
