"""Whatever an entry holds, it round-trips or is refused; whatever a file holds, readers say so."""

import contextlib
import json
import os
import re
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import LedgerDamagedError, PaddockError
from paddock.ledger.format.line import chain_line, encode_text
from paddock.ledger.format.lines import (
    BadLine,
    EntryRefusedError,
    StoredEntry,
    encode_body,
    inspect_line,
)
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.values.entries import Entry
from tests.support.ledgers import INTENT, RESULT, counting_ids, note, open_ledger

ID = "LED-" + "0" * 32
TIME = "1970-01-01T00:00:00.000000Z"
UNSHOWABLE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
TEXT = st.text(st.characters(exclude_categories=[]), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**54), 2**54)
    | st.floats()
    | TEXT
    | st.binary(max_size=3)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["NOTE", "TOOL_INTENT", "x", ""]),
    TEXT, TEXT, TEXT, TEXT, TEXT, TEXT,
    st.dictionaries(TEXT, VALUES, max_size=4),
)  # fmt: skip
JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(ENTRIES, st.integers(0, 2**53))
def test_an_entry_round_trips_or_is_refused(entry, seq):
    try:
        line = chain_line(encode_body(entry, ID, TIME), seq, "ab" * 32)
    except EntryRefusedError:
        return

    assert b"\n" not in line
    assert inspect_line(line) == StoredEntry(seq, "ab" * 32, ID, TIME, entry, line)


@given(st.dictionaries(JSON_TEXT, PLAIN, max_size=4), JSON_TEXT)
def test_every_plain_value_can_be_written(metadata, reason):
    line = chain_line(
        encode_body(Entry("NOTE", reason=reason, metadata=metadata), ID, TIME), 1, "0" * 64
    )

    assert inspect_line(line).entry == Entry("NOTE", reason=reason, metadata=metadata)
    assert encode_text(reason) in line


@given(st.dictionaries(JSON_TEXT, PLAIN, max_size=20))
def test_metadata_stands_in_a_line_as_json_writes_it(metadata):
    """However an entry is encoded: json's own encoder is the measure."""
    entry = Entry("NOTE", metadata=metadata)
    wanted = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))
    wanted = UNSHOWABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", wanted)

    body = encode_body(entry, ID, TIME).decode()

    assert body.partition(',"metadata":')[2] == wanted


@given(st.binary(max_size=200))
def test_any_line_is_an_entry_or_says_what_is_wrong(line):
    assert isinstance(inspect_line(line), BadLine)


LINE = chain_line(
    encode_body(Entry("NOTE", reason="é", metadata={"a": [1, {"b": 2.5}]}), ID, TIME), 1, "ab" * 32
)


@given(st.data())
def test_an_accepted_line_is_the_only_encoding_of_what_it_holds(data):
    at = data.draw(st.integers(0, len(LINE)))
    cut = data.draw(st.integers(0, 3))
    put = data.draw(
        st.binary(max_size=3) | st.sampled_from([b" ", b'"', b"\\", b"0", b"1", b",", b"}"])
    )
    changed = LINE[:at] + put + LINE[at + cut :]

    found = inspect_line(changed)

    if isinstance(found, StoredEntry) and changed != LINE:
        original = inspect_line(LINE)
        assert (found.entry, found.id, found.timestamp, found.seq, found.prev) != (
            original.entry, original.id, original.timestamp, original.seq, original.prev
        )  # fmt: skip


def small_ledger(folder):
    path = os.path.join(folder, "x.jsonl")
    ledger = open_ledger(path, randomness=counting_ids())
    ledger.append([note("one"), INTENT, RESULT, note("two", 30)])
    ledger.close()
    with open(path, "rb") as file:
        return path, file.read()


with tempfile.TemporaryDirectory() as _folder:
    _, WHOLE = small_ledger(_folder)
LAST_LINE = WHOLE[:-1].rindex(b"\n") + 1


def verify_bytes(content):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.jsonl")
        with open(path, "wb") as file:
            file.write(content)
        return verify(path)


@given(st.integers(0, LAST_LINE - 1), st.integers(1, 255))
def test_any_changed_byte_before_the_last_line_is_found(at, flip):
    content = bytearray(WHOLE)
    content[at] ^= flip

    try:
        found = verify_bytes(bytes(content))
    except PaddockError:
        return
    assert found.problems
    assert found.problems[0].offset_bytes <= at


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found_where_the_head_file_is_there(at, flip):
    with tempfile.TemporaryDirectory() as folder:
        path, content = small_ledger(folder)
        changed = bytearray(content)
        changed[at] ^= flip
        with open(path, "wb") as file:
            file.write(changed)

        try:
            assert verify(path).problems
        except PaddockError:
            return


@given(st.integers(0, LAST_LINE - 1), st.integers(1, 400))
def test_any_removed_piece_before_the_end_is_found(at, size):
    content = WHOLE[:at] + WHOLE[min(at + size, LAST_LINE) :]

    try:
        assert verify_bytes(content).problems
    except PaddockError:
        return


PIECES = st.lists(
    st.binary(max_size=60)
    | st.sampled_from([line + b"\n" for line in WHOLE.split(b"\n")[:-1]])
    | st.sampled_from([b"\n", b"\r\n", b"{}\n", b'{"id":"LED-', b"\0" * 40, b"\xef\xbb\xbf"]),
    max_size=8,
)


@given(PIECES, st.booleans())
def test_any_bytes_as_a_ledger_end_in_an_answer_or_an_error_of_ours(pieces, with_folder):
    with tempfile.TemporaryDirectory() as folder:
        path, _ = small_ledger(folder)
        if not with_folder:
            for name in os.listdir(os.path.join(folder, "x.d")):
                os.unlink(os.path.join(folder, "x.d", name))
            os.rmdir(os.path.join(folder, "x.d"))
        content = b"".join(pieces)
        with open(path, "wb") as file:
            file.write(content)

        with contextlib.suppress(PaddockError):
            verify(path)
        rows = query(path, Filter())
        assert rows.unfinished_bytes == len(content) - (content.rfind(b"\n") + 1)
        try:
            with contextlib.closing(open_ledger(path)) as ledger:
                ledger.append([note("after")])
        except LedgerDamagedError:
            with open(path, "rb") as file:
                assert file.read() == content
        except PaddockError:
            return


@given(st.binary(max_size=3000))
def test_any_bytes_as_a_head_file_end_in_a_ledger_that_holds_or_is_refused(head):
    with tempfile.TemporaryDirectory() as folder:
        path, content = small_ledger(folder)
        with open(os.path.join(folder, "x.d", "head"), "wb") as file:
            file.write(head)

        with contextlib.closing(open_ledger(path)) as ledger:
            ledger.append([note("after")])

        with open(path, "rb") as file:
            assert file.read().startswith(content)
        assert verify(path).problems == ()
