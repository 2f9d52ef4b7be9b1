"""A ledger without a disk, with the same lines, chain and refusals.

For tests of code that appends. It is a `ledger.append.Ledger` and passes the same
contract tests as `LedgerFile`.
"""

import itertools
import threading
from collections.abc import Callable, Sequence

from paddock import limits
from paddock.errors import HostError, PaddockError
from paddock.ledger.append import Receipt, Reservation
from paddock.ledger.format.line import ID_BYTES, chain_line, format_id, format_timestamp, leaf_hash
from paddock.ledger.format.lines import (
    EntryRefusedError,
    Genesis,
    Head,
    StoredEntry,
    VerifierKey,
    encode_body,
    parse_line,
)
from paddock.values.entries import Entry

_PLACE = "memory"
_GENESIS = Genesis("paddock.invalid/memory", "HOT", str(VerifierKey("memory", bytes(32))))


class MemoryLedger:
    """Entries in a list. Threads may share it.

    `fail_with` makes the next `append` raise; after `poison` every one does, as after a
    failed sync.
    """

    def __init__(
        self, *, clock: Callable[[], float] = lambda: 0.0, genesis: Genesis = _GENESIS
    ) -> None:
        """Without a clock, time is constant. Ids count up."""
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._failure: PaddockError | None = None
        self._is_closed = False
        self._is_poisoned = False
        self.genesis = genesis
        self.append([genesis.entry()])

    @property
    def head(self) -> Head:
        with self._lock:
            return Head(len(self._lines) - 1, leaf_hash(self._lines[-1]))

    @property
    def text(self) -> bytes:
        return b"".join(line + b"\n" for line in self._lines)

    @property
    def entries(self) -> tuple[StoredEntry, ...]:
        return tuple(parse_line(line) for line in self._lines[1:])

    def fail_with(self, failure: PaddockError) -> None:
        """Make the next `append` raise this and write nothing."""
        self._failure = failure

    def poison(self) -> None:
        """Make every later `append` fail."""
        self._is_poisoned = True

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        if self._is_closed:
            raise HostError("the ledger was closed", where=_PLACE)
        if not 0 < len(entries) <= limits.ledger_batch_entries_max:
            raise EntryRefusedError(f"{len(entries)} entries in one append")
        timestamp = format_timestamp(self._clock())
        ids = tuple(format_id(next(self._numbers).to_bytes(ID_BYTES, "big")) for _ in entries)
        bodies = [
            encode_body(entry, entry_id, timestamp)
            for entry, entry_id in zip(entries, ids, strict=True)
        ]
        with self._lock:
            self._verify_usable()
            first_seq = len(self._lines)
            leaf = leaf_hash(self._lines[-1]) if self._lines else "0" * 64
            for body in bodies:
                line = chain_line(body, len(self._lines), leaf)
                self._lines.append(line)
                leaf = leaf_hash(line)
            head = Head(len(self._lines) - 1, leaf)
        if reservation is not None:
            reservation.release()
        return Receipt(first_seq, ids, head)

    def reserve(self, size_bytes: int) -> "MemoryReservation":
        if self._is_closed:
            raise HostError("the ledger was closed", where=_PLACE)
        return MemoryReservation()

    def close(self) -> None:
        self._is_closed = True

    def _verify_usable(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._is_poisoned:
            raise HostError("the disk failed to store ledger entries", where=_PLACE)


class MemoryReservation:
    def release(self) -> None:
        """Do nothing: memory is not reserved."""
