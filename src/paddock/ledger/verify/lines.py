"""Every line parsed and compared: what is wrong with a ledger, and where.

Slow, and exact: it is what names the fault and its place, where something was seen
not to be right.
"""

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.genesis import Genesis, parse_genesis
from paddock.ledger.format.lines import BadLine, LineFault, StoredEntry, inspect_line
from paddock.ledger.head import Mark
from paddock.ledger.ports import Head
from paddock.ledger.reading import LedgerReader
from paddock.ledger.verify.results import ChainFault, Problem, Unanswered
from paddock.values.entries import GENESIS, TOOL_INTENT, TOOL_RESULT


def check_lines(reader: LedgerReader, marks: list[Mark]) -> "LineCheck":
    """Look at every line of every file. Raises: HostError."""
    check = LineCheck(marks)
    for segment in reader.segments():
        check.enter(segment.start)
        for offset, line, has_end in reader.lines(segment):
            if has_end or not segment.is_newest:
                check.take(offset, line)
            else:
                check.take_unfinished(offset, segment.end - offset)
        check.leave(segment.end)
    check.finish()
    return check


class LineCheck:
    """One pass over a ledger, every line parsed."""

    def __init__(self, marks: list[Mark]) -> None:
        self._marks = marks
        self._line = 0
        self.lines = 0
        """Whole lines, whatever they hold."""
        self._seq = 0
        self._prev: str | None = PREV_OF_GENESIS
        self._before = 0
        self._end = 0
        self._head_problem: Problem | None = None
        self.entries = 0
        self.head: Head | None = None
        self.genesis: Genesis | None = None
        self.problems: list[Problem] = []
        self.problems_omitted = 0
        self.intents: dict[tuple[str, str, str], list[Unanswered]] = {}
        self.torn_bytes = 0

    def enter(self, start: int) -> None:
        """Begin with the next file, whose name says where it begins."""
        if start == self._end:
            return
        self._line += 1
        # Threat: a file that was taken out, or changed in length, moves no line of the next one.
        lost = (
            f"a file of the ledger begins at byte {start}, and the one before ends at {self._end}"
        )
        self._report(ChainFault.SEGMENT, self._end, lost)
        self._line -= 1

    def leave(self, end: int) -> None:
        self._end = end

    def take(self, offset: int, line: bytes) -> None:
        """Look at the next whole line."""
        self._line += 1
        self.lines += 1
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

    def unanswered(self) -> tuple[Unanswered, ...]:
        """The intents without a result, in their order."""
        found = [intent for open_ in self.intents.values() for intent in open_]
        return tuple(sorted(found, key=_seq))

    def finish(self) -> None:
        """Judge the ledger as a whole."""
        size = self._end
        if self._line == 0:
            self._report(ChainFault.GENESIS, 0, "there is no first line")
        if self.problems:
            return
        if self._head_problem is not None:
            self.problems.append(self._head_problem)
        elif self._marks:
            mark = self._marks[-1]
            if self.entries < mark.entries:
                self._line += 1
                lost = f"{mark.entries} entries were written, {self.entries} are here"
                self._report(ChainFault.CUT, size, f"the end is missing: {lost}")
            else:
                # The line is there, with another length.
                self._note(
                    Problem(
                        ChainFault.HEAD,
                        mark.entries,
                        mark.entries - 1,
                        self._before if mark.entries == self.entries else mark.offset_bytes,
                        "the line does not end where the head file recorded it",
                    )
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


def _seq(intent: Unanswered) -> int:
    return intent.seq
