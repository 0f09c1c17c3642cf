// Handovers: the past of a group, live and replayed.

import { Colours, onThemeChange } from "../colours.js";
import { element, keep, say } from "../dom.js";
import { here } from "../here.js";
import { follow, tell } from "../live.js";
import { Past } from "../past.js";
import { Timeline } from "../timeline.js";
import { clock, duration, ENDS, inOrder, moment, plural, who } from "../words.js";

const WINDOWS_S = [30, 60, 300, 900, 3600, 21600, 86400];
const SPEEDS = [1, 10, 60];
const MOST_CHANGES = 200;
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
const isStory = new URLSearchParams(location.search).has("story");
const KEYS = "Choose a bar to read what it was. By keys: Up and Down choose a partition, Left and Right one of its spans, + and − the length of the window, Space replays, L goes back to live.";
const STATES = { held: "held by", draining: "being handed over by", graced: "kept for", free: "worked by nobody", halted: "halted" };

export function show(main) {
  new Page(main);
}

class Page {
  constructor(main) {
    this.past = new Past();
    this.colours = new Colours();
    this.timeline = new Timeline(this.past, this.colours, { point: (hit, isChosen) => this.point(hit, isChosen), press: (event) => this.press(event) });
    this.length = 900_000;
    this.end = null; // the end of the window; null is now
    this.behind = 0;
    this.timer = null;
    this.controls();
    this.details = element("div", { class: "details", role: "status" }, element("p", { class: "hint" }, KEYS));
    this.changes = element("ol", { class: "changes" });
    this.legend = element("ul", { class: "legend" });
    this.sum = element("p", { class: "sum" });
    this.over = element("p", { class: "notice", role: "status", hidden: true }, "Nobody is a member now. ", element("button", { type: "button", onclick: () => this.replayAll() }, "Replay how it went"));
    main.append(
      element("div", { class: "title" }, element("h1", {}, "Handovers"), this.sum),
      this.over,
      element("section", { class: "card", "aria-label": "Timeline" }, this.tools, element("p", { id: "timeline-keys", class: "unseen" }, KEYS), this.timeline.box, this.details, this.legend),
      element("section", { class: "card", "aria-labelledby": "what" }, element("h2", { id: "what" }, "What happened, and what followed"), this.changes),
    );
    onThemeChange(() => this.timeline.measure());
    follow(["groups", here.group], (message) => this.hear(message));
    setInterval(() => this.end === null && this.draw(), isCalm.matches ? 1000 : 250);
  }

