"""The store of contents: each one once, under the digest of its bytes.

    <64 hex digits>          an object, as it is; with `.z`, one that an earlier version packed
    usage, notes/, pins/     see `prune` and `notes`
    incoming/<random>.held   a content that has no digest for a name yet: put, or a second name
                             of a large file that is about to be replaced; empty, a name for later

A digest never leads to less than the whole content, and what was told to be kept is found,
whatever ends the process. Two that keep the same content end with one object.
"""

import fcntl
import hashlib
import os
import signal
import stat
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from errno import EACCES, EMLINK, ENOENT, EOPNOTSUPP, EPERM, EXDEV
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Self

from msgspec import Struct

from paddock.errors import FileChangedError, HostError, IntegrityError, StorageFullError
from paddock.storage import prune as pruning
from paddock.storage.atomic import held_open, require_private
from paddock.storage.disk import (
    DIRECTORY,
    PRIVATE_MODE,
    READ,
    Disk,
    chunks_of,
    converting,
    digest_of_file,
    read_bytes,
)
from paddock.storage.locks import SHARED, call_after_fork, open_locked, unlock, wait_for_lock
from paddock.storage.prune import PACKED, name_of, names_in, open_directory
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX, digest_of

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

_INCOMING: Final = "incoming"
_HELD: Final = ".held"
_FILL: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_STAGED_MAX: Final = 64
"""Puts that wait for `sync` at most, each holding a descriptor."""
_AHEAD_MAX: Final = 16
"""Names that are made ahead. Who puts once makes none, and who goes on twice as many each time."""
HELD_BYTES_MIN: Final = 4096
"""Smaller files are copied, which costs less there."""
PACKED_BYTES_MAX: Final = 64_000_000
"""Of the content. A packed object that holds more is a forgery."""
_NOT_HERE: Final = frozenset({EXDEV, EPERM, EACCES, EMLINK, EOPNOTSUPP, ENOENT})
"""link(2): another file system or mount, no hard links there, no /proc."""
_KEEP: Final = "keep what is about to be replaced"
_READ: Final = "read the history"
_Unpacked = Callable[[int, int], Iterable[bytes]]


