"""LedgerFile: append entries to one JSONL file, from many threads and processes.

The sequence of an append, and why:

  1. encode the entries: outside the lock, as this takes longest;
  2. thread lock, then flock(2);
  3. read the newest mark; if the file does not end there, recover (recovery.py);
  4. chain the lines; where the file would become too long, go on in a new
     segment (segments.py); hand all of them to one write(2);
  5. store the new mark into the other slot; a kill between 4 and 5 leaves whole
     lines, which the next append adopts;
  6. unlock;
  7. group commit (commit.py), with a look whether the path still leads here.

A failure at 4 cuts the file back. One at 5 leaves the lines, whether or not the mark was
stored: recovery is right in both cases. Either way the entries are not acknowledged.
"""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Self

from paddock import limits
from paddock.errors import HostError, LedgerFullError
from paddock.ledger.create import LedgerFiles, open_files
from paddock.ledger.disk import Disk, SystemDisk, Waiting, failure, is_full
from paddock.ledger.format.encoding import (
    ID_BYTES,
    EntryRefusedError,
    chain_lines,
    encode_body,
    format_id,
    format_timestamp,
)
from paddock.ledger.format.genesis import Genesis
from paddock.ledger.head import HeadPage, Mark, make_mark
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.pending import PendingEntries
from paddock.ledger.ports import Head, Receipt, Reservation
from paddock.ledger.recovery import find_tail, list_pending, quarantine, settle, verify_marks
from paddock.ledger.reserve import Held
from paddock.ledger.segments import Segment
from paddock.ledger.stamps import Stamps
from paddock.values.entries import Entry


