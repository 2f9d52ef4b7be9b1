"""A few numbered lines round an edit, at the place of the edit."""

from paddock import limits
from paddock.text.locate import Span
from paddock.text.show import number_lines


def snippet_around(content: bytes, span: Span) -> str:
    """The lines of `span` with three more before and after, numbered.

    Only the neighbourhood is split into lines, so the cost does not grow with
    the file (the line number is one count of newlines). A snippet of more than
    `limits.snippet_lines_max` lines is cut in the middle and says so.
    """
    start = _back_lines(content, span.start, limits.snippet_context_lines)
    end = _forward_lines(content, span.end, limits.snippet_context_lines)
    first = content.count(b"\n", 0, start) + 1
    lines = content[start:end].split(b"\n")
    if lines and lines[-1] == b"":
        lines.pop()
    half = limits.snippet_lines_max // 2
    if len(lines) <= limits.snippet_lines_max:
        return number_lines(lines, first, limits.snippet_line_chars_max)
    head = number_lines(lines[:half], first, limits.snippet_line_chars_max)
    tail_first = first + len(lines) - half
    tail = number_lines(lines[-half:], tail_first, limits.snippet_line_chars_max)
    missing = len(lines) - 2 * half
    return f"{head}\n[... {missing} lines not shown; view offset={first + half} shows them]\n{tail}"


def snippet_of_head(content: bytes) -> str:
    """The first lines of a new file, numbered; the cut is stated."""
    lines = content.split(b"\n", limits.snippet_lines_max)
    rest = lines.pop() if len(lines) > limits.snippet_lines_max else b""
    if lines and lines[-1] == b"":
        lines.pop()
    shown = number_lines(lines, 1, limits.snippet_line_chars_max)
    if not rest:
        return shown
    missing = rest.count(b"\n") + (not rest.endswith(b"\n"))
    return f"{shown}\n[... {missing} lines not shown; view offset={len(lines) + 1} shows them]"


def _back_lines(content: bytes, at: int, count: int) -> int:
    """The start of the line that is `count` lines before the one at `at`."""
    start = content.rfind(b"\n", 0, at) + 1
    for _ in range(count):
        if start == 0:
            break
        start = content.rfind(b"\n", 0, start - 1) + 1
    return start


def _forward_lines(content: bytes, at: int, count: int) -> int:
    """Just past the line that is `count` lines after the one that ends at `at`."""
    # A span that ends right after a newline ends on the line before.
    end = content.find(b"\n", max(at - 1, 0)) + 1
    for _ in range(count):
        if end == 0:
            break
        end = content.find(b"\n", end) + 1
    return end or len(content)
