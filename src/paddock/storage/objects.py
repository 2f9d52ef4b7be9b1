"""The store of contents: each one once, under the digest of its bytes.

Durability, step by step (open(2), fsync(2), rename(2)):

  put    a file in `incoming/` → write             nobody takes it for an object
  sync   fsync of the file → fsync of `incoming/`  ← from here on it is kept
         → rename to its digest                    nobody waits for that to be on the device

After a power cut it stands under the one name or the other. So the first who puts, or misses a
digest, makes objects of all that dead processes left in `incoming/`. That saves a wait for one
directory, and most often the other: names in `incoming/` are made ahead, empty, several with one
sync, and a put into one of them waits for its bytes alone.

A digest never leads to less than the whole content. What a kill or a power cut left half-written
becomes an object too, of the digest of what is there: nothing ever names it. Two processes that
keep the same content end with one object. What is there already is not relied on: it is replaced
by what was put, which costs less than checking it.

Threat: whoever can write to the store can forge what undo brings back, so every object is checked
against its name when it is read.
"""

import errno
import fcntl
import os
import signal
import stat
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from paddock.errors import FileChangedError, HostError, StorageFullError
from paddock.storage.atomic import held_open, require_private
from paddock.storage.disk import PRIVATE_MODE, READ, Disk, converting, digest_of_file
from paddock.storage.locks import call_after_fork
from paddock.storage.prune import prune, remove, remove_pin, write_pin
from paddock.storage.shelf import (
    OpenObject,
    Shelf,
    StoreLock,
    add_usage,
    held_name,
    name_of,
    open_object,
)
from paddock.text.show import quote
from paddock.values.entries import digest_of

#     link to incoming/ → fsync of the file → fsync of incoming/ → (the writer exchanges the
#     files) → nobody has it open for writing → rename to its digest
#
# From before the exchange on it has a name in the store, so whenever a process is killed
# the old content is found: `Shelf.sweep` makes an object of it.
#
# Only a file that has one name, belongs to us, and lies on the store's file system can be
# held; and only if nobody can write to it any more does it become an object. A read lease
# (fcntl(2), F_SETLEASE) is refused exactly while somebody has the file open for writing, or
# mapped so. Else, and where there are no leases, it is copied after all.

_FILL: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
HELD_BYTES_MIN: Final = 4096
"""Smaller files are copied: a new file and the removal of the old one cost less there than
the steps above."""
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT}
)
"""link(2): another file system or mount, no hard links there, no /proc."""


class HeldFile(Struct):
    """A large file that is about to lose its place. End it with `settle` or `release`."""

    store: "ObjectStore"
    share: int
    digest: str
    name: str | None
    """In `incoming/`; None once it is over."""
    changed_ns: int
    """The file's change time when it got that name."""

    def require_untouched(self) -> None:
        """Asked before the file loses its place, since its digest is known from before."""
        name, incoming_fd = self.name, self.store.shelf.incoming_fd
        if name is None:
            return
        if os.stat(name, dir_fd=incoming_fd, follow_symlinks=False).st_ctime_ns != self.changed_ns:
            raise _changed()

    def settle(self) -> None:
        """The file has lost its place: it becomes the object.

        Where that fails, whoever sweeps next makes it one. FileChangedError: it was written to.
        """
        if self.name is None:
            return
        held, self.name = self.name, None
        try:
            self._make_object(held)
        except (OSError, StorageFullError, HostError):
            return
        finally:
            self.store.lock.release(self.share)

    def _make_object(self, held: str) -> None:
        shelf = self.store.shelf
        with held_open(os.open(held, READ, dir_fd=shelf.incoming_fd)) as fd:
            if _nobody_writes(fd):
                self._rename(held, fd)
                return
            if self.store.put_file(fd) != self.digest:
                raise _changed()
            self.store.sync()
            shelf.discard(held)

    def _rename(self, held: str, fd: int) -> None:
        shelf, name = self.store.shelf, name_of(self.digest)
        more = shelf.place(held, name, os.fstat(fd).st_size)
        # Its age is that of the file that it was, and its mode may let others in.
        shelf.disk.touch(shelf.fd, name)
        shelf.disk.set_mode(fd, PRIVATE_MODE)
        self.store.count(more)

    def release(self) -> None:
        """The file stays where it was: let the second name go; a second time does nothing."""
        if self.name is None:
            return
        held, self.name = self.name, None
        try:
            self.store.shelf.disk.unlink(self.store.shelf.incoming_fd, held)
        except OSError:
            return  # swept later: it is one more copy of a content, and no less of any
        finally:
            self.store.lock.release(self.share)


