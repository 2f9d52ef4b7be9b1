"""Commit a set of changes: all of them, or none.

    lock the directories in a fixed order → inspect every path, store what will be replaced
    → journal: intent → build new entries under temporary names → sync each file system once
    → journal: commit                              ← from here on, the whole set happens, or
    → exchange name by name, and check what          nothing if another process interferes
      was displaced → sync each once → journal: end
    → remove what was displaced → forget the journal entry

Directories are opened without following links, held, and must still be in place at the end.
After a kill at any moment, the next process to open the journal settles the set; see `recover`.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import errors
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk, digest_of_file, sync_file_systems
from paddock.storage.history import History, current_call
from paddock.storage.journal import (
    EndRecord,
    Intent,
    Journal,
    JournalEntry,
    Metadata,
    MetadataStep,
    SecondRoot,
    Step,
    SwapStep,
    UnclaimedEntry,
    UndoRecord,
)
from paddock.storage.locks import identity_of
from paddock.storage.objects import ObjectStore
from paddock.workspace import changes, paths
from paddock.workspace.changes import ChangedPath, ChangeReceipt, EntryState, Phases
from paddock.workspace.draft import Drafts
from paddock.workspace.exchange import BoundStep, Marked, bind, marked, reading, remove_any
from paddock.workspace.failures import changed, conflict, converting
from paddock.workspace.metadata import NINE_BITS, FileStatus, require_writable, status_at
from paddock.workspace.paths import WorkspacePath
from paddock.workspace.targets import OpenAt, is_still_there, locked
from paddock.workspace.workspace import (
    PASS_DIRECTORY,
    Beside,
    BesideResolution,
    Resolution,
    Workspace,
    without_beside,
)

_ALL_BITS: Final = 0o7777
_TOKEN_CHARS: Final = 24
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_WAIT_S: Final = 2.0  # for one lock: longer than a write holds it
_Bound = Sequence[BoundStep]
_Witness = Callable[[Sequence[ChangedPath]], object]
_OfEntry = changes.Creation | changes.RemoveFile | changes.SetMetadata
_States = dict[WorkspacePath, EntryState]
_Statuses = dict[WorkspacePath, FileStatus]
_Marks = dict[WorkspacePath, Marked]


def commit_changes(
    workspace: Workspace,
    phases: Phases,
    objects: ObjectStore,
    journal: Journal,
    *,
    label: str = "",
    witness: _Witness | None = None,
    condition: changes.Condition | None = None,
) -> ChangeReceipt:
    # `label` names the set after a kill. `witness` gets every path before any changes.
    # Raises: as `write_file` (FileChangedError: not what the set expects), and as `witness` and
    # `condition` do: then nothing has changed; HostError: also if the set could not be rolled
    # back, which is then left to recovery.
    recover(journal, workspace.disk, without_beside(workspace.resolution))
    plan = changes.plan_changes(phases)
    named = plan.directories()
    if not named:
        return ChangeReceipt(())
    if condition is not None:
        named = tuple(dict.fromkeys((*named, *condition.directories())))
    with converting(named[0], "write"), locked(workspace.open_at, *named) as fds, objects.held():
        if condition is not None:
            condition.verify()
        inspected = _Inspection(plan, dict(zip(named, fds, strict=True)), objects)
        try:
            inspected.inspect()
        finally:
            objects.sync()  # also for a refused set: until then the store cannot be pruned
        entry = journal.new_entry()
        drafts = Drafts(workspace.disk, objects)
        try:
            token = entry.name[:_TOKEN_CHARS]
            return _Commit(workspace, inspected, entry, drafts, token).run(label, witness)
        finally:
            entry.release()


def note_changes(history: History, rows: Sequence[ChangedPath]) -> None:
    # In one sync, so that a killed call is found and undone.
    running = current_call()
    doings = [doing for row in rows if (doing := changes.doing_of_path(row)) is not None]
    if running is not None and doings:
        history.note_all(running, doings)


# Check first that every path is as the set expects. Only the store changes: it gets what will be
# replaced.


class _Inspection(Struct):
    plan: changes.ChangePlan
    fds: dict[WorkspacePath, int]
    objects: ObjectStore
    before: _States = field(default_factory=_States)
    found: _Statuses = field(default_factory=_Statuses)
    marks: _Marks = field(default_factory=_Marks)
    kept: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    conflicts: list[WorkspacePath] = field(default_factory=list[WorkspacePath])

    def inspect(self) -> None:
        for act in (*self.plan.swaps, *self.plan.metadata):
            dir_fd = self.fds[act.path.parent]
            with converting(act.path, "inspect"):
                status = status_at(dir_fd, act.path.name)
                if isinstance(act, changes.SwapPlan):
                    self._swap(act, dir_fd, status)
                elif status is None:
                    self.conflicts.append(act.path)
                else:
                    self.found[act.path] = status
                    self._entry(act, dir_fd, status)
        if self.conflicts:
            raise conflict(self.conflicts)

    def _swap(self, plan: changes.SwapPlan, dir_fd: int, status: FileStatus | None) -> None:
        path, change = plan.path, None if plan.created is None else plan.created.change
        is_new = plan.removed is None and (change is None or isinstance(change.old, changes.Absent))
        if status is None or is_new:
            if is_new is not (status is None):
                self.conflicts.append(path)
            return
        # Marked before it is inspected: a later change does not match the mark.
        self.found[path], self.marks[path] = status, marked(dir_fd, path, status)
        if plan.removed is not None:
            self._branch(plan.removed, dir_fd, status)
        elif change is not None:
            self._entry(change, dir_fd, status)

    def _branch(self, branch: changes.RemovedBranch, dir_fd: int, status: FileStatus) -> None:
        change, path = branch.change, branch.change.path
        if isinstance(change, changes.RemoveFile):
            self._entry(change, dir_fd, status)
            return
        if not status.is_directory or (change.old is not None and not _fits(change.old, status)):
            self.conflicts.append(path)
            return
        self.before[path] = changes.state_of(status, None)
        expected = {child.change.path.name: child for child in branch.children}
        with reading(dir_fd, path.name, path) as (fd, names):
            # Threat: a file created meanwhile would be removed with the directory.
            odd = expected.keys() ^ set(names)
            self.conflicts.extend(paths.child_of(path, name) for name in odd)
            for child in (expected[name] for name in names if name in expected):
                found = status_at(fd, child.change.path.name)
                if found is None:
                    self.conflicts.append(child.change.path)
                    continue
                self._branch(child, fd, found)

    def _entry(self, change: _OfEntry, dir_fd: int, status: FileStatus) -> None:
        path, old, keeps = change.path, change.old, False
        if not isinstance(change, changes.SetMetadata):
            if status.is_directory:
                self.conflicts.append(path)
                return
            if status.is_regular and not change.overrides_read_only:
                require_writable(path, status, dir_fd)
            keeps = change.keeps_old
        elif status.is_link:
            raise errors.PathNotAFileError(
                f"{path.shown} is a link, which has no permissions", hint="change its target"
            )
        version = None if isinstance(old, changes.Absent) else old.version
        read = None if version is None else digest_of_file
        if keeps and status.is_regular:
            read = self._keep
            self.kept.add(path)
        state = self.before[path] = changes.state_at(path, dir_fd, status, read)
        if state.link_text is not None:
            self.objects.put_bytes(os.fsencode(state.link_text))
        is_expected = version in (None, state.version)
        if not is_expected or (isinstance(old, changes.Seen) and not _fits(old, status)):
            self.conflicts.append(path)

    def _keep(self, fd: int, _: int) -> str:
        return self.objects.put_file(fd)

    def rows(self, after: _States) -> tuple[ChangedPath, ...]:
        before, kept = self.before, self.kept
        names = sorted(before.keys() | after.keys(), key=lambda path: path.in_bytes)
        return tuple([ChangedPath(p, before.get(p), after.get(p), p in kept) for p in names])


def _fits(old: changes.Seen, status: FileStatus) -> bool:
    seen, counts = old.status, 2 if status.is_directory else 4
    is_same = seen.content_mark[:counts] == status.content_mark[:counts]
    return is_same and seen.mode == status.mode


class _Commit(Struct):
    workspace: Workspace
    inspected: _Inspection
    entry: JournalEntry
    drafts: Drafts
    token: str

    def run(self, label: str, witness: _Witness | None) -> ChangeReceipt:
        entry, inspected = self.entry, self.inspected
        try:
            entry.record(self._intent(label))
            bound = [self._swap(number, swap) for number, swap in enumerate(inspected.plan.swaps)]
            bound += map(self._metadata, inspected.plan.metadata)
            rows = inspected.rows(self.drafts.after)
            if witness is not None:
                witness(rows)
            self._sync()
            entry.commit(tuple(step.step for step in bound))
        except BaseException:
            # Recovery removes what cannot be removed now.
            with suppress(OSError, errors.PaddockError):
                _remove_built(self.workspace.disk, inspected.fds.values(), self.token)
                entry.abandon()
            raise
        try:
            for step in bound:
                with converting(step.path, "write"):
                    step.do()
            self._require_directories_in_place()
            self._sync()
        except BaseException as failure:
            self._roll_back(bound, failure)
            raise
        # If the entry cannot be ended, displaced entries stay until recovery has ended it.
        with suppress(errors.PaddockError):
            entry.record(EndRecord())
            self.drafts.notes.extend(clean_all(entry, bound))
        return ChangeReceipt(rows, tuple(self.drafts.notes))

    def _intent(self, label: str) -> Intent:
        root, inode = self.workspace.real_root, os.fstat(self.workspace.root_fd).st_ino
        beside, second = self.workspace.resolution.beside, None
        if beside is not None:
            second = SecondRoot(beside.name, beside.real_root, os.fstat(beside.fd).st_ino)
        directories = tuple(path.relative for path in self.inspected.fds)
        return Intent(root, inode, self.token, directories, label, second)

    def _bind(self, path: WorkspacePath, step: Step, times: str = "") -> BoundStep:
        dir_fd = self.inspected.fds[path.parent]
        return bind(self.workspace.disk, dir_fd, path, self.token, step, times)

    def _swap(self, number: int, swap: changes.SwapPlan) -> BoundStep:
        path, new, inspected = swap.path, None, self.inspected
        old, times = inspected.marks.get(path, (None, ""))
        if swap.created is not None:
            dir_fd, draft = inspected.fds[path.parent], paths.set_name(self.token, 2 * number)
            status = self.drafts.build(swap.created, dir_fd, draft, inspected.found.get(path))
            with converting(path, "write"):
                new, _ = marked(dir_fd, path, status, draft)
        step = SwapStep(path.parent.relative, path.name, number, old, new)
        return self._bind(path, step, times)

    def _metadata(self, change: changes.SetMetadata) -> BoundStep:
        path, status = change.path, self.inspected.found[change.path]
        mode = old_mode = status.mode & _ALL_BITS
        if change.mode is not None:
            mode = old_mode & ~NINE_BITS | change.mode & NINE_BITS
        times = None, None
        if change.modified_ns is not None and status.is_regular:
            times = status.modified_ns, change.modified_ns
        old, new = Metadata(old_mode, times[0]), Metadata(mode, times[1])
        self.drafts.after[path] = replace(self.inspected.before[path], mode=mode & NINE_BITS)
        step = MetadataStep(path.parent.relative, path.name, status.inode, old, new)
        return self._bind(path, step)

    def _sync(self) -> None:
        with converting(paths.ROOT, "write"):
            sync_file_systems(self.workspace.disk, self.inspected.fds.values())

    def _require_directories_in_place(self) -> None:
        # Threat: a directory was moved, perhaps out of the root, and replaced by a link: then
        # the changes are not where the paths lead.
        for path, fd in self.inspected.fds.items():
            if not is_still_there(self.workspace.open_at, path, identity_of(fd)):
                raise changed(path)

    def _roll_back(self, bound: _Bound, failure: BaseException) -> None:
        disk, fds = self.workspace.disk, self.inspected.fds.values()
        try:
            changed_since = _undo(self.entry, bound, disk, fds)
        except (OSError, errors.PaddockError) as second:
            raise errors.HostError(
                f"the changes could not be rolled back after a failure ({failure}): {second}",
                hint="they are rolled back when the plane is opened again",
            ) from failure
        with suppress(errors.PaddockError):  # it has ended: recovery forgets it
            clean_all(self.entry, bound)
        if changed_since:
            raise conflict(changed_since) from failure


# Crash recovery, by an entry's records and the entries under the temporary names:
#
#     no commit record     it never happened: built entries are removed
#     committed            completed, if every remaining step still finds what it expects
#                          and every displaced entry is the expected one; else undone
#     committed, undo      undone
#     ended                displaced entries are removed
#
# Undo never removes what another process made since: such paths keep their newer content and
# are reported. A journal entry that cannot be settled now stays.


class RecoveredSet(Enum):
    COMPLETED = "completed"
    UNDONE = "undone"
    NEVER_BEGUN = "never begun"
    ENDED = "ended"  # already; only displaced entries were left
    WAITING = "waiting"


class Recovered(Struct, frozen=True):
    entry: str
    root: str
    settled: RecoveredSet
    label: str = ""
    # Paths that another process changed after the crash, which keep that, and lost directories.
    changed_since: tuple[WorkspacePath, ...] = ()
    why: str = ""

    @property
    def notice(self) -> str:
        state = "waits" if self.settled is RecoveredSet.WAITING else "left something"
        return f"an interrupted set of changes {state}: {self.why}"


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
            named = [paths.unchecked_path(each) for each in intent.directories]

            def open_at(path: WorkspacePath, flags: int) -> int:
                return resolution.open(root_fd, path.relative, flags)

            there = [path for path in named if _is_there(open_at, path)]
            locks = held.enter_context(locked(open_at, *there, wait_s=_WAIT_S))
            fds = dict(zip(there, locks, strict=True))
            gone = tuple([path for path in named if path not in fds])
            return _settle_under_locks(replace(found, changed_since=gone), entry, disk, fds)
    except (OSError, errors.PaddockError) as failure:
        return replace(found, why=str(failure))


@contextmanager
def _open_root(path: str, inode: int) -> Generator[int]:
    with held_open(os.open(path, PASS_DIRECTORY | os.O_NOFOLLOW)) as fd:
        if os.fstat(fd).st_ino != inode:
            raise errors.HostError(f"{path} is now another directory")
        yield fd


def _is_there(open_at: OpenAt, path: WorkspacePath) -> bool:
    # A removed directory took its steps with it. A link in its place is not followed.
    try:
        os.close(open_at(path, PASS_DIRECTORY))
    except OSError as failure:
        if failure.errno not in _GONE:
            raise
        return False
    return True


def _settle_under_locks(
    found: Recovered, entry: JournalEntry, disk: Disk, fds: dict[WorkspacePath, int]
) -> Recovered:
    token, steps = cast("Intent", entry.records.intent).token, entry.records.steps
    if steps is None:
        _remove_built(disk, fds.values(), token)
        entry.forget()
        return replace(found, settled=RecoveredSet.NEVER_BEGUN)
    bound: list[BoundStep] = []
    for step in steps:
        directory = paths.unchecked_path(step.directory)
        if directory in fds:
            at = paths.child_of(directory, step.name)
            bound.append(bind(disk, fds[directory], at, token, step))
    settled, changed_since = RecoveredSet.ENDED, found.changed_since
    if not entry.records.is_ended:
        if not entry.records.is_undone and _completed(bound):
            settled = RecoveredSet.COMPLETED
            sync_file_systems(disk, fds.values())
            entry.record(EndRecord())
        else:
            settled = RecoveredSet.UNDONE
            changed_since += tuple(_undo(entry, bound, disk, fds.values()))
    why = "".join(clean_all(entry, bound))
    return replace(found, settled=settled, changed_since=changed_since, why=why)


def _remove_built(disk: Disk, fds: Iterable[int], token: str) -> None:
    for fd in fds:
        for name in filter(paths.is_temporary_name, os.listdir(fd)):
            if name.startswith(paths.TEMPORARY_PREFIX + token):
                remove_any(disk, fd, name)


def _completed(bound: _Bound) -> bool:
    if not all(step.displaced_expected() for step in bound if step.is_done()):
        return False
    try:
        for step in bound:
            if not step.is_done():
                step.do()
    except errors.FileChangedError:
        return False
    return True


def _undo(
    entry: JournalEntry, bound: _Bound, disk: Disk, fds: Iterable[int]
) -> list[WorkspacePath]:
    if not entry.records.is_undone:
        entry.record(UndoRecord())
    changed_since = [step.path for step in reversed(bound) if not step.undo()]
    sync_file_systems(disk, fds)
    entry.record(EndRecord())
    return changed_since


def clean_all(entry: JournalEntry, bound: _Bound) -> list[str]:
    """Remove what an ended set left, then its entry; or return a note on what stays."""
    with suppress(OSError, errors.PathError):
        cleaned = [step.clean(is_undone=entry.records.is_undone) for step in bound]
        if all(cleaned):
            entry.forget()
            return []
    prefix = paths.TEMPORARY_PREFIX + entry.name[:_TOKEN_CHARS]
    said = "something that this change removed was changed meanwhile, or cannot be deleted: it"
    return [f"{said} stays in its directory, under a name that begins with {prefix}"]
