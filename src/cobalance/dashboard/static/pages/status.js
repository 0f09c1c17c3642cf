// Servers, versions, permissions, groups: what `cobalance doctor` finds.

import { element, keep, mark, say } from "../dom.js";
import { here } from "../here.js";
import { ask, tell } from "../live.js";
import { clock, plural } from "../words.js";

const COLUMNS = ["Result", "Of", "Check", "What was found"];
const BADGES = { error: ["STOP", "error"], warning: ["WARN", "warning"], unknown: ["none", "unknown"], ok: ["OK", "ok"] };
const AGAIN_MS = 5000; // after an error

export function show(main) {
  const body = element("tbody");
  const total = element("p", { class: "sum" });
  const facts = element("dl", { class: "facts" });
  const onlyBad = element("input", { type: "checkbox" });
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  main.append(
    element("div", { class: "title" }, element("h1", {}, "Status"), total, element("label", { class: "choice" }, onlyBad, " leave out what is well")),
    facts,
    element("div", { class: "card scrolls", tabindex: "0", role: "region", "aria-label": "Findings" }, element("table", { class: "findings stack" }, element("thead", {}, head), body)),
    element("p", { class: "hint" }, "The same in a shell: ", element("code", {}, "cobalance doctor"), ", with the URLs and the key prefix of this dashboard. It changes nothing. It is looked at once a minute, for however many browsers."),
  );
  let found = null;
  const draw = () => {
    if (!found) return;
    const { findings, versions, at_ms } = found;
    const count = (level) => findings.filter((it) => it.level === level).length;
    say(total, `${plural(count("error"), "error")}, ${plural(count("warning"), "warning")} · looked at ${clock(at_ms)}`);
    keep(facts, Object.entries(versions), ([name]) => name, ([name]) => element("div", {}, element("dt", {}, name), element("dd")), (node, [, value]) => say(node.lastChild, value));
    const shown = findings.filter((it) => !onlyBad.checked || it.level !== "ok");
    keep(body, shown, (it) => JSON.stringify([it.subject, it.check, it.message]), make, update);
  };
  onlyBad.addEventListener("change", draw);
  let timer = null;
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    let wait = AGAIN_MS;
    try {
      found = await ask(here.api("status"));
      wait = found.next_in_ms + 100;
      tell("live", "ok");
      draw();
    } catch (error) {
      tell(error.message, "problem");
    }
    timer = setTimeout(look, wait);
  };
  document.addEventListener("visibilitychange", look);
  look();
}

function make() {
  return element("tr", {}, element("th", { scope: "row" }, element("span", { class: "badge" })), element("td", { "data-label": "Of" }), element("td", { "data-label": "Check" }), element("td", { class: "wide" }, element("span"), element("p", { class: "advice" })));
}

function update(row, it) {
  const [level, subject, check, what] = row.cells;
  const [kind, word] = BADGES[it.level];
  mark(level.firstChild, "class", `badge ${kind}`);
  say(level.firstChild, word);
  say(subject, it.subject);
  say(check, it.check);
  say(what.firstChild, it.message);
  say(what.lastChild, it.advice ?? "");
  what.lastChild.hidden = !it.advice;
}
