// Is somebody needed, and what goes on?
import { get, on } from "./api.js";
import { callItem, drawRequest, fold, isCall, isWaiting, keyOf } from "./calls.js";
import { ago, count, h, listed, section, soon } from "./dom.js";

const ROWS_MAX = 30;
const READ = "200";
const WALLS = { on: "good", partly: "warn", off: "bad" };
const WALL_NAMES = { files: "Files", commands: "Commands", network: "Network", record: "Record" };

const headline = (waiting, running) => {
  if (waiting) return `${count(waiting, "question waits", "questions wait")} for you`;
  return running ? `${count(running, "call")} running` : "All quiet";
};

const question = (request) =>
  h("li", h("a.row.question", { href: `/inbox?id=${encodeURIComponent(request.id)}` }, drawRequest(request)));

const agent = (each) =>
  h(
    "li.pair",
    h("a", { href: `/timeline?agent=${encodeURIComponent(each.name)}` }, each.name),
    h("span.note", each.at ? ago(each.at) : "not seen yet"),
    h("span.note", count(each.calls, "call")),
    each.refused > 0 && h("span.state.bad", `${each.refused} refused`),
  );

const wall = (each) =>
  h(
    "li.pair",
    h("span", WALL_NAMES[each.name] ?? each.name),
    h(`span.state.${WALLS[each.state]}`, each.state),
    h("span.note", each.said),
  );

const session = (each) =>
  h(
    "li.pair",
    h("a.cut", { href: `/sessions?id=${encodeURIComponent(each.session_id)}` }, each.first_message || each.session_id),
    h("span.note", ago(each.started)),
  );

export const page = async (_, signal) => {
  const place = h("div.page");
  let [now, rows] = [null, []];
  const draw = () => {
    const calls = fold(rows).filter(isCall);
    const waiting = now.waiting.filter(isWaiting);
    const of = (state) => calls.filter((row) => row.state === state);
    const refused = of("refused").slice(0, 6).map((row) => callItem(row, h("p.why", row.reason)));
    place.replaceChildren(
      h("h1", headline(waiting.length, of("running").length)),
      ...now.notices.map((each) => h("p.notice", each)),
      h(
        "div.columns",
        h(
          "div",
          section("Waits for your answer", listed("questions", waiting.map(question))),
          section(
            "What agents do",
            listed("calls", calls.slice(0, ROWS_MAX).map((row) => callItem(row))) ||
              h("p.quiet", "No agent has done anything here yet."),
          ),
        ),
        h(
          "div",
          section("The fence", listed("walls", now.walls.map(wall))),
          section("Agents", listed("agents", now.agents.map(agent))),
          section("Refused lately", listed("refusals", refused)),
          section("Sessions", listed("sessions", now.sessions.slice(0, 5).map(session))),
        ),
      ),
    );
  };
  const load = async () => {
    const [found, past] = await Promise.all([get("now", {}, signal), get("timeline", { limit: READ }, signal)]);
    now = found;
    rows = past.entries;
    draw();
  };
  const redraw = soon(draw);
  const reload = soon(() => load().catch(() => {}));
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
