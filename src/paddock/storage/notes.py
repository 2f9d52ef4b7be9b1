"""What a call is about to do to one path, on the device before it does it.

A note says which call, which path, and what stood there: with the store, enough to find
and undo a change whose call was killed before the ledger had its result. Once the ledger
has it the note means nothing any more: the ledger is the index.

Each process writes one file in `notes/`, a line a note, and holds its flock(2). One write and one
sync make a note. The lines are written over NULs that are on the device by then: so neither the
file's size nor its blocks change, and a sync waits for the line alone, not for the journal of the
file system. A file whose lock is free belongs to a process that was killed.
"""

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Collection, Sequence
from itertools import repeat
from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct, ValidationError, convert, field, to_builtins

from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY, READ, converting, read_bytes
from paddock.storage.locks import call_after_fork, open_locked
from paddock.storage.shelf import Shelf, names_in, open_directory
from paddock.values.calls import Json

_NOTES: Final = "notes"
_SUFFIX: Final = ".notes"
_FILE_BYTES_MAX: Final = 16_000_000
"""Of one process. So much of its end is read: what is at work stands there."""
_CUT_AT_BYTES: Final = 65_536
_ROOM_BYTES: Final = 4096
"""So many NULs are written with a line that has no room."""
_RUNNING_S_MAX: Final = 86_400
"""No call runs for a day; an older note holds nothing back from being pruned."""


class CallMark(Struct, frozen=True, array_like=True):
    """Which call is at work, as its ledger entries name it.

    Threat: a model chooses `call_id`, and may give one twice; what tells a call from
    every other is `intent`, which the ledger drew.
    """

    call_id: str
    tool: str
    agent: str
    session_id: str
    intent: str = ""
    """The id of the entry by which the call was recorded before it began; empty in notes
    of a version that did not write it."""


DoingKind: TypeAlias = Literal[
    "created", "overwritten", "edited", "moved", "deleted", "mode", "touched"
]
DoingEntry: TypeAlias = Literal["file", "link", "directory"]


