"""Appending one entry to a ledger whose state is plain, with the ledger's own files and locks.

The sequence of `paddock.ledger.append`: lock → newest mark → line in one write → mark → unlock →
fdatasync → a look whether the files are still those at their paths → commit lock → durable mark →
unlock. Whatever is not plain (a torn end, a poisoned mark, another boot, a long-held lock,
quarantined bytes, a full file) is declined before a byte is written: the full store does it.

From the write on nothing is declined: what fails is `AppendFailedError`, and the call does not run.
A line is written as `paddock.ledger.format.encoding` does, without its imports.
"""

import fcntl
import posix
import time
from _json import encode_basestring, make_encoder
from zlib import crc32

from paddock.apps.hook.lean.asked import DeclinedError
from paddock.apps.hook.lean.records import LeanRecord, sha256

ENTRY_BYTES_MAX = 1_048_576
_CHAINED_BYTES_MAX = 96
_UNSHOWABLE = (
    *((0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E)),
    *((0x2066, 0x2069), (0xFEFF, 0xFEFF)),
)
"""Characters that drive terminals or turn text round: never raw in a line."""
_SECONDS_MAX = 253_402_300_800

_RECORD_BYTES = 89
_BODY_BYTES = 85
_SECTOR = 512
_DURABLE = 1024
_BASE = 2560
_BASE_BYTES = 12
_PAGE_BYTES = _DURABLE + _SECTOR + _RECORD_BYTES
SEGMENT_BYTES = 1 << 28
CHECKPOINT_ENTRIES = 1024
_LINE_BYTES = 65_536
"""Of the line before a mark, what is read to compare it; a longer one is declined."""
_TAIL_BYTES = 128
"""More than the place in the chain and the LF take."""
_TRIES = 40
_PAUSE_S = 0.002
COMMIT_TIMEOUT_S = 15.0
_BESIDE = ("lock", "slock", "head")
_OPEN = posix.O_RDWR | posix.O_CLOEXEC | posix.O_NOFOLLOW
_REGULAR = 0o100000
_KIND = 0o170000


class AppendFailedError(Exception):
    """The entry is not acknowledged; the text says why."""


def _refuse(value: object) -> str:
    raise DeclinedError(f"a {type(value).__name__} in an entry")


_encode = make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)


def encode_body(record: LeanRecord, random: bytes, seconds: float) -> bytes:
    """Return a line up to its place in the chain. Raises: DeclinedError where it may not be."""
    text = (
        f'{{"id":"LED-{random.hex()}","timestamp":"{format_timestamp(seconds)}"'
        f',"event_type":"{record.event_type}","submission_id":""'
        f',"decision":"{record.decision}"'
        f',"reason":{encode_basestring(record.reason)}'
        f',"session_id":{encode_basestring(record.session_id)}'
        f',"agent":{encode_basestring(record.agent)}'
        f',"call_id":{encode_basestring(record.call_id)}'
        f',"metadata":{"".join(_encode(record.metadata, 0))}'
    )
    if "\\u0000" in text:
        raise DeclinedError("a NUL in an entry")
    if not text.isascii() or "\x7f" in text:
        text = text.translate(
            {code: f"\\u{code:04x}" for low, high in _UNSHOWABLE for code in range(low, high + 1)}
        )
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise DeclinedError("half a surrogate pair in an entry") from None
    if len(body) + _CHAINED_BYTES_MAX > ENTRY_BYTES_MAX:
        raise DeclinedError("an entry that is too long")
    return body


def chain_line(body: bytes, seq: int, prev: str) -> "tuple[bytes, str]":
    line = body + f',"seq":{seq},"prev":"{prev}"}}'.encode()
    return line + b"\n", leaf_hash(line)


def leaf_hash(line: bytes) -> str:
    digest = sha256(b"\0")
    digest.update(line)
    return digest.hexdigest()


def format_timestamp(seconds: float) -> str:
    if not 0 <= seconds < _SECONDS_MAX:
        raise DeclinedError("a clock that shows no time")
    whole = int(seconds)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{moment}.{int((seconds - whole) * 1e6):06d}Z"


class LeanMark:
    __slots__ = ("boot", "entries", "generation", "leaf", "offset", "poisoned")

    def __init__(self, generation: int, entries: int, offset: int, leaf: str, boot: bytes) -> None:
        self.generation = generation
        self.entries = entries
        self.offset = offset
        self.leaf = leaf
        self.boot = boot
        self.poisoned = False

    def encode(self) -> bytes:
        body = (
            self.generation.to_bytes(8, "little")
            + self.entries.to_bytes(8, "little")
            + self.offset.to_bytes(8, "little")
            + bytes.fromhex(self.leaf)
            + self.boot
            + bytes(12)
            + (b"\x01" if self.poisoned else b"\0")
        )
        return body + crc32(body).to_bytes(4, "little")


