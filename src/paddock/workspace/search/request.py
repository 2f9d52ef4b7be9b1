"""The request of a search, its result, and its time limit."""

import time
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct, field

from paddock import limits
from paddock.values.calls import NEVER, Cancel

_POLL_S: Final = 0.05
"""The longest wait between two checks for cancellation."""


class ShownPaths(Protocol):
    def is_shown(self, relative: str) -> bool: ...

    def may_view(self, relative: str) -> bool: ...


class Regex(Struct, frozen=True):
    """A pattern for lines, in ripgrep's syntax; linear time."""

    pattern: str
    ignore_case: bool = False
    literal: bool = False


class Wanted(Struct, frozen=True):
    regex: Regex
    context: int
    matches_max: int
    literal_argument: str | None = None
    """The tool's argument for literal patterns, named in hints; None if it has none."""


class BinarySign(Enum):
    NUL = "is binary and was not searched: it has a NUL byte near its beginning"
    LARGE_UTF16 = "is UTF-16 and over 8 MB, and was not searched"


class Remarks(Struct):
    unreadable: set[str] = field(default_factory=set[str])
    too_deep: set[str] = field(default_factory=set[str])
    """Directories that were not searched, as paths below them would be too deep."""
    changed: set[str] = field(default_factory=set[str])
    is_late: bool = False
    """It was stopped early: cancelled, or after `limits.search_timeout_s`."""
    is_broken: bool = False
    """ripgrep was ended by a signal that Paddock did not send."""
    binary: BinarySign | None = None
    large_utf16: set[str] = field(default_factory=set[str])
    """Files with matches of ripgrep that cannot be confirmed."""


class FileLines(Struct, frozen=True):
    """The matches of a file and their context lines, each once, in order."""

    path: str
    numbers: list[int]
    texts: list[bytes]
    """Read by the workspace; without the line feed."""
    matching: list[int]
    has_more: bool

    @property
    def matches(self) -> int:
        return len(self.matching)


class Skipped(Struct, frozen=True):
    """The number of skipped entries by reason; entries that may not be named do not count."""

    by_name: int = 0
    forbidden: int = 0
    too_large: int = 0
    binary: int = 0
    unreadable: int = 0


class ContentFound(Struct):
    """Files with their lines, in byte order of their paths; `matches` counts the shown ones."""

    files: list[FileLines] = field(default_factory=list[FileLines])
    matches: int = 0
    has_more: bool = False
    remarks: Remarks = field(default_factory=Remarks)
    files_searched: int = 0
    """Of a counted search, as is `skipped`."""
    skipped: Skipped = Skipped()


class NamesFound(Struct):
    paths: list[str] = field(default_factory=list[str])
    has_more: bool = False
    remarks: Remarks = field(default_factory=Remarks)


class Until:
    """The end of a search: `limits.search_timeout_s` from now, or cancellation."""

    def __init__(self, cancel: Cancel = NEVER) -> None:
        self._cancel = cancel
        self._deadline = time.monotonic() + limits.search_timeout_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline or self._cancel.is_cancelled

    @property
    def wait_ms(self) -> float:
        """The longest wait before `is_over` must be checked again."""
        return max(0.0, min(self._deadline - time.monotonic(), _POLL_S)) * 1000
