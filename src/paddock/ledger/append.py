"""LedgerFile: append entries to one JSONL file, from many threads and processes.

Under the append lock, one write(2) writes all lines, then the newest mark is stored. A failed write
is cut back; recovery adopts whole lines that a killed writer left. After unlocking, each writer
syncs separately, because another writer may have synced a copy in this file's place; a journaling
file system merges concurrent syncs. It then checks the files' paths and stores the durable mark.

A failed sync is never retried: the kernel may have dropped the pages and marked them clean. Only
processes with the file open get the error; the poisoned durable mark stops others until a reboot.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerFullError
from paddock.ledger.files import (
    HeldReservation,
    LedgerFiles,
    find_tail,
    list_pending,
    mark_reported,
    quarantine,
    verify_marks,
)
from paddock.ledger.format.line import ID_BYTES, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, Genesis, Head, encode_body
from paddock.ledger.read import Segment, failing, is_full
from paddock.ledger.tail import (
    LedgerPaths,
    Mark,
    chain,
    is_poisoned,
    put_lines,
    read_boot,
)
from paddock.storage.disk import Disk
from paddock.storage.locks import call_after_fork
from paddock.values.entries import Entry

if TYPE_CHECKING:
    from paddock.ledger.checkpoint import AutoCheckpoint
    from paddock.ledger.format.notes import SignedCheckpoint

_HEAD_FAILS: Final = "the ledger's head file cannot be written"
_HINT: Final = (
    "check the disk; after a reboot the ledger continues from the entries that it has kept"
)


class Receipt(NamedTuple):
    first_seq: int
    ids: tuple[str, ...]
    head: Head


class Reservation(Protocol):
    def release(self) -> None: ...


class Ledger(Protocol):
    """A ledger that the runtime writes to: a `LedgerFile`, or `testing.MemoryLedger`."""

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        """Write entries consecutively, in order, and return when they are durable.

        After an exception the entries are not acknowledged, but may be in the file (a process can
        be killed after writing them), so an intent without a result is reported as unknown.
        `reservation` is used if the disk is full, and released once the entries are written.

        Raises: EntryRefusedError: an entry is invalid, or there are none or too many;
        LedgerBusyError: another thread or process holds the lock; LedgerFullError;
        LedgerDamagedError: the file was changed since it was written; HostError: the disk failed,
        now or earlier.
        """
        ...

    def reserve(self, size_bytes: int) -> Reservation: ...  # or LedgerFullError

    def close(self) -> None: ...


class LedgerFile:
    """One open ledger. Threads may share it; a forked child reopens its files."""

    def __init__(
        self,
        path: str,
        *,
        create: Genesis | None,
        clock: Callable[[], float],
        randomness: Callable[[int], bytes],
        disk: Disk | None = None,
        lock_timeout_s: float = limits.ledger_lock_timeout_s,
        segment_bytes: int = limits.ledger_segment_bytes,
        boot: bytes | None = None,
    ) -> None:
        """Open a ledger and recover its torn end, or create it; raises as `Ledger.append`."""
        self.path, self._paths = path, LedgerPaths(path)
        self._disk, self._lock_timeout_s = disk or Disk(), lock_timeout_s
        self._clock, self._randomness = clock, randomness
        self._segment_bytes = segment_bytes
        self._boot = read_boot() if boot is None else boot
        self._is_closed = False
        self._reopening = threading.Lock()
        self.keeper: AutoCheckpoint | None = None
        first_body = None if create is None else self._encode([create.entry()])[1][0]
        files = LedgerFiles(self._disk, self._paths, lock_timeout_s, first_body)
        self._files: LedgerFiles | None = files
        call_after_fork(self, LedgerFile._forget_files)
        try:
            with files.lock, failing("the ledger cannot be opened", path):
                if not is_poisoned(files.head.read().durable, self._boot):
                    newest = self._recover(files, must_compare=True)
                    if list_pending(self._disk, self._paths):
                        self._report(files, newest)
        except BaseException:
            self.close()
            raise

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        receipt, mark, segment = self.write(entries, reservation=reservation)
        self.commit(mark, segment)
        if self.keeper is not None:
            self.keeper.appended(receipt.head, entries)
        return receipt

    def write(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> tuple[Receipt, Mark, Segment]:
        """Append without `commit`: the entries are not yet durable; do not acknowledge them."""
        files = self._live()
        ids, bodies = self._encode(entries)
        with files.lock, failing("the ledger cannot be written", self.path):
            after = self._append(files, self._recover(files), bodies, reservation)
            segment = files.active
        if reservation is not None:
            reservation.release()
        head = Head(after.entries - 1, after.leaf)
        return Receipt(after.entries - len(ids), tuple(ids), head), after, segment

    def reserve(self, size_bytes: int) -> HeldReservation:
        return self._live().ballast.reserve(size_bytes)

    def seal(self) -> "SignedCheckpoint":
        """Sign a checkpoint of all lines, including killed writers' lines, and pass it upwards."""
        if self.keeper is None:
            raise ConfigError("no signer for checkpoints of this ledger", where=ascii(self.path))
        files = self._live()
        with files.lock, failing("the ledger cannot be read", self.path):
            newest, segment = self._recover(files), files.active
        self.commit(newest, segment)
        return self.keeper.seal()

    def close(self) -> None:
        if self.keeper is not None and not self._is_closed:
            self.keeper.close()
        files, self._files, self._is_closed = self._files, None, True
        if files is not None:
            with files.syncing:
                files.close()

    def commit(self, mark: Mark, segment: Segment) -> None:
        """Return when all bytes before a mark are durable, recorded as durable, and in place."""
        files = self._live()
        self._sync(files, mark, segment)
        # Threat: the file was replaced by a copy; entries appended to the copy are not synced here.
        files.verify_in_place(segment)
        with failing(_HEAD_FAILS, self.path):
            durable, _ = files.head.read_durable()
            if durable is None or durable.offset_bytes < mark.offset_bytes:
                with files.commit_lock:
                    files.is_poisoned |= not files.head.raise_durable(mark, self._boot)
        self._verify_not_poisoned(files, durable)

    def _forget_files(self) -> None:
        """Drop the files in a forked child: it shares their flock(2) locks with its parent."""
        files, self._files = self._files, None
        self._reopening = threading.Lock()
        if files is not None:
            files.ballast.lock = threading.Lock()
            files.close()

    def _live(self) -> LedgerFiles:
        files = self._files
        if files is not None:
            return files
        if self._is_closed:
            raise HostError("the ledger was closed", where=ascii(self.path))
        with self._reopening:
            if self._files is None:
                self._files = LedgerFiles(self._disk, self._paths, self._lock_timeout_s, None)
            return self._files

    def _encode(self, entries: Sequence[Entry]) -> tuple[list[str], list[bytes]]:
        if not 0 < len(entries) <= limits.ledger_batch_entries_max:
            most = limits.ledger_batch_entries_max
            said = f"{len(entries)} entries in one append; it takes 1 to {most}"
            raise EntryRefusedError(said)
        timestamp = format_timestamp(self._clock())
        ids = [format_id(self._randomness(ID_BYTES)) for _ in entries]
        return ids, [
            encode_body(each, id_, timestamp) for each, id_ in zip(entries, ids, strict=True)
        ]

    # `_recover`, `_append`, `_rotate` and `_report` run with the append lock held.

    def _recover(self, files: LedgerFiles, *, must_compare: bool = False) -> Mark:
        """Return the newest mark; if the file does not end there, find its end and truncate."""
        page = files.head.read()
        newest, durable = page.newest, page.durable
        self._verify_not_poisoned(files, durable)
        if page.base != files.active.base:
            # Another process sealed the segment that is open here.
            files.follow()
            must_compare = True
        if must_compare:
            verify_marks(files, page, self._boot)
        segment = files.active
        if (
            newest is None
            or durable is None
            or durable.is_poisoned
            or newest.boot != self._boot
            or (must_compare and not any(self._boot))
            or newest.offset_bytes < durable.offset_bytes
            or self._disk.stat(segment.descriptor).st_size + segment.base != newest.offset_bytes
        ):
            # Threat: under a replaced lock file another process may be writing what looks torn.
            files.verify_beside()
            end, size = find_tail(files, page, self._boot)
            if size > end.offset_bytes:
                quarantine(files, end, size)
            files.head.store_newest(end)
            return self._report(files, end)
        return newest

    def _append(
        self, files: LedgerFiles, before: Mark, bodies: Sequence[bytes], held: Reservation | None
    ) -> Mark:
        lines, after = chain(before, bodies)
        if after.offset_bytes > files.active.base + self._segment_bytes:
            self._rotate(files, before)
        segment = files.active
        put = (segment.descriptor, files.head, before.offset_bytes - segment.base, lines, after)
        try:
            put_lines(self._disk, *put)
        except OSError as fault:
            kept = held if isinstance(held, HeldReservation) else None
            if not is_full(fault) or kept is None or not kept.ballast.give_back(kept, to_disk=True):
                raise
            put_lines(self._disk, *put)
        files.written_bytes = after.offset_bytes
        # If synced bytes were cut off since, the bytes that replaced them are not synced.
        files.synced_bytes = min(files.synced_bytes, before.offset_bytes)
        return after

    def _rotate(self, files: LedgerFiles, newest: Mark) -> None:
        if newest.offset_bytes == files.active.base:
            return
        # Force `commit` to sync: a sealed file is never synced again.
        files.synced_bytes = 0
        try:
            self.commit(newest, files.active)
            files.rotate(newest.offset_bytes)
        except (LedgerFullError, OSError) as fault:
            if isinstance(fault, OSError) and not is_full(fault):
                raise
            # On a full disk, an entry in an oversized segment is better than no entry.
            files.follow()

    def _sync(self, files: LedgerFiles, mark: Mark, segment: Segment) -> None:
        with files.syncing:
            self._verify_not_poisoned(files, None)
            if segment.identity != files.active.identity:
                # It was synced before it was sealed; its sealed name proves that.
                files.verify_sealed(segment)
                return
            if mark.offset_bytes <= files.synced_bytes:
                return
            reached = max(files.written_bytes, mark.offset_bytes)
            try:
                self._disk.fdatasync(files.active.descriptor)
            except OSError as fault:
                files.is_poisoned = True
                with files.commit_lock, failing(_HEAD_FAILS, self.path):
                    files.head.poison(self._boot)
                raise self._failed(f": {fault.strerror}") from fault
            files.synced_bytes = reached

    def _verify_not_poisoned(self, files: LedgerFiles, durable: Mark | None) -> None:
        if files.is_poisoned or is_poisoned(durable, self._boot):
            raise self._failed("; entries are no longer acknowledged")

    def _failed(self, why: str) -> HostError:
        said = f"the disk failed to store ledger entries{why}"
        return HostError(said, where=ascii(self.path), hint=_HINT)

    def _report(self, files: LedgerFiles, mark: Mark) -> Mark:
        pieces = list_pending(self._disk, self._paths)
        if pieces:
            _, bodies = self._encode([entry for _, entry in pieces])
            mark = self._append(files, mark, bodies, None)
        # Bytes synced before may have been cut off, or another process wrote them.
        files.synced_bytes = 0
        self.commit(mark, files.active)
        if pieces:
            mark_reported(self._disk, self._paths, pieces)
        return mark
