// Differences between two texts, in one column or side by side.
import { button, h } from "./dom.js";

const HEADER = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const KINDS = { " ": "same", "-": "gone", "+": "new" };

// Rows of a unified diff as the server writes it: a row of content begins with a space,
// `-` or `+`, and can never look like a header.
const parse = (text) => {
  let [before, after] = [0, 0];
  return text.split("\n").map((line) => {
    const header = HEADER.exec(line);
    if (header) {
      before = Number(header[1]);
      after = Number(header[3]);
      return { kind: "hunk", text: line };
    }
    if (line.startsWith("--- ") || line.startsWith("+++ ")) return { kind: "file", text: line };
    const kind = KINDS[line[0]];
    if (!kind) return { kind: "note", text: line };
    return {
      kind,
      text: line.slice(1),
      before: kind === "new" ? "" : before++,
      after: kind === "gone" ? "" : after++,
    };
  });
};

// What two lines have in common at both ends stays plain; the middle is marked.
const marked = (text, other) => {
  if (other === undefined || !text || !other) return [text];
  const most = Math.min(text.length, other.length);
  let from = 0;
  while (from < most && text[from] === other[from]) from += 1;
  let end = 0;
  while (end < most - from && text.at(-1 - end) === other.at(-1 - end)) end += 1;
  const middle = text.slice(from, text.length - end);
  if (!middle || middle.length > 0.8 * text.length) return [text];
  return [text.slice(0, from), h("mark", middle), text.slice(text.length - end)];
};

// Lines that were taken out and those that came in their place stand in one row.
const paired = (rows) => {
  const out = [];
  for (let at = 0; at < rows.length; ) {
    const row = rows[at];
    if (row.kind !== "gone" && row.kind !== "new") {
      out.push(row.kind === "same" ? [row, row] : [row]);
      at += 1;
      continue;
    }
    const run = (kind) => {
      const from = at;
      while (rows[at]?.kind === kind) at += 1;
      return rows.slice(from, at);
    };
    const [gone, added] = [run("gone"), run("new")];
    for (let each = 0; each < Math.max(gone.length, added.length); each += 1) {
      out.push([gone[each] ?? null, added[each] ?? null]);
    }
  }
  return out;
};

const SIGNS = { gone: "−", new: "+", same: " " };
const said = (row, other) =>
  row === null
    ? h("td.text.none")
    : h(`td.text.${row.kind}`, h("span.sign", SIGNS[row.kind]), marked(row.text, other?.text));
const numbered = (value) => h("td.number", value);

const wide = ([row]) => h(`tr.${row.kind}`, h("td", { colspan: "4" }, row.text));
const beside = ([one, other]) => {
  const change = one !== other && one && other;
  return h(
    "tr",
    numbered(one?.before),
    said(one, change ? other : undefined),
    numbered(other?.after),
    said(other, change ? one : undefined),
  );
};
const below = (pairs) => {
  const rows = [];
  let held = [];
  const flush = () => {
    rows.push(...held);
    held = [];
  };
  const line = (row, other) =>
    h("tr", numbered(row.before), numbered(row.after), said(row, other));
  for (const pair of pairs) {
    const [one, other] = pair;
    if (pair.length === 1 || one === other) {
      flush();
      rows.push(pair.length === 1 ? wide(pair) : line(one));
      continue;
    }
    if (one) rows.push(line(one, other ?? undefined));
    if (other) held.push(line(other, one ?? undefined));
  }
  flush();
  return rows;
};

const SPLIT = "paddock.split";
const WIDE_PX = 760;

const table = (pairs, isSplit) =>
  h(
    `table.diff.${isSplit ? "beside" : "below"}`,
    h("caption.hidden", isSplit ? "Before on the left, after on the right" : "Lines that go and lines that come"),
    h("tbody", isSplit ? pairs.map(beside) : below(pairs)),
  );

// `text` is one unified diff, or several one after another.
export const diff = (text, title = "") => {
  const rows = parse(text).filter((row) => row.kind !== "file" || !title);
  const pairs = paired(rows.filter((row) => row.kind !== "note" || row.text));
  const place = h("div.scroll", { tabindex: "0", role: "region", "aria-label": title || "Difference" });
  const counts = ["new", "gone"].map((kind) => rows.filter((row) => row.kind === kind).length);
  const draw = () => {
    const isSplit = localStorage.getItem(SPLIT) === "yes";
    toggle.textContent = isSplit ? "One column" : "Side by side";
    place.replaceChildren(table(pairs, isSplit && innerWidth >= WIDE_PX));
  };
  const toggle = button("", () => {
    localStorage.setItem(SPLIT, localStorage.getItem(SPLIT) === "yes" ? "no" : "yes");
    draw();
  }, "quiet.wide-only");
  draw();
  return h(
    "figure.difference",
    h(
      "figcaption",
      h("span.name", title),
      h("span.added", `+${counts[0]}`),
      h("span.removed", `−${counts[1]}`),
      toggle,
    ),
    place,
  );
};

export const diffs = ({ paths = [], secret_paths: secret = 0 } = {}) => [
  paths.map((each) =>
    each.diff ? diff(each.diff, `${each.path}`) : h("p", h("code", each.path), ` ${each.kind}`),
  ),
  secret > 0 && h("p.quiet", `${secret} more in paths that policy calls secret: not shown`),
];
