"""Ledgers for tests: a clock and ids that are the same in every run, and what has to hold after."""

import itertools
import os
from collections.abc import Callable, Sequence

from paddock import limits
from paddock.ledger import tail
from paddock.ledger.append import LedgerFile, Receipt
from paddock.ledger.format.lines import Genesis, VerifierKey
from paddock.ledger.query import Filter, query
from paddock.ledger.read import read_head
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import Verification, verify
from paddock.storage.disk import Disk
from paddock.values.entries import Entry

GENESIS = Genesis("paddock.test/ledger", "HOT", str(VerifierKey("paddock.test/ledger", bytes(32))))
QUICK = 0.05
INTENT = Entry(
    "TOOL_INTENT",
    decision="allow",
    session_id="SES-1",
    agent="main",
    call_id="call-1",
    metadata={"tool": "view_file", "arguments": {"path": "a.txt"}, "actions": [], "agents": []},
)
RESULT = Entry(
    "TOOL_RESULT",
    session_id="SES-1",
    agent="main",
    call_id="call-1",
    metadata={"status": "ok", "bytes": 12},
)


def no_time() -> float:
    """1970-01-01."""
    return 0.0


def counting_ids() -> Callable[[int], bytes]:
    """Bytes that differ from call to call."""
    count = itertools.count(1)

    def randomness(size: int) -> bytes:
        return b"".join(next(count).to_bytes(16, "big") for _ in range(size // 16))

    return randomness


class Pending:
    """An append that is left between the write and the sync."""

    def __init__(self, ledger: LedgerFile, entries: Sequence[Entry], **options: object) -> None:
        self._ledger, self._entries = ledger, entries
        self.receipt, *self._written = ledger.write(entries, **options)

    def wait(self) -> Receipt:
        """As `LedgerFile.append` goes on."""
        self._ledger.commit(*self._written)
        if self._ledger.keeper is not None:
            self._ledger.keeper.appended(self.receipt.head, self._entries)
        return self.receipt


def is_poisoned(path: str, boot: bytes | None = None) -> bool:
    """Whether the ledger's head file says that the disk has failed since this boot."""
    return tail.is_poisoned(read_head(LedgerPaths(path).head).durable, boot or tail.read_boot())


def changed(mark: tail.Mark, **values: object) -> tail.Mark:
    """A mark like this one, but for these values."""
    return tail.Mark(**{name: getattr(mark, name) for name in tail.Mark.__slots__} | values)


class Poll:
    """What a reader that follows a ledger asks: does one thing at each idle moment, then ends."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self._acts = list(acts)

    def __call__(self) -> bool:
        if not self._acts:
            return False
        self._acts.pop(0)()
        return True


def open_ledger(
    path: str | os.PathLike[str],
    *,
    create: Genesis | None = GENESIS,
    disk: Disk | None = None,
    lock_timeout_s: float = limits.ledger_lock_timeout_s,
    randomness: Callable[[int], bytes] = os.urandom,
    clock: Callable[[], float] = no_time,
    segment_bytes: int = limits.ledger_segment_bytes,
) -> LedgerFile:
    """The ledger at a path, made if there is none; closed after the test."""
    ledger = LedgerFile(
        os.fspath(path),
        create=create,
        clock=clock,
        randomness=randomness,
        disk=disk,
        lock_timeout_s=lock_timeout_s,
        segment_bytes=segment_bytes,
        boot=getattr(disk, "boot", None),
    )
    _opened.append(ledger)
    return ledger


_opened: list[LedgerFile] = []


def close_opened() -> None:
    """Close every ledger that `open_ledger` has opened: a worker has so many descriptors."""
    while _opened:
        _opened.pop().close()


def note(text: str, size: int = 0) -> Entry:
    """An entry that is known by its reason."""
    return Entry("NOTE", reason=text, metadata={"filling": "x" * size} if size else {})


def reasons(path: str | os.PathLike[str]) -> list[str]:
    """The reasons of all NOTE entries, in order."""
    rows = query(os.fspath(path), Filter(event_type="NOTE"))
    assert rows.bad == ()
    return [row.entry.reason for row in rows.entries]


def assert_holds(path: str | os.PathLike[str], acknowledged: Sequence[str]) -> Verification:
    """Every line verifies, and every acknowledged note is there once, in order."""
    found = verify(os.fspath(path))
    assert found.problems == ()
    wanted = set(acknowledged)
    assert [reason for reason in reasons(path) if reason in wanted] == list(acknowledged)
    return found
