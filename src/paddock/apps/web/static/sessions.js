// What was said, and what was done about it?
import { get, mayAct, on, post, query } from "./api.js";
import { callItem, fold, isCall } from "./calls.js";
import { acting, ago, block, count, h, listed, note, number, status, when } from "./dom.js";
import { browse } from "./list.js";

const drawSession = (each) => [
  h("span.wish", each.first_message || each.session_id),
  note(`${each.agent} · ${count(each.turns, "turn")} · ${ago(each.started)}`),
];

const speech = (who, text) => text && h("div.said", h("p.speaker", who), block(text));

const turn = (each, at, calls) =>
  h(
    "li.turn",
    h("h3", `Turn ${at + 1} `, note(when(each.timestamp))),
    speech("Person", each.user_message),
    listed("calls", calls.map((row) => callItem(row))),
    speech("Agent", each.response),
    each.outcome !== "success" && h("p.bad", [each.outcome, each.reason].filter(Boolean).join(": ")),
  );

// A call belongs to the first turn that ended after it; those behind the last go on.
const perTurn = (turns, calls) => {
  const out = [...turns, null].map(() => []);
  for (const row of fold([...calls].reverse()).filter(isCall).reverse()) {
    const at = turns.findIndex((each) => row.timestamp <= each.timestamp);
    out.at(at).push(row);
  }
  return out;
};

const resuming = (id, done) => {
  const task = h("textarea", { id: "task", rows: "2" });
  const said = status();
  const send = async () => {
    said.replaceChildren(h("p.quiet", "The agent works; its calls show under Now."));
    const found = await post("session/resume", { id, task: task.value });
    done();
    return h("div", h("p", found.outcome), block(found.response ?? ""));
  };
  const label = h("label", { for: "task" }, "Go on with this session");
  return h("div.resume", label, task, h("div.acts", acting("Send", said, send, "primary")), said);
};

const transcript = (found, id, done) => {
  const { turns } = found;
  const calls = perTurn(turns, found.calls);
  const about = [found.agent, found.model, `${number(found.tokens ?? 0)} tokens`, !found.ended && "still open"];
  return h(
    "div",
    h("h2.title", found.first_message || id),
    h("p.quiet", when(found.started), about.filter(Boolean).map((each) => ` · ${each}`)),
    h("p", h("a", { href: `/timeline?${query({ session: id })}` }, "All of it in the timeline")),
    h("ol.plain", turns.map((each, at) => turn(each, at, calls[at]))),
    listed("calls", calls.at(-1).map((row) => callItem(row))),
    mayAct() && turns.length > 0 && resuming(id, done),
  );
};

export const page = async ({ id, agent }, signal) => {
  const { list, place, open } = browse({
    label: "Sessions, newest first",
    kind: "sessions",
    draw: drawSession,
    show: async ({ key }) => transcript(await get("session", { id: key }, signal), key, reload),
    address: ({ key } = {}) => `/sessions?${query({ agent, id: key })}`,
    signal,
  });
  const load = async () => {
    const { sessions } = await get("sessions", { agent }, signal);
    list.set(sessions.map((each) => ({ ...each, key: each.session_id })));
  };
  const reload = () => load().catch(() => {});
  await load();
  const first = id ? { key: id } : innerWidth >= 1100 && list.items[0];
  if (first) await open(first);
  on("entry", (row) => /^(SESSION_|TURN_)/.test(row.event_type) && reload(), signal);
  const none = list.items.length === 0 && h("p.quiet", "No agent has had a conversation here yet.");
  return [h("div.head", h("h1", "What was said"), none), place];
};
