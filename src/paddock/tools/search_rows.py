"""What the search tools have in common: how rows look, and what is said beside them."""

from collections.abc import Iterable
from typing import Final, Self, TypeVar

from msgspec import Struct

from paddock import limits
from paddock.pattern import lazy_pattern
from paddock.text.show import quote, show_line, show_name
from paddock.tools.spec import Ports, ReadPlan, StoppedCallError, plan_read
from paddock.values.calls import Json, LeftEffect
from paddock.workspace import ReadPath
from paddock.workspace.search.asked import ContentFound, Line, Remarks
from paddock.workspace.search.globs import EVERYTHING, SearchGlob, compile_glob

A = TypeVar("A")

NO_MATCHES: Final = "No matches found."
NO_FILES: Final = "No files found."
EMPTY_DIRECTORY: Final = "Directory is empty."
_OURS: Final = frozenset({NO_MATCHES, NO_FILES, EMPTY_DIRECTORY})
_LIKE_A_ROW: Final = lazy_pattern(r":(?=\d+(?:[:-]|$))")
_LIKE_A_MATCH: Final = lazy_pattern(r":(?=\d+:)")
_NAMED_MAX: Final = 5
"""Paths that one remark names; the rest is counted."""


def show_path(path: str) -> str:
    """A path as a row begins with it.

    Threat: a file that is called like a notice of ours would pass for one where names
    stand alone. With `./` in front it is the same path, and no notice.
    """
    shown = show_name(path)
    return f"./{shown}" if shown.startswith("[") or shown in _OURS else shown


def show_row_path(path: str) -> str:
    """A path as a row of a content search begins with it.

    Threat: a file called `a.py:3:x` would make a row of line 3 of `a.py`.
    """
    return _LIKE_A_ROW.sub(r"\\x3a", show_path(path))


def path_text(path: str) -> str:
    """A path for the host; escaped where its bytes are not UTF-8, as no JSON could hold it."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return show_name(path)
    return path


class SearchPlan(ReadPlan[A], frozen=True):
    glob: SearchGlob = EVERYTHING


def plan_search(operation: str, arguments: A, glob: str | None, ports: Ports) -> SearchPlan[A]:
    """Resolve `arguments.path`, and compile the glob. Raises: PathError, InvalidPatternError."""
    plan = plan_read("search", operation, arguments, ports)
    compiled = EVERYTHING if glob is None else compile_glob(glob, ports.workspace.root_names)
    return SearchPlan(arguments, plan.path, plan.actions, glob=compiled)


class LineText(Struct, frozen=True):
    """A line, cut at `limits.search_line_chars_max`, dangerous characters escaped."""

    shown: str
    cut_bytes: int
    """At least so long is the line where it was cut; else 0."""
    escaped: int
    is_not_utf8: bool

    @classmethod
    def of(cls, line: Line) -> Self:
        text = line.text.decode("utf-8", "surrogateescape")
        missing = len(text) - limits.search_line_chars_max
        is_cut = missing > 0 or line.is_cut
        if is_cut:
            text = text[: limits.search_line_chars_max]
        shown, escaped = show_line(text)
        strange = sum("\udc80" <= character <= "\udcff" for character in text) if escaped else 0
        cut_bytes = 0
        if is_cut:
            cut_bytes = limits.search_row_bytes_max + 1 if line.is_cut else len(line.text)
            more = "more than " if line.is_cut else ""
            shown += f" [... {more}{missing} more characters]"
        return cls(shown, cut_bytes, escaped - strange, strange > 0)


class Rows:
    """The rows that have room. Keeps count of what was changed in lines that are shown."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self.rows: list[str] = []
        self.matches: list[Json] = []
        self.files: set[str] = set()
        self.is_full = False
        self._cut: list[int] = []
        """At least so long is each line that was cut."""
        self._escaped = self._like_matches = self._not_utf8 = 0

    def add(self, row: str) -> bool:
        """Say whether it still had room."""
        self._left -= len(row.encode("utf-8", "surrogatepass")) + 1
        self.is_full = self._left < 0
        if not self.is_full:
            self.rows.append(row)
        return not self.is_full

    def add_match(self, path: str, match: Json) -> None:
        self.matches.append(match)
        self.files.add(path)

    def count(self, text: LineText) -> None:
        self._cut += [text.cut_bytes] if text.cut_bytes else []
        self._escaped += text.escaped
        self._not_utf8 += text.is_not_utf8

    def count_beside(self, text: LineText) -> None:
        self._like_matches += _LIKE_A_MATCH.search(text.shown) is not None

    def notices(self, read_bytes_max: int, reader: str) -> list[str]:
        """What has to be said of the lines that were shown; `reader` shows so much of one."""
        said: list[str] = []
        if self._cut:
            advice = f"Use {reader} to see all of a line."
            # Of a line that was cut when it was read it is not known how long it is.
            if max(self._cut) > min(read_bytes_max, limits.search_row_bytes_max):
                most = f"{read_bytes_max / 1000:g} kB"
                advice = f"Use {reader} to see up to {most} of a line; no file tool shows more."
            cut = _count(len(self._cut), "line")
            said.append(f"[{cut} cut at {limits.search_line_chars_max} characters. {advice}]")
        if self._not_utf8:
            verb = "holds" if self._not_utf8 == 1 else "hold"
            lines = _count(self._not_utf8, "line")
            said.append(f"[{lines} {verb} bytes that are not UTF-8, shown as \\xNN.]")
        if self._escaped:
            characters = _count(self._escaped, "control or direction character")
            said.append(f"[{characters} shown as \\xNN or \\uNNNN.]")
        if self._like_matches:
            verb = "looks" if self._like_matches == 1 else "look"
            rows = _count(self._like_matches, "context row")
            said.append(f"[{rows} {verb} like a match: colons before numbers shown as \\x3a.]")
        return said


