"""`$` in a pattern: whether one stands before the line end, which may be LF or CRLF."""

import pytest

from paddock.workspace.search.ripgrep import has_line_end


@pytest.mark.parametrize(
    "pattern",
    [
        "a$",
        "^$|b$",
        r"a\\$",
        r"\\r$",
        r"\(?x$",
        "[^;]$",
        "[]$]$",
        "[^]$]$",
        "[-]$",
        "[a[b$]]$",
        "[[:alpha:]$]$",
        "[a&&[^$]]$",
        "[--[a]$]$",
        "[!-[$]$",
        r"[\]$]$",
        "(?<a[b>x)$",
        "(?x) a $ # [",
        "(?i-x:a)$",
    ],
)
def test_a_dollar_outside_of_classes_stands_before_the_line_end(pattern):
    assert has_line_end(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        r"a\$",
        "[$]",
        "[]$]",
        "[^]$]",
        "[a[b$]]",
        "[[:alpha:]$]",
        "[a&&[^$]]",
        "[--[a]$]",
        "[!-[$]",
        r"[\]$]",
        "[a$",
        r"\r$",
        r"\x0d$",
        r"[\x0D]?$",
        r"\x{d}$",
        r"\u{000D}$",
        r"\u000d$",
        r"\U0000000D$",
        "\r$",
        "\\",
    ],
)
def test_a_pattern_that_names_cr_or_no_line_end_has_none_that_may_be_crlf(pattern):
    assert not has_line_end(pattern)


@pytest.mark.parametrize("piece", ["(?", "(?<", "(?x", "(?P<a", "[", "[a-", "[^", "\\\\", "(?aa"])
def test_a_pattern_of_pieces_without_an_end_takes_no_time(piece):
    for pattern in (piece * (65_000 // len(piece)) + "$", piece + "x" * 65_000 + "$"):
        assert has_line_end(pattern) is not piece.startswith("[")
