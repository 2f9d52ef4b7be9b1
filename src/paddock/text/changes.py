"""What changed between two texts, as a person or a model reads it."""

import difflib

from paddock import limits
from paddock.text.show import show_line

_DIFF_BYTES_MAX = 400_000


def unified_diff(before: bytes, after: bytes, name: str) -> str:
    """A unified diff, cut at `limits.snippet_lines_max` lines with the cut stated.

    Contents over 400 kB together are not compared line by line; the answer then
    says so and gives the sizes.
    """
    if len(before) + len(after) > _DIFF_BYTES_MAX:
        return f"[too large for a diff: {len(before)} bytes before, {len(after)} bytes after]"
    old = before.decode("utf-8", "backslashreplace").split("\n")
    new = after.decode("utf-8", "backslashreplace").split("\n")
    rows = [
        show_line(row)[0]
        for row in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
    ]
    missing = len(rows) - limits.snippet_lines_max
    if missing > 0:
        rows = [*rows[: limits.snippet_lines_max], f"[... {missing} more lines of the diff]"]
    return "\n".join(rows)
