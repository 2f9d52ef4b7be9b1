"""The names of things inside one workspace: canonical, and judged by policy as they stand."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from paddock.values.quick import quick


@dataclass(frozen=True, slots=True, init=False)
class WorkspacePath:
    """A canonical name inside one workspace; `.` is the root.

    Components are joined by `/`; there is no leading slash, no empty component,
    no `.` and no `..`. Only the workspace makes one: holding it means that the
    text was taken apart once, here, and is never taken apart again. A name that
    the disk gave may hold lone surrogates, where it is not UTF-8.
    """

    relative: str

    def __init__(self) -> None:
        raise TypeError("only a workspace makes a WorkspacePath: use its resolve methods")

    def __hash__(self) -> int:
        # The one a dataclass makes is three times as slow, and sets hash by the thousand.
        return hash(self.relative)

    @property
    def parts(self) -> tuple[str, ...]:
        """The components; none for the root."""
        return () if self.relative == "." else tuple(self.relative.split("/"))

    @property
    def name(self) -> str:
        """The last component; `.` for the root."""
        return self.relative.rpartition("/")[2]

    @property
    def parent(self) -> "WorkspacePath":
        """The directory that holds it; the root is its own parent."""
        return unchecked_path(self.relative.rpartition("/")[0] or ".")

    @property
    def is_root(self) -> bool:
        """Whether it names the root itself."""
        return self.relative == "."

    def __str__(self) -> str:
        return self.relative


_put_relative: Final = WorkspacePath.__dict__["relative"].__set__


def unchecked_path(relative: str) -> WorkspacePath:
    """The path whose canonical text is `relative`, which the caller has proved to be so."""
    path = object.__new__(WorkspacePath)
    _put_relative(path, relative)  # frozen, and the constructor is closed
    return path


ROOT: Final = unchecked_path(".")


def join_parts(parts: tuple[str, ...] | list[str]) -> WorkspacePath:
    """The path of components that were checked before."""
    return unchecked_path("/".join(parts) or ".")


def child_of(directory: WorkspacePath, name: str) -> WorkspacePath:
    """The path of one entry of `directory`, `name` as the disk gave it."""
    return unchecked_path(name if directory.is_root else f"{directory.relative}/{name}")


class ReadPath(NamedTuple):
    """A path to read: as asked, and where links lead. Policy judges both.

    It need not exist: what is missing is said when it is opened, after policy
    was asked, so that a refusal does not tell whether something is there.
    """

    asked: WorkspacePath
    real: WorkspacePath


def same_path(path: WorkspacePath) -> ReadPath:
    """Of a path without links, which is what it leads to."""
    return quick(ReadPath, (path, path))


class WritePath(NamedTuple):
    """A path to write: as asked, the file that would be written, whether it stood there.

    The two differ only where the last component is a link. Policy judges both.
    """

    asked: WorkspacePath
    real: WorkspacePath
    exists: bool


class EntryPath(NamedTuple):
    """A directory entry itself, to move or delete: a link is the link, not its target."""

    path: WorkspacePath
    exists: bool
