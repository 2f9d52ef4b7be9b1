"""The head file: how far the ledger reaches, and how far the disk has it for certain.

Four records, each in a sector of its own and with a CRC-32, so that a torn one
is seen and its elder twin used:

    0, 512      the newest append (two slots, written in turn)
    1024, 1536  the newest commit: all before its offset is on the disk. Behind the record,
                which files the leader has found in their places, with a CRC-32
    2048        the turn: a word that is another one when those who sleep may go on
    2560        the base: where the file that is appended to begins in the whole ledger
    3072        whether somebody sleeps until the turn is another one

Everything here can be made again from the ledger file. Nothing here is signed:
it serves crashes, not auditors.

Written with pwrite(2), not through a mapping: a mapped page on a full disk, or
of a file that somebody cut, is a signal that kills the process.
"""

import os
import struct
from typing import Final, NamedTuple
from zlib import crc32

from paddock.errors import HostError, PaddockError
from paddock.ledger.disk import Disk, failure
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.values.quick import quick

_SECTOR: Final = 512
_DURABLE: Final = (2 * _SECTOR, 3 * _SECTOR)
TURN_OFFSET: Final = 4 * _SECTOR
_TURN_BYTES: Final = 4
_BASE_OFFSET: Final = 5 * _SECTOR
_BASE_BYTES: Final = 12
_SLEEPERS_OFFSET: Final = 6 * _SECTOR
_NOBODY: Final = b"\0"
_SOMEBODY: Final = b"\1"
_PAGE_BYTES: Final = _BASE_OFFSET + _BASE_BYTES
_COMMITS_BYTES: Final = _PAGE_BYTES - _DURABLE[0]
"""From the first commit mark on: what commits write."""
_TURN_AT: Final = TURN_OFFSET - _DURABLE[0]
_BASE_AT: Final = _BASE_OFFSET - _DURABLE[0]
_FILE_BYTES: Final = 4096

# generation, entries, offset, leaf, boot, cohort, sync time in ns, poisoned
_RECORD: Final = struct.Struct("<QQQ32s16sIQB")
_CRC: Final = struct.Struct("<I")
_BODY_BYTES: Final = _RECORD.size
_RECORD_BYTES: Final = _BODY_BYTES + _CRC.size
IDENTITY: Final = struct.Struct("<2Q")
"""Device and inode."""
FILES: Final = struct.Struct("<8Q")
"""The identities of the ledger's file, the append lock, the commit lock, and the head file."""
_NAMED_BYTES: Final = _RECORD_BYTES + FILES.size
_COMMIT_BYTES: Final = _NAMED_BYTES + _CRC.size
_WHOLE: Final = struct.Struct(f"{_RECORD.format}I")
_GENERATIONS: Final = struct.Struct(f"<Q{_SECTOR - 8}xQ")
"""Of both records of a pair, whether they are whole or torn."""
_BASE: Final = struct.Struct("<QI")
"""With its CRC. One slot: where it is torn, the names of the segments tell."""
_MOVING: Final = 2**64 - 1
_TURN: Final = struct.Struct("=I")
"""A word for futex(2), so in the machine's byte order. It means nothing on another machine."""


class Mark(NamedTuple):
    """A place between two lines, with what has to stand before it.

    `generation` counts appends and never goes down; `entries` and
    `offset_bytes` are those before the place; `leaf` is the hash of the last of
    them; `boot` says since when the machine runs. The other fields mean
    something in commit marks alone: how many appends came since the commit
    before, up to its end; how long the disk took; and whether it failed.

    A tuple, because every append makes one.
    """

    generation: int
    entries: int
    offset_bytes: int
    leaf: str
    boot: bytes
    cohort: int = 0
    sync_ns: int = 0
    is_poisoned: bool = False


def make_mark(generation: int, entries: int, offset_bytes: int, leaf: str, boot: bytes) -> Mark:
    """Return an append's mark. Half the price of the class's own constructor."""
    return quick(Mark, (generation, entries, offset_bytes, leaf, boot, 0, 0, False))


