"""The quick pass over a ledger: each line hashed and its link compared, none parsed.

It says only whether all is in order. A line whose link fits is the line that was
written; where one does not fit, `verify_lines` finds out what happened. On the way
it takes what checkpoints are compared with: the tree's root at the sizes wanted.

Also here:

- Every line parsed and compared: what is wrong with a ledger, and where.
"""

from binascii import hexlify
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.lines import (
    BadLine,
    Genesis,
    LineFault,
    StoredEntry,
    inspect_line,
    parse_genesis,
)
from paddock.ledger.format.merkle import Growing
from paddock.ledger.head import Mark
from paddock.ledger.ports import Head
from paddock.ledger.read import LINE_OPENING, LedgerReader, whole_lines
from paddock.ledger.verify.results import ChainFault, LedgerProblem, Remembered, Unanswered
from paddock.values.entries import GENESIS, TOOL_INTENT, TOOL_RESULT

_LEAF: Final = sha256(b"\0")
_EVENT_AT: Final = len(
    '{"id":"LED-00000000000000000000000000000000",'
    '"timestamp":"1970-01-01T00:00:00.000000Z","event_type":"'
)
"""What stands before an event's name has one length in every line."""
_KIND_CHARS: Final = 12
_INTENT: Final = f'{TOOL_INTENT}",'[:_KIND_CHARS].encode()
_RESULT: Final = f'{TOOL_RESULT}",'[:_KIND_CHARS].encode()
_GENESIS: Final = f'{GENESIS}","submission_id"'[:_KIND_CHARS].encode()
_EVENT_END: Final = _EVENT_AT + _KIND_CHARS
_CALLER: Final = b',"session_id":'
_METADATA: Final = b',"metadata":{'

_Open = tuple[int, bytes, "_Open | None"]
"""An intent without a result: its number, its line, and an earlier one of the same call."""


