"""The store of contents: each one once, under the digest of its bytes.

A digest never leads to less than the whole content, and what was told to be kept is found,
whatever ends the process. Two that keep the same content end with one object.
"""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.errors import FileChangedError, HostError, StorageFullError
from paddock.storage import prune as pruning
from paddock.storage.atomic import held_open
from paddock.storage.disk import (
    DIRECTORY,
    PRIVATE_MODE,
    READ,
    Disk,
    chunks_of,
    converting,
    digest_of_file,
    write_chunks,
)
from paddock.storage.locks import call_after_fork, open_locked, unlock, wait_for_lock
from paddock.storage.prune import PACKED, name_of, names_in, open_directory
from paddock.storage.reader import HELD, INCOMING, StoreReader
from paddock.values.entries import digest_of

# Durability, step by step (open(2), fsync(2), rename(2)):
#
#   put    a file in `incoming/` → write             nobody takes it for an object
#   sync   fsync of the file → fsync of `incoming/`  ← from here on it is kept
#          → rename to its digest                    nobody waits for that to be on the device
#   hold   link to `incoming/` → fsync of the file → fsync of `incoming/` → (the writer exchanges
#          the files) → nobody has it open for writing → rename to its digest
#
# After a power cut or a kill it stands under the one name or the other. So the first who puts, or
# misses a digest, makes objects of all that dead processes left in `incoming/`; what was left
# half-written becomes one too, of the digest of what is there: nothing ever names it. That saves a
# wait for one directory, and most often the other: names in `incoming/` are made ahead, empty,
# several with one sync, and a put into one of them waits for its bytes alone.
#
# What is there already is not relied on: to replace it costs less than checking it.
#
# Only a file that has one name, belongs to us, and lies on the store's file system can be
# held; and only if nobody can write to it any more does it become an object. A read lease
# (fcntl(2), F_SETLEASE) is refused exactly while somebody has the file open for writing, or
# mapped so. Else, and where there are no leases, it is copied after all.

_PART: Final = ".part"
_FILL: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_STAGED_MAX: Final = 64
"""Puts that wait for `sync` at most, each holding a descriptor."""
_AHEAD_MAX: Final = 16
"""Names that are made ahead. Who puts once makes none, and who goes on twice as many each time."""
HELD_BYTES_MIN: Final = 4096
"""Smaller files are copied, which costs less there."""
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT}
)
"""link(2): another file system or mount, no hard links there, no /proc."""
_KEEP: Final = "keep what is about to be replaced"


class Kept(Struct):
    """What was kept for an act that is about to happen. End it by `settle` or `release`."""

    store: "ObjectStore | None" = None
    name: str | None = None
    """Of a held file, in `incoming/`; None once it is over, and of what was put."""
    share: int = -1
    digest: str = ""
    changed_ns: int = 0
    """The file's change time when it got that name."""
    over: Callable[[], None] | None = None
    """Told that the act is not about to happen any more."""

    def require_untouched(self) -> None:
        """Asked last before the act. FileChangedError: somebody wrote to it since it was kept."""
        if self.store is not None and self.name is not None:
            now = os.stat(self.name, dir_fd=self.store.incoming_fd, follow_symlinks=False)
            if now.st_ctime_ns != self.changed_ns:
                raise _changed()

    def settle(self) -> None:
        """The act took place. FileChangedError: what lost its place was written to; put it back."""
        store, held, self.name = self.store, self.name, None
        if store is None or held is None:
            return
        try:
            with held_open(os.open(held, READ, dir_fd=store.incoming_fd)) as fd:
                if _nobody_writes(fd):
                    store.count(store.place(held, self.digest, os.fstat(fd).st_size))
                    # Its age is that of the file that it was, and its mode may let others in.
                    store.disk.touch(store.fd, name_of(self.digest))
                    store.disk.set_mode(fd, PRIVATE_MODE)
                    return
                if store.put_file(fd) != self.digest:
                    raise _changed()
                store.sync()
                store.discard(held)
        except (OSError, StorageFullError, HostError):
            return  # whoever sweeps next makes it an object
        finally:
            store.release(self.share)

    def release(self) -> None:
        """The act did not take place, or was undone. A second time does nothing."""
        store, held, self.name = self.store, self.name, None
        if store is not None and held is not None:
            store.discard(held)
            store.release(self.share)
        over, self.over = self.over, None
        if over is not None:
            over()


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


