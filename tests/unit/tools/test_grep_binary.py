"""`grep` and NUL bytes far into a file, and context beside lines of any length."""

import pytest

FAR = b"pad pad\n" * 1_200_000
"""More than a search holds in memory."""


def rows(desk, **arguments):
    return desk.run("grep", **arguments).content.split("\n")


@pytest.fixture
def far(desk):
    """A file with a NUL byte behind more than 8 MiB, and matches on both sides of it."""
    desk.write("d/far", b"needle one\n" + FAR + b"\0\nneedle two\nneedle three\n")
    return desk


def test_a_file_with_a_nul_byte_however_far_is_text_when_it_is_named(far):
    assert rows(far, pattern="needle [a-z]+", path="d/far") == [
        "d/far:1:needle one",
        "d/far:1200003:needle two",
        "d/far:1200004:needle three",
    ]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_file_with_a_nul_byte_however_far_has_no_rows_below_a_directory(far, limit):
    far.write("d/text", b"needle four\n" + FAR)
    for path in (".", "d"):
        found = rows(far, pattern="needle [a-z]+", path=path, limit=limit)
        assert found == ["d/text:1:needle four"]


def test_it_has_none_where_the_limit_ends_the_search_before_the_nul_byte(desk):
    desk.write("far", b"needle\n" * 3 + FAR + b"\0\n")
    desk.write("text", b"needle\n" * 3 + FAR)
    assert rows(desk, pattern="needle", limit=2)[:2] == ["text:1:needle", "text:2:needle"]
    assert rows(desk, pattern="needle", limit=2, path="far")[:2] == ["far:1:needle", "far:2:needle"]


MARKS = {b"\xff\xfe": r"\xff\xfe", b"\xfe\xff": r"\xfe\xff"}
UTF16 = (
    "[The file is binary and was not searched: "
    "it has a byte-order mark of UTF-16 at its beginning.]"
)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("pattern", ["foo", "fo+", "foo$", "."])
def test_a_file_with_a_mark_of_utf_16_has_no_rows_at_any_limit(desk, mark, pattern):
    for name, content in {
        "a": b"foo bar\nfoo\n",
        "b": "foo\n".encode("utf-16-le"),
        "c": "\u6f22\u5b57".encode("utf-16-be"),
        "d": b"foo\n" + b"pad\n" * 400_000,
        "e": b"",
    }.items():
        desk.write(name, mark + content)
        assert rows(desk, pattern=pattern, path=name) == ["No matches found.", UTF16]
    desk.write("m", b"foo " + mark + b"\nfoo\n")
    desk.write("t", b"foo\n" * 3)
    expected = ["m:2:foo", "t:1:foo", "t:2:foo", "t:3:foo"]
    if pattern != "foo$":
        expected.insert(0, f"m:1:foo {MARKS[mark]}")
    for limit in (1, 2, 3, 5, 100):
        shown = rows(desk, pattern=pattern, limit=limit)
        assert [row for row in shown if not row.startswith("[")] == expected[:limit]


@pytest.mark.parametrize("mark", MARKS)
def test_a_file_with_a_mark_of_utf_16_is_counted_as_binary(desk, mark):
    desk.write("a", mark + b"foo bar\n")
    desk.write("b", b"foo\n" + mark)
    output = desk.run("grep_dev", pattern="foo")
    assert output.content == "b:1:foo\n[1 file searched; passed by: 1 binary.]"
    named = desk.run("grep_dev", pattern="foo", path="a")
    assert named.content == "No matches found.\n[0 files searched; passed by: 1 binary.]"


LONG = b"x" * 600_000
MEGABYTES = b"pad\n" * 300_000


CONTENTS = [
    b"before\n" + LONG + b" needle\nafter\n",
    b"before\n" + LONG + b"\nneedle\n" + LONG + b"\nafter\n",
    LONG + b"\nneedle\nneedle\n" + LONG + b"\nneedle\n",
    b"\nneedle\n\n",
    b"needle\n" + b"x" * 3_000_000 + b"\nneedle\n",
    b"needle\n" + LONG * 2,
]


def expected_rows(content, context):
    """What stands in a file called `a` within so many lines of a match, cut as rows are."""
    lines = content.removesuffix(b"\n").split(b"\n")[:40]
    matching = {at for at, line in enumerate(lines) if b"needle" in line}
    marks = [":" if at in matching else "-" for at in range(len(lines))]
    return [
        f"a{marks[at]}{at + 1}{marks[at]}{line[:500].decode()}"
        for at, line in enumerate(lines)
        if any(abs(at - match) <= context for match in matching)
    ]


@pytest.mark.parametrize("tail", [b"", MEGABYTES, FAR], ids=["split", "held", "read in pieces"])
@pytest.mark.parametrize("content", CONTENTS)
def test_context_is_there_beside_lines_of_any_length(desk, content, tail):
    desk.write("a", content + tail)
    for context in (0, 1, 2, 10):
        found = rows(desk, pattern="needle", context=context)
        # A notice that lines were cut stands behind the rows, and how much of each at its end.
        told = [row.partition(" [... ")[0] for row in found if row.startswith("a")]
        assert told == expected_rows(content + tail, context)
