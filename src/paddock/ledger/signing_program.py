"""A signer in a process of its own, which may be another user's: it holds the keys.

It is run as `PROGRAM… ACTION ORIGIN`:

    key      prints the verifier key of that origin; makes the key where there is none
    last     prints the note that it signed last, or nothing
    sign     reads a checkpoint's text, then the consistency proof from `last`, a hash in
             hex on each line; signs, and prints the note
    forget   lets the next checkpoint be anything

Whoever may run it with the first three alone can neither take a key nor have a second
history signed; who may run `forget` is for its operator to say (a rule of sudo names
the arguments). `paddock ledger signer DIR` is such a program.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.format.genesis import VerifierKey
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint
from paddock.ledger.programs import failed, run_command
from paddock.ledger.signing import open_note

_HINT: Final = "the user's configuration names it: [ledger] signer"


class ProgramSigner:
    __slots__ = ("_command", "_environment", "_origin", "_verifier")

    def __init__(self, command: Sequence[str], origin: str, environment: Mapping[str, str]) -> None:
        """Nothing is run before it is needed."""
        self._command = tuple(command)
        self._origin = origin
        self._environment = dict(environment)
        self._verifier: VerifierKey | None = None

    @property
    def verifier(self) -> VerifierKey:
        """See `Signer`. Raises: HostError, LedgerDamagedError where it prints no key."""
        if self._verifier is None:
            self._verifier = VerifierKey.parse(self._ask("key", "").strip())
        return self._verifier

    def last(self) -> SignedCheckpoint | None:
        note = self._ask("last", "")
        return open_note(note, self.verifier) if note else None

    def sign(self, wanted: Checkpoint, proof: Sequence[bytes]) -> SignedCheckpoint:
        hashes = "".join(f"{each.hex()}\n" for each in proof)
        signed = open_note(self._ask("sign", wanted.text + hashes), self.verifier)
        if signed.checkpoint != wanted:
            raise HostError(
                "the signer signed something else", where=ascii(self._command[0]), hint=_HINT
            )
        return signed

    def forget(self) -> None:
        self._ask("forget", "")

    def _ask(self, action: str, given: str) -> str:
        command = (*self._command, action, self._origin)
        where = f"the signer {self._command[0]!a}"
        done = run_command(command, given.encode(), self._environment, where)
        if done.returncode != 0:
            raise failed(where, done, _HINT)
        return done.stdout[: limits.checkpoint_note_bytes_max + 1].decode(errors="replace")