def append_entry(ledger: str, folder: str, identity: "tuple[int, int]", body: bytes) -> None:
    """Append one body durably. Raises: DeclinedError (nothing written), AppendFailedError."""
    held: list[int] = []
    try:
        files, before = _prepared(ledger, folder, identity, len(body), held)
        try:
            place = _Place(ledger, folder, files)
            after = _write(files, before, body)
            fcntl.flock(files.lock, fcntl.LOCK_UN)
            _commit(place, files, after)
        except OSError as fault:
            raise AppendFailedError(f"the ledger failed: {_why(fault)}") from fault
    finally:
        for descriptor in held:
            posix.close(descriptor)


class _Files:
    __slots__ = ("base", "commit_lock", "file", "head", "lock")

    def __init__(self, lock: int, file: int, head: int, commit_lock: int) -> None:
        self.lock = lock
        self.file = file
        self.head = head
        self.commit_lock = commit_lock
        self.base = _base(head)


class _Place:
    __slots__ = ("_base", "_beside", "_file", "_folder", "_ledger")

    def __init__(self, ledger: str, folder: str, files: "_Files") -> None:
        self._ledger = ledger
        self._folder = folder
        self._base = files.base
        self._file = _identity(files.file)
        self._beside = [_identity(each) for each in (files.lock, files.commit_lock, files.head)]

    def verify(self) -> None:
        """Raises: AppendFailedError where others who append see other files; OSError."""
        if _identity(self._ledger) != self._file and not self._is_sealed():
            raise AppendFailedError("the ledger was replaced while in use")
        # Threat: who removes the folder has the next writer make another lock and another head.
        if [_identity(f"{self._folder}/{name}") for name in _BESIDE] != self._beside:
            raise AppendFailedError("the folder beside the ledger was replaced while in use")

    def _is_sealed(self) -> bool:
        name = f"{self._ledger.removesuffix('.jsonl')}.{self._base:016}.jsonl"
        try:
            return _identity(name) == self._file
        except OSError:
            return False


def _identity(path: "str | int") -> "tuple[int, int]":
    status = posix.stat(path)
    return status.st_dev, status.st_ino


def _prepared(
    ledger: str, folder: str, identity: "tuple[int, int]", size: int, held: "list[int]"
) -> "tuple[_Files, LeanMark]":
    """Return the files, and the mark to append after, with the lock. Raises: DeclinedError."""
    try:
        lock = _opened(f"{folder}/lock", _OPEN, held)
        _take(lock)
        file = _opened(ledger, _OPEN | posix.O_APPEND | posix.O_NONBLOCK, held)
        status = posix.fstat(file)
        if (status.st_dev, status.st_ino) != identity or status.st_mode & _KIND != _REGULAR:
            raise DeclinedError("another ledger than before")
        head = _opened(f"{folder}/head", _OPEN, held)
        commit_lock = _opened(f"{folder}/slock", _OPEN | posix.O_CREAT, held)
        files = _Files(lock, file, head, commit_lock)
        if status.st_size + size + _TAIL_BYTES > SEGMENT_BYTES:
            raise DeclinedError("the ledger's file is full")
        return files, _newest(files, status.st_size, folder)
    except OSError as fault:
        raise DeclinedError(f"the ledger cannot be looked at: {_why(fault)}") from None


def _opened(path: str, flags: int, held: "list[int]") -> int:
    try:
        descriptor = posix.open(path, flags, 0o600)
    except OSError:
        raise DeclinedError("a file of the ledger cannot be opened") from None
    held.append(descriptor)
    return descriptor


def _take(lock: int) -> None:
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_PAUSE_S)
        else:
            return
    raise DeclinedError("the ledger is locked")


def _boot() -> bytes:
    try:
        descriptor = posix.open("/proc/sys/kernel/random/boot_id", posix.O_RDONLY)
        text = posix.read(descriptor, 64)
        posix.close(descriptor)
        found = bytes.fromhex(text.decode().strip().replace("-", ""))
    except (OSError, ValueError):
        raise DeclinedError("the boot is not known") from None
    if len(found) != 16 or not any(found):
        raise DeclinedError("the boot is not known")
    return found


def _base(head: int) -> int:
    """Raises: DeclinedError while that changes."""
    record = posix.pread(head, _BASE_BYTES, _BASE)
    start = int.from_bytes(record[:8], "little")
    if crc32(record[:8]) != int.from_bytes(record[8:], "little") or start == 2**64 - 1:
        raise DeclinedError("it is not known where the ledger's file begins")
    return start


def _newest(files: _Files, size: int, folder: str) -> LeanMark:
    """Return the mark to append after. The lock is held, and nothing was written yet."""
    boot, base = _boot(), files.base
    newest, durable, _ = _marks(files.head)
    if newest is None or durable is None or not durable.entries:
        raise DeclinedError("the ledger's head is not whole")
    if newest.entries % CHECKPOINT_ENTRIES == CHECKPOINT_ENTRIES - 1:
        raise DeclinedError("a checkpoint is due, which the full path makes")
    if durable.poisoned or newest.boot != boot:
        raise DeclinedError("the ledger's head is of another time")
    if newest.offset < durable.offset or base + size != newest.offset or durable.offset <= base:
        raise DeclinedError("the ledger does not end at its mark")
    # Threat: a byte put in or taken out moves every later line.
    _verify(files.file, newest.offset - base, newest.leaf)
    if durable.offset != newest.offset:
        _verify(files.file, durable.offset - base, durable.leaf)
    try:
        names = posix.listdir(f"{folder}/torn")
    except OSError:
        names = []
    if any(name.endswith(".pending") for name in names):
        raise DeclinedError("quarantined bytes have no entry yet")
    return newest


