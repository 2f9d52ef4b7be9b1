// What was said in a session, and which calls followed?
import { get, mayAct, on, post, query } from "./api.js";
import { callItem, fold, isCall } from "./calls.js";
import { acting, ago, block, count, h, listed, note, number, soon, status, when } from "./dom.js";
import { browse, isWide } from "./list.js";

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
    each.outcome === "unfinished" && h("p.quiet", "not finished: the agent is working, or was stopped"),
    !["success", "unfinished"].includes(each.outcome) && h("p.bad", each.outcome, each.reason && `: ${each.reason}`),
  );

// A call belongs to the first turn that ended after it; the rest to a turn that still runs.
const perTurn = (turns, calls) => {
  const out = [...turns, null].map(() => []);
  for (const row of fold([...calls].reverse()).filter(isCall).reverse()) {
    const at = turns.findIndex((each) => row.timestamp <= each.timestamp);
    out.at(at).push(row);
  }
  return out;
};

const transcript = (found) => {
  const { turns } = found;
  const calls = perTurn(turns, found.calls);
  const asked = found.calls.filter((row) => row.event_type === "LLM_CALL").length;
  const took = [count(asked, "request to the model", "requests to the model"), `${number(found.tokens ?? 0)} tokens`];
  const about = [found.agent, found.model, ...took, !found.ended && "still open"];
  return h(
    "div",
    h("h2.title", found.first_message || found.session_id),
    h("p.quiet", when(found.started), about.filter(Boolean).map((each) => ` · ${each}`)),
    h("p", h("a", { href: `/timeline?${query({ session: found.session_id })}` }, "All of it in the timeline")),
    h("ol.plain", turns.map((each, at) => turn(each, at, calls[at]))),
    listed("calls", calls.at(-1).map((row) => callItem(row))),
  );
};

// The transcript, updated live, and a field to continue the session.
const conversation = async (id, signal) => {
  const place = h("div");
  const draw = async () => {
    const found = await get("session", { id }, signal);
    place.replaceChildren(transcript(found));
    return found.turns.length;
  };
  const said = status();
  const task = h("textarea", { id: "task", rows: "2" });
  const send = async () => {
    said.replaceChildren(h("p.quiet", "The agent works …"));
    await post("session/resume", { id, task: task.value });
    task.value = "";
    await draw();
    said.replaceChildren();
    said.scrollIntoView({ block: "end" });
  };
  const label = h("label", { for: "task" }, "Continue this session: message to the agent");
  const resume = h("div.resume", label, task, h("div.acts", acting("Send", said, send, "primary")), said);
  const redraw = soon(draw);
  on("entry", (row) => row.session_id === id && place.isConnected && redraw(), signal);
  return h("div", place, (await draw()) > 0 && mayAct() && resume);
};

export const page = async ({ id, agent }, signal) => {
  const none = h("p.quiet");
  const made = await browse({
    label: "Sessions, newest first",
    kind: "sessions",
    head: [h("h1", "What was said"), none],
    draw: drawSession,
    load: async () => {
      const { sessions } = await get("sessions", { agent }, signal);
      none.textContent = sessions.length ? "" : "No agent has had a conversation here yet.";
      return sessions.map((each) => ({ ...each, key: each.session_id }));
    },
    show: ({ key }) => conversation(key, signal),
    address: ({ key } = {}) => `/sessions?${query({ agent, id: key })}`,
    first: (items) => (id ? { key: id } : isWide() && items[0]),
    signal,
  });
  on("entry", (row) => /^(SESSION_|TURN_)/.test(row.event_type) && made.soon(), signal);
  return made.page;
};