NOTHING_DURABLE: Final = Mark(0, 0, 0, PREV_OF_GENESIS, bytes(16))
"""The beginning of the file: what a commit mark says that never knew a commit."""


class HeadPage(NamedTuple):
    """What the head file says; None where both slots are torn or were never written."""

    newest: Mark | None
    durable: Mark | None
    durable_slot: int
    """Where the older, or no, commit mark stands: the next one goes there."""
    turn: int = 0
    """What `HeadFile.pass_turn` wrote last."""
    base: int | None = None
    """Where the newest segment begins; None while that changes, or where it is not known."""

    def believable(self, boot: bytes) -> list[Mark]:
        """Return the marks that the ledger has to agree with, the farthest last.

        A commit's mark always: all before it was on the disk. An append's while
        the machine runs on (a boot of zeros is not known): the page cache is what
        was written, of which a restart may lose what no commit covers.
        """
        newest, durable = self.newest, self.durable
        found = [durable] if durable is not None and durable.entries else []
        if newest is not None and newest.boot == boot and any(boot):
            # The elder twin of a torn record may lie before the commit.
            is_last = not found or newest.offset_bytes >= found[0].offset_bytes
            found.insert(len(found) if is_last else 0, newest)
        return found


class Commits(NamedTuple):
    record: bytes
    durable: Mark | None
    durable_slot: int
    turn: int
    base: int | None
    files: bytes
    """What the leader has found in its place after the sync, as `FILES`; empty: not known."""


_NO_RECORD: Final = bytes(_FILE_BYTES)
"""No page begins or ends with so many bytes."""
_NO_COMMITS: Final = Commits(_NO_RECORD, None, 0, 0, None, b"")


def make_page(newest: Mark | None, commits: Commits) -> HeadPage:
    """Return what the head file says; as cheap as `make_mark`."""
    _, durable, durable_slot, turn, base, _ = commits
    return quick(HeadPage, (newest, durable, durable_slot, turn, base))


_Seen = tuple[bytes, bytes, Commits, HeadPage]
"""The records of the two append slots, the commits, and what they say together."""
_UNSEEN: Final[_Seen] = (_NO_RECORD, _NO_RECORD, _NO_COMMITS, HeadPage(None, None, 0))


