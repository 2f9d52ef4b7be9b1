"""Content-addressed object store: each content once, named by the digest of its bytes.

    <64 hex digits>          an object; with `.z`, one compressed by an earlier version
    incoming/<random>.held   a content not yet named by its digest: copied here, or a second link to
                             a large file that is about to be replaced; if empty, a reserved name

A digest never names a partial content, even after a crash.
"""

import hashlib
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from errno import EACCES, EMLINK, ENOENT, EOPNOTSUPP, EPERM, EXDEV
from fcntl import LOCK_EX
from itertools import chain
from pathlib import Path
from typing import Final, Self

from paddock import limits
from paddock.errors import HostError, IntegrityError, InternalError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open, require_private
from paddock.storage.disk import DIRECTORY, READ, Disk, chunks_of, converting, digest_of_file
from paddock.storage.history import NEWEST, Kept
from paddock.storage.locks import SHARED, call_after_fork, open_locked, unlock, wait_for_lock
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX, digest_of

# Durability, step by step (open(2), fsync(2), rename(2)):
#
#   put    a file in `incoming/` → write             not yet an object
#   sync   fsync of the file → fsync of `incoming/`  ← from here on it is kept
#          → rename to its digest                    not synced
#   hold   link to `incoming/` → fsync of the file → fsync of `incoming/` → (the writer exchanges
#          the files) → no process has it open for writing → rename to its digest
#
# After a power cut or a kill the content has one of the two names. So the first process that puts,
# or misses a digest, turns all that dead processes left in `incoming/` into objects, even partial
# contents, which nothing ever names. Empty names in `incoming/` are created ahead, several with one
# sync, so that a put waits only for its bytes. An existing object is replaced.
#
# Only a file with one link, owned by this user, on the store's file system can be held. It becomes
# an object only if no process can write to it: a read lease (fcntl(2), F_SETLEASE) is refused while
# one can. Otherwise, or without leases, it is copied.

PACKED: Final = ".z"
_DIGEST: Final = lazy_pattern(r"sha256:([0-9a-f]{64})")
_OBJECT_NAME: Final = lazy_pattern(r"([0-9a-f]{64})(\.z)?")
_PINS: Final = "pins"
_PIN: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_PIN_BYTES_MAX: Final = 64_000_000
_COUNT: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_INCOMING: Final = "incoming"
_HELD: Final = ".held"
_FILL: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
HELD_BYTES_MIN: Final = 4096  # below this, copying is faster
PACKED_BYTES_MAX: Final = 64_000_000  # a larger packed object is forged
_NOT_HERE: Final = frozenset({EXDEV, EPERM, EACCES, EMLINK, EOPNOTSUPP, ENOENT})
"""Errors of link(2): another file system or mount, no hard links, no /proc."""
_KEEP: Final = "keep the content that is about to be replaced"
_READ: Final = "read the history"
_Unpacked = Callable[[int, int], Iterable[bytes]]


def name_of(digest: str) -> str:
    found = _DIGEST.fullmatch(digest)
    # Threat: a digest from a forged record could be a path.
    if found is None:
        raise IntegrityError(f"{quote(digest)} is not a digest of an object")
    return found[1]


class StoreReader:
    # Never writes: it also works on a full or read-only file system.
    # Threat: anyone who can write to the store can forge contents that undo restores, so every
    # object is compared with its digest when it is read.
    def __init__(self, directory: str, *, disk: Disk | None = None) -> None:
        self.disk, self._directory, self._fd = disk or Disk(), directory, -1
        self._mutex = threading.RLock()
        self._digests: dict[tuple[str, int, int], str] = {}
        call_after_fork(self, StoreReader.renew)

    def renew(self) -> None:
        self._mutex = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def look(self) -> int:
        """Return a descriptor of the store's directory. Raises: FileNotFoundError, ConfigError."""
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
        """If this raises, discard the bytes written."""
        for piece in self._content(digest):
            self.disk.write(fd, piece)

    def _content(self, digest: str) -> Generator[bytes]:
        with self._opened(digest) as found:
            if found is None:
                said = f"the history no longer has the content {quote(digest)}"
                raise HostError(said, hint="it was pruned to keep to [history] bytes_max")
            (fd, unpacked), hashed = found, hashlib.sha256()
            try:
                for piece in unpacked(fd, os.fstat(fd).st_size):
                    hashed.update(piece)
                    yield piece
            except (ValueError, zlib.error) as failure:
                raise _damaged(digest, str(failure)) from failure
            if DIGEST_PREFIX + hashed.hexdigest() != digest:
                raise _damaged(digest, "its content has a different digest")

    @contextmanager
    def _opened(self, digest: str) -> "Generator[tuple[int, _Unpacked] | None]":
        with converting(_READ), ExitStack() as held:
            name, found = name_of(digest), None
            with suppress(FileNotFoundError):
                dir_fd = self.look()
                # Try the name again last: a live process may have renamed the content meanwhile.
                for path in chain((name, name + PACKED), self._first_places(digest), (name,)):
                    with suppress(FileNotFoundError):
                        fd = held.enter_context(held_open(os.open(path, READ, dir_fd=dir_fd)))
                        found = fd, _unpacked if path.endswith(PACKED) else chunks_of
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
        for _, name, fd in self.disk.files_in(self.look(), _INCOMING, _HELD):
            if (status := os.fstat(fd)).st_size:
                yield name, fd, status


