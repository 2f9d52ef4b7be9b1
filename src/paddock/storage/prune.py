"""Keeping the store to its size: pack what is raw, then forget the oldest.

An object is put as it is: packing costs more than an edit. It is packed when the store
needs room, and only where that saves something.

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
import hashlib
import os
import re
import time
import zlib
from collections.abc import Collection, Generator
from operator import attrgetter
from typing import Final

from paddock.errors import InternalError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY, READ, Disk, chunks_of, digest_of_file, read_bytes
from paddock.storage.shelf import (
    PACKED,
    PACKED_BYTES_MAX,
    ObjectRow,
    Shelf,
    add_usage,
    list_objects,
    name_of,
    names_in,
    open_directory,
)
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX

_PACKED_PER_RUN_BYTES: Final = 64_000_000
_PACKED_BYTES_MIN: Final = 8192
"""Two blocks of most file systems: below that nothing is saved."""
_SAMPLE_BYTES: Final = 65_536
_PAYS_BELOW: Final = 0.8
_LEVEL: Final = 6
_ROOM_PART: Final = 16
"""So much less than the bound is left, that the next write does not prune again: a sixteenth."""


def prune(shelf: Shelf, bytes_max: int, keep: Collection[str]) -> int:
    """Bring the store under `bytes_max`, but for `keep` and what is pinned; the bytes freed.

    The caller has the store's lock alone.
    """
    spared = {*map(name_of, keep), *_pinned(shelf, time.time())}
    rows = sorted(list_objects(shelf.fd), key=attrgetter("touched_ns", "name"))
    before = total = sum(row.size_bytes for row in rows)
    if total > bytes_max:
        goal = bytes_max - bytes_max // _ROOM_PART
        total -= _pack_oldest(shelf, rows, total - goal)
        if total > bytes_max:
            rows = sorted(list_objects(shelf.fd), key=attrgetter("touched_ns", "name"))
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
    # Nobody waited for its name: it must not come back under the one that it had before.
    for held, fd, status in shelf.held():
        if digest_of_file(fd, status.st_size) == digest:
            shelf.disk.unlink(shelf.incoming_fd, held)
            freed = freed or 0
    # Also where it was gone: whoever removed it may have been killed before this.
    shelf.disk.sync(shelf.fd)
    shelf.disk.sync(shelf.incoming_fd)
    return freed


def pays(fd: int) -> bool:
    sample = os.pread(fd, _SAMPLE_BYTES, 0)
    return len(zlib.compress(sample, 1)) < len(sample) * _PAYS_BELOW


def pack(disk: Disk, from_fd: int, to_fd: int, size_bytes: int) -> str:
    """Write the packed content; return the digest of what was packed."""
    packer = zlib.compressobj(_LEVEL)
    digest = hashlib.sha256()
    for chunk in chunks_of(from_fd, size_bytes):
        digest.update(chunk)
        disk.write(to_fd, packer.compress(chunk))
    disk.write(to_fd, packer.flush())
    return DIGEST_PREFIX + digest.hexdigest()


def _pack_oldest(shelf: Shelf, rows: list[ObjectRow], wanted_bytes: int) -> int:
    freed, left = 0, _PACKED_PER_RUN_BYTES
    for row in rows:
        if freed >= wanted_bytes or left <= 0:
            break
        if row.name.endswith(PACKED) or not (
            _PACKED_BYTES_MIN <= row.size_bytes <= PACKED_BYTES_MAX
        ):
            continue
        with held_open(os.open(row.name, READ, dir_fd=shelf.fd)) as fd:
            left -= _SAMPLE_BYTES
            if pays(fd):
                left -= row.size_bytes
                freed += _packed(shelf, row, fd)
    return freed


def _packed(shelf: Shelf, row: ObjectRow, fd: int) -> int:
    """Replace a raw object by a packed one; how many bytes that freed.

    Sequence: packed file → fsync → its name → fsync of the directory → unlink the raw one.
    """
    with shelf.part() as (part, to_fd):
        digest = pack(shelf.disk, fd, to_fd, row.size_bytes)
        if name_of(digest) != row.name:
            return 0  # damaged: whoever reads it is told; it is not made to look whole
        shelf.disk.sync(to_fd)
        more = shelf.place(part, row.name + PACKED, os.fstat(to_fd).st_size)
        # It is not kept anew: its age stays.
        shelf.disk.touch(shelf.fd, row.name + PACKED, row.touched_ns)
        shelf.disk.sync(shelf.fd)
        shelf.disk.unlink(shelf.fd, row.name)
        return row.size_bytes - more


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
#
#     pins/newest-<nanoseconds since 1970, in 20 digits>-<random>      what the newest call replaced
#
# Whoever records a call that kept something, and finds the store over its bound, writes one
# of its own and then removes those before it. So of several processes at once none takes
# away what a newer call replaced: at worst two stand until the next call. Where the clock was
# set back, the older one stays too until its time has passed again. Nobody waits for it to be on
# the device: after a crash no process is left that recorded an older call, and whoever records
# one later is the newest itself. Earlier versions wrote them into `newest/`, without a first line.

_PINS: Final = "pins"
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_DRAFT: Final = ".part"
_FOR_EVER: Final = "-"
"""Until when a pin holds: until somebody removes it."""
_NEWEST: Final = "newest-"
_EARLIER_NEWEST: Final = "newest"
_TIME_DIGITS: Final = 20
_FILE_BYTES_MAX: Final = 64_000_000
"""A call replaces fewer contents than would fit. More is somebody else's."""


