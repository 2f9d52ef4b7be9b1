"""Many changes, all of them or none: how a set is committed.

    lock the directories, in the one order → look at everything, keep what will be replaced
    → journal: intent → build what is new, under temporary names → one sync of each file
    system → journal: commit                       ← from here on it is the whole set or,
    → change places, name by name, and look at       if somebody was in the way, nothing
      what was displaced → one sync of each → journal: end
    → remove what was displaced → forget the entry

Nothing is written through a link: directories are opened without passing one, held, and at the end
must still be where they were. Single writes and sets exclude each other by the same locks, in the
same order.

Killed at any moment, the next to open the journal settles it; see `recover`.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import HostError, PaddockError
from paddock.storage.disk import sync_file_systems
from paddock.storage.history import History, current_call
from paddock.storage.journal import (
    TOKEN_CHARS,
    Intent,
    Journal,
    JournalEntry,
    Metadata,
    MetadataStep,
    SecondRoot,
    Step,
    SwapStep,
)
from paddock.storage.locks import identity_of
from paddock.storage.notes import Doing
from paddock.storage.objects import ObjectStore
from paddock.workspace.build import Drafts
from paddock.workspace.changes import (
    UNWITNESSED,
    ChangedPath,
    ChangePlan,
    ChangeReceipt,
    Condition,
    EntryState,
    Phases,
    SetMetadata,
    SwapPlan,
    Witness,
    plan_changes,
)
from paddock.workspace.exchange import BoundStep, bind, held_in, mark_of, remove_any
from paddock.workspace.failures import converting
from paddock.workspace.metadata import FileStatus, status_at
from paddock.workspace.paths import ROOT, WorkspacePath, set_name
from paddock.workspace.places import Site, changed
from paddock.workspace.preflight import Looked, Preflight, conflict, state_of
from paddock.workspace.recover import clean_all, left_note, recover, undo_all
from paddock.workspace.resolve import PASS_DIRECTORY, beside_of, without_beside

_NINE_BITS: Final = 0o777


class SetName(Struct, frozen=True):
    real_root: str
    label: str


def commit(
    site: Site,
    phases: Phases,
    objects: ObjectStore,
    journal: Journal,
    about: SetName,
    witness: Witness = UNWITNESSED,
    condition: Condition | None = None,
) -> ChangeReceipt:
    """Make the changes; what a crash left of other sets of this journal is settled first.

    `witness` is told of every path before any of them changes; `condition` is asked under the
    locks. Whatever is raised, nothing has changed, but for a HostError that says that the set
    could not be put back: then the recovery does it.
    """
    recover(journal, site.disk, without_beside(site.resolution))
    plan = plan_changes(phases)
    directories = plan.directories()
    if not directories:
        return ChangeReceipt(())
    if condition is not None:
        directories = tuple(dict.fromkeys((*directories, *condition.directories())))
    with converting(directories[0], "write"), site.lock(*directories) as fds, objects.held():
        held = dict(zip(directories, fds, strict=True))
        if condition is not None:
            condition.verify()
        work = _Commit(site, plan, held, Preflight(objects), witness)
        try:
            work.look()
        finally:
            objects.sync()  # also of a refused set: until then nobody can prune the store
        entry = journal.new_entry()
        try:
            return work.run(entry, about, Drafts(site.disk, objects))
        finally:
            entry.release()


class _Commit(Struct):
    site: Site
    plan: ChangePlan
    fds: dict[WorkspacePath, int]
    looked: Preflight
    witness: Witness
    old: dict[WorkspacePath, Looked] = field(default_factory=dict[WorkspacePath, Looked])
    in_place: dict[WorkspacePath, FileStatus] = field(
        default_factory=dict[WorkspacePath, FileStatus]
    )

    def look(self) -> None:
        for swap in self.plan.swaps:
            with converting(swap.path, "look at"):
                found = self.looked.at_swap(swap, self.fds[swap.path.parent])
            if found is not None:
                self.old[swap.path] = found
        for change in self.plan.metadata:
            with converting(change.path, "look at"):
                status = self.looked.at_metadata(change, self.fds[change.path.parent])
            if status is not None:
                self.in_place[change.path] = status
        self.looked.require_no_conflict()

    def run(self, entry: JournalEntry, about: SetName, drafts: Drafts) -> ChangeReceipt:
        token = entry.name[:TOKEN_CHARS]
        try:
            entry.begin(self._intent(about, token))
            steps = self._build(token, drafts)
            self.witness.will_change(self._rows({**drafts.after, **self._expected()}))
            self._sync()
            entry.commit(steps)
        except BaseException:
            self._give_up(entry, token)
            raise
        bound = self._bind(token, steps)
        try:
            for step in bound:
                with converting(step.path, "write"):
                    step.do()
            self._require_directories_in_place()
            self._sync()
        except BaseException as failure:
            self._put_back(entry, bound, failure)
            raise
        drafts.notes += self._finish(entry, bound, token)
        return self._receipt(drafts)

    def _intent(self, about: SetName, token: str) -> Intent:
        inode = os.fstat(self.site.root_fd).st_ino
        directories = tuple(path.relative for path in self.fds)
        beside = beside_of(self.site.resolution)
        second = None
        if beside is not None:
            second = SecondRoot(beside.name, beside.real_root, os.fstat(beside.fd).st_ino)
        return Intent(about.real_root, inode, token, directories, about.label, second)

    def _build(self, token: str, drafts: Drafts) -> tuple[Step, ...]:
        steps: list[Step] = []
        for number, swap in enumerate(self.plan.swaps):
            steps.append(self._swap_step(swap, number, token, drafts))
        steps += [self._metadata_step(change) for change in self.plan.metadata]
        return tuple(steps)

    def _swap_step(self, swap: SwapPlan, number: int, token: str, drafts: Drafts) -> SwapStep:
        path, old = swap.path, self.old.get(swap.path)
        new = None
        if swap.created is not None:
            dir_fd, draft = self.fds[path.parent], set_name(token, 2 * number)
            replaced = None if old is None else old.status
            status = drafts.build(swap.created, dir_fd, draft, replaced)
            with converting(path, "write"):
                held = held_in(dir_fd, draft, path).digest() if status.is_directory else ""
            new = mark_of(status, held)
        return SwapStep(
            path.parent.relative, path.name, number, None if old is None else old.mark, new
        )

    def _metadata_step(self, change: SetMetadata) -> MetadataStep:
        path, status = change.path, self.in_place[change.path]
        old_mode = status.mode & 0o7777
        mode = (
            old_mode if change.mode is None else old_mode & ~_NINE_BITS | change.mode & _NINE_BITS
        )
        sets_time = change.modified_ns is not None and status.is_regular
        return MetadataStep(
            path.parent.relative,
            path.name,
            status.inode,
            Metadata(old_mode, status.modified_ns if sets_time else None),
            Metadata(mode, change.modified_ns if sets_time else None),
        )

    def _give_up(self, entry: JournalEntry, token: str) -> None:
        """Remove what was built; what cannot be removed now is left to the recovery."""
        with suppress(OSError, PaddockError):
            for number, swap in enumerate(self.plan.swaps):
                draft = set_name(token, 2 * number)
                remove_any(self.site.disk, self.fds[swap.path.parent], draft)
            entry.abandon()

    def _sync(self) -> None:
        with converting(ROOT, "write"):
            sync_file_systems(self.site.disk, self.fds.values())

    def _bind(self, token: str, steps: Sequence[Step]) -> list[BoundStep]:
        paths = [swap.path for swap in self.plan.swaps]
        paths += [change.path for change in self.plan.metadata]
        return [
            bind(self.site.disk, self.fds[path.parent], path, token, step, self._sight(path))
            for path, step in zip(paths, steps, strict=True)
        ]

    def _sight(self, path: WorkspacePath) -> str:
        looked = self.old.get(path)
        return "" if looked is None else looked.sight

    def _require_directories_in_place(self) -> None:
        # Threat: a directory that was moved away, out of the root perhaps, and a link in its
        # place: what we changed there was not what the paths name.
        for path, fd in self.fds.items():
            try:
                now = self.site.resolution.open(self.site.root_fd, path.relative, PASS_DIRECTORY)
            except OSError as failure:
                raise changed(path) from failure
            try:
                if identity_of(now) != identity_of(fd):
                    raise changed(path)
            finally:
                os.close(now)

    def _put_back(
        self, entry: JournalEntry, bound: Sequence[BoundStep], failure: BaseException
    ) -> None:
        """Undo the set. If that fails too, whoever opens the journal next goes on with it."""
        try:
            entry.undo()
            changed_since = undo_all(bound)
            self._sync()
            entry.end()
        except (OSError, PaddockError) as second:
            raise HostError(
                f"the set could not be put back after a failure ({failure}): {second}",
                hint="it is put back as soon as the plane is opened again",
            ) from failure
        self._clean_and_forget(entry, bound)
        if changed_since:
            raise conflict(changed_since) from failure

    def _finish(self, entry: JournalEntry, bound: Sequence[BoundStep], token: str) -> list[str]:
        try:
            entry.end()
        except PaddockError:
            # Everything is on the device, and on record as committed. What was displaced
            # stays under its temporary names until the recovery has ended the entry.
            return []
        return [] if self._clean_and_forget(entry, bound) else [left_note(token)]

    @staticmethod
    def _clean_and_forget(entry: JournalEntry, bound: Sequence[BoundStep]) -> bool:
        is_clean = clean_all(entry, bound)
        if is_clean:
            with suppress(PaddockError):  # it has ended: the recovery forgets it
                entry.forget()
        return is_clean

    def _receipt(self, drafts: Drafts) -> ChangeReceipt:
        before, after = self.looked.before, dict(drafts.after)
        for path in self.in_place:
            status = status_at(self.fds[path.parent], path.name)
            if status is not None:
                after[path] = state_of(status, before[path].version)
        return ChangeReceipt(self._rows(after), tuple(drafts.notes))

    def _expected(self) -> dict[WorkspacePath, EntryState]:
        found: dict[WorkspacePath, EntryState] = {}
        for change in self.plan.metadata:
            state = self.looked.before[change.path]
            mode = state.mode if change.mode is None else change.mode & _NINE_BITS
            found[change.path] = replace(state, mode=mode)
        return found

    def _rows(self, after: dict[WorkspacePath, EntryState]) -> tuple[ChangedPath, ...]:
        before = self.looked.before
        paths = sorted(before.keys() | after.keys(), key=lambda path: os.fsencode(path.relative))
        return tuple(
            ChangedPath(path, before.get(path), after.get(path), path in self.looked.kept)
            for path in paths
        )


class NotingWitness(Struct, Witness, frozen=True):
    """The witness of a set that a call makes; with its notes a killed call is found and undone."""

    history: History

    def will_change(self, rows: Sequence[ChangedPath]) -> None:
        """Note all of it, with one sync. Raises: StorageFullError, HostError."""
        running = current_call()
        doings = [doing for row in rows if (doing := doing_of_path(row)) is not None]
        if running is not None and doings:
            self.history.note_all(running, doings)


def doing_of_path(row: ChangedPath) -> Doing | None:
    before, after = row.before, row.after
    if before is None and after is None:
        return None
    if before is None:
        created = cast("EntryState", after)
        return Doing(
            row.path.relative,
            "created",
            created.kind.value,
            after=created.version,
            mode_after=_mode_of(created),
        )
    kind, entry_after = "overwritten", ""
    if after is None:
        kind = "deleted"
    elif after.kind is not before.kind:
        entry_after = after.kind.value
    elif after.version == before.version:
        kind = "touched" if after.mode == before.mode else "mode"
    # Of another kind the number alone says nothing: what comes back gets the usual mode.
    is_gone = after is None or after.kind is not before.kind or after.mode != before.mode
    return Doing(
        row.path.relative,
        kind,
        before.kind.value,
        before=before.version,
        after=None if after is None else after.version,
        entry_after=entry_after,
        mode=_mode_of(before) if is_gone else None,
        mode_after=_mode_of(after),
        # Of a directory there is no content to keep, and the text of a link is always kept.
        is_kept=row.kept or before.kind.value != "file" or kind in {"mode", "touched"},
    )


def _mode_of(state: EntryState | None) -> int | None:
    return None if state is None or state.kind.value == "link" else state.mode
