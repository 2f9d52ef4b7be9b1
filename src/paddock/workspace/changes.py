"""The state of an entry, the types of a set of changes, and its plan.

Phases order the changes for concurrent readers (in a repository: objects first, references
last). Each change states the expected old entry. If a path is both removed and created, the
removal states it, and the creation says `Absent`. A new directory precedes its children; a
removed directory needs a removal for everything in it.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import InternalError, InvalidPathError
from paddock.storage.atomic import held_open
from paddock.storage.disk import digest_of_file
from paddock.storage.notes import Doing
from paddock.workspace.failures import converting, special_file, too_deep
from paddock.workspace.metadata import FileStatus, kind_of, require_same, status_at
from paddock.workspace.paths import ChangeableKind, EntryPath, WorkspacePath
from paddock.workspace.read import require_versionable, version_of
from paddock.workspace.workspace import PASS_DIRECTORY, READ_FILE, Workspace

T = TypeVar("T")
Read: TypeAlias = Callable[[int, int], str]  # a file's version, by descriptor and size


class Seen(Struct, frozen=True):
    """The entry with exactly this status; for a directory, with this identity and mode."""

    status: FileStatus
    version: str | None = None  # if the content must match too: a status can be forged


class EntryState(Struct, frozen=True):
    kind: ChangeableKind
    mode: int
    version: str | None  # of content or link text; None if it has none, or was not read
    link_text: str | None = None


class ChangedPath(Struct, frozen=True):
    path: WorkspacePath
    before: EntryState | None
    after: EntryState | None
    kept: bool  # the store has the old file under `before.version`


def state_of(status: FileStatus, version: str | None, text: str | None = None) -> EntryState:
    kind = cast("ChangeableKind", kind_of(status.mode))
    return EntryState(kind, status.permissions, version, text)


def entry_state(workspace: Workspace, entry: EntryPath) -> EntryState | None:
    """Links are not followed. Raises: PathError: a special file, not readable, or changed."""
    return _inspect(workspace, entry.path, partial(state_at, entry.path))


def entry_seen(workspace: Workspace, entry: EntryPath) -> Seen | None:
    return _inspect(workspace, entry.path, lambda _, status: Seen(status))


def _inspect(
    workspace: Workspace, path: WorkspacePath, read: Callable[[int, FileStatus], T]
) -> T | None:
    with converting(path, "inspect"):
        try:
            dir_fd = workspace.open_at(path.parent, PASS_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with held_open(dir_fd):
            status = status_at(dir_fd, path.name)
            return None if status is None else read(dir_fd, status)


@contextmanager
def held_file(path: WorkspacePath, dir_fd: int, status: FileStatus) -> Generator[int]:
    with held_open(os.open(path.name, READ_FILE | os.O_NOFOLLOW, dir_fd=dir_fd)) as fd:
        require_same(fd, status, path)
        yield fd


def state_at(
    path: WorkspacePath, dir_fd: int, status: FileStatus, read: Read | None = digest_of_file
) -> EntryState:
    if status.is_link:
        text = os.readlink(path.name, dir_fd=dir_fd)
        return state_of(status, version_of(os.fsencode(text)), text)
    if not (status.is_directory or status.is_regular):
        raise special_file(path)
    if status.is_directory or read is None:
        return state_of(status, None)
    require_versionable(path, status)
    with held_file(path, dir_fd, status) as fd:
        version = read(fd, status.size_bytes)
        require_same(fd, status, path)
        return state_of(status, version)


def doing_of_path(row: ChangedPath) -> Doing | None:
    path, before, after = row.path.relative, row.before, row.after
    if before is None:
        if after is None:
            return None
        mode, version = mode_of(after), after.version
        return Doing(path, "created", after.kind.value, after=version, mode_after=mode)
    kind, entry_after = "overwritten", ""
    if after is None:
        kind = "deleted"
    elif after.kind is not before.kind:
        entry_after = after.kind.value
    elif after.version == before.version:
        kind = "touched" if after.mode == before.mode else "mode"
    # If the kind changed, the mode alone means nothing: a restored entry gets the default mode.
    is_gone = after is None or after.kind is not before.kind or after.mode != before.mode
    # A directory has no content to keep, and the text of a link is always kept.
    is_kept = row.kept or before.kind.value != "file" or kind in {"mode", "touched"}
    old, new = before.version, None if after is None else after.version
    doing = Doing(path, kind, before.kind.value, old, new, entry_after=entry_after, is_kept=is_kept)
    return replace(doing, mode=mode_of(before) if is_gone else None, mode_after=mode_of(after))


def mode_of(state: EntryState | None) -> int | None:
    return None if state is None or state.kind.value == "link" else state.mode


class Absent(Struct, frozen=True):
    pass


class AtVersion(Struct, frozen=True):
    version: str  # of a file's content, or of a link's text


Old = Absent | Seen | AtVersion


class StoredContent(Struct, frozen=True):
    digest: str


class GivenContent(Struct, frozen=True):
    # Moved in, or copied if that is impossible, without its attributes. `path` is below
    # `dir_fd`, without links on the way, in a tree that nothing else uses any more.
    dir_fd: int
    path: str


Content = bytes | StoredContent | GivenContent


class _Displacing(Struct, frozen=True, kw_only=True):
    keeps_old: bool = True  # in the store; the text of a link always is
    # Also read-only files: the kernel let a command do it, by the directory's permissions.
    overrides_read_only: bool = False


class WriteFile(_Displacing, frozen=True):
    path: WorkspacePath
    content: Content
    old: Old
    mode: int | None = None  # nine bits; None: as the replaced file, or the default
    modified_ns: int | None = None


class MakeDirectory(_Displacing, frozen=True):
    path: WorkspacePath
    old: Old
    mode: int | None = None
    modified_ns: int | None = None
    # Its children are changes of the set, each given from inside it, with mode and time.
    given: GivenContent | None = None


class MakeLink(_Displacing, frozen=True):
    path: WorkspacePath
    text: str
    old: Old
    modified_ns: int | None = None


class RemoveFile(_Displacing, frozen=True):
    path: WorkspacePath
    old: Seen | AtVersion


class RemoveDirectory(Struct, frozen=True):
    path: WorkspacePath
    old: Seen | None = None  # None: any directory


class SetMetadata(Struct, frozen=True):  # in place; the time only of a file
    path: WorkspacePath
    old: Seen | AtVersion
    mode: int | None = None
    modified_ns: int | None = None


Creation = WriteFile | MakeDirectory | MakeLink
Removal = RemoveFile | RemoveDirectory
StagedChange = Creation | Removal | SetMetadata
Phases = Sequence[Sequence[StagedChange]]


class ChangeReceipt(Struct, frozen=True):
    changes: tuple[ChangedPath, ...]
    notes: tuple[str, ...] = ()


class Condition(Protocol):
    def directories(self) -> Sequence[WorkspacePath]: ...

    def verify(self) -> None: ...  # called under the locks; if it raises, nothing changes


# A directory appears or disappears with its whole content in one step. So every step happens in an
# existing directory: an exchange with a temporary name beside it.

_Change = TypeVar("_Change", Creation, Removal)


class Branch(Struct, Generic[_Change], frozen=True):
    change: _Change
    children: "tuple[Branch[_Change], ...]"


CreatedBranch = Branch[Creation]
RemovedBranch = Branch[Removal]


class SwapPlan(Struct, frozen=True):
    path: WorkspacePath
    removed: RemovedBranch | None
    created: CreatedBranch | None


class ChangePlan(Struct, frozen=True):
    swaps: tuple[SwapPlan, ...]  # by phase, then by path
    metadata: tuple[SetMetadata, ...]  # a directory after its content

    def directories(self) -> tuple[WorkspacePath, ...]:
        return tuple(dict.fromkeys(act.path.parent for act in (*self.swaps, *self.metadata)))


def plan_changes(phases: Phases) -> ChangePlan:
    """Raises: InternalError: contradictory changes; InvalidPathError: the root, or too many."""
    created: dict[WorkspacePath, Creation] = {}
    removed: dict[WorkspacePath, Removal] = {}
    metadata: dict[WorkspacePath, SetMetadata] = {}
    phase_of: dict[WorkspacePath, int] = {}
    for phase, changes in enumerate(phases):
        for change in changes:
            path = change.path
            if path.is_root:
                raise InvalidPathError(
                    "the workspace root itself cannot be changed", hint="change its content"
                )
            if len(path.parts) > limits.path_depth_max:
                raise too_deep(path)
            if isinstance(change, SetMetadata):
                taken = metadata.setdefault(path, change)
            elif isinstance(change, RemoveFile | RemoveDirectory):
                taken = removed.setdefault(path, change)
            else:
                taken = created.setdefault(path, change)
            _require(taken is change, path, "is given twice")
            phase_of[path] = max(phase, phase_of.get(path, 0))
    if len(phase_of) > limits.change_set_paths_max:
        raise InvalidPathError(
            f"the set has more than {limits.change_set_paths_max} paths", hint="change less at once"
        )
    _check(created, removed, metadata)
    new, old = _forest(created), _forest(removed)
    swaps = [SwapPlan(path, old.get(path), new.get(path)) for path in new.keys() | old.keys()]

    def turn(swap: SwapPlan) -> tuple[int, bytes]:
        # A tree changes in one step, in the last phase of any path in it.
        trees = [tree for tree in (swap.created, swap.removed) if tree is not None]
        names = (name for tree in trees for name in paths_of(tree))
        return max(phase_of[name] for name in names), swap.path.in_bytes

    in_place = sorted(metadata.values(), key=lambda change: change.path.in_bytes, reverse=True)
    return ChangePlan(tuple(sorted(swaps, key=turn)), tuple(in_place))


def _check(
    created: Mapping[WorkspacePath, Creation],
    removed: Mapping[WorkspacePath, Removal],
    metadata: Mapping[WorkspacePath, SetMetadata],
) -> None:
    for path, change in created.items():
        is_taken = path in removed and not isinstance(change.old, Absent)
        _require(not is_taken, path, "is removed first, and still expected")
        new = [created[above] for above in path.ancestors if above in created]
        gone = [above for above in path.ancestors if above in removed and above not in created]
        are_directories = all(isinstance(above, MakeDirectory) for above in new)
        _require(are_directories, path, "is below a file or a link that is created")
        _require(not gone, path, "is below a directory that is removed")
        is_held = path.parent in created or not new
        _require(is_held, path, "is in a directory that nothing creates")
    for path in removed:
        gone = [above for above in path.ancestors if above in removed]
        are_directories = all(isinstance(removed[above], RemoveDirectory) for above in gone)
        _require(are_directories, path, "is below a file that is removed")
        is_held = path.parent in gone or not gone
        _require(is_held, path, "is in a directory that nothing removes")
        is_new = any(above in created and above not in gone for above in path.ancestors)
        _require(not is_new, path, "is removed from a directory that is new")
    for path in metadata:
        is_once = not any(at in created or at in removed for at in (path, *path.ancestors))
        _require(is_once, path, "is created or removed, and changed in place")


def _require(holds: bool, path: WorkspacePath, why: str) -> None:
    if not holds:
        raise InternalError(f"set of changes: {path.shown} {why}")


def _forest(changes: Mapping[WorkspacePath, _Change]) -> dict[WorkspacePath, Branch[_Change]]:
    below: dict[WorkspacePath, list[Branch[_Change]]] = {}
    trees: dict[WorkspacePath, Branch[_Change]] = {}
    # Deepest first: a directory's children are complete when its turn comes.
    for path in sorted(changes, key=lambda path: (-len(path.parts), path.in_bytes)):
        branch = Branch(changes[path], tuple(below.pop(path, ())))
        if path.parent in changes:
            below.setdefault(path.parent, []).append(branch)
        else:
            trees[path] = branch
    return trees


def paths_of(branch: CreatedBranch | RemovedBranch) -> Iterable[WorkspacePath]:
    yield branch.change.path
    for child in branch.children:
        yield from paths_of(child)
