import hashlib
import json
from enum import IntEnum
from types import MappingProxyType

import pytest

from paddock import limits
from paddock.errors import InternalError
from paddock.ledger.format.line import (
    chain_line,
    encode_text,
    format_id,
    format_timestamp,
    leaf_hash,
)
from paddock.ledger.format.lines import EntryRefusedError, encode_body
from paddock.values.entries import Entry

ID = "LED-" + "0" * 32
TIME = "1970-01-01T00:00:00.000000Z"


class Number(IntEnum):
    ONE = 1


def body_of(**metadata):
    return encode_body(Entry("NOTE", metadata=metadata), ID, TIME)


def test_a_line_has_its_fields_in_one_order_and_ends_with_fixed_text():
    entry = Entry("NOTE", "sub", "allow", "why", "SES-1", "main", "call-1", {"b": 1, "a": [None]})

    line = chain_line(encode_body(entry, ID, TIME), 7, "ab" * 32)

    assert line == (
        b'{"id":"LED-00000000000000000000000000000000",'
        b'"timestamp":"1970-01-01T00:00:00.000000Z","event_type":"NOTE","submission_id":"sub",'
        b'"decision":"allow","reason":"why","session_id":"SES-1","agent":"main",'
        b'"call_id":"call-1","metadata":{"b":1,"a":[null]},"seq":7,"prev":"' + b"ab" * 32 + b'"}'
    )


def test_the_leaf_hash_is_that_of_rfc_6962():
    assert leaf_hash(b"line") == hashlib.sha256(b"\0line").hexdigest()


def test_text_that_is_not_ascii_stands_as_it_is():
    assert '"äé漢🐎"'.encode() in body_of(text="äé漢🐎")


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\u200f", "\ufeff", "\u061c"],
)
def test_what_drives_a_terminal_or_reorders_text_is_written_as_an_escape(character):
    body = body_of(text=f"a{character}b")

    assert f'"a\\u{ord(character):04x}b"'.encode() in body
    assert json.loads(body + b"}")["metadata"]["text"] == f"a{character}b"


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"x": "a\0b"}, "NUL"),
        ({"a\0b": 1}, "NUL"),
        ({"x": [{"y": "\0"}]}, "NUL"),
        ({"x": "\ud800"}, "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        ({"x": float("nan")}, "value"),
        ({"x": float("inf")}, "value"),
        ({"x": -float("inf")}, "value"),
        ({1: "x"}, "key"),
        ({"x": {None: 1}}, "key"),
        ({"x": [{2.5: 1}]}, "key"),
        ({"x": 2**53 + 1}, "integer"),
        ({"x": [-(2**53) - 1]}, "integer"),
        ({"x": 10**5000}, "integer"),
        ({"x": b"bytes"}, "value"),
        ({"x": {1, 2}}, "value"),
        ({"x": MappingProxyType({"y": 1})}, "value"),
    ],
)
def test_what_readers_disagree_about_is_refused(metadata, what):
    with pytest.raises(EntryRefusedError, match=what):
        encode_body(Entry("NOTE", metadata=metadata), ID, TIME)


@pytest.mark.parametrize("field", ["submission_id", "reason", "decision", "session_id", "call_id"])
@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_the_plain_fields_are_refused_alike(field, text):
    with pytest.raises(EntryRefusedError):
        encode_body(Entry("NOTE", **{field: text}), ID, TIME)


@pytest.mark.parametrize("field", ["agent", "reason"])
def test_a_field_that_is_no_text_is_refused(field):
    with pytest.raises(EntryRefusedError):
        encode_body(Entry("NOTE", **{field: 7}), ID, TIME)


@pytest.mark.parametrize("name", ["", "note", "NOTE TWO", "1X", "NOTÉ", "X" * 65, "../X", "X\n"])
def test_an_event_type_is_upper_case_with_underscores(name):
    with pytest.raises(EntryRefusedError, match="event type"):
        encode_body(Entry(name), ID, TIME)


def test_an_entry_that_is_refused_is_a_defect_of_its_caller_and_a_value_error():
    assert issubclass(EntryRefusedError, InternalError)
    assert issubclass(EntryRefusedError, ValueError)
    assert EntryRefusedError.code == "ledger.entry_refused"


def test_the_same_letters_without_a_nul_are_written():
    assert json.loads(body_of(x="\\u0000") + b"}")["metadata"] == {"x": "\\u0000"}


@pytest.mark.parametrize("value", [2**53, -(2**53), 0, True, None, 1.5, -0.0, 1e300, Number.ONE])
def test_values_at_the_edge_are_written(value):
    assert json.loads(body_of(x=value) + b"}")["metadata"] == {"x": value}


def test_tuples_and_other_mappings_at_the_top_are_written():
    entry = Entry("NOTE", metadata=MappingProxyType({"x": (1, (2, "c"))}))

    assert json.loads(encode_body(entry, ID, TIME) + b"}")["metadata"] == {"x": [1, [2, "c"]]}


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"x": value}
    return value


def test_nesting_ends_where_the_limit_says():
    assert body_of(x=nested(limits.entry_depth_max - 1))

    with pytest.raises(EntryRefusedError, match="nesting"):
        body_of(x=nested(limits.entry_depth_max))


def test_many_containers_side_by_side_are_no_nesting():
    assert body_of(x=[[i] for i in range(500)])


def test_a_value_that_contains_itself_is_refused():
    circle = []
    circle.append(circle)

    with pytest.raises(EntryRefusedError, match="nesting"):
        body_of(x=circle)


def test_a_line_has_a_longest_length():
    room = limits.entry_bytes_max - len(body_of(x="")) - len(',"seq":,"prev":""}') - 16 - 64

    assert len(chain_line(body_of(x="a" * room), 2**53, "0" * 64)) == limits.entry_bytes_max
    with pytest.raises(EntryRefusedError, match="too long"):
        body_of(x="a" * (room + 1))


def test_an_id_is_128_bits_in_hex():
    assert format_id(bytes(range(16))) == "LED-000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (0.5, "1970-01-01T00:00:00.500000Z"),
        (1_790_000_000.25, "2026-09-21T14:13:20.250000Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59.000000Z"),
        (-1.0, "1970-01-01T00:00:00.000000Z"),
        (1e18, "1970-01-01T00:00:00.000000Z"),
        (float("nan"), "1970-01-01T00:00:00.000000Z"),
        (float("inf"), "1970-01-01T00:00:00.000000Z"),
    ],
)
def test_a_timestamp_has_one_width_and_a_broken_clock_stops_nothing(seconds, text):
    assert format_timestamp(seconds) == text


def test_a_text_to_search_for_is_encoded_as_in_a_line():
    value = 'say "hi"\\ \x9b ä'

    assert encode_text(value) in body_of(x=value)


@pytest.mark.parametrize(
    "value", ["\0", "\ud800", float("nan"), 2**53 + 1, {1: 2}, nested(65), b"x"], ids=repr
)
def test_a_member_is_refused_for_the_same_reason_each_time(value):
    entry = Entry("NOTE", metadata={"x": value})

    for _ in range(2):
        with pytest.raises(EntryRefusedError):
            encode_body(entry, ID, TIME)
