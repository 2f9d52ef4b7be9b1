"""Compile search globs: gitignore's rules plus ripgrep's braces.

  * without a slash, a glob matches names at any depth; with one, it matches paths relative
    to the searched directory;
  * `{a,b}` matches either; braces may be nested;
  * a leading `!` inverts the glob;
  * a trailing slash matches directories only.

Expanded braces leave patterns whose stars are separated by pieces of fixed length, which
the expressions of `policy.globs` need to avoid backtracking.
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
"""A brace, a comma, or the text between them, with escaped and bracketed ones. The first `]` after
`[`, `[!` or `[^` is a member."""
_PLACE: Final = lazy_pattern(r"(?:^|/)\.\.?(?:/|$)|//|^~|^[A-Za-z]:[/\\]")
"""Parts that a path relative to the searched directory cannot have."""
_FROM_THERE: Final = (
    "write it relative to the searched directory, such as src/**/*.ts: "
    "no ./, no .., no doubled slash and no absolute path"
)


class SearchGlob(Struct, frozen=True):
    """A compiled glob: matchers for the last component and for the path."""

    text: str
    negated: bool
    name_matches: Matches | None
    """None if any name matches."""
    path_matches: Matches | None
    directory_only: bool
    name_globs: tuple[str, ...]
    """Globs of which every match's last component matches one; empty if not known."""

    def matches(self, name: str, below: str, *, is_directory: bool) -> bool:
        found = (
            (is_directory or not self.directory_only)
            and (self.name_matches is None or self.name_matches(name) is not None)
            and (self.path_matches is None or self.path_matches(below) is not None)
        )
        return found is not self.negated

    def below(self, directory: str) -> str:
        """Return the rest of a glob that begins with the searched directory; else "".

        The glob is already relative to it, so it would match a directory of that name in it.
        """
        start = f"{directory}/"
        text = self.text.removeprefix("/")
        return text.removeprefix(start) if text.startswith(start) else ""


EVERYTHING: Final = SearchGlob("*", False, None, None, False, ())


@lru_cache(maxsize=64)
def compile_glob(text: str, roots: tuple[str, ...] = ()) -> SearchGlob:
    """Compile a glob; `roots` are the absolute names of the workspace's root.

    Raises:
        InvalidPatternError: it cannot match anything, is an absolute path inside the root, or
            its braces expand to too much.
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
        # A leading slash means the searched directory, so it could not match.
        raise _unusable(text, _FROM_THERE)
    globs = [_parse(text, part) for part in parts]
    if any(glob.negated for glob in globs):
        raise _unusable(text, "use only one ! in front")
    directory_only = all(glob.directory_only for glob in globs)
    if any(glob.directory_only for glob in globs) and not directory_only:
        raise _unusable(text, "give all alternatives a trailing slash, or none")
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
        # That error's message is about policy files; only the reason applies here.
        raise _unusable(text, _FROM_THERE if _PLACE.search(part) else problem.hint) from None


def _unusable(text: str, hint: str) -> InvalidPatternError:
    return InvalidPatternError(
        f"invalid glob {quote(text)}", where="glob", hint=hint or "use a glob such as src/**/*.ts"
    )


def _is_name(glob: Glob) -> bool:
    return glob.anywhere or (len(glob.segments) == 2 and glob.segments[0] == DEPTH)


def _either(sources: Iterable[str]) -> Matches:
    return re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL).fullmatch


def expand_braces(text: str) -> list[str]:
    """Expand the braces in `text` to all its alternatives, in order.

    Raises: PatternError: an unbalanced brace, or over the limits.
    """
    # Threat: the text may come from a cloned project. This limit and `_refuse_many` bound the work.
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
            # Each pair adds at least one alternative.
            _refuse_many(opened)
            if len(outer) == limits.glob_nesting_max:
                raise PatternError("", f"braces at most {limits.glob_nesting_max} deep")
            outer.append((found, alternatives))
            found, alternatives = [""], []
        elif outer and piece in (",", "}"):
            # As in ripgrep, empty alternatives are dropped.
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
