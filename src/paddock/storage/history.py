"""The port by which a workspace hands over what it is about to replace, and who is behind it.

    keeper.keep_file(doing, fd)      what stands there is in the store, the note is written
    … the workspace acts, and sees that it was what was kept that lost its place …
    kept.settle()                    or, if the act did not happen, kept.release()

A write whose old content cannot be kept does not happen: keeping comes first and raises.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import HostError, StorageFullError
from paddock.storage.atomic import require_private
from paddock.storage.disk import READ, Disk, converting, digest_of_file
from paddock.storage.locks import OpenedOnce
from paddock.storage.notes import CallMark, Doing, Note, Notes
from paddock.storage.objects import HeldFile, ObjectStore
from paddock.storage.prune import mark_newest
from paddock.storage.shelf import OpenObject, Shelf


class Running(Struct):
    mark: CallMark
    notes: list[int] = field(default_factory=list[int])
    kept: set[str] = field(default_factory=set[str])


_LEDGER_PIN: Final = "ledger-"
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("paddock_running_call", default=None)
"""Which call a thread works for. A handler gets ports, and those serve every call."""


class CallHistory:
    """What a dispatcher tells about its calls; this one, of no history, forgets it."""

    __slots__ = ()

    @contextmanager
    def running(self, mark: CallMark) -> Generator[Running]:
        """What happens inside, in this thread, is the work of that call."""
        yield Running(mark)

    def recorded(self, running: Running) -> None:
        """The ledger has what that call changed."""


def current_call() -> Running | None:
    return _RUNNING.get()


class Kept(Struct):
    """What was kept for an act that is about to happen. End it by `settle` or `release`."""

    history: "History | None" = None
    running: Running | None = None
    note: int | None = None
    held: HeldFile | None = None

    def require_untouched(self) -> None:
        """Asked last before the act. FileChangedError: somebody wrote to it since it was kept."""
        if self.held is not None:
            self.held.require_untouched()

    def settle(self) -> None:
        """The act took place. FileChangedError: what lost its place was written to; put it back."""
        if self.held is not None:
            self.held.settle()

    def release(self) -> None:
        """The act did not take place, or was undone. A second time does nothing."""
        if self.held is not None:
            self.held.release()
        if self.note is not None and self.running is not None and self.history is not None:
            self.running.notes.remove(self.note)
            self.history.notes.over((self.note,))
            self.note = None


class History(CallHistory):
    """The history of one plane: the store, the notes, and the keeper of its workspaces.

    Opened when it is first needed: a call that only reads pays nothing for it.
    """

    __slots__ = ("_bytes_max", "_directory", "_disk", "_kept_last", "_opened")

    def __init__(self, directory: str, *, bytes_max: int, disk: Disk | None = None) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._disk = disk
        self._opened = OpenedOnce(self._open)
        self._kept_last: set[str] = set()

    def close(self) -> None:
        opened = self._opened.take()
        if opened is None:
            return
        store, notes = opened
        try:
            # A process that makes one call would never see that the store is full. One that
            # kept nothing tidies nothing: whoever only looks must find it again as it was.
            if self._kept_last and store.usage_bytes() > self._bytes_max:
                store.prune(notes.needed() | self._kept_last)
        finally:
            notes.close()
            store.close()

    @property
    def store(self) -> ObjectStore:
        return self._opened.get()[0]

    @property
    def notes(self) -> Notes:
        return self._opened.get()[1]

    def _open(self) -> tuple[ObjectStore, Notes]:
        store = ObjectStore.open(self._directory, bytes_max=self._bytes_max, disk=self._disk)
        try:
            return store, Notes(store.shelf)
        except BaseException:
            store.close()
            raise

    @contextmanager
    def running(self, mark: CallMark) -> Generator[Running]:
        running = Running(mark)
        token = _RUNNING.set(running)
        try:
            yield running
        finally:
            _RUNNING.reset(token)

    def note_all(self, running: Running, doings: Sequence[Doing]) -> None:
        """Note a set of changes that another keeps, with one sync."""
        running.notes += self.notes.write(running.mark, *doings)
        running.kept |= {doing.before for doing in doings if doing.before is not None}

    def recorded(self, running: Running) -> None:
        """The ledger has the call's changes: its notes are over, and the store is tidied."""
        if not running.notes:
            return
        try:
            store, notes = self._opened.get()
            kept = {digest for digest in running.kept if store.has(digest)}
            self._kept_last = kept or self._kept_last
            # Where the store is not too large now, it becomes so by a newer call.
            is_over = bool(kept) and store.is_over()
            if is_over:
                # Before its notes are over: until then they keep it from being pruned.
                self._mark_newest(kept)
            notes.over(running.notes)
            if is_over:
                # What this call replaced stays, or a content larger than the bound would go
                # before anybody could ask for it.
                store.prune(notes.needed() | kept)
        except (StorageFullError, HostError):
            # The call is over and on record. The next one tidies, or says what is wrong.
            return

    def _mark_newest(self, kept: set[str]) -> None:
        store = self.store
        with (
            suppress(StorageFullError, HostError),
            store.held(),
            converting("say what the newest call replaced"),
        ):
            mark_newest(store.shelf, kept)

    def keep_for_ledger(self, content: bytes) -> str:
        """Keep what a ledger entry is about to name, however full the store is; its digest."""
        store = self.store
        with store.held():
            digest = store.put_bytes(content)
            # Durable before an entry names it, and never pruned: the entry stays for ever.
            store.pin(f"{_LEDGER_PIN}{digest.partition(':')[2]}", (digest,))
        return digest

    def keeper(self, is_exempt: Callable[[str], bool] | None = None) -> "Keeper":
        """`is_exempt`: of what only commands write, and can make again, nothing is kept."""
        return Keeper(self, is_exempt)


