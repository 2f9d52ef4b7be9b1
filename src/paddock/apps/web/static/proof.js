// Checks in the browser, not on the server, that an entry is part of what was signed.
// Hash and signature functions come from the exported page (`ledger/page/`): classic scripts,
// whose names are global in the document.
/* global hex, unhex, same, leafOf, nodeOf, unbase64, parsedEntry, parseKey, parseNote, verifyNote */
import { get } from "./api.js";

const SCRIPTS = ["sha2.js", "ed25519.js", "verify.js"];
let loading = null;

const load = (name) =>
  new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, { src: `/static/page/${name}`, async: false, onload: done, onerror: failed });
    document.head.append(script);
  });
const loaded = () => (loading ??= Promise.all(SCRIPTS.map(load)));

// RFC 9162, 2.1.3.2. Halves, not shifts: a ledger may hold more than 2³¹ entries.
const rootOf = (leaf, seq, size, path) => {
  let [at, last, root] = [seq, size - 1, leaf];
  for (const step of path) {
    if (last === 0) return null;
    if (at % 2 || at === last) {
      root = nodeOf(step, root);
      while (at % 2 === 0 && at !== 0) [at, last] = [at / 2, Math.floor(last / 2)];
    } else root = nodeOf(root, step);
    [at, last] = [Math.floor(at / 2), Math.floor(last / 2)];
  }
  return last === 0 ? root : null;
};

const NAMES = ["id", "seq", "timestamp", "event_type", "decision", "reason", "agent", "session_id", "call_id"];

const judged = (proof, shown) => {
  const line = unbase64(proof.line) ?? new Uint8Array(0);
  const text = new TextDecoder().decode(line);
  const broken = (said) => ({ isWhole: false, said, text });
  const entry = parsedEntry(text) ?? {};
  const isShown = [...NAMES, "metadata"].every((name) => JSON.stringify(entry[name]) === JSON.stringify(shown[name]));
  if (!isShown || entry.seq !== proof.seq) return broken("the entry shown differs from the recorded one");
  const root = rootOf(leafOf(line), proof.seq, proof.size, proof.path.map(unhex));
  const note = parseNote(proof.note);
  if (!root || !note || note.size !== proof.size || !same(note.root, root)) {
    return broken(`it is not entry ${proof.seq} of the ${proof.size} that were signed`);
  }
  // The lines are not given, so only they can remain unverified by a valid note.
  const found = verifyNote(proof.note, parseKey(proof.key.trim()), { size: note.size, rows: [] });
  if (found.state === "broken") return broken(found.said);
  return { isWhole: true, said: `it is entry ${proof.seq} of the ${note.size} that were signed together (a checkpoint)`, text };
};

// Checks that this entry, as it is shown, was signed.
export const prove = async (entry) => {
  const { ledger, seq } = entry;
  const [proof] = await Promise.all([get("proof", { ledger, seq: String(seq) }), loaded()]);
  return judged(proof, entry);
};