  controls() {
    const choice = (label, values, text, value, act) => {
      const made = element("select", { "aria-label": label, onchange: () => act(Number(made.value)) }, ...values.map((it) => element("option", { value: it, selected: it === value }, text(it))));
      return made;
    };
    this.windows = choice("Length of the window", WINDOWS_S, (it) => duration(it * 1000), 900, (s) => this.zoom(s * 1000));
    this.speeds = choice("Speed of the replay", SPEEDS, (it) => `× ${it}`, 10, () => {});
    this.slider = element("input", { type: "range", min: "0", max: "1000", value: "1000", step: "1", "aria-label": "Moment in the journal", oninput: () => this.slide() });
    this.playing = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.play(!this.timer) }, "Replay");
    this.now = element("button", { type: "button", "aria-pressed": "true", onclick: () => this.live() }, "Live");
    this.at = element("output", { class: "moment" });
    this.filter = element("input", { type: "search", placeholder: "Filter partitions", "aria-label": "Filter partitions by name", oninput: () => this.draw() });
    this.tools = element("div", { class: "tools" }, this.now, this.playing, this.speeds, this.windows, this.slider, this.at, this.filter);
  }

  groupNow() {
    return Date.now() - this.behind;
  }

  async hear(message) {
    this.behind = Date.now() - message.group.at_ms;
    for (const it of message.group.members) this.past.owners.set(it.id, it);
    if (this.past.first === null) await this.begin();
    else if (message.seq !== this.past.seq) await this.fetch(() => this.past.refresh());
    this.draw();
    this.tellEnd(message.group.state === "Empty" && this.past.names.length > 0);
  }

  // What nobody works is red, also where all is over. A story is replayed then, rather than left like that.
  tellEnd(isOver) {
    if (this.over.hidden !== isOver) return;
    this.over.hidden = !isOver;
    if (isOver && isStory && this.end === null) this.replayAll();
  }

  // The last change, after which nothing is worked where all is over.
  last() {
    return Math.max(this.past.first, ...[...this.past.happenings.values()].map((it) => it.at_ms));
  }

  replayAll() {
    this.live();
    const whole = (this.last() - this.past.first) / 1000;
    this.zoom(1000 * Math.min(900, WINDOWS_S.find((it) => it >= whole) ?? 900));
    this.play(true);
  }

  // The window begins with as much as there is, up to a quarter of an hour.
  async begin() {
    await this.load();
    if (this.past.first === null) return;
    const age = (this.groupNow() - this.past.first) / 1000;
    this.zoom(1000 * Math.min(900, WINDOWS_S.find((it) => it >= age) ?? 900));
  }

  // One request at a time; what is due then is asked for at the next message.
  async fetch(act) {
    if (this.isFetching) return;
    this.isFetching = true;
    try {
      await act();
    } catch (error) {
      tell(error.message, "problem");
    } finally {
      this.isFetching = false;
    }
  }

  async load() {
    await this.fetch(() => this.past.reach((this.end ?? this.groupNow()) - this.length));
    this.draw();
  }

  draw() {
    if (this.past.first === null) return;
    const now = this.groupNow();
    const end = this.end ?? now;
    Object.assign(this.timeline, { from: end - this.length, to: end, now: end });
    this.colours.know(this.past.owners.values());
    const wanted = this.filter.value.trim().toLowerCase();
    this.timeline.show(wanted ? this.past.names.filter((it) => it.toLowerCase().includes(wanted)) : this.past.names);
    say(this.at, this.end === null ? "now" : moment(end));
    if (document.activeElement !== this.slider || this.end === null) this.slider.value = 1000 * ((end - this.past.first) / Math.max(1, now - this.past.first));
    this.slider.setAttribute("aria-valuetext", this.end === null ? "now" : moment(end));
    this.now.setAttribute("aria-pressed", this.end === null);
    this.tellChanges(end);
    this.tellOwners(end);
  }

  tellChanges(end) {
    const found = this.past.changes(end - this.length, end);
    const moves = found.reduce((sum, it) => sum + it.moves, 0);
    say(this.sum, `${plural(found.length, "change")} and ${plural(moves, "move")} in ${duration(this.length)}`);
    keep(this.changes, found.slice(0, MOST_CHANGES), (it) => it.id, (it) => this.makeChange(it), (node, it) => say(node.lastChild, followed(it)));
  }

  makeChange(it) {
    const jump = element("button", { type: "button", class: "time", title: "Show this moment", onclick: () => this.goTo(it.at_ms + this.length / 2) }, clock(it.at_ms, true));
    return element("li", { class: it.kind === "gap" ? "bad" : null }, jump, element("span", {}, it.what), element("span", { class: "sum" }));
  }

  tellOwners(end) {
    const shown = new Set();
    for (const name of this.timeline.names.slice(0, 400)) for (const span of this.past.spans(name)) if (span.owner && span.from <= end && (span.to ?? end) >= end - this.length) shown.add(span.owner);
    const owners = [...shown].map((id) => this.past.owners.get(id) ?? { id }).sort((a, b) => inOrder(who(a), who(b)));
    const signs = [["draining", "hatched: being handed over"], ["free", "thin red: worked by nobody"], ["halted", "red: halted, or paused"], ["cut", "red end: by force, given up or crashed"]].map(([id, text]) => ({ id, text }));
    keep(this.legend, [...owners, ...signs], (it) => it.id, (it) => element("li", {}, element("span", { class: `swatch ${it.text ? it.id : ""}`, "aria-hidden": "true" }), it.text ?? who(it)), (node, it) => {
      if (!it.text) node.firstChild.style.backgroundColor = this.colours.of(it.id);
    });
  }

  // -- moving in time ------------------------------------------------------------------------------------------------

  slide() {
    this.play(false);
    const part = Number(this.slider.value) / 1000;
    if (part >= 1) this.live();
    else this.goTo(this.past.first + part * (this.groupNow() - this.past.first));
  }

  goTo(at) {
    this.end = at >= this.groupNow() ? null : at;
    clearTimeout(this.loading);
    this.loading = setTimeout(() => this.load(), 100);
    this.draw();
  }

  zoom(length) {
    this.length = length;
    this.windows.value = length / 1000;
    this.load();
  }

  live() {
    this.play(false);
    this.end = null;
    this.load();
  }

  play(isOn) {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.setAttribute("aria-pressed", isOn);
    say(this.playing, isOn ? "Pause" : "Replay");
    if (!isOn) return;
    const until = () => (this.over.hidden ? this.groupNow() : this.last());
    if (this.end === null || this.end >= until()) this.goTo(Math.max(this.past.first, until() - this.length));
    const every = isCalm.matches ? 1000 : 50;
    this.timer = setInterval(() => {
      const next = this.end + every * Number(this.speeds.value);
      if (next < until()) return this.goTo(next);
      if (this.over.hidden) return this.live();
      this.play(false);
      this.goTo(until());
    }, every);
  }

  // -- choosing ------------------------------------------------------------------------------------------------------

  point(hit, isChosen) {
    if (!hit || (this.isKept && !isChosen)) return;
    this.isKept = isChosen && hit.span !== null;
    if (isChosen) this.timeline.choose(hit.row, hit.span);
    this.describe(this.timeline.names[hit.row], hit.span);
  }

  describe(name, span) {
    if (span === this.described && name === this.describedName) return;
    [this.described, this.describedName] = [span, name];
    const path = here.path("groups", here.group, "partitions", name);
    const title = element("a", { href: path }, name);
    if (!span) return this.details.replaceChildren(element("p", {}, title, " is not in the journal at that time."));
    const owner = span.owner ? ` ${who(this.past.owners.get(span.owner) ?? { id: span.owner })}` : "";
    const now = this.timeline.now;
    const isOver = span.to !== null && span.to <= now;
    const until = isOver ? clock(span.to, true) : this.end === null ? "now" : "…";
    const times = `${clock(span.from, true)} – ${until} (${duration((isOver ? span.to : now) - span.from)})`;
    const ended = isOver && ENDS[span.end] ? ` Then: ${ENDS[span.end]}.` : "";
    this.details.replaceChildren(element("p", {}, title, `: ${STATES[span.state]}${owner}, ${times}${span.token && span.owner ? `, token ${span.token}` : ""}.`), element("p", {}, `${span.why}.${ended}`));
  }

  press(event) {
    const act = {
      ArrowDown: () => this.step(1, 0),
      ArrowUp: () => this.step(-1, 0),
      ArrowRight: () => this.step(0, 1),
      ArrowLeft: () => this.step(0, -1),
      "+": () => this.zoomBy(-1),
      "-": () => this.zoomBy(1),
      " ": () => this.play(!this.timer),
      l: () => this.live(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  step(rows, spans) {
    const { names, row } = this.timeline;
    if (!names.length) return;
    const next = Math.min(names.length - 1, Math.max(0, row + rows));
    const shown = this.past.spans(names[next]).filter((it) => it.from <= this.timeline.now && (it.to ?? this.timeline.now) >= this.timeline.from);
    const at = shown.indexOf(this.timeline.span);
    const span = spans && at >= 0 ? shown[Math.min(shown.length - 1, Math.max(0, at + spans))] : shown.at(-1) ?? null;
    this.isKept = true;
    this.timeline.choose(next, span);
    this.describe(names[next], span);
  }

  zoomBy(step) {
    const at = WINDOWS_S.indexOf(this.length / 1000) + step;
    if (WINDOWS_S[at]) this.zoom(WINDOWS_S[at] * 1000);
  }
}

function followed(it) {
  if (it.kind === "gap") return "what happened meanwhile is not known";
  if (it.kind === "halted") return "nobody works it";
  if (!it.moves) return "nothing moved";
  const drain = it.longest_drain_ms ? `, longest drain ${duration(it.longest_drain_ms)}` : "";
  return `${plural(it.moves, "move")}${drain}${it.cut_short ? `, ${it.cut_short} cut short` : ""}`;
}