class HeadFile:
    """The head file of one ledger. Reading needs no lock: a torn record is no record."""

    __slots__ = ("_disk", "_read", "_seen", "_write", "descriptor", "path")

    def __init__(self, disk: Disk, path: str, *, create: bool) -> None:
        """Open the file; `create` makes it, at its full size, where there is none."""
        # Threat: a pipe in its place would have every reader wait for a writer.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        self.path = path
        self._disk = disk
        self._read = disk.read
        self._write = disk.write
        self._seen = _UNSEEN
        try:
            self.descriptor = disk.open(path, flags, 0o600)
        except OSError as fault:
            raise failure(fault, "the ledger's head file cannot be opened", path) from fault
        try:
            size = disk.size(self.descriptor) if create else _FILE_BYTES
            if size < _FILE_BYTES:
                # The whole page now, so that no later write needs a new block. What
                # is left of a file that was cut stays: it may show that the ledger was.
                disk.write(self.descriptor, bytes(_FILE_BYTES - size), size)
                disk.sync(self.descriptor)
        except OSError as fault:
            disk.close(self.descriptor)
            raise failure(fault, "the ledger's head file cannot be made", path) from fault

    def read(self) -> HeadPage:
        """Return the newest marks. Unchanged bytes are not decoded again."""
        page = self._read_at(_PAGE_BYTES, 0)
        # One attribute, read and set once: bytes and marks that belong together,
        # whichever thread wins.
        first, second, commits, known = self._seen
        if not page.endswith(commits.record):
            commits = _decode_commits(page[_DURABLE[0] :], commits)
        elif page.startswith(first) and page.startswith(second, _SECTOR):
            return known
        newest, _ = _decode_pair(page, 0)
        known = make_page(newest, commits)
        if len(page) == _PAGE_BYTES:
            second = page[_SECTOR : _SECTOR + _RECORD_BYTES]
            self._seen = (page[:_RECORD_BYTES], second, commits, known)
        return known

    def read_commits(self, before: Commits) -> Commits:
        """Return what commits have written by now; `before` itself where that is the same."""
        record = self._read_at(_COMMITS_BYTES, _DURABLE[0])
        if record == before.record:
            return before
        first, second, commits, known = self._seen
        if record == commits.record:
            return commits
        commits = _decode_commits(record, commits)
        if len(record) == _COMMITS_BYTES:
            self._seen = (first, second, commits, make_page(known.newest, commits))
        return commits

    def last_commits(self) -> Commits:
        """Return what was found last, by `read` or by `read_commits`; it may be old."""
        return self._seen[2]

    def read_generation(self) -> int:
        """Return the newest append's generation, or that of a torn record: no more than a hint."""
        pair = self._read_at(_SECTOR + 8, 0)
        return max(_GENERATIONS.unpack(pair)) if len(pair) == _GENERATIONS.size else 0

    def pass_turn(self) -> None:
        """Write another turn, for whoever sleeps: to be woken after this.

        Random, as two leaders may write here at once: no count of theirs would
        surely differ from what a third has seen.
        """
        try:
            # In this order: who says meanwhile to be about to sleep still has the turn before.
            self._write(self.descriptor, _NOBODY, _SLEEPERS_OFFSET)
            self._write(self.descriptor, os.urandom(_TURN_BYTES), TURN_OFFSET)
        except OSError as fault:
            raise self._unwritten(fault) from fault

    def announce_sleeper(self) -> None:
        """Say that somebody is about to sleep. Only then read the commits a last time."""
        try:
            self._write(self.descriptor, _SOMEBODY, _SLEEPERS_OFFSET)
        except OSError as fault:
            raise self._unwritten(fault) from fault

    def has_sleepers(self) -> bool:
        """Whether somebody may sleep. To be asked when the commit is stored and the lock free."""
        return self._read_at(1, _SLEEPERS_OFFSET) != _NOBODY

    def store_newest(self, mark: Mark) -> None:
        """Write an append's mark into the slot that its predecessor does not use."""
        record = encode_mark(mark)
        slot = mark.generation % 2
        try:
            written = self._write(self.descriptor, record, _SECTOR * slot)
        except OSError as fault:
            raise self._unwritten(fault) from fault
        if written != _RECORD_BYTES:
            raise self._unwritten(None)
        # The next append of this process mostly finds the page as it leaves it here.
        first, second, commits, _ = self._seen
        known = make_page(mark, commits)
        self._seen = (first, record, commits, known) if slot else (record, second, commits, known)

    def store_durable(self, mark: Mark, slot: int, files: bytes = b"") -> None:
        """Write a commit's mark into the slot that `HeadPage.durable_slot` names.

        `files` says, as `FILES`, what was found in its place since the sync.
        """
        record = encode_mark(mark)
        if files:
            record += files + _CRC.pack(crc32(record[:_BODY_BYTES] + files))
        try:
            written = self._write(self.descriptor, record, _DURABLE[slot])
        except OSError as fault:
            raise self._unwritten(fault) from fault
        if written != len(record):
            raise self._unwritten(None)

    def store_base(self, base: int | None) -> None:
        """Write where the newest segment begins; None while that changes. Under the append lock.

        Whoever appends looks here, whether the file it has open is still the newest.
        """
        start = _MOVING if base is None else base
        record = _BASE.pack(start, crc32(start.to_bytes(8, "little")))
        try:
            written = self._write(self.descriptor, record, _BASE_OFFSET)
        except OSError as fault:
            raise self._unwritten(fault) from fault
        if written != _BASE_BYTES:
            raise self._unwritten(None)

    def _read_at(self, size_bytes: int, offset: int) -> bytes:
        try:
            return self._read(self.descriptor, size_bytes, offset)
        except OSError as fault:
            raise failure(fault, "the ledger's head file cannot be read", self.path) from fault

    def _unwritten(self, fault: OSError | None) -> PaddockError:
        if fault is not None:
            return failure(fault, "the ledger's head file cannot be written", self.path)
        return HostError("the ledger's head file was written in part", where=ascii(self.path))


