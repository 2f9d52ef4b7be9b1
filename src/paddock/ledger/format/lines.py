"""Reading one ledger line strictly: either the entry it holds, or what is wrong with it.

A line is accepted exactly when encoding what it holds gives the same bytes.
That one comparison finds another field order, a key given twice, white space,
other escapes and other number forms.

Pure.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.compact_json import decode_json, find_duplicate_key
from paddock.ledger.format.encoding import (
    EntryRefusedError,
    chain_tail,
    encode_body,
    leaf_hash,
)
from paddock.values.calls import Json
from paddock.values.entries import Entry

FIELDS: Final = (
    "id",
    "timestamp",
    "event_type",
    "submission_id",
    "decision",
    "reason",
    "session_id",
    "agent",
    "call_id",
    "metadata",
    "seq",
    "prev",
)
"""Every line has these, in this order, and no others."""

_OPENING: Final = re.compile(
    rb'\{"id":"LED-[0-9a-f]{32}",'
    rb'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","event_type":"'
)
_TAIL: Final = re.compile(rb',"seq":(0|[1-9]\d{0,15}),"prev":"([0-9a-f]{64})"\}\Z')
_TAIL_WINDOW: Final = 120
_TEXT_ONLY: Final = {str}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LineFault(StrEnum):
    """What is wrong with a line by itself."""

    BLANK = "blank"
    TOO_LONG = "too_long"
    NUL = "nul"
    CARRIAGE_RETURN = "carriage_return"
    BYTE_ORDER_MARK = "byte_order_mark"
    ENCODING = "encoding"
    GARBAGE = "garbage"
    DUPLICATE_KEY = "duplicate_key"
    FIELDS = "fields"
    RE_ENCODED = "re_encoded"


@dataclass(frozen=True, slots=True)
class BadLine:
    """Why a line holds no entry."""

    fault: LineFault
    detail: str


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with its place in the chain, and the bytes that say so (without LF)."""

    seq: int
    prev: str
    id: str
    timestamp: str
    entry: Entry
    line: bytes

    @property
    def leaf(self) -> str:
        """The hash that the next line's `prev` has to be."""
        return leaf_hash(self.line)


def parse_line(line: bytes) -> StoredEntry:
    """Return the entry of a line without its LF.

    Raises:
        LedgerDamagedError: the line is not exactly what a writer writes.
    """
    found = inspect_line(line)
    if isinstance(found, BadLine):
        raise LedgerDamagedError(f"not a ledger line ({found.fault}): {found.detail}")
    return found


def inspect_line(line: bytes) -> StoredEntry | BadLine:
    """Return the entry of a line without its LF, or what is wrong with it. Never raises."""
    place = _TAIL.search(line, max(0, len(line) - _TAIL_WINDOW))
    if place is None or not _OPENING.match(line) or len(line) > limits.entry_bytes_max:
        return _diagnose(line)
    try:
        fields = decode_json(line.decode())
    except (ValueError, RecursionError):
        return _diagnose(line)
    # The opening proves that this is an object; its `id` and `timestamp` may
    # still be overruled by a second one, which the comparison below finds.
    values = list(cast("dict[str, Json]", fields).values())
    if len(values) != len(FIELDS) or not _have_types(values):
        return _diagnose(line)
    entry = Entry(*values[2:10])
    try:
        body = encode_body(entry, values[0], values[1])
    except EntryRefusedError as fault:
        return BadLine(LineFault.RE_ENCODED, fault.message)
    seq, prev = int(place[1]), place[2].decode()
    if body + chain_tail(seq, prev) != line:
        return _diagnose(line)
    return StoredEntry(seq, prev, values[0], values[1], entry, line)


def _have_types(values: list[Json]) -> bool:
    texts, metadata, seq, prev = values[:9], values[9], values[10], values[11]
    return (
        set(map(type, texts)) == _TEXT_ONLY
        and type(metadata) is dict
        and type(seq) is int
        and type(prev) is str
    )


def _diagnose(line: bytes) -> BadLine:
    """Name what is wrong with a line that was not accepted."""
    if not line.strip(b" \t\r"):
        return BadLine(LineFault.BLANK, "an empty line")
    if len(line) > limits.entry_bytes_max:
        return BadLine(LineFault.TOO_LONG, f"over {limits.entry_bytes_max} bytes")
    if b"\0" in line:
        return BadLine(LineFault.NUL, f"a NUL byte at byte {line.index(0)} of the line")
    if line.endswith(b"\r"):
        return BadLine(LineFault.CARRIAGE_RETURN, "a carriage return at the end of the line")
    if line.startswith(_BYTE_ORDER_MARK):
        return BadLine(LineFault.BYTE_ORDER_MARK, "a byte order mark")
    try:
        text = line.decode()
    except UnicodeDecodeError as fault:
        return BadLine(LineFault.ENCODING, f"not UTF-8 at byte {fault.start} of the line")
    try:
        fields = decode_json(text.strip(" \t"))
        key = find_duplicate_key(text)
    except ValueError as fault:
        return BadLine(LineFault.GARBAGE, f"not JSON: {fault}"[: limits.message_value_chars_max])
    except RecursionError:
        return BadLine(LineFault.GARBAGE, "nested too deeply")
    if key is not None:
        shown = ascii(key[: limits.message_value_chars_max])
        return BadLine(LineFault.DUPLICATE_KEY, f"the key {shown} is given twice")
    return _diagnose_fields(fields)


def _diagnose_fields(fields: Json) -> BadLine:
    if not isinstance(fields, dict):
        return BadLine(LineFault.FIELDS, "not an object")
    found = cast("dict[str, Json]", fields)
    missing = [name for name in FIELDS if name not in found]
    if missing:
        return BadLine(LineFault.FIELDS, f"no field {', '.join(missing)}")
    unknown = [name for name in found if name not in FIELDS]
    if unknown:
        shown = ascii(unknown[0][: limits.message_value_chars_max])
        return BadLine(LineFault.FIELDS, f"unknown field {shown}")
    if tuple(found) != FIELDS:
        return BadLine(LineFault.FIELDS, "fields in another order")
    if not _have_types(list(found.values())):
        return BadLine(LineFault.FIELDS, "a field of the wrong type")
    return BadLine(LineFault.RE_ENCODED, "the same values in bytes that no writer writes")