class LedgerFile:
    """One open ledger. Threads may share it; a forked child opens its files anew."""

    def __init__(
        self,
        paths: LedgerPaths,
        files: LedgerFiles,
        *,
        clock: Callable[[], float],
        randomness: Callable[[int], bytes],
        waiting: Waiting,
        segment_bytes: int,
    ) -> None:
        """Use `open`."""
        self._segment_bytes = segment_bytes
        self._paths = paths
        self._files: LedgerFiles | None = files
        self._disk = files.disk
        self._size = files.disk.size
        self._stamps = Stamps(clock, randomness)
        self._waiting = waiting
        self._boot = files.disk.boot()
        self._is_closed = False
        self._reopening = threading.Lock()
        self.genesis = files.genesis
        _open_ledgers.add(self)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        create: Genesis | None,
        clock: Callable[[], float],
        randomness: Callable[[int], bytes],
        disk: Disk | None = None,
        waiting: Waiting | None = None,
        segment_bytes: int = limits.ledger_segment_bytes,
    ) -> Self:
        """Open a ledger; make it from `create` where there is none.

        `clock` gives seconds since 1970, `randomness` so many random bytes.
        `segment_bytes`: where one file is full and the next one begins. A torn end is
        recovered here. The ledger that is there keeps its own GENESIS: compare `genesis`
        where that matters.

        Raises:
            HostError: no ledger and no `create`; a network file system; a
                format that is not known; the disk failed.
            LedgerDamagedError: what stands in the file is not what was written.
            LedgerBusyError: another process holds the lock.
            LedgerFullError: no space to make or recover it.
        """
        disk, waiting, paths = disk or SystemDisk(), waiting or Waiting(), LedgerPaths(path)
        first_body = None
        if create is not None:
            first_body = encode_body(
                create.entry(), format_id(randomness(ID_BYTES)), format_timestamp(clock())
            )
        files = open_files(disk, paths, waiting, first_body)
        ledger = cls(
            paths,
            files,
            clock=clock,
            randomness=randomness,
            waiting=waiting,
            segment_bytes=segment_bytes,
        )
        try:
            ledger._settle_at_open(files)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def path(self) -> str:
        """The JSONL file."""
        return self._paths.ledger

    @property
    def is_poisoned(self) -> bool:
        """Whether the disk failed to make entries durable: nothing is acknowledged any more."""
        files = self._live()
        return files.commit.is_poisoned_by(files.head.read().durable, self._boot)

    @property
    def head(self) -> Head:
        """The newest entry of any process."""
        newest, _ = self.look()
        return Head(newest.entries - 1, newest.leaf)

    def append(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> Receipt:
        """Write entries next to each other, in order, and return when they are durable.

        Raises as `write` and `Pending.wait` do (ports.py).
        """
        return self.write(entries, reservation=reservation).wait_at_once()

    def write(
        self, entries: Sequence[Entry], *, reservation: Reservation | None = None
    ) -> PendingEntries:
        """Write entries; `wait()` of the answer makes them durable. See `ports.Ledger`."""
        files = self._files or self._live()
        ids, bodies = self._encode(entries)
        files.lock.acquire()
        try:
            after = self._append(files, self._newest(files), bodies, reservation)
            segment = files.active.current
        except OSError as fault:
            raise failure(fault, "the ledger cannot be written", self.path) from fault
        finally:
            files.lock.release()
        if reservation is not None:
            reservation.release()
        return PendingEntries(self, tuple(ids), after, segment)

    def reserve(self, size_bytes: int) -> Held:
        """Keep space for entries of so many bytes, so that a full disk cannot stop them.

        Raises:
            LedgerFullError: there is not so much space.
        """
        return self._live().ballast.reserve(size_bytes)

    def close(self) -> None:
        """Release descriptors and reservations. A second call does nothing."""
        files, self._files, self._is_closed = self._files, None, True
        if files is not None:
            files.close()

    def commit(self, mark: Mark, segment: Segment) -> None:
        """Return when all before a mark of this writer is durable, and its segment in place."""
        self.commit_at_once(mark, segment)
        # Whoever led may have looked long before this was called.
        self._live().place.verify(segment)

    def commit_at_once(self, mark: Mark, segment: Segment) -> None:
        """As `commit`, right after the write: a look of whoever led is later than that."""
        files = self._files or self._live()
        files.commit.wait_for(mark, segment)

    def settle(self) -> None:
        """Return when all that anybody has written so far is durable, and in its place.

        Where it was durable before, it may be that the files were copied since: which ones
        the commit's mark names is no matter then.

        Raises as `write` and `Pending.wait` do (ports.py).
        """
        newest, segment = self.look()
        files = self._live()
        if not files.commit.is_durable(newest):
            files.commit.wait_for(newest, segment)
        files.place.verify(segment)

    def forget_files(self) -> None:
        """Let go of files that a fork has copied: a lock belongs to the description, not to us."""
        files, self._files = self._files, None
        self._reopening = threading.Lock()
        self._stamps.forget()
        if files is not None:
            files.close()

    def _live(self) -> LedgerFiles:
        """The open files; after a fork, files of our own."""
        if self._is_closed:
            raise HostError("the ledger was closed", where=ascii(self.path))
        with self._reopening:
            if self._files is None:
                self._files = open_files(self._disk, self._paths, self._waiting, None)
            return self._files

    def _encode(self, entries: Sequence[Entry]) -> tuple[list[str], list[bytes]]:
        """Bodies with ids and one timestamp: the entries of one write happen together."""
        if not 0 < len(entries) <= limits.ledger_batch_entries_max:
            raise EntryRefusedError(
                f"{len(entries)} entries in one append; "
                f"from 1 to {limits.ledger_batch_entries_max} can be"
            )
        stamps = self._stamps
        timestamp = stamps.time()
        ids = stamps.ids(len(entries))
        return ids, list(map(encode_body, entries, ids, repeat(timestamp)))

    def look(self) -> tuple[Mark, Segment]:
        """The newest mark, durable or not, and the segment that it stands in."""
        files = self._live()
        files.lock.acquire()
        try:
            return self._newest(files), files.active.current
        except OSError as fault:
            raise failure(fault, "the ledger cannot be read", self.path) from fault
        finally:
            files.lock.release()

    def _newest(self, files: LedgerFiles) -> Mark:
        """The mark to append after. The lock is held."""
        page = files.head.read()
        newest, durable, _, _, base = page
        if base != files.active.current.base:
            # Another process has sealed the segment that is open here.
            files.commit.verify_not_poisoned(durable, self._boot)
            self._verify_marks(files, page)
        segment = files.active.current
        if (
            newest is None
            or durable is None
            or durable.is_poisoned
            or files.commit.is_poisoned
            or newest.boot != self._boot
            or newest.offset_bytes < durable.offset_bytes
            or self._size(segment.descriptor) + segment.base != newest.offset_bytes
        ):
            files.commit.verify_not_poisoned(durable, self._boot)
            return self._recover(files, page)
        return newest

    def _append(
        self,
        files: LedgerFiles,
        before: Mark,
        bodies: Sequence[bytes],
        reservation: Reservation | None = None,
    ) -> Mark:
        """Chain, write, mark. The lock is held."""
        generation, seq, offset, leaf, boot, *_ = before
        data, leaf = chain_lines(bodies, seq, leaf)
        if offset + len(data) > files.active.current.base + self._segment_bytes:
            self._rotate(files, before)
        try:
            self._put(files, data, offset)
        except LedgerFullError:
            if not isinstance(reservation, Held) or not reservation.release_to_disk():
                raise
            self._put(files, data, offset)
        after = make_mark(generation + 1, seq + len(bodies), offset + len(data), leaf, boot)
        files.head.store_newest(after)
        return after

    def _rotate(self, files: LedgerFiles, newest: Mark) -> None:
        """Go on in a new segment, unless this one is empty. The lock is held."""
        if newest.offset_bytes == files.active.current.base:
            return
        try:
            files.commit.sync(newest)
            files.active.rotate(files.head, newest.offset_bytes)
        except LedgerFullError:
            self._stay(files)
        except OSError as fault:
            if not is_full(fault):
                raise
            self._stay(files)

    def _stay(self, files: LedgerFiles) -> None:
        """Where the disk is full, an entry in a segment that is too long beats no entry."""
        files.active.follow(files.head)

    def _put(self, files: LedgerFiles, data: bytes, offset: int) -> None:
        """One write; what it leaves unfinished is finished, or the file is cut back."""
        try:
            written = self._disk.append(files.active.current.descriptor, data)
            while written < len(data):
                written += self._disk.append(files.active.current.descriptor, data[written:])
        except OSError as fault:
            self._cut_back(files, offset)
            raise failure(fault, "the ledger cannot be written", self.path) from fault
        except BaseException:
            self._cut_back(files, offset)
            raise

    def _cut_back(self, files: LedgerFiles, offset: int) -> None:
        """Take back a write that was not finished."""
        try:
            segment = files.active.current
            self._disk.truncate(segment.descriptor, offset - segment.base)
        except OSError as fault:
            # The next append finds the end in the wrong place, and recovers.
            raise failure(fault, "a half-written entry cannot be cut off", self.path) from fault

    def _recover(self, files: LedgerFiles, page: HeadPage) -> Mark:
        """Find the end, put a torn tail aside, record that, sync. The lock is held."""
        files.place.verify_beside()  # or it may be on its way, by a holder of another lock
        text = files.active.text()
        try:
            tail = find_tail(text, page, self._boot, self.path)
        finally:
            text.close()
        if tail.torn_bytes:
            quarantine(self._disk, files.active.current, self._paths, tail)
        files.head.store_newest(tail.mark)
        return self._report(files, tail.mark)

    def _report(self, files: LedgerFiles, mark: Mark) -> Mark:
        """Record every quarantined piece that has no entry yet; make the ledger durable."""
        pieces = list_pending(self._disk, self._paths)
        if pieces:
            _, bodies = self._encode([piece.entry() for piece in pieces])
            mark = self._append(files, mark, bodies)
        files.commit.sync(mark)
        if pieces:
            settle(self._disk, self._paths, pieces)
        return mark

    def _verify_marks(self, files: LedgerFiles, page: HeadPage) -> None:
        """Compare the marks with the segments that there are by now. The lock is held."""
        if page.base != files.active.current.base:
            files.active.follow(files.head)
        text = files.active.text()
        try:
            verify_marks(text, page, self._boot, self.path)
        finally:
            text.close()

    def _settle_at_open(self, files: LedgerFiles) -> None:
        files.lock.acquire()
        try:
            page = files.head.read()
            if files.commit.is_poisoned_by(page.durable, self._boot):
                return
            self._verify_marks(files, page)
            newest = self._newest(files) if any(self._boot) else self._recover(files, page)
            if list_pending(self._disk, self._paths):
                self._report(files, newest)
        except OSError as fault:
            raise failure(fault, "the ledger cannot be opened", self.path) from fault
        finally:
            files.lock.release()


_open_ledgers: "weakref.WeakSet[LedgerFile]" = weakref.WeakSet()


def _forget_after_fork() -> None:
    for ledger in list(_open_ledgers):
        ledger.forget_files()


os.register_at_fork(after_in_child=_forget_after_fork)
