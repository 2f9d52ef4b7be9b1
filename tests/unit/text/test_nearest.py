"""Hints for a text that is not there."""

import pytest

from paddock.text.edit import NearLine, find_nearest


def test_a_line_that_differs_in_white_space_only_is_nearest() -> None:
    content = b"x = 1\n\tdef f( a ):\ny = 2\n"
    assert find_nearest(content, b"    def f(a):\n        pass") == [NearLine(2, "\tdef f( a ):")]


def test_a_similar_line_is_offered() -> None:
    content = b"the quick fox\nunrelated\n"
    assert find_nearest(content, b"the quick box") == [NearLine(1, "the quick fox")]


def test_nothing_is_offered_where_nothing_is_similar() -> None:
    assert find_nearest(b"alpha\nbeta\n", b"0123456789 0123456789") == []


def test_long_lines_are_not_compared_for_longer_than_a_bound() -> None:
    # Two lines of 60,000 characters took minutes.
    assert find_nearest(b"ab" * 30_000 + b"q", b"ba" * 30_000 + b"z") == []


FUNCTION = b"import os\n\ndef f():\n    a = 1\n    b = 2\n    return a\n"


@pytest.mark.parametrize(
    ("sought", "line"),
    [
        (b"def f():\n    a = 1\n  b = 2\n    return a\n", NearLine(5, "    b = 2")),
        (b"def f():\n    a = 1\n    b = 2 \n    return a\n", NearLine(5, "    b = 2")),
        (b"def f():\n    a = 1\n    b = 2\n    return b", NearLine(6, "    return a")),
        (b"def f():\n\n    a = 1\n", NearLine(4, "    a = 1")),
        (b"f():\n    a = 1\n    b = 3", NearLine(5, "    b = 2")),
        (b"\ndef f():\n    a = 2", NearLine(4, "    a = 1")),
        (b"\n\n\ndef f():\n    a = 1", NearLine(1, "import os")),
        (b"def f():\r\n    a = 1", NearLine(3, "def f():")),
    ],
)
def test_of_several_lines_the_first_one_that_differs_is_told(sought: bytes, line: NearLine) -> None:
    assert find_nearest(FUNCTION, sought) == [line]


def test_a_line_end_with_cr_is_no_difference_to_one_without() -> None:
    content = FUNCTION.replace(b"\n", b"\r\n")
    sought = b"def f():\n    a = 1\n   b = 2\n"
    assert find_nearest(content, sought) == [NearLine(5, "    b = 2")]


@pytest.mark.parametrize("content", [b"one\ntwo\n", b"one\ntwo"])
def test_a_text_that_goes_on_behind_the_end_is_told_where_that_is(content: bytes) -> None:
    assert find_nearest(content, b"one\ntwo\nthree\n") == [NearLine(2, "two", is_end=True)]


def test_of_many_places_those_that_agree_longest_come_first() -> None:
    content = b"try:\n    a()\n" * 9 + b"try:\n    b()\n    c()\nend\n"
    assert find_nearest(content, b"try:\n    b()\n    d()\n") == [
        NearLine(21, "    c()"),
        NearLine(2, "    a()"),
        NearLine(4, "    a()"),
    ]


def test_a_difference_that_two_places_come_to_is_told_once() -> None:
    found = find_nearest(b"a\na\na\nc\n", b"a\na\nb")
    assert found == [NearLine(3, "a"), NearLine(4, "c")]


def test_places_are_not_compared_for_longer_than_a_bound() -> None:
    # Each of the places agrees nearly to the end: that is the square of their number.
    content = b"a\n" * 200_000 + b"b\n"
    assert find_nearest(content, b"a\n" * 100_000 + b"c") == [
        NearLine(number, "a") for number in (100_001, 100_002, 100_003)
    ]
    assert find_nearest(b"a\n" * 1_000_000, b"a\n" * 999_999 + b"c") == []