class HashPass:
    """The state of one pass. `is_sound` turns false with the first thing that does not fit."""

    def __init__(self, wanted: Iterable[int], since: Remembered | None = None) -> None:
        """`wanted` are the sizes whose roots are asked for; `since` where to begin."""
        self.is_sound = True
        self.size = 0
        self.offset = 0
        self.leaf = PREV_OF_GENESIS
        self.growing = Growing()
        self.roots: dict[int, bytes] = {}
        self.places: dict[int, tuple[int, str]] = {}
        """Of the sizes wanted: where their last line ends, and its hash."""
        self._intents: dict[bytes, _Open] = {}
        """By the bytes that name session, agent and call."""
        self._unread: list[Unanswered] = []
        """Intents of files that are not read again."""
        if since is not None:
            self._resume(since)
        self._stops = sorted({size for size in wanted if size > self.size}, reverse=True)

    def run(self, reader: LedgerReader, end: int) -> None:
        """Go on to `end`, where a line ends. Raises: HostError."""
        try:
            for offset, lines in whole_lines(reader, self.offset, end):
                self._take(offset, lines)
                if not self.is_sound:
                    return
        except LedgerDamagedError:
            # A file that is missing or too short: where, the other pass says.
            self.is_sound = False
            return
        self.is_sound = self.offset == end and self.size > 0

    def agrees_with(self, mark: Mark) -> bool:
        """Whether the ledger is what the head file recorded for that place."""
        place = self.places.get(mark.entries)
        return place == (mark.offset_bytes, mark.leaf)

    def unanswered(self) -> tuple[Unanswered, ...]:
        """The intents without a result, in their order."""
        found = list(self._unread)
        for newest in self._intents.values():
            open_: _Open | None = newest
            while open_ is not None:
                seq, line, open_ = open_
                row = inspect_line(line)
                if isinstance(row, BadLine):
                    continue
                entry = row.entry
                tool = entry.metadata.get("tool", "")
                shown = tool if isinstance(tool, str) else ""
                found.append(Unanswered(seq, entry.session_id, entry.agent, entry.call_id, shown))
        return tuple(sorted(found, key=_seq))

    def _resume(self, since: Remembered) -> None:
        hashes = [bytes.fromhex(each) for each in since.edge]
        growing = Growing.from_hashes(since.size, hashes)
        if growing is None:
            return
        self.growing, self.size = growing, since.size
        self.offset, self.leaf = since.offset_bytes, since.leaf
        self._unread = list(since.intents)
        # A checkpoint may end just where reading begins.
        self._note_place()

    def _note_place(self) -> None:
        """Note the tree's root, and where the last line ends, at this size."""
        self.roots[self.size] = self.growing.root()
        self.places[self.size] = (self.offset, self.leaf)

    def _take(self, offset: int, lines: list[bytes]) -> None:
        """Compare a run of lines, stopping at the sizes that are wanted."""
        begin = 0
        while self._stops and self._stops[-1] <= self.size + len(lines) - begin:
            stop = begin + self._stops.pop() - self.size
            part = lines[begin:stop]
            offset = self._take_part(offset, part)
            if not self.is_sound:
                return
            self._note_place()
            begin = stop
        self._take_part(offset, lines[begin:] if begin else lines)

    def _take_part(self, offset: int, lines: list[bytes]) -> int:
        """Compare links, and add the leaves to the tree; where the lines end."""
        # A million lines come through here: names that are local, no call that can be saved.
        seq, prev, new_digest = self.size, self.leaf.encode(), _LEAF.copy
        leaves: list[bytes] = []
        waiting: tuple[int, bytes] | None = None
        place_at, next_width = _place(seq)
        for line in lines:
            if seq == next_width:
                place_at, next_width = _place(seq)
            # The fixed end, in two parts: `,"seq":N,"prev":"` and `H"}`.
            if (
                line[-66:] != prev + b'"}'
                or line[place_at:-66] != b',"seq":%d,"prev":"' % seq
                or not line.startswith(LINE_OPENING)
            ):
                self.is_sound = False
                return offset
            digest = new_digest()
            digest.update(line)
            leaf = digest.digest()
            leaves.append(leaf)
            prev = hexlify(leaf)
            kind = line[_EVENT_AT:_EVENT_END]
            if kind == _INTENT:
                if waiting is not None:
                    self._open(*waiting)
                waiting = (seq, line)
            elif kind == _RESULT:
                # Mostly it is the result of the intent right before.
                if waiting is None or _caller(waiting[1]) not in line:
                    self._close(line)
                else:
                    waiting = None
            elif kind == _GENESIS and seq:
                self.is_sound = False
                return offset
            seq += 1
        if waiting is not None:
            self._open(*waiting)
        self.growing.extend(leaves)
        self.size, self.leaf = seq, prev.decode()
        self.offset = offset + sum(map(len, lines)) + len(lines)
        return self.offset

    def _open(self, seq: int, line: bytes) -> None:
        caller = _caller(line)
        self._intents[caller] = (seq, line, self._intents.get(caller))

    def _close(self, line: bytes) -> None:
        """Take away the newest intent that a result belongs to."""
        caller = _caller(line)
        if caller in self._intents:
            before = self._intents.pop(caller)[2]
            if before is not None:
                self._intents[caller] = before
        elif self._unread:
            self._answer(line)

    def _answer(self, line: bytes) -> None:
        """A result may be that of an intent which stands in a file that was not read again."""
        row = inspect_line(line)
        if isinstance(row, BadLine):
            return
        entry = row.entry
        key = (entry.session_id, entry.agent, entry.call_id)
        for at in range(len(self._unread) - 1, -1, -1):
            each = self._unread[at]
            if (each.session_id, each.agent, each.call_id) == key:
                del self._unread[at]
                return


def _caller(line: bytes) -> bytes:
    """The bytes that name session, agent and call.

    No text inside a line can hold what they begin and end with: there a quote is escaped.
    """
    begin = line.find(_CALLER, _EVENT_AT)
    return line[begin : line.find(_METADATA, begin) + len(_METADATA)]


def _place(seq: int) -> tuple[int, int]:
    """Where `,"seq":` begins from a line's end, and from which number on it is elsewhere."""
    digits = len(str(seq))
    return -(len(',"seq":,"prev":"') + digits + len('"}') + 64), 10**digits


def _seq(intent: Unanswered) -> int:
    return intent.seq


# Slow, and exact: it is what names the fault and its place, where something was seen
# not to be right.


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
        self._head_problem: LedgerProblem | None = None
        self.entries = 0
        self.head: Head | None = None
        self.genesis: Genesis | None = None
        self.problems: list[LedgerProblem] = []
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
                    LedgerProblem(
                        ChainFault.HEAD,
                        mark.entries,
                        mark.entries - 1,
                        self._before if mark.entries == self.entries else mark.offset_bytes,
                        "the line does not end where the head file recorded it",
                    )
                )

    def _place(self, offset: int, stored: StoredEntry) -> None:
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
                self._head_problem = LedgerProblem(
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
            LedgerProblem(
                ChainFault.CHANGED,
                self._line - 1,
                stored.seq - 1,
                self._before,
                f"not the line that entry {stored.seq} was chained to",
            )
        )

    def _report(self, kind: LineFault | ChainFault, offset: int, detail: str) -> None:
        self._note(LedgerProblem(kind, self._line, self._seq, offset, detail))

    def _note(self, problem: LedgerProblem) -> None:
        if len(self.problems) < limits.ledger_problems_listed_max:
            self.problems.append(problem)
        else:
            self.problems_omitted += 1
