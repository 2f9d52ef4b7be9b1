"""`$` in a pattern: before the line end, be it LF or CRLF, and nothing else is changed by that."""

import pytest

from paddock.errors import InvalidPatternError
from paddock.workspace.search.program import before_line_end


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a$", "a(?R:$)"),
        ("^$|b$", "^(?R:$)|b(?R:$)"),
        (r"a\\$", r"a\\(?R:$)"),
        (r"\\r$", r"\\r(?R:$)"),
        (r"\(?x$", r"\(?x(?R:$)"),
        ("[^;]$", "[^;](?R:$)"),
        ("[]$]$", "[]$](?R:$)"),
        ("[^]$]$", "[^]$](?R:$)"),
        ("[-]$", "[-](?R:$)"),
        ("[a[b$]]$", "[a[b$]](?R:$)"),
        ("[[:alpha:]$]$", "[[:alpha:]$](?R:$)"),
        ("[a&&[^$]]$", "[a&&[^$]](?R:$)"),
        ("[--[a]$]$", "[--[a]$](?R:$)"),
        ("[!-[$]$", "[!-[$](?R:$)"),
        (r"[\]$]$", r"[\]$](?R:$)"),
        ("(?<a[b>x)$", "(?<a[b>x)(?R:$)"),
    ],
)
def test_a_dollar_outside_of_classes_stands_before_either_line_end(pattern, expected):
    assert before_line_end(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        r"a\$",
        "[$]",
        "[a$",
        r"\r$",
        r"\x0d$",
        r"[\x0D]?$",
        r"\x{d}$",
        r"\u{000D}$",
        r"\u000d$",
        r"\U0000000D$",
        "\r$",
        "(?x) a $ # [",
        "(?i-x:a)$",
        "\\",
    ],
)
def test_a_pattern_that_names_cr_or_no_line_end_is_left_as_it_is(pattern):
    assert before_line_end(pattern) == pattern


def test_more_dollars_than_fit_into_a_command_are_an_error():
    assert len(before_line_end("$" * 20_000)) == 120_000
    with pytest.raises(InvalidPatternError) as refusal:
        before_line_end("$" * 30_000)
    assert refusal.value.code == "pattern.invalid"
    assert refusal.value.message == (
        "the pattern has 30000 dollar signs, more than fit into a command"
    )


@pytest.mark.parametrize("piece", ["(?", "(?<", "(?x", "(?P<a", "[", "[a-", "[^", "\\\\", "(?aa"])
def test_a_pattern_of_pieces_without_an_end_takes_no_time(piece):
    pattern = piece * (65_000 // len(piece)) + "$"
    assert before_line_end(pattern) in (pattern, pattern[:-1] + "(?R:$)")
    pattern = piece + "x" * 65_000 + "$"
    assert before_line_end(pattern) in (pattern, pattern[:-1] + "(?R:$)")
