"""What the search tools have in common: how rows look, and what is said beside them."""

import re
from collections.abc import Iterable
from typing import Final

from paddock import limits
from paddock.text.show import quote, show_line, show_name
from paddock.tools.cancelling import StoppedCallError
from paddock.tools.spec import Ports
from paddock.values.cancelling import LeftEffect
from paddock.workspace.search.asked import Line, Remarks

NO_MATCHES: Final = "No matches found."
NO_FILES: Final = "No files found."
EMPTY_DIRECTORY: Final = "Directory is empty."
_OURS: Final = frozenset({NO_MATCHES, NO_FILES, EMPTY_DIRECTORY})
_LIKE_A_ROW: Final = re.compile(r":(?=\d+(?:[:-]|$))")
_LIKE_A_MATCH: Final = re.compile(r":(?=\d+:)")
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


class LineRows:
    """Turns lines into text, and keeps count of what that changed."""

    __slots__ = ("cut", "escaped", "like_matches", "longest_bytes", "not_utf8")

    def __init__(self) -> None:
        self.cut = 0
        self.longest_bytes = 0
        """At least so long is the longest line that was cut."""
        self.escaped = 0
        self.like_matches = 0
        self.not_utf8 = 0

    def text(self, line: Line) -> str:
        """A line's text: cut at `limits.search_line_chars_max`, dangerous characters escaped."""
        text = line.text.decode("utf-8", "surrogateescape")
        missing = len(text) - limits.search_line_chars_max
        if missing > 0 or line.is_cut:
            text = text[: limits.search_line_chars_max]
        shown, escaped = show_line(text)
        if escaped:
            strange = sum("\udc80" <= character <= "\udcff" for character in text)
            self.not_utf8 += strange > 0
            self.escaped += escaped - strange
        if missing > 0 or line.is_cut:
            self.cut += 1
            length = limits.search_row_bytes_max + 1 if line.is_cut else len(line.text)
            self.longest_bytes = max(self.longest_bytes, length)
            more = "more than " if line.is_cut else ""
            shown += f" [... {more}{missing} more characters]"
        return shown

    def context_row(self, path: str, number: int, text: str) -> str:
        """The row of a line beside a match; `path` as `show_row_path` gives it.

        Threat: behind `a-1-`, the text `b.py:7:x` would make a row of line 7 of `a-1-b.py`.
        """
        shown, escaped = _LIKE_A_MATCH.subn(r"\\x3a", text)
        self.like_matches += escaped > 0
        return f"{path}-{number}-{shown}"

    def notices(self, read_bytes_max: int, reader: str = "view") -> list[str]:
        """What has to be said of the lines that were shown; `reader` shows so much of one."""
        said: list[str] = []
        if self.cut:
            advice = f"Use {reader} to see all of a line."
            # Of a line that was cut when it was read it is not known how long it is.
            if self.longest_bytes > min(read_bytes_max, limits.search_row_bytes_max):
                most = f"{read_bytes_max / 1000:g} kB"
                advice = f"Use {reader} to see up to {most} of a line; no file tool shows more."
            said.append(
                f"[{_count(self.cut, 'line')} cut at {limits.search_line_chars_max} characters. "
                f"{advice}]"
            )
        if self.not_utf8:
            verb = "holds" if self.not_utf8 == 1 else "hold"
            said.append(
                f"[{_count(self.not_utf8, 'line')} {verb} bytes that are not UTF-8, "
                "shown as \\xNN.]"
            )
        if self.escaped:
            said.append(
                f"[{_count(self.escaped, 'control or direction character')} "
                "shown as \\xNN or \\uNNNN.]"
            )
        if self.like_matches:
            verb = "looks" if self.like_matches == 1 else "look"
            said.append(
                f"[{_count(self.like_matches, 'context row')} {verb} like a match: "
                "colons before numbers shown as \\x3a.]"
            )
        return said


def none_shown(matches: int) -> str:
    """What is said in the place of rows: nothing was found, or no row of it has room."""
    return f"{count_matches(matches)}, none shown." if matches else NO_MATCHES


def count_matches(matches: int) -> str:
    """So many matches, in words."""
    return f"{matches} match" if matches == 1 else f"{matches} matches"


def limit_notice(
    what: str, limit: int, maximum: int, otherwise: str, argument: str = "limit"
) -> str:
    """That the limit in an argument cut the rows, and how to get more."""
    more = min(2 * limit, maximum)
    advice = (
        f"Use {argument}={more} for more, or {otherwise}"
        if more > limit
        else otherwise.capitalize()
    )
    return f"[{limit} {what} limit reached. {advice}.]"


def size_notice(shown: int, matches: int, argument: str, bytes_max: int) -> str:
    """That the rows grew too large, and what makes them smaller; `argument` asks for context."""
    return (
        f"[{bytes_max / 1000:g} kB limit reached: {shown} of {matches} matches shown. "
        f"Refine pattern or path, or lower {argument}.]"
    )


def remark_notices(remarks: Remarks) -> list[str]:
    """What went on beside the rows."""
    said: list[str] = []
    if remarks.is_binary:
        said.append(
            "[The file is binary and was not searched: it has a NUL byte at its beginning.]"
        )
    if remarks.unreadable:
        said.append(f"[Not readable by this user: {_named(remarks.unreadable)}.]")
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


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
