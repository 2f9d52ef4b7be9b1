"""A few numbered lines round an edit, at the place of the edit."""

from paddock import limits
from paddock.text.show import number_lines
from paddock.text.splice import Spliced


def snippet_around(spliced: Spliced) -> str:
    """The lines of what was inserted with three more before and after, numbered.

    Only the neighbourhood is split into lines, so the cost does not grow with
    the file (the line number is one count of newlines). A snippet of more than
    `limits.snippet_lines_max` lines is cut in the middle and says so.
    """
    before, replaced = spliced.before, spliced.replaced
    start = _back_lines(before, replaced.start, limits.snippet_context_lines)
    changed = before[start : replaced.start] + spliced.inserted
    # What ends right after a newline ends on the line before.
    after = limits.snippet_context_lines + (not changed.endswith(b"\n"))
    end = _forward_lines(before, replaced.end, after)
    first = before.count(b"\n", 0, start) + 1
    lines = (changed + before[replaced.end : end]).split(b"\n")
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
    """Just past the `count`th line end from `at` on, or the content's end."""
    end = at
    for _ in range(count):
        end = content.find(b"\n", end) + 1
        if end == 0:
            return len(content)
    return end
