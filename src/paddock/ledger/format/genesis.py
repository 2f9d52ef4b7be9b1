"""Line 0: what the ledger is, and the key that signs its checkpoints.

The public key is text as in C2SP signed-note: `name+hash+base64`, with the
algorithm byte 0x01 (Ed25519) before the 32 key bytes, and as hash the first
four bytes of SHA-256(name ‖ LF ‖ algorithm byte ‖ key) in hex.

Pure.
"""

import re
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, cast

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.lines import StoredEntry
from paddock.values.calls import Json
from paddock.values.entries import GENESIS, Entry

FORMAT: Final = 1
"""The version that this program writes and reads."""

ALGORITHM_ED25519: Final = b"\x01"
_KEY_BYTES: Final = 32
_NAME: Final = re.compile(r"[!-*,-~]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Genesis:
    """What line 0 says.

    `origin` names this log among all others and is the key's name; `tier` is
    `HOT`, `HO2` or `HO1`; `public_key` as in the module's text;
    `parent_checkpoint` is the signed note of the tier above when this ledger
    began, if there was one.
    """

    origin: str
    tier: str
    public_key: str
    parent_checkpoint: str | None = None

    def entry(self) -> Entry:
        """The entry to write as line 0."""
        metadata: dict[str, Json] = {
            "format": FORMAT,
            "origin": self.origin,
            "tier": self.tier,
            "public_key": self.public_key,
            "parent_checkpoint": self.parent_checkpoint,
        }
        return Entry(GENESIS, metadata=metadata)


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """The public half of a ledger's key: its name and the 32 bytes."""

    name: str
    public: bytes

    @property
    def key_id(self) -> bytes:
        """Four bytes that name the key in a signature line."""
        return sha256(self.name.encode() + b"\n" + ALGORITHM_ED25519 + self.public).digest()[:4]

    def __str__(self) -> str:
        encoded = b64encode(ALGORITHM_ED25519 + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """Return the key of a C2SP verifier key text.

        Raises:
            LedgerDamagedError: not one, another algorithm, or its hash does not fit.
        """
        parts = text.split("+", 2)
        if len(parts) == 3 and _NAME.fullmatch(parts[0]):
            try:
                decoded = a2b_base64(parts[2], strict_mode=True)
            except (Base64Error, ValueError):
                decoded = b""
            if len(decoded) == 1 + _KEY_BYTES and decoded[:1] == ALGORITHM_ED25519:
                key = cls(parts[0], decoded[1:])
                if str(key) == text:
                    return key
        shown = ascii(text[: limits.message_value_chars_max])
        raise LedgerDamagedError(f"not an Ed25519 verifier key: {shown}")


def is_key_name(name: str) -> bool:
    """Whether a name can stand in a key text: printable ASCII without space and `+`."""
    return _NAME.fullmatch(name) is not None


def parse_genesis(stored: StoredEntry) -> Genesis:
    """Return what line 0 says.

    Raises:
        LedgerDamagedError: the line is no GENESIS.
        HostError: a format version that this program does not know.
    """
    metadata = stored.entry.metadata
    if stored.entry.event_type != GENESIS or stored.seq != 0 or stored.prev != PREV_OF_GENESIS:
        raise LedgerDamagedError("the first line of a ledger is not GENESIS", where="line 1")
    if metadata.get("format") != FORMAT or type(metadata["format"]) is not int:
        shown = ascii(metadata.get("format"))[: limits.message_value_chars_max]
        raise HostError(
            f"ledger format {shown} is not known",
            where="line 1",
            hint=f"this version of Paddock reads format {FORMAT}",
        )
    known = ("origin", "tier", "public_key")
    if tuple(metadata) != ("format", *known, "parent_checkpoint") or not (
        all(type(metadata[name]) is str for name in known)
        and isinstance(metadata["parent_checkpoint"], str | None)
    ):
        raise LedgerDamagedError("GENESIS does not say what a ledger is", where="line 1")
    VerifierKey.parse(cast("str", metadata["public_key"]))
    return Genesis(
        metadata["origin"],
        metadata["tier"],
        metadata["public_key"],
        metadata["parent_checkpoint"],
    )
