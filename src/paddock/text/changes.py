"""What changed between two texts, as a person or a model reads it."""

import difflib

from paddock import limits
from paddock.text.show import show_line

_DIFF_BYTES_MAX = 400_000
_DIFF_LINES_MAX = 20_000
"""Comparing grows faster than the lines do, at worst with their square."""


def unified_diff(
    before: bytes, after: bytes, name: str, lines_max: int = limits.snippet_lines_max
) -> str:
    """A unified diff, cut at `lines_max` lines with the cut stated.

    Contents over 400 kB or 20,000 lines together are not compared line by line; the answer then
    says so and gives the sizes.
    """
    lines = before.count(b"\n") + after.count(b"\n")
    if len(before) + len(after) > _DIFF_BYTES_MAX or lines > _DIFF_LINES_MAX:
        return f"[too large for a diff: {len(before)} bytes before, {len(after)} bytes after]"
    old, new = _lines(before), _lines(after)
    found = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))
    rows = [_shown(row) for row in found[:lines_max]]
    missing = len(found) - lines_max
    if missing > 0:
        rows.append(f"[... {missing} more lines of the diff]")
    return "\n".join(rows)


def _lines(content: bytes) -> list[str]:
    """Lines without their ends; a last one that lacks its newline says so, as diff(1) does."""
    lines = content.decode("utf-8", "backslashreplace").split("\n")
    last = lines.pop()
    return [*lines, f"{last} [no newline at the end]"] if last else lines


def _shown(row: str) -> str:
    # Cut before it is escaped: a row may be as long as the whole content. Its mark is not
    # part of the line.
    missing = len(row) - 1 - limits.snippet_line_chars_max
    if missing <= 0:
        return show_line(row)[0]
    return f"{show_line(row[:-missing])[0]} [... {missing} more characters]"
