// Are the ledgers whole, and how can I check?
import { download, get, mayAct, post } from "./api.js";
import { acting, block, button, code, count, facts, h, mark, note, number, problemOf, size, status, when } from "./dom.js";

const NAMES = {
  governance: ["Governance", "agents, trust, questions and their answers"],
  ho2m: ["Sessions", "messages and answers, turn by turn"],
  ho1m: ["Calls", "every call: request, decision, result"],
  packages: ["Packages", "installed packages and signatures"],
};
const ABOUT =
  "Each ledger is a chain of entries: changing, removing or inserting one breaks the chain, " +
  "and signed entries cannot be rewritten.";

const verified = async (ledger) => {
  const found = await post("ledgers/verify", { ledger });
  const whole = `: ${count(found.entries, "entry", "entries")} unchanged since they were written.`;
  return h("div", h("p", mark(found.is_sound, "Whole", "DAMAGED"), found.is_sound && whole), block(found.text.join("\n")));
};

const part = (each, reload) => {
  const { name: ledger, exists, checkpoint, checkpoints } = each;
  const [name, about] = NAMES[ledger] ?? [ledger, ""];
  const found = status();
  const act = (label, work, kind) => {
    const made = acting(label, found, work, kind);
    made.setAttribute("aria-label", `${label}: ${name}`);
    return made;
  };
  const save = (format) => () => download("ledgers/export", { ledger, format }, `${ledger}.${format}`);
  const sign = () => post("ledgers/checkpoint", { ledger }).then(reload);
  const signed = checkpoint ? `entries 0 to ${number(checkpoint.size - 1)}` : count(checkpoints, "checkpoint");
  const acts = [
    act("Verify", () => verified(ledger), "verify"),
    mayAct() && act("Sign now", sign),
    act("Save as page", save("html"), "quiet"),
    act("Save as JSONL", save("jsonl"), "quiet"),
  ];
  return h(
    `section.ledger.${ledger}`,
    h("h2", name, note(` ${about} (`, code(ledger), ")")),
    exists
      ? facts(
          ["entries", `${number(each.entries)}, ${size(each.bytes)}`],
          ["newest", when(each.newest)],
          ["signed", signed],
        )
      : h("p.quiet", "no entries yet"),
    each.error && problemOf(each.error),
    exists && h("div.acts", acts),
    found,
  );
};

export const page = async (_, signal) => {
  const body = h("div.ledgers");
  const load = async () => {
    const { ledgers } = await get("ledgers", {}, signal);
    body.replaceChildren(...ledgers.map((each) => part(each, load)));
  };
  await load();
  const all = () => body.querySelectorAll("button.verify").forEach((each) => each.click());
  return h(
    "div.page",
    h("h1", "The record"),
    h("p.lead", ABOUT),
    h("p", button("Verify all", all, "primary")),
    body,
    h("p.quiet", "Signing creates a checkpoint: a signature over all entries up to the newest one (the head)."),
    h("p.quiet", "A saved page verifies itself in any browser, without Paddock: you can give it to others."),
  );
};
