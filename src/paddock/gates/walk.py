"""What really stands under a plane's tiers: every name, hidden ones too, and no link followed."""

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from paddock.plane.files import host_errors

# A directory that became a link since it was listed is not entered (open(2), O_NOFOLLOW).
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kind(Enum):
    """What stands at a name."""

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


def walk(root: Path, tops: Collection[str], closed: Collection[str]) -> Iterator[Standing]:
    """Everything at and below `tops`, parents first; directories of `closed` are not entered.

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


def _below(parent_fd: int, directory: str, closed: Collection[str]) -> Iterator[Standing]:
    name = directory.rpartition("/")[2]
    with host_errors("listing", Path(directory)):
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
    try:
        with host_errors("listing", Path(directory)):
            names = sorted(os.listdir(fd))
        for each in names:
            path = f"{directory}/{each}"
            with host_errors("looking at", Path(path)):
                found = _standing(path, os.stat(each, dir_fd=fd, follow_symlinks=False))
            yield found
            if found.kind is Kind.DIRECTORY and path not in closed:
                yield from _below(fd, path, closed)
    finally:
        os.close(fd)


def _standing(path: str, status: os.stat_result) -> Standing:
    mode = status.st_mode
    kind = Kind.SPECIAL
    if stat.S_ISREG(mode):
        kind = Kind.FILE
    elif stat.S_ISDIR(mode):
        kind = Kind.DIRECTORY
    elif stat.S_ISLNK(mode):
        kind = Kind.LINK
    return Standing(path, kind, stat.S_IMODE(mode))
