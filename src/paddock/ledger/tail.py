"""The end of a ledger: the marks that say where it is, and how lines are put behind it.

The head file says how far the ledger reaches, and how far the disk has it for certain.
Five records, each in a sector of its own and with a CRC-32, so that a torn one is seen and
its elder twin used:

    0, 512      the newest append (two slots, written in turn under the append lock)
    1024, 1536  what is durable: all before its offset is on the disk (two slots, written in
                turn under the commit lock), and whether a sync has failed
    2560        the base: where the file that is appended to begins in the whole ledger

Everything here can be made again from the ledger file; nothing is signed.

Written with pwrite(2), not through a mapping: a mapped page on a full disk, or of a file
that somebody cut, is a signal that kills the process.

`append_plain` is the append of the hook, which opens the ledger for one entry, and imports
nothing slow. Whatever is not plain (a torn end, a poisoned mark, another boot, a full file) is
declined before a byte is written, for the full store (append.py). From the write on, what
fails is `AppendFailedError`, and nothing is acknowledged.
"""

import fcntl
import posix
import struct
import time
from zlib import crc32

from paddock.ledger.format.line import PREV_OF_GENESIS, TAIL_BYTES_MAX, chain_lines, leaf_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    class Preads(Protocol):
        def pread(self, fd: int, size_bytes: int, offset: int, /) -> bytes: ...

    class EndDisk(Preads, Protocol):
        """What changes the end of a ledger: `posix`, or a `storage.disk.Disk`."""

        def write(self, fd: int, content: bytes, /) -> int: ...
        def pwrite(self, fd: int, content: bytes, offset: int, /) -> int: ...
        def ftruncate(self, fd: int, size_bytes: int, /) -> None: ...
        def fdatasync(self, fd: int, /) -> None: ...
        def stat(self, path: str | int, /) -> posix.stat_result: ...


SEGMENT_BYTES = 1 << 28
CHECKPOINT_ENTRIES = 1024
COMMIT_TIMEOUT_S = 15.0
"""As `limits.ledger_segment_bytes` and `checkpoint_entries_max`; what a client waits for."""
HEAD_BYTES = 4096
_SECTOR = 512
_DURABLE = 2 * _SECTOR
_BASE_OFFSET = 5 * _SECTOR
_BASE = struct.Struct("<QI")
_MOVING = 2**64 - 1
_PAGE_BYTES = _BASE_OFFSET + _BASE.size
# generation, entries, offset, leaf, boot, twelve bytes that mean nothing any more, poisoned
_RECORD = struct.Struct("<QQQ32s16s12xB")
_CRC = struct.Struct("<I")
_LINE_BYTES = 65_536
"""Of the line before a mark, what is read to compare it; a longer one is declined."""
_TRIES = 40
_PAUSE_S = 0.002
_OPEN = posix.O_RDWR | posix.O_CLOEXEC | posix.O_NOFOLLOW
_REGULAR, _KIND = 0o100000, 0o170000


class NotPlainError(Exception):
    """The full store has to append this; nothing was written."""


class AppendFailedError(Exception):
    """The entry is not acknowledged; the text says why."""


class _Record:
    __slots__ = ()

    @property
    def record(self) -> "tuple[object, ...]":
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.record}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.record == other.record

    def __hash__(self) -> int:
        return hash(self.record)


