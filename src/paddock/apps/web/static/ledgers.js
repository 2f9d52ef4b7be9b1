// Is the record whole, and how would one know?
import { download, get, mayAct, post } from "./api.js";
import { acting, block, button, count, h, mark, note, number, size, status, told, when } from "./dom.js";

const NAMES = {
  governance: ["Governance", "agents, trust, questions and their answers"],
  ho2m: ["Sessions", "what was said, turn by turn"],
  ho1m: ["Calls", "every call: asked, decided, done"],
  packages: ["Packages", "what was installed and signed"],
};
const ABOUT =
  "Each ledger is one chain of entries: none can be changed, removed or slipped in without " +
  "breaking it, and what is signed cannot be written anew.";

const verified = async (ledger) => {
  const found = await post("ledgers/verify", { ledger });
  return h("div", h("p", mark(found.is_sound, "Whole", "DAMAGED")), block(found.text.join("\n")));
};
const signed = ({ checkpoint, checkpoints }) =>
  checkpoint ? `entries 0 to ${number(checkpoint.size - 1)}` : count(checkpoints, "checkpoint");

const ledgerRows = (each, reload) => {
  const { name: ledger, exists } = each;
  const [name, about] = NAMES[ledger] ?? [ledger, ""];
  const found = status();
  const act = (label, work, kind) => {
    const made = acting(label, found, work, kind);
    made.setAttribute("aria-label", `${label}: ${name}`);
    return made;
  };
  const save = (format) => () => download("ledgers/export", { ledger, format }, `${ledger}.${format}`);
  const sign = async () => {
    await post("ledgers/checkpoint", { ledger });
    reload();
  };
  const cell = (label, value, kind = "") => h(`td${kind}`, { "data-label": label }, exists ? value : "–");
  const acts = [
    act("Verify", () => verified(ledger), "verify"),
    mayAct() && act("Sign now", sign),
    act("Save as page", save("html"), "quiet"),
    act("as JSONL", save("jsonl"), "quiet"),
  ];
  return [
    h(
      "tr",
      h("th", { scope: "row" }, name, note(about), h("code.note", ledger)),
      cell("Entries", exists && number(each.entries), ".number"),
      cell("Size", exists && size(each.bytes), ".number"),
      cell("Newest", each.newest ? when(each.newest) : "–"),
      cell("Signed", signed(each)),
      h("td", exists ? h("div.acts", acts) : note("not begun")),
    ),
    h("tr.answer", h("td", { colspan: "6" }, each.error && told(each.error), found)),
  ];
};

export const page = async (_, signal) => {
  const body = h("tbody");
  const load = async () => {
    const { ledgers } = await get("ledgers", {}, signal);
    body.replaceChildren(...ledgers.flatMap((each) => ledgerRows(each, load)));
  };
  await load();
  const all = () => body.querySelectorAll("button.verify").forEach((each) => each.click());
  const head = (name) => h("th", { scope: "col" }, name);
  return h(
    "div.page",
    h("h1", "The record"),
    h("p.lead", ABOUT),
    h("p", button("Verify all", all, "primary")),
    h("table", h("thead", h("tr", ["Ledger", "Entries", "Size", "Newest", "Signed"].map(head), h("td"))), body),
    h("p.quiet", "A saved page is for others: it verifies itself in any browser, without this program."),
  );
};
