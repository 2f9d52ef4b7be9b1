"""The bytes of posting files."""

import os
import struct
from zlib import crc32

import pytest

from paddock.ledger.format.encoding import chain_lines, encode_body
from paddock.ledger.format.posting_files import (
    HEADER_BYTES,
    Kind,
    RunBuilder,
    RunHeader,
    encode_header,
    keys_in,
    parse_header,
)
from paddock.values.entries import Entry

LEAF = "ab" * 32
HEADER = RunHeader(Kind.CALL, 5, 3, 7, 100, 2000, 40, LEAF)
ENTRIES = [
    Entry("FIRST", session_id="S", agent="a", call_id="c1", decision="allow"),
    Entry("SECOND", session_id="S", agent='b"', call_id="c1", metadata={"client_call": "t1"}),
    Entry("FIRST", session_id="S", agent="a", call_id="c2", metadata={"in": {"client_call": "c1"}}),
]


def lines(entries=ENTRIES, seq=40):
    bodies = [
        encode_body(entry, f"LED-{number:032x}", f"1970-01-01T00:00:0{number}.000000Z")
        for number, entry in enumerate(entries)
    ]
    return chain_lines(bodies, seq, "0" * 64)


def numbers(content, at, count):
    return list(struct.unpack_from(f"<{count}I", content, at))


def postings(content):
    header = parse_header(content)
    keys = numbers(content, header.keys_at, header.keys)
    bounds = numbers(content, header.bounds_at, header.keys + 1)
    rows = numbers(content, header.rows_at, header.rows)
    assert len(content) == header.file_bytes
    assert keys == sorted(set(keys))
    return {key: rows[low:high] for key, low, high in zip(keys, bounds, bounds[1:], strict=False)}


def test_a_header_survives_its_encoding_and_no_flipped_bit_does():
    content = encode_header(HEADER)

    assert len(content) == HEADER_BYTES
    assert parse_header(content) == HEADER
    for bit in range((8 + 16 + 24 + 32 + 4) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        assert parse_header(bytes(flipped)) is None
    assert parse_header(content[:-1]) is None


def test_a_kind_that_is_not_known_is_no_header():
    packed = bytearray(encode_header(HEADER)[:80])
    packed[8] = 9
    assert (
        parse_header((bytes(packed) + struct.pack("<I", crc32(packed))).ljust(128, b"\0")) is None
    )


def test_every_value_is_posted_with_the_lines_that_hold_it():
    data, leaf = lines()
    builder = RunBuilder(1000)
    cut = data.index(b"\n") + 1
    assert builder.take(data[:cut])
    assert builder.take(data[cut:])

    files = builder.finish(leaf)

    found = {kind: postings(files[kind]) for kind in Kind if kind > Kind.TIMES}
    assert found == {
        Kind.TYPE: {crc32(b"FIRST"): [0, 2], crc32(b"SECOND"): [1]},
        Kind.SESSION: {crc32(b"S"): [0, 1, 2]},
        Kind.CALL: {crc32(b"c1"): [0, 1, 2], crc32(b"c2"): [2], crc32(b"t1"): [1]},
        Kind.AGENT: {crc32(b"a"): [0, 2], crc32(b'b\\"'): [1]},
        Kind.DECISION: {crc32(b""): [1, 2], crc32(b"allow"): [0]},
    }
    header = parse_header(files[Kind.OFFSETS])
    assert header == RunHeader(Kind.OFFSETS, 3, 0, 3, 1000, 1000 + len(data), 40, leaf)
    starts = numbers(files[Kind.OFFSETS], HEADER_BYTES, 3)
    assert starts == [0, cut, data.index(b"\n", cut) + 1]
    assert files[Kind.TIMES][HEADER_BYTES:] == (
        b"1970-01-01T00:00:00.000000Z" + b"1970-01-01T00:00:02.000000Z"
    )


def test_the_keys_of_one_line_are_those_that_it_is_posted_under():
    data, _ = lines()
    for row, line in enumerate(data.splitlines()):
        builder = RunBuilder(0)
        assert builder.take(line + b"\n")
        files = builder.finish(LEAF)
        posted = {kind: set(postings(files[kind])) for kind in Kind if kind > Kind.TIMES}
        assert keys_in(line) == posted, row
    assert keys_in(b"garbage") == {}


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"garbage\n",
        b'{"id":"LED-x"}\n',
        b"\n",
        lines()[0][:-1],
        b"x" + lines()[0],
        lines()[0] + b"more",
        lines()[0] + b"\n",
        lines()[0].replace(b'"decision":"allow"', b'"decision":1'),
        lines()[0].replace(b'"}\n', b'"} \n', 1),
    ],
)
def test_what_are_no_whole_entries_is_not_posted(bad):
    assert not RunBuilder(0).take(bad)


def test_values_of_one_key_share_its_lines():
    # Found by trying: two texts with one CRC-32.
    one, other = b"plumless", b"buckeroo"
    assert crc32(one) == crc32(other)
    data, leaf = lines([Entry("T", agent=each.decode()) for each in (one, other, one)])
    builder = RunBuilder(0)
    assert builder.take(data)

    assert postings(builder.finish(leaf)[Kind.AGENT]) == {crc32(one): [0, 1, 2]}


def test_a_search_for_one_of_them_does_not_find_the_other(tmp_path):
    from paddock.ledger.query import Filter, query
    from tests.support.ledgers import open_ledger

    path = os.fspath(tmp_path / "x.jsonl")
    ledger = open_ledger(path)
    for _ in range(3):
        ledger.append([Entry("T", agent=each) for each in ("plumless", "buckeroo") * 200])
    ledger.append([Entry("T", metadata={"filling": "x" * 400_000})])
    ledger.close()
    query(path, Filter(agent="nobody"))
    assert os.listdir(tmp_path / "x.d" / "by-agent")

    for name in ("plumless", "buckeroo"):
        rows = query(path, Filter(agent=name)).entries
        assert len(rows) == 600
        assert {row.entry.agent for row in rows} == {name}
