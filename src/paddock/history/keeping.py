"""The port by which a workspace hands over what it is about to replace, and who is behind it.

    keeper.keep_file(doing, fd)      what stands there is in the store, the note is written
    … the workspace acts, and sees that it was what was kept that lost its place …
    kept.settle()                    or, if the act did not happen, kept.release()

A write whose old content cannot be kept does not happen: keeping comes first and raises.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from paddock.errors import HostError, StorageFullError
from paddock.history.holding import Held
from paddock.history.newest import mark_newest
from paddock.history.notes import CallMark, Doing, Notes
from paddock.history.objects import ObjectStore
from paddock.storage.disk import Disk, converting
from paddock.storage.locks import call_after_fork


class Kept(Protocol):
    """What was kept for an act that is about to happen. Ended by `settle` or `release`."""

    def require_untouched(self) -> None:
        """Asked last before the act.

        Raises:
            FileChangedError: somebody wrote to it since it was kept.
        """
        ...

    def settle(self) -> None:
        """The act took place.

        Raises:
            FileChangedError: somebody wrote to what lost its place; put it back.
        """
        ...

    def release(self) -> None:
        """The act did not take place, or was undone. A second time does nothing."""
        ...


class Keeper(Protocol):
    """Keeps what is about to be replaced.

    Raises, each method: StorageFullError, HostError; then the act must not happen.
    """

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        """A file's content, `doing.before` being its version."""
        ...

    def keep_link(self, doing: Doing, text: bytes) -> Kept:
        """A symbolic link's text, `doing.before` being its version."""
        ...

    def note(self, doing: Doing) -> Kept:
        """An act that replaces no content: creating, moving, deleting an empty directory."""
        ...


class NothingKept:
    """Of a workspace without a history."""

    def require_untouched(self) -> None:
        """Nothing to do."""

    def settle(self) -> None:
        """Nothing to do."""

    def release(self) -> None:
        """Nothing to do."""


NOTHING_KEPT: Final = NothingKept()


class NoKeeper:
    """A workspace without a history: what is replaced is gone."""

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        return NOTHING_KEPT

    def keep_link(self, doing: Doing, text: bytes) -> Kept:
        return NOTHING_KEPT

    def note(self, doing: Doing) -> Kept:
        return NOTHING_KEPT


class Exempt(Protocol):
    """Which paths are not kept: what only commands write, and can make again."""

    def is_exempt(self, path: str) -> bool:
        """By the path relative to the workspace."""
        ...


class NothingExempt:
    def is_exempt(self, path: str) -> bool:
        return False


@dataclass(slots=True)
class Running:
    """One call at work, and the notes of what it did so far."""

    mark: CallMark
    notes: list[int] = field(default_factory=list[int])
    kept: set[str] = field(default_factory=set[str])
    """The digests of what it replaced."""


_LEDGER_PIN: Final = "ledger-"
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("paddock_running_call", default=None)
"""Which call a thread works for. A handler gets ports, and those serve every call."""


class CallHistory(Protocol):
    def running(self, mark: CallMark) -> AbstractContextManager[Running]:
        """What happens inside, in this thread, is the work of that call."""
        ...

    def recorded(self, running: Running) -> None:
        """The ledger has what that call changed."""
        ...


class NoHistory:
    """Of a runtime whose workspace has no history."""

    @contextmanager
    def running(self, mark: CallMark) -> Generator[Running]:
        yield Running(mark)

    def recorded(self, running: Running) -> None:
        """See `CallHistory`."""


def current_call() -> Running | None:
    """The call that this thread works for; None outside of any."""
    return _RUNNING.get()


@dataclass(slots=True)
class _KeptChange:
    history: "History"
    running: Running | None
    note: int | None
    held: Held | None = None

    def require_untouched(self) -> None:
        if self.held is not None:
            self.held.require_untouched()

    def settle(self) -> None:
        if self.held is not None:
            self.held.settle()

    def release(self) -> None:
        if self.held is not None:
            self.held.release()
        if self.note is not None and self.running is not None:
            self.running.notes.remove(self.note)
            self.history.notes.over((self.note,))
            self.note = None


