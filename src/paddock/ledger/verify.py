"""Verify a ledger: every line, every link and every checkpoint; report problems and their places.

The chain shows an edit without any key. Checkpoints held elsewhere show a ledger that was cut,
restored or rewritten. A pass hashes every line and parses only lines that no checkpoint covers; if
it finds a mismatch, a second pass parses every line. Files beside the ledger are not trusted: they
can only add problems, except a checkpoint, which counts if its signature is valid.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, encode_text
from paddock.ledger.format.lines import (
    BadLine,
    Genesis,
    Head,
    LineFault,
    StoredEntry,
    VerifierKey,
    fitting_leaves,
    inspect_line,
    parse_genesis,
)
from paddock.ledger.format.notes import Checkpoint, Growing, NoteError, open_note, read_checkpoint
from paddock.ledger.read import LedgerReader, believable_marks
from paddock.ledger.tail import read_boot
from paddock.ledger.tree import checkpoints_folder, find_departure, read_notes
from paddock.values.entries import GENESIS, TOOL_INTENT, TOOL_RESULT

if TYPE_CHECKING:
    from paddock.ledger.tail import Mark


class ChainFault(StrEnum):
    GENESIS = "genesis"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    CHANGED = "changed"
    CUT = "cut"
    HEAD = "head"
    SEGMENT = "segment"
    CHECKPOINT = "checkpoint"
    ROLLED_BACK = "rolled_back"  # more was signed than is here
    REWRITTEN = "rewritten"  # other entries were signed than are here
    ANCHOR = "anchor"  # checkpoints were signed, but the anchor holds none


class LedgerProblem(Struct, frozen=True):
    """Numbers are 0 if the problem has no place; `line` counts from 1 over all files."""

    kind: LineFault | ChainFault
    line: int
    seq: int
    offset_bytes: int
    detail: str


class Unanswered(Struct, frozen=True):
    """A TOOL_INTENT without its TOOL_RESULT: the outcome is unknown, or the call still runs."""

    seq: int
    session_id: str
    agent: str
    call_id: str
    tool: str


class Held(Struct, frozen=True):
    """`is_outside`: a user who cuts the ledger cannot reach it. `is_authentic`: verified before."""

    source: str
    note: str
    is_outside: bool = True
    is_authentic: bool = False


class Agreement(Struct, frozen=True):
    source: str
    size: int
    is_outside: bool


class Remembered(Struct, frozen=True):
    """Sealed files that were verified: their starts, sizes, inodes and times."""

    files: tuple[tuple[int, ...], ...]
    size: int
    offset_bytes: int
    leaf: str
    edge: tuple[str, ...]
    intents: tuple[Unanswered, ...]


class Verification(Struct, frozen=True):
    path: str
    entries: int
    head: Head | None
    genesis: Genesis | None
    problems: tuple[LedgerProblem, ...]
    problems_omitted: int
    unanswered: tuple[Unanswered, ...]
    torn_bytes: int
    covered_entries: int = 0
    agreements: tuple[Agreement, ...] = ()
    unread_entries: int = 0
    memory: Remembered | None = None

    @property
    def is_whole(self) -> bool:
        return not self.problems

    @property
    def uncovered(self) -> str:
        which = f"entries {self.covered_entries} to {self.entries - 1}"
        said = "are covered by no exported checkpoint: they could have been cut off or rewritten"
        return f"{which} {said}" if self.covered_entries < self.entries else ""


def verify(
    path: str,
    *,
    held: Sequence[Held] = (),
    since: Remembered | None = None,
    parse_all: bool = False,
) -> Verification:
    """Return the ledger's problems and their places.

    `held` are checkpoints from elsewhere. Files unchanged since `since` are not read again.
    `parse_all` parses every line, which takes about ten times as long.

    Raises: HostError: the ledger cannot be read, or its format is unknown; ConfigError: a
    checkpoint beside it cannot be read. Damage is reported, never raised.
    """
    with LedgerReader(path) as reader:
        marks = believable_marks(reader.marks(), read_boot())
        beside = read_notes(checkpoints_folder(path))
        kept = [Held(f"checkpoints/{name}", note, is_outside=False) for name, note in beside]
        opened: list[_Opened] = []
        try:
            key = VerifierKey.parse(reader.genesis().public_key)
            opened = [_open(each, key) for each in (*kept, *held)]
        except LedgerDamagedError:
            since = None  # the pass over the lines reports the problem of line 0
        outside = max((each.size for each in opened if each.held.is_outside), default=0)
        if since is not None and (
            outside < since.size or since.files != reader.touched(len(since.files))
        ):
            since = None  # a file changed, or no outside checkpoint covers all unread lines
        parsed_from = 0 if parse_all else max((each.size for each in opened), default=0)
        found = _Pass(reader, marks, opened, since, parsed_from)
        if not found.run():
            found = _Pass(reader, marks, opened, None, 0)
            found.run()
        return found.result()


_EVENT_AT: Final = len(
    '{"id":"LED-00000000000000000000000000000000",'
    '"timestamp":"1970-01-01T00:00:00.000000Z","event_type":"'
)
"""The text before an event's name has the same length in every line."""
_KIND_CHARS: Final = 12
_INTENT: Final = f'{TOOL_INTENT}",'[:_KIND_CHARS].encode()
_RESULT: Final = f'{TOOL_RESULT}",'[:_KIND_CHARS].encode()
_GENESIS: Final = f'{GENESIS}","submission_id"'[:_KIND_CHARS].encode()
_CHECKED_KINDS: Final = frozenset({_INTENT, _RESULT, _GENESIS})
_EVENT_END: Final = _EVENT_AT + _KIND_CHARS
_CALLER: Final = b',"session_id":'
_METADATA: Final = b',"metadata":{'


