"""The globs of a search: gitignore's rules, and ripgrep's braces.

Rules kept here:
  * without a slash a glob is about names, at any depth; with one it is about paths,
    taken from the directory that is searched;
  * `{a,b}` stands for either; braces may be nested;
  * a `!` in front turns the glob round: everything but;
  * a trailing slash means directories alone.

Expanded braces leave patterns whose stars are separated by pieces of fixed length, which
is what the expressions of `policy.globs` need to be free of backtracking.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidPatternError
from paddock.pattern import lazy_pattern
from paddock.policy.globs import DEPTH, Glob, parse_glob, regex_of
from paddock.policy.positions import PatternError
from paddock.text.show import quote

Matches = Callable[[str], re.Match[str] | None]

_NOTHING_SPECIAL: Final = lazy_pattern(r"[\w.+*-]+", re.ASCII)
_PIECE: Final = lazy_pattern(r"(?:\\.|\[[!^]?+.[^]]*\]|[^{},])+|[{},]", re.DOTALL)
"""A brace, a comma, or what stands between them; escaped or in brackets they are neither. The first
`]` behind `[`, `[!` or `[^` is a member."""
_PLACE: Final = lazy_pattern(r"(?:^|/)\.\.?(?:/|$)|//|^~|^[A-Za-z]:[/\\]")
"""What a path from elsewhere may hold, and no path below the searched directory."""
_FROM_THERE: Final = (
    "write it relative to the searched directory, such as src/**/*.ts: "
    "no ./, no .., no doubled slash and no absolute path"
)


class SearchGlob(Struct, frozen=True):
    """A compiled glob: what the last component and what the path of a match have to be."""

    text: str
    negated: bool
    name_matches: Matches | None
    """None where that is any."""
    path_matches: Matches | None
    directory_only: bool
    name_globs: tuple[str, ...]
    """Globs one of which the last component of every match has; none where that is not known."""

    def matches(self, name: str, below: str, *, is_directory: bool) -> bool:
        found = (
            (is_directory or not self.directory_only)
            and (self.name_matches is None or self.name_matches(name) is not None)
            and (self.path_matches is None or self.path_matches(below) is not None)
        )
        return found is not self.negated

    def below(self, directory: str) -> str:
        """What is left of a glob that begins with the searched directory; else nothing.

        It is taken from there already, and would mean a directory of that name in it.
        """
        start = f"{directory}/"
        text = self.text.removeprefix("/")
        return text.removeprefix(start) if text.startswith(start) else ""


EVERYTHING: Final = SearchGlob("*", False, None, None, False, ())


@lru_cache(maxsize=64)
def compile_glob(text: str, roots: tuple[str, ...] = ()) -> SearchGlob:
    """The glob that `text` stands for; `roots` are the absolute names of the workspace's root.

    Raises:
        InvalidPatternError: it can match nothing, is an absolute path inside the root, or
            its braces stand for too much.
    """
    body = text.removeprefix("!")
    if text in ("*", "**"):
        return EVERYTHING
    try:
        parts = expand_braces(body)
    except PatternError as problem:
        raise _unusable(text, problem.hint) from None
    inside = tuple(f"{root}/" for root in roots if root != "/")
    if any(f"{part}/".startswith(inside) for part in parts):
        # A leading slash means the searched directory, so it would match nothing there.
        raise _unusable(text, _FROM_THERE)
    globs = [_parse(text, part) for part in parts]
    if any(glob.negated for glob in globs):
        raise _unusable(text, "one ! in front is enough")
    directory_only = all(glob.directory_only for glob in globs)
    if any(glob.directory_only for glob in globs) and not directory_only:
        raise _unusable(text, "a trailing slash belongs behind all of it or nothing")
    negated = text.startswith("!")
    last = tuple(glob.text.rstrip("/").rpartition("/")[2] for glob in globs)
    plain = all(map(_NOTHING_SPECIAL.fullmatch, last)) and "**" not in last
    known = last if plain and not directory_only and not negated else ()
    is_name = all(map(_is_name, globs))
    names = None
    if not any(glob.segments[-1] == DEPTH for glob in globs):
        names = _either(regex_of(glob.segments[-1:]) for glob in globs)
    segments = ((DEPTH, *glob.segments) if glob.anywhere else glob.segments for glob in globs)
    paths = None if is_name else _either(map(regex_of, segments))
    return SearchGlob(text, negated, names, paths, directory_only, known)


def _parse(text: str, part: str) -> Glob:
    try:
        return parse_glob(part)
    except PatternError as problem:
        # The words of that error are about the policy's files; the reason is the same.
        raise _unusable(text, _FROM_THERE if _PLACE.search(part) else problem.hint) from None


def _unusable(text: str, hint: str) -> InvalidPatternError:
    return InvalidPatternError(
        f"the glob {quote(text)} cannot be used", where="glob", hint=hint or "such as src/**/*.ts"
    )


def _is_name(glob: Glob) -> bool:
    """Whether a glob is about names at any depth."""
    return glob.anywhere or (len(glob.segments) == 2 and glob.segments[0] == DEPTH)


def _either(sources: Iterable[str]) -> Matches:
    return re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL).fullmatch


def expand_braces(text: str) -> list[str]:
    """Every text that the braces in `text` stand for, in their order.

    Raises: PatternError: a brace without its other half, or over the limits.
    """
    # Threat: a line of a cloned project. All that follows is bounded by these two looks.
    if len(text.encode("utf-8", "surrogatepass")) > limits.path_bytes_max:
        raise PatternError("", f"at most {limits.path_bytes_max} bytes, as a path")
    if "{" not in text and "}" not in text:
        return [text]
    found, alternatives = [""], list[str]()
    outer: list[tuple[list[str], list[str]]] = []
    opened = 0
    for piece in _PIECE.findall(text):
        if piece == "{":
            opened += 1
            # Each pair that leaves a choice is one more alternative at least.
            _refuse_many(opened)
            if len(outer) == limits.glob_nesting_max:
                raise PatternError("", f"braces at most {limits.glob_nesting_max} deep")
            outer.append((found, alternatives))
            found, alternatives = [""], []
        elif outer and piece in (",", "}"):
            # As ripgrep: an empty alternative is none.
            alternatives += filter(None, found)
            found = [""]
            if piece == "}":
                inner = alternatives or [""]
                heads, alternatives = outer.pop()
                _refuse_many(len(heads) * len(inner))
                found = [head + tail for head in heads for tail in inner]
            _refuse_many(len(alternatives))
        elif piece == "}":
            raise PatternError("", "a } without its {; write \\} for the character")
        else:
            found = [head + piece for head in found]
    if outer:
        raise PatternError("", "a { without its }; write \\{ for the character")
    return found


def _refuse_many(texts: int) -> None:
    if texts > limits.glob_alternatives_max:
        raise PatternError("", f"at most {limits.glob_alternatives_max} alternatives")
