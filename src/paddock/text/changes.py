"""Diff two texts for a person or a model.

A row of content begins with a space, `-` or `+`. All others are Paddock's: `@@`, the two
headers, a backslash for a remark on the row above, `[` for an omission.

Threat: a person approves what a diff shows. Content that could fake a header, a remark or
the mark of a cut would disguise a change, or show a part as the whole.
"""

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Final

from paddock import limits
from paddock.text.show import show_line

_DIFF_BYTES_MAX: Final = 400_000
_DIFF_LINES_MAX: Final = 20_000
_STEPS_MAX: Final = 10_000_000
_CONTEXT_LINES: Final = 3
_CUT: Final = "\\ [... "


def unified_diff(
    before: bytes, after: bytes, name: str, lines_max: int = limits.snippet_lines_max
) -> str:
    """Return a unified diff, cut at `lines_max` lines with the cut stated; "" if nothing changed.

    If both contents together exceed 400 kB or 20,000 lines, or the comparison takes too many
    steps, the result only states the sizes. A row of content that looks like a header has its
    second character escaped.
    """
    lines = before.count(b"\n") + after.count(b"\n")
    found = None
    if len(before) + len(after) <= _DIFF_BYTES_MAX and lines <= _DIFF_LINES_MAX:
        found = _find_rows(_lines(before), _lines(after), name)
    if found is None:
        return f"[too large for a diff: {len(before)} bytes before, {len(after)} bytes after]"
    rows = found[:lines_max]
    missing = len(found) - lines_max
    if missing > 0:
        rows.append(f"[... {missing} more lines of the diff]")
    return "\n".join(rows)


def is_whole_diff(diff: str) -> bool:
    """Return True if a diff, or several joined, is complete."""
    return not any(row.startswith(("[", _CUT)) for row in diff.split("\n"))


def _lines(content: bytes) -> list[bytes]:
    """Split at LF only, keeping the line ends: a last line without one differs from one with it."""
    *lines, last = content.split(b"\n")
    return [*(line + b"\n" for line in lines), *([last] if last else [])]


def _content_rows(mark: str, lines: Sequence[bytes]) -> Iterator[str]:
    for line in lines:
        text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        # Cut before escaping: a line may be as long as the whole content.
        kept = text[: limits.snippet_line_chars_max]
        row = f"{mark}{show_line(kept)[0]}"
        if row.startswith(("--- ", "+++ ")):
            row = f"{mark}\\x{ord(row[1]):02x}{row[2:]}"
        yield row
        if missing := len(text) - len(kept):
            yield f"{_CUT}{missing} more characters]"
        if not line.endswith(b"\n"):
            yield "\\ No newline at the end"


def _find_rows(old: list[bytes], new: list[bytes], name: str) -> list[str] | None:
    matcher = _BoundedMatcher(old, new)
    hunks = list(matcher.get_grouped_opcodes(_CONTEXT_LINES))
    if matcher.is_exhausted:
        return None
    rows = [f"--- a/{name}", f"+++ b/{name}"] if hunks else []
    for hunk in hunks:
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = hunk[0], hunk[-1]
        rows.append(f"@@ -{_span(old_from, old_to)} +{_span(new_from, new_to)} @@")
        for kind, i, i_end, j, j_end in hunk:
            if kind == "equal":
                rows += _content_rows(" ", old[i:i_end])
                continue
            rows += _content_rows("-", old[i:i_end])
            rows += _content_rows("+", new[j:j_end])
    return rows


def _span(begin: int, end: int) -> str:
    """Format the lines of one side of a hunk like diff(1); if empty, the line before them."""
    length = end - begin
    if length == 1:
        return f"{end}"
    return f"{begin + 1 if length else begin},{length}"


class _BoundedMatcher(SequenceMatcher[bytes]):
    """Finds common blocks in a bounded number of steps.

    Threat: a few kilobytes of repeated lines would keep a call computing for minutes, even a
    refused one.
    """

    def __init__(self, old: list[bytes], new: list[bytes]) -> None:
        super().__init__(None, old, new)
        self._old = old
        self._new = new
        # A documented attribute that the type stubs lack: the positions of each line in `new`,
        # without the lines that are so frequent that they are ignored.
        places: dict[bytes, list[int]] = vars(self)["b2j"]
        steps = (1 + len(places.get(line, ())) for line in old)
        self._steps_before = [0, *accumulate(steps)]
        """The steps of searching `new` for all lines of `old` before an index."""
        self._left = _STEPS_MAX
        self.is_exhausted = False

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Return a common prefix, else a common suffix, else the longest common block."""
        ahi = len(self._old) if ahi is None else ahi
        bhi = len(self._new) if bhi is None else bhi
        most = min(ahi - alo, bhi - blo)
        if same := _same(self._old, self._new, range(alo, alo + most), blo - alo):
            return Match(alo, blo, same)
        if same := _same(self._old, self._new, range(ahi - 1, ahi - 1 - most, -1), bhi - ahi):
            return Match(ahi - same, bhi - same, same)
        self._left -= self._steps_before[ahi] - self._steps_before[alo]
        if self._left < 0:
            self.is_exhausted = True
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _same(old: Sequence[bytes], new: Sequence[bytes], places: range, shift: int) -> int:
    for count, at in enumerate(places):
        if old[at] != new[at + shift]:
            return count
    return len(places)
