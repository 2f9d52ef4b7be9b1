// Whether an entry is really part of what was signed, found out here and not by the server.
// The hashes and signatures are those of the exported page (`ledger/page/`), classic scripts
// whose names all scripts of a document share.
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
  if (!isShown || entry.seq !== proof.seq) return broken("what is shown is not what is on record");
  const root = rootOf(leafOf(line), proof.seq, proof.size, proof.path.map(unhex));
  const note = parseNote(proof.note);
  if (!root || !note || note.size !== proof.size || !same(note.root, root)) {
    return broken(`it is not entry ${proof.seq} of the ${proof.size} that were signed`);
  }
  // Without its lines, a note that is rightly signed leaves nothing open but those.
  const found = verifyNote(proof.note, parseKey(proof.key.trim()), { size: note.size, rows: [] });
  if (found.state === "broken") return broken(found.said);
  return { isWhole: true, said: `it is entry ${proof.seq} of the ${note.size} that were signed together (a checkpoint)`, text };
};

// Whether this entry, as it is shown, is one that was signed.
export const prove = async (entry) => {
  const { ledger, seq } = entry;
  const [proof] = await Promise.all([get("proof", { ledger, seq: String(seq) }), loaded()]);
  return judged(proof, entry);
};
