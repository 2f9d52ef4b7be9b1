// What did agents change, who did it, and can it be undone?
import { get, mayAct, on, query } from "./api.js";
import { askedBy, drawCall, verb, whose } from "./calls.js";
import { diffs } from "./diff.js";
import { chips, code, count, facts, h, note, when } from "./dom.js";
import { undo } from "./entry.js";
import { browse } from "./list.js";

const SHOWN_MAX = 20;

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

const change = async (call, done, signal) => {
  const found = await get("diff", { call: call.entry }, signal).catch((problem) => ({ problem }));
  const standing = call.undone_by ? `undone by ${call.undone_by}` : `no undo: ${call.standing}${call.standing === "changed since" ? "; undo the newer changes of it first" : ""}`;
  return h(
    "div.change",
    h("h3", whose(call.agent), `: ${verb(call.tool)} `, note(when(call.timestamp))),
    facts(
      ["call", [code(call.call), " ", h("a", { href: `/timeline?${query({ call: call.call })}` }, "why it was allowed")]],
      await askedBy(call.call, call.session, signal).catch(() => null),
      ["undoes", call.undoes && code(call.undoes)],
    ),
    found.problem ? h("p.quiet", found.problem.message) : diffs(found),
    call.can_undo && mayAct() ? undo(call.entry, call.standing, done) : h("p.quiet", standing),
  );
};

export const page = async ({ by = "file", path, call, agent }, signal) => {
  const isByCall = by === "call";
  const state = h("p.quiet.count", { role: "status" });
  const tab = (value, label) =>
    h("a.chip", { href: `/files?${query({ by: value, agent })}`, "aria-current": value === by ? "true" : null }, label);
  let found = {};
  const made = await browse({
    label: isByCall ? "Calls that changed something" : "Files that were changed",
    kind: isByCall ? "calls" : "files",
    head: [h("h1", "What agents changed"), chips("View", tab("file", "By file"), tab("call", "By call")), state],
    draw: isByCall ? drawCall : drawFile,
    load: async () => {
      found = await get("files", { agent }, signal);
      const { calls, files, omitted } = found;
      const more = omitted ? `; ${count(omitted, "older call")} left out` : "";
      const said = `${count(files.length, "file")}, ${count(calls.length, "call")}${more}`;
      state.replaceChildren(files.length ? said : "No agent has changed a file yet.");
      return isByCall ? calls.map(asRow) : files.map((each) => ({ ...each, key: `${each.agent}:${each.path}` }));
    },
    show: async (item) => {
      const isOf = (each) =>
        each.workspace_of === item.agent &&
        each.changes.some((one) => [one.path, one.to].includes(item.path));
      const calls = isByCall ? [item] : found.calls.filter(isOf);
      const shown = calls.slice(0, SHOWN_MAX).map((each) => change(each, () => made.soon(), signal));
      const left = calls.length - shown.length;
      return h(
        "div",
        h("h2.title", code(isByCall ? item.call : item.path)),
        await Promise.all(shown),
        left > 0 && h("p.quiet", `${count(left, "older change")} not shown`),
      );
    },
    address: ({ path: of, call: one } = {}) => `/files?${query({ by, agent, path: of, call: one })}`,
    first: (items) => items.find((each) => (isByCall ? each.call === call : each.path === path)),
    signal,
  });
  on("entry", (row) => row.event_type === "TOOL_RESULT" && made.soon(), signal);
  return made.page;
};