def encode_mark(mark: Mark) -> bytes:
    generation, entries, offset, leaf, boot, cohort, sync_ns, poisoned = mark
    record = _RECORD.pack(
        generation, entries, offset, bytes.fromhex(leaf), boot, cohort, sync_ns, poisoned
    )
    return record + _CRC.pack(crc32(record))


def decode_mark(page: bytes, at: int = 0) -> Mark | None:
    """Return the mark at an offset, or None where its record is torn or was never written."""
    if len(page) < at + _RECORD_BYTES:
        return None
    generation, entries, offset, leaf, boot, cohort, sync_ns, poisoned, crc = _WHOLE.unpack_from(
        page, at
    )
    if crc32(page[at : at + _BODY_BYTES]) != crc:
        return None
    values = (generation, entries, offset, leaf.hex(), boot, cohort, sync_ns, bool(poisoned))
    return quick(Mark, values)


def _decode_commits(record: bytes, before: Commits) -> Commits:
    """What commits have written; what is as it was `before` is not decoded again."""
    durable, durable_slot = _decode_pair(record, 0)
    turn = _decode_turn(record[_TURN_AT : _TURN_AT + _TURN_BYTES])
    end = record[_BASE_AT:]
    base = before.base if before.record[_BASE_AT:] == end else _decode_base(end)
    files = _decode_files(record, 0 if durable_slot else _SECTOR)
    return quick(Commits, (record, durable, durable_slot, turn, base, files))


def _decode_files(record: bytes, at: int) -> bytes:
    """The files that stand behind a mark. Those of an earlier mark there do not count."""
    if len(record) < at + _COMMIT_BYTES:
        return b""
    files = record[at + _RECORD_BYTES : at + _NAMED_BYTES]
    (own,) = _CRC.unpack_from(record, at + _BODY_BYTES)
    (crc,) = _CRC.unpack_from(record, at + _NAMED_BYTES)
    # Over its own CRC-32, too, it would be the same for all records: what is followed by
    # that leaves no trace in a CRC-32.
    return files if crc32(files, own) == crc else b""


def _decode_pair(page: bytes, at: int) -> tuple[Mark | None, int]:
    """The mark that counts, and which slot it does not stand in."""
    if len(page) >= at + _SECTOR + _RECORD_BYTES:
        # Mostly both are whole: then the elder need not be decoded.
        first, second = _GENERATIONS.unpack_from(page, at)
        if first != second:
            newer = decode_mark(page, at if first > second else at + _SECTOR)
            if newer is not None:
                return newer, 1 if first > second else 0
    return _choose(decode_mark(page, at), decode_mark(page, at + _SECTOR))


def _choose(first: Mark | None, second: Mark | None) -> tuple[Mark | None, int]:
    if second is None or (first is not None and _rank(first) >= _rank(second)):
        return first, 0 if first is None else 1
    return second, 0


def _decode_base(record: bytes) -> int | None:
    if len(record) != _BASE_BYTES:
        return None
    start, crc = _BASE.unpack(record)
    return start if crc32(record[:8]) == crc and start != _MOVING else None


def _decode_turn(word: bytes) -> int:
    return _TURN.unpack(word)[0] if len(word) == _TURN_BYTES else 0


def _rank(mark: Mark) -> tuple[int, bool]:
    """A poisoned commit outranks the one it stands beside."""
    return (mark.generation, mark.is_poisoned)