class _Staged(NamedTuple):
    """A content that was put and not synced."""

    fd: int
    name: str
    is_named: bool
    """Whether its name, in `incoming/`, is on the device."""


class ObjectStore(StoreReader):
    """The store, made where something is put; threads and processes may share it.

    What is put is on the device, and found by others, after the next `sync`.
    """

    def __init__(self, directory: str, *, bytes_max: int | None, disk: Disk | None = None) -> None:
        """`bytes_max`: what `prune` keeps it to; None: it is never pruned, and not counted."""
        super().__init__(directory, disk=disk)
        self._bytes_max = bytes_max
        self._incoming_fd = -1
        self._staged: dict[str, _Staged] = {}
        self._ready: list[str] = []
        self._ahead = 0
        self._swept = False
        self._usage_bytes = 0
        self._share: int | None = None
        self._shares: set[int] = set()
        call_after_fork(self, ObjectStore.renew)

    def renew(self) -> None:
        super().renew()
        staged, self._staged, self._ready = self._staged, {}, []
        for draft in staged.values():
            os.close(draft.fd)
        # A lock would last as long as the child that holds a copy of it.
        while self._shares:
            os.close(self._shares.pop())
        self._share = None

    def close(self) -> None:
        with self._mutex, converting("close the history"):
            self._drop(self._staged)
            while self._ready:
                self.discard(self._ready.pop())
            for share in list(self._shares):
                self.release(share)
            if self._incoming_fd >= 0:
                fd, self._incoming_fd = self._incoming_fd, -1
                os.close(fd)
            self._swept = False
            super().close()

    @property
    def fd(self) -> int:
        """A descriptor of the store's directory, made where it is missing. Raises: ConfigError."""
        if self._fd < 0:
            with self._mutex, suppress(FileNotFoundError):
                return self.look()
            os.close(open_directory(self.disk, None, self._directory))
        return self.look()

    @property
    def incoming_fd(self) -> int:
        if self._incoming_fd < 0:
            with self._mutex:
                if self._incoming_fd < 0:
                    self._incoming_fd = open_directory(self.disk, self.fd, INCOMING)
        return self._incoming_fd

    # Its lock, flock(2) on the directory: whoever puts shares it, whoever prunes has it alone.
    # Each share has an open file of its own, since a lock belongs to that.

    def acquire(self) -> int:
        """Share the lock until what is returned is released. Raises: HostError, not in time."""
        with converting("lock the history"):
            share, is_ours = os.open(".", DIRECTORY, dir_fd=self.fd), False
            try:
                is_ours = wait_for_lock(share, fcntl.LOCK_SH)
            finally:
                if not is_ours:
                    os.close(share)
        if not is_ours:
            raise pruning.busy()
        self._shares.add(share)
        return share

    def release(self, share: int) -> None:
        # It is not there in a child that was forked while its parent had it.
        if share in self._shares:
            self._shares.remove(share)
            unlock(share)

    @contextmanager
    def held(self) -> Generator[None]:
        """While it lasts no process prunes: until what was put is named by something."""
        share = self.acquire()
        try:
            yield
        finally:
            self.release(share)

    @contextmanager
    def _alone(self) -> Generator[bool]:
        """The lock for ourselves if it is free right now: whether it was."""
        fd = open_locked(self.fd, ".", DIRECTORY)
        try:
            yield fd is not None
        finally:
            if fd is not None:
                unlock(fd)

    # Putting

    def put_bytes(self, content: bytes) -> str:
        digest = digest_of(content)
        self._stage(digest, lambda fd: self.disk.write(fd, content))
        return digest

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        """Keep an open file's content; with its `digest` known, copied by the kernel if it can."""
        with converting(_KEEP):
            size_bytes = os.fstat(fd).st_size
            known = digest or digest_of_file(fd, size_bytes)

        def copy(to_fd: int) -> None:
            if self.disk.copy(fd, to_fd, size_bytes) != size_bytes:
                raise HostError("a file became shorter while the history kept it")

        self._stage(known, copy)
        return known

    def open_draft(self) -> int | None:
        """A new file for `adopt`, seen by nobody, the caller's to close; None without O_TMPFILE."""
        with converting(_KEEP):
            return self.disk.open_unnamed(self.fd)

    def adopt(self, fd: int, digest: str) -> None:
        """Keep a filled draft of `open_draft`, which nobody writes to any more, without a copy."""
        self._stage(digest, lambda _: None, fd)

    def _stage(self, digest: str, fill: Callable[[int], object], draft: int | None = None) -> None:
        with converting(_KEEP), self._mutex:
            if digest in self._staged:
                return
            if len(self._staged) >= _STAGED_MAX:
                self.sync()
            self._sweep_once()
            if self._share is None:
                self._share = self.acquire()
            try:
                staged = self._staged[digest] = self._incoming(draft)
                fill(staged.fd)
            except BaseException:
                self._drop((digest,))
                raise

    def _incoming(self, draft: int | None) -> _Staged:
        if draft is not None:
            name = _held_name()
            self.disk.link_open(draft, self.incoming_fd, name)
            return _Staged(os.dup(draft), name, is_named=False)
        while self._ready:
            name = self._ready.pop()
            # It could not be made, or another process has swept it while nothing was put here.
            with suppress(FileNotFoundError):
                fd = os.open(name, _FILL, dir_fd=self.incoming_fd)
                return _Staged(fd, name, is_named=True)
        name = _held_name()
        return _Staged(self.disk.create(self.incoming_fd, name), name, is_named=False)

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in list(digests):
            staged = self._staged.pop(digest, None)
            if staged is not None:
                os.close(staged.fd)
                self.discard(staged.name)
        if not self._staged and self._share is not None:
            share, self._share = self._share, None
            self.release(share)

    def sync(self) -> None:
        """Give everything that was put its name, and wait until it is on the device."""
        with self._mutex, converting(_KEEP):
            try:
                staged = self._staged.values()
                if staged:
                    self.disk.sync_all(self.fd, [each.fd for each in staged])
                    if not all(each.is_named for each in staged):
                        self._sync_names()
                    self.count(sum(map(self._name, list(self._staged))))
            finally:
                self._drop(self._staged)

    def _sync_names(self) -> None:
        """With more of them, for those who put next."""
        names = [_held_name() for _ in range(self._ahead)]
        try:
            with suppress(OSError):  # where there is no room for more, the next makes its own
                for name in names:
                    os.close(self.disk.create(self.incoming_fd, name))
            self.disk.sync(self.incoming_fd)
        except BaseException:
            for name in names:
                self.discard(name)
            raise
        self._ready += names
        self._ahead = min(max(1, self._ahead * 2), _AHEAD_MAX)

    def _name(self, digest: str) -> int:
        staged = self._staged[digest]
        more = self.place(staged.name, digest, os.fstat(staged.fd).st_size)
        os.close(self._staged.pop(digest).fd)
        return more

    def place(self, incoming: str, digest: str, size_bytes: int) -> int:
        """Let a content replace what stands there; how many bytes more the store has."""
        name, there = name_of(digest), 0
        with suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        self.disk.replace(self.incoming_fd, incoming, self.fd, name)
        return size_bytes - there

    def discard(self, incoming: str) -> None:
        """Remove a name, where it is there. One that cannot be removed is swept later."""
        with suppress(OSError):
            self.disk.unlink(self.incoming_fd, incoming)

    def keep(self, fd: int, digest: str) -> Kept:
        """Keep an open file whose digest that is, which is about to lose its name."""
        held = self.hold_file(fd, digest)
        if held is None:
            self.put_file(fd, digest=digest)
            self.sync()
        return held or Kept()

    def keep_bytes(self, content: bytes) -> Kept:
        self.put_bytes(content)
        self.sync()
        return Kept()

    def hold_file(self, fd: int, digest: str) -> Kept | None:
        """Keep a large file that is about to lose its only name; None where it has to be put."""
        with converting(_KEEP), self._mutex:
            status = os.fstat(fd)
            is_large = stat.S_ISREG(status.st_mode) and status.st_size >= HELD_BYTES_MIN
            if not is_large or status.st_nlink != 1 or status.st_uid != os.geteuid():
                return None
            self._sweep_once()
            name, share = _held_name(), self.acquire()
            try:
                self.disk.link_open(fd, self.incoming_fd, name)
                changed_ns = os.fstat(fd).st_ctime_ns
                self.disk.sync(fd)
                self.disk.sync(self.incoming_fd)
            except BaseException as failure:
                self.release(share)
                if isinstance(failure, OSError) and failure.errno in _NOT_HERE:
                    return None
                raise
            return Kept(self, name, share, digest, changed_ns)

    # What killed processes left

    def recover(self) -> None:
        """Keep what killed processes were about to, where nobody else puts."""
        left = "keep what a killed process left"
        with self._mutex, converting(left), self._alone() as is_alone:
            if is_alone:
                for name, fd, status in self.held_contents():
                    self.count(self._keep_held(fd, status.st_size))
                    self.disk.unlink(self.incoming_fd, name)
                for name in names_in(self.incoming_fd):
                    self.disk.unlink(self.incoming_fd, name)
                self._swept = True

    def _keep_held(self, fd: int, size_bytes: int) -> int:
        """As a copy, for its other name may be in use."""
        part = os.urandom(16).hex() + _PART
        try:
            with held_open(self.disk.create(self.incoming_fd, part)) as to_fd:
                digest = write_chunks(chunks_of(fd, size_bytes), self.disk, to_fd)
                self.disk.sync(to_fd)
            more = self.place(part, digest, size_bytes)
            self.disk.sync(self.fd)
        finally:
            self.discard(part)
        return more

    def _sweep_once(self) -> None:
        if not self._swept:
            self.recover()

    def _first_places(self, digest: str) -> Iterable[str]:
        staged = self._staged.get(digest)
        if staged is not None:
            return (f"{INCOMING}/{staged.name}",)
        self._sweep_once()
        return ()

    # Size

    def count(self, size_bytes: int) -> None:
        if size_bytes and self._bytes_max is not None:
            self._usage_bytes = pruning.add_usage(self.fd, size_bytes)

    def usage_bytes(self) -> int:
        with self._mutex, converting("read the history"):
            self._usage_bytes = pruning.add_usage(self.fd, 0)
            return self._usage_bytes

    def is_over(self) -> bool:
        """Whether `prune` would do something, by what was known when it was told last."""
        return self._bytes_max is not None and self._usage_bytes > self._bytes_max

    def pin(self, name: str, digests: Collection[str], *, until_s: float | None = None) -> None:
        """Keep these from being pruned, durably, until then (in seconds since 1970) or `unpin`.

        To be called inside the `held` in which the contents were put, or found.
        """
        self.sync()
        with self.held(), converting(_KEEP):
            pruning.write_pin(self.disk, self.fd, name, digests, until_s)

    def unpin(self, name: str) -> None:
        with converting("let a content go"):
            pruning.remove_pin(self.disk, self.fd, name)

    def mark_newest(self, digests: Collection[str]) -> None:
        """Say that the newest call replaced these: until a newer one says so, they stay."""
        with self.held(), converting("say what the newest call replaced"):
            pruning.mark_newest(self.disk, self.fd, digests)

    def forget(self, digest: str) -> bool:
        """Remove this content, durably, pinned or not; whether it was there.

        Its name goes. What a device, a snapshot or a backup still holds of it, stays there.
        """
        self.sync()
        name, is_there = name_of(digest), False
        with self._mutex, converting("remove a content"):
            for stands in (name, name + PACKED):
                with suppress(FileNotFoundError):
                    size_bytes = os.stat(stands, dir_fd=self.fd, follow_symlinks=False).st_size
                    self.disk.unlink(self.fd, stands)
                    self.count(-size_bytes)
                    is_there = True
            # Nobody waited for its name: it must not come back under the one that it had before.
            for held, fd, status in self.held_contents():
                if digest_of_file(fd, status.st_size) == digest:
                    self.disk.unlink(self.incoming_fd, held)
                    is_there = True
            # Also where it was gone: whoever removed it may have been killed before this.
            self.disk.sync(self.fd)
            self.disk.sync(self.incoming_fd)
        return is_there

    def prune(self, keep: Collection[str]) -> int:
        """Forget the oldest but for `keep` and what is pinned; the bytes that this freed."""
        with self._mutex, converting("prune the history"), self._alone() as is_alone:
            if not is_alone or self._bytes_max is None:
                return 0
            freed = pruning.prune(self.disk, self.fd, self._bytes_max, keep)
            self._usage_bytes = pruning.add_usage(self.fd, 0)
            return freed


def _held_name() -> str:
    return os.urandom(16).hex() + HELD


# Contents that the ledger names by a salted digest, and that can be erased without it. What is
# kept is `salt ‖ content`, under the SHA-256 of just that: so the digest in an entry is the
# object's name, and the salt stands nowhere else. With the object it is gone, and nobody can try
# contents against the digest any more. Nothing here is pruned.
