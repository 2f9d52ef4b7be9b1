// What happened? All recorded entries, newest first.
import { get, on, query } from "./api.js";
import { drawCall, fold, isCall, keyOf } from "./calls.js";
import { button, chip, chips, h, problemOf, soon } from "./dom.js";
import { show } from "./entry.js";
import { browse } from "./list.js";

const OUTCOMES = { "": "Everything", allow: "Allowed", ask: "Asked", deny: "Refused", failed: "Failed" };
// The filters, each with an example.
const FIELDS = {
  agent: "main", tool: "str_replace", path: "src/app.py", host: "files.example.org", session: "SES-…",
  ledger: { "": "all", ho1m: "calls (ho1m)", ho2m: "sessions (ho2m)", governance: "governance", packages: "packages" },
  since: "2026-11-30T08:00:00Z", until: "2026-11-30T18:00:00Z",
};
const PAGE = "200";

const filterBar = (wanted, changed) => {
  const option = (name) => ([value, label]) => h("option", { value, selected: wanted[name] === value }, label);
  const field = ([name, example]) => {
    const typed = { value: wanted[name], autocomplete: "off", spellcheck: "false", placeholder: example };
    const choice = typeof example === "object" && h("select", { name }, Object.entries(example).map(option(name)));
    return h("label.field", h("span", name), choice || h("input", { name, ...typed }));
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
    chips("Outcome", outcomes, h("label.check", all, "Include Paddock's own entries")),
    h(
      "details.more",
      { open: !wanted.call && names.some((name) => wanted[name]) },
      h("summary", "Filter"),
      h("div.fields", Object.entries(FIELDS).map(field), h("div.acts", h("button.primary", "Search"), clear)),
    ),
  );
};

export const page = async ({ entry, ...wanted }, signal) => {
  const { all, ...asked } = wanted;
  const wish = { ...asked, limit: PAGE, calls: !all && !asked.ledger && "true" };
  const state = h("p.quiet.count", { role: "status" });
  let [rows, next, isAsking] = [[], null, false];

  const isShown = (row) => all || asked.ledger || isCall(row) || row.event_type.startsWith("NET_");
  const items = () => fold(rows).filter(isShown);
  const load = async () => {
    const found = await get("timeline", { ...wish, before: next }, signal);
    ({ next } = found);
    rows = [...rows, ...found.entries];
    const searching = next ? "Searching older entries …" : "Nothing matches.";
    state.replaceChildren(items().length ? "" : searching, ...found.damaged.map(({ error }) => problemOf(error)));
    return items();
  };
  // A match may be far back: load older entries until one is found or the page is left.
  const older = async () => {
    if (isAsking || !next || !made) return;
    isAsking = true;
    const before = made.list.items.length;
    while (next && !signal.aborted && made.list.items.length === before) made.list.set(await load());
    isAsking = false;
  };
  const changed = (values) => {
    history.pushState(null, "", `/timeline?${query({ ...wanted, ...values })}`);
    dispatchEvent(new PopStateEvent("popstate"));
  };
  const redraw = soon(() => made?.list.set(items()));
  const merge = (news) => {
    const fresh = new Set(news.map(keyOf));
    rows = [...news, ...rows.filter((each) => !fresh.has(keyOf(each)))];
    redraw();
  };
  // Only the server knows which entries match a filter, and the current state of a question.
  const update = soon(async () => {
    const found = await get("timeline", wish, signal);
    const known = new Set(rows.map(keyOf));
    // More may be new than one response holds.
    if (!found.entries.some((each) => known.has(keyOf(each)))) [rows, next] = [[], found.next];
    merge(found.entries);
  });
  // Without a filter no request is needed: many windows may follow many calls.
  const added = (row) => (Object.values(asked).some(Boolean) ? update() : merge([row]));

  const only = asked.call && h("p.quiet.count", "Only one call is listed. ", h("a", { href: "/timeline" }, "Show all"));
  let made = null;
  made = await browse({
    label: "What happened, newest first",
    head: [h("h1", "What happened"), filterBar(wanted, changed), only, state],
    draw: drawCall,
    load,
    show: (item) => show(item.ledger, item.seq, signal),
    address: (item) => `/timeline?${query({ ...wanted, entry: item && keyOf(item) })}`,
    first: (found) => {
      const [ledger, seq] = entry?.split(":") ?? [];
      if (asked.call && !entry) return found[0];
      return entry && (found.find((each) => keyOf(each) === entry) ?? { ledger, seq: Number(seq), key: entry });
    },
    more: () => older().catch(() => (isAsking = false)),
    signal,
  });
  on("entry", added, signal);
  for (const news of ["inbox", "hello"]) on(news, update, signal);
  return made.page;
};