def _changed() -> FileChangedError:
    return FileChangedError(
        "the file was changed by somebody else meanwhile",
        hint="read it again, then repeat the call",
    )


def _nobody_writes(fd: int) -> bool:
    """Whether no descriptor and no mapping can change the open file."""
    try:
        # Who opens it for writing while we hold the lease makes the kernel send us SIGIO,
        # which would end the process. SIGURG is ignored where nobody asks for it.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):  # writers, no leases here, or not Linux
        return False
    return True


_STAGED_MAX: Final = 64
"""Puts that wait for `sync` at most, each holding a descriptor."""
_AHEAD_MAX: Final = 16
"""Names that are made ahead. Who puts once makes none, and who goes on twice as many each time."""
_KEEP: Final = "keep what is about to be replaced"


class _Staged(Struct):
    """A content that was put and not synced."""

    fd: int
    name: str
    """In `incoming/`."""
    is_named: bool
    """Whether its name is on the device."""


class ObjectStore:
    """Contents by their digest (`sha256:` and 64 hexadecimal digits), under one directory.

    What is put is on the device, and found by others, after the next `sync`. Threads and
    processes may share it.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_bytes_max",
        "_mutex",
        "_ready",
        "_share",
        "_staged",
        "_swept",
        "_usage_bytes",
        "lock",
        "shelf",
    )

    def __init__(self, shelf: Shelf, bytes_max: int | None) -> None:
        self.shelf = shelf
        self._bytes_max = bytes_max
        self.lock = StoreLock(shelf.fd)
        self._mutex = threading.RLock()
        self._staged: dict[str, _Staged] = {}
        self._ready: list[str] = []
        self._ahead = 0
        self._swept = False
        self._share: int | None = None
        self._usage_bytes = 0
        call_after_fork(self, ObjectStore._after_fork)

    def _after_fork(self) -> None:
        """Leave to the parent what its threads had put and not synced, or not told yet."""
        self._mutex = threading.RLock()
        staged, self._staged, self._ready = self._staged, {}, []
        for draft in staged.values():
            os.close(draft.fd)
        self._share = None

    @classmethod
    def open(cls, directory: str, *, bytes_max: int | None, disk: Disk | None = None) -> Self:
        """Open the store in `directory`, made if it is missing; its parent is there.

        `bytes_max`: what `prune` keeps it to; None: it is never pruned, and not counted.
        """
        require_private(Path(directory))
        with converting("open the history"):
            return cls(Shelf.open(disk or Disk(), directory), bytes_max)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._mutex, converting("close the history"):
            self._drop()
            while self._ready:
                self.shelf.discard(self._ready.pop())
            self.lock.close()
            self.shelf.close()

    # Putting

    def put_bytes(self, content: bytes) -> str:
        digest = digest_of(content)
        self._stage(digest, lambda fd: self.shelf.disk.write(fd, content))
        return digest

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        """Keep an open file's content, from its first byte; its digest.

        With a `digest` that is known the bytes are only copied, by the kernel where it can.
        """
        with converting(_KEEP):
            size_bytes = os.fstat(fd).st_size
            known = digest or digest_of_file(fd, size_bytes)

        def copy(to_fd: int) -> None:
            if self.shelf.disk.copy(fd, to_fd, size_bytes) != size_bytes:
                raise HostError("a file became shorter while the history kept it")

        self._stage(known, copy)
        return known

    def open_draft(self) -> int | None:
        """A new file for `adopt`, seen by nobody, the caller's to close; None without O_TMPFILE."""
        with converting(_KEEP):
            return self.shelf.disk.open_unnamed(self.shelf.fd)

    def adopt(self, fd: int, digest: str) -> None:
        """Keep a filled draft of `open_draft`, which nobody writes to any more, without a copy."""
        self._stage(digest, lambda _: None, fd)

    def _stage(self, digest: str, fill: Callable[[int], object], draft: int | None = None) -> None:
        with converting(_KEEP), self._mutex:
            if digest in self._staged:
                return
            if len(self._staged) >= _STAGED_MAX:
                self.sync()
            self._begin()
            try:
                staged = self._staged[digest] = self._incoming(draft)
                fill(staged.fd)
            except BaseException:
                self._discard(digest)
                self._end()
                raise

    def _incoming(self, draft: int | None) -> _Staged:
        shelf = self.shelf
        if draft is not None:
            name = held_name()
            shelf.disk.link_open(draft, shelf.incoming_fd, name)
            return _Staged(os.dup(draft), name, is_named=False)
        while self._ready:
            name = self._ready.pop()
            # It could not be made, or another process has swept it while nothing was put here.
            with suppress(FileNotFoundError):
                fd = os.open(name, _FILL, dir_fd=shelf.incoming_fd)
                return _Staged(fd, name, is_named=True)
        name = held_name()
        return _Staged(shelf.disk.create(shelf.incoming_fd, name), name, is_named=False)

    def _discard(self, digest: str) -> None:
        staged = self._staged.pop(digest, None)
        if staged is not None:
            os.close(staged.fd)
            self.shelf.discard(staged.name)

    def hold_file(self, fd: int, digest: str) -> HeldFile | None:
        """Keep a large file that is about to lose its only name, without copying it.

        None where it has to be put. Nothing is pruned until what is returned is over.
        """
        with converting(_KEEP):
            status = os.fstat(fd)
            is_large = stat.S_ISREG(status.st_mode) and status.st_size >= HELD_BYTES_MIN
            if not is_large or status.st_nlink != 1 or status.st_uid != os.geteuid():
                return None
            with self._mutex:
                self._begin()
                try:
                    name, changed_ns = self._hold(fd)
                    share = self.lock.acquire()
                except OSError as failure:
                    if failure.errno in _NOT_HERE:
                        return None
                    raise
                finally:
                    self._end()
            return HeldFile(self, share, digest, name, changed_ns)

    def _hold(self, fd: int) -> tuple[str, int]:
        disk, name = self.shelf.disk, held_name()
        disk.link_open(fd, self.shelf.incoming_fd, name)
        changed_ns = os.fstat(fd).st_ctime_ns
        disk.sync(fd)
        disk.sync(self.shelf.incoming_fd)
        return name, changed_ns

    def recover(self) -> None:
        """Keep what killed processes were about to. The first put does it, where nobody else puts.

        StorageFullError: there is no room for it.
        """
        left = "keep what a killed process left"
        with self._mutex, converting(left), self.lock.alone() as is_alone:
            if is_alone:
                self.count(self.shelf.sweep())
                self._swept = True

    def _begin(self) -> None:
        """Share the lock from the first put on until `sync`."""
        if not self._swept:
            self.recover()
        if self._share is None:
            self._share = self.lock.acquire()

    def _end(self) -> None:
        if not self._staged and self._share is not None:
            self.lock.release(self._share)
            self._share = None

    def sync(self) -> None:
        """Give everything that was put its name, and wait until it is on the device."""
        shelf = self.shelf
        with self._mutex, converting(_KEEP):
            try:
                staged = self._staged
                if staged:
                    shelf.disk.sync_all(shelf.fd, [each.fd for each in staged.values()])
                    if not all(each.is_named for each in staged.values()):
                        self._sync_names()
                    self.count(sum(map(self._place, list(staged))))
            finally:
                self._drop()

    def _sync_names(self) -> None:
        """With more of them, for those who put next."""
        shelf, names = self.shelf, [held_name() for _ in range(self._ahead)]
        try:
            with suppress(OSError):  # where there is no room for more, the next makes its own
                for name in names:
                    os.close(shelf.disk.create(shelf.incoming_fd, name))
            shelf.disk.sync(shelf.incoming_fd)
        except BaseException:
            for name in names:
                shelf.discard(name)
            raise
        self._ready += names
        self._ahead = min(max(1, self._ahead * 2), _AHEAD_MAX)

    def _place(self, digest: str) -> int:
        staged = self._staged[digest]
        more = self.shelf.place(staged.name, name_of(digest), os.fstat(staged.fd).st_size)
        os.close(self._staged.pop(digest).fd)
        return more

    def _drop(self) -> None:
        for digest in list(self._staged):
            self._discard(digest)
        self._end()

    def held(self) -> AbstractContextManager[None]:
        """While it lasts no process prunes: until what was put is named by something."""
        return self.lock.shared()

    # Reading

    def has(self, digest: str) -> bool:
        if digest in self._staged:
            return True
        with self._opened(digest) as found:
            return found is not None

    def stored_bytes(self, digest: str) -> int:
        """What the content takes on the disk, packed or not; 0 where it is not there."""
        with self._opened(digest) as found:
            return 0 if found is None else os.fstat(found.fd).st_size

    def read(self, digest: str) -> bytes:
        return b"".join(self._content(digest))

    def verify(self, digest: str) -> None:
        for _ in self._content(digest):
            continue

    def copy_to(self, digest: str, fd: int) -> None:
        """Write the content to an open file, checked; throw it away where this raises."""
        for piece in self._content(digest):
            self.shelf.disk.write(fd, piece)

    def _find(self, digest: str) -> OpenObject | None:
        found = open_object(self.shelf.fd, digest)
        if found is None and not self._swept:
            # The power went, or its process was killed, before it had its digest for a name.
            self.recover()
            found = open_object(self.shelf.fd, digest)
        return found

    def _content(self, digest: str) -> Generator[bytes]:
        if digest in self._staged:
            self.sync()
        with self._opened(digest) as found:
            if found is None:
                raise HostError(
                    f"the history does not keep the content {quote(digest)} any more",
                    hint="it was pruned to keep to [history] bytes_max",
                )
            yield from found.content()

    @contextmanager
    def _opened(self, digest: str) -> Generator[OpenObject | None]:
        with converting("read the history"):
            found = self._find(digest)
            try:
                yield found
            finally:
                if found is not None:
                    os.close(found.fd)

    # Size

    def count(self, size_bytes: int) -> None:
        if size_bytes and self._bytes_max is not None:
            self._usage_bytes = add_usage(self.shelf.fd, size_bytes)

    def usage_bytes(self) -> int:
        with self._mutex, converting("read the history"):
            return add_usage(self.shelf.fd, 0)

    def is_over(self) -> bool:
        """Whether `prune` would do something, by what was known when it was told last."""
        return self._bytes_max is not None and self._usage_bytes > self._bytes_max

    def pin(self, name: str, digests: Collection[str], *, until_s: float | None = None) -> None:
        """Keep these contents from being pruned, durably; the same name pins anew.

        `until_s`: in seconds since 1970, after which the pin is nothing; None: until
        `unpin`. To be called inside the `held` in which the contents were put, or found.
        """
        self.sync()
        with self.held(), converting(_KEEP):
            write_pin(self.shelf, name, digests, until_s)

    def unpin(self, name: str) -> None:
        with converting("let a content go"):
            remove_pin(self.shelf, name)

    def forget(self, digest: str) -> bool:
        """Remove this content, durably, whether it is pinned or not; whether it was there.

        Its name goes. What a device, a snapshot or a backup still holds of it, stays there.
        """
        self.sync()
        with self._mutex, converting("remove a content"):
            freed = remove(self.shelf, digest)
            self.count(-(freed or 0))
        return freed is not None

    def prune(self, keep: Collection[str]) -> int:
        """Pack, then forget the oldest but for `keep` and what is pinned; bytes freed.

        Does nothing while anybody else is putting.
        """
        with self._mutex, converting("prune the history"), self.lock.alone() as is_alone:
            if not is_alone or self._bytes_max is None:
                return 0
            freed = prune(self.shelf, self._bytes_max, keep)
            self._usage_bytes = add_usage(self.shelf.fd, 0)
            return freed
