"""The end of a ledger: the marks that record it, and appending lines after it.

The head file records where the ledger ends, and how much of it is durable
(docs/formats/ledger.md). It is written with pwrite(2), not mmap(2): access to a mapped page on a
full disk, or of a truncated file, kills the process with SIGBUS.

`append_plain` appends one entry for the hook, without slow imports. If recovery, a rotation or a
checkpoint is needed, it declines before writing anything, and `LedgerFile` (append.py) takes over.
"""

import fcntl
import posix
import struct
import time
from zlib import crc32

from paddock.ledger.format.line import (
    LINE_BYTES_MAX,
    PREV_OF_GENESIS,
    TAIL_BYTES_MAX,
    chain_lines,
    leaf_hash,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    class LedgerDisk(Protocol):
        """System calls that read and append to a ledger: `os`, or a `storage.disk.Disk`."""

        def open(self, path: str, flags: int, /) -> int: ...
        def close(self, fd: int, /) -> None: ...
        def listdir(self, path: str, /) -> list[str]: ...
        def pread(self, fd: int, size_bytes: int, offset: int, /) -> bytes: ...
        def write(self, fd: int, content: bytes, /) -> int: ...
        def pwrite(self, fd: int, content: bytes, offset: int, /) -> int: ...
        def ftruncate(self, fd: int, size_bytes: int, /) -> None: ...
        def fdatasync(self, fd: int, /) -> None: ...
        def stat(self, path: str | int, /) -> posix.stat_result: ...


SEGMENT_BYTES = 1 << 28  # as `limits.ledger_segment_bytes`
CHECKPOINT_ENTRIES = 1024  # as `limits.checkpoint_entries_max`
COMMIT_TIMEOUT_S = 15.0  # a client waits for it
HEAD_BYTES = 4096
_SECTOR = 512
_DURABLE_OFFSET = 2 * _SECTOR
_BASE_OFFSET = 5 * _SECTOR
_BASE = struct.Struct("<QI")
_MOVING = 2**64 - 1
_PAGE_BYTES = _BASE_OFFSET + _BASE.size
# generation, entries, offset, leaf, boot, twelve unused bytes, poisoned
_RECORD = struct.Struct("<QQQ32s16s12xB")
_CRC = struct.Struct("<I")
_RANK = struct.Struct("<Q8xQ60xB")
"""The sort key of the two records of a pair: generation, offset, poisoned."""
_LINE_BYTES_USUAL = 4096
_LOCK_TIMEOUT_S = 0.08
_TAKE = fcntl.LOCK_EX | fcntl.LOCK_NB
_TRIES_AT_ONCE = 20  # outlasts a holder that is running on another processor
_YIELD_MAX_S = 2e-3  # less than the time slice that a CPU-bound process gets
_SLEEP_MIN_S = 20e-6
_SLEEP_MAX_S = 2e-3
_OPEN = posix.O_RDWR | posix.O_CLOEXEC | posix.O_NOFOLLOW
_REGULAR, _KIND = 0o100000, 0o170000

_EXTENSION = ".jsonl"
START_DIGITS = 16  # names sort in the segments' order, the newest last


class LedgerPaths:
    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        above, slash, _ = ledger.rpartition("/")
        self.parent = above or slash or "."
        self.stem = ledger.removesuffix(_EXTENSION)
        self.folder = f"{self.stem}.d"
        self.next = f"{self.folder}/next"
        self.lock = f"{self.folder}/lock"
        self.commit_lock = f"{self.folder}/slock"  # held while the durable mark is written
        self.head = f"{self.folder}/head"
        self.index = f"{self.folder}/index.sqlite"
        self.new = f"{self.folder}/new"
        self.torn = f"{self.folder}/torn"

    def sealed(self, start: int) -> str:
        return f"{self.stem}.{start:0{START_DIGITS}}{_EXTENSION}"


class NotPlainError(Exception):
    """The append needs `LedgerFile`; nothing was written."""


class AppendFailedError(Exception):
    """The entry was not acknowledged."""


class Mark:  # noqa: PLW1641 - no set holds one
    """A line's end and leaf hash. A durable mark is poisoned after a failed sync."""

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
        self.generation, self.entries, self.offset_bytes = generation, entries, offset_bytes
        self.leaf, self.boot, self.is_poisoned = leaf, boot, is_poisoned

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and encode_mark(self) == encode_mark(other)


NOTHING_DURABLE = Mark(0, 0, 0, PREV_OF_GENESIS, bytes(16))  # the beginning of the file


class HeadPage:
    """A mark is None if both its slots are torn or unwritten; the base, if torn or rotating."""

    def __init__(self, newest: Mark | None, durable: Mark | None, base: int | None = None) -> None:
        self.newest, self.durable, self.base = newest, durable, base


def encode_mark(mark: Mark) -> bytes:
    place = (mark.generation, mark.entries, mark.offset_bytes)
    record = _RECORD.pack(*place, bytes.fromhex(mark.leaf), mark.boot, mark.is_poisoned)
    return record + _CRC.pack(crc32(record))


def decode_mark(page: bytes, at: int = 0) -> Mark | None:
    end = at + _RECORD.size
    if len(page) < end + _CRC.size or crc32(page[at:end]) != _CRC.unpack_from(page, end)[0]:
        return None
    generation, entries, offset, leaf, boot, poisoned = _RECORD.unpack_from(page, at)
    return Mark(generation, entries, offset, leaf.hex(), boot, bool(poisoned))


def find_pair(page: bytes, at: int) -> tuple[Mark | None, int]:
    """Return a pair's newest valid record, and the other slot, for the next record."""
    newer = int(_RANK.unpack_from(page, at + _SECTOR) > _RANK.unpack_from(page, at))
    for slot in (newer, 1 - newer):
        mark = decode_mark(page, at + slot * _SECTOR)
        if mark is not None:
            return mark, 1 - slot
    return None, 0


class HeadFile:
    """The open head file. Its methods raise OSError."""

    def __init__(self, disk: "LedgerDisk", descriptor: int) -> None:
        self._disk, self.descriptor = disk, descriptor

    def read(self) -> HeadPage:
        """Read without a lock: a torn record is ignored."""
        # Padding: a record that a truncated file lacks is invalid.
        page = self._disk.pread(self.descriptor, _PAGE_BYTES, 0).ljust(_PAGE_BYTES, b"\0")
        start, crc = _BASE.unpack_from(page, _BASE_OFFSET)
        is_known = start != _MOVING and crc == crc32(page[_BASE_OFFSET : _BASE_OFFSET + 8])
        newest, durable = find_pair(page, 0)[0], find_pair(page, _DURABLE_OFFSET)[0]
        return HeadPage(newest, durable, start if is_known else None)

    def read_durable(self) -> tuple[Mark | None, int]:
        pair = self._disk.pread(self.descriptor, 2 * _SECTOR, _DURABLE_OFFSET)
        return find_pair(pair.ljust(2 * _SECTOR, b"\0"), 0)

    def store_base(self, base: int | None) -> None:
        """Store the newest segment's start; None during a rotation. The append lock is held."""
        start = _MOVING if base is None else base
        self._store(_BASE.pack(start, crc32(start.to_bytes(8, "little"))), _BASE_OFFSET)

    def store_newest(self, mark: Mark) -> None:
        self._store(encode_mark(mark), _SECTOR * (mark.generation % 2))

    def store_durable(self, mark: Mark, slot: int) -> None:
        self._store(encode_mark(mark), _DURABLE_OFFSET + _SECTOR * slot)

    def raise_durable(self, mark: Mark, boot: bytes) -> bool:
        """Advance the durable mark, under the commit lock. Return False if a sync has failed."""
        durable, slot = self.read_durable()
        if is_poisoned(durable, boot):
            return False
        if durable is None or durable.offset_bytes < mark.offset_bytes:
            self.store_durable(mark, slot)
        return True

    def poison(self, boot: bytes) -> None:
        """The commit lock is held."""
        durable, slot = self.read_durable()
        at = durable or NOTHING_DURABLE
        poisoned = Mark(at.generation, at.entries, at.offset_bytes, at.leaf, boot, True)
        self.store_durable(poisoned, slot)

    def _store(self, record: bytes, offset: int) -> None:
        if self._disk.pwrite(self.descriptor, record, offset) != len(record):
            raise OSError("only part of it was written")


def chain(before: Mark, bodies: "Sequence[bytes]") -> tuple[bytes, Mark]:
    lines, leaf = chain_lines(bodies, before.entries, before.leaf)
    entries, offset = before.entries + len(bodies), before.offset_bytes + len(lines)
    return lines, Mark(before.generation + 1, entries, offset, leaf, before.boot)


def put_lines(
    disk: "LedgerDisk", file: int, head: HeadFile, start: int, lines: bytes, after: Mark
) -> None:
    """Undo a failed write; if that or storing the mark fails, the next append recovers."""
    rest = lines
    try:
        while rest:
            rest = rest[disk.write(file, rest) :]
    except BaseException:
        disk.ftruncate(file, start)
        raise
    head.store_newest(after)


def is_poisoned(durable: Mark | None, boot: bytes) -> bool:
    return durable is not None and durable.is_poisoned and durable.boot == boot


def read_boot() -> bytes:
    """Return sixteen bytes that change at each boot; zeros if unknown."""
    try:
        file = posix.open("/proc/sys/kernel/random/boot_id", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            text = posix.read(file, 64).decode()
        finally:
            posix.close(file)
        return bytes.fromhex(text.strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)


def line_before(read: "Callable[[int, int], bytes]", end: int) -> bytes | None:
    size = _LINE_BYTES_USUAL
    while True:
        start = max(0, end - size)
        piece = read(end - start, start)
        if not piece.endswith(b"\n") or len(piece) < end - start:
            return None
        before = piece.rfind(b"\n", 0, -1)
        if before >= 0 or start == 0 or len(piece) > LINE_BYTES_MAX + 1:
            return piece[before + 1 : -1]
        size *= 16


def wait_for_lock(
    lock: "Callable[[int, int], None]",
    descriptor: int,
    timeout_s: float,
    monotonic: "Callable[[], float]" = time.monotonic,
    sleep: "Callable[[float], None]" = time.sleep,
) -> bool:
    tries, pause, before = _TRIES_AT_ONCE, _SLEEP_MIN_S, monotonic()
    deadline = before + timeout_s
    while True:
        try:
            lock(descriptor, _TAKE)
        except BlockingIOError:
            if tries:
                # The holder may be waiting for this processor; yielding is shorter than a sleep.
                posix.sched_yield()
        else:
            return True
        if tries:
            before, since = monotonic(), before
            tries = tries - 1 if before - since <= _YIELD_MAX_S else 0
        if not tries:
            if monotonic() >= deadline:
                return False
            sleep(pause)
            pause = min(pause * 1.5, _SLEEP_MAX_S)


def is_file(disk: "LedgerDisk", path: str, identity: tuple[int, int]) -> bool:
    try:
        status = disk.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == identity


# --- append one entry, if no recovery, rotation or checkpoint is needed ---------------------


def append_plain(
    ledger: str, identity: tuple[int, int], body: bytes, disk: "LedgerDisk" = posix
) -> None:
    """Append one body durably. Raises: NotPlainError, AppendFailedError."""
    held: dict[str, int] = {}
    paths = LedgerPaths(ledger)
    failed, said = NotPlainError, "the ledger cannot be read"
    try:
        before, base = _prepare(held, paths, identity, len(body))
        failed, said = AppendFailedError, "the ledger failed"
        _put_plain(disk, held, paths.sealed(base), base, before, body)
    except OSError as fault:
        raise failed(f"{said}: {fault.strerror or fault}") from fault
    finally:
        for descriptor in held.values():
            posix.close(descriptor)


def _prepare(
    held: dict[str, int], paths: LedgerPaths, identity: tuple[int, int], size: int
) -> tuple[Mark, int]:
    def opened(path: str, flags: int = 0) -> int:
        descriptor = held[path] = posix.open(path, _OPEN | flags, 0o600)
        return descriptor

    lock = opened(paths.lock)
    _require(wait_for_lock(fcntl.flock, lock, _LOCK_TIMEOUT_S), "the ledger is locked")
    file = opened(paths.ledger, posix.O_APPEND | posix.O_NONBLOCK)
    status = posix.fstat(file)
    is_same = (status.st_dev, status.st_ino) == identity
    _require(is_same and status.st_mode & _KIND == _REGULAR, "the ledger was replaced")
    head = HeadFile(posix, opened(paths.head))
    opened(paths.commit_lock, posix.O_CREAT)
    _require(status.st_size + size + TAIL_BYTES_MAX <= SEGMENT_BYTES, "the ledger's file is full")
    page, boot = head.read(), read_boot()
    newest, durable, base = page.newest, page.durable, page.base
    if newest is None or durable is None or base is None or not durable.entries:
        raise NotPlainError("the ledger's head file is incomplete")
    is_due = newest.entries % CHECKPOINT_ENTRIES == CHECKPOINT_ENTRIES - 1
    _require(not is_due, "a checkpoint is due")
    is_known = newest.boot == boot and any(boot) and not durable.is_poisoned
    _require(is_known, "the head file predates this boot")
    end, synced = newest.offset_bytes, durable.offset_bytes
    is_whole = base < synced <= end == base + status.st_size
    _require(is_whole, "the ledger does not end at its mark")
    # Threat: inserting or deleting a byte moves every later line.
    for mark in [newest] if synced == end else [newest, durable]:
        line = line_before(lambda size, at: posix.pread(file, size, at), mark.offset_bytes - base)
        is_ours = line is not None and leaf_hash(line) == mark.leaf
        _require(is_ours, "the line before a mark was changed")
    try:
        names = posix.listdir(paths.torn)
    except FileNotFoundError:
        names = []
    is_recorded = not any(name.endswith(".pending") for name in names)
    _require(is_recorded, "quarantined bytes have no entry yet")
    return newest, base


def _put_plain(
    disk: "LedgerDisk", held: dict[str, int], sealed: str, base: int, before: Mark, body: bytes
) -> None:
    lock, file, descriptor, commit = held.values()
    head = HeadFile(disk, descriptor)
    lines, after = chain(before, [body])
    put_lines(disk, file, head, before.offset_bytes - base, lines, after)
    fcntl.flock(lock, fcntl.LOCK_UN)
    try:
        disk.fdatasync(file)
    except OSError:
        # Never retried: the kernel may have dropped the pages and marked them clean.
        _take(commit)
        head.poison(after.boot)
        raise
    # Threat: the file was replaced by a copy, so entries appended there are not synced here; or
    # the folder was removed, and the next writer created another lock and head file.
    for path, each in held.items():
        status = disk.stat(each)
        identity = (status.st_dev, status.st_ino)
        # The ledger's file may have been sealed since, by another process.
        if not is_file(disk, path, identity) and not (
            each == file and is_file(disk, sealed, identity)
        ):
            raise AppendFailedError("the ledger was replaced while in use")
    _take(commit)
    if not head.raise_durable(after, after.boot):
        raise AppendFailedError("the disk failed to store ledger entries")


def _require(is_plain: bool, otherwise: str) -> None:
    if not is_plain:
        raise NotPlainError(otherwise)


def _take(commit: int) -> None:
    """Take the commit lock; closing its descriptor releases it."""
    if not wait_for_lock(fcntl.flock, commit, COMMIT_TIMEOUT_S):
        raise AppendFailedError("another process does not finish its commit")
