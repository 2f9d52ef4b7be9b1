"""Parse one path pattern by gitignore's rules, and build its regular expression.

As gitignore(5) and git's wildmatch: a `/` at the start or in the middle anchors; `*` and `?`
stay within a component, `**` spans any number of them, `[a-z]`, `[!a-z]` and `[[:digit:]]`
match one character; a backslash takes the next one literally. Stricter than git: a pattern
that can match nothing is refused (`PatternError`).

Threat: a pattern from a cloned project meets paths that an agent chooses. The expressions
never backtrack across a `*` or `**` that was satisfied (atomic groups), so the time is a
polynomial of low degree. Leftmost matching is exact, since the text between two stars
has a fixed length.
"""

import re
import sys
from bisect import bisect_left, bisect_right
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from paddock.limits import path_bytes_max
from paddock.pattern import lazy_pattern
from paddock.policy.compiled import ONE, fold
from paddock.policy.compiled import RUN as STAR
from paddock.policy.positions import PatternError, quote_toml

Ranges = tuple[tuple[str, str], ...]
CharClass = tuple[bool, Ranges]
"""`[…]`: one character inside (negated: outside) these ranges; never `/`."""
Piece = str | int | CharClass
Segment = tuple[Piece, ...]
"""As in `policy.compiled`: text, `STAR`, `ONE`, and brackets."""

RUN: Final[Segment] = (STAR,)
DEPTH: Final[Segment] = (STAR, STAR)
"""`**`: no other segment has two stars side by side."""

_POSIX: Final[dict[str, Ranges]] = {
    # ASCII alone, as in git.
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "blank": ((" ", " "), ("\t", "\t")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": ((" ", " "), ("\t", "\r")),
    "upper": (("A", "Z"),),
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}


# As in git's wildmatch: a leading `]` is literal, and `[:name:]` cannot end a `-` range.
_ITEM: Final = lazy_pattern(
    r"\[:(?P<name>[^\]]*):\]|(?P<low>\\.|[^\\])(?:-(?P<high>\\.|[^\]\\]))?", re.DOTALL
)
_TOKEN: Final = lazy_pattern(
    r"""(?P<slash>\\?/)|[*?]|\\.|[^[\\]|(?P<bracket>\[[!^]?+
    (?>\[:[^\]]*:\]|(?:\\.|[^\\])(?:-(?:\\.|[^\]\\]))?)
    (?>\[:[^\]]*:\]|(?:\\.|[^\]\\])(?:-(?:\\.|[^\]\\]))?)*+\])""",
    re.DOTALL | re.VERBOSE,
)


class Glob(Struct, frozen=True):
    text: str
    negated: bool
    anywhere: bool
    directory_only: bool
    segments: tuple[Segment, ...]

    @property
    def covers_root(self) -> bool:
        """`*/*` does not cover the root: it does not match entries at the top."""
        return self.segments in ((DEPTH,), (RUN,), (DEPTH, RUN))


def parse_glob(text: str) -> Glob:
    body = _strip_spaces(text)
    negated = body.startswith("!")
    if negated:
        body = body[1:]
    _refuse_nonsense(text, body)
    directory_only = body.endswith("/")
    if directory_only:
        body = body[:-1]
    # As in git, a slash inside brackets counts too.
    anywhere = "/" not in body
    segments = _parse_segments(text, body.removeprefix("/"))
    return Glob(text, negated, anywhere, directory_only, segments)


def fold_segment(segment: Segment) -> Segment:
    return tuple(_fold_piece(piece) for piece in segment)


def literal_of(segment: Segment) -> str | None:
    return segment[0] if len(segment) == 1 and isinstance(segment[0], str) else None


def split_lead(segments: tuple[Segment, ...]) -> tuple[str, tuple[Segment, ...]]:
    """Split off the leading literal directories; the last segment always stays in the rest."""
    names: list[str] = []
    for segment in segments[:-1]:
        literal = literal_of(segment)
        if literal is None:
            break
        names.append(literal)
    return "/".join(names), segments[len(names) :]


def regex_of(segments: tuple[Segment, ...]) -> str:
    groups: list[list[Segment]] = [[]]
    for segment in segments:
        if segment == DEPTH:
            groups.append([])
        else:
            groups[-1].append(segment)
    first, later = groups[0], groups[1:]
    out = "/".join(_segment_regex(segment) for segment in first)
    if not later:
        return out
    if first:
        out += "/"
    for group in later[:-1]:
        if group:
            body = "/".join(_segment_regex(segment) for segment in group)
            out += f"(?>(?:[^/]+/)*?{body}/)"
    if not later[-1]:
        return out + ".+"
    return out + "(?:[^/]+/)*" + "/".join(_segment_regex(segment) for segment in later[-1])


def _strip_spaces(text: str) -> str:
    # gitignore(5): trailing spaces are ignored unless quoted with a backslash.
    stripped = text.rstrip(" ")
    if stripped != text:
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            stripped += " "
    return stripped


def _refuse_nonsense(text: str, body: str) -> None:
    is_long = len(body.encode("utf-8", "surrogatepass")) > path_bytes_max
    is_host_path = body.startswith("~/") or body == "~" or re.match(r"[A-Za-z]:[/\\]", body)
    for applies, what, hint in (
        (not body.strip("/"), "can match nothing", 'write "**" for everything'),
        ("\0" in body, "holds a NUL", ""),
        (is_long, "is longer than any path", ""),
        (
            body.startswith("#"),
            "is a comment by gitignore's rules",
            "write a backslash before the #",
        ),
        (
            "//" in body,
            "can match nothing: no component is empty",
            "write a single slash; patterns are relative to the workspace root",
        ),
        (
            is_host_path,
            "names a path of the host",
            "patterns are relative to the workspace root; a leading slash means that root",
        ),
    ):
        if applies:
            raise PatternError(f"the path pattern {quote_toml(text)} {what}", hint)


def _parse_segments(text: str, body: str) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for raw in _split(text, body):
        segment = _finish_segment(text, raw)
        if segment == DEPTH and segments and segments[-1] == DEPTH:
            continue
        segments.append(segment)
    return tuple(segments)


def _split(text: str, body: str) -> list[list[Piece]]:
    parts: list[list[Piece]] = [[]]
    at = 0
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            is_bracket = body[at] == "["
            what = "a bracket is not closed" if is_bracket else "it ends in a backslash"
            hint = "close it with ] or write a backslash before the [" if is_bracket else ""
            raise PatternError(f"{quote_toml(text)} can match nothing: {what}", hint)
        at = token.end()
        if token["slash"]:
            parts.append([])
        elif token["bracket"]:
            parts[-1].append(_parse_class(text, token[0]))
        else:
            parts[-1].append({"*": STAR, "?": ONE}.get(token[0], token[0][-1]))
    return parts


def _finish_segment(text: str, pieces: list[Piece]) -> Segment:
    if len(pieces) > 1 and all(piece == STAR for piece in pieces):
        return DEPTH
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, str) and isinstance(last, str):
            merged[-1] = last + piece
        elif piece != STAR or last != STAR:
            merged.append(piece)
    segment = tuple(merged)
    if not segment or segment in ((".",), ("..",)):
        raise PatternError(
            f"the path pattern {quote_toml(text)} can match nothing: "
            "no resolved path has an empty component, . or ..",
            "write the path from the workspace root",
        )
    return segment


