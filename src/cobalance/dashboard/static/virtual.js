// A long list of which only the rows in sight exist. Arrow keys, Page Up and Down, Home and End choose one.

import { element, mark } from "./dom.js";

const SPARE = 6;

export class VirtualRows {
  // `make` builds an empty row, `update(row, index)` fills it, `choose(index)` hears what was chosen.
  constructor(label, { make, update, choose }) {
    this.make = make;
    this.update = update;
    this.choose = choose;
    this.count = 0;
    this.chosen = -1;
    this.rows = [];
    this.space = element("div", { class: "virtual-space", role: "rowgroup" });
    this.box = element("div", { class: "virtual", role: "grid", tabindex: "0", "aria-label": label }, this.space);
    this.box.addEventListener("scroll", () => this.draw(false), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest("[role=row]");
      if (row && !event.target.closest("a")) this.pick(row.index);
    });
    new ResizeObserver(() => {
      this.measured = null;
      this.draw();
    }).observe(this.box);
  }

  show(count) {
    this.count = count;
    this.draw();
  }

  get height() {
    return (this.measured ??= this.measure());
  }

  // A row's height follows the size of letters and the width of the window.
  measure() {
    const style = getComputedStyle(document.documentElement);
    return parseFloat(style.getPropertyValue("--row")) * parseFloat(style.fontSize);
  }

  // Places the rows in sight; while only the position has changed, those that stay are left alone.
  draw(isNews = true) {
    const { height } = this;
    if (isNews) {
      this.space.style.height = `${this.count * height}px`;
      this.box.style.height = `${Math.max(3, this.count) * height + 2}px`; // but for the most that the style allows
      mark(this.box, "aria-rowcount", this.count);
    }
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - SPARE);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + SPARE);
    while (this.rows.length < last - first) this.add();
    const used = new Set();
    for (let index = first; index < last; index++) {
      const row = this.rows[index % this.rows.length];
      used.add(row);
      if (isNews || row.index !== index) this.place(row, index);
    }
    for (const row of this.rows) if (!used.has(row)) [row.hidden, row.index] = [true, -1];
    const active = this.rows.find((row) => row.index === this.chosen && this.chosen >= 0);
    mark(this.box, "aria-activedescendant", active ? active.id : null);
  }

  add() {
    const row = this.make();
    row.id = `row-${this.rows.length}`;
    this.rows.push(row);
    this.space.append(row);
    for (const it of this.rows) it.index = -1; // each index has another row now
  }

  place(row, index) {
    row.hidden = false;
    row.index = index;
    row.style.transform = `translateY(${index * this.height}px)`;
    mark(row, "aria-rowindex", index + 1);
    mark(row, "aria-selected", index === this.chosen);
    this.update(row, index);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    const step = steps[event.key];
    if (step === undefined || event.target !== this.box || !this.count) return;
    event.preventDefault();
    this.pick(Math.min(this.count - 1, Math.max(0, this.chosen + step)));
  }

  pick(index) {
    this.chosen = index;
    const top = index * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + this.height - this.box.clientHeight;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom;
    this.draw();
    this.choose(index);
  }
}
