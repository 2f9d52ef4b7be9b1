"""What the runtime asks of a ledger. `LedgerFile` keeps it, and the fake `MemoryLedger`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paddock.values.entries import Entry


class Head(NamedTuple):
    """The newest entry: its sequence number and its leaf hash in hex."""

    seq: int
    hash: str


class Receipt(NamedTuple):
    """Where entries stand: the first one's sequence, their ids in order, the head after them.

    A tuple, because every append makes one.
    """

    first_seq: int
    ids: tuple[str, ...]
    head: Head


class Pending(Protocol):
    """Entries that are written, in order, and not yet safe from a power cut."""

    @property
    def receipt(self) -> Receipt: ...

    def wait(self) -> Receipt:
        """Return when the entries are durable. A second call returns at once.

        Raises:
            LedgerBusyError: not within `limits.ledger_lock_timeout_s`.
            HostError: the disk failed; the entries are not acknowledged.
            LedgerDamagedError: the file is no longer the one that was written.
        """
        ...


class Reservation(Protocol):
    """Space kept free for entries to come."""

    @property
    def size_bytes(self) -> int: ...

    def release(self) -> None:
        """Give the space back. A second call does nothing."""
        ...


class Ledger(Protocol):
    """An append-only chained record that many threads and processes share.

    Any exception out of `append`, `write` or `wait` means: not acknowledged. The
    entries may still be in the file (a process can be killed between the two),
    which is why an intent without a result is reported as unknown.
    """

    @property
    def path(self) -> str: ...

    @property
    def is_poisoned(self) -> bool:
        """Whether the disk failed to make entries durable: nothing is acknowledged any more."""
        ...

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        """Write entries next to each other, in order, and return when they are durable."""
        ...

    def write(self, entries: Sequence[Entry], *, reservation: Reservation | None = None) -> Pending:
        """Write entries next to each other, in order; `wait()` of the answer makes them durable.

        Waiting for a later write covers every earlier one. `reservation` is
        used where the disk is full, and released when the entries are written.

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
        """Keep space for entries of so many bytes, so that a full disk cannot stop them.

        Raises:
            LedgerFullError: there is not so much space.
        """
        ...

    def close(self) -> None:
        """Release descriptors and reservations. A second call does nothing."""
        ...
