// A group as the last messages have it, with moments in place of ages.

export class Model {
  constructor() {
    this.group = null;
    this.partitions = new Map();
    this.members = new Map();
    this.sentences = [];
    this.seq = 0;
    this.changed = true; // whether the set of partitions has changed
  }

  take(message) {
    const { group, resources, gone, all } = message;
    this.group = group;
    this.sentences = message.sentences;
    this.seq = message.seq;
    this.window = message.window_ms; // so long, a message in flight is worth a word
    this.behind = Date.now() - group.at_ms;
    this.members = new Map(group.members.map((member) => [member.id, member]));
    if (all) this.partitions.clear();
    this.changed = all || gone.length > 0;
    for (const name of gone) this.partitions.delete(name);
    for (const it of resources) {
      this.changed ||= !this.partitions.has(it.name);
      this.partitions.set(it.name, this.dated(it, group.at_ms));
    }
  }

  dated(it, at) {
    const after = (ms) => (ms === null ? null : at + ms);
    return { ...it, since: it.age_ms === null ? null : at - it.age_ms, deadline: after(it.deadline_in_ms), tried: after(it.tried_in_ms) };
  }

  // Group time, as far as this browser knows.
  now() {
    return this.group ? Date.now() - this.behind : Date.now();
  }
}
