// One entry or call in full: arguments, decision, changes, output, and the proof of its record.
import { get, mayAct, post, query } from "./api.js";
import { askedBy, event, hostOf, sessionLink, verb, whose } from "./calls.js";
import { diffs } from "./diff.js";
import { acting, block, code, facts, h, mark, note, problemOf, section, size, status, when } from "./dom.js";
import { prove } from "./proof.js";

const WORDS = { allow: "Allowed", confine: "Allowed, confined", ask: "Asked", deny: "Refused" };
const TONES = { allow: "good", confine: "good", ask: "warn", deny: "bad" };

export const verdict = (outcome) => {
  const isKnown = typeof outcome === "string" && Object.hasOwn(WORDS, outcome);
  return isKnown ? h(`strong.${TONES[outcome]}`, WORDS[outcome]) : h("strong", outcome);
};
const ruled = ({ text, file, line }) => [code(text), " ", line ? h("a.note", { href: `/policy?${query({ rule: text })}` }, `${file}, line ${line}`) : note(file)];
const items = (title, rows = []) =>
  rows.length > 0 && [h("h3", title), h("ul", rows.map((row) => h("li", row)))];

// The result of `policy explain`: the rule, near misses, and what would change the decision.
export const explained = (told) => [
  h("p", verdict(told.outcome), told.reason && `: ${told.reason}`),
  facts(
    ["rule", told.rule?.text && ruled(told.rule)],
    ["final decision", told.decision && told.decision !== told.outcome && verdict(told.decision)],
    ["answer", told.answer],
    ["code", told.code && code(told.code)],
  ),
  items("Warnings", told.warnings),
  items("Nearly matched", told.near_misses?.map((each) => [ruled(each.rule), `: ${each.why}`])),
  items("What would change it", told.changes?.map((each) => each.text)),
];

const argument = (value) => {
  if (typeof value === "string") return value.includes("\n") ? block(value) : code(value);
  if (!value?.salted_sha256) return code(JSON.stringify(value));
  return note(`${size(value.bytes)}; only its fingerprint (digest) is recorded`);
};
export const argumentsOf = (values, leave = []) => {
  const shown = Object.entries(values ?? {}).filter(([name]) => !leave.includes(name));
  return shown.length > 0 && facts(...shown.map(([name, value]) => [name, argument(value)]));
};

const connection = ({ event_type: type, timestamp, reason, metadata = {} }) => {
  const { sent_bytes: sent, received_bytes: received } = metadata;
  const what = type === "NET_REFUSED" ? h("span.bad", " refused ") : ` ${event(type)} `;
  const moved = received !== undefined && ` ${size(sent)} out, ${size(received)} in`;
  return h("li", when(timestamp), what, code(hostOf(metadata)), moved, note(` ${reason}`));
};

export const connections = (rows) => {
  const found = rows.filter((each) => each.event_type.startsWith("NET_"));
  return found.length > 0 && h("ul.plain", found.map(connection));
};

const output = ({ stream, text, bytes, is_cut: isCut }) =>
  text
    ? [h("h3", stream), block(text), isCut && h("p.quiet", `${size(bytes)} in all`)]
    : h("p.quiet", `${stream}: ${size(bytes)}, no longer stored`);

// The result of an act: a verdict, and the text of the result.
export const resultOf = (found, good, bad) => [
  h("p", mark(found.status === "ok", good, bad)),
  block(found.content ?? found.error ?? ""),
  found.since && [h("p", "Changed since:"), diffs(found.since)],
];

export const undo = (entry, standing, done = () => {}) => {
  const said = status();
  const act = async () => {
    const found = await post("undo", { call: entry });
    if (found.status === "ok") {
      made.remove();
      done();
    }
    return h("div", resultOf(found, "Undone.", "Not undone."));
  };
  const made = acting("Undo this call", said, act);
  return h("div.acts", made, standing !== "yes" && note(standing), said);
};

const proved = async (entry, place) => {
  try {
    const { isWhole, said, text } = await prove(entry);
    place.replaceChildren(
      h("p", mark(isWhole, "Proved", "BROKEN"), `: checked in this browser, ${said}`),
      h("details", h("summary", "The entry as it is stored"), block(text)),
    );
  } catch (problem) {
    const sign = async () => {
      await post("ledgers/checkpoint", { ledger: entry.ledger });
      await proved(entry, place);
    };
    const canSign = problem.code === "web.unsigned" && mayAct();
    place.replaceChildren(problemOf(problem), canSign ? acting("Sign the record now", place, sign) : "");
  }
};
const record = (entry) => {
  const place = h("div", { role: "status" }, h("p.quiet", "Checking the record …"));
  proved(entry, place);
  return place;
};

// Only today's explanation of the first action has near misses and possible changes.
const why = ({ told, now }) => {
  const { near_misses, changes } = (now ?? told.now)?.actions?.[0] ?? {};
  return explained({ near_misses, changes, ...told });
};

const targetOf = ({ actions }) =>
  Array.isArray(actions) && typeof actions[0] === "string" && actions[0].split(" ").slice(1).join(" ");

export const show = async (ledger, seq, signal) => {
  const { entry, call } = await get("entry", { ledger, seq: String(seq) }, signal);
  const entries = call?.entries ?? [entry];
  const { metadata: judged = {} } = entries.find((each) => each.metadata?.actions) ?? entry;
  const result = entries.find((each) => each.event_type === "TOOL_RESULT")?.metadata ?? {};
  const target = targetOf(judged);
  const canUndo = call?.can_undo && mayAct();
  const what = judged.tool ? verb(judged.tool) : event(entry.event_type);
  return h(
    "div",
    h("h2.title", whose(entry.agent) || "Paddock", ": ", what, " ", target && code(target)),
    facts(
      ["when", when(entry.timestamp)],
      call && (await askedBy(entry.call_id, entry.session_id, signal)),
      ["session", sessionLink(entry.session_id)],
      ["took", Number.isFinite(result.duration_us) && `${(result.duration_us / 1000).toFixed(1)} ms`],
      ["exit code", result.exit !== undefined && JSON.stringify(result.exit)],
      ["reason", !call && entry.reason],
    ),
    section("Why", call?.told && why(call)),
    section("What it changed", call?.diff && diffs(call.diff), canUndo && undo(call.entry_id, call.standing)),
    section("Arguments", argumentsOf(judged.arguments)),
    section("Network", connections(entries)),
    section("Output", (call?.outputs ?? []).map(output)),
    section("The record", record(entry)),
  );
};