def match_row(path: str, number: int, text: LineText) -> str:
    """The row of a match; `path` as `show_row_path` gives it."""
    return f"{path}:{number}:{text.shown}"


def context_row(path: str, number: int, text: LineText) -> str:
    """The row of a line beside a match.

    Threat: behind `a-1-`, the text `b.py:7:x` would make a row of line 7 of `a-1-b.py`.
    """
    shown = _LIKE_A_MATCH.sub(r"\\x3a", text.shown)
    return f"{path}-{number}-{shown}"


def none_shown(found: ContentFound) -> str:
    told = count_found(found)
    return f"{told[0].upper()}{told[1:]}, none shown." if found.matches else NO_MATCHES


def count_found(found: ContentFound) -> str:
    more = "more than " if found.has_more else ""
    return f"{more}{_count(found.matches, 'match', 'matches')}"


def summary(rows: Rows, found: ContentFound, *, more: bool) -> str:
    if not rows.matches:
        return f"{count_found(found)}, none shown" if found.matches else "no matches"
    where = f"{_count(len(rows.matches), 'match', 'matches')} in {_count(len(rows.files), 'file')}"
    return f"{where}{', and there are more' if more else ''}"


def limit_notice(
    what: str, limit: int, maximum: int, otherwise: str, argument: str = "limit"
) -> str:
    more = min(2 * limit, maximum)
    advice = (
        f"Use {argument}={more} for more, or {otherwise}"
        if more > limit
        else otherwise.capitalize()
    )
    return f"[{limit} {what} limit reached. {advice}.]"


def size_notice(shown: int, found: ContentFound, bytes_max: int, context: str | None) -> str:
    """`context` is the argument by which lines beside the matches were asked for, if they were."""
    more = "more than " if found.has_more else ""
    lower = "" if context is None else f", or lower {context}"
    return (
        f"[{bytes_max / 1000:g} kB limit reached: {shown} of {more}{found.matches} matches "
        f"shown. Refine pattern or path{lower}.]"
    )


def glob_notices(glob: SearchGlob, path: ReadPath) -> list[str]:
    for directory in (path.asked.relative, path.real.relative):
        if rest := glob.below(directory):
            return [f"[The glob is taken from {quote(directory)}: write {quote(rest)}.]"]
    return []


def remark_notices(remarks: Remarks) -> list[str]:
    said: list[str] = []
    if remarks.binary is not None:
        said.append(f"[The file {remarks.binary.value}.]")
    if remarks.large_utf16:
        said.append(f"[Not searched, being UTF-16 and over 8 MB: {_named(remarks.large_utf16)}.]")
    if remarks.unreadable:
        said.append(f"[Not readable by this user: {_named(remarks.unreadable)}.]")
    if remarks.too_deep:
        said.append(
            f"[Not looked into, being {limits.path_depth_max} directories deep: "
            f"{_named(remarks.too_deep)}.]"
        )
    if remarks.changed:
        said.append(
            f"[Changed while they were searched, so rows may be missing: "
            f"{_named(remarks.changed)}. Search again.]"
        )
    if remarks.is_broken:
        said.append("[The search ended early, and rows may be missing. Narrow path or pattern.]")
    if remarks.is_late:
        said.append(
            f"[Stopped after {limits.search_timeout_s:g} seconds: these are not all rows, and "
            "another time they may be others. Narrow path or pattern.]"
        )
    return said


def refuse_cancelled(ports: Ports) -> None:
    """Raises: StoppedCallError where nobody waits for the answer any more."""
    if ports.cancel.is_cancelled:
        raise StoppedCallError(LeftEffect.NONE)


def is_partial(remarks: Remarks) -> bool:
    """Whether rows may be missing for another reason than a limit of the call."""
    return remarks.is_late or remarks.is_broken


def _named(paths: Iterable[str]) -> str:
    ordered = sorted(paths)
    named = ", ".join(quote(path) for path in ordered[:_NAMED_MAX])
    more = len(ordered) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named


def _count(number: int, thing: str, things: str = "") -> str:
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
