// Builds elements and formats values. Text from agents, models and files never becomes markup.

// Threat: characters that reorder, hide or end a line would make text look different from what it
// is. They are escaped, in a style that plain text cannot imitate.
const SPACES = String.raw`(?! )\p{Zs}`;
const BLANKS = String.raw`\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\u{e0100}-\u{e01ef}`;
const VARIANTS = String.raw`(?<!\p{Extended_Pictographic})[\ufe00-\ufe0f]`;
const UNSEEN = new RegExp(`([\\p{C}\\p{Zl}\\p{Zp}${BLANKS}]|${SPACES}|${VARIANTS})`, "gu");
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const CHARS_SHOWN_MAX = 200_000;

const escaped = (char) => {
  const code = char.codePointAt(0);
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return SHORT[char] ?? `\\${mark}${code.toString(16).padStart(digits, "0")}`;
};

// For attributes, titles and notifications.
export const visible = (text) => String(text).replace(UNSEEN, (char) => escaped(char));

// Text as nodes, escaped except for the `kept` characters (line breaks in a block).
const spelled = (text, kept = "") => {
  const made = document.createDocumentFragment();
  const mark = (char) => Object.assign(document.createElement("span"), { className: "escape", textContent: escaped(char) });
  text.split(UNSEEN).forEach((part, at) => made.append(at % 2 && !kept.includes(part) ? mark(part) : part));
  made.normalize();
  return made;
};

const set = (made, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : visible(value));
  }
};

// h("a.name.other", {href}, "text", element, …)
export const h = (kind, ...parts) => {
  const [name, ...classes] = kind.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const part of parts.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) made.append(part);
    else if (Object.getPrototypeOf(part) === Object.prototype) set(made, part);
    else made.append(spelled(typeof part === "object" ? JSON.stringify(part) : String(part)));
  }
  return made;
};

// Text of several lines, cut with a note if it is too long for a page.
export const block = (text, ...more) => {
  const shown = String(text).slice(0, CHARS_SHOWN_MAX);
  const left = String(text).length - shown.length;
  const made = h("pre", { tabindex: "0" }, ...more);
  made.append(spelled(shown, "\n\t"));
  return left ? h("div", made, h("p.quiet", `… and ${left} more characters`)) : made;
};

export const code = (text) => h("code", text);
export const note = (...said) => h("span.note", said);
export const button = (label, onclick, kind = "") =>
  h(`button${kind && `.${kind}`}`, { type: "button", onclick }, label);
export const mark = (isGood, good, bad) => h(`strong.${isGood ? "good" : "bad"}`, isGood ? good : bad);
export const chip = (label, isOn, onclick) =>
  h("button.chip", { type: "button", "aria-pressed": String(isOn), onclick }, label);
export const status = () => h("div", { role: "status" });

export const problemOf = ({ message, where, hint }) =>
  h("div", h("p.bad", message), h("p.quiet", [where, hint].filter(Boolean).join(" · ")));

export const orProblem = (found, show) => (found.error ? problemOf(found.error) : show(found));

// A button that runs `work` and shows its result or error in `place`.
export const acting = (label, place, work, kind) => {
  const act = async () => {
    made.disabled = true;
    place.setAttribute("aria-busy", "true");
    const found = await work().catch(problemOf);
    place.removeAttribute("aria-busy");
    made.disabled = false;
    if (found) place.replaceChildren(found);
  };
  const made = button(label, act, kind);
  return made;
};

// Merges calls in quick succession into one.
export const soon = (act, ms = 50) => {
  let timer = 0;
  const run = () => {
    timer = 0;
    Promise.resolve().then(act).catch(() => {}); // the next event tries again
  };
  return () => (timer ||= setTimeout(run, ms));
};

// Names and values in two columns that align.
export const facts = (...rows) =>
  h("dl.facts", rows.filter((row) => row?.[1]).map(([name, value]) => [h("dt", name), h("dd", value)]));

// A section with a title; nothing if all its parts are empty.
export const section = (title, ...parts) =>
  parts.flat(Infinity).some(Boolean) && h("section", h("h2", title), ...parts);
export const listed = (kind, rows) => rows.length > 0 && h(`ul.plain.${kind}`, rows);
export const chips = (label, ...parts) => h("div.chips", { role: "group", "aria-label": label }, parts);

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => NUMBER.format(value);
export const count = (value, one, more = `${one}s`) => `${number(value)} ${value === 1 ? one : more}`;
export const size = (bytes) => {
  if (!Number.isFinite(bytes)) return "? B";
  if (bytes < 1000) return `${bytes} B`;
  const power = Math.min(3, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toPrecision(3)} ${["", "kB", "MB", "GB"][power]}`;
};

const dateOf = (time) => new Date(typeof time === "number" ? time * 1000 : time);
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const when = (time) => {
  if (!time) return "";
  const date = dateOf(time);
  if (Number.isNaN(date.getTime())) return h("time", time);
  const isToday = date.toDateString() === new Date().toDateString();
  return h("time", { title: date.toISOString() }, (isToday ? CLOCK : DAY).format(date));
};

export const ago = (time) => {
  const seconds = Math.max(0, (Date.now() - dateOf(time)) / 1000);
  const units = { d: 86400, h: 3600, min: 60, s: 1 };
  const name = Object.keys(units).find((each) => seconds >= units[each]);
  return seconds < 5 ? "just now" : `${Math.floor(seconds / units[name])} ${name} ago`;
};