def _verify(file: int, end: int, leaf: str) -> None:
    start = max(0, end - _LINE_BYTES)
    piece = posix.pread(file, end - start, start)
    before = piece.rfind(b"\n", 0, -1)
    if not piece.endswith(b"\n") or (before < 0 and start):
        raise DeclinedError("the line before a mark is long, or has no end")
    if leaf_hash(piece[before + 1 : -1]) != leaf:
        raise DeclinedError("the line before a mark is another one")


def _marks(head: int) -> "tuple[LeanMark | None, LeanMark | None, int]":
    page = posix.pread(head, _PAGE_BYTES, 0)
    newest, _ = find_pair(page, 0)
    durable, slot = find_pair(page, _DURABLE)
    return newest, durable, slot


def find_pair(page: bytes, at: int) -> "tuple[LeanMark | None, int]":
    first, second = _decode(page, at), _decode(page, at + _SECTOR)
    if second is None or (first is not None and _rank(first) >= _rank(second)):
        return first, 0 if first is None else 1
    return second, 0


def _rank(mark: LeanMark) -> "tuple[int, int, bool]":
    return (mark.generation, mark.offset, mark.poisoned)


def _decode(page: bytes, at: int) -> "LeanMark | None":
    record = page[at : at + _RECORD_BYTES]
    if len(record) < _RECORD_BYTES:
        return None
    body = record[:_BODY_BYTES]
    if crc32(body) != int.from_bytes(record[_BODY_BYTES:], "little"):
        return None
    mark = LeanMark(
        int.from_bytes(body[0:8], "little"),
        int.from_bytes(body[8:16], "little"),
        int.from_bytes(body[16:24], "little"),
        body[24:56].hex(),
        body[56:72],
    )
    mark.poisoned = body[84] != 0
    return mark


def _write(files: _Files, before: LeanMark, body: bytes) -> LeanMark:
    """Write once at the end, then the mark; cut back what fails half-way."""
    file, base = files.file, files.base
    line, leaf = chain_line(body, before.entries, before.leaf)
    try:
        written = posix.write(file, line)
        while written < len(line):
            written += posix.write(file, line[written:])
    except OSError as fault:
        _cut_back(file, before.offset - base)
        raise AppendFailedError(f"the ledger cannot be written: {_why(fault)}") from fault
    except BaseException:
        _cut_back(file, before.offset - base)
        raise
    after = LeanMark(
        before.generation + 1, before.entries + 1, before.offset + len(line), leaf, before.boot
    )
    _store(files.head, _SECTOR * (after.generation % 2), after.encode())
    return after


def _cut_back(file: int, offset: int) -> None:
    try:
        posix.ftruncate(file, offset)
    except OSError as fault:
        # The next append finds the end in the wrong place, and recovers.
        raise AppendFailedError("a half-written entry cannot be cut off") from fault


def _store(head: int, at: int, record: bytes) -> None:
    try:
        written = posix.pwrite(head, record, at)
    except OSError as fault:
        raise AppendFailedError(f"the head cannot be written: {_why(fault)}") from fault
    if written != len(record):
        raise AppendFailedError("the head was written in part")


def _commit(place: _Place, files: _Files, mine: LeanMark) -> None:
    """Have the entry on the disk, and raise the durable mark for whoever starts later."""
    try:
        posix.fdatasync(files.file)
    except OSError as fault:
        # Never tried again: the pages may be gone and count as clean.
        _raise_durable(files, mine, has_failed=True)
        raise AppendFailedError(f"the disk failed to store it: {_why(fault)}") from fault
    # Threat: a copy was put in our place, and what others append to it is not synced by us.
    place.verify()
    _raise_durable(files, mine, has_failed=False)


def _raise_durable(files: _Files, mine: LeanMark, *, has_failed: bool) -> None:
    _take_commit_lock(files.commit_lock)
    try:
        _, durable, slot = _marks(files.head)
        if durable is None or (durable.poisoned and durable.boot == mine.boot):
            raise AppendFailedError("the disk failed to store ledger entries")
        if has_failed:
            durable.poisoned, durable.boot = True, mine.boot
            _store(files.head, _DURABLE + _SECTOR * slot, durable.encode())
        elif durable.offset < mine.offset:
            _store(files.head, _DURABLE + _SECTOR * slot, mine.encode())
    finally:
        fcntl.flock(files.commit_lock, fcntl.LOCK_UN)


def _take_commit_lock(lock: int) -> None:
    deadline = time.monotonic() + COMMIT_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise AppendFailedError("another process does not finish its commit") from None
            time.sleep(_PAUSE_S / 4)
        else:
            return


def _why(fault: OSError) -> str:
    return fault.strerror or type(fault).__name__