class _Pass:
    """One pass over the lines. Lines below `parsed_from` are hashed but not parsed."""

    def __init__(
        self,
        reader: LedgerReader,
        marks: "Sequence[Mark]",
        opened: "Sequence[_Opened]",
        since: Remembered | None,
        parsed_from: int,
    ) -> None:
        self._reader, self._opened, self._parsed_from = reader, opened, parsed_from
        self.is_sound = True
        self._lines = self._seq = self._entries = 0
        self._before = self._offset = 0  # where the last line began, and where the next one begins
        self._prev: str = PREV_OF_GENESIS
        """Empty after a bad line; the next `seq` shows whether that line replaced an entry."""
        self._head: Head | None = None
        self._genesis: Genesis | None = None
        self._problems: list[LedgerProblem] = []
        self._torn_bytes = self._omitted = 0
        self._growing = Growing()
        self._roots: dict[int, bytes] = {}
        self._places: dict[int, tuple[int, int, str]] = {}
        """By wanted size: where the last line begins and ends, and its hash."""
        self._intents: dict[bytes, list[bytes | Unanswered]] = {}
        """Lines of intents without a result, by the bytes that name the call."""
        self._memory: Remembered | None = None
        self._since = since if since is not None and self._resume(since) else None
        known = self._seq
        self._marks = [mark for mark in marks if mark.entries > known]
        wanted = {*(each.size for each in opened), *(mark.entries for mark in self._marks)}
        self._stops = sorted((size for size in wanted if size > known), reverse=True)

    def run(self) -> bool:
        """Return False if the result is not reliable and another pass must parse every line."""
        is_exact = self._since is None and not self._parsed_from
        known = len(self._since.files) if self._since else 0
        for start, end, runs in islice(self._reader.files(), known, None):
            is_newest = start == self._reader.active.base
            if is_newest:
                self._memory = self._remember()
            if start != self._offset:
                # Threat: removing a file, or changing its length, moves no line of the next one.
                ends = f"and the one before ends at {self._offset}"
                lost = f"a file of the ledger begins at byte {start}, {ends}"
                self._report(ChainFault.SEGMENT, self._lines + 1, self._offset, lost)
            for offset, lines, has_end in runs:
                if not has_end and is_newest:
                    self._note_unfinished(offset, end - offset)
                else:
                    self._process(offset, lines, is_exact=is_exact)
                if not self.is_sound and not is_exact:
                    return False
            self._offset = end - self._torn_bytes
        if self._lines == 0:
            self._report(ChainFault.GENESIS, 0, 0, "the ledger has no first line")
        if self.is_sound:
            self._compare_marks()
        covered = max((each.size for each in self._agreements()), default=0)
        return is_exact or (self.is_sound and self._parsed_from <= covered)

    def result(self) -> Verification:
        problems = (*self._problems, *self._differences())
        agreements = self._agreements()
        return Verification(
            path=self._reader.path,
            entries=self._entries,
            head=self._head,
            genesis=self._genesis,
            problems=problems,
            problems_omitted=self._omitted,
            unanswered=self._unanswered(),
            torn_bytes=self._torn_bytes,
            covered_entries=max((each.size for each in agreements if each.is_outside), default=0),
            agreements=tuple(agreements),
            unread_entries=self._since.size if self._since else 0,
            memory=None if problems else self._memory,
        )

    def _resume(self, since: Remembered) -> bool:
        growing = Growing.from_hashes(since.size, [bytes.fromhex(each) for each in since.edge])
        if growing is None:
            return False
        self._growing, self._offset, self._prev = growing, since.offset_bytes, since.leaf
        self._lines = self._seq = self._entries = since.size
        self._head, self._genesis = Head(since.size - 1, since.leaf), self._reader.genesis()
        for each in since.intents:
            names = map(encode_text, (each.session_id, each.agent, each.call_id))
            caller = b',"session_id":%b,"agent":%b,"call_id":%b,"metadata":{' % tuple(names)
            self._intents.setdefault(caller, []).append(each)
        self._note_place()  # a checkpoint may end exactly where reading begins
        return True

    def _remember(self) -> Remembered | None:
        sealed = len(self._reader.starts) - 1
        if not self.is_sound or not sealed:
            return None
        files, edge = self._reader.touched(sealed), [each.hex() for each in self._growing.hashes()]
        place = (self._seq, self._offset, self._prev)
        return Remembered(files, *place, tuple(edge), self._unanswered())

    def _process(self, offset: int, lines: list[bytes], *, is_exact: bool) -> None:
        self._offset = offset
        at = 0
        while at < len(lines):
            stop = min(len(lines), at + self._stops[-1] - self._seq) if self._stops else len(lines)
            may_fit = bool(self._lines and self._prev)
            if may_fit:
                at += self._process_fitting(lines[at:stop])
            if at < stop:
                if may_fit and not is_exact:
                    self.is_sound = False
                    return
                self._inspect(lines[at])
                at += 1
                if may_fit and self.is_sound:
                    # `fitting_leaves` stopped here: report it even if parsing finds nothing.
                    doubt = "the line's place does not fit, by its hash"
                    self._report(ChainFault.CHANGED, self._lines, self._before, doubt)
            if self._stops and self._seq == self._stops[-1]:
                self._stops.pop()
                self._note_place()

    def _note_place(self) -> None:
        self._roots[self._seq] = self._growing.root()
        self._places[self._seq] = (self._before, self._offset, self._prev)

    def _process_fitting(self, lines: list[bytes]) -> int:
        leaves = fitting_leaves(lines, self._seq, self._prev, self._parsed_from)
        for number, line in enumerate(lines[: len(leaves)]):
            kind = line[_EVENT_AT:_EVENT_END]
            if kind in _CHECKED_KINDS:
                if kind == _GENESIS:
                    del leaves[number:]
                    break
                self._note_call(line, kind)
        count = len(leaves)
        if count:
            self._growing.extend(leaves)
            self._lines, self._entries = self._lines + count, self._entries + count
            self._seq, self._prev = self._seq + count, leaves[-1].hex()
            self._head = Head(self._seq - 1, self._prev)
            self._offset += sum(map(len, lines[:count])) + count
            self._before = self._offset - len(lines[count - 1]) - 1
        return count

    def _inspect(self, line: bytes) -> None:
        self._lines += 1
        offset = self._offset
        found = inspect_line(line)
        if isinstance(found, BadLine):
            self._report(found.fault, self._lines, offset, found.detail)
            # The next line shows whether this one replaced an entry or was inserted.
            self._prev = ""
        else:
            self._compare_place(offset, found)
            self._compare_content(offset, found)
            self._growing.extend([bytes.fromhex(self._prev)])
        self._before, self._offset = offset, offset + len(line) + 1

    def _note_unfinished(self, offset: int, size_bytes: int) -> None:
        self._torn_bytes = size_bytes
        if self._marks and offset < self._marks[-1].offset_bytes:
            lost = "the line was written whole and has lost its end"
            self._report(ChainFault.CUT, self._lines + 1, offset, lost)

    def _compare_place(self, offset: int, stored: StoredEntry) -> None:
        line, seq, expected, prev = self._lines, stored.seq, self._seq, self._prev
        if seq > expected and (prev or seq != expected + 1):
            gone = f"entry {expected} is" if seq == expected + 1 else f"{expected} to {seq - 1} are"
            lost = f"{gone} missing before entry {seq}"
            self._report(ChainFault.MISSING, line, offset, lost)
        elif seq < expected:
            other = f"entry {seq} where {expected} belongs"
            self._report(ChainFault.OUT_OF_ORDER, line, offset, other)
        elif prev and stored.prev != prev:
            if line == 1:
                self._report(ChainFault.GENESIS, 1, offset, "the first line follows another one")
            else:
                # The line before this one was changed.
                self._seq = seq - 1
                other = f"not the line that entry {seq} was chained to"
                self._report(ChainFault.CHANGED, line - 1, self._before, other)
        self._seq, self._prev = seq + 1, stored.leaf
        self._entries += 1
        self._head = Head(seq, self._prev)

    def _compare_content(self, offset: int, stored: StoredEntry) -> None:
        kind = stored.line[_EVENT_AT:_EVENT_END]
        try:
            if self._lines == 1:
                self._genesis = parse_genesis(stored)
            elif kind == _GENESIS:
                raise LedgerDamagedError("GENESIS in the middle of a ledger")
            elif kind in _CHECKED_KINDS:
                self._note_call(stored.line, kind)
        except LedgerDamagedError as fault:
            self._report(ChainFault.GENESIS, self._lines, offset, fault.message)

    def _compare_marks(self) -> None:
        for mark in self._marks:
            begin, end, leaf = self._places.get(mark.entries, (0, 0, ""))
            if not end:
                most = self._marks[-1].entries
                lost = f"the end is missing: {most} entries were written, {self._entries} are here"
                self._report(ChainFault.CUT, self._lines + 1, self._offset, lost)
            elif (end, leaf) != (mark.offset_bytes, mark.leaf):
                other = "not the line that the head file recorded"
                if end != mark.offset_bytes:
                    other = "the line does not end where the head file recorded it"
                self._seq = mark.entries - 1
                self._report(ChainFault.HEAD, mark.entries, begin, other)
            if not self.is_sound:
                return

    def _report(self, kind: LineFault | ChainFault, line: int, offset: int, detail: str) -> None:
        self.is_sound = False
        self._stops.clear()
        if len(self._problems) < limits.ledger_problems_listed_max:
            self._problems.append(LedgerProblem(kind, line, self._seq, offset, detail))
        else:
            self._omitted += 1

    def _note_call(self, line: bytes, kind: bytes) -> None:
        # No text inside a line can contain these delimiters: quotes in text are escaped.
        begin = line.find(_CALLER, _EVENT_AT)
        caller = line[begin : line.find(_METADATA, begin) + len(_METADATA)]
        if kind == _INTENT:
            self._intents.setdefault(caller, []).append(line)
        elif caller in self._intents:
            self._intents[caller].pop()
            if not self._intents[caller]:
                del self._intents[caller]

    def _unanswered(self) -> tuple[Unanswered, ...]:
        found: list[Unanswered] = []
        for each in chain.from_iterable(self._intents.values()):
            if isinstance(each, Unanswered):
                found.append(each)
            elif isinstance(row := inspect_line(each), StoredEntry):
                entry, tool = row.entry, row.entry.metadata.get("tool")
                shown = tool if isinstance(tool, str) else ""
                key = (entry.session_id, entry.agent, entry.call_id)
                found.append(Unanswered(row.seq, *key, shown))
        return tuple(sorted(found, key=lambda intent: intent.seq))

    def _agreements(self) -> list[Agreement]:
        return [
            Agreement(each.held.source, each.size, each.held.is_outside)
            for each in self._opened
            if self.is_sound and each.checkpoint is not None
            if self._roots.get(each.size) == each.checkpoint.root
        ]

    def _differences(self) -> list[LedgerProblem]:
        problems: list[LedgerProblem] = []
        differing: list[tuple[int, Checkpoint, str]] = []
        for each in self._opened:
            source, checkpoint, size = each.held.source, each.checkpoint, each.size
            if checkpoint is None:
                said = f"{source}: {each.why}"
                problems.append(LedgerProblem(ChainFault.CHECKPOINT, 0, 0, 0, said))
            elif size > self._lines:
                at, here = self._lines + 1, f"({source}), {self._lines} are here"
                lost = f"the end is missing: {size} entries were signed {here}"
                kind = ChainFault.ROLLED_BACK
                problems.append(LedgerProblem(kind, at, self._lines, self._offset, lost))
            elif self.is_sound and self._roots.get(size, checkpoint.root) != checkpoint.root:
                differing.append((size, checkpoint, source))
        if differing:
            size, checkpoint, source = min(differing, key=lambda each: each[0])
            found, other = find_departure(self._reader, checkpoint), "not the entry that was signed"
            if found is None:
                seq = max((each.size for each in self._agreements() if each.size < size), default=0)
                found = seq, self._places[seq][1] if seq else 0
                other = f"an entry from {seq} to {size - 1} is not what was signed"
            said, kind = f"{other} ({source})", ChainFault.REWRITTEN
            problems.append(LedgerProblem(kind, found[0] + 1, *found, said))
        return problems


class _Opened(Struct, frozen=True):
    held: Held
    checkpoint: Checkpoint | None
    why: str = ""

    @property
    def size(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.size


def _open(held: Held, key: VerifierKey) -> _Opened:
    try:
        if not held.is_authentic:
            return _Opened(held, open_note(held.note, key).checkpoint)
        checkpoint = read_checkpoint(held.note)
        if checkpoint.origin == key.name:
            return _Opened(held, checkpoint)
        return _Opened(held, None, f"a checkpoint of {checkpoint.origin!a}, not of {key.name!a}")
    except NoteError as fault:
        return _Opened(held, None, fault.message)
