"""The history of a plane: keep files before the workspace replaces them.

    keeper.keep_file(doing, fd)      the old content is in the store, and the note is written
    … the workspace acts, and checks that it replaced the content that was kept …
    kept.settle()                    or kept.release(), if the change did not happen

Store and notes are loaded and opened at first use, so that calls that only read do not pay for it.
"""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import FileChangedError, HostError, IntegrityError, StorageFullError
from paddock.storage.atomic import held_open, make_directories
from paddock.storage.disk import PRIVATE_MODE, READ, Disk
from paddock.storage.locks import Late
from paddock.values.entries import DIGEST_PREFIX

if TYPE_CHECKING:
    from paddock.storage.notes import CallMark, Doing, Notes
    from paddock.storage.objects import ObjectStore


class Running(Struct):
    mark: "CallMark"
    notes: list[int] = field(default_factory=list[int])
    kept: set[str] = field(default_factory=set[str])


NEWEST: Final = "newest"
"""The pin of the newest call's replaced contents. Old `newest-…` pins count until it exists."""
SALT_BYTES: Final = 16
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("paddock_running_call", default=None)
"""A context variable, because handlers get ports that are shared by all calls."""


def current_call() -> Running | None:
    return _RUNNING.get()


class History:
    def __init__(self, directory: str, *, bytes_max: int | None, disk: Disk | None = None) -> None:
        self._late = Late(partial(_open, directory, bytes_max, disk))

    @property
    def store(self) -> "ObjectStore":
        return self._late.get()[0]

    @property
    def notes(self) -> "Notes":
        return self._late.get()[1]

    def close(self) -> None:
        if self._late.made is not None:
            self.notes.close()
            self.store.close()

    @staticmethod
    @contextmanager
    def running(mark: "CallMark") -> Generator[Running]:
        running = Running(mark)
        token = _RUNNING.set(running)
        try:
            yield running
        finally:
            _RUNNING.reset(token)

    def note_all(self, running: Running, doings: "Sequence[Doing]") -> list[int]:
        numbers = self.notes.write(running.mark, *doings)
        running.notes += numbers
        running.kept |= {doing.before for doing in doings if doing.before is not None}
        return numbers

    def recorded(self, running: Running) -> None:
        if not running.notes:
            return
        # If this fails, the call is still recorded; the next one cleans up or reports the error.
        with suppress(StorageFullError, HostError):
            kept = set[str]()
            if running.kept and self.store.is_over():
                kept = {digest for digest in running.kept if self.store.has(digest)}
            if kept:
                # Before its notes are ended: until then they protect it from pruning.
                with suppress(StorageFullError, HostError):
                    self.store.pin(NEWEST, kept)
            self.notes.over(running.notes)
            if kept:
                # Keep this call's contents, or one larger than the bound would be pruned before
                # anyone could undo the call. A call that kept nothing prunes nothing.
                self.store.prune(self.notes.needed() | kept)

    def keep_for_ledger(self, content: bytes) -> str:
        store = self.store
        with store.held():
            digest = store.put_bytes(content)
            # Durable before an entry names it, and never pruned, because the entry is permanent.
            store.pin(f"ledger-{digest.partition(':')[2]}", (digest,))
        return digest

    def keeper(self, is_exempt: Callable[[str], bool] | None = None) -> "Keeper":
        return Keeper(self, is_exempt)


def _open(directory: str, bytes_max: int | None, disk: Disk | None) -> "tuple[ObjectStore, Notes]":
    from paddock.storage.notes import Notes  # noqa: PLC0415 - see above
    from paddock.storage.objects import ObjectStore  # noqa: PLC0415 - as well

    store = ObjectStore(directory, bytes_max=bytes_max, disk=disk)
    return store, Notes(store)


