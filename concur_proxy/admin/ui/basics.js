// Elements, and numbers as people read them.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

/** Make an element; what others have named (ids of sessions) only ever becomes text. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function svg(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Set a text only where it has changed: what has not is left in peace, and so is a reader's selection. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

/** Keep rows for items by key: those that stay are updated in place, so that focus stays where it is. */
function keyed(parent, items, keyOf, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    let child = before.get(key);
    if (!child) { child = make(item); child.dataset.key = key; }
    before.delete(key);
    update(child, item);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  before.forEach((child) => child.remove());
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

const short = (value) => value.toFixed(1).replace(/\.0$/, "");

function count(value) {
  if (!known(value)) return "?";
  const size = Math.abs(value);
  if (size >= 1e7) return `${(value / 1e6).toFixed(0)}M`;
  if (size >= 1e6) return `${short(value / 1e6)}M`;
  if (size >= 1e5) return `${(value / 1e3).toFixed(0)}k`;
  if (size >= 1e4) return `${short(value / 1e3)}k`;
  if (size < 10) return short(value);
  return Math.round(value).toString();
}

const share = (value) => (known(value) ? `${Math.round(100 * value)} %` : "?");

function duration(seconds) {
  if (!known(seconds)) return "?";
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const clock = (epoch, withSeconds) =>
  new Date(1000 * epoch).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined });

const plural = (number, one, many) => `${number} ${number === 1 ? one : many}`;

/** Add what is known; null where nothing is. */
function total(values) {
  const found = values.filter(known);
  return found.length ? found.reduce((sum, value) => sum + value, 0) : null;
}

function meter(tone) {
  return el("div", { class: `meter ${tone}`, "aria-hidden": "true" }, el("i"));
}

function fill(node, value) {
  node.firstChild.style.width = `${known(value) ? Math.round(100 * Math.min(Math.max(value, 0), 1)) : 0}%`;
}
