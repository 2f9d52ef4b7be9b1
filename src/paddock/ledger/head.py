"""What keeps the writers of one ledger apart: their locks, and the head file that they share.

The head file says how far the ledger reaches, and how far the disk has it for certain.
Five records, each in a sector of its own and with a CRC-32, so that a torn one is seen and
its elder twin used:

    0, 512      the newest append (two slots, written in turn under the append lock)
    1024, 1536  what is durable: all before its offset is on the disk (two slots, written in
                turn under the commit lock), and whether a sync has failed
    2560        the base: where the file that is appended to begins in the whole ledger

Everything here can be made again from the ledger file. Nothing here is signed: it serves
crashes, not auditors.

Written with pwrite(2), not through a mapping: a mapped page on a full disk, or of a file
that somebody cut, is a signal that kills the process.

flock(2) excludes open file descriptions, not threads, so a thread lock stands before it.
It is released by the kernel when its holder dies; a holder that is stopped keeps it, which
is why waiting has an end and names the holder.
"""

import errno
import fcntl
import os
import struct
import threading
from typing import Final, NamedTuple
from zlib import crc32

from paddock.errors import HostError, LedgerBusyError, PaddockError
from paddock.ledger.disk import LedgerDisk, Waiting, failure
from paddock.ledger.format.encoding import PREV_OF_GENESIS

_SECTOR: Final = 512
_DURABLE: Final = 2 * _SECTOR
_BASE_OFFSET: Final = 5 * _SECTOR
_BASE_BYTES: Final = 12
_PAGE_BYTES: Final = _BASE_OFFSET + _BASE_BYTES
_FILE_BYTES: Final = 4096

# generation, entries, offset, leaf, boot, twelve bytes that mean nothing any more, poisoned
_RECORD: Final = struct.Struct("<QQQ32s16s12xB")
_CRC: Final = struct.Struct("<I")
_BODY_BYTES: Final = _RECORD.size
_RECORD_BYTES: Final = _BODY_BYTES + _CRC.size
_GENERATIONS: Final = struct.Struct(f"<Q{_SECTOR - 8}xQ")
"""Of both records of a pair, whether they are whole or torn."""
_BASE: Final = struct.Struct("<QI")
_MOVING: Final = 2**64 - 1

_TRIES_AT_ONCE: Final = 20
"""Longer than a lock is held: a holder that runs on another processor is done by then."""
_YIELD_MAX_S: Final = 2e-3
"""Less than a time slice: programs that only compute get it each time, where they run besides."""
_SLEEP_MIN_S: Final = 20e-6
_SLEEP_MAX_S: Final = 2e-3
_TAKE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_UNWRITABLE: Final = (
    "what cannot be recorded is not done: check permissions and that the file system is writable"
)


class Mark(NamedTuple):
    """A place between two lines, with what has to stand before it.

    `generation` counts appends and never goes down; `entries` and `offset_bytes` are those
    before the place; `leaf` is the hash of the last of them; `boot` says since when the
    machine runs. `is_poisoned` means something in a durable mark alone.
    """

    generation: int
    entries: int
    offset_bytes: int
    leaf: str
    boot: bytes
    is_poisoned: bool = False


NOTHING_DURABLE: Final = Mark(0, 0, 0, PREV_OF_GENESIS, bytes(16))
"""The beginning of the file: what a durable mark says that never knew a sync."""


class HeadPage(NamedTuple):
    """What the head file says; None where both slots are torn or were never written."""

    newest: Mark | None
    durable: Mark | None
    durable_slot: int
    """Where the older, or no, durable mark stands: the next one goes there."""
    base: int | None = None
    """Where the newest segment begins; None while that changes, or where it is not known."""

    def believable(self, boot: bytes) -> list[Mark]:
        """Return the marks that the ledger has to agree with, the farthest last.

        A durable one always: all before it was on the disk. An append's while the machine
        runs on (a boot of zeros is not known): the page cache is what was written, of which
        a restart may lose what no sync covers.
        """
        newest, durable = self.newest, self.durable
        found = [durable] if durable is not None and durable.entries else []
        if newest is not None and newest.boot == boot and any(boot):
            # The elder twin of a torn record may lie before the durable mark.
            is_last = not found or newest.offset_bytes >= found[0].offset_bytes
            found.insert(len(found) if is_last else 0, newest)
        return found


class HeadFile:
    """The head file of one ledger. Reading needs no lock: a torn record is no record."""

    __slots__ = ("_disk", "descriptor", "path")

    def __init__(self, disk: LedgerDisk, path: str, *, create: bool) -> None:
        # Threat: a pipe in its place would have every reader wait for a writer.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        self.path = path
        self._disk = disk
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
        try:
            page = self._disk.read(self.descriptor, _PAGE_BYTES, 0)
        except OSError as fault:
            raise failure(fault, "the ledger's head file cannot be read", self.path) from fault
        newest, _ = _decode_pair(page, 0)
        durable, slot = _decode_pair(page, _DURABLE)
        return HeadPage(newest, durable, slot, _decode_base(page[_BASE_OFFSET:]))

    def store_newest(self, mark: Mark) -> None:
        """Write an append's mark into the slot that its predecessor does not use."""
        self._write(encode_mark(mark), _SECTOR * (mark.generation % 2))

    def store_durable(self, mark: Mark, slot: int) -> None:
        """Write a durable mark into the slot that `HeadPage.durable_slot` names."""
        self._write(encode_mark(mark), _DURABLE + _SECTOR * slot)

    def store_base(self, base: int | None) -> None:
        """Write where the newest segment begins; None while that changes. Under the append lock.

        Whoever appends looks here, whether the file it has open is still the newest.
        """
        start = _MOVING if base is None else base
        self._write(_BASE.pack(start, crc32(start.to_bytes(8, "little"))), _BASE_OFFSET)

    def _write(self, record: bytes, offset: int) -> None:
        try:
            written = self._disk.write(self.descriptor, record, offset)
        except OSError as fault:
            raise self._unwritten(fault) from fault
        if written != len(record):
            raise self._unwritten(None)

    def _unwritten(self, fault: OSError | None) -> PaddockError:
        if fault is not None:
            return failure(fault, "the ledger's head file cannot be written", self.path)
        return HostError("the ledger's head file was written in part", where=ascii(self.path))


