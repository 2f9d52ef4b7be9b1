"""Keeping the store to its size: pack what is raw, then forget the oldest.

Rules kept here:
  * alone under the store's lock: nobody who found an object loses it before it is named;
  * what is to be kept stays, even if the store is larger than it should be then, and so
    does what the newest call replaced;
  * age is the time when a content was kept last, not when it was written;
  * one run packs a bounded amount, so that no call waits for the whole store.

A content that alone is larger than the bound is kept all the same, until something newer is: a
write whose old content cannot be brought back would be worse.
"""

import contextlib
import os
import re
import time
from collections.abc import Collection
from operator import attrgetter
from typing import Final

from paddock.errors import InternalError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open
from paddock.storage.disk import READ, read_bytes
from paddock.storage.shelf import (
    PACKED,
    PACKED_BYTES_MAX,
    PACKED_BYTES_MIN,
    ObjectRow,
    Shelf,
    add_usage,
    list_objects,
    name_of,
    names_in,
    open_directory,
    pack,
    pays,
)
from paddock.text.show import quote

#     newest/<nanoseconds since 1970, in 20 digits>-<random>      a digest a line
#
# Whoever records a call that kept something, and finds the store over its bound, writes a
# file of its own and then removes those before it. So of several processes at once none takes
# away what a newer call replaced: at worst two files stand until the next call. Where the
# clock was set back, the older one stays too until its time has passed again.
#
# A file is written while the store's lock is shared, and read by whoever has it alone. Nobody
# waits for it to be on the device: after a crash no process is left that recorded an older
# call, and whoever records one later is the newest itself.

_NEWEST: Final = "newest"
_TIME_DIGITS: Final = 20
_FILE_BYTES_MAX: Final = 64_000_000
"""A call replaces fewer contents than would fit. More is somebody else's."""


def mark_newest(shelf: Shelf, digests: Collection[str]) -> None:
    """Say that the newest call replaced these. Raises: OSError; then what stood there stays."""
    content = "".join(f"{name_of(digest)}\n" for digest in sorted(digests)).encode("ascii")
    own = f"{time.time_ns():0{_TIME_DIGITS}d}-{os.urandom(8).hex()}"
    with held_open(open_directory(shelf.disk, shelf.fd, _NEWEST)) as dir_fd:
        with held_open(shelf.disk.create(dir_fd, own)) as fd:
            shelf.disk.write(fd, content)
        for name in names_in(dir_fd):
            if name < own:
                with contextlib.suppress(FileNotFoundError):
                    shelf.disk.unlink(dir_fd, name)


def newest(shelf: Shelf) -> set[str]:
    """The names of the objects that stay. Raises: OSError: then nothing may be pruned."""
    with held_open(open_directory(shelf.disk, shelf.fd, _NEWEST)) as dir_fd:
        return {line for name in names_in(dir_fd) for line in _lines(dir_fd, name)}


def _lines(dir_fd: int, name: str) -> list[str]:
    with held_open(os.open(name, READ, dir_fd=dir_fd)) as fd:
        text = read_bytes(fd, min(os.fstat(fd).st_size, _FILE_BYTES_MAX))
    return text.decode("ascii", "replace").splitlines()


_PACKED_PER_RUN_BYTES: Final = 64_000_000
_SAMPLED_BYTES: Final = 65_536
_ROOM_PART: Final = 16
"""So much less than the bound is left, that the next write does not prune again: a sixteenth."""


def prune(shelf: Shelf, bytes_max: int, keep: Collection[str], pinned: Collection[str] = ()) -> int:
    """Bring the store under `bytes_max`; how many bytes that freed.

    The caller has the store's lock alone. `keep`: digests; `pinned`: names of objects.
    """
    rows = sorted(list_objects(shelf.fd), key=attrgetter("touched_ns", "name"))
    before = total = sum(row.size_bytes for row in rows)
    if total > bytes_max:
        goal = bytes_max - bytes_max // _ROOM_PART
        total -= _pack_oldest(shelf, rows, total - goal)
        if total > bytes_max:
            rows = sorted(list_objects(shelf.fd), key=attrgetter("touched_ns", "name"))
            spared = {*map(name_of, keep), *pinned, *newest(shelf)}
            total -= _forget_oldest(shelf, rows, total - goal, spared)
        shelf.disk.sync(shelf.fd)
    add_usage(shelf.fd, 0, total)
    return before - total


def remove(shelf: Shelf, digest: str) -> int | None:
    """Remove one object, durably; how many bytes that freed, None where it was not there."""
    name, freed = name_of(digest), None
    for stands in (name, name + PACKED):
        with contextlib.suppress(FileNotFoundError):
            size_bytes = os.stat(stands, dir_fd=shelf.fd, follow_symlinks=False).st_size
            shelf.disk.unlink(shelf.fd, stands)
            freed = (freed or 0) + size_bytes
    # Also where it was gone: whoever removed it may have been killed before this.
    shelf.disk.sync(shelf.fd)
    return freed


