"""Verifying a whole ledger: every line, every link, and where it stops being true.

What is found here needs no key: an edit, a deletion, an insertion, a swap,
another encoding of the same values, a key given twice, bytes that are no entry.
What needs a checkpoint that is held elsewhere, and is said so: a ledger that
was cut, restored or chained anew as a whole.

One pass, one line in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format import PREV_OF_GENESIS
from paddock.ledger.format_events import GENESIS, TOOL_INTENT, TOOL_RESULT
from paddock.ledger.format_genesis import Genesis, parse_genesis
from paddock.ledger.format_lines import BadLine, LineFault, StoredEntry, inspect_line
from paddock.ledger.head import HeadPage, Mark
from paddock.ledger.ports import Head
from paddock.ledger.reading import LedgerReader

_CHUNK: Final = 1 << 20


class ChainFault(StrEnum):
    """What is wrong with a line's place, or with the file as a whole."""

    GENESIS = "genesis"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    CHANGED = "changed"
    CUT = "cut"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written.

    `line` counts from 1, `offset_bytes` is where that line begins, `seq` the
    sequence number that belongs there.
    """

    kind: LineFault | ChainFault
    line: int
    seq: int
    offset_bytes: int
    detail: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A TOOL_INTENT without its TOOL_RESULT: the outcome is unknown, or the call still runs."""

    seq: int
    session_id: str
    agent: str
    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What verification found.

    `torn_bytes` follow the last whole line: an append on its way, or a torn one
    that the next append puts aside. `covered_entries` are those below the newest
    exported checkpoint that was compared: none, as yet.
    """

    path: str
    entries: int
    head: Head | None
    genesis: Genesis | None
    problems: tuple[Problem, ...]
    problems_omitted: int
    unanswered: tuple[Unanswered, ...]
    torn_bytes: int
    covered_entries: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found. What no checkpoint covers could still be cut or made anew."""
        return not self.problems

    @property
    def uncovered(self) -> str:
        """The window that no checkpoint covers, in words; empty where there is none."""
        if self.covered_entries >= self.entries:
            return ""
        return (
            f"entries {self.covered_entries} to {self.entries - 1} are covered by no exported "
            "checkpoint: they could have been cut off or written anew"
        )


def verify(path: str) -> Verification:
    """Read the whole ledger and say what is wrong with it, and where.

    What the head file says is compared only where the lines by themselves are
    whole; a ledger without its head file is judged by its lines alone.

    Raises:
        HostError: there is no ledger, it cannot be read, or its format is not
            known. Nothing that stands in the file raises anything else.
    """
    with LedgerReader(path) as reader:
        marks = reader.marks()
        size = reader.size()
        check = _Check(_believable(marks, reader.boot()))
        for offset, line, has_end in _lines(reader, size):
            if has_end:
                check.take(offset, line)
            else:
                check.take_unfinished(offset, size - offset)
        check.finish(size)
    return Verification(
        path=path,
        entries=check.entries,
        head=check.head,
        genesis=check.genesis,
        problems=tuple(check.problems),
        problems_omitted=check.problems_omitted,
        unanswered=tuple(
            sorted((intent for open_ in check.intents.values() for intent in open_), key=_seq)
        ),
        torn_bytes=check.torn_bytes,
    )


def _believable(marks: HeadPage | None, boot: bytes) -> list[Mark]:
    """The marks that the ledger must agree with; none without a head file."""
    return [] if marks is None else marks.believable(boot)


def _seq(intent: Unanswered) -> int:
    return intent.seq


