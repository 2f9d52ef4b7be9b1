"""The lean writer's bytes are those of the ledger's own format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.apps.hook.early import entry_of
from paddock.apps.hook.lean.asked import Asked, DeclinedError
from paddock.apps.hook.lean.ledger import (
    LeanMark,
    chain_line,
    encode_body,
    find_pair,
    format_timestamp,
)
from paddock.apps.hook.lean.records import LeanRecord
from paddock.ledger.format import encoding as own
from paddock.ledger.format.lines import StoredEntry, inspect_line
from paddock.ledger.head import Mark, encode_mark

texts = st.text(max_size=20)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
metadata = st.dictionaries(texts, values, max_size=5)
seconds = st.floats(0, 4e9)


def record_of(reason: str, session: str, agent: str, members: dict) -> LeanRecord:
    asked = Asked("PreToolUse", "claude", {"session_id": session, "tool_use_id": "T-1"})
    return LeanRecord("HOOK_DECISION", asked, agent, "deny", reason, members)


@given(texts, texts, texts, metadata, st.binary(min_size=16, max_size=16), seconds)
def test_a_line_is_the_formats_own_or_is_declined(reason, session, agent, members, random, now):
    record = record_of(reason, session, agent, members)
    try:
        body = encode_body(record, random, now)
    except DeclinedError:
        return
    wanted = own.encode_body(entry_of(record), own.format_id(random), own.format_timestamp(now))
    line, leaf = chain_line(body, 7, "a" * 64)

    assert body == wanted
    assert line == own.chain_line(body, 7, "a" * 64) + b"\n"
    assert leaf == own.leaf_hash(line[:-1])
    assert isinstance(inspect_line(line[:-1]), StoredEntry)


@given(metadata)
def test_only_what_a_line_may_not_hold_is_declined(members):
    record = record_of("", "", "", members)
    try:
        own.encode_body(entry_of(record), own.format_id(bytes(16)), own.format_timestamp(0))
    except own.EntryRefusedError:
        with pytest.raises(DeclinedError):
            encode_body(record, bytes(16), 0)


@given(seconds)
def test_a_time_reads_alike(now):
    assert format_timestamp(now) == own.format_timestamp(now)


marks = st.builds(
    Mark,
    generation=st.integers(0, 2**63),
    entries=st.integers(0, 2**63),
    offset_bytes=st.integers(0, 2**63),
    leaf=st.binary(min_size=32, max_size=32).map(bytes.hex),
    boot=st.binary(min_size=16, max_size=16),
    is_poisoned=st.booleans(),
)


def lean_of(mark: Mark) -> LeanMark:
    made = LeanMark(mark.generation, mark.entries, mark.offset_bytes, mark.leaf, mark.boot)
    made.poisoned = mark.is_poisoned
    return made


@given(marks)
def test_a_mark_is_encoded_alike(mark):
    assert lean_of(mark).encode() == encode_mark(mark)


@given(marks, marks, st.sampled_from(["both", "first", "second", "none"]))
def test_the_same_mark_of_a_pair_counts(one, other, whole):
    from paddock.ledger.head import _decode_pair

    records = [encode_mark(one), encode_mark(other)]
    if whole in ("second", "none"):
        records[0] = b"\xff" + records[0][1:]
    if whole in ("first", "none"):
        records[1] = records[1][:-1] + bytes([records[1][-1] ^ 1])
    page = b"".join(record.ljust(512, b"\0") for record in records)
    found, slot = find_pair(page, 0)
    wanted, wanted_slot = _decode_pair(page, 0)

    assert (None if found is None else found.encode(), slot) == (
        None if wanted is None else encode_mark(wanted),
        wanted_slot,
    )
