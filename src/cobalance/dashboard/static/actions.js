// What an operator may change. Each action is a dialog: it asks what to do, shows what would change, and does that once it is confirmed.

import { element, say, sentences } from "./dom.js";
import { here } from "./here.js";
import { ask } from "./live.js";

const post = (step, body) =>
  ask(here.api("groups", here.group, step), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// The button of an action, hidden until there is something for it; null where the dashboard only reads. `fields` are elements to fill in, `given` what is asked for with them.
export function action(title, name, given, fields = () => []) {
  if (!here.areActionsAllowed) return null;
  return element("button", { type: "button", class: "act", hidden: true, "aria-haspopup": "dialog", onclick: () => new Dialog(title, name, given, fields()) }, `${title}…`);
}

export const field = (label, hint, control) => element("label", { class: "field" }, element("span", {}, label), control, element("span", { class: "hint" }, hint));

class Dialog {
  constructor(title, name, given, fields) {
    [this.name, this.given, this.token] = [name, given, null];
    this.result = element("h3");
    this.steps = element("ul", { class: "sentences" });
    this.error = element("p", { class: "bad", role: "alert" });
    this.plan = element("button", { type: "submit" }, "Show what would change");
    this.confirm = element("button", { type: "button", class: "confirm", hidden: true, onclick: () => this.send(() => this.act()) }, "Do it");
    this.close = element("button", { type: "button", onclick: () => this.box.close() }, "Close");
    this.form = element("form", { onsubmit: (event) => this.submit(event), oninput: () => this.forget() }, ...fields, this.plan);
    this.answer = element("div", { class: "scrolls answered", role: "status", "aria-label": "Answer", tabindex: "0" }, this.result, this.steps);
    this.box = element("dialog", { "aria-labelledby": "action", onclose: () => this.end() }, element("h2", { id: "action" }, title), this.form, this.error, this.answer, element("div", { class: "tools" }, this.confirm, this.close));
    document.body.append(this.box);
    this.box.showModal();
    if (!fields.length) this.send(() => this.ask());
  }

  // The focus goes back to the button, or to the page where there is none any more.
  end() {
    this.box.remove();
    if (document.activeElement === document.body) document.getElementById("main").focus();
  }

  submit(event) {
    event.preventDefault();
    this.send(() => this.ask());
  }

  // What was shown is not what is asked for any more.
  forget() {
    this.token = null;
    this.confirm.hidden = true;
    this.plan.hidden = false;
    this.show("", []);
  }

  show(title, texts) {
    say(this.result, title);
    sentences(this.steps, texts);
  }

  async ask() {
    this.forget();
    const found = await post("dry-runs", { action: this.name, ...this.given() });
    this.token = found.token;
    this.confirm.hidden = !found.token;
    this.plan.hidden = Boolean(found.token) && this.form.elements.length === 1;
    const who = found.token && found.user ? [`The journal will name ${found.user}.`] : [];
    this.show(found.token ? "This would change" : "There is nothing to do", [...found.sentences, ...who]);
  }

  async act() {
    const token = this.token;
    this.forget();
    const found = await post("actions", { token });
    this.form.hidden = true;
    this.show("Done", found.sentences);
  }

  async send(step) {
    const buttons = [this.plan, this.confirm]; // a second click does nothing meanwhile
    buttons.forEach((it) => (it.disabled = true));
    say(this.error, "");
    await step().catch((error) => say(this.error, error.message));
    buttons.forEach((it) => (it.disabled = false));
    (this.form.hidden ? this.close : this.token ? this.answer : this.plan).focus(); // a second Enter confirms nothing unread
  }
}

export const resume = (partitions) => action(partitions ? "Resume" : "Resume all halted", "resume", () => ({ partitions }));

// Shows the buttons that there is something for.
export function offer([resuming, resetting], partitions) {
  if (!resuming) return;
  const isFor = (button, it) => {
    if (!it && document.activeElement === button) document.getElementById("main").focus();
    button.hidden = !it;
  };
  isFor(resuming, partitions.some((it) => it.halted !== null));
  isFor(resetting, partitions.some((it) => it.committed !== null || it.halted === "OffsetUnknown"));
}

const TARGETS = {
  earliest: ["the oldest message", null],
  latest: ["messages from now on", null],
  offset: ["this offset", "Of the next message to be read, such as 1200."],
  datetime: ["this time", "Such as 2026-01-31T12:00:00; UTC unless it has a zone."],
  duration: ["this long ago", "Such as 90s, 30m, 2h or P1DT2H."],
  shift: ["so many messages on, or back", "Such as 100 or -100."],
};

// Nothing is chosen beforehand.
export function resetOffsets(streams) {
  let to = null;
  let value = null;
  const fields = () => {
    const choices = Object.entries(TARGETS).map(([name, [text]]) => element("option", { value: name }, text));
    to = element("select", { required: true, onchange: () => update() }, element("option", { value: "" }, "choose"), ...choices);
    value = element("input", { type: "text", autocomplete: "off" });
    const given = field("Which", "", value);
    const update = () => {
      const hint = TARGETS[to.value]?.[1] ?? null;
      given.hidden = hint === null;
      value.required = hint !== null;
      say(given.lastChild, hint ?? "");
    };
    update();
    return [field("The next message to be read is", "", to), given];
  };
  return action(streams ? "Reset its offset" : "Reset all offsets", "offsets", () => ({ streams, to: to.value, value: value.value }), fields);
}

// `settings` gives [name, title, value as shown] of each. What is left empty stays.
export function changeSettings(settings) {
  let inputs = [];
  const fields = () => {
    inputs = settings().map(([name, title, value]) => ({ name, title, value, control: element("input", { type: "text", autocomplete: "off" }) }));
    return inputs.map(({ name, title, value, control }) => field(title, `${name}, now ${value}`, control));
  };
  const given = () => ({ settings: Object.fromEntries(inputs.filter((it) => it.control.value.trim()).map((it) => [it.name, it.control.value.trim()])) });
  return action("Change settings", "settings", given, fields);
}