def _lines(reader: LedgerReader, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Offsets and lines in order, without LF, and whether an LF follows.

    Of a line longer than any can be, as much as shows that.
    """
    longest = limits.entry_bytes_max + 1
    carry, start, position = b"", 0, 0
    while position < size:
        chunk = reader.read(min(_CHUNK, size - position), position)
        if not chunk:
            break
        position += len(chunk)
        first, *others = chunk.split(b"\n")
        if len(carry) < longest:
            carry += first
        if not others:
            continue
        yield start, carry[:longest], True
        start = position - len(chunk) + len(first) + 1
        carry = others.pop()
        for line in others:
            yield start, line, True
            start += len(line) + 1
    if start < size:
        yield start, carry[:longest], False


class _Check:
    """The state of one pass."""

    def __init__(self, marks: list[Mark]) -> None:
        self._marks = marks
        self._line = 0
        self._seq = 0
        self._prev: str | None = PREV_OF_GENESIS
        self._before = 0
        self._head_problem: Problem | None = None
        self.entries = 0
        self.head: Head | None = None
        self.genesis: Genesis | None = None
        self.problems: list[Problem] = []
        self.problems_omitted = 0
        self.intents: dict[tuple[str, str, str], list[Unanswered]] = {}
        self.torn_bytes = 0

    def take(self, offset: int, line: bytes) -> None:
        """Look at the next whole line."""
        self._line += 1
        found = inspect_line(line)
        if isinstance(found, BadLine):
            self._report(found.fault, offset, found.detail)
            # It stands in an entry's place, or between two: the next line tells.
            self._prev = None
        else:
            self._place(offset, found)
            self._content(offset, found)
        self._before = offset
        self._compare_mark(offset, offset + len(line) + 1)

    def take_unfinished(self, offset: int, size_bytes: int) -> None:
        """Look at what follows the last LF."""
        self.torn_bytes = size_bytes
        if self._marks and offset < self._marks[-1].offset_bytes:
            self._line += 1
            self._report(ChainFault.CUT, offset, "the line was written whole and has lost its end")

    def finish(self, size: int) -> None:
        """Judge the file as a whole."""
        if self._line == 0:
            self._report(ChainFault.GENESIS, 0, "there is no first line")
        if self.problems:
            return
        if self._head_problem is not None:
            self.problems.append(self._head_problem)
        elif self._marks:
            mark = self._marks[-1]
            self._line += 1
            if size < mark.offset_bytes:
                lost = f"{mark.entries} entries were written, {self.entries} are here"
                self._report(ChainFault.CUT, size, f"the end is missing: {lost}")
            else:
                self._report(
                    ChainFault.HEAD,
                    mark.offset_bytes,
                    "the head file knows the end of a line where none ends",
                )

    def _place(self, offset: int, stored: StoredEntry) -> None:
        """Compare an entry's place with the one it should have."""
        seq, expected, prev = stored.seq, self._seq, self._prev
        if seq > expected and not (prev is None and seq == expected + 1):
            gone = f"entry {expected} is" if seq == expected + 1 else f"{expected} to {seq - 1} are"
            self._report(ChainFault.MISSING, offset, f"{gone} missing before entry {seq}")
        elif seq < expected:
            self._report(ChainFault.OUT_OF_ORDER, offset, f"entry {seq} where {expected} belongs")
        elif prev is not None and stored.prev != prev:
            self._report_changed(offset, stored)
        self._seq, self._prev = seq + 1, stored.leaf
        self.entries += 1
        self.head = Head(seq, self._prev)

    def _content(self, offset: int, stored: StoredEntry) -> None:
        """Note what an entry says about others."""
        entry = stored.entry
        if self._line == 1:
            try:
                self.genesis = parse_genesis(stored)
            except LedgerDamagedError as fault:
                self._report(ChainFault.GENESIS, offset, fault.message)
        elif entry.event_type == GENESIS:
            self._report(ChainFault.GENESIS, offset, "GENESIS in the middle of a ledger")
        elif entry.event_type == TOOL_INTENT:
            key = (entry.session_id, entry.agent, entry.call_id)
            tool = entry.metadata.get("tool", "")
            self.intents.setdefault(key, []).append(
                Unanswered(stored.seq, *key, tool if isinstance(tool, str) else "")
            )
        elif entry.event_type == TOOL_RESULT:
            key = (entry.session_id, entry.agent, entry.call_id)
            open_ = self.intents.get(key)
            if open_:
                open_.pop()
                if not open_:
                    del self.intents[key]

    def _compare_mark(self, offset: int, end: int) -> None:
        """Compare with what the head file recorded for the end of this line."""
        while self._marks and self._marks[0].offset_bytes == end:
            mark = self._marks.pop(0)
            agrees = (mark.entries, mark.leaf) == (self._seq, self._prev)
            if not agrees and self._head_problem is None:
                self._head_problem = Problem(
                    ChainFault.HEAD,
                    self._line,
                    self._seq - 1,
                    offset,
                    "not the line that the head file recorded",
                )

    def _report_changed(self, offset: int, stored: StoredEntry) -> None:
        """The link to the line before does not fit: that line is not what it was."""
        if self._line == 1:
            self._report(ChainFault.GENESIS, offset, "the first line follows another one")
            return
        self._note(
            Problem(
                ChainFault.CHANGED,
                self._line - 1,
                stored.seq - 1,
                self._before,
                f"not the line that entry {stored.seq} was chained to",
            )
        )

    def _report(self, kind: LineFault | ChainFault, offset: int, detail: str) -> None:
        self._note(Problem(kind, self._line, self._seq, offset, detail))

    def _note(self, problem: Problem) -> None:
        if len(self.problems) < limits.ledger_problems_listed_max:
            self.problems.append(problem)
        else:
            self.problems_omitted += 1
