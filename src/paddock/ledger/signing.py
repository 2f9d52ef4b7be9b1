"""Sign checkpoints: with a private key, or with a separate program that holds it.

Like a witness, a signer signs only a continuation of what it signed before: a ledger that was cut,
restored or recreated gets no signature, and the signer's last checkpoint is evidence of that.
"""

import os
import stat
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError
from paddock.ledger.format import notes
from paddock.ledger.format.lines import ALGORITHM_ED25519, VerifierKey, is_key_name, split_key
from paddock.storage.atomic import FILE_MODE, create_file, read_file, replace_file

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# The private key is never stored inside a plane. It is one line of text, the signer key format of
# C2SP signed-note's reference tools: `PRIVATE+KEY+name+hash+base64(0x01 ‖ seed)`.

_PREFIX: Final = "PRIVATE+KEY+"
_SEED_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1024


class SigningKey(Struct, frozen=True):
    verifier: VerifierKey
    seed: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.verifier})"

    def sign(self, message: bytes) -> bytes:
        return _private_key(self.seed).sign(message)


# Cached: deriving a key from its seed costs a curve multiplication.
@lru_cache(maxsize=4)
def _private_key(seed: bytes) -> "Ed25519PrivateKey":
    # Imported here: it takes longer than opening a ledger, and few calls sign.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - only where needed

    return Ed25519PrivateKey.from_private_bytes(seed)


def make_key(name: str, seed: bytes) -> SigningKey:
    if not is_key_name(name):
        raise ConfigError(f"invalid key name {name!a}", hint="printable, no space, no +")
    public = _private_key(seed).public_key().public_bytes_raw()
    return SigningKey(VerifierKey(name, public), seed)


def create_key(path: str, name: str, randomness: Callable[[int], bytes]) -> SigningKey:
    """Create a key file that only its owner can read. Raises: HostError: the file exists."""
    key = make_key(name, randomness(_SEED_BYTES))
    encoded = b2a_base64(ALGORITHM_ED25519 + key.seed, newline=False).decode()
    text = f"{_PREFIX}{name}+{key.verifier.key_id.hex()}+{encoded}\n"
    if not create_file(Path(path), text.encode(), FILE_MODE):
        raise HostError("the key file already exists", where=ascii(path))
    return key


def load_key(path: str, *, if_missing: str = "") -> SigningKey:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            text = os.read(descriptor, _FILE_BYTES_MAX).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as fault:
        said = f"the key cannot be read: {fault.strerror}"
        hint = if_missing if isinstance(fault, FileNotFoundError) else ""
        raise HostError(said, where=ascii(path), hint=hint) from fault
    # Threat: with a key that others can read, or have put there, they can sign too.
    if status.st_mode & 0o077 or status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        said = "a private key must be a file that only its owner can read"
        hint = "chmod 600, and create a new key if others could read this one"
        raise ConfigError(said, where=ascii(path), hint=hint)
    found = split_key(text.removeprefix(_PREFIX).removesuffix("\n"))
    if text.startswith(_PREFIX) and found is not None:
        name, key_id, seed = found
        key = make_key(name, seed)
        if key.verifier.key_id.hex() == key_id:
            return key
    raise ConfigError("not an Ed25519 key of a ledger", where=ascii(path))


class Signer(Protocol):
    @property
    def verifier(self) -> VerifierKey: ...

    def last(self) -> notes.SignedCheckpoint | None:
        """Return the last checkpoint. Raises: NoteError: signed by another key; as `sign`."""

    def sign(self, wanted: notes.Checkpoint, proof: Sequence[bytes]) -> notes.SignedCheckpoint:
        """Raises: LedgerDamagedError: it does not continue `last`; ConfigError, HostError."""
        ...

    def forget(self) -> None:
        """Accept any next checkpoint: a person accepted that the ledger was rolled back."""


_HINT: Final = (
    "check the backups and run paddock ledger verify; if it was restored on purpose: "
    "paddock ledger accept-rollback"
)