class StoreReader:
    # Nothing is made, moved or removed: it serves also where the file system is full, or read-only.
    # Threat: whoever can write to the store can forge what undo brings back, so every object is
    # checked against its name when it is read.

    def __init__(self, directory: str, *, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self._directory = directory
        self._fd = -1
        self._mutex = threading.RLock()
        self._digests: dict[tuple[str, int, int], str] = {}
        call_after_fork(self, StoreReader.renew)

    def renew(self) -> None:
        # In a forked child. What its parent's threads were about stays theirs.
        self._mutex = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """It is opened again where it is needed again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def look(self) -> int:
        """A descriptor of the store's directory. Raises: FileNotFoundError, ConfigError."""
        if self._fd < 0:
            with self._mutex:
                if self._fd < 0:
                    require_private(Path(self._directory))
                    self._fd = os.open(self._directory, DIRECTORY)
        return self._fd

    def has(self, digest: str) -> bool:
        with self._opened(digest) as found:
            return found is not None

    def stored_bytes(self, digest: str) -> int:
        """0 where it is not there."""
        with self._opened(digest) as found:
            return 0 if found is None else os.fstat(found[0]).st_size

    def read(self, digest: str) -> bytes:
        return b"".join(self._content(digest))

    def find(self, digest: str) -> bytes | None:
        return self.read(digest) if self.has(digest) else None

    def verify(self, digest: str) -> None:
        for _ in self._content(digest):
            continue

    def copy_to(self, digest: str, fd: int) -> None:
        """Where this raises, throw away what was written."""
        for piece in self._content(digest):
            self.disk.write(fd, piece)

    def _content(self, digest: str) -> Generator[bytes]:
        with self._opened(digest) as found:
            if found is None:
                raise HostError(
                    f"the history does not keep the content {quote(digest)} any more",
                    hint="it was pruned to keep to [history] bytes_max",
                )
            (fd, unpacked), hashed = found, hashlib.sha256()
            try:
                for piece in unpacked(fd, os.fstat(fd).st_size):
                    hashed.update(piece)
                    yield piece
            except (ValueError, zlib.error) as failure:
                raise _damaged(digest, str(failure)) from failure
            if DIGEST_PREFIX + hashed.hexdigest() != digest:
                raise _damaged(digest, "its content has another digest")

    @contextmanager
    def _opened(self, digest: str) -> "Generator[tuple[int, _Unpacked] | None]":
        with converting(_READ), ExitStack() as held:
            name, found = name_of(digest), None
            with suppress(FileNotFoundError):
                dir_fd = self.look()
                # What has no digest for a name yet has one by now where its process lived.
                for stands in chain((name, name + PACKED), self._first_places(digest), (name,)):
                    with suppress(FileNotFoundError):
                        fd = held.enter_context(held_open(os.open(stands, READ, dir_fd=dir_fd)))
                        found = fd, _unpacked if stands.endswith(PACKED) else chunks_of
                        break
            yield found

    def _first_places(self, digest: str) -> Generator[str]:
        for held, fd, status in self.held_contents():
            known = held, status.st_size, status.st_mtime_ns
            if known not in self._digests:
                self._digests[known] = digest_of_file(fd, status.st_size)
            if self._digests[known] == digest:
                yield f"{_INCOMING}/{held}"

    def held_contents(self) -> Generator[tuple[str, int, os.stat_result]]:
        # The descriptor is open until the next one is asked for.
        with (
            suppress(FileNotFoundError),
            held_open(os.open(_INCOMING, DIRECTORY, dir_fd=self.look())) as incoming_fd,
        ):
            for name in (name for name in names_in(incoming_fd) if name.endswith(_HELD)):
                # Where it is gone it has become an object, or was let go.
                with (
                    suppress(FileNotFoundError),
                    held_open(os.open(name, READ, dir_fd=incoming_fd)) as fd,
                ):
                    if (status := os.fstat(fd)).st_size:
                        yield name, fd, status


def _damaged(digest: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"the object {digest} of the history is damaged: {why}",
        hint="restore it from a backup; what refers to it cannot be undone",
    )


def _unpacked(fd: int, size_bytes: int) -> tuple[bytes]:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(read_bytes(fd, size_bytes), PACKED_BYTES_MAX + 1)
    if len(content) > PACKED_BYTES_MAX:
        raise ValueError(f"it holds more than {PACKED_BYTES_MAX} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut, or something stands behind it")
    return (content,)


class Kept(Struct):
    """What was kept for an act that is about to happen. End it by `settle` or `release`."""

    store: "ObjectStore | None" = None
    """None once it is over, and of what was put."""
    name: str = ""
    """In `incoming/`."""
    digest: str = ""
    changed_ns: int = 0
    """The file's change time when it got that name."""
    over: Callable[[], None] | None = None
    """Told that the act is not about to happen any more."""

    def require_untouched(self) -> None:
        """Asked last before the act. FileChangedError: somebody wrote to it since it was kept."""
        if self.store is not None:
            now = os.stat(self.name, dir_fd=self.store.incoming_fd, follow_symlinks=False)
            if now.st_ctime_ns != self.changed_ns:
                raise _changed()

    def settle(self) -> None:
        """The act took place. FileChangedError: what lost its place was written to; put it back."""
        store, self.store = self.store, None
        if store is None:
            return
        try:
            with held_open(os.open(self.name, READ, dir_fd=store.incoming_fd)) as fd:
                if _nobody_writes(fd):
                    # Its age was that of the file that it was, and its mode may let others in.
                    store.disk.set_modified(fd, time.time_ns())
                    store.disk.set_mode(fd, PRIVATE_MODE)
                    store.count(store.place(self.name, self.digest, fd))
                    return
                if store.put_file(fd) != self.digest:
                    raise _changed()
                store.sync()
                store.discard(self.name)
        except (OSError, StorageFullError, HostError):
            return  # whoever sweeps next makes it an object
        finally:
            store.release()

    def release(self) -> None:
        """The act did not take place, or was undone. A second time does nothing."""
        store, self.store = self.store, None
        if store is not None:
            store.discard(self.name)
            store.release()
        over, self.over = self.over, None
        if over is not None:
            over()


def _changed() -> FileChangedError:
    return FileChangedError(
        "the file was changed by somebody else meanwhile",
        hint="read it again, then repeat the call",
    )


def _nobody_writes(fd: int) -> bool:
    try:
        # Who opens it for writing while we hold the lease makes the kernel send us SIGIO,
        # which would end the process. SIGURG is ignored where nobody asks for it.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):  # writers, or mappings; no leases here, or not Linux
        return False
    return True


class _Staged(NamedTuple):
    fd: int
    name: str
    is_named: bool
    """Its name, in `incoming/`, is on the device."""


class ObjectStore(StoreReader):
    # Made where something is put; threads and processes may share it. What is put is on the device,
    # and found by others, after the next `sync`.

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
        self._lock_fd, self._shares = -1, 0
        call_after_fork(self, ObjectStore.renew)

    def renew(self) -> None:
        super().renew()
        staged, self._staged, self._ready = self._staged, {}, []
        for draft in staged.values():
            os.close(draft.fd)
        # A lock would last as long as the child that holds a copy of it.
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd, self._shares = -1, 0

    def close(self) -> None:
        with self._mutex, converting("close the history"):
            self._drop(self._staged)
            while self._ready:
                self.discard(self._ready.pop())
            while self._shares:
                self.release()
            if self._incoming_fd >= 0:
                fd, self._incoming_fd = self._incoming_fd, -1
                os.close(fd)
            self._swept = False
            super().close()

    @property
    def fd(self) -> int:
        """Of the store's directory, made where it is missing. Raises: ConfigError."""
        try:
            return self.look()
        except FileNotFoundError:
            os.close(open_directory(self.disk, None, self._directory))
            return self.look()

    @property
    def incoming_fd(self) -> int:
        with self._mutex:
            if self._incoming_fd < 0:
                self._incoming_fd = open_directory(self.disk, self.fd, _INCOMING)
            return self._incoming_fd

    # Its lock, flock(2) on the directory: whoever puts shares it, whoever prunes has it alone. All
    # threads of a process have it together.

    def acquire(self) -> None:
        """To be released as often. Raises: HostError, not in time."""
        with self._mutex, converting("lock the history"):
            self._shares += 1
            try:
                if self._lock_fd < 0:
                    self._lock_fd = os.open(".", DIRECTORY, dir_fd=self.fd)
                    if not wait_for_lock(self._lock_fd, SHARED):
                        raise pruning.busy()
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        with self._mutex:
            # It has none in a child that was forked while its parent had it.
            self._shares = max(0, self._shares - 1)
            if not self._shares and self._lock_fd >= 0:
                fd, self._lock_fd = self._lock_fd, -1
                unlock(fd)

    @contextmanager
    def held(self) -> Generator[None]:
        """While it lasts no process prunes: until what was put is named by something."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def _alone(self) -> Generator[bool]:
        """Whether the lock was free right now, for us alone."""
        fd = None if self._shares else open_locked(self.fd, ".", DIRECTORY)
        if fd is None:
            yield False
            return
        self._lock_fd, self._shares = fd, 1
        try:
            yield True
        finally:
            self.release()

    # Putting

    def put_bytes(self, content: bytes) -> str:
        digest = digest_of(content)
        self._stage(digest, lambda fd: self.disk.write(fd, content))
        return digest

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        """`digest`: where it is known, which saves a reading."""
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
            with self.held():
                self._staged[digest] = self._incoming(draft)
                self._shares += 1  # until it has its name
                try:
                    fill(self._staged[digest].fd)
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
            self.discard(self._staged[digest].name)
            self._unstage(digest)

    def _unstage(self, digest: str) -> None:
        os.close(self._staged.pop(digest).fd)
        self.release()

    def sync(self) -> None:
        """Give everything that was put its name, and wait until it is on the device."""
        with self._mutex, converting(_KEEP):
            staged, more = dict(self._staged), 0
            try:
                if staged:
                    self.disk.sync_all(self.fd, [each.fd for each in staged.values()])
                    if not all(each.is_named for each in staged.values()):
                        self._sync_names()
                for digest, each in staged.items():
                    more += self.place(each.name, digest, each.fd)
                    self._unstage(digest)
                self.count(more)
            finally:
                self._drop(self._staged)

    def _sync_names(self) -> None:
        # With more of them, for those who put next; one that finds no room makes its own.
        names = [_held_name() for _ in range(self._ahead)]
        with suppress(OSError):
            for name in names:
                os.close(self.disk.create(self.incoming_fd, name))
        self.disk.sync(self.incoming_fd)
        self._ready += names
        self._ahead = min(max(1, self._ahead * 2), _AHEAD_MAX)

    def place(self, incoming: str, digest: str, fd: int) -> int:
        """Let a content replace what stands there; how many bytes more the store has."""
        name, there = name_of(digest), 0
        with suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        self.disk.replace(self.incoming_fd, incoming, self.fd, name)
        return os.fstat(fd).st_size - there

    def discard(self, incoming: str) -> None:
        # One that cannot be removed is swept later.
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
            name = _held_name()
            self.acquire()
            try:
                self.disk.link_open(fd, self.incoming_fd, name)
                changed_ns = os.fstat(fd).st_ctime_ns
                self.disk.sync(fd)
                self.disk.sync(self.incoming_fd)
            except BaseException as failure:
                self.release()
                if isinstance(failure, OSError) and failure.errno in _NOT_HERE:
                    return None
                raise
            return Kept(self, name, digest, changed_ns)

    # What killed processes left

    def recover(self) -> None:
        """Keep what killed processes were about to, where nobody else puts."""
        left = "keep what a killed process left"
        with self._mutex, converting(left), self._alone() as is_alone:
            if is_alone:
                names = names_in(self.incoming_fd)
                for _, fd, _ in self.held_contents():
                    self.put_file(fd)  # a copy, for its other name may be in use
                self.sync()
                for name in names:
                    self.disk.unlink(self.incoming_fd, name)
                self._swept = True

    def _sweep_once(self) -> None:
        if not self._swept:
            self.recover()

    def _first_places(self, digest: str) -> Generator[str]:
        if digest in self._staged:
            yield f"{_INCOMING}/{self._staged[digest].name}"
        else:
            self._sweep_once()

    # Size

    def count(self, size_bytes: int) -> None:
        if size_bytes and self._bytes_max is not None:
            self._usage_bytes = pruning.add_usage(self.fd, size_bytes)

    def usage_bytes(self) -> int:
        with self._mutex, converting(_READ):
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

    def forget(self, digest: str) -> bool:
        """Remove this content, durably, pinned or not; whether it was there.

        What a device, a snapshot or a backup still holds of it, stays there.
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
    return os.urandom(16).hex() + _HELD
