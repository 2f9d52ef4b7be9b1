"""Hints for a text that is not there."""

from paddock.text.nearest import find_nearest


def test_a_line_that_differs_in_white_space_only_is_nearest() -> None:
    content = b"x = 1\n\tdef f( a ):\ny = 2\n"
    assert find_nearest(content, b"    def f(a):\n        pass") == [(2, "\tdef f( a ):")]


def test_a_similar_line_is_offered() -> None:
    assert find_nearest(b"the quick fox\nunrelated\n", b"the quick box") == [(1, "the quick fox")]


def test_nothing_is_offered_where_nothing_is_similar() -> None:
    assert find_nearest(b"alpha\nbeta\n", b"0123456789 0123456789") == []


def test_long_lines_are_not_compared_for_longer_than_a_bound() -> None:
    # Two lines of 60,000 characters took minutes.
    assert find_nearest(b"ab" * 30_000 + b"q", b"ba" * 30_000 + b"z") == []
