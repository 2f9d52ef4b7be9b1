"""Keeping the store to its size: pack what is raw, then forget the oldest.

Rules kept here:
  * alone under the store's lock: nobody who found an object loses it before it is named;
  * what is to be kept stays, even if the store is larger than it should be then, and so
    does what the newest call replaced;
  * age is the time when a content was kept last, not when it was written;
  * one run packs a bounded amount, so that no call waits for the whole store.

A content that alone is larger than the bound is kept all the same: a write whose old
content cannot be brought back would be worse than a store that is too large for a
while. It is the first to go once something newer is kept. See `newest`.
"""

import contextlib
import os
from collections.abc import Collection
from operator import attrgetter
from typing import Final

from paddock.history.newest import newest
from paddock.history.packing import (
    PACKED,
    PACKED_BYTES_MAX,
    PACKED_BYTES_MIN,
    name_of,
    pack,
    pays,
)
from paddock.history.shelf import Shelf
from paddock.history.usage import Row, list_objects, reset_usage
from paddock.storage.disk import READ

_PACKED_PER_RUN_BYTES: Final = 64_000_000
_SAMPLED_BYTES: Final = 65_536
_ROOM_PART: Final = 16
"""So much less than the bound is left, that the next write does not prune again: a sixteenth."""


def prune(shelf: Shelf, bytes_max: int, keep: Collection[str], pinned: Collection[str] = ()) -> int:
    """Bring the store under `bytes_max`; how many bytes that freed.

    The caller has the store's lock alone. `keep`: digests that stay; `pinned`: names of
    objects that do. What the newest call replaced stays too.
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
    reset_usage(shelf.fd, total)
    return before - total


def remove(shelf: Shelf, digest: str) -> int | None:
    """Remove one object, durably; how many bytes that freed, None where it was not there.

    Raises: IntegrityError where `digest` is none; OSError.
    """
    name, freed = name_of(digest), None
    for stands in (name, name + PACKED):
        with contextlib.suppress(FileNotFoundError):
            size_bytes = os.stat(stands, dir_fd=shelf.fd, follow_symlinks=False).st_size
            shelf.disk.unlink(shelf.fd, stands)
            freed = (freed or 0) + size_bytes
    # Also where it was gone: whoever removed it may have been killed before this.
    shelf.disk.sync(shelf.fd)
    return freed


def _pack_oldest(shelf: Shelf, rows: list[Row], wanted_bytes: int) -> int:
    freed, left = 0, _PACKED_PER_RUN_BYTES
    for row in rows:
        if freed >= wanted_bytes or left <= 0:
            break
        if row.name.endswith(PACKED) or not (
            PACKED_BYTES_MIN <= row.size_bytes <= PACKED_BYTES_MAX
        ):
            continue
        fd = os.open(row.name, READ, dir_fd=shelf.fd)
        try:
            left -= _SAMPLED_BYTES
            if pays(fd):
                left -= row.size_bytes
                freed += _packed(shelf, row, fd)
        finally:
            os.close(fd)
    return freed


def _packed(shelf: Shelf, row: Row, fd: int) -> int:
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


def _forget_oldest(shelf: Shelf, rows: list[Row], wanted_bytes: int, keep: set[str]) -> int:
    freed = 0
    for row in rows:
        if freed >= wanted_bytes:
            break
        if row.name.removesuffix(PACKED) in keep:
            continue
        shelf.disk.unlink(shelf.fd, row.name)
        freed += row.size_bytes
    return freed
