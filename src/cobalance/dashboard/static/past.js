// The past of a group, as far as it has been fetched. Names stand once in an answer; here they are put back.

import { here } from "./here.js";
import { ask } from "./live.js";
import { inOrder } from "./words.js";

export class Past {
  constructor() {
    this.path = here.api("groups", here.group, "handovers");
    this.first = null;
    this.from = Infinity;
    this.seq = 0;
    this.tracks = new Map();
    this.names = [];
    this.owners = new Map();
    this.happenings = new Map();
  }

  // Fetches what is older than what is there, back to a moment. One answer may have a part of it only.
  async reach(from) {
    while (from < this.from && (this.first === null || this.from > this.first)) {
      const until = Number.isFinite(this.from) ? `&to_ms=${this.from}` : "";
      const found = await ask(`${this.path}?from_ms=${Math.floor(Math.max(0, from))}${until}`);
      this.from = Math.min(this.from, found.from_ms);
      this.merge(found);
    }
  }

  // Fetches what is new since the last answer.
  async refresh() {
    const found = await ask(`${this.path}?from_ms=${this.from}&after_seq=${this.seq}`);
    this.merge(found);
    this.seq = found.seq;
  }

  merge(found) {
    this.first = found.first_ms ?? this.first ?? found.now_ms;
    this.seq ||= found.seq;
    for (const owner of found.owners) this.owners.set(owner.id, owner);
    for (const it of found.happenings) this.happenings.set(it.id, it);
    const touched = new Set();
    for (const [resource, state, owner, token, from, to, why, end] of found.spans) {
      const name = found.resources[resource];
      if (!this.tracks.has(name)) this.tracks.set(name, new Map());
      const span = { name, state: found.states[state], owner: owner < 0 ? null : found.owners[owner].id, token, from, to, why: found.whys[why], end: end < 0 ? null : found.ends[end] };
      this.tracks.get(name).set(`${from}/${span.state}/${token}`, span);
      touched.add(name);
    }
    for (const name of touched) {
      const track = this.tracks.get(name);
      track.sorted = [...track.values()].sort((a, b) => a.from - b.from);
    }
    if (touched.size && this.names.length !== this.tracks.size) this.names = [...this.tracks.keys()].sort(inOrder);
  }

  spans(name) {
    return this.tracks.get(name)?.sorted ?? [];
  }

  // What happened between two moments, newest first.
  changes(from, to) {
    return [...this.happenings.values()].filter((it) => it.at_ms >= from && it.at_ms <= to).sort((a, b) => b.at_ms - a.at_ms || b.id - a.id);
  }
}
