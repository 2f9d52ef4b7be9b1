// What may agents do, and what would an edit change?
import { get, mayAct, post } from "./api.js";
import { diff } from "./diff.js";
import { meaning } from "./calls.js";
import { acting, block, button, chip, chips, code, count, h, listed, mark, note, orProblem, problemOf, soon, status } from "./dom.js";
import { explained, verdict } from "./entry.js";

const PAUSE_MS = 350;

// Path lists take precedence over all rules.
const PATHS = {
  "paths.own": ["deny", "change Paddock's own "],
  "paths.protected": ["deny", "change "],
  "paths.generated": ["deny", "change, except by commands, "],
  "paths.secret": ["deny", "read or change "],
  "paths.warned": ["allow", "change, with a warning, "],
  "paths.safe": ["allow", "change, without a warning, "],
};
const rule = (goTo) => ({ outcome, only, is_rest: isRest, text, file, line }) => {
  const [word, does] = PATHS[outcome] ?? [outcome];
  return h(
    "li.rule",
    text.startsWith("!") ? h("strong", "Except") : verdict(word),
    h("span", does ? [does, code(text)] : meaning(text), only && note(` ${only}`), isRest && note(" if no other rule matches")),
    line ? button(`Line ${line}`, () => goTo(line), "quiet") : note(file),
  );
};
// The file's own rules first: they can be edited here.
const rules = (goTo) => ({ rules: found }) =>
  h("div", [...Map.groupBy(found, ({ agents }) => agents.join(", "))].reverse().map(([agents, rows]) => {
    const [own, others] = [rows.filter(({ line }) => line), rows.filter(({ line }) => !line)];
    return [
      h("h3", agents || "Every agent, above all other rules"),
      listed("rules", own.map(rule(goTo))),
      others.length > 0 &&
        h("details", h("summary", count(others.length, "built-in rule")), listed("rules", others.map(rule(goTo)))),
    ];
  }));

const finding = (goTo) => ({ line, file, message, hint }) => {
  const place = line ? button(`Line ${line}`, () => goTo(line), "quiet") : note(file);
  return h("li", place, h("p", message), h("p.quiet", hint));
};
const example = ({ example: action, pattern, wanted, holds }) => {
  const found = note(wanted === holds ? " matches " : " does not match ", code(pattern));
  return h("li", mark(holds, "Passed: ", "Failed: "), code(action), found);
};

const effectOf = (changes, past) => [
  h("h3", "In words"),
  orProblem(changes, ({ text }) => block(text)),
  h("h3", "Its effect on past calls"),
  orProblem(past, ({ text }) => block(text)),
];

// A saved text is trusted, so it is shown with its effect and needs a second yes.
const review = (found, agree, leave) => {
  const said = status();
  return h(
    "div.review",
    h("h2.title", { tabindex: "-1" }, "Save this policy?"),
    h("p", "It will decide every call from then on."),
    h("div.acts", acting("Save and trust exactly this text", said, agree, "primary"), button("Keep editing", leave)),
    said,
    found.diff ? diff(found.diff) : h("p.quiet", "The text is the same."),
    effectOf({ text: found.effect }, found.replay),
    found.agents && [h("h3", "Agents that it declares"), block(found.agents)],
    listed("findings", found.findings.map((each) => h("li", h("p", each.message)))),
  );
};

// A plain text area with the numbers of its lines beside it.
const editor = (text, changed) => {
  const numbers = h("div.numbers", { "aria-hidden": "true" });
  const draw = () => (numbers.textContent = area.value.split("\n").map((_, at) => at + 1).join("\n"));
  const area = h("textarea", {
    id: "policy",
    "aria-label": "Policy, as text",
    spellcheck: "false",
    autocomplete: "off",
    wrap: "off",
    readonly: !mayAct(),
    oninput: () => (draw(), changed()),
    onscroll: () => (numbers.scrollTop = area.scrollTop),
  });
  area.value = text;
  draw();
  const scrollTo = (line) => (area.scrollTop = (line - 6) * parseFloat(getComputedStyle(area).lineHeight));
  const goTo = (line) => {
    const before = area.value.split("\n").slice(0, line - 1).map((each) => `${each}\n`).join("").length;
    area.focus();
    area.setSelectionRange(before, before + area.value.slice(before).split("\n")[0].length);
    scrollTo(line);
  };
  return { area, goTo, scrollTo, place: h("div.editor", numbers, area) };
};

