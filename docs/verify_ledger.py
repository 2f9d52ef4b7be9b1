"""Verify a Paddock ledger with nothing but this file: chain, tree, checkpoints, proofs.

    python verify_ledger.py LEDGER.jsonl [CHECKPOINT...]
    python verify_ledger.py --proof PROOF.json KEY [LINE]

It shares no code with Paddock; docs/formats/ledger.md says what it goes by. CHECKPOINT
files are those that you kept elsewhere. PROOF.json is what `paddock ledger proof --json`
prints, KEY the ledger's public key as its first line has it, LINE a file with the entry
alone. Entries count from 0 and lines from 1: entry 1 stands in line 2.
Prints what is wrong and in which line; the status is 0 where nothing is, else 4.
"""

import base64
import glob
import hashlib
import json
import os
import sys

P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT_OF_MINUS_1 = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def point(encoded):  # RFC 8032, 5.1.3
    y, sign = int.from_bytes(encoded, "little") & (1 << 255) - 1, encoded[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * ROOT_OF_MINUS_1 % P
    if y >= P or (x * x - xx) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    x = x if x % 2 == sign else P - x
    return x, y, 1, x * y % P


def add(a, b):
    m, n = (a[1] - a[0]) * (b[1] - b[0]), (a[1] + a[0]) * (b[1] + b[0])
    c, d = 2 * a[3] * b[3] * D, 2 * a[2] * b[2]
    e, f, g, h = n - m, d - c, d + c, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, a):
    total = (0, 1, 1, 0)
    while number:
        total, a, number = add(total, a) if number & 1 else total, add(a, a), number >> 1
    return total


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(public, message, signature):  # RFC 8032, 5.1.7
    try:
        a, r, s = point(public), point(signature[:32]), int.from_bytes(signature[32:], "little")
    except ValueError:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % Q
    left, right = times(s, BASE), add(r, times(h, a))
    same = (left[0] * right[2] - right[0] * left[2], left[1] * right[2] - right[1] * left[2])
    return s < Q and not same[0] % P and not same[1] % P


def open_note(note, key):
    """Size and root of a signed checkpoint; C2SP signed-note, tlog-checkpoint."""
    name, key_id, encoded = key.split("+", 2)
    public = base64.b64decode(encoded, validate=True)
    text, _, signatures = note.rpartition("\n\n")
    for line in signatures.splitlines():
        dash, signer, code = [*line.split(" "), "", ""][:3]
        raw = base64.b64decode(code, validate=True)
        mine = dash == "\u2014" and signer == name and raw[:4].hex() == key_id and len(raw) == 68
        if mine and is_signed(public[1:], f"{text}\n".encode(), raw[4:]):
            origin, size, root = text.split("\n")[:3]
            if origin == name and str(int(size)) == size:
                return int(size), base64.b64decode(root, validate=True)
    raise ValueError("the ledger's key did not sign it")


def roots(leaves, sizes):
    """The RFC 6962 root at each of the sizes; `edge` has a hash for each bit of the count."""
    edge, found = [], {0: sha256()}
    for count, leaf in enumerate(leaves, start=1):
        level = 0
        while level < len(edge) and edge[level] is not None:
            leaf, edge[level], level = sha256(b"\1", edge[level], leaf), None, level + 1
        edge[level : level + 1] = [leaf]
        if count in sizes:
            root, *above = [each for each in edge if each is not None]
            for each in above:
                root = sha256(b"\1", each, root)
            found[count] = root
    return found


def climb(index, last, first, second, path):
    """The loop of RFC 9162, 2.1.3.2 (its r is `second`) and 2.1.4.2."""
    for each in path:
        if index & 1 or index == last:
            first, second = sha256(b"\1", each, first), sha256(b"\1", each, second)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            second = sha256(b"\1", second, each)
        index, last = index >> 1, last >> 1
    return (first, second) if last == 0 else None


def grows(old, size, old_root, root, path):
    if old == size or not 0 < old < size or not path:
        return old == size and old_root == root and not path
    path = [old_root, *path] if old & (old - 1) == 0 else path
    index, last = old - 1, size - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    return climb(index, last, path[0], path[0], path[1:]) == (old_root, root)


