// Entries and calls in words that a newcomer understands.
import { get, query } from "./api.js";
import { ago, code, h, note, when } from "./dom.js";

// Verbs, each for the tools of Paddock and of its clients that do this.
const VERBS = {
  create: "create_file write_file_dev Write",
  edit: "str_replace edit_file_dev Edit MultiEdit NotebookEdit",
  delete: "delete_file",
  move: "move_file",
  read: "view read_file Read",
  list: "ls list_files",
  find: "find Glob",
  search: "grep grep_dev Grep",
  run: "run_shell run_shell_dev Bash exec_command shell",
  fetch: "WebFetch",
  apply: "commit_parked",
  undo: "undo",
};
export const verb = (tool) => Object.keys(VERBS).find((each) => VERBS[each].split(" ").includes(tool)) ?? tool;

// A rule's pattern in words: "delete any file", "run git push".
const CATEGORIES = {
  file: ["read or change", "any file"],
  search: ["search", "any file"],
  shell: ["run", "any command"],
  net: ["connect to", "any host"],
  output: ["read", "any earlier output"],
};
export const meaning = (text) => {
  const [head, ...words] = text.split(" ");
  const [, category, operation] = head.split(":");
  const [does, anything] = CATEGORIES[category] ?? [];
  if (!does) return ["use ", code(text.replace("tool:", ""))];
  const target = words.join(" ");
  return [
    operation && operation !== "*" ? verb(operation) : does,
    " ",
    ["", "*", "**"].includes(target) ? anything : code(target),
  ];
};

// Acts without an agent are a person's.
export const whose = (agent) => (agent === "(operator)" ? "a person" : agent);

const EVENTS = { LLM_CALL: "model answered", NET_CONNECT: "connected", NET_CLOSED: "disconnected" };
export const event = (type) => EVENTS[type] ?? type.toLowerCase().replaceAll("_", " ");

const STATES = {
  running: ["running", "accent"],
  waiting: ["asked", "warn"],
  unanswered: ["not answered", "warn"],
  approved: ["approved", "good"],
  open: ["waits for you", "warn"],
  refused: ["refused", "bad"],
  failed: ["failed", "bad"],
};
const stateMark = (state) => {
  const [said, tone] = STATES[state] ?? [state === "said" ? "" : state, "plain"];
  return h(`span.state.${tone}`, said);
};

export const keyOf = (row) => `${row.ledger}:${row.seq}`;

// Merges entries (newest first) into one item per call, with its newest state and its target.
export const fold = (rows) => {
  const items = new Map();
  for (const row of rows) {
    const isCall = row.call_id && /^(TOOL|HOOK|APPROVAL)_/.test(row.event_type);
    const key = isCall ? `${row.session_id} ${row.call_id}` : keyOf(row);
    const known = items.get(key);
    if (!known) items.set(key, { ...row, key });
    else {
      known.target ||= row.target;
      known.tool ||= row.tool;
      // The item links to the entry with the decision, which explains the call.
      if (/INTENT|DENIED/.test(row.event_type)) {
        Object.assign(known, { seq: row.seq, ledger: row.ledger });
      }
    }
  }
  return [...items.values()];
};
export const isCall = (row) => row.state !== "said";

export const hostOf = ({ host, name, port } = {}) =>
  [host ?? name, port].filter((each) => each && typeof each !== "object").join(":");

const about = ({ target, metadata, reason }) => {
  const { path, command } = metadata?.arguments ?? {};
  return target || hostOf(metadata ?? {}) || path || command || reason;
};

// One line of a list: time, agent, verb, target and state.
export const drawCall = (row) => [
  h("span.at", when(row.timestamp)),
  h("span.who", whose(row.agent) || "–"),
  h("span.verb", row.tool ? verb(row.tool) : event(row.event_type)),
  h("span.target", about(row)),
  stateMark(row.state),
];

export const callItem = (row, ...more) =>
  h("li", h("a.row", { href: `/timeline?${query({ entry: keyOf(row) })}` }, drawCall(row)), more);
// The call whose request a person granted, if this call ran by that grant.
export const askedBy = async (call, session, signal) => {
  const { entries: rows } = await get("timeline", { call, session, limit: "200" }, signal);
  const grantOf = ({ tool, metadata }) => (tool === "commit_parked" ? metadata?.arguments : metadata?.answer === "used" && metadata);
  const used = rows.find((row) => grantOf(row)?.request);
  if (!used) return null;
  const answers = { type: "APPROVAL_ANSWERED", until: used.timestamp, limit: "200" };
  const { entries: given } = await get("timeline", answers, signal);
  const isIt = ({ metadata, call_id: id }) =>
    metadata?.answer === "granted" && metadata.request === grantOf(used).request && id !== call;
  const asked = given.find(isIt);
  const to = asked && `/timeline?${query({ call: asked.call_id, session: asked.session_id })}`;
  return asked && ["asked by", h("a", { href: to }, asked.agent, ", in ", code(asked.call_id))];
};
// Links to the timeline, since not every session is a conversation.
export const sessionLink = (id) => id && h("a", { href: `/timeline?${query({ session: id })}` }, id);

// A request in words: "main wants to delete README.md".
export const wish = (request) => {
  const [first = "", ...more] = request.actions;
  const target = first.split(" ").slice(1).join(" ");
  return [
    h("strong", request.agent),
    ` wants to ${verb(request.tool)} `,
    target && code(target),
    more.length > 0 && ` and ${more.length} more`,
  ];
};
export const isWaiting = (request) => request.state === "waiting" && !request.outdated;
export const drawRequest = (request) => [
  h("span.wish", wish(request)),
  note(isWaiting(request) ? ago(request.parked_at) : request.outdated ? "outdated" : request.state),
];
