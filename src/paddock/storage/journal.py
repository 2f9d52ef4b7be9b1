"""The one journal: sets of steps that happen as a whole, whatever ends the process.

Staged shell commits, undo and package installs write what they are about to do here,
in the plane, before they do it. Each set has a file of its own, an entry; see
below for what stands in it.

    begin: entry with its intent → sync → sync of this directory
           the new contents are put under temporary names beside their places → sync
    commit record → sync                                  ← the set exists from here on
           the temporaries and their places change places, one by one → sync
    end record → sync
           what was displaced is removed → the entry is removed

Killed before the commit record is whole, the set never happened. Killed after it, whoever opens
the journal next completes it or undoes it (`workspace.recover`). Here is only what is on
record, and whose it is:
  * an entry belongs to whoever holds the flock(2) on its file; only one that nobody holds is
    handed out for recovery, and then the recoverer holds it;
  * before a claimed entry is acted on it is synced: acts that outlive the record that they
    rest on would be misread later;
  * an entry is removed last. If the removal is lost with the power, it is removed again.
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
from paddock.errors import (
    HostError,
    IntegrityError,
    InternalError,
    PaddockError,
    StorageFullError,
)
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import require_private
from paddock.storage.disk import (
    DIRECTORY,
    PRIVATE_DIRECTORY_MODE,
    Disk,
    converting,
    read_bytes,
)
from paddock.storage.locks import leads_to, open_locked, try_lock, unlock
from paddock.text.show import quote
from paddock.values.calls import Json

# An entry is a file of lines, one record each:
#
#     <SHA-256, 64 hex digits> <JSON, ASCII> LF
#
# The digest is over the digest of the line before (the entry's own name before the first)
# and the JSON, so no line of another entry, and none from before a torn one, is taken for
# one of this entry. Records, in this order:
#
#     intent   format, root, root_inode, token, directories (where temporary names may stand),
#              label; perhaps a second root, by the name under which it stands in the first
#     commit   steps: what stands where before and after. From here on the set is complete
#              or is undone as a whole; before, it never happened
#     undo     somebody was in the way: the set is being undone
#     end      nothing is left to decide; temporary names may be removed
#
# The commit is followed by NULs, over which the last two are written, so that a full disk
# cannot keep an entry from being ended. What follows the last whole line is a record whose
# write did not end, so nothing was done because of it.
#
# Pure: bytes in, values out. Marks hold no device number, because a device may have
# another one after a restart of the machine; a mark is compared within one directory.

FORMAT: Final = "paddock-journal/1"
FORMAT_BESIDE: Final = "paddock-journal/2"
"""Of an entry with a second root: who knows nothing of those must not settle it."""
RESERVE: Final = b"\0" * 512
"""Room for two short records, written together with the commit."""
_DIGEST_CHARS: Final = 64


class MarkKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


class EntryMark(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One entry, so that it can be told from any other: equal as long as nobody changed it."""

    kind: MarkKind
    inode: int
    size_bytes: int
    """0 for a directory, and so is the time: our own acts move both."""
    modified_ns: int
    held: str = ""
    """Of a directory: the digest of all that it holds."""


class SwapStep(Struct, frozen=True, array_like=True, tag="swap", forbid_unknown_fields=True):
    """What stands at a path and what stands under a temporary name beside it change places.

    Either of them may be nothing: then it is a creation, or a removal.
    """

    directory: str
    """Relative to the root, `.` for the root."""
    name: str
    number: int
    """Of the temporary name, which is made of the entry's token and this."""
    old: EntryMark | None
    new: EntryMark | None


