"""Lines that nearly match a text that was not found: what a hint shows."""

import difflib
from itertools import islice

from paddock import limits

_BYTES_SEARCHED_MAX = 20_000_000
_LINES_COMPARED_MAX = 20_000
_SIMILARITY_MIN = 0.6
_PAIRS_COMPARED_MAX = 10_000_000
"""Pairs of characters: two similar lines cost their lengths multiplied, others their sum."""


def find_nearest(content: bytes, sought: bytes) -> list[tuple[int, str]]:
    """Up to `limits.nearest_lines_max` lines (number, text), nearest first.

    Lines that differ from the first sought line in white space only come
    first; else the most similar ones. Only the first 20 MB are searched, and
    only the first 20,000 lines are compared for similarity, fewer where they are long.
    """
    wanted = _first_line(sought)
    if not wanted.strip():
        return []
    lines = content[:_BYTES_SEARCHED_MAX].decode("utf-8", "replace").split("\n")
    squeezed = "".join(wanted.split())
    matching = (
        (number, line.rstrip("\r"))
        for number, line in enumerate(lines, 1)
        if "".join(line.split()) == squeezed
    )
    same = list(islice(matching, limits.nearest_lines_max))
    if same:
        return same
    return _most_similar(wanted, lines[:_LINES_COMPARED_MAX])


def _first_line(sought: bytes) -> str:
    for line in sought.decode("utf-8", "replace").split("\n"):
        if line.strip():
            return line.rstrip("\r")
    return ""


def _most_similar(wanted: str, lines: list[str]) -> list[tuple[int, str]]:
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted.strip())
    scored: list[tuple[float, int]] = []
    left = _PAIRS_COMPARED_MAX
    for number, line in enumerate(lines, 1):
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
            scored.append((-ratio, number))
    best = sorted(scored)[: limits.nearest_lines_max]
    return [(number, lines[number - 1].rstrip("\r")) for _, number in best]