def encode_mark(mark: Mark) -> bytes:
    generation, entries, offset, leaf, boot, poisoned = mark
    record = _RECORD.pack(generation, entries, offset, bytes.fromhex(leaf), boot, poisoned)
    return record + _CRC.pack(crc32(record))


def decode_mark(page: bytes, at: int = 0) -> Mark | None:
    """Return the mark at an offset, or None where its record is torn or was never written."""
    if len(page) < at + _RECORD_BYTES:
        return None
    (crc,) = _CRC.unpack_from(page, at + _BODY_BYTES)
    if crc32(page[at : at + _BODY_BYTES]) != crc:
        return None
    generation, entries, offset, leaf, boot, poisoned = _RECORD.unpack_from(page, at)
    return Mark(generation, entries, offset, leaf.hex(), boot, bool(poisoned))


def _decode_pair(page: bytes, at: int) -> tuple[Mark | None, int]:
    """The mark that counts, and which slot it does not stand in."""
    if len(page) >= at + _SECTOR + _RECORD_BYTES:
        # Mostly both are whole: then the elder need not be decoded.
        first, second = _GENERATIONS.unpack_from(page, at)
        slot = 0 if first > second else 1
        newer = decode_mark(page, at + slot * _SECTOR) if first != second else None
        if newer is not None:
            return newer, 1 - slot
    first, second = decode_mark(page, at), decode_mark(page, at + _SECTOR)
    if second is None or (first is not None and _rank(first) >= _rank(second)):
        return first, 0 if first is None else 1
    return second, 0


def _rank(mark: Mark) -> tuple[int, int, bool]:
    return (mark.generation, mark.offset_bytes, mark.is_poisoned)


def _decode_base(record: bytes) -> int | None:
    if len(record) != _BASE_BYTES:
        return None
    start, crc = _BASE.unpack(record)
    return start if crc32(record[:8]) == crc and start != _MOVING else None


class FileLock:
    """One lock file, opened by this object alone: its description is its identity."""

    __slots__ = ("_disk", "_threads", "_waiting", "descriptor", "path")

    def __init__(self, disk: LedgerDisk, path: str, waiting: Waiting) -> None:
        self.path = path
        self._disk = disk
        self._waiting = waiting
        self._threads = threading.Lock()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.descriptor = disk.open(path, flags, 0o600)
        except OSError as fault:
            what = "the ledger's lock file cannot be opened"
            raise failure(fault, what, path, _UNWRITABLE) from fault

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LedgerBusyError: not within `Waiting.lock_timeout_s`; the message has
                the holder's process id where the system tells it.
            HostError: the file system does not lock.
        """
        waiting = self._waiting
        if not self._threads.acquire(timeout=waiting.lock_timeout_s):
            raise _busy(os.getpid(), waiting.lock_timeout_s)
        try:
            self._wait_for_file(waiting)
        except BaseException:
            self._threads.release()
            raise

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            is_taken = self._try_file()
        except BaseException:
            self._threads.release()
            raise
        if not is_taken:
            self._threads.release()
        return is_taken

    def release(self) -> None:
        """Give the lock up. An explicit unlock: a forked child may still share the description."""
        try:
            self._disk.lock(self.descriptor, fcntl.LOCK_UN)
        except OSError as fault:
            raise failure(fault, "the ledger's lock cannot be released", self.path) from fault
        finally:
            self._threads.release()

    def _try_file(self) -> bool:
        try:
            self._disk.lock(self.descriptor, _TAKE)
        except OSError as fault:
            if fault.errno in _HELD:
                return False
            raise failure(fault, "the ledger cannot be locked", self.path) from fault
        return True

    def _wait_for_file(self, waiting: Waiting) -> None:
        before = waiting.monotonic()
        deadline = before + waiting.lock_timeout_s
        for _ in range(_TRIES_AT_ONCE):
            if self._try_file():
                return
            # The holder may wait for this processor, and is done sooner than a sleep.
            os.sched_yield()
            before, since = waiting.monotonic(), before
            if before - since > _YIELD_MAX_S:
                break
        pause = _SLEEP_MIN_S
        while waiting.monotonic() < deadline:
            waiting.sleep(pause)
            if self._try_file():
                return
            pause = min(pause * 1.5, _SLEEP_MAX_S)
        status = self._disk.stat(self.descriptor)
        holder = find_holder(_read_locks(), status.st_dev, status.st_ino)
        raise _busy(holder, waiting.lock_timeout_s)


def find_holder(locks: str, device: int, inode: int) -> int | None:
    """Return who holds the flock on a file, by the text of proc_locks(5).

    A waiting process has `->` in its line; a holder in another pid namespace
    is shown as 0.
    """
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4]) or None if fields[4].isdigit() else None
    return None


def _read_locks() -> str:
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _busy(holder: int | None, waited_s: float) -> LedgerBusyError:
    who = "an unknown process" if holder is None else f"process {holder}"
    return LedgerBusyError(
        f"the ledger is locked by {who}; waited {waited_s:g} s",
        hint="is it stopped? the lock is free as soon as it goes on or ends",
    )
