// Does a question wait, and what are the agents doing?
import { get, on, query } from "./api.js";
import { callItem, drawRequest, fold, isCall, isWaiting, keyOf, whose } from "./calls.js";
import { ago, count, h, listed, note, section, soon } from "./dom.js";

const ROWS_MAX = 30;
const READ = "200";
const WALLS = { on: "good", partly: "warn", off: "bad" };
const WALL_NAMES = { files: "Files", commands: "Commands", network: "Network", record: "Record" };

const headline = (waiting, running) => {
  if (waiting) return `${count(waiting, "question waits", "questions wait")} for you`;
  return running ? `${count(running, "call")} running` : "All quiet";
};

const to = (page, name, value) => ({ href: `/${page}?${query({ [name]: value })}` });
const pair = (...parts) => h("li.pair", parts);
const question = (request) =>
  h("li", h("a.row.question", to("inbox", "id", request.id), drawRequest(request)));
const agent = ([name, calls]) => {
  const refused = calls.filter((row) => row.state === "refused").length;
  const no = refused > 0 && h("span.state.bad", `${refused} refused`);
  const link = h("a", to("timeline", "agent", name), whose(name));
  return pair(link, note(ago(calls[0].timestamp)), note(`${count(calls.length, "recent call")}`), no);
};
const wall = ({ name, state, said }) =>
  pair(h("span", WALL_NAMES[name] ?? name), h(`span.state.${WALLS[state]}`, state), note(said));
const session = ({ session_id: id, first_message: said, started }) =>
  pair(h("a.cut", to("sessions", "id", id), said || id), note(ago(started)));

export const page = async (_, signal) => {
  const place = h("div.page");
  let [now, rows] = [null, []];
  const draw = () => {
    const waiting = now.waiting.filter(isWaiting);
    const calls = fold(rows).filter(isCall);
    const of = (state) => calls.filter((row) => row.state === state);
    const refused = of("refused").slice(0, 6).map((row) => callItem(row, h("p.why", row.reason)));
    const agents = Map.groupBy(calls.filter((row) => row.agent), (row) => row.agent);
    const done = listed("calls", calls.slice(0, ROWS_MAX).map((row) => callItem(row)));
    place.replaceChildren(
      h("h1", headline(waiting.length, of("running").length)),
      ...now.notices.map((each) => h("p.notice", each)),
      h(
        "div.columns",
        h(
          "div",
          section("Waits for your answer", listed("questions", waiting.map(question))),
          section("What agents do", done || h("p.quiet", "No agent has made a call here yet.")),
        ),
        h(
          "div",
          section("The fence", listed("walls", now.walls.map(wall))),
          section("Agents", listed("agents", [...agents].map(agent))),
          section("Recently refused", listed("refusals", refused)),
          section("Sessions", listed("sessions", now.sessions.slice(0, 5).map(session))),
        ),
      ),
    );
  };
  const load = async () => {
    const asked = [get("now", {}, signal), get("timeline", { calls: "true", limit: READ }, signal)];
    [now, { entries: rows }] = await Promise.all(asked);
    draw();
  };
  const redraw = soon(draw);
  const reload = soon(load);
  const add = (row) => {
    if (rows.some((each) => keyOf(each) === keyOf(row))) return;
    rows = [row, ...rows].slice(0, Number(READ));
    redraw();
  };
  await load();
  on("entry", add, signal);
  on("inbox", reload, signal);
  on("hello", reload, signal);
  return place;
};
