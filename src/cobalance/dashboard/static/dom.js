// Elements, made of texts only: no name of a group or a member is ever read as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const link = (href, text, attributes = {}) => element("a", { href, ...attributes }, text);

// Sets a text only where it differs, so that a selection in it survives.
export function say(node, text) {
  const given = text === null || text === undefined ? "–" : String(text);
  if (node.textContent !== given) node.textContent = given;
}

export function mark(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Keeps one child for each key, in order; `make` builds it and `update` refreshes it. Focus survives.
export function keep(parent, items, key, make, update) {
  const known = (parent.kept ??= new Map());
  const wanted = new Map(items.map((item) => [key(item), item]));
  for (const [it, node] of known) {
    if (wanted.has(it)) continue;
    node.remove();
    known.delete(it);
  }
  let before = parent.firstElementChild;
  for (const [it, item] of wanted) {
    let node = known.get(it);
    if (!node) known.set(it, (node = make(item)));
    update(node, item);
    if (node === before) before = before.nextElementSibling;
    else parent.insertBefore(node, before);
  }
}

export const sentences = (list, texts) =>
  keep(list, texts.map((text, at) => ({ text, at })), (it) => it.at, () => element("li"), (node, it) => say(node, it.text));
