"""The bytes of posting files: which lines of a range of a ledger hold a value. Pure.

A run is a range of whole lines within one segment. It has one file of each kind, all
with the same name and the same header but for the counts:

    offsets       where each line begins, counted from the run's first byte
    by-time       of each 1024 lines the earliest and the latest timestamp
    by-type, by-session, by-call, by-agent, by-decision
                  the CRC-32 of each value in order; where its lines begin in the
                  third part, and one number more; the numbers of its lines in order

The header is bound to the ledger by the leaf hash of the run's last line, and so
to every line before that. Two values with one CRC share a list: whoever finds a line
here looks at the line. The format is described in docs/formats/ledger.md.
"""

import re
import struct
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Final
from zlib import crc32

_MAGIC: Final = b"pdkpost1"
# magic, kind, lines, keys, rows, start, end, first seq, leaf of the last line
_HEADER: Final = struct.Struct("<8sIIIIQQQ32s")
HEADER_BYTES: Final = 128
"""With its CRC-32 right after it, and zeros up to here."""
_CRC: Final = struct.Struct("<I")
NUMBER_BYTES: Final = 4
BLOCK_LINES: Final = 1024
TIMESTAMP_BYTES: Final = 27
RUN_BYTES_MAX: Final = 2**32 - 1

_TEXT: Final = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_GROUP: Final = rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"'
_LINE: Final = re.compile(
    rb'^\{"id":"LED-[0-9a-f]{32}","timestamp":"([^"\\\n]{27})",'
    rb'("event_type":"[A-Z][A-Z0-9_]*","submission_id":'
    + _TEXT
    + rb',"decision":'
    + _TEXT
    + rb',"reason":'
    + _TEXT
    + rb',"session_id":'
    + _TEXT
    + rb',"agent":'
    + _TEXT
    + rb'),"call_id":'
    + _GROUP
    + rb',"metadata":\{.*"\}\n',
    re.MULTILINE,
)
_HEAD: Final = re.compile(
    rb'"event_type":"([A-Z0-9_]+)","submission_id":'
    + _TEXT
    + rb',"decision":'
    + _GROUP
    + rb',"reason":'
    + _TEXT
    + rb',"session_id":'
    + _GROUP
    + rb',"agent":'
    + _GROUP
)
_CLIENT_CALL: Final = b'"client_call":"'
_CLIENT_VALUE: Final = re.compile(rb'([^"\\\n]*(?:\\.[^"\\\n]*)*)"')
_ROW_BITS: Final = 32
_ROW_MASK: Final = 2**_ROW_BITS - 1
_SEQ: Final = re.compile(rb',"seq":(\d{1,16}),"prev":"[0-9a-f]{64}"\}\Z')


class Kind(IntEnum):
    """What a file of a run holds."""

    OFFSETS = 0
    TIMES = 1
    TYPE = 2
    SESSION = 3
    CALL = 4
    AGENT = 5
    DECISION = 6


_IN_HEAD: Final = (Kind.TYPE, Kind.DECISION, Kind.SESSION, Kind.AGENT)
"""In the order of `_HEAD`."""
POSTINGS: Final = (Kind.TYPE, Kind.SESSION, Kind.CALL, Kind.AGENT, Kind.DECISION)
FOLDERS: Final = {
    Kind.OFFSETS: "offsets",
    Kind.TIMES: "by-time",
    Kind.TYPE: "by-type",
    Kind.SESSION: "by-session",
    Kind.CALL: "by-call",
    Kind.AGENT: "by-agent",
    Kind.DECISION: "by-decision",
}


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What every file of a run begins with."""

    kind: Kind
    lines: int
    keys: int
    rows: int
    start: int
    end: int
    first_seq: int
    leaf: str

    @property
    def keys_at(self) -> int:
        return HEADER_BYTES

    @property
    def bounds_at(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES * self.keys

    @property
    def rows_at(self) -> int:
        """Where the numbers of lines begin, or what else stands there."""
        if self.kind not in POSTINGS:
            return HEADER_BYTES
        return self.bounds_at + NUMBER_BYTES * (self.keys + 1)

    @property
    def file_bytes(self) -> int:
        """How long the file is."""
        row = 2 * TIMESTAMP_BYTES if self.kind is Kind.TIMES else NUMBER_BYTES
        return self.rows_at + row * self.rows


def encode_header(header: RunHeader) -> bytes:
    """Return the first `HEADER_BYTES` of a file."""
    packed = _HEADER.pack(
        _MAGIC,
        header.kind,
        header.lines,
        header.keys,
        header.rows,
        header.start,
        header.end,
        header.first_seq,
        bytes.fromhex(header.leaf),
    )
    return (packed + _CRC.pack(crc32(packed))).ljust(HEADER_BYTES, b"\0")


def parse_header(content: bytes) -> RunHeader | None:
    """Return what a file begins with; None where it is no whole header of ours."""
    size = _HEADER.size
    if len(content) < HEADER_BYTES or content[:8] != _MAGIC:
        return None
    if crc32(content[:size]) != _CRC.unpack_from(content, size)[0]:
        return None
    _, kind, lines, keys, rows, start, end, first_seq, leaf = _HEADER.unpack_from(content)
    if kind not in set(Kind):
        return None
    return RunHeader(Kind(kind), lines, keys, rows, start, end, first_seq, leaf.hex())


def decode_numbers(content: bytes) -> "array[int]":
    numbers = array("I", content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def key_of(text: bytes) -> int:
    """Return the key of a value, from the value as it stands in a line, without its quotes."""
    return crc32(text)


def keys_in(line: bytes) -> dict[Kind, set[int]]:
    """Return every key of one line without its LF; none where it is no entry's."""
    found = _LINE.match(line + b"\n")
    head = None if found is None else _HEAD.match(found[2])
    if found is None or head is None:
        return {}
    keys = {kind: {crc32(value)} for kind, value in zip(_IN_HEAD, head.groups(), strict=True)}
    keys[Kind.CALL] = {crc32(found[3])}
    at = line.find(_CLIENT_CALL)
    while at >= 0:
        value = _CLIENT_VALUE.match(line, at + len(_CLIENT_CALL))
        if value is not None:
            keys[Kind.CALL].add(crc32(value[1]))
        at = line.find(_CLIENT_CALL, at + 1)
    return keys


