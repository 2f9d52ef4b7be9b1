"""Verify a Paddock ledger with nothing but this file: chain, tree, checkpoints, proofs.

    paddock-verify LEDGER.jsonl [CHECKPOINT...]
    paddock-verify --proof PROOF.json KEY [LINE]

Without an installation: python paddock_verify.py, which is this file.

It shares no code with Paddock; docs/formats/ledger.md is the format that it checks.
CHECKPOINT files are those that you kept elsewhere: only they show that no lines are missing
at the end. PROOF.json is what `paddock ledger proof --json` prints, one proof a line: of a
call it prints two. KEY is the ledger's public key, `public_key` in the ledger's first line.
LINE is a file with the entry alone, or, for several proofs, with their entries, a line each,
in the order of the proofs. Entries count from 0 and lines from 1: entry 1 is in line 2.
Prints what is wrong and in which line, of PROOF.json if that is given. The exit status is 0
if nothing is wrong, else 4.
"""

import base64
import glob
import hashlib
import json
import signal
import sys
from pathlib import Path

UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class OfAnother(ValueError):
    """A checkpoint that another ledger's key signed."""


def told(fault):
    """What is wrong, without the words of the Python library."""
    match fault:
        case json.JSONDecodeError():
            return "it is not JSON"
        case UnicodeError():
            return "it is not UTF-8"
        case OSError():
            return f"{fault.filename}: {fault.strerror}"
        case KeyError():
            return f"it has no member {fault}"
        case TypeError() | AttributeError() | IndexError() | RecursionError():
            return "it does not have the form of one"
    return str(fault)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


# --- Ed25519: RFC 8032, 5.1, and stricter: a point has one encoding and no small order

P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT_OF_MINUS_1 = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)


def add(a, b):
    x, y = a[0] * b[1] + b[0] * a[1], a[1] * b[1] + a[0] * b[0]
    k = D * a[0] * b[0] * a[1] * b[1]
    inverse = pow(1 - k * k, -1, P)
    return x * (1 - k) * inverse % P, y * (1 + k) * inverse % P


def times(number, a):
    total = (0, 1)
    while number:
        total, a, number = add(total, a) if number & 1 else total, add(a, a), number >> 1
    return total


def point(encoded):
    sign, y = divmod(int.from_bytes(encoded, "little"), 1 << 255)
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * ROOT_OF_MINUS_1 % P
    x = x if x % 2 == sign else P - x
    is_one = len(encoded) == 32 and y < P and (x * x - xx) % P == 0
    return (x, y) if is_one and times(8, (x, y)) != (0, 1) else None


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def is_signed(public, message, signature):
    a, r, s = point(public), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if None in (a, r) or len(signature) != 64 or s >= Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little")
    return times(s, BASE) == add(r, times(h % Q, a))


# --- Checkpoints: C2SP signed-note and tlog-checkpoint


def open_note(note, key):
    """The size and the root that the key signed."""
    name, key_id, encoded = [*key.split("+", 2), "", ""][:3]
    try:
        public = base64.b64decode(encoded, validate=True)
    except ValueError:
        public = b""
    if public[:1] != b"\1" or sha256(name.encode(), b"\n", public)[:4].hex() != key_id:
        what = "the public key of a ledger, `public_key` in its first line"
        raise ValueError(f"{key[:99]!r} is not {what}")
    text, _, signatures = note.rpartition("\n\n")
    if not signatures.startswith("\u2014 "):
        raise ValueError("it is not a checkpoint")
    is_ours = False
    for line in signatures.split("\n"):
        if line.startswith(f"\u2014 {name} "):
            raw = base64.b64decode(line.split(" ", 2)[2], validate=True)
            is_ours |= raw[:4].hex() == key_id
            if raw[:4].hex() == key_id and is_signed(public[1:], f"{text}\n".encode(), raw[4:]):
                origin, size, root = text.split("\n")[:3]
                if origin == name and str(abs(int(size))) == size:
                    return int(size), base64.b64decode(root, validate=True)
    raise (ValueError if is_ours else OfAnother)("the ledger's key did not sign it")


