"""What a search is asked for, and what it answers. No work is done here."""

from enum import Enum
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from paddock import limits


class ShownPaths(Protocol):
    def is_shown(self, relative: str) -> bool: ...

    def may_view(self, relative: str) -> bool: ...


class Regex(Struct, frozen=True):
    """What lines have to match; ripgrep's own syntax, linear time."""

    pattern: str
    ignore_case: bool = False
    literal: bool = False


class Wanted(Struct, frozen=True):
    regex: Regex
    context: int
    matches_max: int
    literal_argument: str | None = None
    """By which the tool takes a pattern as plain text, for hints; None where it has none."""


class BinarySign(Enum):
    NUL = "is binary and was not searched: it has a NUL byte at its beginning"
    LARGE_UTF16 = "is UTF-16 and over 8 MB, and was not searched"


class Remarks(Struct):
    unreadable: set[str] = field(default_factory=set[str])
    too_deep: set[str] = field(default_factory=set[str])
    """Directories that were not looked into, for paths of what is there are too deep."""
    changed: set[str] = field(default_factory=set[str])
    is_late: bool = False
    """It was stopped before its end; after `limits.search_timeout_s` if nobody cancelled it."""
    is_broken: bool = False
    """ripgrep ended by a signal that was not ours."""
    binary: BinarySign | None = None
    large_utf16: set[str] = field(default_factory=set[str])
    """Files in which ripgrep found something that cannot be confirmed."""


class Line(NamedTuple):
    """One line of a file as the workspace read it, cut at `limits.search_row_bytes_max`."""

    number: int
    text: bytes
    is_match: bool
    is_cut: bool


class FileLines(Struct, frozen=True):
    """What one file has to show: its matches, and lines around them, each once, in order."""

    path: str
    numbers: list[int]
    texts: list[bytes]
    """As the workspace read them, without the line feed."""
    matching: list[int]
    has_more: bool

    @property
    def matches(self) -> int:
        return len(self.matching)

    @property
    def lines(self) -> tuple[Line, ...]:
        cut, matching = limits.search_row_bytes_max, frozenset(self.matching)
        return tuple(
            Line(number, text[:cut].removesuffix(b"\r"), number in matching, len(text) > cut)
            for number, text in zip(self.numbers, self.texts, strict=True)
        )


class ContentFound(Struct):
    """Files with their lines, in byte order of their paths; `matches` counts what is shown."""

    files: list[FileLines] = field(default_factory=list[FileLines])
    matches: int = 0
    has_more: bool = False
    remarks: Remarks = field(default_factory=Remarks)


class NamesFound(Struct):
    paths: list[str] = field(default_factory=list[str])
    has_more: bool = False
    remarks: Remarks = field(default_factory=Remarks)
