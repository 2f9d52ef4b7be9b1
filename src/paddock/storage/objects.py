"""The store of contents: each one once, under the digest of its bytes.

Durability, step by step (open(2), fsync(2), link(2)):

  put    unnamed file → write            nobody sees it, a killed process leaves nothing
  sync   fsync of the file → link to its digest → fsync of the directory

A name therefore never leads to less than the whole content. Two processes that keep the
same content end with one object. What is there already is not relied on: it is replaced by
what was put, which costs less than checking it.

Where a file system lacks O_TMPFILE the file has a name in `incoming/` meanwhile.

Threat: whoever can write to the store can forge what undo brings back, so every object is checked
against its name when it is read.
"""

import errno
import fcntl
import os
import signal
import stat
import threading
import time
from collections.abc import Collection, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from paddock.errors import FileChangedError, HostError, StorageFullError
from paddock.storage.atomic import held_open, require_private
from paddock.storage.disk import PRIVATE_MODE, READ, Disk, converting, digest_of_file
from paddock.storage.locks import call_after_fork
from paddock.storage.prune import pinned, prune, remove, remove_pin, write_pin
from paddock.storage.shelf import (
    OpenObject,
    Shelf,
    Staged,
    StoreLock,
    add_usage,
    name_of,
    open_object,
)
from paddock.text.show import quote
from paddock.values.entries import digest_of

