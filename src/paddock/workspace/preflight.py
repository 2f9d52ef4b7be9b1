"""The first look: is everything that a set is about to change what the set believes?

Nothing is changed here but the store, which gets what will be replaced. So a set that is
refused here has left no trace in the tree.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import FileChangedError, PathNotAFileError
from paddock.storage.atomic import held_open
from paddock.storage.disk import digest_of_file
from paddock.storage.journal import EntryMark
from paddock.storage.objects import ObjectStore
from paddock.text.show import quote
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    Creation,
    EntryState,
    Old,
    RemovedBranch,
    RemoveFile,
    Seen,
    SetMetadata,
    SwapPlan,
)
from paddock.workspace.exchange import HeldTree, mark_of, reading, require_same, sight_of
from paddock.workspace.failures import converting, special_file
from paddock.workspace.metadata import FileStatus, require_writable, status_at
from paddock.workspace.paths import EntryKind, EntryPath, WorkspacePath, child_of
from paddock.workspace.places import Site, changed
from paddock.workspace.read import require_versionable, version_of
from paddock.workspace.resolve import READ_FILE

_OPEN_ENTRY: Final = READ_FILE | os.O_NOFOLLOW
_Replacing = Creation | RemoveFile


class Looked(Struct, frozen=True):
    status: FileStatus
    mark: EntryMark
    sight: str = ""
    """See `sight_of`: for the last look before it gives way."""


class Preflight(Struct):
    objects: ObjectStore
    before: dict[WorkspacePath, EntryState] = field(default_factory=dict[WorkspacePath, EntryState])
    kept: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    conflicts: list[WorkspacePath] = field(default_factory=list[WorkspacePath])

    def at_swap(self, plan: SwapPlan, dir_fd: int) -> Looked | None:
        path, name = plan.path, plan.path.name
        status = status_at(dir_fd, name)
        if plan.removed is not None:
            return self._removed(plan.removed, dir_fd, name, status)
        if plan.created is None:
            return None
        change = plan.created.change
        if status is None or isinstance(change.old, Absent):
            if status is not None or not isinstance(change.old, Absent):
                self.conflicts.append(path)
            return None
        self._entry(path, change, change.old, dir_fd, status)
        return Looked(status, mark_of(status), sight_of(status))

    def at_metadata(self, change: SetMetadata, dir_fd: int) -> FileStatus | None:
        """What is to be changed in place; None where it is a conflict. Raises as `at_swap`."""
        path = change.path
        status = status_at(dir_fd, path.name)
        if status is None:
            self.conflicts.append(path)
            return None
        if status.is_link:
            raise PathNotAFileError(
                f"{quote(path.relative)} is a link, which has no permissions",
                hint="change what it leads to",
            )
        version = self._check(path, change.old, dir_fd, status, keeps=False)
        self.before[path] = state_of(status, version)
        return status

    def require_no_conflict(self) -> None:
        if self.conflicts:
            raise conflict(self.conflicts)

    def _removed(
        self, branch: RemovedBranch, dir_fd: int, name: str, status: FileStatus | None
    ) -> Looked | None:
        if status is None:
            self.conflicts.append(branch.path)
            return None
        change = branch.change
        if isinstance(change, RemoveFile):
            self._entry(branch.path, change, change.old, dir_fd, status)
            return Looked(status, mark_of(status), sight_of(status))
        held = HeldTree()
        self._directory(branch, dir_fd, name, status, len(branch.path.parts), held)
        return Looked(status, mark_of(status, held.digest()), held.sight())

    def _directory(
        self,
        branch: RemovedBranch,
        dir_fd: int,
        name: str,
        status: FileStatus,
        below: int,
        held: HeldTree,
    ) -> None:
        path = branch.path
        old = branch.change.old
        if not status.is_directory or (old is not None and not _fits(old, status)):
            self.conflicts.append(path)
            return
        self.before[path] = state_of(status, None)
        expected = {child.path.name: child for child in branch.children}
        with reading(dir_fd, name, path) as (fd, names):
            # Threat: a file that somebody put there meanwhile would go with the directory.
            self.conflicts.extend(child_of(path, name) for name in expected.keys() ^ set(names))
            for child_name in names:
                if child_name in expected:
                    self._child(expected[child_name], fd, below, held)

    def _child(self, branch: RemovedBranch, fd: int, below: int, held: HeldTree) -> None:
        status = status_at(fd, branch.path.name)
        if status is None:
            self.conflicts.append(branch.path)
            return
        held.add(branch.path, status, below)
        if isinstance(branch.change, RemoveFile):
            self._entry(branch.path, branch.change, branch.change.old, fd, status)
        else:
            self._directory(branch, fd, branch.path.name, status, below, held)

    def _entry(
        self,
        path: WorkspacePath,
        change: _Replacing,
        old: Seen | AtVersion,
        dir_fd: int,
        status: FileStatus,
    ) -> None:
        if status.is_directory:
            self.conflicts.append(path)
            return
        if status.is_regular and not change.overrides_read_only:
            require_writable(path, status, dir_fd, path.name)
        version = self._check(path, old, dir_fd, status, keeps=change.keeps_old)
        text = os.readlink(path.name, dir_fd=dir_fd) if status.is_link else None
        if text is not None:
            self.objects.put_bytes(os.fsencode(text))
        self.before[path] = state_of(status, version, text)

    def _check(
        self,
        path: WorkspacePath,
        old: Seen | AtVersion,
        dir_fd: int,
        status: FileStatus,
        *,
        keeps: bool,
    ) -> str | None:
        version: str | None = None
        if status.is_link:
            version = version_of(os.fsencode(os.readlink(path.name, dir_fd=dir_fd)))
        elif status.is_regular:
            if keeps or old.version is not None:
                version = self._read(path, dir_fd, status, keeps=keeps)
        elif not status.is_directory:
            raise special_file(path)
        is_expected = isinstance(old, AtVersion) or _fits(old, status)
        if old.version is not None:
            is_expected = is_expected and version == old.version
        if not is_expected:
            self.conflicts.append(path)
        return version

    def _read(self, path: WorkspacePath, dir_fd: int, status: FileStatus, *, keeps: bool) -> str:
        require_versionable(path, status)
        with held_open(os.open(path.name, _OPEN_ENTRY, dir_fd=dir_fd)) as fd:
            require_same(fd, status, path)
            if not keeps:
                return digest_of_file(fd, status.size_bytes)
            version = self.objects.put_file(fd)
            require_same(fd, status, path)
            self.kept.add(path)
            return version


def conflict(paths: list[WorkspacePath]) -> FileChangedError:
    unique = sorted(set(paths), key=lambda path: path.relative)
    if len(unique) == 1:
        return changed(unique[0])
    shown = [quote(path.relative) for path in unique[: limits.change_conflicts_listed_max]]
    missing = len(unique) - len(shown)
    more = f" and {missing} more" if missing else ""
    return FileChangedError(
        f"{', '.join(shown)}{more} were changed by somebody else meanwhile",
        hint="nothing was changed; look at them again, then repeat the call",
    )


def _fits(old: Old, status: FileStatus) -> bool:
    if not isinstance(old, Seen):
        return False
    seen = old.status
    if seen.mode != status.mode:
        return False
    if status.is_directory:
        return (seen.device, seen.inode) == (status.device, status.inode)
    return seen.content_mark == status.content_mark


def state_of(status: FileStatus, version: str | None, text: str | None = None) -> EntryState:
    kind = EntryKind.FILE
    if status.is_directory:
        kind = EntryKind.DIRECTORY
    elif status.is_link:
        kind = EntryKind.LINK
    size_bytes = 0 if status.is_directory else status.size_bytes
    return EntryState(kind, status.permissions, size_bytes, status.modified_ns, version, text)


def entry_state(site: Site, entry: EntryPath) -> EntryState | None:
    with _found(site, entry.path) as (dir_fd, status):
        return None if status is None else state_at(entry.path, dir_fd, status)


def entry_seen(site: Site, entry: EntryPath) -> Seen | None:
    with _found(site, entry.path) as (_, status):
        return None if status is None else Seen(status)


@contextmanager
def _found(site: Site, path: WorkspacePath) -> Generator[tuple[int, FileStatus | None]]:
    with converting(path, "look at"), ExitStack() as held:
        try:
            dir_fd = held.enter_context(site.parent(path))
        except (FileNotFoundError, NotADirectoryError):
            yield -1, None
        else:
            yield dir_fd, status_at(dir_fd, path.name)


def state_at(path: WorkspacePath, dir_fd: int, status: FileStatus) -> EntryState:
    if status.is_directory:
        return state_of(status, None)
    if status.is_link:
        text = os.readlink(path.name, dir_fd=dir_fd)
        return state_of(status, version_of(os.fsencode(text)), text)
    if not status.is_regular:
        raise special_file(path)
    require_versionable(path, status)
    with held_open(os.open(path.name, _OPEN_ENTRY, dir_fd=dir_fd)) as fd:
        require_same(fd, status, path)
        return state_of(status, digest_of_file(fd, status.size_bytes))