def _pack_oldest(shelf: Shelf, rows: list[ObjectRow], wanted_bytes: int) -> int:
    freed, left = 0, _PACKED_PER_RUN_BYTES
    for row in rows:
        if freed >= wanted_bytes or left <= 0:
            break
        if row.name.endswith(PACKED) or not (
            PACKED_BYTES_MIN <= row.size_bytes <= PACKED_BYTES_MAX
        ):
            continue
        with held_open(os.open(row.name, READ, dir_fd=shelf.fd)) as fd:
            left -= _SAMPLED_BYTES
            if pays(fd):
                left -= row.size_bytes
                freed += _packed(shelf, row, fd)
    return freed


def _packed(shelf: Shelf, row: ObjectRow, fd: int) -> int:
    """Replace a raw object by a packed one; how many bytes that freed.

    Sequence: packed file → fsync → its name → fsync of the directory → unlink the raw one.
    """
    staged = shelf.draft()
    try:
        digest = pack(shelf.disk, fd, staged.fd, row.size_bytes)
        if name_of(digest) != row.name:
            return 0  # damaged: whoever reads it is told; it is not made to look whole
        staged.size_bytes = os.fstat(staged.fd).st_size
        shelf.disk.sync(staged.fd)
        more = shelf.place(staged, row.name + PACKED)
        # It is not kept anew: its age stays.
        shelf.disk.touch(shelf.fd, row.name + PACKED, row.touched_ns)
        shelf.disk.sync(shelf.fd)
        shelf.disk.unlink(shelf.fd, row.name)
        return row.size_bytes - more
    finally:
        shelf.discard(staged)


def _forget_oldest(shelf: Shelf, rows: list[ObjectRow], wanted_bytes: int, keep: set[str]) -> int:
    freed = 0
    for row in rows:
        if freed >= wanted_bytes:
            break
        if row.name.removesuffix(PACKED) in keep:
            continue
        shelf.disk.unlink(shelf.fd, row.name)
        freed += row.size_bytes
    return freed


#     pins/<name>      a line with the second since 1970 until which it counts, or `-`; then a
#                      digest a line
# Durability: file under another name → fsync → rename → fsync of the directory. A pin is
# written while the store's lock is shared, so that its contents are there when it counts.

_PINS: Final = "pins"
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_DRAFT: Final = ".part"
_FOR_EVER: Final = "-"
"""Until when a pin holds: until somebody removes it."""


def write_pin(shelf: Shelf, name: str, digests: Collection[str], until_s: float | None) -> None:
    _require_name(name)
    for digest in digests:
        name_of(digest)  # IntegrityError where it is none
    until = _FOR_EVER if until_s is None else str(int(until_s) + 1)
    content = "".join(f"{line}\n" for line in (until, *sorted(digests))).encode("ascii")
    with held_open(open_directory(shelf.disk, shelf.fd, _PINS)) as dir_fd:
        draft = os.urandom(16).hex() + _DRAFT
        try:
            with held_open(shelf.disk.create(dir_fd, draft)) as fd:
                shelf.disk.write(fd, content)
                shelf.disk.sync(fd)
            shelf.disk.replace(dir_fd, draft, dir_fd, name)
        except BaseException:
            with contextlib.suppress(OSError):
                shelf.disk.unlink(dir_fd, draft)
            raise
        shelf.disk.sync(dir_fd)


def remove_pin(shelf: Shelf, name: str) -> None:
    _require_name(name)
    pins = held_open(open_directory(shelf.disk, shelf.fd, _PINS))
    with pins as dir_fd, contextlib.suppress(FileNotFoundError):
        shelf.disk.unlink(dir_fd, name)


def pinned(shelf: Shelf, now_s: float) -> set[str]:
    """The names of the objects that are pinned now; pins whose time is over go.

    To be called by whoever has the store's lock alone: a draft is a dead process's then.
    """
    with held_open(open_directory(shelf.disk, shelf.fd, _PINS)) as dir_fd:
        found: set[str] = set()
        for name in names_in(dir_fd):
            kept = None if name.endswith(_DRAFT) else _read(dir_fd, name, now_s)
            if kept is None:
                shelf.disk.unlink(dir_fd, name)
            else:
                found |= kept
        return found


def _read(dir_fd: int, name: str, now_s: float) -> set[str] | None:
    """Of one pin; None where its time is over. What is no digest in it pins nothing."""
    until, *digests = _lines(dir_fd, name) or [_FOR_EVER]
    if until.isdecimal() and int(until) <= now_s:
        return None
    return {digest.partition(":")[2] for digest in digests}


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InternalError(f"a pin cannot have the name {quote(name)}")
