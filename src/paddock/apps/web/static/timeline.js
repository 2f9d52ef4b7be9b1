// What happened? Everything on record, newest first.
import { get, on, query } from "./api.js";
import { drawCall, fold, isCall, keyOf } from "./calls.js";
import { button, chip, chips, h, soon, told } from "./dom.js";
import { show } from "./entry.js";
import { browse } from "./list.js";

const OUTCOMES = { "": "Everything", allow: "Allowed", ask: "Asked", deny: "Refused", failed: "Failed" };
// What can be filtered by, each with an example.
const WHAT = { agent: "main", tool: "str_replace", path: "src/app.py", host: "files.example.org" };
const WHERE = { session: "SES-…", ledger: "ho1m" };
const WHEN = { since: "2026-11-30T08:00:00Z", until: "2026-11-30T18:00:00Z" };
const FIELDS = { ...WHAT, ...WHERE, ...WHEN };
const PAGE = "200";

const filterBar = (wanted, changed) => {
  const field = ([name, placeholder]) => {
    const typed = { value: wanted[name], autocomplete: "off", spellcheck: "false" };
    return h("label.field", h("span", name), h("input", { name, placeholder, ...typed }));
  };
  const outcomes = Object.entries(OUTCOMES).map(([outcome, label]) =>
    chip(label, (wanted.outcome ?? "") === outcome, () => changed({ outcome })),
  );
  const turn = () => changed({ all: all.checked && "yes" });
  const all = h("input", { type: "checkbox", checked: wanted.all === "yes", onchange: turn });
  const names = Object.keys(FIELDS);
  const clear = button("Clear", () => changed(Object.fromEntries(names.map((name) => [name, ""]))));
  const submitted = (event) => {
    event.preventDefault();
    changed(Object.fromEntries(new FormData(event.target)));
  };
  return h(
    "form.filters",
    { role: "search", onsubmit: submitted },
    chips("Outcome", outcomes, h("label.check", all, "bookkeeping too")),
    h(
      "details.more",
      { open: names.some((name) => wanted[name]) },
      h("summary", "Filter"),
      h("div.fields", Object.entries(FIELDS).map(field), h("div.acts", h("button.primary", "Search"), clear)),
    ),
  );
};

export const page = async ({ entry, ...wanted }, signal) => {
  const { all, ...asked } = wanted;
  const state = h("p.quiet.count", { role: "status" });
  let [rows, next, isAsking] = [[], null, false];

  const { list, place, open } = browse({
    label: "What happened, newest first",
    draw: drawCall,
    show: (item) => show(item.ledger, item.seq, signal),
    address: (item) => `/timeline?${query({ ...wanted, entry: item && keyOf(item) })}`,
    more: () => older(),
    signal,
  });
  const isShown = (row) => all || asked.ledger || isCall(row) || row.event_type.startsWith("NET_");
  const draw = () => list.set(fold(rows).filter(isShown));
  const load = async () => {
    const found = await get("timeline", { ...asked, limit: PAGE, before: next }, signal);
    ({ next } = found);
    rows = [...rows, ...found.entries];
    draw();
    const searching = next ? "Looking further back …" : "Nothing matches.";
    state.replaceChildren(list.items.length ? "" : searching, ...found.damaged.map(({ error }) => told(error)));
  };
  const older = async () => {
    if (isAsking || !next) return;
    isAsking = true;
    const before = list.items.length;
    // A rare thing may be far back: asked again while nothing comes, as long as one looks.
    const again = async () => {
      await load();
      if (next && !signal.aborted && list.items.length === before) await again();
    };
    await again().catch(() => {});
    isAsking = false;
  };
  const changed = (values) => {
    history.pushState(null, "", `/timeline?${query({ ...wanted, ...values })}`);
    dispatchEvent(new PopStateEvent("popstate"));
  };
  // Only the server knows what matches, and what has become of a question.
  const update = soon(async () => {
    const { entries } = await get("timeline", { ...asked, limit: PAGE }, signal).catch(() => ({ entries: [] }));
    const known = new Set(entries.map(keyOf));
    rows = [...entries, ...rows.filter((each) => !known.has(keyOf(each)))];
    if (!signal.aborted) draw();
  });

  await load();
  for (const news of ["entry", "inbox", "hello"]) on(news, update, signal);
  if (entry) {
    const [ledger, seq] = entry.split(":");
    const item = list.items.find((each) => keyOf(each) === entry);
    open(item ?? { ledger, seq: Number(seq), key: entry });
  }
  return [h("div.head", h("h1", "What happened"), filterBar(wanted, changed), state), place];
};
