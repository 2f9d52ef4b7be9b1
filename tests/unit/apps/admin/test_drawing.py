"""Blocks become lines that no terminal can be misled by, and that fit."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paddock.apps.admin.show import (
    FittedLine,
    ShownTable,
    ShownText,
    TextLook,
    TextSpan,
    line,
    lines,
    pairs,
    plain_lines,
    row,
)
from paddock.apps.admin.terminal import RichDrawing
from paddock.text.show import show_line

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = st.text(
    alphabet=st.one_of(
        st.characters(), st.sampled_from("\x1b\x9b\x07\r\n\t\b\u202e\u2066\u2028[]m")
    ),
    max_size=120,
)


def drawn(block, width=40, colours=True) -> list[str]:
    return RichDrawing(colours=colours).lines(block, width)


def uncoloured(rows) -> list[str]:
    return [COLOURS.sub("", row) for row in rows]


@given(HOSTILE, st.integers(20, 90))
def test_no_text_reaches_the_terminal_as_anything_but_text(text, width):
    blocks = [
        lines(text, TextLook.BAD, gutter="  │ "),
        ShownTable((row(text, text),), ("one", "two")),
        FittedLine(row(text[:5]), TextSpan(text), row(text[:5])),
        pairs([("name", text)]),
    ]
    for block in blocks:
        for rows in (uncoloured(drawn(block, width)), plain_lines(block)):
            for each in rows:
                bad = {unicodedata.category(c) for c in each} & {"Cc", "Cs"}
                assert not bad, each
                assert not set(each) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(
    st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), max_size=200),
    st.integers(20, 60),
)
def test_text_is_wrapped_and_nothing_of_it_is_lost(text, width):
    rows = uncoloured(drawn(line(text, gutter="│ "), width))
    assert all(cell_len(each) <= width for each in rows)
    assert all(each.startswith("│") for each in rows)
    whole = "".join(each[2:] for each in rows)
    assert re.sub(r"\s", "", whole) == re.sub(r"\s", "", show_line(text)[0])


def test_a_line_that_goes_on_stands_as_far_in_as_it_began():
    rows = drawn(line("    " + "word " * 10), 30)
    assert rows == ["    word word word word word", "    word word word word word"]


def test_a_fitted_line_is_one_line_and_cuts_its_middle():
    block = FittedLine(row("#1 "), TextSpan("m" * 101), row(" · allow"))
    [each] = drawn(block, 40)
    assert each == "#1 " + "m" * 28 + "… · allow"
    [plain] = plain_lines(block)
    assert plain == "#1 " + "m" * 99 + "… · allow"
    assert drawn(FittedLine(row("#1 "), TextSpan("short"), row(" · allow")), 40) == [
        "#1 short · allow"
    ]


def test_columns_line_up_and_the_last_one_wraps():
    table = ShownTable((row("a", "x", "one two three"), row("aaaa", "xx", "y")), ("h", "", "last"))
    assert [each.rstrip() for each in uncoloured(drawn(table, 22))] == [
        "  h         last",
        "  a     x   one two",
        "            three",
        "  aaaa  xx  y",
    ]
    assert plain_lines(table) == [
        "  h         last",
        "  a     x   one two three",
        "  aaaa  xx  y",
    ]


def test_without_colours_nothing_but_colours_is_gone():
    block = ShownText(
        (row(TextSpan("bad", TextLook.BAD), TextSpan(" loud ", TextLook.LOUD), "plain"),)
    )
    [coloured], [other] = drawn(block), drawn(block, colours=False)
    assert uncoloured([coloured]) == uncoloured([other])
    assert "31" in "".join(COLOURS.findall(coloured))
    found = {code for each in COLOURS.findall(other) for code in re.findall(r"\d+", each)}
    assert found <= {"0", "1", "7"}


def test_the_growing_line_shows_its_end():
    live = RichDrawing(colours=True).wrapped("word " * 100, 20, 3)
    assert live == "\n".join(["word word word word"] * 3)


@pytest.mark.parametrize("width", [0, 1, 5])
def test_a_terminal_that_is_too_narrow_is_drawn_for_the_narrowest(width):
    assert all(cell_len(each) <= 20 for each in uncoloured(drawn(lines("word " * 20), width)))
