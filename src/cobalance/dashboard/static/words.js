// Numbers and times for people. What is not known is a dash, never a zero.

export const UNKNOWN = "–";

export const known = (value) => value !== null && value !== undefined;

export const number = (value) => (known(value) ? value.toLocaleString("en") : UNKNOWN);

// No line ends between a number and its unit.
export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)}\u00a0ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)}\u00a0s`;
  if (s < 7200) return `${Math.round(s / 60)}\u00a0min`;
  return s < 172800 ? `${Math.round(s / 3600)}\u00a0h` : `${Math.round(s / 86400)}\u00a0days`;
}

const pad = (value, digits = 2) => String(value).padStart(digits, "0");

export function clock(ms, fine = false) {
  const at = new Date(ms);
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return fine ? `${time}.${pad(at.getMilliseconds(), 3)}` : time;
}

export function moment(ms, fine = false) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(ms, fine)}`;
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export const who = (member) => {
  if (!member) return "nobody";
  const label = member.label || member.id;
  return member.instance_id ? `${member.instance_id} on ${label}` : label;
};

const byParts = new Intl.Collator("en", { numeric: true });

export const inOrder = (a, b) => byParts.compare(a, b);

// The kind of entry that ended a span.
export const ENDS = {
  revoking: "asked back",
  cancelled: "left where it was",
  released: "released",
  abandoned: "given up",
  forced: "moved by force",
  expired: "its holder was gone",
  inherited: "taken over by its next process",
  withdrawn: "taken back",
};

export const VERDICTS = {
  OK: "nothing is left to do, or it is getting done",
  WARN: "more comes than is done, or it waits for a move",
  STALL: "held, but nothing of it gets done",
  STOP: "nobody is there to work it",
};
