"""The store's directories, its lock and its size.

What stands there:

    <64 hex digits>          an object, as it is
    <64 hex digits>.z        an object, packed
    usage, notes/, pins/     see there
    incoming/<random>.held   a content that has no digest for a name yet: put, or a second name
                             of a large file that is about to be replaced; empty, a name for later
    incoming/<random>.part   a copy that is being made of an object, or of what was held
"""

import contextlib
import fcntl
import hashlib
import os
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Self

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, IntegrityError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open
from paddock.storage.disk import (
    CHUNK_BYTES,
    DIRECTORY,
    PRIVATE_DIRECTORY_MODE,
    READ,
    Disk,
    chunks_of,
    converting,
    write_chunks,
)
from paddock.storage.locks import call_after_fork, try_lock, unlock, wait_for_lock
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX

PACKED: Final = ".z"
PACKED_BYTES_MAX: Final = 64_000_000
"""Of the content. A packed object that holds more is a forgery."""
_DIGEST: Final = lazy_pattern(r"sha256:([0-9a-f]{64})")
_OBJECT_NAME: Final = lazy_pattern(r"([0-9a-f]{64})(\.z)?")
_INCOMING: Final = "incoming"
_PART: Final = ".part"
_HELD: Final = ".held"


def name_of(digest: str) -> str:
    """The name under which the content with this digest stands, as it is."""
    found = _DIGEST.fullmatch(digest)
    # Threat: one read from a record that somebody wrote could be a path.
    if found is None:
        raise IntegrityError(f"{quote(digest)} is no digest of an object")
    return found[1]


def held_name() -> str:
    return os.urandom(16).hex() + _HELD


