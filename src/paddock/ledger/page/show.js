// Render the page. Text is only ever inserted as text, never as markup.

const ROWS_AT_ONCE = 500;
const ROLES = { whole: "✓", broken: "✗", open: "–" };

const element = (name, said = "", className = "") => {
  const made = document.createElement(name);
  if (said) made.textContent = visible(said);
  if (className) made.className = className;
  return made;
};

const into = (parent, ...children) => {
  parent.append(...children);
  return parent;
};

// Escape terminal controls and characters that reorder text, as the ledger's file does.
const HIDDEN =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const visible = (text) =>
  String(text).replace(
    HIDDEN,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

const given = (id) => document.getElementById(id).textContent.replace(/^\n/, "");

const verdictLines = (tree, key, notes) => {
  const lines = [];
  const say = (state, said) => lines.push({ state, said });
  const left = tree.size - tree.shown;
  say(
    tree.problems.length ? "broken" : "whole",
    tree.problems.length
      ? `the chain is broken in ${tree.problems.length} places; the first: ` +
          `${placeOf(tree.problems[0].row)}: ${tree.problems[0].said}`
      : `the chain: ${tree.shown} lines, each with its number and with the hash of the one before`,
  );
  let covered = 0;
  for (const note of notes) {
    const found = verifyNote(note, key, tree);
    if (found.state === "whole") covered = Math.max(covered, found.size);
    say(found.state, `checkpoint of ${found.size} entries: ${found.said}`);
  }
  if (!notes.length) say("open", "no checkpoint here: anyone who can write can rewrite the ledger");
  if (left) {
    const how = covered ? "a checkpoint signs their hashes" : "no checkpoint covers them";
    say("open", `${left} of ${tree.size} entries are left out here; ${how}`);
  }
  if (covered < tree.size) {
    say(
      "open",
      `entries ${covered} to ${tree.size - 1} are covered by no checkpoint: a change of the last ` +
        "one, or a cut after it, cannot be detected",
    );
  }
  return lines;
};

const placeOf = (row) =>
  `line ${row.position + 1}${row.seq === null ? "" : ` (seq ${row.seq})`}`;

const stateOf = (lines) => {
  if (lines.some((line) => line.state === "broken")) return "broken";
  return lines.some((line) => line.state === "open") ? "partly" : "whole";
};

const HEADLINES = {
  whole: "Whole: every entry is covered by a signed checkpoint",
  partly: "No damage found; see below for what is not covered",
  broken: "BROKEN: this is not what was recorded",
};

const showVerdict = (tree, key, notes) => {
  const lines = verdictLines(tree, key, notes);
  const state = stateOf(lines);
  document.body.dataset.verdict = state;
  document.getElementById("headline").textContent = HEADLINES[state];
  const list = document.getElementById("found");
  for (const line of lines) {
    list.append(element("li", `${ROLES[line.state]} ${line.said}`, line.state));
  }
  const where = document.getElementById("problems");
  for (const { row, said } of tree.problems.slice(0, ROWS_AT_ONCE)) {
    where.append(element("li", `${placeOf(row)}: ${said}`, "broken"));
  }
  if (key) {
    const shown = given("key");
    document.getElementById("shown-key").textContent = visible(shown.trim());
  }
};

const summaryOf = (row) => {
  const entry = row.entry ?? {};
  const metadata = entry.metadata ?? {};
  const parts = [
    row.seq ?? "?",
    entry.timestamp ?? "",
    entry.event_type ?? "no entry",
    entry.decision ?? "",
    entry.agent ?? "",
    metadata.tool ?? "",
    // The target of the call's first action.
    String(metadata.actions?.[0] ?? "").split(" ").slice(1).join(" "),
    entry.reason ?? "",
  ];
  return parts.map((part) => (typeof part === "object" ? JSON.stringify(part) : String(part)));
};

const entryElement = (row) => {
  const made = element("details", "", row.problems.length ? "entry broken" : "entry");
  made.id = `line-${row.position + 1}`;
  const summary = element("summary");
  for (const part of summaryOf(row)) summary.append(element("span", part));
  for (const said of row.problems) summary.append(element("strong", said));
  made.append(summary);
  // Filled on opening: most are never opened.
  made.addEventListener("toggle", () => {
    if (made.childElementCount > 1) return;
    const full = row.entry ? JSON.stringify(row.entry, null, 2) : row.text;
    made.append(element("pre", full));
  });
  return made;
};

class List {
  constructor(rows) {
    this.rows = rows;
    this.found = rows;
    this.shown = 0;
    this.place = document.getElementById("entries");
    this.count = document.getElementById("count");
    this.more = document.getElementById("more");
    this.more.addEventListener("click", () => this.grow());
  }

  filter(text) {
    const wanted = text.trim().toLowerCase();
    this.found = this.rows.filter((row) => row.text.toLowerCase().includes(wanted));
    this.place.replaceChildren();
    this.shown = 0;
    this.grow();
  }

  grow() {
    const next = this.found.slice(this.shown, this.shown + ROWS_AT_ONCE);
    this.place.append(...next.map(entryElement));
    this.shown += next.length;
    this.count.textContent = `${this.found.length} of ${this.rows.length} entries; ${this.shown} shown`;
    this.more.hidden = this.shown >= this.found.length;
  }
}

const compare = (text, tree, key) => {
  const asked = text.trim();
  if (parseKey(asked)) {
    const isIt = asked === given("key").trim();
    return isIt
      ? { state: "whole", said: "this is the key that the page was verified with" }
      : { state: "broken", said: "another key: it did not sign this ledger" };
  }
  const found = verifyNote(`${asked}\n`, key, tree);
  return { state: found.state, said: `your checkpoint of ${found.size} entries: ${found.said}` };
};

const main = () => {
  const rows = parseRows(given("lines"));
  const key = parseKey(given("key").trim());
  const notes = [...document.querySelectorAll("pre.note")].map((note) =>
    note.textContent.replace(/^\n/, ""),
  );
  const tree = verifyRows(rows);
  const first = rows[0]?.entry?.metadata?.public_key;
  if (first !== given("key").trim()) {
    tree.problems.push({ row: rows[0], said: "line 1 names a different key than the page" });
  }
  showVerdict(tree, key, notes);
  const list = new List(rows.filter((row) => row.line !== null));
  list.filter("");
  document.getElementById("filter").addEventListener("input", (event) => {
    list.filter(event.target.value);
  });
  document.getElementById("compare").addEventListener("click", () => {
    const answer = compare(document.getElementById("held").value, tree, key);
    const place = document.getElementById("answer");
    place.textContent = `${ROLES[answer.state]} ${visible(answer.said)}`;
    place.className = answer.state;
  });
};

try {
  main();
} catch (problem) {
  // After any error the page must not look verified.
  document.body.dataset.verdict = "broken";
  document.getElementById("headline").textContent = "BROKEN: this page cannot be verified";
  document.getElementById("found").append(element("li", `✗ ${problem.message}`, "broken"));
}
