"""What a directory holds, as a listing shows it."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol, TypeAlias

from paddock.workspace.names import WorkspacePath


class EntryKind(Enum):
    """What stands under a name; the first three kinds of link differ in where they lead."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    DANGLING_LINK = "dangling link"
    LINK_OUT = "link out"
    SPECIAL = "special"


ChangeableKind: TypeAlias = Literal[EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.LINK]
"""The kinds that a tool or a command can change."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One entry. `size_bytes` is 0 for all but files.

    `target` and `target_kind` (FILE, DIRECTORY or SPECIAL) are set for a LINK
    that leads to something inside; a DANGLING_LINK has the target only. A
    LINK_OUT has neither: where it leads is nothing that an agent sees.
    """

    path: WorkspacePath
    kind: EntryKind
    size_bytes: int = 0
    target: WorkspacePath | None = None
    target_kind: EntryKind | None = None

    @property
    def is_directory(self) -> bool:
        """A directory itself, not a link to one."""
        return self.kind is EntryKind.DIRECTORY


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries in byte order of their paths, cut at a limit; `total` counts all of them."""

    entries: tuple[DirectoryEntry, ...]
    total: int
    unreadable: tuple[WorkspacePath, ...] = ()
    """Directories that could not be opened; they are listed, what they hold is not."""

    @property
    def missing(self) -> int:
        """How many entries the limit left out."""
        return self.total - len(self.entries)


@dataclass(frozen=True, slots=True)
class Page:
    """The first entries of one directory, and whether there are more."""

    entries: tuple[DirectoryEntry, ...]
    has_more: bool


class EntryFilter(Protocol):
    """Which entries a listing is about. What is not shown is not counted."""

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        """Whether the entry is part of the listing."""
        ...

    def enters(self, path: WorkspacePath) -> bool:
        """Whether what this directory holds is looked at."""
        ...


class EveryEntry:
    """Shows everything and enters every directory."""

    __slots__ = ()

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        """True."""
        del path, is_directory
        return True

    def enters(self, path: WorkspacePath) -> bool:
        """True."""
        del path
        return True
