"""After a crash: every set that somebody left half done is completed, or undone, as a whole.

Told by the entry's records, and by what stands under the temporary names:

    no commit record     it never happened: what was built is removed
    committed            completed, if everything that is left to do still finds what it
                         expects, and nothing was displaced that was not to be; else undone
    committed, undo      undone
    ended                what was displaced is removed

Undoing never takes away what somebody made since: such paths keep their newer content and are
named. An entry that cannot be settled now stays.
"""

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import FileChangedError, HostError, PaddockError, PathError
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk, sync_file_systems
from paddock.storage.journal import Intent, Journal, JournalEntry, UnclaimedEntry
from paddock.workspace.exchange import BoundStep, bind, remove_any
from paddock.workspace.paths import (
    WorkspacePath,
    child_of,
    is_temporary_name,
    set_prefix,
    unchecked_path,
)
from paddock.workspace.places import locked
from paddock.workspace.resolve import PASS_DIRECTORY, Beside, BesideResolution, Resolution

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_WAIT_S: Final = 2.0  # for one lock: longer than a write holds it


class RecoveredSet(Enum):
    COMPLETED = "completed"
    UNDONE = "undone"
    NEVER_BEGUN = "never begun"
    ENDED = "ended"  # already; what it had displaced was left
    WAITING = "waiting"


class Recovered(Struct, frozen=True):
    entry: str
    root: str
    settled: RecoveredSet
    label: str = ""
    # By somebody after the crash; they keep what they have now. And directories that are gone.
    changed_since: tuple[WorkspacePath, ...] = ()
    why: str = ""

    @property
    def notice(self) -> str:
        came_to = "waits" if self.settled is RecoveredSet.WAITING else "left something"
        return f"a set of changes that was cut short {came_to}: {self.why}"


def recover(journal: Journal, disk: Disk, resolution: Resolution) -> tuple[Recovered, ...]:
    return tuple(_settle(entry, disk, resolution) for entry in journal.claim_dead())


def _settle(entry: JournalEntry | UnclaimedEntry, disk: Disk, resolution: Resolution) -> Recovered:
    found = Recovered(entry.name, "", RecoveredSet.WAITING)
    if isinstance(entry, UnclaimedEntry):
        return replace(found, why=entry.why)
    try:
        entry.load()
        intent = entry.records.intent
        if intent is None:
            entry.abandon()
            return replace(found, settled=RecoveredSet.NEVER_BEGUN)
        found = replace(found, root=intent.root, label=intent.label)
        with ExitStack() as held:
            root_fd = held.enter_context(_open_root(intent.root, intent.root_inode))
            if intent.beside is not None:
                second = intent.beside
                fd = held.enter_context(_open_root(second.root, second.root_inode))
                beside = Beside(second.name, second.root, fd)
                resolution = BesideResolution(resolution, root_fd, beside)
            paths = [unchecked_path(each) for each in intent.directories]
            there = [p for p in paths if _is_there(root_fd, resolution, p.relative)]
            locks = held.enter_context(locked(root_fd, resolution, *there, wait_s=_WAIT_S))
            fds = dict(zip(there, locks, strict=True))
            gone = tuple([path for path in paths if path not in fds])
            return _settle_under_locks(found, entry, disk, fds, gone)
    except (OSError, PaddockError) as failure:
        return replace(found, why=str(failure))


@contextmanager
def _open_root(path: str, inode: int) -> Generator[int]:
    with held_open(os.open(path, PASS_DIRECTORY | os.O_NOFOLLOW)) as fd:
        if os.fstat(fd).st_ino != inode:
            raise HostError(f"another directory stands at {path} now")
        yield fd


def _is_there(root_fd: int, resolution: Resolution, directory: str) -> bool:
    # What is gone took its steps with it, also where a link stands now: it is not followed.
    try:
        os.close(resolution.open(root_fd, directory, PASS_DIRECTORY))
    except OSError as failure:
        if failure.errno not in _GONE:
            raise
        return False
    return True


def _settle_under_locks(
    found: Recovered,
    entry: JournalEntry,
    disk: Disk,
    fds: dict[WorkspacePath, int],
    changed_since: tuple[WorkspacePath, ...],
) -> Recovered:
    token, steps = cast("Intent", entry.records.intent).token, entry.records.steps
    if steps is None:
        for fd in fds.values():
            for name in filter(is_temporary_name, os.listdir(fd)):
                if name.startswith(set_prefix(token)):
                    remove_any(disk, fd, name)
        entry.forget()
        return replace(found, settled=RecoveredSet.NEVER_BEGUN)
    bound: list[BoundStep] = []
    for step in steps:
        directory = unchecked_path(step.directory)
        if directory in fds:
            bound.append(bind(disk, fds[directory], child_of(directory, step.name), token, step))
    settled = RecoveredSet.ENDED
    if not entry.records.is_ended:
        if not entry.records.is_undone and completed(bound):
            settled = RecoveredSet.COMPLETED
        else:
            if not entry.records.is_undone:
                entry.undo()
            settled = RecoveredSet.UNDONE
            changed_since += tuple(undo_all(bound))
        sync_file_systems(disk, fds.values())
        entry.end()
    why = "" if clean_all(entry, bound) else left_note(token)
    return replace(found, settled=settled, changed_since=changed_since, why=why)


def completed(bound: Sequence[BoundStep]) -> bool:
    if not all(step.was_right() for step in bound if step.is_done()):
        return False
    try:
        for step in bound:
            if not step.is_done():
                step.do()
    except FileChangedError:
        return False
    return True


def undo_all(bound: Sequence[BoundStep]) -> list[WorkspacePath]:
    return [step.path for step in reversed(bound) if not step.undo()]


def left_note(token: str) -> str:
    return (
        "something that the change took away was changed meanwhile, or cannot be removed: it "
        f"stays beside its old place, under a name that begins with {set_prefix(token)}"
    )


def clean_all(entry: JournalEntry, bound: Sequence[BoundStep]) -> bool:
    """Remove what an ended set left, then its entry; else the next recovery tries again."""
    is_undone = entry.records.is_undone
    try:
        cleaned = [step.clean(is_undone=is_undone) for step in bound]
    except (OSError, PathError):
        return False
    if all(cleaned):
        entry.forget()
    return all(cleaned)
