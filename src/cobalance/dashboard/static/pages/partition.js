// One partition: why it is where it is, and who had it before.

import { offer, resetOffsets, resume } from "../actions.js";
import { Colours } from "../colours.js";
import { element, keep, link, mark, say, sentences } from "../dom.js";
import { here } from "../here.js";
import { ask, follow, tell } from "../live.js";
import { duration, ENDS, moment, number } from "../words.js";
import { badge } from "./groups.js";

const FACTS = ["State", "Lag", "In flight", "Oldest", "Consumers at the broker", "Committed", "Token"];
const COLUMNS = ["From", "For", "State", "Owner", "Token", "Why", "End"];
const MOST = 500;

export function show(main) {
  const colours = new Colours();
  const verdict = element("span", { class: "badge" });
  const facts = new Map(FACTS.map((name) => [name, element("dd")]));
  const why = element("ul", { class: "sentences" });
  const body = element("tbody");
  const acts = [resume([here.partition]), resetOffsets([here.partition])];
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  main.append(
    element("div", { class: "title" }, element("h1", {}, here.partition), verdict, ...acts),
    element("dl", { class: "facts" }, ...[...facts].map(([name, value]) => element("div", {}, element("dt", {}, name), value))),
    element("section", { class: "card", "aria-labelledby": "why" }, element("h2", { id: "why" }, "Why it is where it is"), why),
    element("section", { class: "card", "aria-labelledby": "history" }, element("h2", { id: "history" }, "Who had it"), element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-labelledby": "history" }, element("table", { class: "history stack" }, element("thead", {}, head), body))),
  );
  follow(["groups", here.group], async () => {
    try {
      const found = await ask(here.api("groups", here.group, "partitions", here.partition));
      badge(verdict, found.partition.verdict);
      tellFacts(facts, found.partition);
      offer(acts, [found.partition]);
      sentences(why, found.sentences);
      colours.know(found.history.filter((it) => it.owner).map((it) => ({ id: it.owner, number: it.number })));
      keep(body, found.history.slice(0, MOST), (it) => `${it.from_ms}/${it.state}`, make, (row, it) => update(row, it, found.at_ms, colours));
    } catch (error) {
      tell(error.message, "problem");
    }
  });
}

function tellFacts(facts, it) {
  say(facts.get("State"), it.state);
  say(facts.get("Lag"), number(it.backlog.lag));
  say(facts.get("In flight"), number(it.backlog.in_flight));
  say(facts.get("Oldest"), duration(it.backlog.oldest_ms));
  say(facts.get("Consumers at the broker"), number(it.backlog.consumers));
  say(facts.get("Committed"), number(it.committed));
  say(facts.get("Token"), it.token);
}

function make() {
  const row = element("tr", {}, element("th", { scope: "row" }), ...COLUMNS.slice(1).map((name) => element("td", { "data-label": name })));
  row.cells[5].className = "wide";
  row.cells[3].append(element("span", { class: "swatch", "aria-hidden": "true" }), element("a"));
  return row;
}

function update(row, it, now, colours) {
  const [from, time, state, owner, token, why, end] = row.cells;
  say(from, moment(it.from_ms, true));
  say(time, duration((it.to_ms ?? now) - it.from_ms));
  say(state, it.state);
  owner.firstChild.style.backgroundColor = it.owner ? colours.of(it.owner) : "transparent";
  say(owner.lastChild, it.owner ? it.who : null);
  mark(owner, "title", it.owner);
  mark(owner.lastChild, "href", it.owner ? here.path("groups", here.group, "members", it.owner) : null);
  say(token, it.token);
  say(why, it.why);
  say(end, it.to_ms === null ? "lasts" : ENDS[it.end]);
  mark(row, "class", it.state === "free" ? "gap" : null);
}
