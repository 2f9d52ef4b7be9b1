import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.format.lines import LineFault
from paddock.ledger.query import BadRow, Filter, Ledgers, find_numbered, query
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.ledgers import note, open_ledger


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def fill(path, entries, times=None):
    times = times or [0.0] * len(entries)
    now = [0.0]
    ledger = open_ledger(path, clock=lambda: now[0])
    for entry, time in zip(entries, times, strict=True):
        now[0] = time
        ledger.write([entry])
    ledger.close()


def seqs(path, wanted, last=None):
    rows = query(path, wanted, last=last)
    assert rows.bad == ()
    return [row.seq for row in rows.entries]


def test_rows_come_newest_last_and_the_newest_are_kept(path):
    fill(path, [note(str(number)) for number in range(10)])

    assert seqs(path, Filter(event_type="NOTE")) == list(range(1, 11))
    assert seqs(path, Filter(event_type="NOTE"), last=3) == [8, 9, 10]
    assert seqs(path, Filter(), last=20) == list(range(11))
    assert seqs(path, Filter(), last=0) == []


@pytest.mark.parametrize(
    ("last", "skip", "found"),
    [
        (3, 0, [2008, 2009, 2010]),
        (3, 2, [2006, 2007, 2008]),
        (3, 1000, [1008, 1009, 1010]),
        (2, 2005, [4, 5]),
        (3, 2009, [0, 1]),
        (3, 2011, []),
        (3, 10**15, []),
        (0, 5, []),
        (None, 2008, [0, 1, 2]),
    ],
)
def test_newer_entries_are_passed_over(path, last, skip, found):
    ledger = open_ledger(path)
    for begin in (0, 1005):
        ledger.write([note(str(number)) for number in range(begin, begin + 1005)])
    ledger.close()

    rows = Ledgers({LedgerName.HO1M: Path(path)}).query(LedgerName.HO1M, Filter(), last, skip)
    assert [row.seq for row in rows.entries] == found
    assert rows.bad == ()


def test_rows_are_found_by_each_field_and_by_all_together(path):
    base = {"session_id": "S1", "call_id": "c1", "agent": "a1", "decision": "allow"}
    entries = [Entry("NOTE", **base)] + [Entry("NOTE", **(base | {name: "x"})) for name in base]
    fill(path, [*entries, Entry("OTHER", **base)])

    assert seqs(path, Filter(session_id="S1")) == [1, 3, 4, 5, 6]
    assert seqs(path, Filter(call_id="c1")) == [1, 2, 4, 5, 6]
    assert seqs(path, Filter(agent="a1")) == [1, 2, 3, 5, 6]
    assert seqs(path, Filter(decision="allow")) == [1, 2, 3, 4, 6]
    assert seqs(path, Filter(event_type="OTHER", session_id="S1")) == [6]
    assert seqs(path, Filter(event_type="NOTE", **base)) == [1]
    assert seqs(path, Filter(agent="nobody")) == []


def test_an_entry_is_found_by_its_number_beside_lines_that_hold_none(path):
    fill(path, [note("x" * (number * 37 % 500)) for number in range(60)])
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    for at in (1, 2, 30, 31, 60):
        spoilt = [*lines[:at], b"no entry", *lines[at + 1 :]]
        with open(path, "wb") as file:
            file.write(b"\n".join(spoilt) + b"\n")
        found = [find_numbered(path, seq) for seq in range(61)]
        assert [each and each.line for each in found] == [*lines[:at], None, *lines[at + 1 :]]


def test_rows_are_found_by_tool_host_and_outcome(path):
    tools = [{"tool": "view", "outcome": "allow"}, {"tool": "grep", "status": "error"}]
    nets = [{"host": "a.example"}, {"actions": ["tool:net:connect b.example:443"]}]
    fill(path, [Entry("NOTE", metadata=each) for each in (*tools, *nets, {"tool": ["view"]})])

    assert seqs(path, Filter(tool="view")) == [1]
    assert seqs(path, Filter(outcome="error")) == [2]
    assert seqs(path, Filter(outcome="allow")) == [1]
    assert seqs(path, Filter(host="a.example")) == [3]
    assert seqs(path, Filter(host="b.example")) == [4]


def test_the_same_text_inside_metadata_is_no_match(path):
    fill(
        path,
        [
            Entry("NOTE", metadata={"session_id": "S1", "event_type": "OTHER"}),
            Entry("NOTE", reason='"session_id":"S1"'),
            Entry("NOTE", session_id="S1"),
        ],
    )

    assert seqs(path, Filter(session_id="S1")) == [3]
    assert seqs(path, Filter(event_type="OTHER")) == []


@pytest.mark.parametrize(
    "text", ['say "hi"', "back\\slash", "äé漢", "\x9b\u202e", "tab\t", "\\u0041"]
)
def test_text_is_found_as_it_was_given(path, text):
    fill(path, [Entry("NOTE", agent=text), Entry("NOTE", agent="other")])

    assert seqs(path, Filter(agent=text)) == [1]


def test_text_that_no_line_can_hold_finds_nothing(path):
    fill(path, [note("x")])

    assert seqs(path, Filter(agent="\ud800")) == []


