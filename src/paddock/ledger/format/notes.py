"""Signed notes, checkpoints, and the Merkle tree whose size and root they sign. Pure.

A signed note (C2SP signed-note) is a text that ends with LF, an empty line, and signature lines:
`— name base64(key id ‖ signature)`. A checkpoint (C2SP tlog-checkpoint) is a note whose text has
three lines: the log's origin, the size of its tree in decimal, its root in base64. Further lines
are ignored.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.lines import VerifierKey, decode_base64, is_key_name
from paddock.pattern import lazy_pattern

HASH_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
SIGNATURE_BYTES: Final = 64
_DASH: Final = "\u2014 "
_SIZE: Final = lazy_pattern(r"0|[1-9]\d{0,15}", re.ASCII)
_PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"


class NoteError(LedgerDamagedError):
    """A text that is not a signed note or checkpoint, or is not signed by the expected key."""


class Checkpoint(Struct, frozen=True):
    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{b2a_base64(self.root, newline=False).decode()}\n"


class SignedCheckpoint(Struct, frozen=True):
    """A checkpoint with a verified signature, and the note that contains it."""

    checkpoint: Checkpoint
    note: str


def format_note(text: str, name: str, key_id: bytes, signature: bytes) -> str:
    encoded = b2a_base64(key_id + signature, newline=False).decode()
    return f"{text}\n{_DASH}{name} {encoded}\n"


def parse_note(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the text, and each signature line's name and decoded key id and signature."""
    if len(note.encode(errors="replace")) > limits.checkpoint_note_bytes_max:
        raise NoteError(f"a note of more than {limits.checkpoint_note_bytes_max} bytes")
    text, _, lines = note.rpartition("\n\n")
    is_printable = not any(char < " " and char != "\n" for char in note)
    if not text or not lines.endswith("\n") or not is_printable:
        raise _not("a signed note", note)
    signatures: list[tuple[str, bytes]] = []
    for line in lines[:-1].split("\n"):
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        decoded = decode_base64(encoded) or b""
        if not line.startswith(_DASH) or not is_key_name(name) or len(decoded) <= KEY_ID_BYTES:
            raise _not("a signed note", note)
        signatures.append((name, decoded))
    return text + "\n", signatures


def parse_checkpoint(text: str) -> Checkpoint:
    lines = text.split("\n")
    if len(lines) >= 4 and lines[-1] == "" and all(lines[:-1]):
        origin, size, root = lines[0], lines[1], decode_base64(lines[2])
        if _SIZE.fullmatch(size) and root is not None and len(root) == HASH_BYTES:
            return Checkpoint(origin, int(size), root)
    raise _not("a checkpoint", text)


def read_checkpoint(note: str) -> Checkpoint:
    """Parse a note without verifying its signature, unlike `open_note`."""
    return parse_checkpoint(parse_note(note)[0])


def open_note(note: str, key: VerifierKey) -> SignedCheckpoint:
    text, signatures = parse_note(note)
    checkpoint = parse_checkpoint(text)
    if checkpoint.origin != key.name:
        raise NoteError(
            f"a checkpoint of {checkpoint.origin[: limits.message_value_chars_max]!a}, "
            f"not of {key.name!a}"
        )
    found = [
        decoded[KEY_ID_BYTES:]
        for name, decoded in signatures
        if name == key.name and decoded[:KEY_ID_BYTES] == key.key_id
        if len(decoded) == KEY_ID_BYTES + SIGNATURE_BYTES
    ]
    if not found:
        raise NoteError(f"a checkpoint that {key.name!a} did not sign")
    if not any(is_signed(key.public, signature, text.encode()) for signature in found):
        raise NoteError("a checkpoint with an invalid signature")
    return SignedCheckpoint(checkpoint, note)


# Cached: the same note is verified beside the ledger, beside its key and in the ledger above.
@lru_cache(maxsize=256)
def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    # Imported here: it takes longer than opening a ledger.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only where needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - only where needed

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def format_inclusion(index: int, path: Sequence[bytes], note: str) -> str:
    """Format a C2SP tlog-proof."""
    hashes = "".join(f"{b2a_base64(each, newline=False).decode()}\n" for each in path)
    return f"{_PROOF_HEADER}\nindex {index}\n{hashes}\n{note}"


def _not(what: str, text: str) -> NoteError:
    shown = ascii(text[: limits.message_value_chars_max])
    return NoteError(f"not {what}: {shown}")


# The Merkle tree of RFC 6962 over leaf hashes: roots, proofs, and their verification.
#
#     MTH({})     = SHA-256()
#     MTH({d})    = SHA-256(00 ‖ d)                      a leaf hash: `line.leaf_hash`
#     MTH(D[0:n]) = SHA-256(01 ‖ MTH(D[0:k]) ‖ MTH(D[k:n]))   k the greatest power of two below n
#
# Proofs are built from stored hashes of whole subtrees (`Nodes`), and verified without a tree as
# in RFC 9162, 2.1.3.2 and 2.1.4.2.

EMPTY_ROOT: Final = sha256(b"").digest()
_NODE: Final = b"\x01"
_NODE_STATE: Final = sha256(_NODE)