class Kept(Struct):
    """Content kept for a pending change. End it with `settle` or `release`."""

    store: "ObjectStore | None" = None  # None once it is ended, or if the content was copied
    name: str = ""
    digest: str = ""
    changed_ns: int = 0  # ctime when the file got that name, in `incoming/`
    over: Callable[[], None] | None = None

    def require_untouched(self) -> None:
        """Raises: FileChangedError: the file was written to since it was kept."""
        if self.store is not None:
            now = os.stat(self.name, dir_fd=self.store.incoming_fd, follow_symlinks=False)
            if now.st_ctime_ns != self.changed_ns:
                raise _changed()

    def settle(self) -> None:
        """Finish the change. Raises: FileChangedError: the old file was written to; put it back."""
        store, self.store = self.store, None
        if store is None:
            return
        try:
            with held_open(os.open(self.name, READ, dir_fd=store.incoming_fd)) as fd:
                if _has_no_writer(fd):
                    # The file's own age would make it the first to prune; its mode may be open.
                    store.disk.set_modified(fd, time.time_ns())
                    store.disk.set_mode(fd, PRIVATE_MODE)
                    store.count(store.place(self.name, self.digest, fd))
                    return
                if store.put_file(fd) != self.digest:
                    raise _changed()
                store.sync()
                store.discard(self.name)
        except (OSError, StorageFullError, HostError):
            return  # the next sweep makes it an object
        finally:
            store.release()

    def release(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            store.discard(self.name)
            store.release()
        over, self.over = self.over, None
        if over is not None:
            over()


def _changed() -> FileChangedError:
    said = "another process changed the file meanwhile"
    return FileChangedError(said, hint="read it again, then repeat the call")


def _has_no_writer(fd: int) -> bool:
    try:
        # If another process opens it for writing while the lease is held, the kernel sends SIGIO,
        # which would end this process. SIGURG is ignored by default.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):  # it has writers or mappings, or leases are not supported
        return False
    return True


class Keeper(Struct, frozen=True):
    """Keeps old contents. If it raises StorageFullError or HostError, do not make the change."""

    history: History | None = None
    is_exempt: Callable[[str], bool] | None = None
    """Returns True for paths that only commands write and can recreate; they are not kept."""

    def keep_file(self, doing: "Doing", fd: int) -> Kept:
        digest = doing.before
        if not digest:
            return self.note(replace(doing, is_kept=False))
        return self._keep(
            doing, lambda at: at.hold_file(fd, digest) or at.put_file(fd, digest=digest)
        )

    def keep_link(self, doing: "Doing", text: bytes) -> Kept:
        return self._keep(doing, lambda store: store.put_bytes(text))

    def _keep(self, doing: "Doing", keep: "Callable[[ObjectStore], Kept | str]") -> Kept:
        if self.history is None or (self.is_exempt is not None and self.is_exempt(doing.path)):
            return self.note(replace(doing, is_kept=False))
        store = self.history.store
        with store.held():
            kept = keep(store)
            if isinstance(kept, str):
                store.sync()
                kept = Kept()
            return self.note(doing, kept)

    def note(self, doing: "Doing", kept: Kept | None = None) -> Kept:
        kept = kept or Kept()
        history, running = self.history, current_call()
        if history is None or running is None:  # outside a call no note is needed
            return kept
        try:
            kept.over = partial(history.notes.over, history.note_all(running, (doing,)))
        except BaseException:
            kept.release()
            raise
        return kept


class BlobStore(History):
    # Contents that the ledger names by a salted digest, so they can be erased without changing it.
    # An object is `salt ‖ content`, named by the SHA-256 of both, and never pruned. The salt is
    # stored nowhere else: after an erasure, guesses cannot be tested against the digest.
    def __init__(self, directory: Path, randomness: Callable[[int], bytes]) -> None:
        super().__init__(str(directory), bytes_max=None)
        self._directory, self._randomness = directory, randomness

    def put(self, content: bytes) -> str:
        """Store content, durable after the next `sync`; return its salted digest."""
        if not self._directory.is_dir():
            make_directories(self._directory.parent)
        digest = self.store.put_bytes(self._randomness(SALT_BYTES) + content)
        return digest.removeprefix(DIGEST_PREFIX)

    def sync(self) -> None:
        self.store.sync()

    def read(self, digest: str) -> bytes | None:
        kept = self.store.find(DIGEST_PREFIX + digest)
        if kept is not None and len(kept) < SALT_BYTES:
            raise IntegrityError(f"the content {digest} has no salt")
        return None if kept is None else kept[SALT_BYTES:]

    def has(self, digest: str) -> bool:
        return self.store.has(DIGEST_PREFIX + digest)

    def erase(self, digest: str) -> bool:
        return self.store.forget(DIGEST_PREFIX + digest)
