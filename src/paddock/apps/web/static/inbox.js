// What does the agent want, and what would happen?
import { get, mayAct, on, post } from "./api.js";
import { drawRequest, isWaiting, sessionLink, wish } from "./calls.js";
import { diff } from "./diff.js";
import { acting, block, button, code, facts, h, note as aside, orProblem, problemOf, section, status, when } from "./dom.js";
import { argumentsOf, connections, resultOf } from "./entry.js";
import { browse, isWide } from "./list.js";

const REPLACES = { str_replace: ["old_str", "new_str"], edit_file_dev: ["old_string", "new_string"] };
const ELSEWHERE = ["web.answered", "approval.expired"];

// The buttons of a question; each answer is bound to the digest of exactly what is shown.
const answering = ({ id, digest, has_changes: hasChanges }, done) => {
  const said = h("div", { role: "status", tabindex: "-1" });
  const acts = h("div.acts");
  const send = (path, body) => post(`inbox/${path}`, { id, digest, ...body });
  const act = (label, word, path, body, kind) => {
    const work = async () => {
      let found = null;
      try {
        const { result } = await send(path, body());
        found = h("div", h("p.good", word), result && resultOf(result, hasChanges ? "The changes are in the project." : "It ran.", "It did not run."));
      } catch (problem) {
        if (!ELSEWHERE.includes(problem.code)) throw problem;
        found = h("div", h("p.notice", "The question was answered elsewhere, or is outdated."), problemOf(problem));
      }
      acts.replaceChildren();
      said.focus();
      done();
      return found;
    };
    return acting(label, said, work, kind);
  };
  const back = button("Back", () => ask());
  const reason = h("textarea", { rows: "3", id: "reason", placeholder: "for example: use the staging host" });
  const refuse = () => {
    const send = act("Refuse", "Refused.", "refuse", () => ({ note: reason.value }), "danger");
    const label = h("label", { for: "reason" }, "Reason for the agent (optional)");
    acts.replaceChildren(label, reason, send, back);
    reason.focus();
  };
  // A rule extends what is allowed: it is shown with its effect and needs a second yes.
  const review = async () => {
    const { confirm, replay, file, addition } = await send("always", {});
    const save = act("Save and trust this rule", "Saved and trusted.", "always", () => ({ confirm }), "primary");
    acts.replaceChildren(save, back);
    return h(
      "div.review",
      h("p", "This would be added to ", code(file), ":"),
      block(addition),
      h("h3", "Its effect on past calls"),
      orProblem(replay, ({ text }) => block(text)),
    );
  };
  const ask = () => {
    said.replaceChildren();
    const now = hasChanges ? "Approve these changes" : "Approve and run it now";
    const later = "Approved: the same call may run once, within an hour.";
    acts.replaceChildren(
      act(now, "Approved.", "grant", () => ({ resume: true }), "primary"),
      hasChanges ? "" : act("Approve its next try", later, "grant", () => ({ resume: false })),
      button("Refuse …", refuse),
      acting("Always allow …", said, review),
    );
  };
  ask();
  return h("div.answer", said, acts);
};

const broken = ({ id, error, file }, done) => {
  const said = status();
  const move = async () => {
    await post("inbox/refuse", { id, digest: "", note: "" });
    done();
    return h("p", "Moved away.");
  };
  const title = h("h2.title", "A question that cannot be read");
  return h("div", title, problemOf(error ?? { message: file }), acting("Move it away", said, move), said);
};

// A waiting replacement as a diff of all its lines.
// Threat: a line that looks like a diff header would not be shown. It is escaped.
const replacement = (names, given) => {
  const [before, after] = names.map((name) => given[name]);
  if (typeof before !== "string" || typeof after !== "string") return "";
  const [gone, added] = [before, after].map((text) => text.split("\n"));
  let from = 0;
  while (from < gone.length && gone[from] === added[from]) from += 1;
  const plain = (line) => line.replace(/^(-- |\+\+ )/, (it) => `\\x${it.charCodeAt(0).toString(16)}${it.slice(1)}`);
  const rows = (sign, lines) => lines.map((line) => `${sign}${plain(line)}`);
  const same = gone.splice(0, from);
  return [...rows(" ", same), ...rows("-", gone), ...rows("+", added.slice(from))].join("\n");
};

