"""Commit a command's changes to the workspace: as one set, or not at all.

The phases are those of git directories, objects first, references last; other changes are in the
first. Replaced and removed files are kept in the history, except `generated` ones; each path is
noted under the call's id before any of them changes. A replaced file keeps its owner and group, a
new one belongs to the user that runs Paddock: a command cannot give files to another user.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import FileChangedError, PathError, StorageFullError
from paddock.policy.engine import Policy
from paddock.policy.settings import Git
from paddock.sandbox.changes.differences import (
    ChangeKind,
    CommandChange,
    CommandDifferences,
    OpenLayers,
)
from paddock.sandbox.changes.judgement import JudgedChange
from paddock.sandbox.changes.upper import Look
from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.rules import (
    ARMING_NAMES,
    CONTENT_BYTES_MAX,
    GitChange,
    GitDirectory,
    GitRuling,
    NodeKind,
    find_git_place,
    judge_git,
    wants_content,
)
from paddock.sandbox.host.host_facts import directories_above, find_content
from paddock.sandbox.values import RefusedChange
from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY
from paddock.storage.history import History, current_call
from paddock.storage.journal import Journal
from paddock.storage.locks import Identity, identity_of
from paddock.storage.objects import ObjectStore
from paddock.text.show import name_some, quote, show_name
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes, note_changes
from paddock.workspace.changes import (
    Absent,
    ChangedPath,
    GivenContent,
    MakeDirectory,
    MakeLink,
    Phases,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
)
from paddock.workspace.failures import conflict
from paddock.workspace.paths import WorkspacePath, unchecked_path
from paddock.workspace.workspace import PASS_DIRECTORY, Resolution, detect_resolution

# A set is judged on the workspace of one moment and committed to that of a later one: after a
# wait for another set's locks or, with an approval, up to a day later. Each change checks the
# expected state of its own path. That is not enough:
#
# The directories above have to be those that the command saw, not replacements of that name.
#
# The git preset's verdict depends on other paths: some names make a directory a repository, and
# others arm it (`git.layout`).
#
# Threat: two commands run at once, or both wait for an answer. One writes `config` and `hooks/`
# into a directory, the other makes it a repository. Each is harmless on the tree before both.
#
# Most of these names are in the directory itself, which a set that creates one locks. For the
# deeper names, that directory is locked in addition.

_DEEP_NAMES: Final = tuple(name for name in ARMING_NAMES if "/" in name)
_MODE: Final = 0o644
_CREATIONS: Final = (WriteFile, MakeDirectory, MakeLink)
_REMOVALS: Final = (RemoveFile, RemoveDirectory)


class CommitCondition(Struct, frozen=True):
    root_fd: int
    phases: Phases
    store: ObjectStore
    git: Git
    above: Mapping[str, Identity]
    """The existing directories above the changed paths, the root as `.`."""
    resolution: Resolution = field(default_factory=detect_resolution)

    def directories(self) -> Sequence[WorkspacePath]:
        if self.git == "none":
            return ()
        made = {each.path for each in self._changes() if isinstance(each, _CREATIONS)}
        armed = {
            unchecked_path(path.relative[: -len(name) - 1] or ".")
            for path in made
            for name in _DEEP_NAMES
            if f"/{path.relative}".endswith(f"/{name}")
        }
        # No other set can use a directory that this one creates.
        return tuple(armed - made)

    def verify(self) -> None:
        """Raises: FileChangedError: a directory was replaced, or the git preset refuses now."""
        others = [path for path, known in self.above.items() if not self._is_same(path, known)]
        if others:
            raise conflict([unchecked_path(path) for path in others])
        if self.git != "none":
            self._verify_git()

    def _is_same(self, path: str, known: Identity) -> bool:
        try:
            fd = self.resolution.open(self.root_fd, path, PASS_DIRECTORY)
        except OSError:
            return False
        with held_open(fd):
            return identity_of(fd) == known

    def _changes(self) -> Iterable[StagedChange]:
        return (change for phase in self.phases for change in phase)

    def _verify_git(self) -> None:
        gone = {each.path.relative for each in self._changes() if isinstance(each, _REMOVALS)}
        present = {
            each.path.relative for each in self._changes() if not isinstance(each, _REMOVALS)
        }
        touched = Touched(frozenset(present), frozenset(gone))
        known = {
            each.path: each for each in find_repositories(self.root_fd, touched, self.resolution)
        }
        for change in self._changes():
            ruling = self._judge(change, known)
            if ruling is not None and not ruling.is_allowed:
                raise FileChangedError(
                    f"{quote(change.path.relative)} is not committed by the git preset as the"
                    f" workspace is now: {ruling.reason}",
                    hint="nothing was changed; check the files there, then repeat the call",
                )

    def _judge(self, change: StagedChange, known: Mapping[str, GitDirectory]) -> GitRuling | None:
        place = find_git_place(change.path.relative, known)
        if place is None:
            return None
        directory = known[place.directory]
        is_removed = isinstance(change, _REMOVALS)
        content = None
        if not is_removed and wants_content(place.name, directory.nested):
            content = self._content(change)
        mode = _MODE
        if isinstance(change, WriteFile | MakeDirectory | SetMetadata) and change.mode is not None:
            mode = change.mode
        return judge_git(
            GitChange(place.name, _node(change), mode, content, is_removed), directory, self.git
        )

    def _content(self, change: StagedChange) -> bytes | None:
        if isinstance(change, SetMetadata):
            path = change.path.relative
            return find_content(self.root_fd, path, CONTENT_BYTES_MAX, self.resolution)
        if not isinstance(change, WriteFile):
            return None
        content = change.content
        if isinstance(content, GivenContent):
            return find_content(content.dir_fd, content.path, CONTENT_BYTES_MAX)
        if not isinstance(content, StoredContent):
            raise TypeError(f"a command's change has no content of type {type(content).__name__}")
        # At most `approval_staged_bytes_max`: `park_set` stored it.
        return self.store.read(content.digest)


def _node(change: StagedChange) -> NodeKind:
    if isinstance(change, MakeLink):
        return NodeKind.LINK
    is_directory = isinstance(change, MakeDirectory | RemoveDirectory)
    if isinstance(change, SetMetadata):
        is_directory = isinstance(change.old, Seen) and change.old.status.is_directory
    return NodeKind.DIRECTORY if is_directory else NodeKind.FILE


class CommitPlace(Struct, frozen=True):
    workspace: Workspace
    history: History
    journal: Callable[[], Journal]
    """Opened when first needed; the caller closes it."""
    policy: Policy


class Committed(Struct, frozen=True):
    changed: tuple[ChangedPath, ...] = ()
    notes: tuple[str, ...] = ()
    conflict: str = ""
    refused: tuple[RefusedChange, ...] = ()
    settled: tuple[JudgedChange, ...] = ()


def find_above(
    settled: Sequence[JudgedChange], layers: OpenLayers, lower_directories: Mapping[str, Look]
) -> dict[str, Identity]:
    """Return the existing directories above the landing changes."""
    known = {path: look.identity for path, look in lower_directories.items()}
    for each in settled:
        lower = each.change.lower
        if lower is not None and lower.kind is NodeKind.DIRECTORY:
            known[each.change.path] = lower.identity
    above = {path for each in settled if each.lands for path in directories_above(each.change.path)}
    found = {path: known[path] for path in sorted(above & known.keys())}
    return {".": identity_of(layers.lower_fd), **found}


def commit_settled(
    settled: Sequence[JudgedChange],
    layers: OpenLayers,
    place: CommitPlace,
    git: Git,
    above: Mapping[str, Identity],
) -> Committed:
    """Commit the landing changes if their condition still holds; consumes the layer.

    Raises: StorageFullError: nothing has changed; HostError: the set could not be rolled back;
    IntegrityError: the store is damaged.
    """
    phases = phases_of(settled, layers, place.policy)
    if not phases:
        return Committed()
    running = current_call()
    store = place.history.store
    try:
        receipt = commit_changes(
            place.workspace,
            phases,
            store,
            place.journal(),
            label="" if running is None else running.mark.call_id,
            witness=partial(note_changes, place.history),
            condition=CommitCondition(
                layers.lower_fd, phases, store, git, above, layers.resolution
            ),
        )
    except StorageFullError as error:
        raise StorageFullError(
            f"the command ran, but none of its changes are kept: {error.message}",
            hint=error.hint,
        ) from error
    except (FileChangedError, PathError) as error:
        return Committed(conflict=error.message)
    return Committed(receipt.changes, receipt.notes)


def describe_conflict(differences: CommandDifferences, settled: Sequence[JudgedChange]) -> str:
    """Describe the landing paths that another process changed meanwhile; empty for none."""
    landing = {each.change.path for each in settled if each.lands}
    paths = [path for path in differences.conflicts if path in landing]
    if not paths:
        return ""
    return f"another process changed {name_some(paths)} while the command ran"


def all_refused(
    settled: Sequence[JudgedChange], refused: Sequence[RefusedChange], why: str
) -> tuple[RefusedChange, ...]:
    lost = [
        RefusedChange(show_name(each.change.path), FileChangedError.code, why)
        for each in settled
        if each.lands
    ]
    return (*refused, *lost)


def phases_of(settled: Sequence[JudgedChange], layers: OpenLayers, policy: Policy) -> Phases:
    found: dict[int, list[StagedChange]] = {}
    landing = [each for each in settled if each.lands]
    whole = _whole_trees(landing, layers)
    for each in landing:
        phase = found.setdefault(each.phase, [])
        staged = _staged(each.change, layers, policy)
        if isinstance(staged, MakeDirectory) and staged.path.relative in whole:
            staged = replace(staged, given=GivenContent(layers.upper_fd, staged.path.relative))
        phase.append(staged)
    return [found[phase] for phase in sorted(found)]


def _whole_trees(landing: Sequence[JudgedChange], layers: OpenLayers) -> frozenset[str]:
    fit: set[str] = set()
    unfit: set[str] = set()
    for each in landing:
        change, upper = each.change, each.change.upper
        if change.kind is ChangeKind.CREATED and upper is not None:
            is_alone = upper.kind is not NodeKind.FILE or upper.status.links == 1
            is_plain = upper.mode & 0o7000 == 0 and change.mode == upper.mode
            # A closed directory was opened for reading, so its mode in the layer is different.
            is_plain &= upper.kind is not NodeKind.DIRECTORY or upper.mode & 0o700 == 0o700
            if is_alone and (is_plain or upper.kind is NodeKind.LINK):
                if upper.kind is NodeKind.DIRECTORY and not change.is_replaced:
                    fit.add(change.path)
                continue
        unfit.add(change.path)
    lands = {each.change.path for each in landing}
    for path in fit:
        with held_open(os.open(path, DIRECTORY, dir_fd=layers.upper_fd)) as fd:
            if any(f"{path}/{name}" not in lands for name in os.listdir(fd)):
                unfit.add(f"{path}/")
    spoilt = {above for path in unfit for above in directories_above(path)}
    return frozenset(fit - spoilt)


def _staged(change: CommandChange, layers: OpenLayers, policy: Policy) -> StagedChange:
    # The path is canonical: judging checked it.
    path = unchecked_path(change.path)
    is_new = change.lower is None or change.is_replaced
    old = Absent() if is_new else _seen(change)
    keeps = not policy.guards.is_below_generated(change.path)
    time_ns = None if change.upper is None else change.upper.status.modified_ns
    if change.kind is ChangeKind.DELETED:
        if change.node is NodeKind.DIRECTORY:
            return RemoveDirectory(path, _seen(change))
        return RemoveFile(path, _seen(change), keeps_old=keeps, overrides_read_only=True)
    if change.kind is ChangeKind.MODE:
        if change.node is NodeKind.DIRECTORY:
            return SetMetadata(path, _seen(change), change.mode & 0o777)
        # Threat: another hard link of the file, possibly outside the workspace, would get the
        # mode and the time as well. So the path becomes a separate file, as with any write.
        if change.lower is None or change.lower.status.links == 1:
            # Threat: another process closed the file meanwhile: its content does not show that.
            seen = replace(_seen(change), version=change.version)
            return SetMetadata(path, seen, change.mode & 0o777, time_ns)
    mode, given = change.mode & 0o777, GivenContent(layers.upper_fd, change.path)
    if change.node is NodeKind.DIRECTORY:
        return MakeDirectory(path, old, mode, time_ns, overrides_read_only=True)
    if change.node is NodeKind.LINK:
        text = change.link_text
        return MakeLink(path, text, old, time_ns, keeps_old=keeps, overrides_read_only=True)
    return WriteFile(path, given, old, mode, time_ns, keeps_old=keeps, overrides_read_only=True)


def _seen(change: CommandChange) -> Seen:
    if change.lower is None:
        raise AssertionError("a change of a file that does not exist")
    return Seen(change.lower.status)
