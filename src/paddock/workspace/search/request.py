"""What a search is asked for, what it answers, and how long it may go on."""

import time
from enum import Enum
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, field

from paddock import limits
from paddock.values.calls import NEVER, Cancel

_LOOK_S: Final = 0.05
"""The longest wait before it is looked again whether the call was cancelled."""


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


class Until:
    """Until its time is over, `limits.search_timeout_s` from now, or it is cancelled."""

    def __init__(self, cancel: Cancel = NEVER) -> None:
        self._cancel = cancel
        self._deadline = time.monotonic() + limits.search_timeout_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline or self._cancel.is_cancelled

    @property
    def wait_ms(self) -> float:
        """How long to wait for something before `is_over` is asked again."""
        return max(0.0, min(self._deadline - time.monotonic(), _LOOK_S)) * 1000
