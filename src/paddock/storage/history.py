"""The history of a plane: what a workspace is about to replace is handed over here first.

    keeper.keep_file(doing, fd)      what stands there is in the store, the note is written
    … the workspace acts, and sees that it was what was kept that lost its place …
    kept.settle()                    or, if the act did not happen, kept.release()

Store and notes are loaded, and opened, when they are first needed: for calls that write.
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
"""Pins what the newest call replaced; an earlier `newest-…` counts until this one is there."""
SALT_BYTES: Final = 16
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("paddock_running_call", default=None)
"""A handler gets ports, and those serve every call."""


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
        # Where it fails the call is over and on record. The next one tidies, or says what is wrong.
        with suppress(StorageFullError, HostError):
            kept = set[str]()
            if running.kept and self.store.is_over():
                kept = {digest for digest in running.kept if self.store.has(digest)}
            if kept:
                # Before its notes are over: until then they keep it from being pruned.
                with suppress(StorageFullError, HostError):
                    self.store.pin(NEWEST, kept)
            self.notes.over(running.notes)
            if kept:
                # What this call replaced stays, or a content larger than the bound would go
                # before anybody could ask for it. A call that kept nothing tidies nothing.
                self.store.prune(self.notes.needed() | kept)

    def keep_for_ledger(self, content: bytes) -> str:
        store = self.store
        with store.held():
            digest = store.put_bytes(content)
            # Durable before an entry names it, and never pruned: the entry stays for ever.
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
    """What was kept for an act that is about to happen. End it by `settle` or `release`."""

    store: "ObjectStore | None" = None  # None once it is over, and of what was put
    name: str = ""
    digest: str = ""
    changed_ns: int = 0  # when the file got that name, in `incoming/`
    over: Callable[[], None] | None = None

    def require_untouched(self) -> None:
        """FileChangedError: somebody wrote to it since it was kept."""
        if self.store is not None:
            now = os.stat(self.name, dir_fd=self.store.incoming_fd, follow_symlinks=False)
            if now.st_ctime_ns != self.changed_ns:
                raise _changed()

    def settle(self) -> None:
        """The act took place. FileChangedError: what lost its place was written to: put it back."""
        store, self.store = self.store, None
        if store is None:
            return
        try:
            with held_open(os.open(self.name, READ, dir_fd=store.incoming_fd)) as fd:
                if _nobody_writes(fd):
                    # Its age is that of the file, and its mode may let others in.
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
        store, self.store = self.store, None
        if store is not None:
            store.discard(self.name)
            store.release()
        over, self.over = self.over, None
        if over is not None:
            over()


def _changed() -> FileChangedError:
    said = "the file was changed by somebody else meanwhile"
    return FileChangedError(said, hint="read it again, then repeat the call")


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


class Keeper(Struct, frozen=True):
    """Where it raises (StorageFullError, HostError), the act must not happen."""

    history: History | None = None
    is_exempt: Callable[[str], bool] | None = None
    """Of what only commands write, and can make again, nothing is kept."""

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
        if history is None or running is None:  # no call's work: nobody would ask for a note
            return kept
        try:
            kept.over = partial(history.notes.over, history.note_all(running, (doing,)))
        except BaseException:
            kept.release()
            raise
        return kept


class BlobStore(History):
    # Contents that the ledger names by a salted digest, and that can be erased without it. What is
    # kept is `salt ‖ content`, under the SHA-256 of just that. The salt stands nowhere else: gone
    # with the object, nobody can try contents against the digest any more. Nothing is pruned.
    def __init__(self, directory: Path, randomness: Callable[[int], bytes]) -> None:
        super().__init__(str(directory), bytes_max=None)
        self._directory, self._randomness = directory, randomness

    def put(self, content: bytes) -> str:
        """With the next `sync`; its salted digest."""
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
