"""A text that two patterns both match, for `policy diff`: found, not guessed.

A pattern is a row of parts (components, words, one name), a part a row of pieces; `**` stands
for any number of parts. Two rows are walked side by side, and what lets both go on is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from paddock.policy.compiled import fold
from paddock.policy.globs import DEPTH, RUN, CharClass, Glob, Piece, Segment, Wild

PART_FILL: Final = "example"
CHAR_FILL: Final = "x"
_PRINTABLE: Final = "xyzabcdefghijklmnopqrstuvwXYZABC0123456789-_."

Parts = tuple[Segment, ...]
ANYTHING: Final[Parts] = (DEPTH,)

_Item = TypeVar("_Item")


class _At(NamedTuple):
    left: int = 0
    right: int = 0
    is_turned: bool = False
    is_filled: bool = False

    def of(self, one: Sequence[_Item], other: Sequence[_Item]) -> tuple[_Item | None, _Item | None]:
        left = one[self.left] if self.left < len(one) else None
        right = other[self.right] if self.right < len(other) else None
        return (right, left) if self.is_turned else (left, right)

    def after(self, first: int, second: int, *, is_filled: bool = False) -> "_At":
        left, right = (second, first) if self.is_turned else (first, second)
        filled = self.is_filled or is_filled
        return _At(self.left + left, self.right + right, self.is_turned, filled)

    @property
    def turned(self) -> "_At":
        return self._replace(is_turned=not self.is_turned)


_Step = tuple[_At, tuple[str, ...] | None]
"""Where a step leads, and what it puts; None where both rows allow nothing."""


def path_parts(glob: Glob) -> Parts:
    return (DEPTH, *glob.segments) if glob.anywhere else glob.segments


def word_parts(target: str) -> Parts:
    words = target.split()
    if words and words[-1] == "*":
        return (*(_starred(word) for word in words[:-1]), DEPTH)
    return tuple(_starred(word) for word in words)


def name_parts(target: str) -> Parts:
    return (_starred(target),)


def common_texts(one: Parts, other: Parts) -> tuple[tuple[str, ...], ...]:
    """Return the shortest, and longer ones: they tell `docs/*` from `docs/**`."""
    found: dict[tuple[str, ...], None] = {}
    for ends in ((), (DEPTH,)):
        for extra in (0, 1, 2):
            row = common_row(one + ends, other + ends, extra)
            if row:
                found[row] = None
    return tuple(found)


@lru_cache(maxsize=65_536)
def common_row(one: Parts, other: Parts, extra: int = 0) -> tuple[str, ...] | None:
    def steps(at: _At) -> Iterator[_Step]:
        first, second = at.of(one, other)
        if first == DEPTH and second == DEPTH:
            fill = () if at.is_filled else (PART_FILL,) * extra
            yield at.after(1, 0, is_filled=True), fill
            yield at.after(0, 1, is_filled=True), fill
        # `**` gives way at once, or takes one part of the other row and is asked again.
        elif first == DEPTH:
            yield at.after(1, 0), ()
            if second is not None:
                yield at.after(0, 1), _put(common_part(RUN, second))
        elif second == DEPTH:
            yield from steps(at.turned)
        elif first is not None and second is not None:
            yield at.after(1, 1), _put(common_part(first, second))

    return _walk(steps, len(one), len(other))


def common_part(one: Segment, other: Segment) -> str | None:
    if one == RUN and other == RUN:
        return PART_FILL
    found = _pieces(_single(one), _single(other))
    if found == "":
        return CHAR_FILL if RUN in (one, other) else None
    return found


@lru_cache(maxsize=65_536)
def _pieces(one: Segment, other: Segment) -> str | None:
    def steps(at: _At) -> Iterator[_Step]:
        first, second = at.of(one, other)
        if first is Wild.RUN and second is Wild.RUN:
            # A star that stands for something reads better than one that stands for nothing.
            yield at.after(1, 1), (CHAR_FILL,)
            yield at.after(1, 0), ()
            yield at.after(0, 1), (CHAR_FILL,)
        elif first is Wild.RUN:
            yield at.after(1, 0), ()
            if second is not None:
                yield at.after(0, 1), _put(_common_char(Wild.ONE, second))
        elif second is Wild.RUN:
            yield from steps(at.turned)
        elif first is not None and second is not None:
            yield at.after(1, 1), _put(_common_char(first, second))

    found = _walk(steps, len(one), len(other))
    return None if found is None else "".join(found)


def _put(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else (text,)


def _walk(
    steps: Callable[[_At], Iterator[_Step]], left_end: int, right_end: int
) -> tuple[str, ...] | None:
    """Without recursion, since a pattern may have thousands of pieces."""
    seen: set[_At] = set()
    at = _At()
    ways = [steps(at)]
    put: list[tuple[str, ...]] = []
    while (at.left, at.right) != (left_end, right_end):
        after = next(ways[-1], None)
        if after is None:
            ways.pop()
            if not ways:
                return None
            put.pop()
        elif after[1] is not None and after[0] not in seen:
            at = after[0]
            seen.add(at)
            ways.append(steps(at))
            put.append(after[1])
    return tuple(text for texts in put for text in texts)


def _single(segment: Segment) -> Segment:
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
    # A part of a path has no slash that it could be asked about; a word of a command may.
    return True


def _starred(word: str) -> Segment:
    pieces: list[Piece] = []
    for number, text in enumerate(word.split("*")):
        if number:
            pieces.append(Wild.RUN)
        if text:
            pieces.append(text)
    return tuple(pieces)
