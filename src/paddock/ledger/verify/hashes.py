"""The quick pass over a ledger: each line hashed and its link compared, none parsed.

It says only whether all is in order. A line whose link fits is the line that was
written; where one does not fit, `verify_lines` finds out what happened. On the way
it takes what checkpoints are compared with: the tree's root at the sizes wanted.
"""

from binascii import hexlify
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from paddock.errors import LedgerDamagedError
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.lines import BadLine, inspect_line
from paddock.ledger.format.merkle import Growing
from paddock.ledger.head import Mark
from paddock.ledger.reading import LedgerReader
from paddock.ledger.scan import LINE_OPENING, whole_lines
from paddock.ledger.verify.results import Remembered, Unanswered
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
