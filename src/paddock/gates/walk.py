"""What really stands under a plane's tiers: every name, hidden ones too, and no link followed."""

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.plane.files import host_errors

# A directory that became a link since it was listed is not entered (open(2), O_NOFOLLOW).
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    SPECIAL = "FIFO, socket or device"


@dataclass(frozen=True, slots=True)
class Standing:
    """One name below the plane's root, with what stands there."""

    path: str
    """Relative to the root; bytes that are no UTF-8 as Python's surrogates."""
    kind: Kind
    mode: int
    """Permission bits, set-id and sticky bits included."""
    owner: int
    is_too_deep: bool = False
    """A directory that was not entered: `limits.path_depth_max` lie above what is in it."""


def walk(root: Path, tops: Collection[str], closed: Collection[str]) -> Iterator[Standing]:
    """Everything at and below `tops`, parents first; directories of `closed` are not entered.

    Nor is one that lies too deep; it says so. What is gone before it is looked at is not there.

    Raises: HostError: something cannot be listed. What was not looked at is not passed over.
    """
    with host_errors("opening", root):
        root_fd = os.open(root, _DIRECTORY)
    try:
        for top in tops:
            with host_errors("looking at", root / top):
                found = _standing(top, os.stat(top, dir_fd=root_fd, follow_symlinks=False))
            yield found
            if found.kind is Kind.DIRECTORY and top not in closed:
                yield from _below(root_fd, top, closed)
    finally:
        os.close(root_fd)


@dataclass(frozen=True, slots=True)
class _Open:
    """A directory on the way to what is looked at now, and the names in it that are left."""

    fd: int
    path: str
    names: Iterator[str]


def _below(root_fd: int, top: str, closed: Collection[str]) -> Iterator[Standing]:
    # Threat: a chain of directories that is deeper than this program's stack, or than the
    # descriptors that it may have, would end the gate instead of failing it.
    above: list[_Open] = []
    try:
        _enter(above, root_fd, top)
        while above:
            directory = above[-1]
            name = next(directory.names, None)
            if name is None:
                os.close(above.pop().fd)
                continue
            found = _look(directory, name)
            if found is None:
                continue
            yield found
            enters = found.kind is Kind.DIRECTORY and not found.is_too_deep
            if enters and found.path not in closed:
                _enter(above, directory.fd, found.path)
    finally:
        for each in above:
            os.close(each.fd)


def _enter(above: list[_Open], parent_fd: int, path: str) -> None:
    with host_errors("listing", Path(path)):
        try:
            fd = os.open(path.rpartition("/")[2], _DIRECTORY, dir_fd=parent_fd)
        except FileNotFoundError:
            return
        opened = _Open(fd, path, iter(()))
        above.append(opened)
        above[-1] = replace(opened, names=iter(sorted(os.listdir(fd))))


def _look(directory: _Open, name: str) -> Standing | None:
    path = f"{directory.path}/{name}"
    with host_errors("looking at", Path(path)):
        try:
            return _standing(path, os.stat(name, dir_fd=directory.fd, follow_symlinks=False))
        except FileNotFoundError:
            return None


def _standing(path: str, status: os.stat_result) -> Standing:
    mode = status.st_mode
    kind = Kind.SPECIAL
    if stat.S_ISREG(mode):
        kind = Kind.FILE
    elif stat.S_ISDIR(mode):
        kind = Kind.DIRECTORY
    elif stat.S_ISLNK(mode):
        kind = Kind.LINK
    is_too_deep = kind is Kind.DIRECTORY and path.count("/") >= limits.path_depth_max
    return Standing(path, kind, stat.S_IMODE(mode), status.st_uid, is_too_deep)
