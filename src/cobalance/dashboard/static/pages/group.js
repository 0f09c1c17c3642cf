// One group: what it waits for, its members, and who works what.

import { offer, resetOffsets, resume } from "../actions.js";
import { Colours, onThemeChange } from "../colours.js";
import { element, keep, link, mark, say, sentences } from "../dom.js";
import { Grid } from "../grid.js";
import { here } from "../here.js";
import { follow } from "../live.js";
import { Model } from "../model.js";
import { duration, inOrder, number, plural, who } from "../words.js";
import { badge } from "./groups.js";

const FACTS = ["Lag", "Oldest", "Members", "Partitions", "Draining", "Held by nobody", "Halted"];
const MEMBER_COLUMNS = ["Member", "State", "Holds", "Share", "Session left"];

export function show(main) {
  const model = new Model();
  const colours = new Colours();
  const verdict = element("span", { class: "badge" });
  const state = element("span", { class: "state" });
  const facts = new Map(FACTS.map((name) => [name, element("dd")]));
  const why = element("ul", { class: "sentences" });
  const members = element("tbody");
  const grid = new Grid(model, colours);
  const acts = [resume(null), resetOffsets(null)];
  main.append(
    element("div", { class: "title" }, element("h1", {}, here.group), verdict, state, ...acts),
    element("dl", { class: "facts" }, ...[...facts].map(([name, value]) => element("div", {}, element("dt", {}, name), value))),
    element("div", { class: "columns" }, side(why, members), grid.section),
  );
  const draw = () => {
    if (!model.group) return;
    badge(verdict, model.group.verdict);
    say(state, model.group.state);
    tellFacts(facts, model);
    offer(acts, [...model.partitions.values()]);
    sentences(why, model.sentences);
    keep(members, [...model.members.values()].sort((a, b) => inOrder(who(a), who(b))), (it) => it.id, makeMember, (row, it) => updateMember(row, it, model, colours));
    grid.draw();
  };
  follow(["groups", here.group], (message) => {
    model.take(message);
    colours.know(model.members.values());
    draw();
  });
  onThemeChange(draw);
}

function side(why, members) {
  const head = element("tr", {}, ...MEMBER_COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  return element(
    "div",
    { class: "side" },
    element("section", { class: "card", "aria-labelledby": "why" }, element("h2", { id: "why" }, "Why it is as it is"), why),
    element("section", { class: "card", "aria-labelledby": "members" }, element("h2", { id: "members" }, "Members"), element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-labelledby": "members" }, element("table", { class: "stack" }, element("thead", {}, head), members))),
  );
}

function tellFacts(facts, model) {
  const all = [...model.partitions.values()];
  const lags = all.map((it) => it.backlog.lag);
  const ages = all.map((it) => it.backlog.oldest_ms).filter((it) => it !== null);
  const count = (state) => all.filter((it) => it.state === state).length;
  const shown = {
    Lag: lags.includes(null) ? null : lags.reduce((a, b) => a + b, 0),
    Members: model.members.size,
    Partitions: all.length,
    Draining: count("pending"),
    "Held by nobody": count("free"),
    Halted: count("halted"),
  };
  for (const [name, value] of Object.entries(shown)) say(facts.get(name), number(value));
  say(facts.get("Oldest"), duration(ages.length ? Math.max(...ages) : null));
  for (const name of ["Held by nobody", "Halted"]) mark(facts.get(name), "class", shown[name] ? "bad" : null);
}

function makeMember(it) {
  const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
  const name = link(here.path("groups", here.group, "members", it.id), "");
  return element("tr", {}, element("th", { scope: "row" }, swatch, name), ...MEMBER_COLUMNS.slice(1).map((column) => element("td", { "data-label": column })));
}

function updateMember(row, it, model, colours) {
  const [name, state, holds, share, session] = row.cells;
  name.firstChild.style.backgroundColor = colours.of(it.id);
  say(name.lastChild, who(it));
  mark(name, "title", it.id);
  say(state, it.id === model.group.coordinator ? `${it.state}, coordinator` : it.state);
  say(holds, it.pending ? `${it.resources.length}, ${it.pending} to hand over` : number(it.resources.length));
  const [least, most] = it.quota;
  say(share, least === most ? number(least) : `${least} to ${most}`);
  say(session, duration(it.expires_in_ms));
  mark(row, "class", it.state === "active" ? null : "odd");
}
