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


UTF16 = {"little": b"\xff\xfe", "big": b"\xfe\xff"}
TEXTS = {
    "plain": ("foo bar\nfoo\n", ["1:foo bar", "2:foo"]),
    "no line end": ("pad\nfoo", ["2:foo"]),
    "crlf": ("pad\r\nfoo\r\n", ["2:foo"]),
    "beyond ascii": ("\u6f22 foo \U0001f600\n", ["1:\u6f22 foo \U0001f600"]),
    "large": ("pad\n" * 200_000 + "foo\n", ["200001:foo"]),
}


def utf16(text, order):
    return UTF16[order] + text.encode(f"utf-16-{order[0]}e")


@pytest.mark.parametrize("order", UTF16)
@pytest.mark.parametrize("pattern", ["foo", "fo+", "foo\\b"])
@pytest.mark.parametrize("text", TEXTS)
def test_utf_16_with_a_mark_is_searched_as_what_it_says(desk, order, pattern, text):
    content, expected = TEXTS[text]
    desk.write("d/a", utf16(content, order))
    found = [f"d/a:{row}" for row in expected]
    assert rows(desk, pattern=pattern) == rows(desk, pattern=pattern, path="d/a") == found
    # With a limit the files are searched in their order, by another way.
    assert rows(desk, pattern=pattern, limit=1)[0] == found[0]
    assert desk.run("grep_dev", pattern=pattern).details["match_count"] == (
        len(expected) if text != "large" else 0
    )


@pytest.mark.parametrize(
    "content",
    ["foo\n".encode("utf-16-le"), utf16("foo\n\0\n", "little"), "foo\n".encode("utf-32")],
    ids=["without a mark", "with a NUL character", "utf-32"],
)
def test_what_only_looks_like_utf_16_is_binary(desk, content):
    desk.write("a", content)
    assert rows(desk, pattern="foo") == ["No matches found."]
    assert rows(desk, pattern="foo", path="a")[1].startswith("[The file is binary")
    assert desk.run("grep_dev", pattern="foo").details["skipped"]["binary"] == 1


@pytest.mark.parametrize("limit", [1, 100])
def test_utf_16_that_is_too_large_is_said_not_to_be_searched(desk, limit):
    desk.write("a", utf16("foo\n" * 1_100_000, "little"))
    desk.write("b", b"foo\nfoo\n")
    said = "[Not searched (UTF-16 over 8 MB): 'a'.]"
    assert rows(desk, pattern="foo", limit=limit)[-1] == said
    named = ["No matches found.", "[The file is UTF-16 and over 8 MB, and was not searched.]"]
    assert rows(desk, pattern="foo", path="a") == named


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
    lines = content.removesuffix(b"\n").split(b"\n", 40)[:40]
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
