// A group's settings beside what its journal says of them.

import { changeSettings } from "../actions.js";
import { element, keep, mark, say, sentences } from "../dom.js";
import { here } from "../here.js";
import { ask, follow, tell } from "../live.js";
import { duration, moment, number } from "../words.js";

const COLUMNS = ["Setting", "In force", "Recommended", "Default", "What the journal says"];
const TITLES = {
  session_timeout_ms: ["Session timeout", "A member that is silent for longer counts as crashed."],
  heartbeat_interval_ms: ["Heartbeat interval", "How often a member renews its session."],
  revocation_timeout_ms: ["Revocation timeout", "How long a holder may take to finish, before its resource is moved by force."],
  rejoin_grace_ms: ["Rejoin grace", "How long what a process with an instance id held is kept for its return."],
  gather_ms: ["Gathering", "Changes that follow each other within it are one."],
  mode: ["Mode", "cooperative moves the surplus only; eager stops everything at each change."],
  moves_per_call: ["Moves per call", "How many resources one call of Redis moves at most."],
  journal_length: ["Journal length", "How many entries are kept, about."],
  idle_expiry_ms: ["Idle expiry", "How long Redis keeps a group without members; 0 is for ever."],
};

export function show(main) {
  const body = element("tbody");
  const since = element("p", { class: "sum" });
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  const tuned = element("ul", { class: "plain tuned" });
  const commands = element("ol", { class: "commands" });
  let settings = [];
  const acting = changeSettings(() => settings.map((it) => [it.name, (TITLES[it.name] ?? [it.name])[0], shown(it.name, it.value)]));
  main.append(
    element("div", { class: "title" }, element("h1", {}, "Tuning"), since, acting),
    element(
      "section",
      { class: "card", "aria-labelledby": "settings" },
      element("h2", { id: "settings" }, "Settings, and what came of them"),
      element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-labelledby": "settings" }, element("table", { class: "settings stack" }, element("thead", {}, head), body)),
      legend(),
    ),
    element(
      "section",
      { class: "card", "aria-labelledby": "better" },
      element("h2", { id: "better" }, "Which would be better?"),
      tuned,
      element("p", {}, "From this group's own journal, timeouts are found by simulating the same life under others: each with an interval, beside what today's cost. The last command ends with the one that sets them. With ", element("code", {}, "pip install 'cobalance[spark]'"), ":"),
      commands,
    ),
  );
  let seen = null;
  let isAsking = false;
  follow(["groups", here.group], async (message) => {
    if (isAsking || seen === message.seq) return;
    isAsking = true;
    try {
      const found = await ask(here.api("groups", here.group, "tuning"));
      seen = found.seq;
      settings = found.settings;
      if (acting) acting.hidden = false;
      say(since, found.first_ms === null ? "The journal is empty." : `as the journal has it since ${moment(found.first_ms)}`);
      keep(body, found.settings, (it) => it.name, make, update);
      sentences(tuned, decided(found.tuned));
      keep(commands, found.commands, (it) => it, (it) => element("li", {}, element("code", { tabindex: "0" }, it)), () => {});
    } catch (error) {
      tell(error.message, "problem");
    } finally {
      isAsking = false;
    }
  });
}

const DECISIONS = {
  change: "A change is recommended",
  keep: "To keep the settings is recommended",
  refused: "Nothing is recommended",
};

// What was stored of the last tuning, in sentences.
function decided(it) {
  if (it === null) return ["No recommendation is stored. The last of these commands stores one."];
  if (it.problem !== undefined) return [`The recommendation that is stored is unknown. ${it.problem} The last of these commands stores it again.`];
  const from = it.from_ms === null ? "not from this group's journal" : `from this group's journal, ${moment(it.from_ms)} to ${moment(it.to_ms)}`;
  return [`${DECISIONS[it.decision]}: stored ${moment(it.at_ms)}, computed ${from}.`, ...it.sentences, ...(it.since ? [it.since] : [])];
}

function legend() {
  const signs = [["half", "half of what was observed"], ["most", "95 % of it"], ["longest", "the longest"], ["limit", "the setting"]];
  return element("ul", { class: "legend" }, ...signs.map(([kind, text]) => element("li", {}, element("span", { class: `key ${kind}`, "aria-hidden": "true" }), text)));
}

function make(it) {
  const [title, what] = TITLES[it.name] ?? [it.name, ""];
  const strip = element("div", { class: "strip", "aria-hidden": "true" }, ...["most", "half", "longest", "limit"].map((kind) => element("span", { class: kind })));
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, element("strong", {}, title), " ", element("code", {}, it.name), element("p", { class: "hint" }, what)),
    element("td", { "data-label": "In force" }),
    element("td", { "data-label": "Recommended" }),
    element("td", { "data-label": "Default" }),
    element("td", { class: "wide" }, element("ul", { class: "plain" }), strip, element("p", { class: "advice" })),
  );
}

const shown = (name, value) => (typeof value === "string" ? value : name.endsWith("_ms") ? (value ? duration(value) : "0") : number(value));

function update(row, it) {
  const [, value, better, standard, said] = row.cells;
  const [texts, strip, advice] = said.children;
  say(value, shown(it.name, it.value));
  say(better, it.recommended === null ? null : shown(it.name, it.recommended));
  mark(better, "class", it.recommended === null || it.recommended === it.value ? null : "own");
  say(standard, shown(it.name, it.default));
  mark(value, "class", it.value === it.default ? null : "own");
  const lines = it.sentences.length ? it.sentences : it.observed_ms === null && it.name.endsWith("_ms") && it.name !== "idle_expiry_ms" ? ["Nothing yet."] : [];
  keep(texts, lines.map((text, at) => ({ text, at })), (line) => line.at, () => element("li"), (node, line) => say(node, line.text));
  mark(texts, "class", it.sentences.length ? "plain" : "plain hint");
  say(advice, it.advice ?? "");
  advice.hidden = !it.advice;
  strip.hidden = !it.observed_ms;
  if (it.observed_ms) drawStrip(strip, it);
  mark(row, "class", it.advice ? "odd" : null);
}

// On a logarithmic scale from a millisecond to twice the longest of all.
function drawStrip(strip, { observed_ms, value }) {
  const longest = Math.log10(2 * Math.max(observed_ms.all, value, 10));
  const at = (ms) => `${(100 * Math.log10(Math.max(1, ms))) / longest}%`;
  const [most, half, all, limit] = strip.children;
  most.style.width = at(observed_ms.most);
  half.style.width = at(observed_ms.half);
  all.style.left = at(observed_ms.all);
  limit.style.left = at(value);
}