class Mark(_Record):
    """A place between two lines, with what has to stand before it.

    `generation` counts appends and never goes down; `entries` and `offset_bytes` are those
    before it, `leaf` the last one's hash. `is_poisoned` means something in a durable mark alone.
    """

    __slots__ = ("boot", "entries", "generation", "is_poisoned", "leaf", "offset_bytes")

    def __init__(
        self,
        generation: int,
        entries: int,
        offset_bytes: int,
        leaf: str,
        boot: bytes,
        is_poisoned: bool = False,
    ) -> None:
        self.generation = generation
        self.entries = entries
        self.offset_bytes = offset_bytes
        self.leaf = leaf
        self.boot = boot
        self.is_poisoned = is_poisoned

    @property
    def record(self) -> tuple[int, int, int, str, bytes, bool]:
        place = (self.generation, self.entries, self.offset_bytes)
        return (*place, self.leaf, self.boot, self.is_poisoned)

    def changed(self, **changes: "Any") -> "Mark":
        return Mark(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def outranks(self, other: "Mark") -> bool:
        """Whether it counts before the other of a pair."""
        mine = (self.generation, self.offset_bytes, self.is_poisoned)
        return mine >= (other.generation, other.offset_bytes, other.is_poisoned)


NOTHING_DURABLE = Mark(0, 0, 0, PREV_OF_GENESIS, bytes(16))
"""The beginning of the file: what a durable mark says that never knew a sync."""


class HeadPage(_Record):
    """What the head file says; None where both slots are torn or were never written.

    `durable_slot` is where the older, or no, durable mark stands: the next one goes there.
    `base` is None while it changes, or where it is not known.
    """

    __slots__ = ("base", "durable", "durable_slot", "newest")

    def __init__(
        self,
        newest: Mark | None,
        durable: Mark | None,
        durable_slot: int,
        base: int | None = None,
    ) -> None:
        self.newest = newest
        self.durable = durable
        self.durable_slot = durable_slot
        self.base = base

    @property
    def record(self) -> "tuple[Mark | None, Mark | None, int, int | None]":
        return self.newest, self.durable, self.durable_slot, self.base

    def believable(self, boot: bytes) -> list[Mark]:
        """The marks that the ledger has to agree with, the farthest last.

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


def encode_mark(mark: Mark) -> bytes:
    generation, entries, offset, leaf, boot, poisoned = mark.record
    record = _RECORD.pack(generation, entries, offset, bytes.fromhex(leaf), boot, poisoned)
    return record + _CRC.pack(crc32(record))


def decode_mark(page: bytes, at: int = 0) -> Mark | None:
    end = at + _RECORD.size
    if len(page) < end + _CRC.size or crc32(page[at:end]) != _CRC.unpack_from(page, end)[0]:
        return None
    generation, entries, offset, leaf, boot, poisoned = _RECORD.unpack_from(page, at)
    return Mark(generation, entries, offset, leaf.hex(), boot, bool(poisoned))


def find_pair(page: bytes, at: int) -> tuple[Mark | None, int]:
    first, second = decode_mark(page, at), decode_mark(page, at + _SECTOR)
    if second is None or (first is not None and first.outranks(second)):
        return first, 0 if first is None else 1
    return second, 0


def read_page(disk: "Preads", head: int) -> HeadPage:
    """Reading needs no lock: a torn record is no record. Raises: OSError."""
    page = disk.pread(head, _PAGE_BYTES, 0)
    newest, _ = find_pair(page, 0)
    durable, slot = find_pair(page, _DURABLE)
    base = None
    record = page[_BASE_OFFSET:]
    if len(record) == _BASE.size:
        start, crc = _BASE.unpack(record)
        base = start if crc32(record[:8]) == crc and start != _MOVING else None
    return HeadPage(newest, durable, slot, base)


def store_base(disk: "EndDisk", head: int, base: int | None) -> None:
    """Where the newest segment begins; None while that changes. The append lock is held."""
    start = _MOVING if base is None else base
    _store(disk, head, _BASE.pack(start, crc32(start.to_bytes(8, "little"))), _BASE_OFFSET)


def store_newest(disk: "EndDisk", head: int, mark: Mark) -> None:
    """An append's mark, into the slot that its predecessor does not use."""
    _store(disk, head, encode_mark(mark), _SECTOR * (mark.generation % 2))


def store_durable(disk: "EndDisk", head: int, mark: Mark, slot: int) -> None:
    _store(disk, head, encode_mark(mark), _DURABLE + _SECTOR * slot)


def _store(disk: "EndDisk", head: int, record: bytes, offset: int) -> None:
    if disk.pwrite(head, record, offset) != len(record):
        raise OSError("it was written in part")


def put_lines(
    disk: "EndDisk", file: int, head: int, base: int, before: Mark, bodies: "Sequence[bytes]"
) -> Mark:
    """Chain lines and write them behind a mark, then store the next mark. The lock is held.

    What fails half-way is cut back; where that fails too, the next append finds the end in the
    wrong place, and recovers. Raises: OSError.
    """
    data, leaf = chain_lines(bodies, before.entries, before.leaf)
    rest = data
    try:
        while rest:
            rest = rest[disk.write(file, rest) :]
    except BaseException:
        disk.ftruncate(file, before.offset_bytes - base)
        raise
    entries, offset = before.entries + len(bodies), before.offset_bytes + len(data)
    after = Mark(before.generation + 1, entries, offset, leaf, before.boot)
    store_newest(disk, head, after)
    return after


def raise_durable(disk: "EndDisk", head: int, mark: Mark, boot: bytes) -> bool:
    """Say that all before the mark is on the disk: no later start may find less.

    The commit lock is held. False where somebody's sync has failed: nothing is raised any more.
    """
    page = read_page(disk, head)
    durable = page.durable
    if is_poisoned(durable, boot):
        return False
    if durable is None or durable.offset_bytes < mark.offset_bytes:
        store_durable(disk, head, mark, page.durable_slot)
    return True


def poison(disk: "EndDisk", head: int, boot: bytes) -> None:
    """Have nobody acknowledge anything until the machine starts anew. The commit lock is held."""
    page = read_page(disk, head)
    poisoned = (page.durable or NOTHING_DURABLE).changed(is_poisoned=True, boot=boot)
    store_durable(disk, head, poisoned, page.durable_slot)


def is_poisoned(durable: Mark | None, boot: bytes) -> bool:
    """Whether a sync has failed since this machine started."""
    return durable is not None and durable.is_poisoned and durable.boot == boot


def read_boot() -> bytes:
    """Sixteen bytes that change when the machine starts anew; zeros where unknown."""
    try:
        file = posix.open("/proc/sys/kernel/random/boot_id", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            text = posix.read(file, 64).decode()
        finally:
            posix.close(file)
        return bytes.fromhex(text.strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)


# --- one entry, where all is plain ---------------------------------------------------------


class _Files:
    """What is open of a ledger, each with the path at which it has to stay."""

    def __init__(self, ledger: str, folder: str) -> None:
        self.ledger = ledger
        self.folder = folder
        self.held: list[int] = []
        self.base = 0

    def open(self, path: str, flags: int = _OPEN) -> int:
        self.held.append(posix.open(path, flags, 0o600))
        return self.held[-1]

    def close(self) -> None:
        for descriptor in self.held:
            posix.close(descriptor)

    def verify_in_place(self, disk: "EndDisk") -> None:
        """Refuse if others who append see other files. Raises: AppendFailedError; OSError."""
        lock, file, head, commit = (_identity(disk, each) for each in self.held)
        if _identity(disk, self.ledger) != file:
            # It may have been full, and have another name since.
            sealed = f"{self.ledger.removesuffix('.jsonl')}.{self.base:016}.jsonl"
            try:
                is_sealed = _identity(disk, sealed) == file
            except OSError:
                is_sealed = False
            if not is_sealed:
                raise AppendFailedError("the ledger was replaced while in use")
        # Threat: who removes the folder has the next writer make another lock and another head.
        beside = [_identity(disk, f"{self.folder}/{name}") for name in ("lock", "slock", "head")]
        if beside != [lock, commit, head]:
            raise AppendFailedError("the folder beside the ledger was replaced while in use")


def append_plain(
    ledger: str,
    folder: str,
    identity: tuple[int, int],
    body: bytes,
    disk: "EndDisk" = posix,
) -> None:
    """Append one body durably to the file of this `identity`.

    Raises:
        NotPlainError: the ledger's state is not plain; nothing was written.
        AppendFailedError: not acknowledged.
    """
    files = _Files(ledger, folder)
    try:
        try:
            before = _prepare(files, identity, len(body))
        except OSError as fault:
            raise NotPlainError(f"the ledger cannot be looked at: {_why(fault)}") from None
        try:
            _put_plain(disk, files, before, body)
        except NotPlainError:
            raise AppendFailedError("another process does not finish its commit") from None
        except OSError as fault:
            raise AppendFailedError(f"the ledger failed: {_why(fault)}") from fault
    finally:
        files.close()


def _put_plain(disk: "EndDisk", files: _Files, before: Mark, body: bytes) -> None:
    lock, file, head, commit = files.held
    after = put_lines(disk, file, head, files.base, before, [body])
    fcntl.flock(lock, fcntl.LOCK_UN)
    try:
        disk.fdatasync(file)
    except OSError:
        # Never tried again: the pages may be gone and count as clean.
        _take(commit, COMMIT_TIMEOUT_S)
        poison(disk, head, after.boot)
        raise
    # Threat: a copy was put in our place, and what others append to it is not synced by us.
    files.verify_in_place(disk)
    _take(commit, COMMIT_TIMEOUT_S)
    if not raise_durable(disk, head, after, after.boot):
        raise AppendFailedError("the disk failed to store ledger entries")


def _prepare(files: _Files, identity: tuple[int, int], size: int) -> Mark:
    """Open all, take the lock, and return the mark to append after. Raises: NotPlainError."""
    lock = files.open(f"{files.folder}/lock")
    _take(lock, _TRIES * _PAUSE_S)
    file = files.open(files.ledger, _OPEN | posix.O_APPEND | posix.O_NONBLOCK)
    status = posix.fstat(file)
    if (status.st_dev, status.st_ino) != identity or status.st_mode & _KIND != _REGULAR:
        raise NotPlainError("another ledger than before")
    head = files.open(f"{files.folder}/head")
    files.open(f"{files.folder}/slock", _OPEN | posix.O_CREAT)
    if status.st_size + size + TAIL_BYTES_MAX > SEGMENT_BYTES:
        raise NotPlainError("the ledger's file is full")
    page, boot = read_page(posix, head), read_boot()
    newest, durable, base = page.newest, page.durable, page.base
    if base is None:
        raise NotPlainError("it is not known where the ledger's file begins")
    if newest is None or durable is None or not durable.entries:
        raise NotPlainError("the ledger's head is not whole")
    if newest.entries % CHECKPOINT_ENTRIES == CHECKPOINT_ENTRIES - 1:
        raise NotPlainError("a checkpoint is due, which the full path makes")
    if durable.is_poisoned or newest.boot != boot or not any(boot):
        raise NotPlainError("the head file predates this boot")
    end, synced = newest.offset_bytes, durable.offset_bytes
    if not base < synced <= end or base + status.st_size != end:
        raise NotPlainError("the ledger does not end at its mark")
    # Threat: a byte put in or taken out moves every later line.
    for mark in [newest] if synced == end else [newest, durable]:
        _compare_line(file, mark.offset_bytes - base, mark.leaf)
    try:
        names = posix.listdir(f"{files.folder}/torn")
    except FileNotFoundError:
        names = []
    if any(name.endswith(".pending") for name in names):
        raise NotPlainError("quarantined bytes have no entry yet")
    files.base = base
    return newest


def _compare_line(file: int, end: int, leaf: str) -> None:
    start = max(0, end - _LINE_BYTES)
    piece = posix.pread(file, end - start, start)
    before = piece.rfind(b"\n", 0, -1)
    if not piece.endswith(b"\n") or (before < 0 and start):
        raise NotPlainError("the line before a mark is long, or has no end")
    if leaf_hash(piece[before + 1 : -1]) != leaf:
        raise NotPlainError("the line before a mark is another one")


def _take(lock: int, timeout_s: float) -> None:
    """Take a lock, which is given up with its descriptor. Raises: NotPlainError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NotPlainError("the ledger is locked") from None
            time.sleep(_PAUSE_S / 4)
        else:
            return


def _identity(disk: "EndDisk", path: "str | int") -> tuple[int, int]:
    status = disk.stat(path)
    return status.st_dev, status.st_ino


def _why(fault: OSError) -> str:
    return fault.strerror or str(fault)
