"""Lines that nearly match a text that was not found: what a hint shows."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paddock import limits

_BYTES_SEARCHED_MAX = 20_000_000
_LINES_COMPARED_MAX = 20_000
_SIMILARITY_MIN = 0.6
_PAIRS_COMPARED_MAX = 10_000_000
"""Pairs of characters: two similar lines cost their lengths multiplied, others their sum."""
_WALKED_CHARS_MAX: Final = 20_000_000
"""Characters compared behind the first lines of places."""
_WALKED_LINE_CHARS: Final = 32
"""What a line costs beside its characters."""


@dataclass(frozen=True, slots=True)
class NearLine:
    """A line of the content, without its line end."""

    number: int
    text: str
    is_end: bool = False
    """Whether what was sought goes on behind this line, where the content ends."""


def find_nearest(content: bytes, sought: bytes) -> list[NearLine]:
    """Up to `limits.nearest_lines_max` lines that differ from what is sought, nearest first.

    A place is near where its first line differs from the first sought one in white space
    only, if at all; else where the two are similar. Of each place the first line that
    differs is told, and places that agree for more lines come first. Only the first 20 MB
    are searched, only the first 20,000 lines are compared for similarity, fewer where they
    are long, and a place whose difference is too far behind its first line is passed over.
    """
    wanted = sought.decode("utf-8", "replace").split("\n")
    lead = next((at for at, line in enumerate(wanted) if line.strip()), None)
    if lead is None:
        return []
    lines = content[:_BYTES_SEARCHED_MAX].decode("utf-8", "replace").split("\n")
    first = wanted[lead].rstrip("\r")
    squeezed = "".join(first.split())
    places = (at for at, line in enumerate(lines) if "".join(line.split()) == squeezed)
    is_whole = len(content) <= _BYTES_SEARCHED_MAX
    found = _differing(lines, wanted, (at - lead for at in places), is_whole=is_whole)
    if found:
        return found
    similar = _most_similar(first, lines[:_LINES_COMPARED_MAX])
    return _differing(lines, wanted, (at - lead for at in similar), is_whole=is_whole)


def _differing(
    lines: list[str], wanted: list[str], places: Iterable[int], *, is_whole: bool
) -> list[NearLine]:
    """The first line that differs of each place, those that agree longest first.

    A place is the index at which `wanted` would begin; `is_whole`: `lines` are all there are.
    """
    agreeing: dict[int, int] = {}
    left = _WALKED_CHARS_MAX
    for begin in places:
        agreed, left = _agreed(lines, wanted, begin, left)
        if left < 0:
            break
        at = max(begin + agreed, 0)
        if agreed < len(wanted) and (is_whole or at < len(lines)):
            agreeing[at] = max(agreed, agreeing.get(at, 0))
    # Sorting is stable: of those that agree for as long, the order of the places stays.
    ordered = sorted(agreeing, key=lambda at: -agreeing[at])[: limits.nearest_lines_max]
    last = len(lines) - 1
    if last and not lines[last]:
        last -= 1  # behind the last line end there is no line
    shown = ((at, min(at, last)) for at in ordered)
    return [NearLine(line + 1, lines[line].rstrip("\r"), at > last) for at, line in shown]


def _agreed(lines: list[str], wanted: list[str], begin: int, left: int) -> tuple[int, int]:
    """How many of `wanted` stand from line `begin` on; and what is left to compare, below 0: none.

    As a search for the text would have it: its first line may begin inside of one, its
    last one may end there, and a line end without CR is any.
    """
    last = len(wanted) - 1
    for count, text in enumerate(wanted):
        left -= len(text) + _WALKED_LINE_CHARS
        if left < 0 or not 0 <= begin + count < len(lines):
            return count, left
        line = lines[begin + count]
        if count == last:
            agrees = text in line if last == 0 else line.startswith(text)
        else:
            ends = (text, text + "\r")
            agrees = line.endswith(ends) if count == 0 else line in ends
        if not agrees:
            return count, left
    return len(wanted), left


def _most_similar(wanted: str, lines: list[str]) -> list[int]:
    """The indices of the most similar lines, nearest first."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted.strip())
    scored: list[tuple[float, int]] = []
    left = _PAIRS_COMPARED_MAX
    for index, line in enumerate(lines):
        candidate = line.strip()
        # A line of a very different length cannot be similar; skip it unread.
        if not len(wanted) // 3 <= len(candidate) <= len(wanted) * 3 + 3:
            continue
        left -= len(wanted) + len(candidate)
        if left < 0:
            break
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() < _SIMILARITY_MIN or matcher.quick_ratio() < _SIMILARITY_MIN:
            continue
        left -= len(wanted) * len(candidate)
        if left < 0:
            break
        ratio = matcher.ratio()
        if ratio >= _SIMILARITY_MIN:
            scored.append((-ratio, index))
    return [index for _, index in sorted(scored)[: limits.nearest_lines_max]]
