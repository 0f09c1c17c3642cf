// One member: what it does, what it has, and what it had.

import { Colours, onThemeChange } from "../colours.js";
import { element, keep, link, mark, say, sentences } from "../dom.js";
import { here } from "../here.js";
import { ask, follow, tell } from "../live.js";
import { duration, ENDS, known, moment, number, plural } from "../words.js";
import { badge } from "./groups.js";

const FACTS = ["State", "Holds", "Share", "Lag", "In flight", "Oldest", "Last ack", "Session ends in", "Version"];
const HAS = ["Partition", "Verdict", "State", "Lag", "In flight", "Oldest", "For"];
const HAD = ["From", "For", "Partition", "State", "Why", "End"];

export function show(main) {
  const colours = new Colours();
  const name = element("h1", {}, here.member);
  const swatch = element("span", { class: "swatch large", "aria-hidden": "true" });
  const facts = new Map(FACTS.map((it) => [it, element("dd")]));
  const why = element("ul", { class: "sentences" });
  const [has, had] = [element("tbody"), element("tbody")];
  const count = element("span", { class: "sum" });
  main.append(
    element("div", { class: "title" }, swatch, name, element("span", { class: "state" }, here.member)),
    element("dl", { class: "facts" }, ...[...facts].map(([it, value]) => element("div", {}, element("dt", {}, it), value))),
    card("why", "What it does", why),
    card("has", "What it holds", count, table("has", "holds stack", HAS, has)),
    card("had", "What it had, and why that ended", table("had", "history stack", HAD, had)),
  );
  let found = null;
  const draw = () => {
    if (!found) return;
    colours.know([{ id: here.member, number: found.number }]);
    swatch.style.backgroundColor = colours.of(here.member);
    say(name, found.who);
    tellFacts(facts, found);
    sentences(why, found.sentences);
    const left = found.partition_count - found.partitions.length;
    say(count, left ? `those of ${number(found.partition_count)} that need attention first` : plural(found.partition_count, "partition"));
    keep(has, found.partitions, (it) => it.name, () => makeRow(HAS), tellHeld);
    keep(had, found.history, (it) => `${it.partition}/${it.from_ms}/${it.state}`, () => makeRow(HAD, "Why"), (row, it) => tellHad(row, it, found.at_ms));
  };
  follow(["groups", here.group], async () => {
    try {
      found = await ask(here.api("groups", here.group, "members", here.member));
      draw();
    } catch (error) {
      tell(error.message, "problem");
    }
  });
  onThemeChange(draw);
}

const card = (id, title, ...rest) => element("section", { class: "card", "aria-labelledby": id }, element("div", { class: "tools" }, element("h2", { id }, title), ...(rest.length > 1 ? [rest.shift()] : [])), ...rest);

function table(id, kind, columns, body) {
  const head = element("tr", {}, ...columns.map((it) => element("th", { scope: "col" }, it)));
  return element("div", { class: "scrolls tall", tabindex: "0", role: "region", "aria-labelledby": id }, element("table", { class: kind }, element("thead", {}, head), body));
}

function makeRow(columns, wide) {
  const cells = columns.slice(1).map((it) => element("td", { "data-label": it, class: it === wide ? "wide" : null }));
  const row = element("tr", {}, element("th", { scope: "row" }), ...cells);
  const at = columns.indexOf("Partition");
  row.cells[at].append(element("a"));
  if (columns[1] === "Verdict") row.cells[1].append(element("span", { class: "badge" }));
  return row;
}

function tellFacts(facts, { member, partition_count, lag, in_flight, oldest_ms, is_coordinator, session_timeout_ms }) {
  const [least, most] = member?.quota ?? [null, null];
  say(facts.get("State"), member ? (is_coordinator ? `${member.state}, coordinator` : member.state) : "gone");
  say(facts.get("Holds"), number(partition_count));
  say(facts.get("Share"), least === most ? number(least) : `${least} to ${most}`);
  say(facts.get("Lag"), member ? number(lag) : null);
  say(facts.get("In flight"), member ? number(in_flight) : null);
  say(facts.get("Oldest"), duration(oldest_ms));
  say(facts.get("Last ack"), known(member?.last_ack_ago_ms) ? `${duration(member.last_ack_ago_ms)} ago` : member?.handled === 0 ? "none yet" : null);
  say(facts.get("Version"), member?.library_version);
  const ends = member?.expires_in_ms;
  const isSession = member && member.state !== "graced";
  say(facts.get("Session ends in"), ends === null || ends === undefined ? null : `${duration(ends)}${isSession ? ` of ${duration(session_timeout_ms)}` : ""}`);
}

function partitionLink(cell, name) {
  say(cell.firstChild, name);
  mark(cell.firstChild, "href", here.path("groups", here.group, "partitions", name));
}

function tellHeld(row, it) {
  const [name, verdict, state, lag, flight, oldest, time] = row.cells;
  partitionLink(name, it.name);
  badge(verdict.firstChild, it.verdict);
  say(state, it.state === "pending" && it.deadline_in_ms !== null ? `to be handed over, by force in ${duration(it.deadline_in_ms)}` : it.state);
  say(lag, number(it.backlog.lag));
  say(flight, number(it.backlog.in_flight));
  say(oldest, duration(it.backlog.oldest_ms));
  say(time, duration(it.age_ms));
  mark(row, "class", it.state === "pending" ? "odd" : null);
}

function tellHad(row, it, now) {
  const [from, time, name, state, why, end] = row.cells;
  say(from, moment(it.from_ms, true));
  say(time, duration((it.to_ms ?? now) - it.from_ms));
  partitionLink(name, it.partition);
  say(state, it.state);
  say(why, it.why);
  say(end, it.to_ms === null ? "lasts" : ENDS[it.end]);
}