class Shelf(Struct, frozen=True):
    """The descriptors of the store's directories, and the disk they are on."""

    disk: Disk
    fd: int
    incoming_fd: int

    @classmethod
    def open(cls, disk: Disk, directory: str) -> Self:
        fd = open_directory(disk, None, directory)
        try:
            return cls(disk, fd, open_directory(disk, fd, _INCOMING))
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def look(cls, disk: Disk, directory: str, nowhere: str) -> Self:
        """Open them for reading; what is missing is not made: `nowhere` stands for it."""
        fd = _open_or(nowhere, directory, None)
        try:
            return cls(disk, fd, _open_or(nowhere, _INCOMING, fd))
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        os.close(self.incoming_fd)
        os.close(self.fd)

    def place(self, incoming: str, name: str, size_bytes: int) -> int:
        """Let a content replace what stands there; how many bytes more the store has."""
        more = size_bytes - self.size_of(name)
        self.disk.replace(self.incoming_fd, incoming, self.fd, name)
        return more

    def size_of(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0

    def discard(self, incoming: str) -> None:
        """Remove a name, where it is there. One that cannot be removed is swept later."""
        with contextlib.suppress(OSError):
            self.disk.unlink(self.incoming_fd, incoming)

    def held(self) -> Generator[tuple[str, int, os.stat_result]]:
        """Contents that wait for their digest, with a descriptor while it is asked for the next."""
        for name in names_in(self.incoming_fd):
            if not name.endswith(_HELD):
                continue
            with (
                contextlib.suppress(FileNotFoundError),  # it has become an object, or was let go
                held_open(os.open(name, READ, dir_fd=self.incoming_fd)) as fd,
            ):
                status = os.fstat(fd)
                if status.st_size:
                    yield name, fd, status

    def sweep(self) -> int:
        """Deal with what killed processes left; how many bytes more the store has then.

        Only whoever has the store's lock alone calls it. What was held may be the last copy of a
        content: it becomes an object, as a copy, for its other name may be in use.
        """
        more = 0
        for name, fd, status in self.held():
            more += self._keep_held(fd, status.st_size)
            self.disk.unlink(self.incoming_fd, name)
        for name in names_in(self.incoming_fd):
            self.disk.unlink(self.incoming_fd, name)
        return more

    def _keep_held(self, fd: int, size_bytes: int) -> int:
        with self.part() as (part, to_fd):
            digest = write_chunks(chunks_of(fd, size_bytes), self.disk, to_fd)
            self.disk.sync(to_fd)
            more = self.place(part, name_of(digest), size_bytes)
            self.disk.sync(self.fd)
            return more

    @contextmanager
    def part(self) -> Generator[tuple[str, int]]:
        """A file in `incoming/` that is removed where it was not placed."""
        name = os.urandom(16).hex() + _PART
        try:
            with held_open(self.disk.create(self.incoming_fd, name)) as fd:
                yield name, fd
        finally:
            self.discard(name)


def _open_or(nowhere: str, directory: str, dir_fd: int | None) -> int:
    try:
        return os.open(directory, DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        return os.open(nowhere, DIRECTORY)


def names_in(dir_fd: int) -> list[str]:
    # Opened anew: a descriptor that threads share has one place in the listing for all.
    with held_open(os.open(".", DIRECTORY, dir_fd=dir_fd)) as fd:
        return os.listdir(fd)


def open_directory(disk: Disk, dir_fd: int | None, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        try:
            disk.make_directory(dir_fd, name, PRIVATE_DIRECTORY_MODE)
        except FileExistsError:
            return os.open(name, DIRECTORY, dir_fd=dir_fd)
    fd = os.open(name, DIRECTORY, dir_fd=dir_fd)
    try:
        with held_open(os.open("..", DIRECTORY, dir_fd=fd)) as parent:
            disk.sync(parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def unpacked(fd: int) -> Generator[bytes]:
    unpacker = zlib.decompressobj()
    total = 0
    for chunk in chunks_of(fd, os.fstat(fd).st_size):
        rest = chunk
        while rest and not unpacker.eof:
            try:
                piece = unpacker.decompress(rest, CHUNK_BYTES)
            except zlib.error as failure:
                raise ValueError(str(failure)) from failure
            total += len(piece)
            if total > PACKED_BYTES_MAX:
                raise ValueError(f"it holds more than {PACKED_BYTES_MAX} bytes")
            yield piece
            rest = unpacker.unconsumed_tail
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut, or something stands behind it")


class OpenObject(Struct, frozen=True):
    digest: str
    fd: int
    is_packed: bool

    def content(self) -> Generator[bytes]:
        hashed = hashlib.sha256()
        pieces = (
            unpacked(self.fd) if self.is_packed else chunks_of(self.fd, os.fstat(self.fd).st_size)
        )
        try:
            for piece in pieces:
                hashed.update(piece)
                yield piece
        except ValueError as failure:
            raise self._damaged(str(failure)) from failure
        if DIGEST_PREFIX + hashed.hexdigest() != self.digest:
            raise self._damaged("its content has another digest")

    def _damaged(self, why: str) -> IntegrityError:
        return IntegrityError(
            f"the object {self.digest} of the history is damaged: {why}",
            hint="restore it from a backup; what refers to it cannot be undone",
        )


def open_object(dir_fd: int, digest: str) -> OpenObject | None:
    name = name_of(digest)
    # Packing names the packed object before it removes the other, so a second look at
    # the first would find no more than one at the second does.
    for stands, is_packed in ((name, False), (name + PACKED, True)):
        try:
            return OpenObject(digest, os.open(stands, READ, dir_fd=dir_fd), is_packed)
        except FileNotFoundError:
            continue
    return None


class StoreLock:
    """flock(2) on the store's directory: whoever puts shares it, whoever prunes has it alone.

    Each share has an open file of its own, since a lock belongs to that. A forked child lets
    go of its parent's, which would last as long as the child.
    """

    __slots__ = ("__weakref__", "_dir_fd", "_shares")

    def __init__(self, dir_fd: int) -> None:
        self._dir_fd = dir_fd
        self._shares: set[int] = set()
        call_after_fork(self, StoreLock._after_fork)

    def _after_fork(self) -> None:
        while self._shares:
            os.close(self._shares.pop())

    def close(self) -> None:
        for share in list(self._shares):
            self.release(share)

    @contextmanager
    def shared(self) -> Generator[None]:
        """While it lasts nothing is pruned. May be taken again inside itself."""
        share = self.acquire()
        try:
            yield
        finally:
            self.release(share)

    def acquire(self) -> int:
        """Share the lock until what is returned is released. Raises: HostError, not in time."""
        fd = self._open()
        try:
            with converting("lock the history"):
                wait_for_store(fd, fcntl.LOCK_SH)
        except BaseException:
            os.close(fd)
            raise
        self._shares.add(fd)
        return fd

    def release(self, share: int) -> None:
        # It is not there in a child that was forked while its parent had it.
        if share in self._shares:
            self._shares.remove(share)
            unlock(share)

    @contextmanager
    def alone(self) -> Generator[bool]:
        """The lock for ourselves if it is free right now: whether it was."""
        fd = self._open()
        try:
            yield try_lock(fd)
        finally:
            unlock(fd)

    def _open(self) -> int:
        with converting("lock the history"):
            return os.open(".", DIRECTORY, dir_fd=self._dir_fd)


def wait_for_store(fd: int, kind: int) -> None:
    if not wait_for_lock(fd, kind):
        raise HostError(
            f"the history is locked by another process, for over {limits.path_lock_timeout_s:g} s",
            hint="try again",
        )


# One number in a file, moved by whoever puts or prunes, under its own short lock. A crash
# may leave it a little off; every pruning counts anew.

_NAME: Final = "usage"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGITS: Final = 20


def add_usage(dir_fd: int, size_bytes: int, counted: int | None = None) -> int:
    """Move the number by `size_bytes`, from what was `counted`; return what it is then."""
    with held_open(os.open(_NAME, _FLAGS, 0o600, dir_fd=dir_fd)) as fd:
        wait_for_store(fd, fcntl.LOCK_EX)
        base = _parsed(os.pread(fd, _DIGITS + 1, 0)) if counted is None else counted
        # When it is counted, what is added stands there already.
        total = count_usage(dir_fd) if base is None else max(0, base + size_bytes)
        os.pwrite(fd, f"{total:0{_DIGITS}d}\n".encode(), 0)
        return total


def _parsed(text: bytes) -> int | None:
    return int(text) if len(text) == _DIGITS + 1 and text[:-1].isdigit() else None


def count_usage(dir_fd: int) -> int:
    return sum(row.size_bytes for row in list_objects(dir_fd))


class ObjectRow(Struct, frozen=True):
    name: str
    size_bytes: int
    touched_ns: int


def list_objects(dir_fd: int) -> list[ObjectRow]:
    found = [name for name in names_in(dir_fd) if _OBJECT_NAME.fullmatch(name)]
    rows: list[ObjectRow] = []
    for name in found:
        try:
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue  # packed or pruned meanwhile
        rows.append(ObjectRow(name, status.st_size, status.st_mtime_ns))
    return rows
