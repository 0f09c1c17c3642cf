// Partition × member: who works what, and what a partition waits for.

import { element, keep, link, mark, say } from "./dom.js";
import { here } from "./here.js";
import { ask } from "./live.js";
import { badge } from "./pages/groups.js";
import { VirtualRows } from "./virtual.js";
import { duration, inOrder, number, plural, who } from "./words.js";

const WORST = { STOP: 0, STALL: 1, WARN: 2, OK: 4 };
const RESTLESS = { halted: 0, free: 1, pending: 2, granted: 3, graced: 4, held: 5 };
const urgency = (it) => (WORST[it.verdict] ?? 3) * 10 + (RESTLESS[it.state] ?? 9);

const ORDERS = {
  name: ["by name", (a, b) => inOrder(a.name, b.name)],
  attention: ["attention first", (a, b) => urgency(a) - urgency(b) || inOrder(a.name, b.name)],
  lag: ["most lag first", (a, b) => (b.backlog.lag ?? -1) - (a.backlog.lag ?? -1) || inOrder(a.name, b.name)],
};

export class Grid {
  constructor(model, colours) {
    this.model = model;
    this.colours = colours;
    this.order = [];
    this.members = [];
    this.chosen = null;
    this.filter = element("input", { type: "search", placeholder: "Filter partitions", "aria-label": "Filter partitions by name, holder or state", value: new URLSearchParams(location.search).get("filter") });
    this.sorting = element("select", { "aria-label": "Order" }, ...Object.entries(ORDERS).map(([value, [text]]) => element("option", { value }, text)));
    this.count = element("span", { class: "sum" });
    this.heads = element("div", { class: "member-heads", "aria-hidden": "true" });
    this.rows = new VirtualRows("Partitions and their holders", { make: makeRow, update: (row, at) => this.update(row, at), choose: (at) => this.choose(at) });
    this.answer = element("div", { class: "answer", role: "status" }, element("p", { class: "hint" }, "Choose a partition, with the arrow keys or a click, to read why it is where it is and what it waits for."));
    this.section = element(
      "section",
      { class: "card grid", "aria-labelledby": "partitions" },
      element("div", { class: "tools" }, element("h2", { id: "partitions" }, "Partitions"), this.count, this.filter, this.sorting),
      element("div", { class: "row heads", "aria-hidden": "true" }, ...["Partition", "Verdict", "Lag", "What it is waiting for"].map((name) => element("span", {}, name)), this.heads),
      this.rows.box,
      this.answer,
    );
    this.filter.addEventListener("input", () => this.draw(true));
    this.sorting.addEventListener("change", () => this.draw(true));
  }

  draw(anew = false) {
    const sorting = this.sorting.value;
    const ids = [...this.model.members.values()].sort((a, b) => inOrder(who(a), who(b))).map((it) => it.id);
    if (ids.join() !== this.members.join()) this.place(ids);
    if (anew || this.model.changed || sorting !== "name" || this.filter.value) this.sort(sorting);
    say(this.count, this.order.length === this.model.partitions.size ? plural(this.order.length, "partition") : `${number(this.order.length)} of ${plural(this.model.partitions.size, "partition")}`);
    this.rows.show(this.order.length);
  }

  sort(sorting) {
    const wanted = this.filter.value.trim().toLowerCase();
    const owner = (it) => (it.owner ? who(this.model.members.get(it.owner) ?? { id: it.owner }) : "");
    const matches = (it) => !wanted || `${it.name} ${it.state} ${it.verdict ?? ""} ${owner(it)}`.toLowerCase().includes(wanted);
    this.order = [...this.model.partitions.values()].filter(matches).sort(ORDERS[sorting][1]).map((it) => it.name);
    this.rows.chosen = this.order.indexOf(this.chosen);
  }

  place(ids) {
    this.members = ids;
    keep(this.heads, ids, (id) => id, (id) => element("span", { title: who(this.model.members.get(id)) }), (node, id) => {
      node.style.backgroundColor = this.colours.of(id);
    });
  }

  update(row, index) {
    const it = this.model.partitions.get(this.order[index]);
    if (!it) return;
    const [name, verdict, lag, waits, lane] = row.children;
    const anchor = name.firstChild;
    say(anchor, it.name);
    mark(anchor, "href", here.path("groups", here.group, "partitions", it.name));
    badge(verdict.firstChild, it.verdict);
    say(lag, number(it.backlog.lag));
    say(waits, this.waiting(it));
    mark(waits, "title", waits.textContent);
    mark(row, "data-state", it.state);
    this.cell(lane.firstChild, it);
  }

  cell(cell, it) {
    const at = this.members.indexOf(it.owner);
    cell.hidden = at < 0;
    if (at < 0) return;
    cell.style.left = `${(100 * at) / this.members.length}%`;
    cell.style.width = `${100 / this.members.length}%`;
    cell.style.color = this.colours.of(it.owner);
    mark(cell, "title", `${it.state} by ${who(this.model.members.get(it.owner))}`);
  }

  waiting(it) {
    const now = this.model.now();
    const owner = it.owner ? who(this.model.members.get(it.owner) ?? { id: it.owner }) : null;
    const since = duration(it.since === null ? null : now - it.since);
    if (it.state === "pending") return `${owner} to finish, ${since}${it.deadline === null ? "" : `; by force in ${duration(it.deadline - now)}`}`;
    if (it.state === "granted") return `${owner} to confirm it, ${since}`;
    if (it.state === "graced") return `${owner} to come back, ${since}`;
    if (it.state === "halted") return it.tried === null ? "an operator: halted" : `its next attempt in ${duration(it.tried - now)}`;
    if (it.state === "free") return `a holder, ${since}`;
    const age = it.backlog.oldest_ms >= this.model.window ? `, with a message in flight for ${duration(it.backlog.oldest_ms)}` : "";
    if (it.verdict === "STALL") return `${owner}, which gets nothing done${age}`;
    if (age) return `${owner}${age}`;
    const isUnknown = it.verdict === null && it.backlog.lag === null;
    return `${isUnknown ? "unknown" : "nothing"}: ${it.state} by ${owner}`;
  }

  async choose(index) {
    const name = (this.chosen = this.order[index]);
    const found = await ask(here.api("groups", here.group, "partitions", name)).catch((error) => ({ sentences: [error.message] }));
    if (name !== this.chosen) return;
    const more = link(here.path("groups", here.group, "partitions", name), `History of ${name}`);
    this.answer.replaceChildren(element("ul", { class: "sentences" }, ...found.sentences.map((text) => element("li", {}, text))), more);
  }
}

function makeRow() {
  const cell = (...children) => element("span", { role: "gridcell" }, ...children);
  const row = element("div", { class: "row", role: "row" }, cell(element("a", { tabindex: "-1" })), cell(element("span", { class: "badge" })), cell(), cell(), cell(element("span", { class: "holder" })));
  row.lastChild.classList.add("lane");
  row.addEventListener("keydown", (event) => event.stopPropagation());
  return row;
}
