"""The names in the store, what holds one there, and keeping the store to its size.

* alone under the store's lock: nobody who found an object loses it before it is named;
* what is to be kept stays, even if the store is larger than it should be then, and so
does what the newest call replaced: a write that cannot be undone would be worse;
* age is the time when a content was kept last, not when it was written.
"""

import os
import re
import time
from collections.abc import Collection, Generator
from contextlib import suppress
from fcntl import LOCK_EX
from typing import Final

from paddock.errors import IntegrityError, InternalError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY, PRIVATE_DIRECTORY_MODE, READ, Disk, read_bytes
from paddock.storage.locks import wait_for_lock
from paddock.text.show import quote

PACKED: Final = ".z"
"""Ends the name of an object that an earlier version packed; nobody packs any more."""
_DIGEST: Final = lazy_pattern(r"sha256:([0-9a-f]{64})")
_OBJECT_NAME: Final = lazy_pattern(r"([0-9a-f]{64})(\.z)?")


def name_of(digest: str) -> str:
    found = _DIGEST.fullmatch(digest)
    # Threat: one read from a record that somebody wrote could be a path.
    if found is None:
        raise IntegrityError(f"{quote(digest)} is no digest of an object")
    return found[1]


def names_in(dir_fd: int) -> list[str]:
    # Opened anew: a descriptor that threads share has one place in the listing for all.
    with held_open(os.open(".", DIRECTORY, dir_fd=dir_fd)) as fd:
        return os.listdir(fd)


def open_directory(disk: Disk, dir_fd: int | None, name: str) -> int:
    """Made durably where it is missing."""
    with suppress(FileNotFoundError):
        return os.open(name, DIRECTORY, dir_fd=dir_fd)
    with suppress(FileExistsError):  # somebody else was quicker
        disk.make_directory(dir_fd, name, PRIVATE_DIRECTORY_MODE)
    with held_open(os.open(f"{name}/..", DIRECTORY, dir_fd=dir_fd)) as parent:
        disk.sync(parent)
    return os.open(name, DIRECTORY, dir_fd=dir_fd)


def prune(disk: Disk, store_fd: int, bytes_max: int, keep: Collection[str]) -> int:
    """Forget the oldest, but for `keep` and what is pinned, until the rest fits; bytes freed."""
    spared = {*map(name_of, keep), *_pinned(disk, store_fd)}
    rows = sorted(_list_objects(store_fd))
    before = total = sum(size_bytes for *_, size_bytes in rows)
    if total > bytes_max:
        for _, name, size_bytes in rows:
            # A sixteenth less than the bound, so that the next write does not prune again.
            if total <= bytes_max - bytes_max // 16:
                break
            if name.removesuffix(PACKED) not in spared:
                disk.unlink(store_fd, name)
                total -= size_bytes
        disk.sync(store_fd)
    add_usage(store_fd, 0, total)
    return before - total


def _list_objects(store_fd: int) -> Generator[tuple[int, str, int]]:
    """When it was kept last, its name, its size."""
    for name in filter(_OBJECT_NAME.fullmatch, names_in(store_fd)):
        with suppress(FileNotFoundError):  # pruned meanwhile
            status = os.stat(name, dir_fd=store_fd, follow_symlinks=False)
            yield status.st_mtime_ns, name, status.st_size


# How much stands there: one number in a file, moved by whoever puts or prunes, under its own
# lock. A process that is killed may leave it a little off; every pruning counts anew.

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGITS: Final = 20


def add_usage(store_fd: int, size_bytes: int, counted: int | None = None) -> int:
    """Move the number by `size_bytes`, from what was `counted`; return what it is then."""
    with held_open(os.open("usage", _FLAGS, 0o600, dir_fd=store_fd)) as fd:
        wait_for_lock(fd, LOCK_EX)  # in vain, it is a little off
        text = os.pread(fd, _DIGITS + 1, 0)
        if counted is None and len(text) == _DIGITS + 1 and text[:-1].isdigit():
            counted = int(text)
        if counted is None:  # what is to be added stands there already
            counted, size_bytes = sum(size for *_, size in _list_objects(store_fd)), 0
        total = max(0, counted + size_bytes)
        os.pwrite(fd, f"{total:0{_DIGITS}d}\n".encode(), 0)
        return total


#     pins/<name>      a line with the second since 1970 until which it counts, or `-`; then a
#                      digest a line
# Durability: file under another name → fsync → rename → fsync of the directory. A pin is
# written while the store's lock is shared, so that its contents are there when it counts.

_PINS: Final = "pins"
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
NEWEST: Final = "newest"
"""What the newest call replaced: of several at once, that which writes it last. Of an earlier
version `newest-<time>-<random>`, which counts until this one stands there."""
_FILE_BYTES_MAX: Final = 64_000_000
"""A call replaces fewer contents than would fit. More is somebody else's."""


def write_pin(
    disk: Disk, store_fd: int, name: str, digests: Collection[str], until_s: float | None
) -> None:
    _require_name(name)
    for digest in digests:
        name_of(digest)  # IntegrityError where it is none
    until = "-" if until_s is None else str(int(until_s) + 1)
    content = "".join(f"{line}\n" for line in (until, *sorted(digests))).encode("ascii")
    with held_open(open_directory(disk, store_fd, _PINS)) as dir_fd:
        draft = os.urandom(16).hex() + ".part"
        try:
            with held_open(disk.create(dir_fd, draft)) as fd:
                disk.write(fd, content)
                disk.sync(fd)
            disk.replace(dir_fd, draft, dir_fd, name)
        except BaseException:
            with suppress(OSError):
                disk.unlink(dir_fd, draft)
            raise
        disk.sync(dir_fd)


def remove_pin(disk: Disk, store_fd: int, name: str) -> None:
    _require_name(name)
    with suppress(FileNotFoundError), held_open(open_directory(disk, store_fd, _PINS)) as dir_fd:
        disk.unlink(dir_fd, name)


def _pinned(disk: Disk, store_fd: int) -> set[str]:
    """The names of the objects that are pinned now; pins whose time is over go."""
    found: set[str] = set()
    with held_open(open_directory(disk, store_fd, _PINS)) as dir_fd:
        names = names_in(dir_fd)
        for name in names:
            with held_open(os.open(name, READ, dir_fd=dir_fd)) as fd:
                text = read_bytes(fd, min(os.fstat(fd).st_size, _FILE_BYTES_MAX))
            lines = text.decode("ascii", "replace").splitlines()
            is_over = bool(lines) and lines[0].isdecimal() and int(lines[0]) <= time.time()
            is_older = name.startswith(f"{NEWEST}-") and NEWEST in names
            # A draft is a dead process's, since we have the store's lock alone.
            if is_over or is_older or _NAME.fullmatch(name) is None:
                disk.unlink(dir_fd, name)
            else:
                # What is no digest in them pins nothing.
                found.update(line.rpartition(":")[2] for line in lines)
    return found


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InternalError(f"a pin cannot have the name {quote(name)}")
