"""After a crash: every set that somebody left half done is completed, or undone, as a whole.

Told by the entry's records, and by what stands under the temporary names:

    no commit record     it never happened: what was built is removed
    committed            completed, if everything that is left to do still finds what it
                         expects, and nothing was displaced that was not to be; else undone
    committed, undo      undone
    ended                what was displaced is removed

Undoing never takes away what somebody made since: such paths keep their newer content and are
named. Recovery may be killed, and is then done again. An entry that cannot be settled now stays.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Final

from msgspec import Struct

from paddock.errors import FileChangedError, PaddockError, PathError
from paddock.storage.disk import Disk, sync_file_systems
from paddock.storage.journal import Intent, Journal, JournalEntry, Step, UnclaimedEntry
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
_WAIT_S: Final = 2.0
"""For one lock: longer than a write holds it; opening a plane does not wait for a stuck one."""


class RecoveredSet(Enum):
    COMPLETED = "completed"
    UNDONE = "undone"
    NEVER_BEGUN = "never begun"
    ENDED = "ended"
    """It was complete, or undone, already; what it had displaced was left."""
    WAITING = "waiting"


class Recovered(Struct, frozen=True):
    entry: str
    root: str
    settled: RecoveredSet
    label: str = ""
    changed_since: tuple[WorkspacePath, ...] = ()
    """Paths that somebody changed after the crash, and that keep what they have now; and
    directories of the set that are not there any more."""
    why: str = ""

    @property
    def notice(self) -> str:
        came_to = "waits" if self.settled is RecoveredSet.WAITING else "left something"
        return f"a set of changes that was cut short {came_to}: {self.why}"


def recover(journal: Journal, disk: Disk, resolution: Resolution) -> tuple[Recovered, ...]:
    """Settle every set whose owner is dead; what each came to."""
    return tuple(_settle(entry, disk, resolution) for entry in journal.claim_dead())


def _settle(entry: JournalEntry | UnclaimedEntry, disk: Disk, resolution: Resolution) -> Recovered:
    if isinstance(entry, UnclaimedEntry):
        return Recovered(entry.name, "", RecoveredSet.WAITING, why=entry.why)
    try:
        entry.load()
        intent = entry.records.intent
        if intent is None:
            entry.abandon()
            return Recovered(entry.name, "", RecoveredSet.NEVER_BEGUN)
        return _in_root(entry, intent, disk, resolution)
    except (OSError, PaddockError) as failure:
        intent = entry.records.intent
        root, label = ("", "") if intent is None else (intent.root, intent.label)
        return Recovered(entry.name, root, RecoveredSet.WAITING, label, why=str(failure))


def _in_root(entry: JournalEntry, intent: Intent, disk: Disk, resolution: Resolution) -> Recovered:
    with ExitStack() as held:
        root_fd = os.open(intent.root, PASS_DIRECTORY | os.O_NOFOLLOW)
        held.callback(os.close, root_fd)
        if os.fstat(root_fd).st_ino != intent.root_inode:
            why = "another directory stands there now"
            return Recovered(entry.name, intent.root, RecoveredSet.WAITING, intent.label, why=why)
        if intent.beside is not None:
            second = intent.beside
            fd = os.open(second.root, PASS_DIRECTORY | os.O_NOFOLLOW)
            held.callback(os.close, fd)
            if os.fstat(fd).st_ino != second.root_inode:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), second.root)
            beside = Beside(second.name, second.root, fd)
            resolution = BesideResolution(resolution, root_fd, beside)
        there, gone = _standing(root_fd, resolution, intent)
        with locked(root_fd, resolution, *there, wait_s=_WAIT_S) as fds:
            recovery = _Recovery(entry, intent, disk, dict(zip(there, fds, strict=True)), gone)
            return recovery.run()


def _standing(
    root_fd: int, resolution: Resolution, intent: Intent
) -> tuple[list[WorkspacePath], list[WorkspacePath]]:
    """The directories of the set that are still there, and those that are gone.

    What is gone took its steps with it, also where a link stands now: it is not followed.
    """
    there: list[WorkspacePath] = []
    gone: list[WorkspacePath] = []
    for relative in intent.directories:
        path = unchecked_path(relative)
        try:
            os.close(resolution.open(root_fd, relative, PASS_DIRECTORY))
        except OSError as failure:
            if failure.errno not in _GONE:
                raise
            gone.append(path)
        else:
            there.append(path)
    return there, gone


class _Recovery(Struct, frozen=True):
    entry: JournalEntry
    intent: Intent
    disk: Disk
    fds: dict[WorkspacePath, int]
    gone: list[WorkspacePath]

    def run(self) -> Recovered:
        entry, intent, steps = self.entry, self.intent, self.entry.records.steps
        if steps is None:
            self._remove_temporaries()
            entry.forget()
            return Recovered(entry.name, intent.root, RecoveredSet.NEVER_BEGUN, intent.label)
        bound, changed_since = self._bind(steps), list(self.gone)
        settled, why = RecoveredSet.ENDED, ""
        if not entry.records.is_ended:
            if not entry.records.is_undone and completed(bound):
                settled = RecoveredSet.COMPLETED
            else:
                if not entry.records.is_undone:
                    entry.undo()
                settled = RecoveredSet.UNDONE
                changed_since += undo_all(bound)
            sync_file_systems(self.disk, self.fds.values())
            entry.end()
        if clean_all(entry, bound):
            entry.forget()
        else:
            why = left_note(intent.token)
        paths = tuple(changed_since)
        return Recovered(entry.name, intent.root, settled, intent.label, paths, why)

    def _bind(self, steps: Sequence[Step]) -> list[BoundStep]:
        bound: list[BoundStep] = []
        for step in steps:
            directory = unchecked_path(step.directory)
            if directory in self.fds:
                path = child_of(directory, step.name)
                bound.append(bind(self.disk, self.fds[directory], path, self.intent.token, step))
        return bound

    def _remove_temporaries(self) -> None:
        prefix = set_prefix(self.intent.token)
        for fd in self.fds.values():
            for name in os.listdir(fd):
                if name.startswith(prefix) and is_temporary_name(name):
                    remove_any(self.disk, fd, name)


def completed(bound: Sequence[BoundStep]) -> bool:
    """Do what is left to do, if all of it can be done."""
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
    """Remove what stands under the temporary names of an ended set; whether nothing is left."""
    is_undone = entry.records.is_undone
    try:
        cleaned = [step.clean(is_undone=is_undone) for step in bound]
    except (OSError, PathError):
        return False
    return all(cleaned)
