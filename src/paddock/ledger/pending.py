"""Entries between the write and the disk."""

from typing import Protocol

from paddock.ledger.head import Mark
from paddock.ledger.ports import Head, Receipt
from paddock.ledger.segments import Segment
from paddock.values.quick import quick


class Committing(Protocol):
    """What makes entries durable: the ledger that they were written to."""

    def commit(self, mark: Mark, segment: Segment) -> None:
        """Return when all before the mark is durable, and its segment is in its place now."""
        ...

    def commit_at_once(self, mark: Mark, segment: Segment) -> None:
        """As `commit`, right after the write: whoever leads has looked since then."""
        ...


class PendingEntries:
    """Entries that are written, in order, and not yet safe from a power cut."""

    __slots__ = ("_after", "_ids", "_ledger", "_segment")

    def __init__(
        self, ledger: Committing, ids: tuple[str, ...], after: Mark, segment: Segment
    ) -> None:
        self._ledger: Committing | None = ledger
        """None as soon as the entries are durable."""
        self._ids = ids
        self._after = after
        self._segment = segment

    @property
    def receipt(self) -> Receipt:
        after = self._after
        head = quick(Head, (after.entries - 1, after.leaf))
        return quick(Receipt, (after.entries - len(self._ids), self._ids, head))

    def wait(self) -> Receipt:
        """Return when the entries are durable. See `ports.Pending`."""
        ledger = self._ledger
        if ledger is not None:
            ledger.commit(self._after, self._segment)
            self._ledger = None
        return self.receipt

    def wait_at_once(self) -> Receipt:
        """As `wait`, for whoever has just written."""
        ledger = self._ledger
        if ledger is not None:
            ledger.commit_at_once(self._after, self._segment)
            self._ledger = None
        return self.receipt
