// Differences between two texts, in one column or side by side.
import { button, h } from "./dom.js";

const HEADER = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const KINDS = { " ": "same", "-": "gone", "+": "new" };

// Rows of a unified diff as the server writes it: a row of content begins with a space,
// `-` or `+`, and can never look like a header.
const parse = (text) => {
  // Without a hunk header, lines have no numbers.
  let [before, after] = [NaN, NaN];
  return text.split("\n").map((line) => {
    const header = HEADER.exec(line);
    if (header) {
      before = Number(header[1]);
      after = Number(header[3]);
      return { kind: "hunk", text: line };
    }
    if (line.startsWith("--- ")) return { kind: "none" };
    if (line.startsWith("+++ ")) return { kind: "file", text: line.replace(/^\+\+\+ (b\/)?/, "") };
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

// Marks the middle in which two lines differ.
const marked = (text, other) => {
  if (other === undefined || !text || !other) return [text];
  const most = Math.min(text.length, other.length);
  let from = 0;
  while (from < most && text[from] === other[from]) from += 1;
  let end = 0;
  while (end < most - from && text.at(-1 - end) === other.at(-1 - end)) end += 1;
  const middle = text.slice(from, text.length - end);
  if (!middle || text.trim().length < 2 * middle.trim().length) return [text];
  return [text.slice(0, from), h("mark", middle), text.slice(text.length - end)];
};

// Pairs each removed line with the one that replaces it.
const paired = (rows) => {
  const out = [];
  const run = (from, kind) => {
    let to = from;
    while (rows[to]?.kind === kind) to += 1;
    return rows.slice(from, to);
  };
  for (let at = 0; at < rows.length; ) {
    const gone = run(at, "gone");
    const added = run(at + gone.length, "new");
    gone.forEach((row, each) => Object.assign(row, { other: added[each] }));
    added.forEach((row, each) => Object.assign(row, { other: gone[each] }));
    const most = Math.max(gone.length, added.length);
    for (let each = 0; each < most; each += 1) out.push([gone[each], added[each]]);
    if (!most) out.push([rows[at], rows[at]]);
    at += gone.length + added.length || 1;
  }
  return out;
};

const SIGNS = { gone: "−", new: "+", same: " " };
const isOurs = (row) => row && !SIGNS[row.kind];
const wide = (row) => h(`tr.${row.kind}`, h("td", { colspan: "4" }, row.text));
const numbered = (value) => h("td.number", value || "");
const said = (row) =>
  row ? h(`td.text.${row.kind}`, h("span.sign", SIGNS[row.kind]), marked(row.text, row.other?.text)) : h("td");
const below = (row) => (isOurs(row) ? wide(row) : h("tr", numbered(row.before), numbered(row.after), said(row)));
const beside = ([one, other]) =>
  isOurs(one) ? wide(one) : h("tr", numbered(one?.before), said(one), numbered(other?.after), said(other));

const SPLIT = "paddock.split";
const WIDE_PX = 760;

// `text` is one unified diff or several in a row.
export const diff = (text, title = "") => {
  const rows = parse(text).filter(({ kind }) => kind !== "none" && (kind !== "file" || !title));
  const pairs = paired(rows);
  const place = h("div.scroll", { tabindex: "0" });
  const many = (kind) => rows.filter((row) => row.kind === kind).length;
  const isSplit = () => localStorage.getItem(SPLIT) === "yes" && innerWidth >= WIDE_PX;
  const draw = () => {
    toggle.textContent = isSplit() ? "One column" : "Side by side";
    const shown = isSplit() ? pairs.map(beside) : rows.map(below);
    const columns = h("colgroup", isSplit() && ["col.number", "col", "col.number", "col"].map((each) => h(each)));
    place.replaceChildren(h(`table.diff${isSplit() ? ".beside" : ""}`, columns, h("tbody", shown)));
  };
  const turn = () => {
    localStorage.setItem(SPLIT, isSplit() ? "no" : "yes");
    draw();
  };
  const toggle = button("", turn, "quiet.wide-only");
  draw();
  const counts = [h("span.added", `+${many("new")}`), h("span.removed", `−${many("gone")}`)];
  return h("figure.difference", h("figcaption", h("span.name", title), counts, toggle), place);
};

export const diffs = ({ paths = [], secret_paths: secret = 0 } = {}) => [
  paths.map((each) =>
    each.diff ? diff(each.diff, `${each.path}`) : h("p", h("code", each.path), ` ${each.kind}`),
  ),
  secret > 0 && h("p.quiet", `${secret} more in secret paths: not shown`),
];