class Metadata(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Permission bits, all twelve, and perhaps a modification time."""

    mode: int
    modified_ns: int | None


class MetadataStep(
    Struct, frozen=True, array_like=True, tag="metadata", forbid_unknown_fields=True
):
    directory: str
    name: str
    inode: int
    old: Metadata
    new: Metadata


Step = SwapStep | MetadataStep


class SecondRoot(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A directory elsewhere that stands for a name at the root."""

    name: str
    root: str
    root_inode: int


class Intent(Struct, frozen=True, tag_field="record", tag="intent"):
    """Where the steps will be: all that is needed to find what a dead owner left."""

    root: str
    root_inode: int
    token: str
    directories: tuple[str, ...]
    label: str = ""
    beside: SecondRoot | None = None


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
        """With one more; None where it comes out of order."""
        if isinstance(record, Intent):
            return Records(record) if self.intent is None else None
        if isinstance(record, CommitRecord):
            is_next = self.intent is not None and self.steps is None
            return Records(self.intent, record.steps) if is_next else None
        if self.steps is None or (isinstance(record, UndoRecord) and self.is_ended):
            return None
        if isinstance(record, UndoRecord):
            return replace(self, is_undone=True)
        return replace(self, is_ended=True)


def payload_of(record: Record) -> dict[str, Json]:
    fields = to_builtins(record)
    if isinstance(record, Intent):
        fields["format"] = _format_of(record)
        if record.beside is None:
            del fields["beside"]
    return fields


def _format_of(intent: Intent) -> str:
    return FORMAT if intent.beside is None else FORMAT_BESIDE


def encode_line(previous: str, payload: Json) -> tuple[bytes, str]:
    # ASCII: a name that is not UTF-8 holds lone surrogates, which JSON escapes.
    text = json.dumps(payload, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    digest = _digest(previous, text)
    return b"%s %s\n" % (digest.encode("ascii"), text), digest


def _digest(previous: str, text: bytes) -> str:
    return hashlib.sha256(previous.encode("ascii") + b"\n" + text).hexdigest()


class Decoded(Struct, frozen=True):
    records: Records
    last_digest: str
    end_bytes: int


def decode(name: str, content: bytes) -> Decoded:
    """The whole lines of an entry called `name`; what was torn is left out.

    Raises: IntegrityError: a whole line that no crash makes, or another format.
    """
    records, previous, offset = Records(), name, 0
    while True:
        end = content.find(b"\n", offset)
        line = content[offset:end] if end >= 0 else b""
        text = line[_DIGEST_CHARS + 1 :]
        if line[: _DIGEST_CHARS + 1] != f"{_digest(previous, text)} ".encode("ascii"):
            return Decoded(records, previous, offset)
        records = _with_record(name, records, text)
        previous = line[:_DIGEST_CHARS].decode("ascii")
        offset = end + 1


def _with_record(name: str, records: Records, text: bytes) -> Records:
    try:
        fields = json.loads(text)
        record = convert(fields, Record)
    except (ValueError, RecursionError, ValidationError) as failure:
        raise _unreadable(name) from failure
    found = records.followed_by(record)
    if found is None or (isinstance(record, Intent) and fields.get("format") != _format_of(record)):
        raise _unreadable(name)
    return found


def _unreadable(name: str) -> IntegrityError:
    return IntegrityError(
        f"journal entry {name} has a whole line that is no record of {FORMAT}",
        hint="was it written by a newer paddock?",
    )


_SUFFIX: Final = ".entry"
_NAME: Final = lazy_pattern(r"[0-9a-f]{32}\.entry")
TOKEN_CHARS: Final = 24
_CLAIM: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAMES_TRIED_MAX: Final = 16
_VOID: Final = b"\0" * 64


class JournalEntry:
    """One entry, ours until it is removed or let go."""

    __slots__ = ("_dir_fd", "_disk", "_fd", "_last_digest", "_offset", "name", "records")

    def __init__(self, disk: Disk, dir_fd: int, name: str, fd: int) -> None:
        self._disk = disk
        self._dir_fd = dir_fd
        self._fd = fd
        self.name = name
        self.records = Records()
        self._last_digest = name
        self._offset = 0

    def load(self) -> None:
        with converting("read the journal"):
            size_bytes = os.fstat(self._fd).st_size
            if size_bytes > limits.journal_entry_bytes_max:
                raise IntegrityError(
                    f"journal entry {self.name} has {size_bytes} bytes, "
                    f"over {limits.journal_entry_bytes_max}"
                )
            decoded = decode(self.name, read_bytes(self._fd, size_bytes))
            self._disk.sync(self._fd)
        self.records = decoded.records
        self._last_digest = decoded.last_digest
        self._offset = decoded.end_bytes

    def begin(self, intent: Intent) -> None:
        """Say where we will act. Nothing may be done in the tree before this returns."""
        self._append(intent)
        with converting("write the journal"):
            self._disk.sync(self._dir_fd)

    def commit(self, steps: tuple[Step, ...]) -> None:
        """The commit point: when this returns, the set is complete or undone as a whole."""
        try:
            self._append(CommitRecord(steps), RESERVE)
        except PaddockError:
            # The record may be there, whole, though its sync failed: nobody must find it.
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, _VOID, self._offset)
            raise

    def undo(self) -> None:
        """Whoever comes after us undoes the set, and does not complete it."""
        self._append(UndoRecord())

    def end(self) -> None:
        self._append(EndRecord())

    def forget(self) -> None:
        """Remove the entry: nothing that it speaks of is left in the tree."""
        with converting("remove a journal entry"):
            self._disk.unlink(self._dir_fd, self.name)
        self.release()

    def abandon(self) -> None:
        """Remove an entry that was not committed, durably: it must not come back."""
        with converting("remove a journal entry"):
            self._disk.unlink(self._dir_fd, self.name)
            self._disk.sync(self._dir_fd)
        self.release()

    def release(self) -> None:
        """Let it go as it stands; the next to open the journal takes it up. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            unlock(fd)

    def _append(self, record: Record, reserve: bytes = b"") -> None:
        records = self.records.followed_by(record)
        if records is None:
            raise InternalError(f"a journal entry goes on with {record!r}")
        line, digest = encode_line(self._last_digest, payload_of(record))
        if self._offset + len(line) + len(reserve) > limits.journal_entry_bytes_max:
            raise StorageFullError(
                "the set is too large for one journal entry", hint="change less at once"
            )
        # write → sync, each record. After a failed write or sync the place of the next
        # record stays: what stands there then is a torn record, and is written over.
        with converting("write the journal"):
            os.lseek(self._fd, self._offset, os.SEEK_SET)
            self._disk.write(self._fd, line + reserve)
            self._disk.sync(self._fd)
        self._offset += len(line)
        self._last_digest = digest
        self.records = records


class UnclaimedEntry(Struct, frozen=True):
    """An entry that may be a dead owner's, and that this process cannot open."""

    name: str
    why: str


class Journal:
    """All entries, in one directory of the plane. One object serves any number of threads."""

    __slots__ = ("_dir_fd", "_disk")

    def __init__(self, disk: Disk, dir_fd: int) -> None:
        self._disk = disk
        self._dir_fd = dir_fd

    @classmethod
    def open(cls, directory: str, disk: Disk) -> Self:
        """Open the journal in `directory`, which is made where it is missing; its parent is not."""
        with converting(f"open the journal {quote(directory)}"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, PRIVATE_DIRECTORY_MODE)
            # Threat: whoever can write here can have names moved in any tree that the
            # plane's user may change.
            require_private(Path(directory))
            return cls(disk, os.open(directory, DIRECTORY))

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
            for _ in range(_NAMES_TRIED_MAX):
                name = os.urandom(16).hex() + _SUFFIX
                fd = self._disk.create(self._dir_fd, name)
                # Between the two calls somebody may have taken it for a dead one.
                if try_lock(fd) and leads_to(self._dir_fd, name, fd):
                    return JournalEntry(self._disk, self._dir_fd, name, fd)
                os.close(fd)
        raise HostError("no journal entry can be made: each is taken away at once")

    def claim_dead(self) -> Generator[JournalEntry | UnclaimedEntry]:
        """Entries whose owner is dead, oldest name first, not read yet; each is ours until let go.

        An entry that the caller neither forgets nor releases is released when the next one is
        asked for. What cannot be opened is told, and stops nobody.
        """
        with converting("list the journal"):
            names = sorted(name for name in os.listdir(self._dir_fd) if _NAME.fullmatch(name))
        for name in names:
            entry = self._claim(name)
            if isinstance(entry, JournalEntry):
                try:
                    yield entry
                finally:
                    entry.release()
            elif entry is not None:
                yield entry

    def _claim(self, name: str) -> JournalEntry | UnclaimedEntry | None:
        # Threat: one entry that we may not open (root's, in a plane of another user), or what
        # is none (a link, a device) would keep every later set from being made.
        try:
            fd = open_locked(self._dir_fd, name, _CLAIM)
        except OSError as failure:
            return UnclaimedEntry(name, _why_unclaimed(self._dir_fd, name, failure))
        return None if fd is None else JournalEntry(self._disk, self._dir_fd, name, fd)


def _why_unclaimed(dir_fd: int, name: str, failure: OSError) -> str:
    said = os.strerror(failure.errno or 0)
    try:
        owner = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_uid
    except OSError:
        return f"the journal entry {name} cannot be opened: {said}"
    return (
        f"the journal entry {name} belongs to user {owner} and cannot be opened: {said}; "
        "it is settled when that user opens the plane"
    )
