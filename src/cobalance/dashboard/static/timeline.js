// The timeline: partition × time on a canvas, of which only the rows in sight are drawn.

import { onColour } from "./colours.js";
import { element } from "./dom.js";
import { clock } from "./words.js";

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const LEAST = 1.5; // pixels of what took less time than a pixel is wide

export class Timeline {
  constructor(past, colours, { point, press }) {
    this.past = past;
    this.colours = colours;
    this.from = 0;
    this.to = 1;
    this.now = 1; // what came later is not shown
    this.names = [];
    this.row = -1; // the chosen one
    this.span = null;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.space = element("div", { class: "timeline-space" });
    this.box = element("div", { class: "timeline", tabindex: "0", role: "application", "aria-label": "Handovers by partition and time", "aria-describedby": "timeline-keys" }, this.canvas, this.space);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("pointermove", (event) => point(this.hit(event), false));
    this.box.addEventListener("click", (event) => point(this.hit(event), true));
    this.box.addEventListener("keydown", press);
    new ResizeObserver(() => this.measure()).observe(this.box);
  }

  measure() {
    const style = getComputedStyle(document.documentElement);
    const rem = parseFloat(style.fontSize);
    this.rowHeight = Math.round(rem * 1.45);
    this.head = Math.round(rem * 1.7);
    this.font = `${Math.round(rem * 0.8)}px ${getComputedStyle(document.body).fontFamily}`;
    this.width = this.box.clientWidth;
    this.high = this.box.clientHeight;
    this.gutter = Math.round(Math.min(rem * 14, this.width * (this.width < 600 ? 0.28 : 0.18)));
    const scale = (this.scale = devicePixelRatio || 1);
    this.canvas.width = this.width * scale;
    this.canvas.height = this.high * scale;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.high}px`;
    this.paint = Object.fromEntries(["text", "muted", "line", "bad", "card", "focus", "stripe"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.hatches = new Map();
    this.draw();
  }

  show(names) {
    this.names = names;
    const height = this.head + names.length * this.rowHeight;
    this.box.style.height = `${height + 4}px`; // but for the most that the style allows
    this.space.style.height = `${Math.max(0, height - this.high)}px`;
    this.draw();
  }

  // One frame at most for however many calls.
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.width) this.render();
    });
  }

  x(at) {
    return this.gutter + ((at - this.from) / (this.to - this.from)) * (this.width - this.gutter);
  }

  render() {
    const begun = performance.now();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.width, this.high);
    pen.font = this.font;
    pen.textBaseline = "middle";
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight));
    const last = Math.min(this.names.length, Math.ceil((this.box.scrollTop + this.high) / this.rowHeight));
    this.drawTicks(pen);
    for (let at = first; at < last; at++) this.drawRow(pen, at);
    this.drawChanges(pen);
    this.took = performance.now() - begun;
  }

  drawRow(pen, at) {
    const name = this.names[at];
    const top = this.head + at * this.rowHeight - this.box.scrollTop;
    if (at === this.row) {
      pen.fillStyle = this.paint.stripe;
      pen.fillRect(0, top, this.width, this.rowHeight);
    }
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, top, this.width - this.gutter, this.rowHeight);
    pen.clip();
    for (const span of this.past.spans(name)) {
      if (span.from > Math.min(this.to, this.now)) break;
      if ((span.to ?? this.now) >= this.from) this.drawSpan(pen, span, top + 2, this.rowHeight - 4);
    }
    pen.restore();
    pen.fillStyle = at === this.row ? this.paint.text : this.paint.muted;
    pen.fillText(shortened(pen, name, this.gutter - 12), 6, top + this.rowHeight / 2);
  }

  drawSpan(pen, span, top, height) {
    const left = Math.max(this.gutter, this.x(span.from));
    const right = Math.min(this.width, this.x(Math.min(span.to ?? this.now, this.now)));
    const wide = Math.max(LEAST, right - left);
    if (span.state === "free" || span.state === "halted") {
      const edge = span.state === "free" ? height / 4 : 0;
      pen.fillStyle = this.paint.bad;
      pen.fillRect(left, top + edge, wide, height - 2 * edge);
    } else {
      pen.fillStyle = this.colours.of(span.owner);
      pen.globalAlpha = span.state === "graced" ? 0.45 : 1;
      pen.fillRect(left, top, wide, height);
      pen.globalAlpha = 1;
      if (span.state !== "held") this.hatch(pen, left, top, wide, height);
      if (span.state === "held" && wide > 60) this.label(pen, span, left, top, wide, height);
    }
    if (span.to <= this.now && (span.end === "forced" || span.end === "abandoned" || span.end === "expired")) {
      pen.fillStyle = this.paint.bad;
      pen.fillRect(left + wide - 3, top, 3, height);
    }
    if (span === this.span) {
      pen.strokeStyle = this.paint.text;
      pen.lineWidth = 2.5;
      pen.strokeRect(left + 1, top + 1, Math.max(2, wide - 2), height - 2);
    }
  }

  hatch(pen, left, top, wide, height) {
    pen.save();
    pen.beginPath();
    pen.rect(left, top, wide, height);
    pen.clip();
    pen.strokeStyle = this.paint.card;
    pen.lineWidth = 2.5;
    pen.beginPath();
    const from = left - (left % 7) - height;
    for (let x = from; x < left + wide; x += 7) {
      pen.moveTo(x, top + height);
      pen.lineTo(x + height, top);
    }
    pen.stroke();
    pen.restore();
  }

  label(pen, span, left, top, wide, height) {
    const owner = this.past.owners.get(span.owner);
    pen.fillStyle = onColour();
    pen.fillText(shortened(pen, owner?.instance_id || owner?.label || span.owner, wide - 10), left + 5, top + height / 2 + 0.5);
  }

  drawTicks(pen) {
    const { paint, head, width } = this;
    const perTick = (pen.measureText("00:00:00").width + 28) / (width - this.gutter);
    const step = (STEPS_S.find((it) => it * 1000 >= perTick * (this.to - this.from)) ?? 86400) * 1000;
    const zone = new Date(this.to).getTimezoneOffset() * 60000;
    for (let at = Math.ceil((this.from - zone) / step) * step + zone; at < this.to; at += step) {
      const x = this.x(at);
      pen.fillStyle = paint.line;
      pen.fillRect(x, head - 5, 1, this.high);
    }
    this.ticks = { step, zone };
  }

  drawTimes(pen) {
    const { step, zone } = this.ticks;
    pen.fillStyle = this.paint.card;
    pen.fillRect(0, 0, this.width, this.head);
    pen.fillStyle = this.paint.muted;
    for (let at = Math.ceil((this.from - zone) / step) * step + zone; at < this.to; at += step) {
      const half = pen.measureText(clock(at)).width / 2;
      if (this.x(at) + half < this.width) pen.fillText(clock(at), Math.max(this.gutter, this.x(at) - half), this.head / 2 - 2);
    }
  }

  drawChanges(pen) {
    const { paint, head, width } = this;
    this.drawTimes(pen);
    for (const it of this.past.changes(this.from, Math.min(this.to, this.now))) {
      const x = this.x(it.at_ms);
      pen.fillStyle = it.kind === "gap" ? paint.bad : paint.text;
      pen.globalAlpha = 0.5;
      for (let y = head; y < this.high; y += 6) pen.fillRect(x, y, 1, 3);
      pen.globalAlpha = 1;
      pen.beginPath();
      pen.moveTo(x - 4, head - 7);
      pen.lineTo(x + 5, head - 7);
      pen.lineTo(x + 0.5, head);
      pen.fill();
    }
    pen.fillStyle = paint.line;
    pen.fillRect(0, head - 1, width, 1);
  }

  // What is under a pointer.
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = this.from + ((event.clientX - box.left - this.gutter) / (this.width - this.gutter)) * (this.to - this.from);
    const row = Math.floor((event.clientY - box.top - this.head + this.box.scrollTop) / this.rowHeight);
    if (row < 0 || row >= this.names.length || event.clientY - box.top < this.head) return null;
    const slack = ((this.to - this.from) / (this.width - this.gutter)) * 3;
    const spans = this.past.spans(this.names[row]).filter((it) => it.from <= this.now);
    const inside = (it, wider) => it.from - wider <= at && at <= (it.to ?? this.now) + wider;
    const short = spans.find((it) => inside(it, slack) && (it.to ?? this.now) - it.from < slack);
    return { row, at, span: short ?? spans.find((it) => inside(it, 0)) ?? null };
  }

  choose(row, span) {
    this.row = row;
    this.span = span;
    const top = row * this.rowHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + this.rowHeight + this.head - this.high;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom;
    this.draw();
  }
}

// Without its beginning: names differ in their ends.
function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 1 && pen.measureText(`…${text.slice(-kept)}`).width > width) kept--;
  return `…${text.slice(-kept)}`;
}
