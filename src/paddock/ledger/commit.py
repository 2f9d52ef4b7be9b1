"""Group commit: one sync for everyone who waits.

Whoever waits and finds the commit lock free leads: it reads how far the ledger
reaches now, syncs once, and raises the commit mark for all. The others look at
the mark every half sync (more often only costs processor time). Where the last
commit served more than one append, the leader lingers for such an interval
first, so that more of them get in; a single writer never waits. Queueing on the
lock instead would wake one waiter per sync.

A failed sync is never tried again: the kernel may have dropped the pages and
called them clean, so that a second sync succeeds without having written
anything. The mark is poisoned for every process, until the machine starts anew
and the file is what the disk has kept.
"""

from typing import Final

from paddock.errors import HostError
from paddock.ledger.disk import Disk, Waiting
from paddock.ledger.head import NOTHING_DURABLE, HeadFile, HeadPage, Mark
from paddock.ledger.lock import FileLock

_POLL_MIN_S: Final = 50e-6
_POLL_MAX_S: Final = 1e-3
_POLLS_PER_SYNC: Final = 2
_TORN_READS_MAX: Final = 100
_HINT: Final = (
    "look at the disk; after a restart of the machine the ledger goes on from what it has kept"
)


class GroupCommit:
    """The commit phase of one open ledger."""

    __slots__ = ("_descriptor", "_disk", "_head", "_lock", "_path", "_waiting", "is_poisoned")

    def __init__(
        self,
        disk: Disk,
        head: HeadFile,
        lock: FileLock,
        *,
        descriptor: int,
        path: str,
        waiting: Waiting,
    ) -> None:
        self._disk = disk
        self._head = head
        self._lock = lock
        self._descriptor = descriptor
        self._path = path
        self._waiting = waiting
        self.is_poisoned = False

    def wait_for(self, mark: Mark) -> None:
        """Return when all before the mark's offset is on the disk.

        Raises:
            LedgerBusyError: a leader is stopped; not within `commit_timeout_s`.
            HostError: the disk failed, here or in another process.
        """
        deadline = None
        while True:
            page = self._head.read()
            durable = self._known(page, mark.boot)
            if durable.offset_bytes >= mark.offset_bytes:
                return
            if self._lock.try_acquire():
                try:
                    self._lead(mark)
                finally:
                    self._lock.release()
                return
            now = self._waiting.monotonic()
            if deadline is None:
                deadline = now + self._waiting.commit_timeout_s
            elif now >= deadline:
                raise self._lock.busy(self._waiting.commit_timeout_s)
            self._waiting.sleep(_poll_s(durable))

    def sync(self, newest: Mark) -> None:
        """Sync at once and mark all up to `newest` as durable. The append lock is held."""
        self._lock.acquire()
        try:
            self._sync(newest, self._head.read())
        finally:
            self._lock.release()

    def is_poisoned_by(self, durable: Mark | None, boot: bytes) -> bool:
        """Whether the disk failed since this machine started, here or in another process."""
        return self.is_poisoned or (
            durable is not None and durable.is_poisoned and durable.boot == boot
        )

    def verify_not_poisoned(self, durable: Mark | None, boot: bytes) -> None:
        """Refuse to go on after a failed sync.

        Raises:
            HostError: the disk failed since this machine started.
        """
        if self.is_poisoned_by(durable, boot):
            raise HostError(
                "the disk failed to store ledger entries; nothing is acknowledged any more",
                where=ascii(self._path),
                hint=_HINT,
            )

    def _known(self, page: HeadPage, boot: bytes) -> Mark:
        durable = page.durable
        self.verify_not_poisoned(durable, boot)
        if durable is None:
            raise HostError(
                "the ledger's head file was cleared while in use", where=ascii(self._path)
            )
        return durable

    def _lead(self, mine: Mark) -> None:
        page = self._head.read()
        durable = self._known(page, mine.boot)
        if durable.offset_bytes >= mine.offset_bytes:
            return
        if durable.cohort > 1:
            self._waiting.sleep(_poll_s(durable))
            page = self._head.read()
        for _ in range(_TORN_READS_MAX):
            newest = page.newest
            if newest is not None and newest.offset_bytes >= mine.offset_bytes:
                self._sync(newest, page)
                return
            # Both slots were being written as we read. My own append's mark was
            # stored before I came here, so a whole one is there.
            page = self._head.read()
        raise HostError("the ledger's head file was cleared while in use", where=ascii(self._path))

    def _sync(self, newest: Mark, page: HeadPage) -> None:
        before = page.durable
        started = self._waiting.monotonic()
        try:
            self._disk.datasync(self._descriptor)
        except OSError as fault:
            self._poison(newest, page)
            raise HostError(
                f"the disk failed to store ledger entries: {fault.strerror}",
                where=ascii(self._path),
                hint=_HINT,
            ) from fault
        took_ns = max(0, int((self._waiting.monotonic() - started) * 1e9))
        if before is None:
            cohort = 1
        else:
            cohort = newest.generation - before.generation
            took_ns = (3 * before.sync_ns + took_ns) // 4 if before.sync_ns else took_ns
        mark = newest._replace(cohort=min(cohort, 0xFFFFFFFF), sync_ns=took_ns)
        self._head.store_durable(mark, page.durable_slot)

    def _poison(self, newest: Mark, page: HeadPage) -> None:
        self.is_poisoned = True
        before = page.durable or NOTHING_DURABLE
        self._head.store_durable(
            before._replace(is_poisoned=True, boot=newest.boot), page.durable_slot
        )


def _poll_s(durable: Mark) -> float:
    return min(max(durable.sync_ns / 1e9 / _POLLS_PER_SYNC, _POLL_MIN_S), _POLL_MAX_S)