// A command that ran in a copy may have connected already: show its recorded connections.
const triedWith = ({ has_changes: hasChanges, call_id: call, session_id: session }) => {
  const place = h("div");
  const show = ({ entries }) => place.replaceChildren(connections(entries) || "");
  if (hasChanges) get("timeline", { call, session, limit: "200" }).then(show).catch(() => {}); // the timeline shows them too
  return place;
};

const detailOf = (request, done) => {
  if (request.state === "broken") return broken(request, done);
  const { arguments: given, filled, answered_by: answered, note } = request;
  const replaced = request.diff ? [] : (REPLACES[request.tool] ?? []);
  const change = request.diff || replacement(replaced, given);
  const command = typeof given.command === "string" ? ["command"] : [];
  const notYet = h("p", "The command ran in a copy. These are its changes; none is in the project yet.");
  const ended = () => (notYet.remove(), done());
  const unset = Object.keys(filled).filter((name) => [null, false, ""].includes(filled[name]));
  return h(
    "div",
    h("h2.title", wish(request)),
    request.outdated && h("p.notice", "Outdated, cannot be answered any more: ", request.outdated),
    request.warnings.map((each) => h("p.notice", each)),
    isWaiting(request) && mayAct() && answering(request, ended),
    answered && h("p", h("strong", request.state), ` by ${answered}`, note && `: ${note}`),
    section(
      "What it would do",
      command.map((name) => block(given[name])),
      request.has_changes && notYet,
      change && diff(change),
      // Omits only arguments that are shown above.
      argumentsOf(given, change ? [...command, ...replaced] : command),
    ),
    section(
      "Why it is asked",
      h("p", request.reason),
      facts(
        ["rule", code(request.rule)],
        ["network", request.reach && [request.reach, triedWith(request)]],
        ...request.actions.map((each) => ["as policy sees it", code(each)]),
        ["asked", when(request.parked_at)],
        ["answer until", when(request.expires_at)],
        ["session", sessionLink(request.session_id)],
        ["defaults", argumentsOf(filled, unset)],
        ["fingerprint", [code(request.digest), aside(" a yes applies only to exactly this call (its digest)")]],
      ),
    ),
  );
};

export const page = async ({ id }, signal) => {
  const head = h("h1");
  const about = h("p.quiet");
  const made = await browse({
    label: "Questions",
    kind: "questions",
    head: [head, about],
    draw: drawRequest,
    load: async () => {
      const { requests, broken: unread } = await get("inbox", {}, signal);
      const items = [...requests, ...unread.map((each) => ({ agent: "?", tool: "read", actions: [each.id], ...each }))]
        .map((each) => ({ ...each, key: each.id }))
        .sort((one, other) => isWaiting(other) - isWaiting(one));
      head.textContent = items.some(isWaiting) ? "Waiting for your answer" : "Nothing waits for you";
      about.textContent = items.length ? "" : "Calls that need an approval wait here until you answer.";
      return items;
    },
    // Reload only the list: the answered question stays visible with its result.
    show: (request) => detailOf(request, () => made.reload()),
    address: (request) => (request ? `/inbox?id=${encodeURIComponent(request.id)}` : "/inbox"),
    first: (items) => items.find((each) => each.id === id) ?? (isWide() && items[0]),
    signal,
  });
  const changed = async () => {
    const { list, detail } = made;
    await made.reload();
    const now = list.items.find((each) => each.key === list.chosen);
    const isAnswering = detail.querySelector("[role=status] *, [aria-busy]") || detail.contains(document.activeElement);
    if (now && !isWaiting(now) && !isAnswering) made.open(now);
  };
  on("inbox", changed, signal);
  return made.page;
};