def test_rows_are_found_by_a_path_and_by_what_is_above_it(path):
    fill(
        path,
        [
            Entry("NOTE", metadata={"actions": ["tool:file:create docs/a b.md"]}),
            Entry("NOTE", metadata={"actions": ["tool:shell:run x", "tool:file:delete docs/sub"]}),
            Entry("OTHER", metadata={"effects": [{"path": "src/a", "to": "docs/a b.md"}]}),
            Entry("NOTE", metadata={"actions": ["tool:search:ls"], "effects": "unknown"}),
            Entry("NOTE", metadata={"actions": ["tool:file:view docsuffix", 7], "effects": [7]}),
            Entry("NOTE", metadata={"actions": ["tool:shell:run rm docs/a b.md"]}),
            Entry("NOTE", reason="tool:file:create docs", metadata={"path": "docs"}),
            Entry("OTHER", metadata={"refused": [{"path": "lib/x"}, 7], "effects": []}),
        ],
    )

    assert seqs(path, Filter(path="docs/a b.md")) == [1, 3]
    assert seqs(path, Filter(path="docs")) == [1, 2, 3]
    assert seqs(path, Filter(path="src")) == [3]
    assert seqs(path, Filter(path=".")) == [1, 2, 3, 4, 5, 8]
    assert seqs(path, Filter(path="lib")) == [8]
    assert seqs(path, Filter("NOTE", path="docs")) == [1, 2]
    assert seqs(path, Filter(path="docs"), last=1) == [3]
    assert seqs(path, Filter(path="doc")) == []


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "äé漢/x", "\x9b\u202e", "tab\t"])
def test_a_path_is_found_as_it_was_given(path, name):
    fill(path, [Entry("NOTE", metadata={"actions": [f"tool:file:view {name}"]}), note("x")])

    assert seqs(path, Filter(path=name)) == [1]


@pytest.mark.parametrize("microseconds", [387753, 387754, 0, 1, 999999])
def test_an_entry_is_found_at_its_own_time(path, microseconds):
    moment = datetime(2026, 11, 22, 23, 36, 17, microseconds, tzinfo=UTC)
    step = timedelta(microseconds=1)
    # Half of a microsecond more: what a clock says stands between two of them.
    fill(path, [note("x")], times=[moment.timestamp() + 5e-7])
    [row] = query(path, Filter("NOTE")).entries
    at = datetime.fromisoformat(row.timestamp)

    assert seqs(path, Filter("NOTE", since=at.timestamp(), until=at.timestamp())) == [1]
    assert seqs(path, Filter("NOTE", until=(at - step).timestamp())) == []
    assert seqs(path, Filter("NOTE", since=(at + step).timestamp())) == []


def test_a_bound_after_the_last_time_there_is_leaves_nothing_out(path):
    fill(path, [note("x")], times=[20.0])

    assert seqs(path, Filter("NOTE", until=253_402_304_399.0)) == [1]
    assert seqs(path, Filter("NOTE", since=253_402_304_399.0)) == []


def test_time_is_compared_with_what_the_entry_claims(path):
    fill(path, [note(str(n)) for n in range(4)], times=[10.0, 20.5, 30.0, 15.0])

    assert seqs(path, Filter(event_type="NOTE", since=15.0)) == [2, 3, 4]
    assert seqs(path, Filter(event_type="NOTE", until=20.5)) == [1, 2, 4]
    assert seqs(path, Filter(event_type="NOTE", since=11, until=29)) == [2, 4]


def test_lines_of_all_lengths_are_found_across_the_pieces_that_are_read(path):
    sizes = [0, limits.ledger_scan_chunk_bytes, 10, 1_000_000, limits.ledger_scan_chunk_bytes - 400]
    fill(path, [note(str(number), size) for number, size in enumerate(sizes * 2)])

    rows = query(path, Filter()).entries
    assert [row.seq for row in rows] == list(range(11))
    with open(path, "rb") as file:
        assert b"".join(row.line + b"\n" for row in rows) == file.read()


def test_a_bad_line_on_the_way_is_part_of_the_answer(path):
    fill(path, [note("one")])
    place = os.path.getsize(path)
    with open(path, "ab") as file:
        file.write(b'garbage\n{"id":"LED-x"}\n' + b"y" * 3_000_000 + b"\n")

    rows = query(path, Filter(event_type="NOTE"))

    assert [row.seq for row in rows.entries] == [1]
    assert [(bad.offset_bytes, bad.fault) for bad in rows.bad] == [
        (place, LineFault.GARBAGE),
        (place + 23, LineFault.TOO_LONG),
    ]
    everything = query(path, Filter())
    assert BadRow(place + 8, LineFault.FIELDS, everything.bad[1].detail) == everything.bad[1]


def test_more_bad_lines_than_are_listed_are_counted(path):
    fill(path, [])
    with open(path, "ab") as file:
        file.write(b"x\n" * (limits.ledger_problems_listed_max + 7))

    rows = query(path, Filter())

    assert (len(rows.bad), rows.bad_omitted) == (limits.ledger_problems_listed_max, 7)


def test_an_unfinished_line_is_counted_and_not_read(path):
    fill(path, [note("one")])
    with open(path, "ab") as file:
        file.write(b'{"id":')

    rows = query(path, Filter())

    assert [row.seq for row in rows.entries] == [0, 1]
    assert (rows.bad, rows.unfinished_bytes) == ((), 6)


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n", b"x", b"x\n", bytes(10), b"\n" * 600_000])
def test_a_file_that_is_no_ledger_gives_no_rows(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)

    rows = query(os.fspath(path), Filter())

    assert rows.entries == ()
    assert len(rows.bad) + rows.bad_omitted == content.count(b"\n")
    assert rows.unfinished_bytes == len(content) - (content.rfind(b"\n") + 1)


def test_a_ledger_that_is_not_there_cannot_be_queried(path):
    with pytest.raises(HostError, match="ledger not found"):
        query(path, Filter())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_cannot_be_queried(path, make):
    make(path)

    with pytest.raises(HostError, match="regular file"):
        query(path, Filter())
