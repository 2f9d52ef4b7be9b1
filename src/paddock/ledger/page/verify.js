// Verify the chain of lines, their Merkle tree (RFC 6962), and signed notes (C2SP).
// The format is described in docs/formats/ledger.md of Paddock.

const utf8 = (text) => new TextEncoder().encode(text);
const PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const hex = (bytes) => {
  let out = "";
  for (const byte of bytes) out += PAIRS[byte];
  return out;
};
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const same = (one, other) => hex(one) === hex(other);

// Decode canonical base64; null for any other text.
const unbase64 = (text) => {
  try {
    const binary = atob(text);
    if (btoa(binary) !== text) return null;
    return Uint8Array.from(binary, (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
};

const leafOf = (line) => sha256(joined(new Uint8Array([0]), line));
const nodeOf = (left, right) => sha256(joined(new Uint8Array([1]), left, right));

const OPENING = /^\{"id":"LED-[0-9a-f]{32}","timestamp":"[^"\\]{27}","event_type":"/;
const TAIL = /,"seq":(0|[1-9][0-9]{0,15}),"prev":"([0-9a-f]{64})"\}$/;
const ZEROS = "0".repeat(64);

// Rows of the page: `{…` is a line, `=…` a line in base64 that is not valid text, and
// `#LEVEL HASH` replaces 2^LEVEL omitted lines by the root of the tree over them.
const parseRows = (text) =>
  text
    .split("\n")
    .filter((row) => row !== "")
    .map((row) => {
      if (row.startsWith("#")) {
        const [level, hash] = row.slice(1).split(" ");
        return { level: Number(level), hash: unhex(hash ?? ""), line: null, text: "" };
      }
      if (row.startsWith("=")) {
        const line = unbase64(row.slice(1)) ?? new Uint8Array(0);
        return { level: 0, hash: null, line, text: new TextDecoder().decode(line) };
      }
      return { level: 0, hash: null, line: utf8(row), text: row };
    });

// The right edge of a Merkle tree that grows by leaves and by whole subtrees.
class Edge {
  constructor() {
    this.size = 0;
    this.parts = [];
  }

  push(level, hash) {
    const width = 2 ** level;
    if (this.size % width !== 0) throw new Error("a subtree out of place");
    this.size += width;
    let part = { level, hash };
    while (this.parts.length && this.parts[this.parts.length - 1].level === part.level) {
      const left = this.parts.pop();
      part = { level: part.level + 1, hash: nodeOf(left.hash, part.hash) };
    }
    this.parts.push(part);
  }

  root() {
    if (!this.parts.length) return sha256(new Uint8Array(0));
    return this.parts.map((part) => part.hash).reduceRight((root, hash) => nodeOf(hash, root));
  }
}

const parsedEntry = (text) => {
  try {
    const entry = JSON.parse(text);
    return typeof entry === "object" && entry !== null ? entry : null;
  } catch {
    return null;
  }
};

// The root over the first `size` entries; null if it ends within omitted lines.
const rootAt = (rows, size) => {
  const edge = new Edge();
  for (const row of rows) {
    if (edge.size >= size) break;
    edge.push(row.level, row.hash);
  }
  return edge.size === size ? edge.root() : null;
};

// Check numbers and links of the rows in order, and set each row's hash.
const verifyRows = (rows) => {
  const problems = [];
  let position = 0;
  let expected = 0;
  let before = null;
  let shown = 0;
  rows.forEach((row, index) => {
    row.position = position;
    position += 2 ** row.level;
    if (row.line === null) {
      if (row.hash.length !== 32) throw new Error(`row ${index + 1} is not valid`);
      expected += 2 ** row.level;
      before = row.level === 0 ? row.hash : null;
      return;
    }
    shown += 1;
    row.problems = lineProblems(row, expected, before);
    for (const said of row.problems) problems.push({ row, said });
    expected = row.seq === null ? expected + 1 : row.seq + 1;
    row.hash = leafOf(row.line);
    before = row.hash;
  });
  return { rows, size: position, shown, problems };
};

const lineProblems = (row, expected, before) => {
  const tail = TAIL.exec(row.text);
  row.entry = parsedEntry(row.text);
  row.seq = tail ? Number(tail[1]) : null;
  if (!tail || !OPENING.test(row.text) || row.entry === null) return ["this line holds no entry"];
  const said = [];
  if (row.seq !== expected) {
    said.push(`it has seq ${row.seq} where ${expected} belongs: lines are missing, added or moved`);
  }
  const wanted = row.position === 0 ? ZEROS : before && hex(before);
  if (wanted && tail[2] !== wanted) {
    said.push(
      row.position === 0
        ? "its prev is not zeros, although it is the first line"
        : "its prev is not the hash of the line before it: " +
            "that line was changed, or one was removed, added or moved here",
    );
  }
  if ((row.entry.event_type === "GENESIS") !== (row.position === 0)) {
    said.push("GENESIS must be in line 1, and nowhere else");
  }
  return said;
};

// `name+hash+base64(01 ‖ key)`: its name, its four bytes, and the 32 of the key.
const parseKey = (text) => {
  const parts = /^([!-*,-~]{1,255})\+([0-9a-f]{8})\+(.*)$/.exec(text);
  const decoded = parts && unbase64(parts[3]);
  if (!decoded || decoded.length !== 33 || decoded[0] !== 1) return null;
  const id = sha256(joined(utf8(`${parts[1]}\n`), decoded)).slice(0, 4);
  return hex(id) === parts[2] ? { name: parts[1], id, key: decoded.slice(1) } : null;
};

const parseNote = (note) => {
  const at = note.lastIndexOf("\n\n");
  if (at < 0 || !note.endsWith("\n")) return null;
  const text = note.slice(0, at + 1);
  const [origin, size, root] = text.split("\n");
  const hash = unbase64(root ?? "");
  if (!/^(0|[1-9][0-9]{0,15})$/.test(size ?? "") || !hash || hash.length !== 32) return null;
  const signatures = note
    .slice(at + 2, -1)
    .split("\n")
    .map((line) => /^\u2014 (\S+) (\S+)$/.exec(line))
    .map((found) => found && { name: found[1], bytes: unbase64(found[2]) });
  if (signatures.some((found) => !found || !found.bytes)) return null;
  return { text, origin, size: Number(size), root: hash, signatures };
};

// Compare one checkpoint with these rows: `state` is whole, broken or open.
const verifyNote = (note, key, tree) => {
  const parsed = parseNote(note);
  if (!parsed) return { state: "broken", size: 0, said: "this is not a checkpoint" };
  const { size, origin } = parsed;
  const broken = (said) => ({ state: "broken", size, said });
  if (!key) return broken("the ledger's key is unknown, so no signature can be verified");
  const isOurs = parsed.signatures.some(
    (each) =>
      each.name === key.name &&
      each.bytes.length === 68 &&
      same(each.bytes.slice(0, 4), key.id) &&
      isSignedBy(key.key, each.bytes.slice(4), utf8(parsed.text)),
  );
  if (origin !== key.name || !isOurs) return broken("it is not signed by the ledger's key");
  if (size > tree.size) {
    return broken(`it was signed for ${size} entries, but ${tree.size} are here: the end is gone`);
  }
  const root = rootAt(tree.rows, size);
  if (root === null) {
    return { state: "open", size, said: "signed, but it ends within lines that are left out here" };
  }
  if (!same(root, parsed.root)) {
    return broken(`signed for ${size} entries, but these ${size} are not those that were signed`);
  }
  return { state: "whole", size, said: `signed, and exactly these first ${size} entries` };
};
