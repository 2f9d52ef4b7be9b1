"""What the runtime asks of a ledger, and a ledger of who signs for it and of what is above it.

`LedgerFile` is a `Ledger`, and the fake `MemoryLedger`; `Signer`s are in signing.py.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paddock.ledger.format.lines import Head, VerifierKey
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint
from paddock.values.entries import Entry


class Receipt(NamedTuple):
    """Where entries stand: the first one's sequence, their ids in order, the head after them."""

    first_seq: int
    ids: tuple[str, ...]
    head: Head


class Reservation(Protocol):
    @property
    def size_bytes(self) -> int: ...

    def release(self) -> None: ...


class Ledger(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def is_poisoned(self) -> bool: ...

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        """Write entries next to each other, in order, and return when they are durable.

        Any exception means: not acknowledged. The entries may still be in the file (a process
        can be killed between the two), which is why an intent without a result is reported as
        unknown. `reservation` is used where the disk is full, and released when they are written.

        Raises:
            EntryRefusedError: an entry cannot be written, or there are none, or
                more than `limits.ledger_batch_entries_max`.
            LedgerBusyError: another thread or process holds the lock.
            LedgerFullError: no space.
            LedgerDamagedError: what stands in the file is not what was written.
            HostError: the disk failed, now or before.
        """
        ...

    def reserve(self, size_bytes: int) -> Reservation:
        """Raises: LedgerFullError."""
        ...

    def close(self) -> None: ...


class Above(Protocol):
    def take(self, signed: SignedCheckpoint) -> None:
        """Keep it, durably, and see to it that it is covered in turn. Raises: PaddockError."""
        ...


class Signer(Protocol):
    @property
    def verifier(self) -> VerifierKey: ...

    def last(self) -> SignedCheckpoint | None:
        """Raises: NoteError: not its own; ConfigError, HostError."""
        ...

    def sign(self, wanted: Checkpoint, proof: Sequence[bytes]) -> SignedCheckpoint:
        """Raises: LedgerDamagedError: it does not go on from `last`; ConfigError, HostError."""
        ...

    def forget(self) -> None:
        """Let the next checkpoint be anything: a person accepted that the ledger went back."""
        ...
