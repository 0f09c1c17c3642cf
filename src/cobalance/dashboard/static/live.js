// Server-sent events. A page that nobody sees asks for nothing.

import { here } from "./here.js";
import { say } from "./dom.js";

const status = document.getElementById("live");

export function tell(text, kind) {
  say(status, text);
  status.dataset.kind = kind;
}

export async function ask(url, options = {}) {
  const answer = await fetch(url, { ...options, headers: { Accept: "application/json", ...options.headers } });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? `the server answered ${answer.status}`);
  return found;
}

// Calls `take` with each message. `path` is that of the API, without its last step, "events".
export function follow(path, take) {
  let source = null;
  const open = () => {
    source = new EventSource(here.api(...path, "events"));
    source.addEventListener("message", (event) => {
      tell("live", "ok");
      take(JSON.parse(event.data));
    });
    source.addEventListener("problem", (event) => tell(JSON.parse(event.data).error, "problem"));
    source.addEventListener("error", () => broken());
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const broken = async () => {
    if (source?.readyState !== EventSource.CLOSED) {
      if (status.dataset.kind === "ok") tell("reconnecting", "wait");
      return;
    }
    close();
    await ask(here.api(...(path.length ? path : ["groups"]))).catch((error) => tell(error.message, "problem"));
    setTimeout(() => document.hidden || source || open(), 3000);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      tell("paused while nobody looks", "wait");
    } else if (!source) open();
  });
  if (!document.hidden) open();
}