class RunBuilder:
    """Collects what the lines of a run hold, piece by piece."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._end = start
        self._starts = array("I")
        self._times: list[bytes] = []
        self._heads: defaultdict[bytes, list[int]] = defaultdict(list)
        self._calls = array("I")
        self._client_calls: list[int] = []
        """A key and the number of its line, as in `_call_file`."""
        self._first_seq: int | None = None

    def take(self, piece: bytes) -> bool:
        """Add whole lines, each with its LF; False where one of them is no entry's.

        Then nothing can be said of this run: its lines are for a search to read.
        """
        found = _LINE.findall(piece)
        lengths = list(map(len, piece.split(b"\n")))
        lines = len(lengths) - 1
        if len(found) != lines or lengths[-1] or not found:
            return False
        if self._first_seq is None:
            place = _SEQ.search(piece[: lengths[0]])
            if place is None:
                return False
            self._first_seq = int(place[1])
        number = len(self._starts)
        base = self._end - self._start
        if base + len(piece) > RUN_BYTES_MAX:
            return False
        starts = [base, *(base + end for end in accumulate(size + 1 for size in lengths[:-1]))]
        self._end += starts.pop() - base
        self._starts.extend(starts)
        times, heads, calls = zip(*found, strict=True)
        self._times += times
        self._calls.extend(map(crc32, calls))
        by_head = self._heads
        for row, head in enumerate(heads, number):
            by_head[head].append(row)
        self._take_client_calls(piece, number, starts, base)
        return True

    def _take_client_calls(
        self, piece: bytes, number: int, starts: Sequence[int], base: int
    ) -> None:
        """Entries that name the client's own id of their call are found by that too."""
        at = piece.find(_CLIENT_CALL)
        row = 0
        while at >= 0:
            value = _CLIENT_VALUE.match(piece, at + len(_CLIENT_CALL))
            while row + 1 < len(starts) and starts[row + 1] - base <= at:
                row += 1
            if value is not None:
                self._client_calls.append(crc32(value[1]) << _ROW_BITS | number + row)
            at = piece.find(_CLIENT_CALL, at + 1)

    def finish(self, leaf: str) -> dict[Kind, bytes]:
        """Return the files of the run, from the leaf hash of its last line."""
        fields: dict[Kind, dict[int, list[list[int]]]] = {kind: {} for kind in _IN_HEAD}
        for head, rows in self._heads.items():
            found = _HEAD.match(head)
            if found is None:  # the same expression has matched before
                raise ValueError(head)
            for kind, value in zip(_IN_HEAD, found.groups(), strict=True):
                fields[kind].setdefault(crc32(value), []).append(rows)
        files = {kind: self._posting_file(kind, leaf, fields[kind]) for kind in fields}
        files[Kind.CALL] = self._call_file(leaf)
        files[Kind.TIMES] = self._times_file(leaf)
        files[Kind.OFFSETS] = self._file(Kind.OFFSETS, leaf, 0, len(self._starts), [self._starts])
        return files

    def _posting_file(self, kind: Kind, leaf: str, lists: dict[int, list[list[int]]]) -> bytes:
        keys = array("I", sorted(lists))
        bounds, rows = array("I", [0]), array("I")
        for key in keys:
            rows.extend(_joined(lists[key]))
            bounds.append(len(rows))
        return self._file(kind, leaf, len(keys), len(rows), [keys, bounds, rows])

    def _call_file(self, leaf: str) -> bytes:
        """Calls are too many for a list each: keys with their lines are sorted as numbers."""
        pairs = [key << _ROW_BITS | row for row, key in enumerate(self._calls)]
        pairs = sorted({*pairs, *self._client_calls}) if self._client_calls else sorted(pairs)
        counts = Counter([pair >> _ROW_BITS for pair in pairs])
        keys = array("I", counts)
        bounds = array("I", [0, *accumulate(counts.values())])
        rows = array("I", [pair & _ROW_MASK for pair in pairs])
        return self._file(Kind.CALL, leaf, len(keys), len(rows), [keys, bounds, rows])

    def _times_file(self, leaf: str) -> bytes:
        times = self._times
        blocks = [times[at : at + BLOCK_LINES] for at in range(0, len(times), BLOCK_LINES)]
        header = self._header(Kind.TIMES, leaf, 0, len(blocks))
        return encode_header(header) + b"".join(min(block) + max(block) for block in blocks)

    def _file(
        self, kind: Kind, leaf: str, keys: int, rows: int, parts: "Iterable[array[int]]"
    ) -> bytes:
        header = encode_header(self._header(kind, leaf, keys, rows))
        return b"".join([header, *map(_encode_numbers, parts)])

    def _header(self, kind: Kind, leaf: str, keys: int, rows: int) -> RunHeader:
        lines = len(self._starts)
        first_seq = self._first_seq or 0
        return RunHeader(kind, lines, keys, rows, self._start, self._end, first_seq, leaf)


def _joined(lists: list[list[int]]) -> Sequence[int]:
    """The numbers of some lists in order, each once."""
    if len(lists) == 1:
        [only] = lists
        if all(map(int.__lt__, only, only[1:])):
            return only
    return sorted({number for each in lists for number in each})


def _encode_numbers(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
