"""Signed notes and checkpoints: the text that an auditor keeps.

A signed note (C2SP signed-note) is a text that ends with LF, an empty line, and signature lines:
`— name base64(key id ‖ signature)`. A checkpoint (C2SP tlog-checkpoint) is a note whose text has
three lines: the log's origin, the size of its tree in decimal, its root in base64. Further lines
may follow and mean nothing to us.
"""

import re
from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.lines import VerifierKey, decode_base64, is_key_name
from paddock.ledger.format.merkle import HASH_BYTES
from paddock.pattern import lazy_pattern

KEY_ID_BYTES: Final = 4
SIGNATURE_BYTES: Final = 64
_DASH: Final = "\u2014 "
_SIZE: Final = lazy_pattern(r"0|[1-9]\d{0,15}", re.ASCII)
_PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"


class NoteError(LedgerDamagedError):
    """A text that is no signed note, no checkpoint, or not signed by the key it has to be."""


class Checkpoint(Struct, frozen=True):
    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{b2a_base64(self.root, newline=False).decode()}\n"


class SignedCheckpoint(Struct, frozen=True):
    """A checkpoint whose signature was verified, and the note that holds it."""

    checkpoint: Checkpoint
    note: str


def format_note(text: str, name: str, key_id: bytes, signature: bytes) -> str:
    encoded = b2a_base64(key_id + signature, newline=False).decode()
    return f"{text}\n{_DASH}{name} {encoded}\n"


def parse_note(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the text, and each signature line's name and bytes: a key id and the signature."""
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
    """Return what a note says, whoever signed it."""
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
    if not any(_is_signed(key.public, signature, text.encode()) for signature in found):
        raise NoteError("a checkpoint with a false signature")
    return SignedCheckpoint(checkpoint, note)


# The same note stands beside the ledger, with its key and in the ledger above.
@lru_cache(maxsize=256)
def _is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    # Imported here: it costs more than opening a ledger.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only where needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - only where needed

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def format_inclusion(index: int, path: Sequence[bytes], note: str) -> str:
    """C2SP tlog-proof."""
    hashes = "".join(f"{b2a_base64(each, newline=False).decode()}\n" for each in path)
    return f"{_PROOF_HEADER}\nindex {index}\n{hashes}\n{note}"


def _not(what: str, text: str) -> NoteError:
    shown = ascii(text[: limits.message_value_chars_max])
    return NoteError(f"not {what}: {shown}")