Nodes = Callable[[int, int], bytes]
"""Return the root of a subtree of 2^level leaves, by level and index."""


def leaf_nodes(leaves: Sequence[bytes]) -> Nodes:
    levels = Growing().extend(leaves)
    return lambda level, index: levels[level][index]


class Growing:
    """The right edge of a growing tree: a whole subtree's root for each set bit of its size."""

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        self.size = size
        rest = iter(hashes)
        self._edge = [
            next(rest) if size >> level & 1 else None for level in range(size.bit_length())
        ]

    @classmethod
    def resume(cls, nodes: Nodes, size: int) -> "Growing":
        levels = [level for level in range(size.bit_length()) if size >> level & 1]
        return cls(size, [nodes(level, (size >> level) - 1) for level in levels])

    @classmethod
    def from_hashes(cls, size: int, hashes: Sequence[bytes]) -> "Growing | None":
        is_edge = size >= 0 and size.bit_count() == len(hashes)
        return cls(size, hashes) if is_edge and {*map(len, hashes)} <= {HASH_BYTES} else None

    def hashes(self) -> list[bytes]:
        """Return the edge, the smallest subtree first."""
        return [each for each in self._edge if each is not None]

    def extend(self, leaves: Sequence[bytes]) -> list[list[bytes]]:
        """Add leaf hashes; return, level by level, the subtrees that became whole."""
        self.size += len(leaves)
        rows: list[list[bytes]] = []
        row = list(leaves)
        level = 0
        while row:
            rows.append(row)
            if level == len(self._edge):
                self._edge.append(None)
            left = self._edge[level]
            # Not in `rows`: an earlier call returned the edge's hashes.
            paired = row if left is None else [left, *row]
            self._edge[level] = paired[-1] if len(paired) % 2 else None
            row = _parents(paired)
            level += 1
        return rows

    def root(self) -> bytes:
        root = None
        for each in self.hashes():
            root = each if root is None else node_hash(each, root)
        return EMPTY_ROOT if root is None else root


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def root_of(nodes: Nodes, size: int) -> bytes:
    return _subtree(nodes, 0, size) if size else EMPTY_ROOT


def inclusion_path(nodes: Nodes, index: int, size: int) -> list[bytes]:
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} of {size}")
    return _siblings(nodes, (index, index + 1), 0, size)


def consistency_path(nodes: Nodes, old: int, size: int) -> list[bytes]:
    """Return a consistency proof; it is empty if `old` is 0 or `size`."""
    if not 0 <= old <= size:
        raise ValueError(f"{old} leaves of {size}")
    if old in {0, size}:
        return []
    # The last whole subtree of the old tree; if it is all of it, its root is known.
    begin = old & (old - 1)
    known = [_subtree(nodes, begin, old)] if begin else []
    return known + _siblings(nodes, (begin, old), 0, size)


def _siblings(nodes: Nodes, wanted: tuple[int, int], begin: int, end: int) -> list[bytes]:
    """Return the siblings' roots on the path from a subtree up, the lowest first."""
    if (begin, end) == wanted:
        return []
    middle = begin + _split(end - begin)
    if wanted[1] <= middle:
        return [*_siblings(nodes, wanted, begin, middle), _subtree(nodes, middle, end)]
    return [*_siblings(nodes, wanted, middle, end), _subtree(nodes, begin, middle)]


def verify_inclusion(
    leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    if not 0 <= index < size:
        return False
    found = _climb(index, size - 1, leaf, path)
    return found is not None and found[1] == root


def verify_consistency(
    old: int, size: int, old_root: bytes, root: bytes, path: Sequence[bytes]
) -> bool:
    if not 0 <= old <= size:
        return False
    if old in {0, size}:
        return not path and old_root == (root if old == size else EMPTY_ROOT)
    path = [old_root, *path] if old & (old - 1) == 0 else path
    here, last = old - 1, size - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    return bool(path) and _climb(here, last, path[0], path[1:]) == (old_root, root)


def _climb(here: int, last: int, start: bytes, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return RFC 9162's `fr` and `sr`, the old and the new root; `here`, `last` are `fn`, `sn`."""
    first = second = start
    for each in path:
        if last == 0:
            return None
        if here & 1 or here == last:
            first, second = node_hash(each, first), node_hash(each, second)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            second = node_hash(second, each)
        here, last = here >> 1, last >> 1
    return (first, second) if last == 0 else None


def _parents(row: Sequence[bytes]) -> list[bytes]:
    """Hash pairs of nodes; a last node without a sibling has no parent yet."""
    # Hot: runs once per leaf, so copy a hash that has the prefix.
    new_digest, found, rest = _NODE_STATE.copy, list[bytes](), iter(row)
    for left, right in zip(rest, rest, strict=False):
        digest = new_digest()
        digest.update(left)
        digest.update(right)
        found.append(digest.digest())
    return found


def _split(size: int) -> int:
    return 1 << (size - 1).bit_length() - 1


def _subtree(nodes: Nodes, begin: int, end: int) -> bytes:
    size = end - begin
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return nodes(level, begin >> level)
    middle = begin + _split(size)
    return node_hash(_subtree(nodes, begin, middle), _subtree(nodes, middle, end))
