// What did agents change, who did it, and can it be taken back?
import { get, mayAct, on, query } from "./api.js";
import { drawCall, verb, whose } from "./calls.js";
import { diffs } from "./diff.js";
import { chips, code, count, facts, h, note, soon, when } from "./dom.js";
import { undo } from "./entry.js";
import { browse } from "./list.js";

const SHOWN_MAX = 20;

const drawFile = (file) => [
  h("span.target", file.path),
  h("span.who", file.agent),
  note(count(file.changes, "change")),
  h("span.at", when(file.last)),
];
// A call that changed something, as a line of what happened.
const asRow = (call) => ({
  ...call,
  key: call.entry,
  event_type: "",
  target: call.changes.map((each) => each.path).join(", ") || `${call.secret_changes} secret`,
  state: call.undone_by ? "undone" : call.undoes ? "takes back" : "done",
});

const change = async (call, done, signal) => {
  const found = await get("diff", { call: call.entry }, signal).catch((problem) => ({ problem }));
  const standing = call.undone_by ? `undone by ${call.undone_by}` : `no undo: ${call.standing}`;
  return h(
    "div.change",
    h("h3", whose(call.agent), ` ${verb(call.tool)} `, note(when(call.timestamp))),
    facts(
      ["call", h("a", { href: `/timeline?${query({ call: call.call, all: "yes" })}` }, call.call)],
      ["takes back", call.undoes && code(call.undoes)],
    ),
    found.problem ? h("p.quiet", found.problem.message) : diffs(found),
    call.can_undo && mayAct() ? undo(call.entry, call.standing, done) : h("p.quiet", standing),
  );
};

export const page = async ({ by = "file", path, call, agent }, signal) => {
  const isByCall = by === "call";
  let found = { calls: [], files: [] };
  const { list, place, open } = browse({
    label: isByCall ? "Calls that changed something" : "Files that were changed",
    kind: isByCall ? "calls" : "files",
    draw: isByCall ? drawCall : drawFile,
    show: async (item) => {
      const isOf = (each) =>
        each.workspace_of === item.agent &&
        each.changes.some((one) => [one.path, one.to].includes(item.path));
      const calls = isByCall ? [item] : found.calls.filter(isOf);
      const shown = calls.slice(0, SHOWN_MAX).map((each) => change(each, reload, signal));
      const left = calls.length - shown.length;
      return h(
        "div",
        h("h2.title", code(isByCall ? item.call : item.path)),
        await Promise.all(shown),
        left > 0 && h("p.quiet", `${count(left, "older change")} not shown`),
      );
    },
    address: ({ path: of, call: one } = {}) => `/files?${query({ by, agent, path: of, call: one })}`,
    signal,
  });
  const state = h("p.quiet.count", { role: "status" });
  const load = async () => {
    found = await get("files", { agent }, signal);
    const { calls, files, omitted } = found;
    const ofFile = (each) => ({ ...each, key: `${each.agent}:${each.path}` });
    list.set(isByCall ? calls.map(asRow) : files.map(ofFile));
    const more = omitted ? `; ${count(omitted, "older call")} left out` : "";
    const said = `${count(files.length, "file")}, ${count(calls.length, "call")}${more}`;
    state.replaceChildren(files.length ? said : "No agent has changed a file yet.");
  };
  const reload = () => load().catch(() => {});
  await load();
  const first = list.items.find((each) => (isByCall ? each.call === call : each.path === path));
  if (first) await open(first);
  const later = soon(reload, 300);
  on("entry", (row) => row.event_type === "TOOL_RESULT" && later(), signal);
  const tab = (value, label) =>
    h("a.chip", { href: `/files?${query({ by: value, agent })}`, "aria-current": value === by ? "true" : null }, label);
  const tabs = chips("View", tab("file", "By file"), tab("call", "By call"));
  return [h("div.head", h("h1", "What agents changed"), tabs, state), place];
};
