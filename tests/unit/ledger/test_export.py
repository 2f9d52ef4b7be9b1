"""What goes out of a ledger, and that its root can be made again from what does."""

from pathlib import Path

import pytest

from paddock import limits
from paddock.errors import UsageError
from paddock.ledger.export import ExportedLines, LeftOutLines, PageText, Row, export_page, make_page
from paddock.ledger.format.notes import Growing, leaf_nodes, node_hash, root_of
from paddock.ledger.query import Filter
from paddock.values.entries import Entry
from tests.support.ledgers import note, open_ledger

NOTES = Filter(event_type="CHOSEN")


def made(path: Path, count: int, chosen: frozenset[int] = frozenset()) -> list[bytes]:
    """A ledger of GENESIS and so many entries; those of these numbers are CHOSEN."""
    ledger = open_ledger(path)
    entries = [
        Entry("CHOSEN", reason=f"{n}") if n in chosen else note(f"{n}") for n in range(1, count + 1)
    ]
    if entries:
        ledger.append(entries)
    ledger.close()
    return path.read_bytes().splitlines()


def root(rows: list[Row], size: int) -> bytes:
    """The root over the first `size` leaves, from rows alone, as a page makes it."""
    from hashlib import sha256

    parts: list[tuple[int, bytes]] = []
    position = 0
    for row in rows:
        if position == size:
            break
        level, value = (
            (row.level, row.root)
            if isinstance(row, LeftOutLines)
            else (0, sha256(b"\0" + row).digest())
        )
        assert position % (1 << level) == 0
        position += 1 << level
        while parts and parts[-1][0] == level:
            level, value = level + 1, node_hash(parts.pop()[1], value)
        parts.append((level, value))
    assert position == size
    result = parts[-1][1]
    for _, value in reversed(parts[:-1]):
        result = node_hash(value, result)
    return result


def whole_root(lines: list[bytes], size: int) -> bytes:
    from hashlib import sha256

    return root_of(leaf_nodes([sha256(b"\0" + line).digest() for line in lines]), size)


@pytest.mark.parametrize("count", [0, 1, 2, 6, 7, 8, 40])
@pytest.mark.parametrize("chosen", [frozenset(), frozenset({1}), frozenset({3, 4, 20, 38})])
def test_the_root_over_a_page_is_that_of_the_whole_ledger_wherever_it_is_cut(
    tmp_path: Path, count: int, chosen: frozenset[int]
) -> None:
    path = tmp_path / "a.jsonl"
    lines = made(path, count, chosen)
    cuts = sorted({1, min(5, len(lines)), len(lines)})
    found = export_page(str(path), NOTES, None, cuts)
    shown = [row for row in found.rows if isinstance(row, bytes)]
    kept = [lines[0], *(lines[n] for n in sorted(chosen) if n < len(lines))]
    assert (shown, found.lines, found.shown) == (kept, len(lines), len(kept))
    for size in cuts:
        assert root(found.rows, size) == whole_root(lines, size)
    # What is left out is stood in for by few hashes, however much it is.
    assert len(found.rows) <= len(kept) + 12 * (len(kept) + len(cuts) + 1)


def test_before_a_shown_line_stands_the_leaf_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    made(path, 30, frozenset({20}))
    rows = export_page(str(path), NOTES, None, ()).rows
    at = rows.index(next(row for row in rows if isinstance(row, bytes) and b"CHOSEN" in row))
    before = rows[at - 1]
    assert isinstance(before, LeftOutLines)
    assert before.level == 0


def test_everything_goes_out_as_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = made(path, 5, frozenset({2}))
    assert list(ExportedLines(str(path), None)) == lines
    assert list(ExportedLines(str(path), NOTES)) == [lines[2]]
    whole = export_page(str(path), None, None, ())
    assert (whole.rows, whole.torn_bytes) == (lines, 0)


def test_the_last_ones_are_chosen_and_the_first_line_always(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = made(path, 9)
    found = export_page(str(path), None, 2, ())
    assert [row for row in found.rows if isinstance(row, bytes)] == [lines[0], *lines[-2:]]


def test_a_line_that_holds_no_entry_is_always_on_the_page_and_torn_bytes_are_counted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    lines = made(path, 4)
    path.write_bytes(b"\n".join([*lines[:2], b"\xffgarbage", *lines[3:]]) + b"\nhalf")
    found = export_page(str(path), NOTES, None, ())
    shown = [row for row in found.rows if isinstance(row, bytes)]
    assert (shown, found.bad, found.torn_bytes) == ([lines[0], b"\xffgarbage"], 1, 4)


def test_what_no_page_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    made(path, 9)
    monkeypatch.setattr(limits, "export_page_entries_max", 5)
    with pytest.raises(UsageError, match="a page holds 5 entries"):
        export_page(str(path), None, None, ())
    assert export_page(str(path), None, 4, ()).shown == 5
    monkeypatch.setattr(limits, "export_page_entries_max", 50)
    monkeypatch.setattr(limits, "export_page_bytes_max", 700)
    with pytest.raises(UsageError, match="700 bytes"):
        export_page(str(path), None, None, ())
    assert export_page(str(path), None, 2, ()).shown == 3


def test_a_page_holds_text_that_no_parser_takes_for_markup() -> None:
    hostile = b'{"reason":"</pre><script>alert(1)</script>&amp; @LINES@ @SCRIPT@"}'
    page = make_page(
        PageText("a<b>", "c&d", "key</pre>", ["</pre><script>1</script>"]),
        [hostile, b"\xff\r\n", b"{\r}", b"=text", LeftOutLines(3, b"\1" * 32)],
    ).decode()
    assert page.count("<script>") == page.count("</script>") == 1
    assert page.count("<pre") == page.count("</pre>") == 3
    assert "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp; @LINES@ @SCRIPT@" in page
    assert "\n=/w0K\n=ew19\n=PXRleHQ=\n#3 " + "01" * 32 + "\n</pre>" in page
    assert "default-src 'none'" in page
    assert Growing().size == 0
