"""What a call is about to do to one path, on the device before it does it.

Each process writes one file in `notes/`, a line a note. A note is one write and one sync, over NULs
that are on the device by then: so neither the file's size nor its blocks change, and the sync waits
for the line alone, not for the journal of the file system.
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
_FILE_BYTES_MAX: Final = 16_000_000  # of a file's end: what is at work stands there
_CUT_AT_BYTES: Final = 65_536
_ROOM_BYTES: Final = 4096
_DAY_S: Final = 86_400


class CallMark(Struct, frozen=True, array_like=True):
    # Threat: a model chooses `call_id`, and may give one twice; what tells a call from
    # every other is `intent`, which the ledger drew.
    call_id: str
    tool: str
    agent: str
    session_id: str
    intent: str = ""  # in notes of a version that did not write it


DoingKind: TypeAlias = Literal[
    "created", "overwritten", "edited", "moved", "deleted", "mode", "touched"
]
DoingEntry: TypeAlias = Literal["file", "link", "directory"]


class Doing(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    path: str
    kind: DoingKind
    entry: DoingEntry = "file"
    before: str | None = None
    after: str | None = None  # versions; None: nothing stands there
    to: str | None = None
    mode: int | None = None  # of what goes away
    made: tuple[str, ...] = ()  # directories on the way
    entry_after: DoingEntry | Literal[""] = ""  # where that is something else
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
        # Undone, or on record in the ledger.
        with self._mutex, suppress(OSError):
            own = self._own
            if own is None or not numbers:
                return
            self._needed.difference_update(numbers)
            if self._needed or own.end_bytes <= _CUT_AT_BYTES:
                # Not waited for. What stands there after a crash is held against the ledger.
                self._append(own, f'{{"over":[{",".join(map(str, numbers))}]}}\n', None)
            else:
                own.cut(0)

    @staticmethod
    def _append(own: ClaimedFile, text: str, sync: Callable[[int], None] | None) -> None:
        try:
            # ASCII only, so that names that are not UTF-8 come back as they were.
            own.append(text.encode("ascii"), _ROOM_BYTES, sync)
        except BaseException:
            own.cut(own.end_bytes)  # a torn line would swallow the next one
            raise

    def needed(self) -> frozenset[str]:
        since_s = time.time() - _DAY_S  # no call runs so long
        doings = [note.doing for note in read_notes(self._store) if note.written_s > since_s]
        return frozenset(doing.before for doing in doings if doing.before is not None)

    def tidy(self, ended: Collection[Note]) -> None:
        """Remove the files of processes that are gone, and hold no note but these."""
        with converting("read the history"):
            disk = self._store.disk
            for dir_fd, name, _ in disk.files_in(self._store.fd, _NOTES, _SUFFIX):
                with suppress(OSError):
                    if (fd := open_locked(dir_fd, name, READ)) is not None:
                        with held_open(fd):
                            # Under the lock: its process may have noted more before it went.
                            if all(note in ended for note in _read(fd)):
                                disk.unlink(dir_fd, name)


def read_notes(store: StoreReader) -> tuple[Note, ...]:
    """Every note that is not over, oldest first. What is no note is passed over."""
    found: list[Note] = []
    with converting("read the history"), suppress(FileNotFoundError):
        for _, _, fd in store.disk.files_in(store.look(), _NOTES, _SUFFIX):
            found += _read(fd)
    return tuple(sorted(found, key=lambda note: note.written_s))


def _read(fd: int) -> Collection[Note]:
    size_bytes = os.fstat(fd).st_size
    start = max(0, size_bytes - _FILE_BYTES_MAX - _ROOM_BYTES)
    # The end of a line, where the first one was cut, is no note.
    text = read_bytes(fd, size_bytes - start, start).rstrip(b"\0")[-_FILE_BYTES_MAX:]
    notes: dict[int, Note] = {}
    for line in text.splitlines():
        # Torn by a kill, before the act that it is about.
        with suppress(ValueError, TypeError, LookupError, AttributeError, ValidationError):
            record = json.loads(line)
            for number in record.get("over", ()):
                notes.pop(number, None)
            # The last member is missing in notes of a version that did not write it.
            if "note" in record and len(record["doing"]) >= len(Doing.__struct_fields__) - 1:
                notes[convert(record["note"], int)] = convert(record, Note)
    return notes.values()
