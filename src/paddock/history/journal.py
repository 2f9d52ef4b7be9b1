"""The one journal: sets of steps that happen as a whole, whatever ends the process.

Staged shell commits, undo and package installs write what they are about to do here,
in the plane, before they do it. Each set has a file of its own, an entry; see
`journal_format` for what stands in it.

    begin: entry with its intent → sync → sync of this directory
           the new contents are put under temporary names beside their places → sync
    commit record → sync                                  ← the set exists from here on
           the temporaries and their places change places, one by one → sync
    end record → sync
           what was displaced is removed → the entry is removed

Killed before the commit record is whole, the set never happened: temporaries are removed.
Killed after it, whoever opens the journal next completes it or undoes it; which of the
two, and the acts on the tree, are the recovery's business (`workspace.change_recovery`),
which knows directories and locks. Here is only what is on record, and whose it is.

Rules kept here:
  * an entry belongs to whoever holds the flock(2) on its file; only an entry that nobody
    holds is handed out for recovery, and then the recoverer holds it;
  * before a claimed entry is acted on it is synced: its last record may stand only in
    memory, and acts that outlive the record that they rest on would be misread later;
  * an entry is removed last. If the removal is lost with the power, the entry says that
    it has ended, and is removed again.

An owner's forked child shares the lock, so an entry of a killed owner waits for such a
child to end or to execute another program.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from paddock import limits
from paddock.errors import HostError, IntegrityError, PaddockError, StorageFullError
from paddock.history.journal_format import (
    RESERVE,
    Intent,
    RecordKind,
    Records,
    Step,
    commit_payload,
    decode,
    encode_line,
    intent_payload,
    mark_payload,
)
from paddock.storage.atomic import require_private
from paddock.storage.disk import DIRECTORY, PRIVATE_DIRECTORY_MODE, Disk, converting
from paddock.storage.locks import leads_to, try_lock, unlock
from paddock.text.show import quote

_SUFFIX: Final = ".entry"
_NAME: Final = re.compile(r"[0-9a-f]{32}\.entry")
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
        """Read what the owner before us wrote, and put it on the device.

        Raises:
            IntegrityError: it cannot be read; see `decode`.
            HostError: the disk fails.
        """
        with converting("read the journal"):
            size_bytes = os.fstat(self._fd).st_size
            if size_bytes > limits.journal_entry_bytes_max:
                raise IntegrityError(
                    f"journal entry {self.name} has {size_bytes} bytes, "
                    f"over {limits.journal_entry_bytes_max}"
                )
            decoded = decode(self.name, _read_all(self._fd, size_bytes))
            self._disk.sync(self._fd)
        self.records = decoded.records
        self._last_digest = decoded.last_digest
        self._offset = decoded.end_bytes

    def begin(self, intent: Intent) -> None:
        """Say where we will act. Nothing may be done in the tree before this returns."""
        line, digest = encode_line(self._last_digest, intent_payload(intent))
        self._append(line, len(line), digest)
        self._sync_directory()
        self.records = Records(intent)

    def commit(self, steps: tuple[Step, ...]) -> None:
        """The commit point: when this returns, the set is complete or undone as a whole.

        Raises:
            StorageFullError, HostError: it is not committed, and `abandon` is to follow.
        """
        line, digest = encode_line(self._last_digest, commit_payload(steps))
        if self._offset + len(line) + len(RESERVE) > limits.journal_entry_bytes_max:
            raise StorageFullError(
                f"the set of {len(steps)} steps is too large for one journal entry",
                hint="change less at once",
            )
        try:
            self._append(line + RESERVE, len(line), digest)
        except PaddockError:
            # The record may be there, whole, though its sync failed: nobody must find it.
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, _VOID, self._offset)
            raise
        self.records = Records(self.records.intent, steps)

    def undo(self) -> None:
        """Whoever comes after us undoes the set, and does not complete it."""
        self._mark(RecordKind.UNDO)
        self.records = Records(self.records.intent, self.records.steps, is_undone=True)

    def end(self) -> None:
        """Nothing is left to decide. Only now what was displaced may be removed."""
        self._mark(RecordKind.END)
        old = self.records
        self.records = Records(old.intent, old.steps, old.is_undone, is_ended=True)

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

    def _mark(self, kind: RecordKind) -> None:
        line, digest = encode_line(self._last_digest, mark_payload(kind))
        self._append(line, len(line), digest)

    def _append(self, content: bytes, line_bytes: int, digest: str) -> None:
        # write → sync, each record. After a failed write or sync the place of the next
        # record stays: what stands there then is a torn record, and is written over.
        with converting("write the journal"):
            os.lseek(self._fd, self._offset, os.SEEK_SET)
            self._disk.write(self._fd, content)
            self._disk.sync(self._fd)
        self._offset += line_bytes
        self._last_digest = digest

    def _sync_directory(self) -> None:
        with converting("write the journal"):
            self._disk.sync(self._dir_fd)


@dataclass(frozen=True, slots=True)
class UnclaimedEntry:
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
        """Open the journal in `directory`, which is made where it is missing; its parent is not.

        Raises:
            ConfigError: a link or no directory stands there, or others may write to it.
            HostError: it cannot be opened.
        """
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
        """Let the directory go; a second time does nothing."""
        if self._dir_fd >= 0:
            fd, self._dir_fd = self._dir_fd, -1
            os.close(fd)

    def new_entry(self) -> JournalEntry:
        """An empty entry, ours; its `begin` comes next.

        Raises:
            StorageFullError, HostError.
        """
        with converting("write the journal"):
            for _ in range(_NAMES_TRIED_MAX):
                name = secrets.token_hex(16) + _SUFFIX
                fd = self._disk.create(self._dir_fd, name)
                # Between the two calls somebody may have taken it for a dead one.
                if try_lock(fd) and leads_to(self._dir_fd, name, fd):
                    return JournalEntry(self._disk, self._dir_fd, name, fd)
                os.close(fd)
        raise HostError("no journal entry can be made: each is taken away at once")

    def claim_dead(self) -> Generator[JournalEntry | UnclaimedEntry]:
        """Entries whose owner is dead, oldest name first; each is ours until it is let go.

        Nothing of them was read yet; see `JournalEntry.load`. An entry that the caller
        neither forgets nor releases is released when the next one is asked for. What
        cannot be opened is told, and stops nobody.

        Raises:
            HostError: the journal cannot be listed.
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
            fd = os.open(name, _CLAIM, dir_fd=self._dir_fd)
        except FileNotFoundError:
            return None  # its owner lived, and was done
        except OSError as failure:
            return UnclaimedEntry(name, _why_unclaimed(self._dir_fd, name, failure))
        try:
            # Looked at again under the lock: it may have been forgotten before we had it.
            if try_lock(fd) and leads_to(self._dir_fd, name, fd):
                return JournalEntry(self._disk, self._dir_fd, name, fd)
        except OSError as failure:
            os.close(fd)
            return UnclaimedEntry(name, _why_unclaimed(self._dir_fd, name, failure))
        os.close(fd)
        return None


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


def _read_all(fd: int, size_bytes: int) -> bytes:
    pieces: list[bytes] = []
    offset = 0
    while piece := os.pread(fd, size_bytes - offset, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)