def _damaged(digest: str, why: str) -> IntegrityError:
    said = f"the object {digest} of the history is damaged: {why}"
    return IntegrityError(said, hint="restore it from a backup; what refers to it cannot be undone")


def _unpacked(fd: int, size_bytes: int) -> tuple[bytes]:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(b"".join(chunks_of(fd, size_bytes)), PACKED_BYTES_MAX + 1)
    if len(content) > PACKED_BYTES_MAX:
        raise ValueError(f"it holds more than {PACKED_BYTES_MAX} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is truncated, or has trailing bytes")
    return (content,)


class ObjectStore(StoreReader):
    # A content that was put is durable, and visible to other processes, after the next `sync`.
    def __init__(self, directory: str, *, bytes_max: int | None, disk: Disk | None = None) -> None:
        super().__init__(directory, disk=disk)
        self._bytes_max, self._incoming_fd, self._counted_bytes = bytes_max, -1, 0
        self._staged: dict[str, tuple[int, str]] = {}
        """By digest: a descriptor and the name in `incoming/`, durable unless the next is True."""
        self._has_unsynced_names = self._swept = False
        self._ready: list[str] = []
        self._ahead = 0
        self._lock_fd, self._shares = -1, 0
        call_after_fork(self, ObjectStore.renew)

    def renew(self) -> None:
        super().renew()
        # The child's copy would keep the lock as long as the child lives.
        for fd in (*(fd for fd, _ in self._staged.values()), self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._staged, self._ready, self._lock_fd, self._shares = {}, [], -1, 0

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
        try:
            return self.look()
        except FileNotFoundError:
            os.close(self.disk.open_directory(None, self._directory))
            return self.look()

    @property
    def incoming_fd(self) -> int:
        with self._mutex:
            if self._incoming_fd < 0:
                self._incoming_fd = self.disk.open_directory(self.fd, _INCOMING)
            return self._incoming_fd

    # The lock, flock(2) on the directory: shared while putting, exclusive while pruning.

    def acquire(self) -> None:
        with self._mutex, converting("lock the history"):
            self._shares += 1
            try:
                if self._lock_fd < 0:
                    self._lock_fd = os.open(".", DIRECTORY, dir_fd=self.fd)
                    if not wait_for_lock(self._lock_fd, SHARED):
                        wait = f"{limits.path_lock_timeout_s:g} s"
                        said = f"the history was locked by another process for {wait}"
                        raise HostError(said, hint="try again")
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        with self._mutex:
            # A child forked while its parent had the lock has no share.
            self._shares = max(0, self._shares - 1)
            if not self._shares and self._lock_fd >= 0:
                fd, self._lock_fd = self._lock_fd, -1
                unlock(fd)

    @contextmanager
    def held(self) -> Generator[None]:
        """Prevent pruning by any process, until the contents put are named by a note or pin."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def _alone(self) -> Generator[bool]:
        fd = None if self._shares else open_locked(self.fd, ".", DIRECTORY)
        if fd is None:
            yield False
            return
        self._lock_fd, self._shares = fd, 1
        try:
            yield True
        finally:
            self.release()

    def put_bytes(self, content: bytes) -> str:
        digest = digest_of(content)
        self._stage(digest, lambda fd: self.disk.write(fd, content))
        return digest

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        with converting(_KEEP):
            size_bytes = os.fstat(fd).st_size
            known = digest or digest_of_file(fd, size_bytes)

        def copy(to_fd: int) -> None:
            if self.disk.copy(fd, to_fd, size_bytes) != size_bytes:
                raise HostError("a file was truncated while the history copied it")

        self._stage(known, copy)
        return known

    def open_draft(self) -> int | None:
        """Open an unnamed file for `adopt`, which the caller closes; None without O_TMPFILE."""
        with converting(_KEEP):
            return self.disk.open_unnamed(self.fd)

    def adopt(self, fd: int, digest: str) -> None:
        self._stage(digest, lambda _: None, fd)

    def _stage(self, digest: str, fill: Callable[[int], object], draft: int | None = None) -> None:
        with converting(_KEEP), self._mutex:
            if digest in self._staged:
                return
            if len(self._staged) >= 64:  # descriptors
                self.sync()
            self._sweep_once()
            with self.held():
                self._staged[digest] = self._incoming(draft)
                self._shares += 1  # until it is renamed to its digest
                try:
                    fill(self._staged[digest][0])
                except BaseException:
                    self._drop((digest,))
                    raise

    def _incoming(self, draft: int | None) -> tuple[int, str]:
        while draft is None and self._ready:
            name = self._ready.pop()
            # Creating it failed, or another process swept it while this one was idle.
            with suppress(FileNotFoundError):
                return os.open(name, _FILL, dir_fd=self.incoming_fd), name
        name, self._has_unsynced_names = _held_name(), True
        if draft is None:
            return self.disk.create(self.incoming_fd, name), name
        self.disk.link_open(draft, self.incoming_fd, name)
        return os.dup(draft), name

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in list(digests):
            self.discard(self._staged[digest][1])
            self._unstage(digest)

    def _unstage(self, digest: str) -> None:
        os.close(self._staged.pop(digest)[0])
        self.release()

    def sync(self) -> None:
        with self._mutex, converting(_KEEP):
            staged, more = dict(self._staged), 0
            try:
                if staged:
                    self.disk.sync_all(self.fd, [fd for fd, _ in staged.values()])
                if staged and self._has_unsynced_names:
                    self._sync_names()
                for digest, (fd, name) in staged.items():
                    more += self.place(name, digest, fd)
                    self._unstage(digest)
                self.count(more)
            finally:
                self._drop(self._staged)

    def _sync_names(self) -> None:
        # Create names ahead: none at the first put, then twice as many each time.
        names = [_held_name() for _ in range(self._ahead)]
        with suppress(OSError):
            for name in names:
                os.close(self.disk.create(self.incoming_fd, name))
        self.disk.sync(self.incoming_fd)
        self._ready += names
        self._ahead, self._has_unsynced_names = min(max(1, self._ahead * 2), 16), False

    def place(self, incoming: str, digest: str, fd: int) -> int:
        """Rename a content to its digest; return how many bytes the store grew."""
        name, there = name_of(digest), 0
        with suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        self.disk.replace(self.incoming_fd, incoming, self.fd, name)
        return os.fstat(fd).st_size - there

    def discard(self, incoming: str) -> None:
        # If removal fails, it is swept later.
        with suppress(OSError):
            self.disk.unlink(self.incoming_fd, incoming)

    def hold_file(self, fd: int, digest: str) -> Kept | None:
        """Link a large file that is about to lose its only name; None if it must be copied."""
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

    def recover(self) -> None:
        """Keep contents that killed processes left, if no other process is putting."""
        with self._mutex, converting("recover kept contents"), self._alone() as is_alone:
            if is_alone:
                names = os.listdir(self.incoming_fd)
                for _, fd, _ in self.held_contents():
                    self.put_file(fd)  # a copy, because its other link may be in use
                self.sync()
                for name in names:
                    self.discard(name)
                self._swept = True

    def _sweep_once(self) -> None:
        if not self._swept:
            self.recover()

    def _first_places(self, digest: str) -> Generator[str]:
        if digest in self._staged:
            yield f"{_INCOMING}/{self._staged[digest][1]}"
        else:
            self._sweep_once()

    def forget(self, digest: str) -> bool:
        """Remove a content durably, not from snapshots or backups; return whether it existed."""
        self.sync()
        is_there = False
        with self._mutex, converting("remove a content"), suppress(FileNotFoundError):
            fd = self.look()
            with suppress(FileNotFoundError):
                self.disk.unlink(fd, name_of(digest))
                is_there = True
            # Its rename was not synced: it must not reappear under its name in `incoming/`.
            for held, held_fd, status in self.held_contents():
                if digest_of_file(held_fd, status.st_size) == digest:
                    self.disk.unlink(self.incoming_fd, held)
                    is_there = True
            # Also if it was gone: the process that removed it may have been killed before this.
            self.disk.sync(fd)
            self.disk.sync(self.incoming_fd)
        return is_there

    # Size: one number in a file, updated by puts and prunes. A kill may leave it slightly wrong;
    # every pruning counts again.

    def count(self, size_bytes: int) -> None:
        if size_bytes and self._bytes_max is not None:
            self._add_usage(size_bytes)

    def usage_bytes(self) -> int:
        with self._mutex, converting(_READ):
            return self._add_usage(0)

    def is_over(self) -> bool:
        return self._bytes_max is not None and self._counted_bytes > self._bytes_max

    def _add_usage(self, size_bytes: int, counted: int | None = None) -> int:
        with held_open(os.open("usage", _COUNT, 0o600, dir_fd=self.fd)) as fd:
            wait_for_lock(fd, LOCK_EX)  # after a timeout the number may be slightly wrong
            if counted is None:
                with suppress(ValueError):
                    counted = int(os.pread(fd, 21, 0))
            if counted is None:  # the new content is already among the objects
                counted, size_bytes = sum(size for *_, size in self._objects()), 0
            total = self._counted_bytes = max(0, counted + size_bytes)
            os.pwrite(fd, f"{total:020d}\n".encode(), 0)
            return total

    def _objects(self) -> Generator[tuple[int, str, int]]:
        # Opened again: threads that share a descriptor would share its position in the listing.
        with held_open(os.open(".", DIRECTORY, dir_fd=self.fd)) as fd:
            for name in filter(_OBJECT_NAME.fullmatch, os.listdir(fd)):
                with suppress(FileNotFoundError):  # pruned meanwhile
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    yield status.st_mtime_ns, name, status.st_size

    def prune(self, keep: Collection[str]) -> int:
        """Remove the oldest objects except `keep` and pinned ones; return the bytes freed."""
        with self._mutex, converting("prune the history"), self._alone() as is_alone:
            # Exclusive: no process may lose an object that it found before it is named.
            if not is_alone or self._bytes_max is None:
                return 0
            spared = {*map(name_of, keep), *self._pinned()}
            rows = sorted(self._objects())
            before = total = sum(size_bytes for *_, size_bytes in rows)
            if total > self._bytes_max:
                for _, name, size_bytes in rows:
                    # Go a sixteenth below the bound, so that the next write does not prune again.
                    if total <= self._bytes_max - self._bytes_max // 16:
                        break
                    if name.removesuffix(PACKED) not in spared:
                        self.disk.unlink(self.fd, name)
                        total -= size_bytes
                self.disk.sync(self.fd)
            self._add_usage(0, total)
            return before - total

    # `pins/<name>`: its expiry in seconds since 1970, or `-`; then digests, one per line.
    # Temporary file → fsync → rename → fsync of the directory, with the lock shared.

    def pin(self, name: str, digests: Collection[str], *, until_s: float | None = None) -> None:
        """Pin contents, until a time since 1970. Call it in the `held` that put or found them."""
        names = [name_of(digest) for digest in sorted(digests)]  # or IntegrityError
        until = "-" if until_s is None else str(int(until_s) + 1)
        lines = (until, *(DIGEST_PREFIX + each for each in names))
        self.sync()
        with self.held(), converting(_KEEP), self._pins(name) as dir_fd:
            draft = os.urandom(16).hex() + ".part"
            try:
                with held_open(self.disk.create(dir_fd, draft)) as fd:
                    self.disk.write(fd, "".join(f"{line}\n" for line in lines).encode("ascii"))
                    self.disk.sync(fd)
                self.disk.replace(dir_fd, draft, dir_fd, name)
            except BaseException:
                with suppress(OSError):
                    self.disk.unlink(dir_fd, draft)
                raise
            self.disk.sync(dir_fd)

    def unpin(self, name: str) -> None:
        with converting("unpin contents"), suppress(FileNotFoundError), self._pins(name) as dir_fd:
            self.disk.unlink(dir_fd, name)

    def _pins(self, name: str) -> AbstractContextManager[int]:
        if _PIN.fullmatch(name) is None:
            raise InternalError(f"invalid pin name {quote(name)}")
        return held_open(self.disk.open_directory(self.fd, _PINS))

    def _pinned(self) -> set[str]:
        found: dict[str, list[str]] = {}
        for dir_fd, pin, fd in self.disk.files_in(self.fd, _PINS):
            text = b"".join(chunks_of(fd, _PIN_BYTES_MAX)).decode("ascii", "replace")
            until, *digests = text.splitlines() or ("",)
            is_over = until.isdecimal() and int(until) <= time.time()
            is_older = pin.startswith(f"{NEWEST}-") and NEWEST in found
            # A draft is from a dead process, because this one has the store's lock exclusively.
            if is_over or is_older or _PIN.fullmatch(pin) is None:
                self.disk.unlink(dir_fd, pin)
            else:
                found[pin] = digests
        # Lines that are not digests pin nothing.
        return {line.rpartition(":")[2] for digests in found.values() for line in digests}


def _held_name() -> str:
    return os.urandom(16).hex() + _HELD
