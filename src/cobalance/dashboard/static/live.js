// Server-sent events. A page that nobody sees asks for nothing.

import { here } from "./here.js";
import { element, link, say } from "./dom.js";

const status = document.getElementById("live");

export function tell(text, kind) {
  say(status, text);
  status.dataset.kind = document.body.dataset.live = kind;
}

export async function ask(url, options = {}) {
  const answer = await fetch(url, { ...options, headers: { Accept: "application/json", ...options.headers } });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.error ?? `the server answered ${answer.status}`), { status: answer.status });
  return found;
}

// In place of a page about what is not there.
function lack(text) {
  document.getElementById("main").replaceChildren(element("h1", {}, "Not found"), element("p", { class: "notice" }, text), element("p", {}, link(here.path(), "All groups")));
}

// Calls `take` with each message. `path` is that of the API, without its last step, "events".
export function follow(path, take) {
  let source = null;
  let hasHeard = false;
  const open = () => {
    source = new EventSource(here.api(...path, "events"));
    source.addEventListener("message", (event) => {
      tell("live", "ok");
      hasHeard = true;
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
    const problem = await ask(here.api(...(path.length ? path : ["groups"]))).then(() => null, (error) => error);
    if (problem) tell(problem.message, "problem");
    if (problem?.status === 404 && !hasHeard) return lack(problem.message);
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
