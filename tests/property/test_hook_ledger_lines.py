"""The bytes of the hook's lines are those of the ledger's own format."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import limits
from paddock.apps.hook.full import entry_of
from paddock.apps.hook.lean.records import LeanRecord, encode_record
from paddock.apps.hook.lean.request import DeclinedError, HookEvent
from paddock.ledger.format import line as lines
from paddock.ledger.format.line import chain_line, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, StoredEntry, encode_body, inspect_line
from paddock.ledger.tail import Mark, encode_mark, find_pair

texts = st.text(max_size=20)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
metadata = st.dictionaries(texts, values, max_size=5)
seconds = st.floats(0, 4e9)


def record_of(reason: str, session: str, agent: str, members: dict) -> LeanRecord:
    asked = HookEvent("PreToolUse", "claude", {"session_id": session, "tool_use_id": "T-1"})
    return LeanRecord("HOOK_DECISION", asked, agent, "deny", reason, members)


@given(texts, texts, texts, metadata, st.binary(min_size=16, max_size=16), seconds)
def test_a_line_is_the_formats_own_or_is_declined(reason, session, agent, members, random, now):
    record = record_of(reason, session, agent, members)
    try:
        body = encode_record(record, random, now)
    except DeclinedError:
        return
    wanted = encode_body(entry_of(record), format_id(random), format_timestamp(now))

    assert body == wanted
    assert isinstance(inspect_line(chain_line(body, 7, "a" * 64)), StoredEntry)


@given(metadata)
def test_only_what_a_line_may_not_hold_is_declined(members):
    record = record_of("", "", "", members)
    try:
        encode_body(entry_of(record), format_id(bytes(16)), format_timestamp(0))
    except EntryRefusedError:
        with pytest.raises(DeclinedError):
            encode_record(record, bytes(16), 0)


@given(st.floats(0, 253_402_300_799))
def test_a_time_reads_as_the_calendar_of_the_library_says(now):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(now))

    assert format_timestamp(now)[:19] == moment.strftime("%Y-%m-%dT%H:%M:%S")
    assert format_timestamp(now)[19:] == f".{int((now - int(now)) * 1e6):06}Z"


def test_what_a_line_holds_at_most_is_said_once():
    assert limits.entry_bytes_max == lines.LINE_BYTES_MAX
    assert limits.entry_depth_max == lines.DEPTH_MAX
    assert limits.json_integer_max == lines.INTEGER_MAX


marks = st.builds(
    Mark,
    generation=st.integers(0, 2**63),
    entries=st.integers(0, 2**63),
    offset_bytes=st.integers(0, 2**63),
    leaf=st.binary(min_size=32, max_size=32).map(bytes.hex),
    boot=st.binary(min_size=16, max_size=16),
    is_poisoned=st.booleans(),
)


@given(marks, marks, st.sampled_from(["both", "first", "second", "none"]))
def test_of_a_pair_the_newer_mark_that_is_whole_counts(one, other, whole):
    records = [encode_mark(one), encode_mark(other)]
    if whole in ("second", "none"):
        records[0] = bytes([records[0][0] ^ 1]) + records[0][1:]
    if whole in ("first", "none"):
        records[1] = records[1][:-1] + bytes([records[1][-1] ^ 1])
    page = b"".join(record.ljust(512, b"\0") for record in records)
    rank = lambda mark: (mark.generation, mark.offset_bytes, mark.is_poisoned)  # noqa: E731
    newer = (one, 1) if rank(one) >= rank(other) else (other, 0)

    wanted = {"both": newer, "first": (one, 1), "second": (other, 0), "none": (None, 0)}

    assert find_pair(page, 0) == wanted[whole]
