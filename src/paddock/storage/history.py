"""The history of a plane: what a workspace is about to replace is handed over here first.

keeper.keep_file(doing, fd)      what stands there is in the store, the note is written
… the workspace acts, and sees that it was what was kept that lost its place …
kept.settle()                    or, if the act did not happen, kept.release()
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import HostError, IntegrityError, StorageFullError
from paddock.storage.atomic import make_directories
from paddock.storage.disk import Disk
from paddock.storage.locks import Late
from paddock.storage.prune import NEWEST
from paddock.values.entries import DIGEST_PREFIX

if TYPE_CHECKING:
    from paddock.storage.notes import CallMark, Doing, Notes
    from paddock.storage.objects import Kept, ObjectStore


class Running(Struct):
    mark: "CallMark"
    notes: list[int] = field(default_factory=list[int])
    kept: set[str] = field(default_factory=set[str])


SALT_BYTES: Final = 16
"""128 bits: nobody tries them all."""
_LEDGER_PIN: Final = "ledger-"
_RUNNING: Final[ContextVar[Running | None]] = ContextVar("paddock_running_call", default=None)
"""Which call a thread works for. A handler gets ports, and those serve every call."""


def current_call() -> Running | None:
    return _RUNNING.get()


class History:
    # Store and notes are loaded, and opened, when they are first needed: a call that only reads
    # pays nothing.

    def __init__(self, directory: str, *, bytes_max: int, disk: Disk | None = None) -> None:
        self._store = Late(partial(_store, directory, bytes_max, disk))
        self._notes = Late(self._make_notes)
        self._bytes_max = bytes_max
        self._kept_last: set[str] = set()

    @property
    def store(self) -> "ObjectStore":
        return self._store.get()

    @property
    def notes(self) -> "Notes":
        return self._notes.get()

    def _make_notes(self) -> "Notes":
        from paddock.storage.notes import Notes  # noqa: PLC0415 - for calls that write

        return Notes(self.store)

    def close(self) -> None:
        if self._store.made is None:
            return
        try:
            # A process that makes one call would never see that the store is full. One that
            # kept nothing tidies nothing: whoever only looks must find it again as it was.
            if self._kept_last and self.store.usage_bytes() > self._bytes_max:
                self.store.prune(self.notes.needed() | self._kept_last)
        finally:
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
        """Of a set whose contents are kept, with one sync."""
        numbers = self.notes.write(running.mark, *doings)
        running.notes += numbers
        running.kept |= {doing.before for doing in doings if doing.before is not None}
        return numbers

    def recorded(self, running: Running) -> None:
        if not running.notes:
            return
        # Where it fails the call is over and on record. The next one tidies, or says what is wrong.
        with suppress(StorageFullError, HostError):
            kept = {digest for digest in running.kept if self.store.has(digest)}
            self._kept_last = kept or self._kept_last
            # Where the store is not too large now, it becomes so by a newer call.
            is_over = bool(kept) and self.store.is_over()
            if is_over:
                # Before its notes are over: until then they keep it from being pruned.
                with suppress(StorageFullError, HostError):
                    self.store.pin(NEWEST, kept)
            self.notes.over(running.notes)
            if is_over:
                # What this call replaced stays, or a content larger than the bound would go
                # before anybody could ask for it.
                self.store.prune(self.notes.needed() | kept)

    def keep_for_ledger(self, content: bytes) -> str:
        """However full the store is; its digest."""
        store = self.store
        with store.held():
            digest = store.put_bytes(content)
            # Durable before an entry names it, and never pruned: the entry stays for ever.
            store.pin(f"{_LEDGER_PIN}{digest.partition(':')[2]}", (digest,))
        return digest

    def keeper(self, is_exempt: Callable[[str], bool] | None = None) -> "Keeper":
        return Keeper(self, is_exempt)


def _store(directory: str, bytes_max: int | None, disk: Disk | None = None) -> "ObjectStore":
    from paddock.storage.objects import ObjectStore  # noqa: PLC0415 - as above

    return ObjectStore(directory, bytes_max=bytes_max, disk=disk)


class Keeper(Struct, frozen=True):
    """Where it raises (StorageFullError, HostError), the act must not happen."""

    history: History | None = None
    is_exempt: Callable[[str], bool] | None = None
    """Of what only commands write, and can make again, nothing is kept."""

    def keep_file(self, doing: "Doing", fd: int) -> "Kept":
        digest = doing.before
        return self._keep(doing, None if digest is None else lambda store: store.keep(fd, digest))

    def keep_link(self, doing: "Doing", text: bytes) -> "Kept":
        return self._keep(doing, lambda store: store.keep_bytes(text))

    def note(self, doing: "Doing") -> "Kept":
        from paddock.storage.objects import Kept  # noqa: PLC0415 - as above

        return self._noted(doing, Kept())

    def _keep(self, doing: "Doing", keep: "Callable[[ObjectStore], Kept] | None") -> "Kept":
        is_exempt = self.is_exempt is not None and self.is_exempt(doing.path)
        if self.history is None or keep is None or is_exempt:
            return self.note(replace(doing, is_kept=False))
        with self.history.store.held():
            return self._noted(doing, keep(self.history.store))

    def _noted(self, doing: "Doing", kept: "Kept") -> "Kept":
        history, running = self.history, current_call()
        if history is None or running is None:  # no call's work: nobody would ask for a note
            return kept
        try:
            kept.over = partial(history.notes.over, history.note_all(running, (doing,)))
        except BaseException:
            kept.release()
            raise
        return kept


# Contents that the ledger names by a salted digest, and that can be erased without it. What is
# kept is `salt ‖ content`, under the SHA-256 of just that: so the digest in an entry is the
# object's name, and the salt stands nowhere else. With the object it is gone, and nobody can try
# contents against the digest any more. Nothing here is pruned.


class BlobStore:
    def __init__(self, directory: Path, randomness: Callable[[int], bytes]) -> None:
        self._directory = directory
        self._randomness = randomness
        self._late = Late(partial(_store, str(directory), None))

    @property
    def _store(self) -> "ObjectStore":
        return self._late.get()

    def put(self, content: bytes) -> str:
        """With the next `sync`; its salted digest."""
        if not self._directory.is_dir():
            make_directories(self._directory.parent)
        digest = self._store.put_bytes(self._randomness(SALT_BYTES) + content)
        return digest.removeprefix(DIGEST_PREFIX)

    def sync(self) -> None:
        self._store.sync()

    def read(self, digest: str) -> bytes | None:
        kept = self._store.find(DIGEST_PREFIX + digest)
        if kept is not None and len(kept) < SALT_BYTES:
            raise IntegrityError(f"the content {digest} has no salt")
        return None if kept is None else kept[SALT_BYTES:]

    def has(self, digest: str) -> bool:
        return self._store.has(DIGEST_PREFIX + digest)

    def erase(self, digest: str) -> bool:
        with suppress(FileNotFoundError):  # whoever only asks makes nothing
            self._store.look()
            return self._store.forget(DIGEST_PREFIX + digest)
        return False

    def close(self) -> None:
        if self._late.made is not None:
            self._store.close()