#     link to incoming/ → fsync → (the writer exchanges the files) → nobody has it open for
#     writing → rename to its digest → fsync of the directory
#
# From before the exchange on it has a name in the store, so whenever a process is killed
# the old content is found: `Shelf.sweep` makes an object of it.
#
# Only a file that has one name, belongs to us, and lies on the store's file system can be
# held; and only if nobody can write to it any more does it become an object. A read lease
# (fcntl(2), F_SETLEASE) is refused exactly while somebody has the file open for writing, or
# mapped so. Else, and where there are no leases, it is copied after all.

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
        """The file has lost its place: it becomes the object, durably.

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
            shelf.disk.unlink(shelf.incoming_fd, held)

    def _rename(self, held: str, fd: int) -> None:
        shelf, name = self.store.shelf, name_of(self.digest)
        more = os.fstat(fd).st_size - shelf.size_of(name)
        shelf.disk.replace(shelf.incoming_fd, held, shelf.fd, name)
        shelf.disk.sync(shelf.fd)
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
_KEEP: Final = "keep what is about to be replaced"


class ObjectStore:
    """Contents by their digest (`sha256:` and 64 hexadecimal digits), under one directory.

    What is put is on the device, and found by others, after the next `sync`. Threads and
    processes may share it.
    """

    __slots__ = (
        "__weakref__",
        "_bytes_max",
        "_mutex",
        "_share",
        "_staged",
        "_swept",
        "_usage_bytes",
        "lock",
        "shelf",
    )

    def __init__(self, shelf: Shelf, bytes_max: int) -> None:
        self.shelf = shelf
        self._bytes_max = bytes_max
        self.lock = StoreLock(shelf.fd)
        self._mutex = threading.RLock()
        self._staged: dict[str, Staged] = {}
        self._swept = False
        self._share: int | None = None
        self._usage_bytes = 0
        call_after_fork(self, ObjectStore._after_fork)

    def _after_fork(self) -> None:
        """Leave to the parent what its threads had put and not synced, or not told yet."""
        self._mutex = threading.RLock()
        staged, self._staged = self._staged, {}
        for draft in staged.values():
            os.close(draft.fd)
        self._share = None

    @classmethod
    def open(cls, directory: str, *, bytes_max: int, disk: Disk | None = None) -> Self:
        """Open the store in `directory`, made if it is missing; its parent is there."""
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
            self.lock.close()
            self.shelf.close()

    # Putting

    def put_bytes(self, content: bytes) -> str:
        digest = digest_of(content)
        with converting(_KEEP), self._mutex:
            if digest not in self._staged:
                draft = self._new_draft()
                try:
                    self.shelf.disk.write(draft.fd, content)
                except BaseException:
                    self._abandon(draft)
                    raise
                draft.size_bytes = len(content)
                self._staged[digest] = draft
        return digest

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        """Keep an open file's content, from its first byte; its digest.

        With a `digest` that is known the bytes are only copied, by the kernel where it can.
        """
        with converting(_KEEP):
            size_bytes = os.fstat(fd).st_size
            known = digest or digest_of_file(fd, size_bytes)
            with self._mutex:
                if known not in self._staged:
                    draft = self._new_draft()
                    try:
                        draft.size_bytes = self.shelf.disk.copy(fd, draft.fd, size_bytes)
                        if draft.size_bytes != size_bytes:
                            raise HostError("a file became shorter while the history kept it")
                    except BaseException:
                        self._abandon(draft)
                        raise
                    self._staged[known] = draft
        return known

    def open_draft(self) -> int | None:
        """A new file for `adopt`, seen by nobody, the caller's to close; None without O_TMPFILE."""
        with converting(_KEEP):
            return self.shelf.disk.open_unnamed(self.shelf.fd)

    def adopt(self, fd: int, digest: str) -> None:
        """Keep a filled draft of `open_draft`, which nobody writes to any more, without a copy."""
        with converting(_KEEP), self._mutex:
            if digest in self._staged:
                return
            self._begin_draft()
            try:
                self._staged[digest] = Staged(os.dup(fd), None, os.fstat(fd).st_size)
            except BaseException:
                self._end()
                raise

    def _begin_draft(self) -> None:
        if len(self._staged) >= _STAGED_MAX:
            self.sync()
        self._begin()

    def _new_draft(self) -> Staged:
        self._begin_draft()
        try:
            return self.shelf.draft()
        except BaseException:
            self._end()
            raise

    def _abandon(self, draft: Staged) -> None:
        self.shelf.discard(draft)
        self._end()

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
                    name, changed_ns = self.shelf.hold(fd)
                    share = self.lock.acquire()
                except OSError as failure:
                    if failure.errno in _NOT_HERE:
                        return None
                    raise
                finally:
                    self._end()
            return HeldFile(self, share, digest, name, changed_ns)

    def recover(self) -> None:
        """Keep what killed processes were about to. The first put does it."""
        with self._mutex, converting("keep what a killed process left"):
            self._swept = True
            with self.lock.alone() as is_alone:
                if is_alone:
                    self.count(self.shelf.sweep())

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
                if self._staged:
                    shelf.disk.sync_all(shelf.fd, [draft.fd for draft in self._staged.values()])
                    placed = self._staged.items()
                    more = sum(shelf.place(draft, name_of(digest)) for digest, draft in placed)
                    shelf.disk.sync(shelf.fd)
                    self.count(more)
            finally:
                self._drop()

    def _drop(self) -> None:
        if self._staged:
            drafts = list(self._staged.values())
            self._staged.clear()
            for draft in drafts:
                self.shelf.discard(draft)
        self._end()

    def held(self) -> AbstractContextManager[None]:
        """While it lasts no process prunes: until what was put is named by something."""
        return self.lock.shared()

    # Reading

    def has(self, digest: str) -> bool:
        if digest in self._staged:
            return True
        with converting("read the history"):
            found = self._find(digest)
        if found is None:
            return False
        os.close(found.fd)
        return True

    def stored_bytes(self, digest: str) -> int:
        """What the content takes on the disk, packed or not; 0 where it is not there."""
        with converting("read the history"):
            found = self._find(digest)
            if found is None:
                return 0
            try:
                return os.fstat(found.fd).st_size
            finally:
                os.close(found.fd)

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
        return open_object(self.shelf.fd, digest)

    def _content(self, digest: str) -> Generator[bytes]:
        if digest in self._staged:
            self.sync()
        with converting("read the history"):
            found = self._find(digest)
            if found is None:
                raise HostError(
                    f"the history does not keep the content {quote(digest)} any more",
                    hint="it was pruned to keep to [history] bytes_max",
                )
            try:
                yield from found.content()
            finally:
                os.close(found.fd)

    # Size

    def count(self, size_bytes: int) -> None:
        if size_bytes:
            self._usage_bytes = add_usage(self.shelf.fd, size_bytes)

    def usage_bytes(self) -> int:
        with self._mutex, converting("read the history"):
            return add_usage(self.shelf.fd, 0)

    def is_over(self) -> bool:
        """Whether `prune` would do something, by what was known when it was told last."""
        return self._usage_bytes > self._bytes_max

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
            if not is_alone:
                return 0
            spared = pinned(self.shelf, time.time())
            freed = prune(self.shelf, self._bytes_max, keep, spared)
            self._usage_bytes = add_usage(self.shelf.fd, 0)
            return freed
