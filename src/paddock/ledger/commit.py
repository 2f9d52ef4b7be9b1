"""Group commit: one sync for everyone who waits.

As many appends as came until the last commit ended are expected for the next:
the last of them leads. It takes the commit lock, reads how far the ledger
reaches now, syncs once, and raises the commit mark for all. The others look at
the marks some times, and on a slow disk wait a little; then whoever finds the
lock free leads, for the rest may never come. A single writer always is the last.

Nothing is acknowledged without a look, later than the write, whether the ledger is in
its place. Between the sync and the mark the leader looks whether its files are those at
the ledger's paths, and the mark says which files it has found there. Who wrote to these
very files need not look again; everybody else does.

Where the lock is taken they sleep on the turn, a word in the head file, and say so
there before they look a last time. The leader looks whether somebody sleeps after
it has stored the mark and released the lock: either it finds that, changes the turn
and wakes them, or they find its mark. So one whose line came too late for the commit
finds the lock free. Queueing on the lock instead would wake one waiter per sync.

No sleep is long: a leader that is killed wakes nobody, and where the system has
no such sleep, looking again is all there is.

A failed sync is never tried again: the kernel may have dropped the pages and
called them clean, so that a second sync succeeds without having written
anything. The mark is poisoned for every process, until the machine starts anew
and the file is what the disk has kept.
"""

from typing import Final

from paddock.errors import HostError, PaddockError
from paddock.ledger.disk import Disk, Waiting, failure
from paddock.ledger.head import NOTHING_DURABLE, TURN_OFFSET, Commits, HeadFile, HeadPage, Mark
from paddock.ledger.lock import FileLock
from paddock.ledger.place import LedgerPlace
from paddock.ledger.segments import ActiveSegment, Segment
from paddock.ledger.yielding import Yielding

_POLL_MIN_S: Final = 50e-6
_POLL_MAX_S: Final = 1e-3
_POLLS_PER_SYNC: Final = 2
"""Without a bell. To look more often only costs processor time."""
_SLEEP_MIN_S: Final = 2e-3
_SLEEP_MAX_S: Final = 50e-3
_SYNCS_PER_SLEEP: Final = 4
"""What a killed leader costs those who wait."""
_LOOKS_MAX: Final = 250
"""At the marks, before a lead or a sleep."""
_PATIENCE_MIN_S: Final = 250e-6
_PATIENCE_MAX_S: Final = 1e-3
"""How long to wait for the rest before one leads without them: half a sync. Below the
least it is not worth a sleep."""
_LOOK: Final = 0
_WAIT: Final = 1
_LEAD: Final = 2
"""What one does in turn who is not the last, from each commit on."""
_TORN_READS_MAX: Final = 100
_HINT: Final = (
    "look at the disk; after a restart of the machine the ledger goes on from what it has kept"
)


