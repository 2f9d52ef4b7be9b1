import json

import pytest

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.line import chain_line
from paddock.ledger.format.lines import (
    BadLine,
    LineFault,
    StoredEntry,
    encode_body,
    inspect_line,
    parse_line,
)
from paddock.values.entries import Entry

ID = "LED-" + "0" * 32
TIME = "1970-01-01T00:00:00.000000Z"
ENTRY = Entry("NOTE", "sub", "allow", "ré", "SES-1", "main", "call-1", {"a": {"b": [1, 2.5, None]}})
PREV = "ab" * 32
LINE = chain_line(encode_body(ENTRY, ID, TIME), 7, PREV)


def test_a_line_gives_back_the_entry_and_its_place():
    assert parse_line(LINE) == StoredEntry(7, PREV, ID, TIME, ENTRY, LINE)


def edit(old: bytes, new: bytes) -> bytes:
    assert LINE.count(old) == 1
    return LINE.replace(old, new)


FAULTS = {
    "blank": (b"", LineFault.BLANK),
    "spaces": (b"   ", LineFault.BLANK),
    "only a carriage return": (b"\r", LineFault.BLANK),
    "carriage return": (LINE + b"\r", LineFault.CARRIAGE_RETURN),
    "byte order mark": (b"\xef\xbb\xbf" + LINE, LineFault.BYTE_ORDER_MARK),
    "raw NUL": (edit(b'"sub"', b'"s\0b"'), LineFault.NUL),
    "not UTF-8": (edit("ré".encode(), b"r\xe9"), LineFault.ENCODING),
    "garbage": (b"garbage", LineFault.GARBAGE),
    "cut": (LINE[:-1], LineFault.GARBAGE),
    "two objects": (LINE + LINE, LineFault.GARBAGE),
    "NaN": (edit(b"2.5", b"NaN"), LineFault.GARBAGE),
    "infinity": (edit(b"2.5", b"-Infinity"), LineFault.GARBAGE),
    "deep": (b"[" * 100_000, LineFault.GARBAGE),
    "not an object": (b"[1]", LineFault.FIELDS),
    "hashes stripped": (LINE[: LINE.index(b',"seq"')] + b"}", LineFault.FIELDS),
    "prev stripped": (LINE[: LINE.index(b',"prev"')] + b"}", LineFault.FIELDS),
    "another field": (edit(b',"seq"', b',"extra":1,"seq"'), LineFault.FIELDS),
    "another order": (
        edit(
            b'"decision":"allow","reason":"r\xc3\xa9"', b'"reason":"r\xc3\xa9","decision":"allow"'
        ),
        LineFault.FIELDS,
    ),
    "a number for text": (edit(b'"main"', b"7"), LineFault.FIELDS),
    "a list for metadata": (edit(b'{"a":{"b":[1,2.5,null]}}', b"[1]"), LineFault.FIELDS),
    "key twice at the top": (
        edit(b'"decision":"allow"', b'"decision":"deny","decision":"allow"'),
        LineFault.DUPLICATE_KEY,
    ),
    "key twice inside": (edit(b'"a":{', b'"a":1,"a":{'), LineFault.DUPLICATE_KEY),
    "second tail": (
        LINE[:-1] + b',"seq":7,"prev":"' + PREV.encode() + b'"}',
        LineFault.DUPLICATE_KEY,
    ),
    "space": (edit(b'"decision":"allow"', b'"decision": "allow"'), LineFault.RE_ENCODED),
    "space at the end": (LINE + b" ", LineFault.RE_ENCODED),
    "space at the start": (b" " + LINE, LineFault.RE_ENCODED),
    "other escape": (edit("ré".encode(), b"r\\u00e9"), LineFault.RE_ENCODED),
    "escaped slash": (edit(b'"sub"', b'"s\\/b"'), LineFault.RE_ENCODED),
    "other number": (edit(b"2.5", b"2.50"), LineFault.RE_ENCODED),
    "exponent": (edit(b"2.5", b"25e-1"), LineFault.RE_ENCODED),
    "too large an integer": (edit(b"[1,", b"[9007199254740993,"), LineFault.RE_ENCODED),
    "huge integer": (edit(b"[1,", b"[" + b"9" * 5000 + b","), LineFault.GARBAGE),
    "escaped NUL": (edit(b'"sub"', b'"s\\u0000b"'), LineFault.RE_ENCODED),
    "escaped lone surrogate": (edit(b'"sub"', b'"\\ud800"'), LineFault.RE_ENCODED),
    "raw control": (edit(b'"sub"', b'"\xc2\x9b"'), LineFault.RE_ENCODED),
    "upper case digits": (edit(PREV.encode(), PREV.upper().encode()), LineFault.RE_ENCODED),
    "leading zero": (edit(b'"seq":7', b'"seq":07'), LineFault.GARBAGE),
    "negative seq": (edit(b'"seq":7', b'"seq":-7'), LineFault.RE_ENCODED),
    "short id": (edit(ID.encode(), b"LED-00"), LineFault.RE_ENCODED),
    "other time": (edit(TIME.encode(), b"yesterday"), LineFault.RE_ENCODED),
    "event type": (edit(b'"NOTE"', b'"note"'), LineFault.RE_ENCODED),
    "too long": (LINE + b" " * limits.entry_bytes_max, LineFault.TOO_LONG),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_line_that_no_writer_writes_is_named_for_what_is_wrong_with_it(case):
    line, fault = FAULTS[case]

    found = inspect_line(line)

    assert isinstance(found, BadLine)
    assert found.fault == fault, found.detail
    assert len(found.detail) <= 2 * limits.message_value_chars_max
    with pytest.raises(LedgerDamagedError, match=fault.value):
        parse_line(line)


def test_the_accepted_line_is_json_for_everybody():
    values = json.loads(LINE)

    assert list(values) == [
        "id", "timestamp", "event_type", "submission_id", "decision", "reason",
        "session_id", "agent", "call_id", "metadata", "seq", "prev",
    ]  # fmt: skip
