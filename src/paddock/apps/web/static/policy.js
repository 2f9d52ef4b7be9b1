// What may they do, and what would change if this line were another?
import { get, mayAct, post } from "./api.js";
import { diff } from "./diff.js";
import { acting, block, button, chips, code, h, listed, soon, status, told } from "./dom.js";
import { explained } from "./entry.js";

const PAUSE_MS = 350;

const finding = (goTo) => (each) =>
  h(
    "li",
    each.line ? button(`Line ${each.line}`, () => goTo(each.line), "quiet") : h("span.note", each.file),
    h("p", each.message),
    h("p.quiet", each.hint),
  );

const example = (each) =>
  h(
    "li",
    h(`span.state.${each.passed ? "good" : "bad"}`, each.passed ? "as expected" : "not as expected"),
    " ",
    code(each.action),
    h("span.note", ` ${each.outcome}${each.passed ? "" : `, expected ${each.expected}`}`),
  );

const orTold = (found, show) => (found.error ? told(found.error) : show(found));
const effectOf = (changes, past) => [
  h("h3", "In words"),
  orTold(changes, ({ text }) => block(text)),
  h("h3", "Had it been so until now"),
  orTold(past, ({ text }) => block(text)),
];

// What is saved is trusted, so it is shown with its effect and asked a second time.
const review = (found, save) => {
  const said = status();
  const dialog = h(
    "dialog",
    { "aria-labelledby": "saving", onclose: () => dialog.remove() },
    h("h2.title", { id: "saving" }, "Save this policy?"),
    h("p", "From then on every call is decided by it."),
    h(
      "div.inner",
      { tabindex: "0" },
      found.diff ? diff(found.diff) : h("p.quiet", "The text is the same."),
      effectOf({ text: found.effect }, found.replay),
      listed("findings", found.findings.map((each) => h("li", h("p", each.message)))),
    ),
    h(
      "div.acts",
      acting("Save and trust exactly this text", said, async () => (await save(found.confirm), dialog.close()), "primary"),
      button("Keep editing", () => dialog.close()),
    ),
    said,
  );
  document.body.append(dialog);
  dialog.showModal();
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

export const policyPage = {
  title: "Policy",
  async open({ tab = "findings", action = "tool:file:view .env" }, signal) {
    let file = await get("policy", {}, signal);
    let chosen = tab;
    let turn = 0;
    const panel = h("div.panel", { role: "region", "aria-label": "About this text", tabindex: "0" });
    const state = h("p.quiet", { role: "status" });
    const ask = (path, body) => post(`policy/${path}`, body, signal);

    const answer = status();
    const wish = h("input", { id: "action", value: action, spellcheck: "false", autocomplete: "off", oninput: () => judge() });
    const who = h("select", { id: "agent", onchange: () => judge() }, file.agents.map((each) => h("option", { value: each }, each)));
    const trying = h(
      "div",
      h("label.field", { for: "action" }, h("span", "What somebody wants to do")),
      wish,
      h("p.quiet", "For example ", code("tool:shell:run npm test"), ", ", code("tool:file:delete README.md"), " or ", code("tool:net:connect pypi.org"), "."),
      file.agents.length > 1 && [h("label.field", { for: "agent" }, h("span", "Who")), who],
      answer,
    );
    const TABS = {
      findings: ["Findings", async (text) => orTold(await ask("lint", { text }), ({ findings }) => listed("findings", findings.map(finding(goTo))) || h("p.state.good", "Nothing to say against it."))],
      explain: [
        "Try an action",
        async (text) => {
          const agent = who.value && { agent: who.value };
          const found = await ask("explain", { text, action: wish.value, ...agent }).catch((error) => ({ error }));
          answer.replaceChildren(orTold(found, (each) => h("div", explained(each))));
          return trying;
        },
      ],
      test: [
        "Examples",
        async (text) =>
          orTold(await ask("test", { text }), ({ results, passed, failed }) =>
            results.length
              ? h("div", h("p", `${passed} as expected, ${failed} not`), listed("findings", results.map(example)))
              : h("p.quiet", "This policy has no examples. A rule may have them, as match and not_match; they are tried here."),
          ),
      ],
      effect: ["What changes", async (text) => h("div", effectOf(...(await Promise.all([ask("diff", { text }), ask("replay", { text })]))))],
    };

    const look = async () => {
      const mine = (turn += 1);
      const found = await TABS[chosen][1](area.value).catch(told);
      // An answer that was overtaken is no answer, and what is typed into stays in place.
      if (mine === turn && !signal.aborted && panel.firstChild !== found) panel.replaceChildren(found);
    };
    const judge = soon(look, PAUSE_MS);
    const mark = () => {
      const isSame = area.value === file.text;
      save.disabled = !mayAct() || (isSame && file.trusted);
      discard.hidden = isSame;
      const saved = file.trusted ? "Trusted and in force." : `Not trusted: ${file.reason}`;
      const known = file.exists ? saved : "There is no file yet: the built-in policy is in force.";
      state.replaceChildren(h("span", isSame ? known : "Edited here, not saved yet."));
    };
    const { area, goTo, scrollTo, place } = editor(file.text, () => (mark(), judge()));

    const said = status();
    const reviewed = async () => {
      const [text, before] = [area.value, file.digest];
      said.replaceChildren();
      review(await ask("save", { text, before }), async (confirm) => {
        await ask("save", { text, before, confirm });
        file = await get("policy", {}, signal);
        mark();
        said.replaceChildren(h("p.state.good", "Saved and trusted."));
      });
    };
    const save = acting("Review and save …", said, () => reviewed().finally(mark), "primary");
    const discard = button("Discard the edit", () => {
      area.value = file.text;
      area.dispatchEvent(new Event("input"));
    });
    const tabs = Object.entries(TABS).map(([name, [label]]) => h("button.chip", { type: "button", onclick: () => turnTo(name) }, label));
    const turnTo = (name) => {
      chosen = name;
      Object.keys(TABS).forEach((each, at) => tabs[at].setAttribute("aria-pressed", String(each === name)));
      panel.replaceChildren(h("p.quiet", "Looking …"));
      look();
    };
    mark();
    turnTo(TABS[tab] ? tab : "findings");
    // A fresh file is mostly comments: what is in force comes first to the eye.
    const first = file.text.split("\n").findIndex((line) => /^[^#\s]/.test(line));
    requestAnimationFrame(() => scrollTo(first + 4));
    return [
      h("div.head", h("h1", "What agents may do"), h("div.acts", discard, save), h("p.quiet", code(file.file)), state, said),
      h("div.desk", place, h("div.side", chips("About this text", tabs), panel)),
    ];
  },
};