class Doing(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is about to be done to one path. `before` and `after`: versions, None for absence."""

    path: str
    kind: DoingKind
    entry: DoingEntry = "file"
    before: str | None = None
    after: str | None = None
    to: str | None = None
    mode: int | None = None
    """Permission bits of what stood there, where it goes away."""
    made: tuple[str, ...] = ()
    """Directories that were made on the way."""
    entry_after: DoingEntry | Literal[""] = ""
    """What is to stand there, where that is something else."""
    is_kept: bool = True
    """Whether what stood there is in the store: all but what only commands write."""
    mode_after: int | None = None
    """Permission bits of what is to stand there, where they are known."""


class Note(Struct, frozen=True):
    file: str
    written_s: float
    call: CallMark
    doing: Doing


class Notes:
    """The notes beside one store: those of this process, and what others left."""

    __slots__ = ("__weakref__", "_dir_fd", "_disk", "_mutex", "_own")

    def __init__(self, shelf: Shelf) -> None:
        self._disk = shelf.disk
        self._mutex = threading.Lock()
        self._own: _OwnFile | None = None
        with converting("open the history"):
            self._dir_fd = open_directory(shelf.disk, shelf.fd, _NOTES)
        call_after_fork(self, Notes._after_fork)

    def _after_fork(self) -> None:
        self._mutex = threading.Lock()
        own, self._own = self._own, None
        if own is not None:
            os.close(own.fd)

    def close(self) -> None:
        with self._mutex:
            own, self._own = self._own, None
            if own is not None and not own.needed:
                with contextlib.suppress(OSError):
                    self._disk.unlink(self._dir_fd, own.name)
            if own is not None:
                os.close(own.fd)
            os.close(self._dir_fd)

    def write(self, call: CallMark, *doings: Doing) -> list[int]:
        """Note what is about to be done, durably; the notes' numbers, for `over`."""
        with self._mutex, converting("note a call in the history"):
            own = self._own or self._begin()
            numbers = list(range(own.last_number + 1, own.last_number + 1 + len(doings)))
            lines = map(_Line, numbers, repeat(time.time()), repeat(call), doings)
            self._append(own, "".join(f"{_encode(to_builtins(line))}\n" for line in lines))
            own.last_number += len(doings)
            own.needed.update(numbers)
            return numbers

    def over(self, numbers: Sequence[int]) -> None:
        """These notes mean nothing any more: undone, or on record in the ledger."""
        with self._mutex, contextlib.suppress(OSError):
            own = self._own
            if own is None or not numbers:
                return
            own.needed.difference_update(numbers)
            if own.needed or own.end_bytes <= _CUT_AT_BYTES:
                # Not waited for. What stands there after a crash is held against the ledger.
                line = f'{{"over":[{",".join(map(str, numbers))}]}}\n'
                self._append(own, line, is_waited_for=False)
            else:
                own.cut(0)

    def _begin(self) -> "_OwnFile":
        name = os.urandom(16).hex() + _SUFFIX
        fd = self._disk.create(self._dir_fd, name)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._disk.sync(self._dir_fd)
        except BaseException:
            os.close(fd)
            self._disk.unlink(self._dir_fd, name)
            raise
        self._own = _OwnFile(name, fd)
        return self._own

    def _append(self, own: "_OwnFile", text: str, *, is_waited_for: bool = True) -> None:
        # ASCII only, so that names that are not UTF-8 come back as they were.
        lines = text.encode("ascii")
        end_bytes = own.end_bytes + len(lines)
        room = bytes(_ROOM_BYTES) if end_bytes > own.size_bytes else b""
        try:
            os.lseek(own.fd, own.end_bytes, os.SEEK_SET)
            self._disk.write(own.fd, lines + room)
            if is_waited_for:
                self._disk.fdatasync(own.fd)
        except BaseException:
            # A torn line would swallow the next one. Cutting a file needs no space.
            own.cut(own.end_bytes)
            raise
        own.size_bytes = max(own.size_bytes, end_bytes + len(room))
        own.end_bytes = end_bytes

    def read_all(self) -> tuple[Note, ...]:
        """Every note that is not over, oldest first. What is no note is passed over."""
        with converting("read the history"):
            return _read_all(self._dir_fd)

    @staticmethod
    def look(shelf: Shelf) -> tuple[Note, ...]:
        """As `read_all`, of a store that is only looked at. Raises: HostError."""
        with converting("read the history"):
            try:
                with held_open(os.open(_NOTES, DIRECTORY, dir_fd=shelf.fd)) as dir_fd:
                    return _read_all(dir_fd)
            except FileNotFoundError:
                return ()

    def needed(self) -> frozenset[str]:
        """The digests that notes of calls at work name: not to be pruned."""
        since_s = time.time() - _RUNNING_S_MAX
        notes = [note for note in self.read_all() if note.written_s > since_s]
        return frozenset(note.doing.before for note in notes if note.doing.before is not None)

    def tidy(self, ended: Collection[Note]) -> None:
        """Remove the files of processes that are gone, and hold no note but these."""
        with converting("read the history"):
            for name in _files_in(self._dir_fd):
                with contextlib.suppress(OSError):
                    self._remove_if_ended(name, ended)

    def _remove_if_ended(self, name: str, ended: Collection[Note]) -> None:
        fd = open_locked(self._dir_fd, name, READ)
        if fd is not None:
            with held_open(fd):
                # Read under the lock: its process may have noted more before it went.
                if all(note in ended for note in _read(self._dir_fd, name)):
                    self._disk.unlink(self._dir_fd, name)


class _OwnFile(Struct):
    name: str
    fd: int
    last_number: int = 0
    needed: set[int] = field(default_factory=set[int])
    end_bytes: int = 0
    """Of the lines; NULs follow, up to the size."""
    size_bytes: int = 0

    def cut(self, size_bytes: int) -> None:
        os.ftruncate(self.fd, size_bytes)
        self.end_bytes = self.size_bytes = size_bytes


class _Line(Struct, frozen=True):
    note: int
    at: float
    call: CallMark
    doing: Doing


_DOING_MEMBERS_MIN: Final = 10
"""The last one is missing in notes of a version that did not write it."""
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _files_in(dir_fd: int) -> list[str]:
    return [name for name in names_in(dir_fd) if name.endswith(_SUFFIX)]


def _read_all(dir_fd: int) -> tuple[Note, ...]:
    found = [note for name in _files_in(dir_fd) for note in _read(dir_fd, name)]
    return tuple(sorted(found, key=lambda note: note.written_s))


def _read(dir_fd: int, name: str) -> list[Note]:
    try:
        with held_open(os.open(name, READ, dir_fd=dir_fd)) as fd:
            text = _end_of(fd)
    except FileNotFoundError:
        return []  # its process has just ended
    notes: dict[int, Note] = {}
    for text_line in text.splitlines():
        try:
            record = cast("dict[str, Json]", json.loads(text_line))
            for number in record.get("over", ()):
                notes.pop(number, None)
            if "note" in record:
                line = convert(record, _Line)
                if len(record["doing"]) >= _DOING_MEMBERS_MIN:
                    notes[line.note] = Note(name, line.at, line.call, line.doing)
        except (ValueError, TypeError, LookupError, AttributeError, ValidationError):
            continue  # torn by a kill, before the act that it is about
    return list(notes.values())


def _end_of(fd: int) -> bytes:
    """The newest lines: of too many, it is the calls at work that are to be found."""
    size_bytes = os.fstat(fd).st_size
    # One byte more: it tells whether the first line is whole.
    start = max(0, size_bytes - _FILE_BYTES_MAX - _ROOM_BYTES - 1)
    text = read_bytes(fd, size_bytes - start, start).rstrip(b"\0")
    if len(text) <= _FILE_BYTES_MAX:
        return text
    text = text[-_FILE_BYTES_MAX - 1 :]
    return text[text.find(b"\n") + 1 :]