class GroupCommit:
    """The commit phase of one open ledger."""

    __slots__ = (
        "_active",
        "_bell",
        "_disk",
        "_head",
        "_lock",
        "_place",
        "_waiting",
        "_yielding",
        "is_poisoned",
    )

    def __init__(
        self,
        disk: Disk,
        head: HeadFile,
        lock: FileLock,
        *,
        active: ActiveSegment,
        place: LedgerPlace,
        waiting: Waiting,
    ) -> None:
        self._disk = disk
        self._head = head
        self._lock = lock
        self._active = active
        self._place = place
        self._waiting = waiting
        self._yielding = Yielding(waiting.monotonic)
        self._bell = waiting.bell(head.descriptor, TURN_OFFSET)
        self.is_poisoned = False

    def wait_for(self, mark: Mark, segment: Segment) -> None:
        """Return when all before the mark's offset is on the disk, and the segment in its place.

        The mark is that of an append through this head file, to this segment. The look at
        the place is later than that append; it may be earlier than this call.

        Raises:
            LedgerBusyError: a leader is stopped; not within `commit_timeout_s`.
            LedgerDamagedError: the ledger was moved or replaced.
            HostError: the disk failed, here or in another process.
        """
        # Mostly what the append itself has read. What is old here costs a look in vain.
        commits = self._head.last_commits()
        if commits.durable is None:
            commits = self._head.read_commits(commits)
        commits = self._wait(commits, mark)
        # Threat: a leader that has other files open has looked at the places of those.
        if commits.files != self._place.files(segment):
            self._place.verify_besides(segment, commits.files)

    def is_durable(self, mark: Mark) -> bool:
        """Whether all before the mark is on the disk, by what the head file says now.

        Raises:
            HostError: the disk failed, here or in another process.
        """
        return self._covers(self._head.read_commits(self._head.last_commits()), mark)

    def _wait(self, commits: Commits, mark: Mark) -> Commits:
        """Return the commits that cover the mark: these, or later ones."""
        waiting = self._waiting
        deadline = waiting.monotonic() + waiting.commit_timeout_s
        left_s = waiting.commit_timeout_s
        stage = _LOOK
        while not self._covers(commits, mark):
            if left_s <= 0:
                raise self._lock.busy(waiting.commit_timeout_s)
            if self._may_lead(commits, mark, stage) and self._try_lead(mark):
                if self._head.has_sleepers():
                    self._wake_others()
                found = self._head.read_commits(commits)
                if not self._covers(found, mark):
                    raise self._changed()
            elif stage == _LOOK:
                found = self._look(commits)
            else:
                self._sleep(stage, commits, left_s)
                found = self._head.read_commits(commits)
            stage = _next_stage(stage, commits) if found is commits else _LOOK
            commits = found
            left_s = deadline - waiting.monotonic()
        return commits

    def _covers(self, commits: Commits, mark: Mark) -> bool:
        """Whether all before the mark is on the disk."""
        return self._known(commits.durable, mark.boot).offset_bytes >= mark.offset_bytes

    def _may_lead(self, commits: Commits, mark: Mark, stage: int) -> bool:
        """Whether the mark is the last one to come, or nobody else has led in time."""
        durable = self._known(commits.durable, mark.boot)
        return stage == _LEAD or mark.generation - durable.generation >= durable.cohort

    def _try_lead(self, mark: Mark) -> bool:
        """Have all up to the mark on the disk, unless somebody else is at it."""
        if not self._lock.try_acquire():
            return False
        try:
            self._lead(mark)
        except BaseException:
            self._lock.release()
            self._wake_others()
            raise
        self._lock.release()
        return True

    def sync(self, newest: Mark) -> None:
        """Sync at once and mark all up to `newest` as durable. The append lock is held."""
        self._lock.acquire()
        try:
            self._sync(newest, self._head.read())
        finally:
            self._lock.release()
            self._wake_others()

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
                where=ascii(self._place.path),
                hint=_HINT,
            )

    def _known(self, durable: Mark | None, boot: bytes) -> Mark:
        if durable is None or durable.is_poisoned or self.is_poisoned:
            self.verify_not_poisoned(durable, boot)
            if durable is None:
                raise self._changed()
        return durable

    def _look(self, before: Commits) -> Commits:
        """Look some times, or until somebody commits; what commits say then."""
        read_commits = self._head.read_commits
        found = before
        for _ in self._yielding.tries(_LOOKS_MAX):
            found = read_commits(before)
            if found is not before:
                break
        return found

    def _sleep(self, stage: int, commits: Commits, at_most_s: float) -> None:
        """Sleep until the turn is another one, or for a few syncs; for the rest, half a sync.

        Not at all where a commit ended before it was said that somebody sleeps: nobody
        would wake us for that one.
        """
        sync_s = _sync_s(commits)
        if stage == _WAIT:
            at_most_s = min(_patience_s(commits), at_most_s)
        if self._bell is not None:
            self._head.announce_sleeper()
            if self._head.read_commits(commits) is not commits:
                return
            bound_s = min(max(sync_s * _SYNCS_PER_SLEEP, _SLEEP_MIN_S), _SLEEP_MAX_S)
            try:
                self._bell.wait(commits.turn, min(bound_s, at_most_s))
            except OSError as fault:
                raise self._unusable(fault) from fault
        else:
            bound_s = min(max(sync_s / _POLLS_PER_SYNC, _POLL_MIN_S), _POLL_MAX_S)
            self._waiting.sleep(min(bound_s, at_most_s))

    def _wake_others(self) -> None:
        """End the sleep of all who wait for a commit.

        Whoever is about to sleep has read the turn before; it is another one now, so
        that they do not fall asleep after this either.
        """
        self._head.pass_turn()
        if self._bell is not None:
            try:
                self._bell.wake()
            except OSError as fault:
                raise self._unusable(fault) from fault

    def _unusable(self, fault: OSError) -> PaddockError:
        return failure(fault, "the ledger's head file cannot be waited on", self._head.path)

    def _changed(self) -> HostError:
        return HostError(
            "the ledger's head file was changed by something else while in use",
            where=ascii(self._head.path),
            hint="find what else writes there; whoever opens the ledger anew makes it whole",
        )

    def _lead(self, mine: Mark) -> None:
        page = self._head.read()
        durable = self._known(page.durable, mine.boot)
        if durable.offset_bytes >= mine.offset_bytes:
            return
        for _ in range(_TORN_READS_MAX):
            newest = page.newest
            if newest is not None and newest.offset_bytes >= mine.offset_bytes:
                self._sync(newest, page)
                return
            # Both slots were being written as we read. My own append's mark was
            # stored before I came here, so a whole one is there.
            page = self._head.read()
        raise self._changed()

    def _sync(self, newest: Mark, page: HeadPage) -> None:
        before = page.durable
        # What is not durable yet stands in the newest segment: none is sealed before.
        segment = self._active.current
        started = self._waiting.monotonic()
        try:
            self._disk.datasync(segment.descriptor)
        except OSError as fault:
            self._poison(newest, page)
            raise HostError(
                f"the disk failed to store ledger entries: {fault.strerror}",
                where=ascii(self._place.path),
                hint=_HINT,
            ) from fault
        took_ns = max(0, int((self._waiting.monotonic() - started) * 1e9))
        # Threat: a copy was put in our place, and what others append to it is not synced by us.
        self._place.verify(segment)
        if before is None:
            cohort = 1
        else:
            # Who came during the sync comes along in the next one, too.
            cohort = max(self._head.read_generation(), newest.generation) - before.generation
            took_ns = (3 * before.sync_ns + took_ns) // 4 if before.sync_ns else took_ns
        mark = Mark(*newest[:5], min(cohort, 0xFFFFFFFF), took_ns)
        self._head.store_durable(mark, page.durable_slot, self._place.files(segment))

    def _poison(self, newest: Mark, page: HeadPage) -> None:
        self.is_poisoned = True
        before = page.durable or NOTHING_DURABLE
        self._head.store_durable(
            before._replace(is_poisoned=True, boot=newest.boot), page.durable_slot
        )


def _next_stage(stage: int, commits: Commits) -> int:
    """What one does next who has looked, or waited, while nobody committed."""
    is_slow = stage == _LOOK and _patience_s(commits) >= _PATIENCE_MIN_S
    return _WAIT if is_slow else _LEAD


def _patience_s(commits: Commits) -> float:
    return min(_sync_s(commits) / 2, _PATIENCE_MAX_S)


def _sync_s(commits: Commits) -> float:
    return 0 if commits.durable is None else commits.durable.sync_ns / 1e9
