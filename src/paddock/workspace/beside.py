"""A directory that lies elsewhere, under a name at the root of a workspace.

The git directory of a linked worktree, or of a repository that the workspace is a part
of, is not in the workspace, and what a command writes there belongs to the same set of
changes. So a set sees one tree: `.git` and what is below it are opened under the other
root, everything else under the workspace's own. What keeps a set whole (one order of
locks, one journal entry, one commit record) needs no second of anything:

    all checks of both → what is new is built in both → one sync of each file system
    → commit record → objects and files of the work tree → index → refs → HEAD
    → one sync of each → end

and a kill anywhere leaves the set to the recovery, which completes or undoes both parts.
File tools know nothing of this: only sets of commands, and their undoing, are made so.
"""

import errno
import os
from dataclasses import dataclass, replace
from typing import Self

from paddock.workspace.links import Found, find_real
from paddock.workspace.names import WorkspacePath, join_parts
from paddock.workspace.paths import AskedPath, escapes_root
from paddock.workspace.resolution import PASS_DIRECTORY, Resolution


@dataclass(frozen=True, slots=True)
class Beside:
    """The other root, held by its descriptor, which stays whoever's opened it."""

    name: str
    """One component: the name at the root of the workspace that stands for it."""
    real_root: str
    """Absolute, without links."""
    fd: int

    def below(self, relative: str) -> str | None:
        """The name of a workspace path in here; None for one that does not lead here."""
        if relative == self.name:
            return "."
        first, _, rest = relative.partition("/")
        return rest if first == self.name else None


class BesideResolution:
    """A resolution for one root; below one name of it another root is gone into."""

    __slots__ = ("_root_fd", "beside", "within")

    def __init__(self, within: Resolution, root_fd: int, beside: Beside) -> None:
        """Both descriptors stay the caller's."""
        self.within = within
        self._root_fd = root_fd
        self.beside = beside

    @property
    def name(self) -> str:
        return self.within.name

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        inside = self.beside.below(relative) if root_fd == self._root_fd else None
        if inside is None:
            return self.within.open(root_fd, relative, flags)
        return self.within.open(self.beside.fd, inside, flags)


def beside_of(resolution: Resolution) -> Beside | None:
    """The other root that it goes into, if there is one."""
    return resolution.beside if isinstance(resolution, BesideResolution) else None


def without_beside(resolution: Resolution) -> Resolution:
    """The resolution for any root."""
    return resolution.within if isinstance(resolution, BesideResolution) else resolution


def find_beside(beside: Beside, asked: AskedPath, *, last: bool) -> Found:
    """Where a path leads that begins with the name of the other root; see `links.find_real`.

    Raises: as that. A `..` is not resolved here: it is none of ours (PathTraversalError).
    """
    if ".." in asked.parts:
        raise escapes_root(asked.text)
    found = find_real(beside.fd, replace(asked, parts=asked.parts[1:]), (), last=last)
    return replace(found, asked=_below(beside, found.asked), real=_below(beside, found.real))


def _below(beside: Beside, path: WorkspacePath) -> WorkspacePath:
    return join_parts((beside.name, *path.parts))


class HeldBeside:
    """A `Beside` that is opened, and closed with the block."""

    __slots__ = ("beside",)

    def __init__(self, name: str, real_root: str, inode: int) -> None:
        """Raises: OSError: it is not there, or another directory (ESTALE)."""
        fd = os.open(real_root, PASS_DIRECTORY | os.O_NOFOLLOW)
        if os.fstat(fd).st_ino != inode:
            os.close(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), real_root)
        self.beside = Beside(name, real_root, fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.beside.fd)
