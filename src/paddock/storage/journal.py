"""The plane's journal: sets of steps that are applied completely or not at all, even after a crash.

    begin: entry → sync of this directory → its intent → sync
           the new contents are written to temporary names beside their targets → sync
    commit record → sync                                  ← the set exists from here on
           the temporaries and their targets are exchanged, one by one → sync
    undo record → sync    another process interfered: every exchange is undone
    end record → sync
           the displaced entries are removed → the journal entry is removed

After a crash before the commit record is complete, the set never happened. After a later crash, the
next process that opens the journal completes or undoes it (`workspace.apply.recover`).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from paddock import limits
from paddock.errors import IntegrityError, InternalError, PaddockError, StorageFullError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import DIRECTORY_MODE, require_private
from paddock.storage.disk import DIRECTORY, Disk, converting, read_bytes
from paddock.storage.locks import ClaimedFile, open_locked
from paddock.text.show import quote
from paddock.values.calls import Json

# An entry is a file of lines, `<SHA-256, 64 hex digits> <JSON, ASCII> LF`. The digest covers the
# digest of the line before (at first, the entry's name) and the JSON, so lines of another entry or
# after a torn line are not accepted. NULs follow the commit, and the last two records overwrite
# them, so that an entry can be ended on a full disk.
#
# A claimed entry is synced before it is acted on: changes that outlive the record of their reason
# would be misread later. An entry is removed last; if a power cut undoes that, it is repeated.

FORMAT: Final = "paddock-journal/1"
FORMAT_BESIDE: Final = "paddock-journal/2"  # versions without a second root must not settle it
RESERVE: Final = b"\0" * 512
_NAME: Final = lazy_pattern(r"[0-9a-f]{32}\.entry")
_CLAIM: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class MarkKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


class _Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class EntryMark(_Row, frozen=True):
    # No device number, which a reboot may change: marks are compared within one directory. Size and
    # time of a directory are 0, because the set itself changes them; `held` digests its contents.
    kind: MarkKind
    inode: int
    size_bytes: int
    modified_ns: int
    held: str = ""


class SwapStep(_Row, frozen=True, tag="swap"):
    # Exchanges `name` with the temporary beside it, named by the entry's token and `number`.
    directory: str
    name: str
    number: int
    old: EntryMark | None
    new: EntryMark | None


class Metadata(_Row, frozen=True):
    mode: int
    modified_ns: int | None


class MetadataStep(_Row, frozen=True, tag="metadata"):
    directory: str
    name: str
    inode: int
    old: Metadata
    new: Metadata


Step = SwapStep | MetadataStep


class SecondRoot(_Row, frozen=True):
    name: str
    root: str
    root_inode: int


class Intent(Struct, frozen=True, tag_field="record", tag="intent", omit_defaults=True):
    root: str
    root_inode: int
    token: str
    directories: tuple[str, ...]
    label: str = ""
    beside: SecondRoot | None = None

    @property
    def format(self) -> str:
        return FORMAT if self.beside is None else FORMAT_BESIDE


class CommitRecord(Struct, frozen=True, tag_field="record", tag="commit"):
    steps: tuple[Step, ...]


class UndoRecord(Struct, frozen=True, tag_field="record", tag="undo"):
    pass


class EndRecord(Struct, frozen=True, tag_field="record", tag="end"):
    pass


Record = Intent | CommitRecord | UndoRecord | EndRecord


class Records(Struct, frozen=True):
    intent: Intent | None = None
    steps: tuple[Step, ...] | None = None
    is_undone: bool = False
    is_ended: bool = False

    def followed_by(self, record: Record) -> "Records | None":
        match record:
            case Intent() if self.intent is None:
                return replace(self, intent=record)
            case CommitRecord() if self.intent is not None and self.steps is None:
                return replace(self, steps=record.steps)
            case UndoRecord() if self.steps is not None and not self.is_ended:
                return replace(self, is_undone=True)
            case EndRecord() if self.steps is not None:
                return replace(self, is_ended=True)
            case _:
                return None


def payload_of(record: Record) -> dict[str, Json]:
    return to_builtins(record) | ({"format": record.format} if isinstance(record, Intent) else {})


def encode_line(previous: str, payload: Json) -> tuple[bytes, str]:
    # ASCII: a name that is not UTF-8 contains lone surrogates, which JSON escapes.
    text = json.dumps(payload, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    digest = _digest(previous, text)
    return b"%s %s\n" % (digest.encode("ascii"), text), digest


def _digest(previous: str, text: bytes) -> str:
    return hashlib.sha256(previous.encode("ascii") + b"\n" + text).hexdigest()


def decode(name: str, content: bytes) -> tuple[Records, str, int]:
    """Return records, last digest and end, without a torn tail. Raises: IntegrityError."""
    records, previous, end_bytes = Records(), name, 0
    for line in content.split(b"\n")[:-1]:
        digest, _, text = line.partition(b" ")
        if digest.decode("ascii", "replace") != _digest(previous, text):
            break
        records, previous = _with_record(name, records, text), digest.decode("ascii")
        end_bytes += len(line) + 1
    return records, previous, end_bytes


def _with_record(name: str, records: Records, text: bytes) -> Records:
    with contextlib.suppress(ValueError, RecursionError, ValidationError):
        fields = json.loads(text)
        record = convert(fields, Record)
        found = records.followed_by(record)
        is_known = not isinstance(record, Intent) or fields.get("format") == record.format
        if found is not None and is_known:
            return found
    said = f"journal entry {name} has a whole line that is not a record of {FORMAT}"
    raise IntegrityError(said, hint="was it written by a newer paddock?")


class JournalEntry(ClaimedFile):
    def __init__(self, disk: Disk, dir_fd: int, name: str, fd: int) -> None:
        super().__init__(disk, dir_fd, name, fd)
        self.records = Records()
        self._last_digest = name

    def load(self) -> None:
        with converting("read the journal"):
            size_bytes = os.fstat(self.fd).st_size
            if size_bytes > (most := limits.journal_entry_bytes_max):
                raise IntegrityError(f"journal entry {self.name}: {size_bytes} bytes, over {most}")
            decoded = decode(self.name, read_bytes(self.fd, size_bytes))
            self.disk.sync(self.fd)
        self.records, self._last_digest, self.end_bytes = decoded
        self.size_bytes = size_bytes

    def commit(self, steps: tuple[Step, ...]) -> None:
        try:
            self.record(CommitRecord(steps), len(RESERVE))
        except PaddockError:
            # The record may be complete although its sync failed: make it unreadable.
            with contextlib.suppress(OSError):
                os.pwrite(self.fd, bytes(64), self.end_bytes)
            raise

    def forget(self) -> None:
        with converting("remove a journal entry"):
            self.remove()

    def abandon(self) -> None:
        with converting("remove a journal entry"):
            self.remove()
            self.disk.sync(self._dir_fd)  # not committed: it must not reappear after a crash

    def record(self, record: Record, room: int = 0) -> None:
        if (records := self.records.followed_by(record)) is None:
            raise InternalError(f"unexpected record in a journal entry: {record!r}")
        line, digest = encode_line(self._last_digest, payload_of(record))
        if self.end_bytes + len(line) + room > limits.journal_entry_bytes_max:
            said = "the set is too large for one journal entry"
            raise StorageFullError(said, hint="change less at once")
        with converting("write the journal"):
            self.append(line, room, self.disk.sync)
        self._last_digest, self.records = digest, records


class UnclaimedEntry(Struct, frozen=True):
    name: str
    why: str


class Journal:
    def __init__(self, directory: str, disk: Disk) -> None:
        self._disk = disk
        with converting(f"open the journal {quote(directory)}"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, DIRECTORY_MODE)
            # Threat: anyone who can write here can have names moved in any tree that the plane's
            # user can change.
            require_private(Path(directory))
            self._dir_fd = os.open(directory, DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._dir_fd >= 0:
            fd, self._dir_fd = self._dir_fd, -1
            os.close(fd)

    def new_entry(self) -> JournalEntry:
        with converting("write the journal"):
            return JournalEntry.make(self._disk, self._dir_fd, ".entry")

    def claim_dead(self) -> Generator[JournalEntry | UnclaimedEntry]:
        """Yield entries of dead owners, not loaded yet; each is released before the next."""
        with converting("list the journal"):
            names = sorted(name for name in os.listdir(self._dir_fd) if _NAME.fullmatch(name))
        for name in names:
            # Threat: an entry that this user cannot open (root's, in a user's plane) or that is not
            # a regular file (a symlink, a device) would block every later set.
            try:
                fd = open_locked(self._dir_fd, name, _CLAIM)
            except OSError as failure:
                yield UnclaimedEntry(name, self._why_unclaimed(name, failure))
                continue
            if fd is not None:
                entry = JournalEntry(self._disk, self._dir_fd, name, fd)
                try:
                    yield entry
                finally:
                    entry.release()

    def _why_unclaimed(self, name: str, failure: OSError) -> str:
        owner = "?"
        with contextlib.suppress(OSError):
            owner = f"{os.stat(name, dir_fd=self._dir_fd, follow_symlinks=False).st_uid}"
        said = f"the journal entry {name} belongs to user {owner} and cannot be opened"
        why = os.strerror(failure.errno or 0)
        return f"{said}: {why}; it is settled when that user opens the plane"