class History:
    """The history of one plane: the store, the notes, and the keeper of its workspaces.

    Opened when it is first needed: a call that only reads pays nothing for it.
    """

    __slots__ = (
        "__weakref__",
        "_bytes_max",
        "_directory",
        "_disk",
        "_kept_last",
        "_mutex",
        "_opened",
    )

    def __init__(self, directory: str, *, bytes_max: int, disk: Disk | None = None) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._disk = disk
        self._mutex = threading.Lock()
        self._opened: tuple[ObjectStore, Notes] | None = None
        self._kept_last: set[str] = set()
        """What the last call recorded here replaced, of those that replaced something."""
        call_after_fork(self, History._after_fork)

    def _after_fork(self) -> None:
        """Another thread of the parent may have been opening it."""
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Let it go; a second time does nothing."""
        with self._mutex:
            opened, self._opened = self._opened, None
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
        """The contents. Raises: ConfigError, StorageFullError, HostError."""
        return self._open()[0]

    @property
    def notes(self) -> Notes:
        """What calls noted; raises as `store` does."""
        return self._open()[1]

    def _open(self) -> tuple[ObjectStore, Notes]:
        with self._mutex:
            if self._opened is None:
                store = ObjectStore.open(
                    self._directory, bytes_max=self._bytes_max, disk=self._disk
                )
                try:
                    self._opened = store, Notes(store.shelf)
                except BaseException:
                    store.close()
                    raise
            return self._opened

    @contextmanager
    def running(self, mark: CallMark) -> Generator[Running]:
        """What happens inside, in this thread, is the work of that call."""
        running = Running(mark)
        token = _RUNNING.set(running)
        try:
            yield running
        finally:
            _RUNNING.reset(token)

    def note_all(self, running: Running, doings: Sequence[Doing]) -> None:
        """Note a set of changes that another keeps: all of them, with one sync.

        Raises: StorageFullError, HostError.
        """
        running.notes += self.notes.write(running.mark, *doings)
        running.kept |= {doing.before for doing in doings if doing.before is not None}

    def recorded(self, running: Running) -> None:
        """The ledger has the call's changes: its notes are over, and the store is tidied."""
        if not running.notes:
            return
        try:
            store, notes = self._open()
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
        """Have other processes spare it, too. On a full disk it is the tidying that helps."""
        store = self.store
        with (
            suppress(StorageFullError, HostError),
            store.held(),
            converting("say what the newest call replaced"),
        ):
            mark_newest(store.shelf, kept)

    def keep_for_ledger(self, content: bytes) -> str:
        """Keep what a ledger entry is about to name, however full the store is; its digest.

        Raises: StorageFullError, HostError.
        """
        store = self.store
        with store.held():
            digest = store.put_bytes(content)
            # Durable before an entry names it, and never pruned: the entry stays for ever.
            store.pin(f"{_LEDGER_PIN}{digest.partition(':')[2]}", (digest,))
        return digest

    def keeper(self, exempt: Exempt | None = None) -> "HistoryKeeper":
        """What a workspace is opened with."""
        return HistoryKeeper(self, exempt or NothingExempt())


@dataclass(frozen=True, slots=True)
class HistoryKeeper:
    history: History
    exempt: Exempt

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        if doing.before is None or self.exempt.is_exempt(doing.path):
            return self.note(replace(doing, is_kept=False))
        store = self.history.store
        with store.held():
            held = store.hold_file(fd, doing.before)
            if held is None:
                store.put_file(fd, digest=doing.before)
                store.sync()
            return self._noted(doing, held)

    def keep_link(self, doing: Doing, text: bytes) -> Kept:
        if self.exempt.is_exempt(doing.path):
            return self.note(replace(doing, is_kept=False))
        store = self.history.store
        with store.held():
            store.put_bytes(text)
            store.sync()
            return self._noted(doing, None)

    def note(self, doing: Doing) -> Kept:
        return self._noted(doing, None)

    def _noted(self, doing: Doing, held: Held | None) -> Kept:
        running = current_call()
        if running is None:  # no call's work: nothing would ever ask for a note
            return _KeptChange(self.history, None, None, held)
        try:
            number = self.history.notes.write(running.mark, doing)[0]
        except BaseException:
            if held is not None:
                held.release()
            raise
        running.notes.append(number)
        if doing.before is not None:
            running.kept.add(doing.before)
        return _KeptChange(self.history, running, number, held)
