"""How many bytes the store holds, without counting them each time.

One number in a file, moved by whoever puts or prunes, under its own short lock. A crash
may leave it a little off; every pruning counts anew.
"""

import fcntl
import os
from dataclasses import dataclass
from typing import Final

from paddock.history.locking import wait_for_store
from paddock.history.packing import OBJECT_NAME
from paddock.history.shelf import names_in

_NAME: Final = "usage"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGITS: Final = 20


def add_usage(dir_fd: int, size_bytes: int) -> int:
    """Move the number by `size_bytes`, which may be negative; return what it is then."""
    return _set(dir_fd, size_bytes, None)


def read_usage(dir_fd: int) -> int:
    """The number as it stands; counted if there is none."""
    return _set(dir_fd, 0, None)


def reset_usage(dir_fd: int, size_bytes: int) -> None:
    """What a count found."""
    _set(dir_fd, 0, size_bytes)


def _set(dir_fd: int, more: int, counted: int | None) -> int:
    fd = os.open(_NAME, _FLAGS, 0o600, dir_fd=dir_fd)
    try:
        wait_for_store(fd, fcntl.LOCK_EX)
        base = _parsed(os.pread(fd, _DIGITS + 1, 0)) if counted is None else counted
        # When it is counted, what is added stands there already.
        total = count_usage(dir_fd) if base is None else max(0, base + more)
        os.pwrite(fd, f"{total:0{_DIGITS}d}\n".encode(), 0)
        return total
    finally:
        os.close(fd)


def _parsed(text: bytes) -> int | None:
    return int(text) if len(text) == _DIGITS + 1 and text[:-1].isdigit() else None


def count_usage(dir_fd: int) -> int:
    """The bytes of all objects, each looked at."""
    return sum(row.size_bytes for row in list_objects(dir_fd))


@dataclass(frozen=True, slots=True)
class Row:
    """One object as it stands on the disk."""

    name: str
    size_bytes: int
    touched_ns: int


def list_objects(dir_fd: int) -> list[Row]:
    """Every object, in no order."""
    found = [name for name in names_in(dir_fd) if OBJECT_NAME.fullmatch(name)]
    rows: list[Row] = []
    for name in found:
        try:
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue  # packed or pruned meanwhile
        rows.append(Row(name, status.st_size, status.st_mtime_ns))
    return rows
