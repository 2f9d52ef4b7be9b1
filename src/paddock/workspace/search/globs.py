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
from functools import lru_cache
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidPatternError
from paddock.pattern import lazy_pattern
from paddock.policy.globs import Glob, parse_glob, regex_of
from paddock.policy.places import PatternError
from paddock.text.show import quote

_NOTHING_SPECIAL: Final = lazy_pattern(r"[\w.+*-]+", re.ASCII)
_PLACE: Final = lazy_pattern(r"(?:^|/)\.\.?(?:/|$)|//|^~|^[A-Za-z]:[/\\]")
"""What a path from elsewhere may hold, and no path below the searched directory."""
_FROM_THERE: Final = (
    "write it relative to the searched directory, such as src/**/*.ts: "
    "no ./, no .., no doubled slash and no absolute path"
)


class SearchGlob(Struct, frozen=True):
    """A compiled glob. One of `names` and `paths` is None, or both where all is meant."""

    text: str
    negated: bool
    names: re.Pattern[str] | None
    paths: re.Pattern[str] | None
    directory_only: bool
    name_globs: tuple[str, ...]
    """Globs one of which the last component of every match has; none where that is not known."""

    def matches(self, name: str, below: str, *, is_directory: bool) -> bool:
        if self.directory_only and not is_directory:
            found = False
        elif self.names is not None:
            found = self.names.fullmatch(name) is not None
        else:
            found = self.paths is None or self.paths.fullmatch(below) is not None
        return found is not self.negated

    @property
    def is_everything(self) -> bool:
        return self.names is None and self.paths is None and not self.negated

    def below(self, directory: str) -> str:
        """What is left of a glob that begins with the searched directory; else nothing.

        It is taken from there already, and would mean a directory of that name in it.
        """
        start = f"{directory}/"
        text = self.text.removeprefix("/")
        return text.removeprefix(start) if text.startswith(start) else ""


EVERYTHING: Final = SearchGlob("*", False, None, None, False, ())


class Entered:
    """Which directories a walk enters: what a `!` leaves out is left out with all that is in it."""

    __slots__ = ("_glob", "_known")

    def __init__(self, glob: SearchGlob) -> None:
        self._glob = glob
        self._known = {"": True}

    def holds(self, below: str) -> bool:
        """Whether a walk comes to an entry, by its path from the searched directory."""
        if not self._glob.negated:
            return True
        new: list[str] = []
        directory = below.rpartition("/")[0]
        while directory not in self._known:
            new.append(directory)
            directory = directory.rpartition("/")[0]
        entered = self._known[directory]
        for directory in reversed(new):
            name = directory.rpartition("/")[2]
            entered = entered and self._glob.matches(name, directory, is_directory=True)
            self._known[directory] = entered
        return entered


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
    if any(_is_inside(part, roots) for part in parts):
        # A leading slash means the searched directory, so it would match nothing there.
        raise _unusable(text, _FROM_THERE)
    globs = [_parse(text, part) for part in parts]
    if any(glob.negated for glob in globs):
        raise _unusable(text, "one ! in front is enough")
    directory_only = all(glob.directory_only for glob in globs)
    if any(glob.directory_only for glob in globs) and not directory_only:
        raise _unusable(text, "a trailing slash belongs behind all of it or nothing")
    if all(glob.anywhere for glob in globs):
        names, paths = _either(globs), None
    else:
        names, paths = None, _either(globs)
    last = tuple(glob.text.rstrip("/").rpartition("/")[2] for glob in globs)
    plain = all(map(_NOTHING_SPECIAL.fullmatch, last)) and "**" not in last
    known = last if plain and not directory_only else ()
    return SearchGlob(text, text.startswith("!"), names, paths, directory_only, known)


def _is_inside(part: str, roots: tuple[str, ...]) -> bool:
    return any(f"{part}/".startswith(f"{root}/") for root in roots if root != "/")


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


def _either(globs: list[Glob]) -> re.Pattern[str]:
    sources = [
        # A name at any depth, where another of the alternatives is about paths.
        regex_of(glob.segments) if glob.anywhere == globs[0].anywhere else _anywhere(glob)
        for glob in globs
    ]
    return re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL)


def _anywhere(glob: Glob) -> str:
    source = regex_of(glob.segments)
    return f"(?:[^/]+/)*{source}" if glob.anywhere else source


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
    for piece in _pieces(text):
        if piece == "{":
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
        else:
            found = [head + piece for head in found]
    return found


def _refuse_many(texts: int) -> None:
    if texts > limits.glob_alternatives_max:
        raise PatternError("", f"at most {limits.glob_alternatives_max} alternatives")


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    begin = at = depth = opened = 0
    while at < len(text):
        char = text[at]
        if char not in "{}" and (char != "," or depth == 0):
            at += _piece_length(text, at)
            continue
        depth += {"{": 1, "}": -1}.get(char, 0)
        opened += char == "{"
        if depth < 0:
            raise PatternError("", "a } without its {; write \\} for the character")
        if depth > limits.glob_nesting_max:
            raise PatternError("", f"braces at most {limits.glob_nesting_max} deep")
        pieces += [text[begin:at], char] if begin < at else [char]
        at += 1
        begin = at
    if depth:
        raise PatternError("", "a { without its }; write \\{ for the character")
    # Each pair that leaves a choice is one more alternative at least.
    _refuse_many(opened)
    return [*pieces, text[begin:]]


def _piece_length(text: str, at: int) -> int:
    """The length of what stands at `at`: a character, an escaped one, a bracket."""
    if text[at] == "\\":
        return 2
    if text[at] == "[":
        # The first ] behind [, [! or [^ is a member.
        first = at + 2 if text[at + 1 : at + 2] in ("!", "^") else at + 1
        end = text.find("]", first + 1)
        if end > 0:
            return end + 1 - at
    return 1