class KeySigner:
    """A signer with a key file and, beside it, its last checkpoint. It reads them when needed."""

    def __init__(self, key_path: Path, if_missing: str = "") -> None:
        self._key_path, self._if_missing = key_path, if_missing
        self._key: SigningKey | None = None

    @property
    def verifier(self) -> VerifierKey:
        return self._loaded().verifier

    def last(self) -> notes.SignedCheckpoint | None:
        note = read_signed(self._key_path)
        return None if note is None else notes.open_note(note, self._loaded().verifier)

    def sign(self, wanted: notes.Checkpoint, proof: Sequence[bytes]) -> notes.SignedCheckpoint:
        key = self._loaded()
        if wanted.origin != key.verifier.name:
            said = f"this key belongs to {key.verifier.name!a} and cannot sign {wanted.origin!a}"
            raise ConfigError(said, where=ascii(str(self._key_path)))
        last = self.last()
        # Threat: an attacker who rewrote the ledger would get the new history signed too.
        if last is not None:
            require_growth(last.checkpoint, wanted, proof)
        text = wanted.text
        note = notes.format_note(
            text, key.verifier.name, key.verifier.key_id, key.sign(text.encode())
        )
        # Stored before it is returned: the signer knows every signature that it issued.
        replace_file(signed_path(self._key_path), note.encode())
        return notes.SignedCheckpoint(wanted, note)

    def forget(self) -> None:
        note = read_signed(self._key_path)
        if note is not None:
            # Named by its hash: the note may not parse, and must not replace an earlier one.
            state = signed_path(self._key_path)
            state.rename(f"{state}.before-rollback-{sha256(note.encode()).hexdigest()[:16]}")

    def _loaded(self) -> SigningKey:
        if self._key is None:
            self._key = load_key(str(self._key_path), if_missing=self._if_missing)
        return self._key


def require_growth(
    last: notes.Checkpoint, wanted: notes.Checkpoint, proof: Sequence[bytes]
) -> None:
    said = ""
    if wanted.size < last.size:
        said = f"was rolled back: {last.size} entries were signed, {wanted.size} are here"
    elif not notes.verify_consistency(last.size, wanted.size, last.root, wanted.root, proof):
        said = f"was rewritten: its first {last.size} entries are not those that were signed"
    if said:
        raise LedgerDamagedError(f"the ledger {said}", where=ascii(wanted.origin), hint=_HINT)


def signed_path(key_path: Path) -> Path:
    return key_path.with_suffix(".signed")


def read_signed(key_path: Path) -> str | None:
    content = read_file(signed_path(key_path), limits.checkpoint_note_bytes_max)
    return None if content is None else content.decode(errors="replace")


_SHOWN_CHARS_MAX: Final = 300


def run_command(
    command: Sequence[str], given: bytes, environment: Mapping[str, str], where: str
) -> "CompletedProcess[bytes]":
    import subprocess  # noqa: PLC0415 - slow to load, and rarely needed

    try:
        return subprocess.run(
            list(command),
            input=given,
            capture_output=True,
            timeout=limits.anchor_timeout_s,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired as fault:
        said = f"{command[0]!a} did not answer within {limits.anchor_timeout_s:g} s"
        raise HostError(said, where=where) from fault
    except OSError as fault:
        raise HostError(f"{command[0]!a} cannot be run: {fault.strerror}", where=where) from fault


def failed(where: str, done: "CompletedProcess[bytes]", hint: str) -> HostError:
    said = done.stderr.decode(errors="replace").strip()[:_SHOWN_CHARS_MAX]
    return HostError(f"exit status {done.returncode}: {said!a}", where=where, hint=hint)


class NoteProgram(Struct, frozen=True):
    """A program from the user's configuration, run as `COMMAND… ACTION ORIGIN`; prints text."""

    command: Sequence[str]
    origin: str
    environment: Mapping[str, str]
    where: str
    hint: str

    def ask(self, action: str, given: str = "") -> str:
        command = (*self.command, action, self.origin)
        done = run_command(command, given.encode(), self.environment, self.where)
        if done.returncode != 0:
            raise failed(self.where, done, self.hint)
        return done.stdout[: limits.checkpoint_note_bytes_max + 1].decode(errors="replace")


# A user who may run it only with `key`, `last` and `sign` can neither read the key nor get a second
# history signed. Its operator decides who may run `forget` (a sudo rule names the arguments).
# `paddock ledger signer DIR` is such a program.

_PROGRAM_HINT: Final = "the user's configuration names it: [ledger] signer"


class ProgramSigner:
    def __init__(self, command: Sequence[str], origin: str, environment: Mapping[str, str]) -> None:
        where = f"the signer {command[0]!a}"
        self._program = NoteProgram(command, origin, environment, where, _PROGRAM_HINT)
        self._verifier: VerifierKey | None = None

    @property
    def verifier(self) -> VerifierKey:
        if self._verifier is None:
            self._verifier = VerifierKey.parse(self._program.ask("key").strip())
        return self._verifier

    def last(self) -> notes.SignedCheckpoint | None:
        note = self._program.ask("last")
        return notes.open_note(note, self.verifier) if note else None

    def sign(self, wanted: notes.Checkpoint, proof: Sequence[bytes]) -> notes.SignedCheckpoint:
        hashes = "".join(f"{each.hex()}\n" for each in proof)
        signed = notes.open_note(self._program.ask("sign", wanted.text + hashes), self.verifier)
        if signed.checkpoint != wanted:
            where = ascii(self._program.command[0])
            raise HostError("the signer signed something else", where=where, hint=_PROGRAM_HINT)
        return signed

    def forget(self) -> None:
        self._program.ask("forget")
