// What did agents change, who did it, and can it be undone?
import { get, mayAct, on, query } from "./api.js";
import { askedBy, drawCall, verb, whose } from "./calls.js";
import { diffs } from "./diff.js";
import { acting, chips, code, count, facts, h, note, status, when } from "./dom.js";
import { undo } from "./entry.js";
import { browse } from "./list.js";

const SHOWN_MAX = 20;
// Of how many entries it shows the changes at first: to read all of a large record takes seconds.
const NEWEST = "2000";

const drawFile = (file) => [
  h("span.target", file.path),
  h("span.who", file.agent),
  note(count(file.changes, "change")),
  h("span.at", when(file.last)),
];
// A call that changed something, as a row of the list.
const asRow = (call) => ({
  ...call,
  key: call.entry,
  event_type: "",
  target: call.changes.map((each) => each.path).join(", ") || `${call.secret_changes} secret`,
  state: call.undone_by ? "undone" : call.undoes ? "undo" : "done",
});

const WHY_NOT = {
  "changed since": "no undo: changed since; undo the newer changes of it first",
  "as before": "nothing to undo: it is as it was before the call",
};
const standingOf = ({ undone_by: by, standing }) =>
  by ? `undone by ${by}` : (WHY_NOT[standing] ?? `no undo: ${standing}`);
const footOf = (call, done) =>
  call.can_undo && mayAct() ? undo(call.entry, call.standing, done) : h("p.quiet", standingOf(call));

const change = async (call, foot, signal) => {
  const session = call.outcome !== "unknown" && call.session; // without a result: in no session yet
  const found = await get("diff", { call: call.entry, session }, signal).catch((problem) => ({ problem }));
  return h(
    "div.change",
    h("h3", whose(call.agent), `: ${verb(call.tool)} `, note(when(call.timestamp))),
    facts(
      ["call", [code(call.call), " ", h("a", { href: `/timeline?${query({ call: call.call, session: call.session })}` }, "why it was allowed")]],
      await askedBy(call.call, call.session, signal).catch(() => null),
      ["undoes", call.undoes && code(call.undoes)],
    ),
    found.problem ? h("p.quiet", found.problem.message) : diffs(found),
    foot,
  );
};

const isOf = (file) => (call) =>
  call.workspace_of === file.agent && call.changes.some((one) => [one.path, one.to].includes(file.path));
const same = (one) => (other) => one.agent === other.agent && one.path === other.path;
// Adds what the newest entries say to what is known of all.
const joined = (known, fresh) => {
  const news = fresh.calls.filter((call) => !known.calls.some(({ entry }) => entry === call.entry));
  const files = fresh.files.map((file) => {
    const before = known.files.find(same(file))?.changes ?? 0;
    return { ...file, changes: before + news.filter(isOf(file)).length };
  });
  const older = known.calls.filter(({ entry }) => !fresh.calls.some((call) => call.entry === entry));
  const others = known.files.filter((file) => !files.some(same(file)));
  return { ...known, calls: [...fresh.calls, ...older], files: [...files, ...others] };
};

export const page = async ({ by = "file", path, call, agent }, signal) => {
  const isByCall = by === "call";
  const state = h("p.quiet.count", { role: "status" });
  const tab = (value, label) =>
    h("a.chip", { href: `/files?${query({ by: value, agent })}`, "aria-current": value === by ? "true" : null }, label);
  const first = (items) => items.find((each) => (isByCall ? each.call === call : each.path === path));
  const rest = status();
  let found = null;
  const made = await browse({
    label: isByCall ? "Calls that changed something" : "Files that were changed",
    kind: isByCall ? "calls" : "files",
    head: [h("h1", "What agents changed"), chips("View", tab("file", "By file"), tab("call", "By call")), state, rest],
    draw: isByCall ? drawCall : drawFile,
    load: async () => {
      const fresh = await get("files", { agent, newest: NEWEST }, signal);
      found = found && fresh.is_part ? joined(found, fresh) : fresh;
      const { calls, files, omitted, is_part: isPart } = found;
      const more = isPart ? ", among the newest entries" : omitted ? `; ${count(omitted, "older call")} left out` : "";
      const said = `${count(files.length, "file")}, ${count(calls.length, "call")}${more}`;
      state.replaceChildren(files.length || isPart ? said : "No agent has changed a file yet.");
      return isByCall ? calls.map(asRow) : files.map((each) => ({ ...each, key: `${each.agent}:${each.path}` }));
    },
    show: async (item) => {
      const all = () => get("files", { agent: item.agent, path: item.path }, signal);
      const known = isByCall ? [item] : found.calls.filter(isOf(item));
      const { calls } = known.length ? { calls: known } : await all();
      const feet = new Map();
      const stand = (each) => feet.set(each.entry, footOf(each, () => done(each.entry))).get(each.entry);
      // An undo changes what stands against the others.
      const done = async (undone) => {
        await made.reload();
        const others = found.calls.filter(({ entry }) => entry !== undone && feet.has(entry));
        others.forEach((each) => feet.get(each.entry).replaceWith(stand(each)));
      };
      const draw = (rows) => Promise.all(rows.map((each) => change(each, stand(each), signal)));
      const shown = calls.slice(0, SHOWN_MAX);
      const older = h("div");
      const more = async () => {
        const { calls: every, omitted } = await all();
        const rest = every.filter(({ entry }) => !feet.has(entry));
        older.append(...(await draw(rest.slice(0, SHOWN_MAX))));
        if (rest.length > SHOWN_MAX) return "";
        button.remove();
        return h("p.quiet", omitted ? `${count(omitted, "older call")} left out` : "These are all.");
      };
      const said = status();
      const button = acting("Show older changes", said, more);
      const isAll = isByCall || (!found.is_part && item.changes <= shown.length);
      return h(
        "div",
        h("h2.title", code(isByCall ? item.call : item.path)),
        await draw(shown),
        !isAll && [older, h("div.acts", button, said)],
      );
    },
    address: ({ path: of, call: one } = {}) => `/files?${query({ by, agent, path: of, call: one })}`,
    first,
    signal,
  });
  on("entry", (row) => row.event_type === "TOOL_RESULT" && made.soon(), signal);
  const whole = async () => {
    found = await get("files", { agent }, signal);
    rest.replaceChildren();
    await made.reload();
    const item = first(made.list.items);
    if (item && !made.list.chosen) made.open(item);
  };
  const read = acting("Read older entries, too", rest, whole);
  if (found.is_part) rest.append(read);
  if (found.is_part && (path || call) && !made.list.chosen) read.click();
  return made.page;
};
