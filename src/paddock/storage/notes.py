"""Record durably what a call is about to do to a path, before it does it.

Each process writes one file in `notes/`, one line per note. A note is one write and one sync, over
NULs that are already durable: neither the file's size nor its blocks change, so the sync waits only
for the line, not for the file system's journal.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from msgspec import Struct, ValidationError, convert, to_builtins

from paddock.storage.atomic import held_open
from paddock.storage.disk import READ, converting, read_bytes
from paddock.storage.locks import ClaimedFile, call_after_fork, open_locked
from paddock.storage.objects import ObjectStore, StoreReader

_NOTES: Final = "notes"
_SUFFIX: Final = ".notes"
_FILE_BYTES_MAX: Final = 16_000_000  # read from a file's end, where the running calls' notes are
_CUT_AT_BYTES: Final = 65_536
_ROOM_BYTES: Final = 4096
_DAY_S: Final = 86_400


class CallMark(Struct, frozen=True, array_like=True):
    # Threat: a model chooses `call_id`, and may repeat one; `intent`, a random id from the
    # ledger, is unique.
    call_id: str
    tool: str
    agent: str
    session_id: str
    intent: str = ""  # empty in notes from older versions


DoingKind: TypeAlias = Literal[
    "created", "overwritten", "edited", "moved", "deleted", "mode", "touched"
]
DoingEntry: TypeAlias = Literal["file", "link", "directory"]


class Doing(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    path: str
    kind: DoingKind
    entry: DoingEntry = "file"
    before: str | None = None
    after: str | None = None  # versions; None: no entry at the path
    to: str | None = None
    mode: int | None = None  # of the entry that is replaced or removed
    made: tuple[str, ...] = ()  # parent directories that it creates
    entry_after: DoingEntry | Literal[""] = ""  # if different from `entry`
    is_kept: bool = True
    mode_after: int | None = None


class Note(Struct, frozen=True, rename={"written_s": "at"}):
    written_s: float
    call: CallMark
    doing: Doing


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Notes:
    def __init__(self, store: ObjectStore) -> None:
        self._store, self._mutex = store, threading.Lock()
        self._own: ClaimedFile | None = None
        self._needed: set[int] = set()
        self._last, self._dir_fd = 0, -1
        call_after_fork(self, Notes._after_fork)

    def _after_fork(self) -> None:
        self._mutex = threading.Lock()
        own, self._own, self._needed = self._own, None, set()
        if own is not None:
            os.close(own.fd)

    def close(self) -> None:
        with self._mutex:
            own, self._own = self._own, None
            if own is not None and not self._needed:
                with suppress(OSError):
                    own.remove()
            if own is not None:
                own.release()
            self._needed = set()
            if self._dir_fd >= 0:
                fd, self._dir_fd = self._dir_fd, -1
                os.close(fd)

    def write(self, call: CallMark, *doings: Doing) -> list[int]:
        with self._mutex, converting("note a call in the history"):
            store = self._store
            if self._dir_fd < 0:
                self._dir_fd = store.disk.open_directory(store.fd, _NOTES)
            own = self._own = self._own or ClaimedFile.make(store.disk, self._dir_fd, _SUFFIX)
            at = time.time()
            noted = dict(enumerate((Note(at, call, doing) for doing in doings), self._last + 1))
            lines = ({"note": number, **to_builtins(note)} for number, note in noted.items())
            text = "".join(f"{_encode(line)}\n" for line in lines)
            self._append(own, text, store.disk.fdatasync)
            self._last += len(noted)
            self._needed.update(noted)
            return list(noted)

    def over(self, numbers: Sequence[int]) -> None:
        # These calls were undone, or are recorded in the ledger.
        with self._mutex, suppress(OSError):
            own = self._own
            if own is None or not numbers:
                return
            self._needed.difference_update(numbers)
            if self._needed or own.end_bytes <= _CUT_AT_BYTES:
                # Not synced: after a crash, notes that remain are compared with the ledger.
                self._append(own, f'{{"over":[{",".join(map(str, numbers))}]}}\n', None)
            else:
                own.cut(0)

    @staticmethod
    def _append(own: ClaimedFile, text: str, sync: Callable[[int], None] | None) -> None:
        try:
            # ASCII only, so that names that are not UTF-8 survive unchanged.
            own.append(text.encode("ascii"), _ROOM_BYTES, sync)
        except BaseException:
            own.cut(own.end_bytes)  # a torn line would swallow the next one
            raise

    def needed(self) -> frozenset[str]:
        since_s = time.time() - _DAY_S  # no call runs so long
        doings = [note.doing for note in read_notes(self._store) if note.written_s > since_s]
        return frozenset(doing.before for doing in doings if doing.before is not None)

    def tidy(self, ended: Collection[Note]) -> None:
        """Remove the files of dead processes if all their notes are in `ended`."""
        with converting("read the history"):
            disk = self._store.disk
            for dir_fd, name, _ in disk.files_in(self._store.fd, _NOTES, _SUFFIX):
                with suppress(OSError):
                    if (fd := open_locked(dir_fd, name, READ)) is not None:
                        with held_open(fd):
                            # Read under the lock: its process may have added notes before it died.
                            if all(note in ended for note in _read(fd)):
                                disk.unlink(dir_fd, name)


def read_notes(store: StoreReader) -> tuple[Note, ...]:
    """Return every note that is not over, oldest first; skip invalid lines."""
    found: list[Note] = []
    with converting("read the history"), suppress(FileNotFoundError):
        for _, _, fd in store.disk.files_in(store.look(), _NOTES, _SUFFIX):
            found += _read(fd)
    return tuple(sorted(found, key=lambda note: note.written_s))


def _read(fd: int) -> Collection[Note]:
    size_bytes = os.fstat(fd).st_size
    start = max(0, size_bytes - _FILE_BYTES_MAX - _ROOM_BYTES)
    # The first line may be cut; its rest is not a valid note.
    text = read_bytes(fd, size_bytes - start, start).rstrip(b"\0")[-_FILE_BYTES_MAX:]
    notes: dict[int, Note] = {}
    for line in text.splitlines():
        # A torn line is from a writer killed before it acted: skip it.
        with suppress(ValueError, TypeError, LookupError, AttributeError, ValidationError):
            record = json.loads(line)
            for number in record.get("over", ()):
                notes.pop(number, None)
            # Notes from older versions lack the last member.
            if "note" in record and len(record["doing"]) >= len(Doing.__struct_fields__) - 1:
                notes[convert(record["note"], int)] = convert(record, Note)
    return notes.values()