export const page = async ({ action, rule: text }, signal) => {
  let file = await get("policy", {}, signal);
  let [chosen, turn] = [action ? "Try an action" : "Rules", 0];
  const panel = h("div.panel", { role: "region", "aria-label": "About this text", tabindex: "0" });
  const state = h("p.quiet", { role: "status" });
  const ask = (path, body) => post(`policy/${path}`, body, signal);

  const answer = status();
  const typed = { spellcheck: "false", autocomplete: "off" };
  const wish = h("input", { value: action ?? "tool:file:view .env", ...typed, oninput: () => judge() });
  const agents = file.agents.map((each) => h("option", { value: each }, each));
  const who = h("select", { onchange: () => judge() }, agents);
  const others = ["tool:shell:run npm test", "tool:file:delete README.md", "tool:net:connect files.example.org"];
  const trying = h(
    "div.trying",
    h("label.field", h("span", "Action to try"), wish),
    h("p.quiet", "For example ", others.map((each, at) => [at ? ", " : "", code(each)])),
    agents.length > 1 && h("label.field", h("span", "Agent"), who),
    answer,
  );
  const answers = {
    Rules: async (text) => orProblem(await ask("rules", { text }), rules(goTo)),
    Findings: async (text) => {
      const clean = h("p.good", "No problems found.");
      const show = ({ findings }) => listed("findings", findings.map(finding(goTo))) || clean;
      return orProblem(await ask("lint", { text }), show);
    },
    "Try an action": async (text) => {
      const agent = who.value && { agent: who.value };
      const found = await ask("explain", { text, action: wish.value, ...agent }).catch((error) => ({ error }));
      answer.replaceChildren(orProblem(found, (each) => h("div", explained(each))));
      return trying;
    },
    Examples: async (text) => {
      const none = h("p.quiet", "A rule may have examples (match and not_match); they are checked here.");
      const show = ({ examples }) => listed("findings", examples.map(example)) || none;
      return orProblem(await ask("test", { text }), show);
    },
    "What changes": async (text) => {
      if (text === file.text) {
        const sample = code('deny = ["tool:file:delete **"]');
        return h("p.quiet", "Nothing is edited. Write, for example, ", sample, " below [profiles.standard]: the effect on future and past calls is shown here.");
      }
      const found = [ask("diff", { text }), ask("replay", { text })];
      return h("div", effectOf(...(await Promise.all(found))));
    },
  };
  const names = Object.keys(answers);

  const look = async () => {
    const mine = (turn += 1);
    const found = await answers[chosen](area.value).catch(problemOf);
    // Ignore a response that a newer one has overtaken; keep a panel that the user types into.
    if (mine === turn && !signal.aborted && panel.lastChild !== found) {
      panel.replaceChildren(h("h2.hidden", chosen), found);
    }
  };
  const judge = soon(look, PAUSE_MS);
  const show = () => {
    const isSame = area.value === file.text;
    save.disabled = !mayAct() || (isSame && file.trusted);
    discard.hidden = isSame;
    const saved = file.trusted ? "Trusted and in force." : `Not trusted: ${file.reason}`;
    const known = file.exists ? saved : "There is no file yet: the built-in policy is in force.";
    state.replaceChildren(h("span", isSame ? known : "Edited here, not saved yet."));
  };
  const { area, goTo, scrollTo, place } = editor(file.text, () => (show(), judge()));

  const said = status();
  const reviewed = async () => {
    const [text, before] = [area.value, file.digest];
    said.replaceChildren();
    const found = await ask("save", { text, before });
    turn += 1; // a pending response must not replace the review
    const agree = async () => {
      await ask("save", { text, before, confirm: found.confirm });
      file = await get("policy", {}, signal);
      show();
      look();
      said.replaceChildren(h("p.state.good", "Saved and trusted."));
      said.scrollIntoView({ block: "center" });
    };
    panel.replaceChildren(review(found, agree, look));
    panel.querySelector("h2").focus();
    panel.querySelector("h2").scrollIntoView();
  };
  const save = acting("Review and save …", said, () => reviewed().finally(show), "primary");
  const discard = button("Discard the edit", () => {
    area.value = file.text;
    area.dispatchEvent(new Event("input"));
  });
  const tabs = names.map((name) => chip(name, name === chosen, () => (turnTo(name), panel.scrollIntoView({ block: "nearest" }))));
  const turnTo = (name) => {
    chosen = name;
    tabs.forEach((each, at) => each.setAttribute("aria-pressed", String(names[at] === name)));
    panel.replaceChildren(h("p.quiet", "Loading …"));
    look();
  };
  show();
  turnTo(chosen);
  // A new file is mostly comments: scroll to the first line in force.
  const first = file.text.split("\n").findIndex((line) => /^[^#\s]/.test(line));
  const named = text ? file.text.split("\n").findIndex((line) => line.includes(text)) : -1;
  requestAnimationFrame(() => (named < 0 ? scrollTo(first + 4) : goTo(named + 1)));
  const title = h("h1", "What agents may do");
  return [
    h("div.head", title, h("div.acts", discard, save), h("p.quiet", code(file.file)), state, said),
    h("div.desk", place, h("div.side", chips("About this text", tabs), panel)),
  ];
};