# --- The tree: RFC 6962, 2.1; what is proved of it: RFC 9162, 2.1.3 and 2.1.4


def roots(leaves, sizes):
    """The root of the first `size` leaves, for each size. `edge`: whole subtrees, largest first."""
    edge, found = [], {0: sha256()}
    for count, leaf in enumerate(leaves, start=1):
        edge.append(leaf)
        for _ in range((count & -count).bit_length() - 1):
            edge[-2:] = [sha256(b"\1", *edge[-2:])]
        if count in sizes:
            root, *above = reversed(edge)
            for each in above:
                root = sha256(b"\1", each, root)
            found[count] = root
    return found


def included(seq, size, leaf, path):
    """The root that a path leads to from a leaf. The path's last hash is that next to the root."""
    if size == 1:
        return leaf
    half, other = 1 << (size - 1).bit_length() - 1, path.pop()
    if seq < half:
        return sha256(b"\1", included(seq, half, leaf, path), other)
    return sha256(b"\1", other, included(seq - half, size - half, leaf, path))


def grown(old, size, known, path):
    """The roots that a path leads to: of `old` leaves, `known` where it is a node, and of all."""
    if old == size:
        return (known or path.pop(),) * 2
    half, other = 1 << (size - 1).bit_length() - 1, path.pop()
    if old <= half:
        first, second = grown(old, half, known, path)
        return first, sha256(b"\1", second, other)
    return tuple(sha256(b"\1", other, each) for each in grown(old - half, size - half, b"", path))


def verify_proof(proof, key, line=None):
    """What is wrong with a proof, as (0, what); `line` is the entry that it has to be of."""
    is_proof = isinstance(proof, dict) and isinstance(proof.get("note"), str)
    if not is_proof:
        raise ValueError("it is not a proof; the order is PROOF.json KEY [LINE]")
    size, root = open_note(proof["note"], key)
    old, seq = proof.get("from"), proof.get("seq")
    known = bytes.fromhex(proof["leaf"] if old is None else proof["root"])
    path = [bytes.fromhex(each) for each in proof["hashes"]]
    if line is not None and sha256(b"\0", line.removesuffix(b"\n")) != known:
        return [(0, "the proof is of another line")]
    fits = size == proof["size"] and {len(each) for each in [known, *path]} == {32}
    try:
        if old is None:
            fits &= seq in range(size) and included(seq, size, known, path) == root
        elif old in range(1, size + 1):
            fits &= grown(old, size, known, path) == (known, root)
        else:
            fits &= old == 0 and known == sha256()
    except IndexError:  # the path is too short
        fits = False
    return [] if fits and not path else [(0, "the proof does not lead to the root")]


# --- The chain


