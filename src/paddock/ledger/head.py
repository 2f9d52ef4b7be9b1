"""The head file: how far the ledger reaches, and how far the disk has it for certain.

Four records, each in a sector of its own and with a CRC-32, so that a torn one
is seen and its elder twin used:

    0, 512      the newest append (two slots, written in turn)
    1024, 1536  the newest commit: all before its offset is on the disk

Everything here can be made again from the ledger file. Nothing here is signed:
it serves crashes, not auditors.

Written with pwrite(2), not through a mapping: a mapped page on a full disk, or
of a file that somebody cut, is a signal that kills the process.
"""

import os
import struct
from typing import Final, NamedTuple
from zlib import crc32

from paddock.errors import HostError
from paddock.ledger.disk import Disk, failure
from paddock.ledger.format import PREV_OF_GENESIS

_SECTOR: Final = 512
_NEWEST: Final = (0, _SECTOR)
_DURABLE: Final = (2 * _SECTOR, 3 * _SECTOR)
_PAGE_BYTES: Final = 4 * _SECTOR
_FILE_BYTES: Final = 4096

# generation, entries, offset, leaf, boot, cohort, sync time in ns, poisoned
_RECORD: Final = struct.Struct("<QQQ32s16sIQB")
_CRC: Final = struct.Struct("<I")


class Mark(NamedTuple):
    """A place between two lines, with what has to stand before it.

    `generation` counts appends and never goes down; `entries` and
    `offset_bytes` are those before the place; `leaf` is the hash of the last of
    them; `boot` says since when the machine runs. The other fields mean
    something in commit marks alone: how many appends the commit covered, how
    long the disk took, and whether it failed.

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


NOTHING_DURABLE: Final = Mark(0, 0, 0, PREV_OF_GENESIS, bytes(16))
"""The beginning of the file: what a commit mark says that never knew a commit."""


class HeadPage(NamedTuple):
    """What the head file says; None where both slots are torn or were never written."""

    newest: Mark | None
    durable: Mark | None
    durable_slot: int
    """Where the older, or no, commit mark stands: the next one goes there."""

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


_Seen = tuple[bytes, Mark | None, int]
"""Two slots, the mark that counts, and which slot it does not stand in."""
_UNSEEN: Final[_Seen] = (b"", None, 0)


class HeadFile:
    """The head file of one ledger. Reading needs no lock: a torn record is no record."""

    __slots__ = ("_disk", "_durable", "_newest", "descriptor", "path")

    def __init__(self, disk: Disk, path: str, *, create: bool) -> None:
        """Open the file; `create` makes it, at its full size, where there is none."""
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        self.path = path
        self._disk = disk
        self._newest: _Seen = _UNSEEN
        self._durable: _Seen = _UNSEEN
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
        try:
            page = self._disk.read(self.descriptor, _PAGE_BYTES, 0)
        except OSError as fault:
            raise failure(fault, "the ledger's head file cannot be read", self.path) from fault
        # Attributes are read and set once: bytes and marks that belong together,
        # whichever thread wins.
        newest, durable = self._newest, self._durable
        if not page.startswith(newest[0]) or not newest[0]:
            self._newest = newest = _decode_pair(page[: _DURABLE[0]])
        if not page.endswith(durable[0]) or not durable[0]:
            self._durable = durable = _decode_pair(page[_DURABLE[0] :])
        return HeadPage(newest[1], durable[1], durable[2])

    def store_newest(self, mark: Mark) -> None:
        """Write an append's mark into the slot that its predecessor does not use."""
        offset = _NEWEST[mark.generation % 2]
        record = encode_mark(mark)
        self._store(offset, record)
        # The next append of this process mostly finds the page as it leaves it here.
        seen = self._newest[0]
        if seen:
            seen = seen[:offset] + record + seen[offset + len(record) :]
            self._newest = (seen, mark, 0)

    def store_durable(self, mark: Mark, slot: int) -> None:
        """Write a commit's mark into the slot that `HeadPage.durable_slot` names."""
        self._store(_DURABLE[slot], encode_mark(mark))

    def _store(self, offset: int, record: bytes) -> None:
        try:
            written = self._disk.write(self.descriptor, record, offset)
        except OSError as fault:
            raise failure(fault, "the ledger's head file cannot be written", self.path) from fault
        if written != len(record):
            raise HostError("the ledger's head file was written in part", where=ascii(self.path))


def encode_mark(mark: Mark) -> bytes:
    """Return the record with its CRC."""
    record = _RECORD.pack(
        mark.generation,
        mark.entries,
        mark.offset_bytes,
        bytes.fromhex(mark.leaf),
        mark.boot,
        mark.cohort,
        mark.sync_ns,
        mark.is_poisoned,
    )
    return record + _CRC.pack(crc32(record))


def decode_mark(record: bytes) -> Mark | None:
    """Return the mark, or None where the record is torn or was never written."""
    size = _RECORD.size
    if len(record) < size + _CRC.size:
        return None
    body = record[:size]
    if crc32(body) != _CRC.unpack_from(record, size)[0]:
        return None
    generation, entries, offset, leaf, boot, cohort, sync_ns, poisoned = _RECORD.unpack(body)
    return Mark(generation, entries, offset, leaf.hex(), boot, cohort, sync_ns, bool(poisoned))


def _decode_pair(pair: bytes) -> _Seen:
    first, second = decode_mark(pair[:_SECTOR]), decode_mark(pair[_SECTOR:])
    if second is None or (first is not None and _rank(first) >= _rank(second)):
        return pair, first, 0 if first is None else 1
    return pair, second, 0


def _rank(mark: Mark) -> tuple[int, bool]:
    """A poisoned commit outranks the one it stands beside."""
    return (mark.generation, mark.is_poisoned)
