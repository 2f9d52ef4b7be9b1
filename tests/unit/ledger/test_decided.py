"""Entries of some types, newest first; a line that holds none is given too."""

from pathlib import Path

from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.values.entries import Entry
from tests.support.ledgers import INTENT, RESULT, open_ledger

TYPES = ("TOOL_INTENT", "TOOL_DENIED")
DENIED = Entry("TOOL_DENIED", agent="other", call_id="call-2", metadata={"tool": "view"})


def rows(path: Path, wanted: Filter) -> list[tuple[str, int] | str]:
    return [
        (row.entry.event_type, row.seq) if isinstance(row, StoredEntry) else row.fault.value
        for row in find_decided(str(path), TYPES, wanted)
    ]


def test_entries_of_these_types_come_newest_first(tmp_path: Path) -> None:
    path = tmp_path / "ho1m.jsonl"
    ledger = open_ledger(path)
    ledger.append([INTENT, RESULT, DENIED, INTENT])
    ledger.close()
    assert rows(path, Filter()) == [("TOOL_INTENT", 4), ("TOOL_DENIED", 3), ("TOOL_INTENT", 1)]
    assert rows(path, Filter(agent="other")) == [("TOOL_DENIED", 3)]
    assert rows(path, Filter(call_id="call-1")) == [("TOOL_INTENT", 4), ("TOOL_INTENT", 1)]
    assert rows(path, Filter(since=1.0)) == []


def test_a_line_that_holds_no_entry_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ho1m.jsonl"
    ledger = open_ledger(path)
    ledger.append([INTENT, RESULT])
    ledger.close()
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([content[0], b"garbage\n", content[2]]))
    found = list(find_decided(str(path), TYPES, Filter()))
    assert found == [BadRow(len(content[0]), found[0].fault, found[0].detail)]  # type: ignore[union-attr]