def write_pin(shelf: Shelf, name: str, digests: Collection[str], until_s: float | None) -> None:
    _require_name(name)
    content = _text_of(digests, until_s)
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


def mark_newest(shelf: Shelf, digests: Collection[str]) -> None:
    """Say that the newest call replaced these. Raises: OSError; then what stood there stays."""
    own = f"{_NEWEST}{time.time_ns():0{_TIME_DIGITS}d}-{os.urandom(8).hex()}"
    with held_open(open_directory(shelf.disk, shelf.fd, _PINS)) as dir_fd:
        with held_open(shelf.disk.create(dir_fd, own)) as fd:
            shelf.disk.write(fd, _text_of(digests, None))
        for name in names_in(dir_fd):
            if name.startswith(_NEWEST) and name < own:
                with contextlib.suppress(FileNotFoundError):
                    shelf.disk.unlink(dir_fd, name)
    with _earlier_newest(shelf) as (dir_fd, names):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                shelf.disk.unlink(dir_fd, name)


def remove_pin(shelf: Shelf, name: str) -> None:
    _require_name(name)
    pins = held_open(open_directory(shelf.disk, shelf.fd, _PINS))
    with pins as dir_fd, contextlib.suppress(FileNotFoundError):
        shelf.disk.unlink(dir_fd, name)


def _text_of(digests: Collection[str], until_s: float | None) -> bytes:
    for digest in digests:
        name_of(digest)  # IntegrityError where it is none
    until = _FOR_EVER if until_s is None else str(int(until_s) + 1)
    return "".join(f"{line}\n" for line in (until, *sorted(digests))).encode("ascii")


def _pinned(shelf: Shelf, now_s: float) -> set[str]:
    """The names of the objects that are pinned now; pins whose time is over go.

    A draft is a dead process's, since we have the store's lock alone.
    """
    found: set[str] = set()
    with held_open(open_directory(shelf.disk, shelf.fd, _PINS)) as dir_fd:
        for name in names_in(dir_fd):
            lines = [] if name.endswith(_DRAFT) else _lines(dir_fd, name)
            if name.endswith(_DRAFT) or (lines and lines[0].isdecimal() and int(lines[0]) <= now_s):
                shelf.disk.unlink(dir_fd, name)
            else:
                found.update(lines)
    with _earlier_newest(shelf) as (dir_fd, names):
        for name in names:
            found.update(_lines(dir_fd, name))
    # What is no digest in them pins nothing.
    return {line.rpartition(":")[2] for line in found}


@contextlib.contextmanager
def _earlier_newest(shelf: Shelf) -> Generator[tuple[int, list[str]]]:
    try:
        fd = os.open(_EARLIER_NEWEST, DIRECTORY, dir_fd=shelf.fd)
    except FileNotFoundError:
        yield -1, []
        return
    with held_open(fd):
        yield fd, names_in(fd)


def _lines(dir_fd: int, name: str) -> list[str]:
    with held_open(os.open(name, READ, dir_fd=dir_fd)) as fd:
        text = read_bytes(fd, min(os.fstat(fd).st_size, _FILE_BYTES_MAX))
    return text.decode("ascii", "replace").splitlines()


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InternalError(f"a pin cannot have the name {quote(name)}")