def unique(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def read_lines(path):
    """The lines of all files of a ledger in order; what follows the last LF is no line."""
    text = b""
    for name in [*sorted(glob.glob(f"{glob.escape(path[:-6])}.{'[0-9]' * 16}.jsonl")), path]:
        if name != path and int(name[-22:-6]) != len(text):
            print(f"{name}: begins at byte {int(name[-22:-6])}, and {len(text)} bytes precede it")
        with open(name, "rb") as file:
            text += file.read()
    return text.split(b"\n")[:-1]


def chain_problems(lines):
    """Whatever is wrong in the middle, as (line from 1, what); and the leaf hashes."""
    found, leaves, prev = [], [], "0" * 64
    for seq, line in enumerate(lines):
        leaves.append(sha256(b"\0", line))
        try:
            entry = json.loads(line, object_pairs_hook=unique)
            if not line.endswith(
                b',"seq":%d,"prev":"%s"}' % (entry["seq"], entry["prev"].encode())
            ):
                found.append((seq + 1, "it does not end with its place"))
            elif entry["seq"] != seq:
                found.append((seq + 1, f"entry {entry['seq']} where {seq} belongs"))
            elif entry["prev"] != prev:
                found.append((max(seq, 1), "not the line that the next one follows"))
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            found.append((seq + 1, f"no entry: {fault}"))
        prev = leaves[-1].hex()
    return found, leaves


def departure(path, leaves, size, root):
    """The first line that is not the signed one, where the tree's own file still says."""
    try:
        with open(f"{path[:-6]}.d/tree.0", "rb") as file:
            signed = [file.read(32) for _ in range(size)]
    except OSError:
        signed = []
    differ = [n for n, pair in enumerate(zip(leaves, signed, strict=False)) if pair[0] != pair[1]]
    if len(signed) == size and differ and roots(signed, {size})[size] == root:
        return differ[0] + 1, "not the line that was signed"
    return 1, f"a line from here to {size} is not what was signed"


def verify_ledger(path, checkpoints):
    """Everything that is wrong, as (line from 1, what)."""
    lines = read_lines(path)
    found, leaves = chain_problems(lines)
    try:
        genesis = json.loads(lines[0])
        key = genesis["metadata"]["public_key"]
        if genesis["event_type"] != "GENESIS" or genesis["metadata"]["format"] != 1:
            raise ValueError("not GENESIS of format 1")
    except (ValueError, KeyError, TypeError, IndexError) as fault:
        return [*found, (1, f"it does not say what ledger this is: {fault}")]
    beside = [
        name
        for name in glob.glob(f"{glob.escape(path[:-6])}.d/checkpoints/*")
        if name[-1].isdigit()
    ]
    signed = []
    for name in [*checkpoints, *beside]:
        try:
            with open(name, encoding="utf-8") as file:
                signed.append((*open_note(file.read(), key), os.path.basename(name)))
        except (ValueError, OSError) as fault:
            found.append((0, f"{name}: {fault}"))
    ours = roots(leaves, {size for size, _, _ in signed})
    for size, root, name in sorted(signed):
        if size > len(lines):
            found.append(
                (len(lines) + 1, f"{size} entries were signed, {len(lines)} are here ({name})")
            )
        elif ours[size] != root:
            line, what = departure(path, leaves, size, root)
            found.append((line, f"{what} ({name})"))
    covered = max([size for size, root, _ in signed if ours.get(size) == root], default=0)
    print(f"{len(lines)} entries; {covered} of them are covered by a checkpoint")
    return found


def verify_proof(proof, key, line=None):
    """What is wrong with an inclusion or consistency proof."""
    size, root = open_note(proof["note"], key)
    path = [bytes.fromhex(each) for each in proof["hashes"]]
    if size != proof["size"]:
        return [(0, "the proof is for another size than the checkpoint")]
    if "from" in proof:
        fits = grows(proof["from"], size, bytes.fromhex(proof["root"]), root, path)
        return [] if fits else [(0, "the proof does not lead to the root")]
    leaf = bytes.fromhex(proof["leaf"])
    if line is not None and sha256(b"\0", line.rstrip(b"\n")) != leaf:
        return [(0, "the proof is of another line")]
    ends = climb(proof["seq"], size - 1, leaf, leaf, path) if 0 <= proof["seq"] < size else None
    fits = ends is not None and ends[1] == root
    return [] if fits else [(0, "the proof does not lead to the root")]


def read_proof(file, key, line_file=None):
    """What is wrong with a proof in a file, and where one is named with the line of a file."""
    with open(file, encoding="utf-8") as opened:
        proof = json.load(opened)
    line = None
    if line_file is not None:
        with open(line_file, "rb") as opened:
            line = opened.read()
    return verify_proof(proof, key, line)


def main(arguments):
    is_proof = arguments[:1] == ["--proof"] and len(arguments) in (3, 4)
    if not is_proof and (not arguments or arguments[0].startswith("-")):
        print(__doc__)
        return 2
    try:
        found = (
            read_proof(*arguments[1:]) if is_proof else verify_ledger(arguments[0], arguments[1:])
        )
    except (OSError, ValueError, KeyError, TypeError) as fault:
        print(f"cannot be verified: {fault}")
        return 4
    for line, what in found:
        print(f"line {line}: {what}" if line else what)
    print("DAMAGED" if found else "whole")
    return 4 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
