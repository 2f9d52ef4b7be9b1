"""What a call is about to do to one path, on the device before it does it.

A note says which call, which path, and what stood there: with the store, enough to find
and undo a change whose call was killed before the ledger had its result. Once the ledger
has it the note means nothing any more: the ledger is the index.

Each process writes one file in `notes/`, a line a note, and holds its flock(2). One write and one
sync make a note. A file whose lock is free belongs to a process that was killed.
"""

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Collection, Sequence
from typing import Final, Literal, Self, TypeAlias, cast

from msgspec import Struct, ValidationError, convert, field, to_builtins

from paddock.storage.disk import DIRECTORY, READ, Disk, converting, read_bytes
from paddock.storage.locks import call_after_fork, open_locked
from paddock.storage.shelf import Shelf, names_in, open_directory
from paddock.values.calls import Json

_NOTES: Final = "notes"
_SUFFIX: Final = ".notes"
_FILE_BYTES_MAX: Final = 16_000_000
"""Of one process. So much of its end is read: what is at work stands there."""
_CUT_AT_BYTES: Final = 65_536
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

    __slots__ = ("__weakref__", "_dir_fd", "_disk", "_file", "_mutex")

    def __init__(self, shelf: Shelf) -> None:
        self._disk = shelf.disk
        self._mutex = threading.Lock()
        self._file: _OwnFile | None = None
        with converting("open the history"):
            self._dir_fd = open_directory(shelf.disk, shelf.fd, _NOTES)
        call_after_fork(self, Notes._after_fork)

    def _after_fork(self) -> None:
        self._mutex = threading.Lock()
        own, self._file = self._file, None
        if own is not None:
            os.close(own.fd)

    def close(self) -> None:
        with self._mutex:
            if self._file is not None:
                self._file.end()
            self._file = None
            os.close(self._dir_fd)

    def write(self, call: CallMark, *doings: Doing) -> list[int]:
        """Note what is about to be done, durably; the notes' numbers, for `over`."""
        with self._mutex, converting("note a call in the history"):
            own = self._file
            if own is None:
                own = self._file = _OwnFile.begin(self._disk, self._dir_fd)
            return own.write(call, doings)

    def over(self, numbers: Sequence[int]) -> None:
        """These notes mean nothing any more: undone, or on record in the ledger."""
        with self._mutex, contextlib.suppress(OSError):
            # Not waited for. What stands there after a crash is held against the ledger.
            if self._file is not None and numbers:
                self._file.over(numbers)

    def read_all(self) -> tuple[Note, ...]:
        """Every note that is not over, oldest first. What is no note is passed over."""
        with converting("read the history"):
            return _read_all(self._dir_fd)

    @staticmethod
    def look(shelf: Shelf) -> tuple[Note, ...]:
        """As `read_all`, of a store that is only looked at. Raises: HostError."""
        with converting("read the history"):
            try:
                dir_fd = os.open(_NOTES, DIRECTORY, dir_fd=shelf.fd)
            except FileNotFoundError:
                return ()
            try:
                return _read_all(dir_fd)
            finally:
                os.close(dir_fd)

    def needed(self) -> frozenset[str]:
        """The digests that notes of calls at work name: not to be pruned."""
        now_s = time.time()
        return frozenset(
            note.doing.before
            for note in self.read_all()
            if note.doing.before is not None and note.written_s > now_s - _RUNNING_S_MAX
        )

    def tidy(self, ended: Collection[Note]) -> None:
        """Remove the files of processes that are gone, and hold no note but these."""
        with converting("read the history"):
            names = [name for name in names_in(self._dir_fd) if name.endswith(_SUFFIX)]
        for name in names:
            with contextlib.suppress(OSError):
                self._remove_if_ended(name, ended)

    def _remove_if_ended(self, name: str, ended: Collection[Note]) -> None:
        fd = open_locked(self._dir_fd, name, READ)
        if fd is None:
            return
        try:
            # Read under the lock: its process may have noted more before it went.
            if all(note in ended for note in _read(self._dir_fd, name)):
                self._disk.unlink(self._dir_fd, name)
        finally:
            os.close(fd)


class _OwnFile(Struct):
    disk: Disk
    dir_fd: int
    name: str
    fd: int
    last_number: int = 0
    needed: set[int] = field(default_factory=set[int])
    size_bytes: int = 0

    @classmethod
    def begin(cls, disk: Disk, dir_fd: int) -> Self:
        name = os.urandom(16).hex() + _SUFFIX
        fd = disk.create(dir_fd, name)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            disk.sync(dir_fd)
        except BaseException:
            os.close(fd)
            disk.unlink(dir_fd, name)
            raise
        return cls(disk, dir_fd, name, fd)

    def write(self, call: CallMark, doings: Sequence[Doing]) -> list[int]:
        first = self.last_number + 1
        lines = [
            _Line(number, time.time(), call, doing) for number, doing in enumerate(doings, first)
        ]
        # ASCII only, so that names that are not UTF-8 come back as they were.
        text = "".join(f"{_encode(to_builtins(line))}\n" for line in lines).encode("ascii")
        try:
            self.disk.write(self.fd, text)
            self.disk.sync(self.fd)
        except BaseException:
            # A torn line would swallow the next one. Cutting a file needs no space.
            self._cut(self.size_bytes)
            raise
        self.last_number += len(doings)
        self.size_bytes += len(text)
        numbers = list(range(first, first + len(doings)))
        self.needed.update(numbers)
        return numbers

    def over(self, numbers: Sequence[int]) -> None:
        self.needed.difference_update(numbers)
        if not self.needed and self.size_bytes > _CUT_AT_BYTES:
            self._cut(0)
            return
        line = f'{{"over":[{",".join(map(str, numbers))}]}}\n'.encode("ascii")
        try:
            self.disk.write(self.fd, line)
        except OSError:
            self._cut(self.size_bytes)
            raise
        self.size_bytes += len(line)

    def _cut(self, size_bytes: int) -> None:
        os.ftruncate(self.fd, size_bytes)
        os.lseek(self.fd, size_bytes, os.SEEK_SET)
        self.size_bytes = size_bytes

    def end(self) -> None:
        if not self.needed:
            with contextlib.suppress(OSError):
                self.disk.unlink(self.dir_fd, self.name)
        os.close(self.fd)


class _Line(Struct, frozen=True):
    note: int
    at: float
    call: CallMark
    doing: Doing


_DOING_MEMBERS_MIN: Final = 10
"""The last one is missing in notes of a version that did not write it."""
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _read_all(dir_fd: int) -> tuple[Note, ...]:
    names = [name for name in names_in(dir_fd) if name.endswith(_SUFFIX)]
    found = [note for name in names for note in _read(dir_fd, name)]
    return tuple(sorted(found, key=lambda note: note.written_s))


def _read(dir_fd: int, name: str) -> list[Note]:
    try:
        fd = os.open(name, READ, dir_fd=dir_fd)
    except FileNotFoundError:
        return []  # its process has just ended
    try:
        text = _end_of(fd)
    finally:
        os.close(fd)
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
    if size_bytes <= _FILE_BYTES_MAX:
        return read_bytes(fd, size_bytes)
    # One byte more: it tells whether the first line is whole.
    text = read_bytes(fd, _FILE_BYTES_MAX + 1, size_bytes - _FILE_BYTES_MAX - 1)
    return text[text.find(b"\n") + 1 :]