class Keeper(Struct, frozen=True):
    """Keeps what is about to be replaced; that of a workspace without a history, nothing.

    Where it raises (StorageFullError, HostError), the act must not happen.
    """

    history: History | None = None
    is_exempt: Callable[[str], bool] | None = None

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        if self.history is None or doing.before is None or self._is_exempt(doing):
            return self.note(replace(doing, is_kept=False))
        store = self.history.store
        with store.held():
            held = store.hold_file(fd, doing.before)
            if held is None:
                store.put_file(fd, digest=doing.before)
                store.sync()
            return self._noted(self.history, doing, held)

    def keep_link(self, doing: Doing, text: bytes) -> Kept:
        if self.history is None or self._is_exempt(doing):
            return self.note(replace(doing, is_kept=False))
        store = self.history.store
        with store.held():
            store.put_bytes(text)
            store.sync()
            return self._noted(self.history, doing)

    def note(self, doing: Doing) -> Kept:
        """An act that replaces no content: creating, moving, deleting an empty directory."""
        return Kept() if self.history is None else self._noted(self.history, doing)

    def _is_exempt(self, doing: Doing) -> bool:
        return self.is_exempt is not None and self.is_exempt(doing.path)

    @staticmethod
    def _noted(history: History, doing: Doing, held: HeldFile | None = None) -> Kept:
        running = current_call()
        if running is None:  # no call's work: nothing would ever ask for a note
            return Kept(history, held=held)
        try:
            number = history.notes.write(running.mark, doing)[0]
        except BaseException:
            if held is not None:
                held.release()
            raise
        running.notes.append(number)
        if doing.before is not None:
            running.kept.add(doing.before)
        return Kept(history, running, number, held)


# So what lies on a file system that is full, or that is read-only, can be looked at as it is:
# also a copy that somebody keeps as evidence.

_NOWHERE: Final = "/"
"""Looked at where there is no store: no object has a name there."""


class SeenStore(ObjectStore):
    """A store to read from. What would put, pin, prune or remove something is not to be called.

    What a killed process held is read where it lies: whoever puts next makes an object of it.
    """

    __slots__ = ("_held",)

    def __init__(self, shelf: Shelf, bytes_max: int | None) -> None:
        super().__init__(shelf, bytes_max)
        self._swept = True
        self._held: dict[str, str] | None = None

    @classmethod
    def look(cls, directory: str) -> Self:
        """Look at the store in `directory`; where none is, there is nothing in it."""
        require_private(Path(directory))
        with converting("read the history"):
            return cls(Shelf.look(Disk(), directory, _NOWHERE), None)

    def notes(self) -> tuple[Note, ...]:
        return Notes.look(self.shelf)

    def _find(self, digest: str) -> OpenObject | None:
        # The last: its process lived, and has made it an object.
        return super()._find(digest) or self._find_held(digest) or super()._find(digest)

    def _find_held(self, digest: str) -> OpenObject | None:
        with self._mutex:
            if self._held is None:
                held = self.shelf.held()
                self._held = {digest_of_file(fd, status.st_size): name for name, fd, status in held}
        with suppress(KeyError, FileNotFoundError):
            fd = os.open(self._held[digest], READ, dir_fd=self.shelf.incoming_fd)
            return OpenObject(digest, fd, is_packed=False)
        return None
