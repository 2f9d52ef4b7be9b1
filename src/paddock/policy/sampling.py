"""A text that two patterns both match, for `policy diff`: found, not guessed.

A pattern is a row of parts (components of a path, words of a command, one name); a part
is a row of pieces, and `**` stands for any number of parts. Two rows are walked side by
side, and where both can go on, the text that lets them is kept. What is found is short
and readable; whoever uses it asks the policy itself whether it matches.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from paddock.policy.globs import DEPTH, CharClass, Glob, Piece, Segment, Wild, fold

PART_FILL: Final = "example"
"""A part that nothing is asked of."""
CHAR_FILL: Final = "x"
_PRINTABLE: Final = "xyzabcdefghijklmnopqrstuvwXYZABC0123456789-_."

Parts = tuple[Segment, ...]
ANYTHING: Final[Parts] = (DEPTH,)


def path_parts(glob: Glob) -> Parts:
    """Return a path pattern as a row; `**` in front where it matches at any depth."""
    return (DEPTH, *glob.segments) if glob.anywhere else glob.segments


def word_parts(target: str) -> Parts:
    """Return a command pattern as a row: its words, a final `*` as any words."""
    words = target.split()
    if words and words[-1] == "*":
        return (*(_starred(word) for word in words[:-1]), DEPTH)
    return tuple(_starred(word) for word in words)


def name_parts(target: str) -> Parts:
    """Return a name pattern as a row of one part."""
    return (_starred(target),)


def common_texts(one: Parts, other: Parts) -> tuple[tuple[str, ...], ...]:
    """Return rows of parts that both match: the shortest, and longer ones; none for none.

    Longer ones tell `docs/*` from `docs/**`, and a directory from what is below it.
    """
    found: dict[tuple[str, ...], None] = {}
    for ends in ((), (DEPTH,)):
        for extra in (0, 1, 2):
            row = _walk(one + ends, other + ends, extra)
            if row:
                found[row] = None
    return tuple(found)


@lru_cache(maxsize=65_536)
def _walk(one: Parts, other: Parts, extra: int) -> tuple[str, ...] | None:
    """Return the parts of a common text; `extra` are parts to put where both allow any."""
    if not one or not other:
        rest = one or other
        return () if all(part == DEPTH for part in rest) else None
    left, right = one[0], other[0]
    if left == DEPTH and right == DEPTH:
        tail = _walk(one[1:], other, 0)
        if tail is None:
            tail = _walk(one, other[1:], 0)
        return None if tail is None else (PART_FILL,) * extra + tail
    if left == DEPTH:
        return _past_depth(one, other, extra)
    if right == DEPTH:
        return _past_depth(other, one, extra)
    part = common_part(left, right)
    if part is None:
        return None
    tail = _walk(one[1:], other[1:], extra)
    return None if tail is None else (part, *tail)


def _past_depth(wide: Parts, narrow: Parts, extra: int) -> tuple[str, ...] | None:
    # `**` gives way at once, or takes one part of the other row and is asked again.
    given_up = _walk(wide[1:], narrow, extra)
    if given_up is not None:
        return given_up
    part = common_part((Wild.RUN,), narrow[0])
    tail = _walk(wide, narrow[1:], extra)
    return None if part is None or tail is None else (part, *tail)


def common_part(one: Segment, other: Segment) -> str | None:
    """Return one part, not empty, that both match; None where there is none."""
    if one == (Wild.RUN,) and other == (Wild.RUN,):
        return PART_FILL
    found = _pieces(_single(one), _single(other))
    if found == "":
        return CHAR_FILL if one == (Wild.RUN,) or other == (Wild.RUN,) else None
    return found


@lru_cache(maxsize=65_536)
def _pieces(one: Segment, other: Segment) -> str | None:
    if not one and not other:
        return ""
    if one and one[0] is Wild.RUN:
        return _past_run(one, other)
    if other and other[0] is Wild.RUN:
        return _past_run(other, one)
    if not one or not other:
        return None
    char = _common_char(one[0], other[0])
    if char is None:
        return None
    tail = _pieces(one[1:], other[1:])
    return None if tail is None else char + tail


def _past_run(wide: Segment, narrow: Segment) -> str | None:
    if narrow and narrow[0] is Wild.RUN:
        # A star that stands for something reads better than one that stands for nothing.
        both = _pieces(wide[1:], narrow[1:])
        if both is not None:
            return CHAR_FILL + both
    given_up = _pieces(wide[1:], narrow)
    if given_up is not None:
        return given_up
    if not narrow:
        return None
    if narrow[0] is Wild.RUN:
        tail = _pieces(wide, narrow[1:])
        return None if tail is None else CHAR_FILL + tail
    char = _common_char(Wild.ONE, narrow[0])
    tail = _pieces(wide, narrow[1:])
    return None if char is None or tail is None else char + tail


def _single(segment: Segment) -> Segment:
    """Return the segment with one piece a character."""
    out: list[Piece] = []
    for piece in segment:
        if isinstance(piece, str):
            out.extend(piece)
        else:
            out.append(Wild.RUN if piece is Wild.DEPTH else piece)
    return tuple(out)


def _common_char(one: Piece, other: Piece) -> str | None:
    for char in (*_literal(one), *_literal(other), *_first_of(one), *_first_of(other), *_PRINTABLE):
        if _takes(one, char) and _takes(other, char):
            return char
    return None


def _literal(piece: Piece) -> str:
    return piece if isinstance(piece, str) else ""


def _first_of(piece: Piece) -> Sequence[str]:
    if not isinstance(piece, CharClass):
        return ()
    return [low for low, _ in piece.ranges]


def _takes(piece: Piece, char: str) -> bool:
    if isinstance(piece, str):
        return fold(piece) == fold(char)
    if isinstance(piece, CharClass):
        inside = any(low <= char <= high for low, high in piece.ranges)
        return inside is not piece.negated and char != "/"
    return char != "/"


def _starred(word: str) -> Segment:
    pieces: list[Piece] = []
    for number, text in enumerate(word.split("*")):
        if number:
            pieces.append(Wild.RUN)
        if text:
            pieces.append(text)
    return tuple(pieces)
