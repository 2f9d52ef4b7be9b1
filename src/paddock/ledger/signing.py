"""Who signs checkpoints: a port, and the ledger's own key behind it.

A signer signs only what goes on from what it signed before, as a witness does: it
keeps its last checkpoint, and wants a consistency proof from that to the new one.
So a ledger that was cut, restored or made anew gets no signature, and what the
signer remembers shows it, as long as that lies out of reach of whoever did it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from paddock import limits
from paddock.errors import ConfigError, LedgerDamagedError
from paddock.ledger.format.genesis import VerifierKey
from paddock.ledger.format.merkle import verify_consistency
from paddock.ledger.format.notes import (
    Checkpoint,
    NoteError,
    SignedCheckpoint,
    find_signatures,
    format_note,
    parse_checkpoint,
    parse_note,
)
from paddock.ledger.keys import SigningKey, load_key
from paddock.storage.atomic import read_file, replace_file

SIGNED_SUFFIX: Final = ".signed"
"""Beside the key: what was signed last."""
_HINT: Final = (
    "look at the backups and at paddock ledger verify; if it was restored on purpose: "
    "paddock ledger accept-rollback"
)


class Signer(Protocol):
    @property
    def verifier(self) -> VerifierKey: ...

    def last(self) -> SignedCheckpoint | None:
        """What it signed last; None before the first time.

        Raises: NoteError where what it kept is not its own; ConfigError, HostError.
        """
        ...

    def sign(self, wanted: Checkpoint, proof: Sequence[bytes]) -> SignedCheckpoint:
        """Sign what goes on from `last`, which `proof` shows; remember it.

        Raises:
            LedgerDamagedError: it does not go on from there.
            ConfigError, HostError: the key cannot be used, or it cannot be remembered.
        """
        ...

    def forget(self) -> None:
        """Let the next checkpoint be anything: a person accepted that the ledger went back."""
        ...


class KeySigner:
    """The key in this process. What it signed last stands in a file beside the key."""

    __slots__ = ("_if_missing", "_key", "_key_path", "_state")

    def __init__(self, key_path: Path, if_missing: str = "") -> None:
        """Nothing is read before it is needed; `if_missing` is the hint where there is no key."""
        self._key_path = key_path
        self._if_missing = if_missing
        self._state = signed_path(key_path)
        self._key: SigningKey | None = None

    @property
    def verifier(self) -> VerifierKey:
        """See `Signer`. Raises: ConfigError, HostError."""
        return self._loaded().verifier

    def last(self) -> SignedCheckpoint | None:
        note = read_signed(self._key_path)
        return None if note is None else open_note(note, self._loaded().verifier)

    def sign(self, wanted: Checkpoint, proof: Sequence[bytes]) -> SignedCheckpoint:
        key = self._loaded()
        if wanted.origin != key.verifier.name:
            raise ConfigError(
                f"this key is of {key.verifier.name!a}, and signs nothing of {wanted.origin!a}",
                where=ascii(str(self._key_path)),
            )
        last = self.last()
        # Threat: whoever can rewrite the ledger would have the new history signed too.
        if last is not None:
            require_growth(last.checkpoint, wanted, proof)
        text = wanted.text
        note = format_note(text, key.verifier.name, key.verifier.key_id, key.sign(text.encode()))
        # Remembered first: a signature that got out is one that the signer knows of.
        replace_file(self._state, note.encode())
        return SignedCheckpoint(wanted, note)

    def forget(self) -> None:
        """See `Signer`; what was remembered is kept under another name."""
        note = read_signed(self._key_path)
        if note is not None:
            checkpoint = parse_checkpoint(parse_note(note).text)
            name = f"{self._state.name}.before-rollback-{checkpoint.size}"
            self._state.rename(self._state.with_name(name))

    def _loaded(self) -> SigningKey:
        if self._key is None:
            self._key = load_key(str(self._key_path), if_missing=self._if_missing)
        return self._key


def require_growth(last: Checkpoint, wanted: Checkpoint, proof: Sequence[bytes]) -> None:
    """Refuse what does not go on from the last checkpoint.

    Raises: LedgerDamagedError.
    """
    if wanted.size < last.size:
        raise LedgerDamagedError(
            f"the ledger went back: {last.size} entries were signed, {wanted.size} are here",
            where=ascii(wanted.origin),
            hint=_HINT,
        )
    if not verify_consistency(last.size, wanted.size, last.root, wanted.root, proof):
        raise LedgerDamagedError(
            f"the ledger is another one: its first {last.size} entries are not those that "
            "were signed",
            where=ascii(wanted.origin),
            hint=_HINT,
        )


def open_note(note: str, key: VerifierKey) -> SignedCheckpoint:
    """Return the checkpoint that a note holds, its signature verified.

    Raises:
        NoteError: it is no checkpoint of this key's log, or the key did not sign it.
    """
    parsed = parse_note(note)
    checkpoint = parse_checkpoint(parsed.text)
    if checkpoint.origin != key.name:
        raise NoteError(
            f"a checkpoint of {checkpoint.origin[: limits.message_value_chars_max]!a}, "
            f"not of {key.name!a}"
        )
    found = find_signatures(parsed, key)
    if not found:
        raise NoteError(f"a checkpoint that {key.name!a} did not sign")
    if not any(_is_signed(key.public, signature, parsed.text.encode()) for signature in found):
        raise NoteError("a checkpoint with a false signature")
    return SignedCheckpoint(checkpoint, note)


def signed_path(key_path: Path) -> Path:
    """Where the key's signer remembers what it signed last."""
    return key_path.with_suffix(SIGNED_SUFFIX)


def read_signed(key_path: Path) -> str | None:
    """The note that the key's signer made last, as it stands there. Raises: ConfigError."""
    content = read_file(signed_path(key_path), limits.checkpoint_note_bytes_max)
    return None if content is None else content.decode(errors="replace")


def _is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    # Imported here: it costs more than opening a ledger.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only where needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - only where needed
        Ed25519PublicKey,
    )

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
