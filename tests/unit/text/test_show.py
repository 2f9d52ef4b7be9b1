"""What is shown cannot pass for a row, a header or a notice."""

import pytest

from paddock import limits
from paddock.text.show import (
    cut,
    escape_notices,
    is_cut,
    number_line,
    number_lines,
    quote,
    show_line,
    show_name,
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain.txt", "plain.txt"),
        ("año.txt", "año.txt"),
        ("a\nb", "a\\nb"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("latin-\udce9", "latin-\\xe9"),
    ],
)
def test_a_name_is_one_line_without_control_and_direction_characters(name: str, shown: str) -> None:
    assert show_name(name) == shown


def test_a_tab_in_a_line_stays_and_a_lone_carriage_return_does_not() -> None:
    assert show_line("a\tb\rc") == ("a\tb\\rc", 1)


def test_rows_are_numbered_and_line_ends_are_not_shown() -> None:
    assert number_lines([b"a\r\n", b"b\n", b"c"], 9, 100) == "     9\ta\n    10\tb\n    11\tc"


def test_the_byte_order_mark_is_hidden_on_line_one_only() -> None:
    assert number_lines([b"\xef\xbb\xbfa\n"], 1, 100) == "     1\ta"
    assert number_lines([b"\xef\xbb\xbfa\n"], 2, 100) == "     2\t\\ufeffa"


def test_a_cut_line_says_how_much_is_missing() -> None:
    assert number_lines([b"abcdef\n"], 1, 4) == "     1\tabcd [... 2 more characters]"


def test_a_forged_row_stays_inside_its_own_row() -> None:
    row, escaped = number_line(1, "x\r     2\tforged\n")
    assert (row, escaped) == ("     1\tx\\r     2\tforged", 1)
    assert len(escape_notices(escaped)) == 1
    assert escape_notices(0) == []


def test_a_cut_text_says_so_and_is_known_by_it() -> None:
    texts = ["abcd", "abcde", "", "a… (more characters)"]
    shown = [cut(text, 4) for text in texts]
    assert shown == ["abcd", "abcd… (1 more characters)", "", "a… (… (16 more characters)"]
    assert [is_cut(text) for text in shown] == [False, True, False, True]
    assert [is_cut(text) for text in texts] == [False] * 4


def test_a_quoted_value_is_cut_at_the_limit_and_says_so() -> None:
    kept = limits.message_value_chars_max
    assert quote("x" * (kept + 5)) == f"'{'x' * kept}' (and 5 more characters)"