def _parse_class(text: str, bracket: str) -> CharClass:
    negated = bracket[1] in "!^"
    ranges: list[tuple[str, str]] = []
    for item in _ITEM.finditer(bracket[1 + negated : -1]):
        if item["name"] is None:
            low = item["low"][-1]
            ranges += [(low, low), (low, (item["high"] or low)[-1])]
        elif item["name"] in _POSIX:
            ranges += _POSIX[item["name"]]
        else:
            message = f"[:{item['name']}:] in the path pattern {quote_toml(text)} is unknown"
            raise PatternError(message)
    kept = tuple(dict.fromkeys((low, high) for low, high in ranges if low <= high))
    if not negated and all(low == high == "/" for low, high in kept):
        raise PatternError(f"a bracket in the path pattern {quote_toml(text)} can match nothing")
    return (negated, kept)


def _fold_piece(piece: Piece) -> Piece:
    if isinstance(piece, str):
        return fold(piece)
    if not isinstance(piece, tuple) or piece[0]:
        # Folding what a negated class excludes would make it match less than the
        # pattern as written.
        return piece
    extra: dict[tuple[str, str], None] = {}
    for low, high in piece[1]:
        first, last = max(low, "A"), min(high, "Z")
        if first <= last:
            extra[first.lower(), last.lower()] = None
        if not high.isascii():
            extra.update(_folded_range(low, high))
    return (False, piece[1] + tuple(extra))


@lru_cache(maxsize=1024)
def _folded_range(low: str, high: str) -> dict[tuple[str, str], None]:
    cased = _cased()
    found = cased[bisect_left(cased, low) : bisect_right(cased, high)]
    return {(char, char): None for char in map(fold, (low, *found)) if len(char) == 1}


@cache
def _cased() -> str:
    beyond = (chr(code) for code in range(0x80, sys.maxunicode + 1))
    return "".join(char for char in beyond if char.casefold() != char)


def _segment_regex(segment: Segment) -> str:
    parts: list[list[Piece]] = [[]]
    for piece in segment:
        if piece == STAR:
            parts.append([])
        else:
            parts[-1].append(piece)
    out = "".join(_piece_regex(piece) for piece in parts[0])
    if len(parts) == 1:
        return out
    for part in parts[1:-1]:
        out += "(?>[^/]*?" + "".join(_piece_regex(piece) for piece in part) + ")"
    return out + "[^/]*" + "".join(_piece_regex(piece) for piece in parts[-1])


def _piece_regex(piece: Piece) -> str:
    if isinstance(piece, str):
        return re.escape(piece)
    if not isinstance(piece, tuple):
        return "[^/]"
    negated, ranges = piece
    body = "".join(
        re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
        for low, high in ranges
    )
    return f"[^/{body}]" if negated else f"(?!/)[{body}]"