def once(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def refused(name):
    raise ValueError(f"{name} is no JSON number")


def chain_problems(lines, leaves):
    """Each line that is not the one that the next follows, up to the first that is no entry."""
    prev = "0" * 64
    for number, (line, leaf) in enumerate(zip(lines, leaves, strict=True), start=1):
        try:
            entry = json.loads(line.decode(), object_pairs_hook=once, parse_constant=refused)
            if not line.endswith(f',"seq":{number - 1},"prev":"{entry.get("prev")}"}}'.encode()):
                raise ValueError("it does not end with that place")
        except UNREADABLE as fault:
            yield (
                number,
                f"not entry {number - 1}: {told(fault)} (no line after this was looked at)",
            )
            return
        if entry["prev"] != prev:
            yield max(number - 1, 1), "not the line that the next one follows"
        prev = leaf.hex()


# --- All of it


def departure(file, leaves, size, root):
    """The first line that is not the one signed, where the tree's own file still tells."""
    kept = file.read_bytes() if file.is_file() else b""
    signed = [kept[at : at + 32] for at in range(0, size * 32, 32)]
    if roots(signed, {size})[size] != root:
        return 1, f"a line from here to {size} is not what was signed"
    at = next(at for at in range(size) if leaves[at] != signed[at])
    return at + 1, "not the line that was signed"


def verify_ledger(path, checkpoints):
    """Everything that is wrong, as (line from 1, what), 0 if it is about no line; the verdict."""
    newest = Path(path)
    sealed = newest.parent.glob(f"{glob.escape(newest.stem)}.{'[0-9]' * 16}.jsonl")
    # A file that was about to be sealed may have both names.
    older = [each for each in sealed if each.is_file() and not each.samefile(newest)]
    files = [*sorted(older), newest]
    *lines, rest = b"".join(each.read_bytes() for each in files).split(b"\n")
    leaves = [sha256(b"\0", line) for line in lines]
    found, others, signed, covered = list(chain_problems(lines, leaves)), [], [], 0
    try:
        if not lines:
            raise ValueError("it has no complete line")
        genesis = json.loads(lines[0].decode())
        key = genesis["metadata"]["public_key"]
        if genesis["event_type"] != "GENESIS" or genesis["metadata"]["format"] != 1:
            raise ValueError("not GENESIS of format 1")
    except UNREADABLE as fault:
        what = f"it does not say what ledger this is: {told(fault)}"
        return [*found, (1, f"{what} (the order is LEDGER.jsonl CHECKPOINT...)")], "DAMAGED"
    beside = newest.with_suffix(".d")
    notes = [each for each in beside.glob("checkpoints/*[0-9]") if each.is_file()]
    for name in [*checkpoints, *notes]:
        try:
            signed.append((*open_note(Path(name).read_bytes().decode(), key), str(name)))
        except OfAnother as fault:
            others.append((0, f"{name}: this checkpoint is not of this ledger: {fault}"))
        except UNREADABLE as fault:
            found.append((0, f"{name}: {told(fault)}"))
    ours = roots(leaves, {size for size, _, _ in signed})
    for size, root, name in sorted(signed):
        if size > len(lines):
            what = f"{size} entries were signed, {len(lines)} are here ({name})"
            found.append((len(lines) + 1, what))
        elif ours[size] != root:
            line, what = departure(beside / "tree.0", leaves, size, root)
            found.append((line, f"{what} ({name})"))
        else:
            covered = size
    print(f"{len(lines)} entries; {covered} of them are covered by a checkpoint")
    if covered < len(lines):
        unsure = f"the end, from line {covered + 1} on, is as it was written"
        print(f"no checkpoint shows whether {unsure}")
    if rest:
        print(f"{len(rest)} bytes follow: an append that was not finished")
    if found:
        return [*found, *others], "DAMAGED"
    if others:
        return others, "NOT VERIFIED: either the checkpoint or the ledger is not the one you mean"
    if covered < len(lines):
        return [], "the chain is intact; no checkpoint proves the end"
    return [], "whole"


def main(arguments):
    try:
        match arguments:
            case ["--proof", proof, key, *line] if len(line) < 2:
                texts = [Path(at).read_bytes().rstrip(b"\n").split(b"\n") for at in [proof, *line]]
                if len(texts[0]) != len(texts[-1]):
                    raise ValueError(f"proofs: {len(texts[0])}, lines for them: {len(texts[-1])}")
                found = []
                for at, (text, *entry) in enumerate(zip(*texts, strict=True), start=1):
                    found += [(at, what) for _, what in verify_proof(json.loads(text), key, *entry)]
                verdict = "DAMAGED" if found else "whole"
            case [path, *checkpoints] if not path.startswith("-"):
                found, verdict = verify_ledger(path, checkpoints)
            case _:
                print(__doc__)
                return 2
    except UNREADABLE as fault:
        print(f"cannot be verified: {told(fault)}")
        return 4
    for line, what in found:
        print(f"line {line}: {what}" if line else what)
    print(verdict)
    return 4 if found else 0


def console():
    # Who reads a part of the answer has had enough of it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    console()
