"""Settle which of a command's differences land, and which are refused.

Each is judged alone (`judge_changes`). A replacement needs the removal of the old entry to land; a
rename is one change (`Renames`); a repository's changes are one unit (`Units`); the whole set has a
size limit; under `commit = "all"` one refusal refuses all.
"""

import os
import stat
import subprocess
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ApprovalUnavailableError,
    InvalidPathError,
    PathExistsError,
    PermissionDeniedError,
    ReadOnlyPathError,
)
from paddock.policy.engine import PathGuards
from paddock.policy.settings import ConfineMax
from paddock.sandbox.changes.differences import (
    ChangeKind,
    CommandChange,
    CommandDifferences,
    OpenLayers,
    paths_of,
)
from paddock.sandbox.changes.judgement import (
    JudgeContext,
    JudgedChange,
    Units,
    follow_directories,
    judge_changes,
    refuse,
    settle_commit,
    without_empty,
)
from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.objects import GIT_ENVIRONMENT, GIT_OPTIONS, find_object_name
from paddock.sandbox.git.rules import CONTENT_BYTES_MAX, NodeKind, find_git_place, wants_content
from paddock.sandbox.git.tracked import IndexPlace, find_indexed
from paddock.sandbox.host.host_facts import directories_above, find_content
from paddock.sandbox.values import RefusedChange
from paddock.storage.atomic import held_open
from paddock.text.show import quote, show_name
from paddock.values.decisions import Outcome
from paddock.workspace.workspace import PASS_DIRECTORY

# In its layer a command can open a read-only directory or a closed file with chmod(1) and change
# it. In the workspace they are unchanged, and the commit has only the user's rights. So each such
# change is refused alone, before it would make the whole commit fail.

_PERMISSIONS: Final = 0o777
_ENTER_AND_WRITE: Final = os.W_OK | os.X_OK
_READABLE_BY_ALL: Final = 0o444


class Obstacles:
    def __init__(
        self, found: Sequence[CommandChange], layers: OpenLayers, guards: PathGuards
    ) -> None:
        self._lower_fd = layers.lower_fd
        self._guards = guards
        self._resolution = layers.resolution
        self._writable: dict[str, bool] = {}
        self._created = _directories(found, ChangeKind.CREATED)
        self._removed = set(_directories(found, ChangeKind.DELETED))

    def find(self, change: CommandChange) -> str:
        return (
            change.obstacle
            or _own_obstacle(change)
            or self._content_obstacle(change)
            or self._directory_obstacle(change)
        )

    def keep(self, judged: Sequence[JudgedChange]) -> bool:
        """Note directories whose removal was refused; True: judge their contents again."""
        staying = {
            each.change.path
            for each in judged
            if each.change.path in self._removed
            and each.change.kind is ChangeKind.DELETED
            and not each.lands
        }
        self._removed -= staying
        return any(not self._is_writable(path) for path in staying)

    def _content_obstacle(self, change: CommandChange) -> str:
        lower = change.lower
        if lower is None or lower.kind is not NodeKind.FILE or change.kind is ChangeKind.MODE:
            return ""
        if lower.mode & _READABLE_BY_ALL == _READABLE_BY_ALL:
            return ""
        if self._guards.is_below_generated(change.path):
            return ""
        parent, _, name = change.path.rpartition("/")
        if self._has_access(parent or ".", name, os.R_OK):
            return ""
        return "could not be kept in the history: this user may not read it"

    def _directory_obstacle(self, change: CommandChange) -> str:
        if _stays_in_place(change):
            return ""
        parent = self._existing_parent(change.path)
        if parent is None or self._is_writable(parent):
            return ""
        where = "the workspace's root" if parent == "." else quote(parent)
        return f"is in {where}, where this user may not write"

    def _existing_parent(self, path: str) -> str | None:
        for above in reversed(directories_above(path)):
            if above in self._removed:
                return None
            if above not in self._created:
                return above
        return "."

    def _is_writable(self, path: str) -> bool:
        known = self._writable.get(path)
        if known is None:
            known = self._writable[path] = self._has_access(path, ".", _ENTER_AND_WRITE)
        return known

    def _has_access(self, directory: str, name: str, rights: int) -> bool:
        try:
            fd = self._resolution.open(self._lower_fd, directory, PASS_DIRECTORY)
        except OSError:
            return True  # Removed or replaced: the commit detects that.
        with held_open(fd):
            # Only set-id processes need it: see `workspace.metadata.require_writable`.
            set_id = os.geteuid() != os.getuid()
            return os.access(name, rights, dir_fd=fd, effective_ids=set_id)


def _own_obstacle(change: CommandChange) -> str:
    lower, upper = change.lower, change.upper
    if change.kind is ChangeKind.MODIFIED and lower is not None:
        user = os.geteuid()
        if user not in (0, lower.status.uid):
            return f"belongs to user {lower.status.uid}, which a new version could not keep"
    if change.kind is ChangeKind.MODE and lower is not None and upper is not None:
        same_bits = (upper.mode ^ lower.mode) & _PERMISSIONS == 0
        before, after = lower.status.modified_ns, upper.status.modified_ns
        same_time = upper.kind is NodeKind.DIRECTORY or before == after
        if same_bits and same_time:
            return "keeps its setuid, setgid and sticky bits"
    return ""


def _stays_in_place(change: CommandChange) -> bool:
    if change.kind is not ChangeKind.MODE:
        return False
    # A file with several hard links becomes a separate file: see `commit`.
    is_directory, lower = change.node is NodeKind.DIRECTORY, change.lower
    return is_directory or lower is None or lower.status.links == 1


def _directories(found: Sequence[CommandChange], kind: ChangeKind) -> frozenset[str]:
    return frozenset(
        each.path for each in found if each.kind is kind and each.node is NodeKind.DIRECTORY
    )


_BROUGHT: Final = (ChangeKind.CREATED, ChangeKind.MODIFIED)
_PRESENT: Final = (*_BROUGHT, ChangeKind.MODE)


def settle(
    differences: CommandDifferences, layers: OpenLayers, context: JudgeContext, *, grants_asks: bool
) -> tuple[JudgedChange, ...]:
    """Judge every change and settle which land; locates repositories.

    `grants_asks`: the approver agreed to the diff. Raises: HostError.
    """
    found = differences.found
    touched = Touched(paths_of(found, *_PRESENT), paths_of(found, ChangeKind.DELETED))
    repositories = find_repositories(layers.lower_fd, touched, layers.resolution)
    outside = context.git_outside
    if outside is not None:
        repositories = tuple(
            replace(each, own=outside.own, folder=outside.folder) if each.path == ".git" else each
            for each in repositories
        )
    context = replace(context, repositories=repositories)
    changes = list(found)
    if context.git == "safe":
        nested = {each.path: each.nested for each in repositories}
        changes = [_with_content(each, nested, layers.upper_fd) for each in changes]
    units = Units(differences, layers, context)
    # A name that another process changed may have been unseen as well.
    renames = Renames(found, layers, (*context.unseen, *differences.conflicts))
    obstacles = Obstacles(found, layers, context.policy.guards)
    while True:
        tried = [
            replace(each, obstacle=why) if (why := obstacles.find(each)) else each
            for each in changes
        ]
        judged = _apply_answer(judge_changes(context, tried), grants=grants_asks)
        judged = _settle_units(judged, units, renames)
        if not obstacles.keep(judged):
            break
    judged = _within_limit(judged, context.policy.settings.limits.change_set_bytes_max)
    return settle_commit(judged, context.commit, len(refused_besides(differences)))


def refusals_of(
    settled: Sequence[JudgedChange], hidden: Sequence[str], shown: Collection[str] = ()
) -> tuple[RefusedChange, ...]:
    """Report the changes that do not land.

    Threat: `rm -r` reveals the names of secrets: of removed names that were hidden and not `shown`,
    only their directory is reported.
    """
    closed = tuple(f"{name}/" for name in hidden)
    found: list[RefusedChange] = []
    for judged in (each for each in settled if not each.lands):
        path, rule = judged.change.path, judged.rule
        is_gone = judged.change.kind is ChangeKind.DELETED
        if path in shown or not (is_gone and f"{path}/".startswith(closed)):
            reason = judged.reason if rule is None else show_name(rule.said)
            found.append(RefusedChange(show_name(path), judged.code, reason, judged.is_aside))
    return tuple(found)


def _with_content(
    change: CommandChange, nested: Mapping[str, frozenset[str]], upper_fd: int
) -> CommandChange:
    if change.node is not NodeKind.FILE or change.kind is ChangeKind.DELETED:
        return change
    place = find_git_place(change.path, nested)
    if place is None:
        return change
    if not wants_content(place.name, nested.get(place.directory, ())):
        return change
    # A file that Paddock cannot read is refused for that.
    return replace(change, content=find_content(upper_fd, change.path, CONTENT_BYTES_MAX))


def _apply_answer(judged: Sequence[JudgedChange], *, grants: bool) -> tuple[JudgedChange, ...]:
    if not any(each.outcome is Outcome.ASK for each in judged):
        return tuple(judged)
    if grants:
        return follow_directories(
            [
                replace(each, outcome=Outcome.ALLOW) if each.outcome is Outcome.ASK else each
                for each in judged
            ]
        )
    return tuple(
        refuse(each, ApprovalUnavailableError.code, f"policy asks first: {each.reason}")
        if each.outcome is Outcome.ASK
        else each
        for each in judged
    )


def _settle_units(
    judged: Sequence[JudgedChange], units: Units, renames: "Renames"
) -> tuple[JudgedChange, ...]:
    while True:
        bound = units.settle(renames.settle(_without_blocked(judged)))
        bound = follow_directories(bound)
        if [each.outcome for each in bound] == [each.outcome for each in judged]:
            return bound
        judged = bound


def _without_blocked(judged: Sequence[JudgedChange]) -> tuple[JudgedChange, ...]:
    """Refuse entries that replace one whose removal is refused, and all entries below."""
    taken = {
        each.change.path
        for each in judged
        if each.change.is_replaced and each.change.kind is ChangeKind.DELETED and not each.lands
    }
    if not taken:
        return tuple(judged)
    below = tuple(f"{path}/" for path in taken)
    return tuple(
        refuse(each, PathExistsError.code, f"{quote(each.change.path)} would replace a kept entry")
        if each.change.kind is not ChangeKind.DELETED
        and (each.change.path in taken or each.change.path.startswith(below))
        else each
        for each in judged
    )


# The layer shows a rename as a removed and a new entry: if one of them landed alone, the file would
# have two names, or none. Of a directory, mv(1) makes a copy, so each entry is such a pair. In a
# user namespace a file does not keep its origin: the halves are found by their times and content.
#
# Threat: a command makes a pair of whatever it likes. A pair only refuses more. A name that the
# command did not see is in none: the refusal would confirm a guess of its content.


class Renames:
    def __init__(
        self, found: Sequence[CommandChange], layers: OpenLayers, unseen: Iterable[str]
    ) -> None:
        self._found, self._layers = found, layers
        self._unseen = frozenset(unseen)

    def settle(self, judged: Sequence[JudgedChange]) -> tuple[JudgedChange, ...]:
        """Refuse both halves of a rename if one does not land."""
        if all(each.lands for each in judged):
            return tuple(judged)
        settled = list(judged)
        for group in self._groups:
            kept = next((judged[each] for each in group if not judged[each].lands), None)
            if kept is not None:
                path = quote(kept.change.path)
                why = f"it is one rename with {path}, which does not land: {kept.reason}"
                for number in group:
                    settled[number] = refuse(settled[number], PermissionDeniedError.code, why)
        return without_empty(judged, settled)

    @cached_property
    def _groups(self) -> list[list[int]]:
        gone, made = self._halves((ChangeKind.DELETED,)), self._halves(_BROUGHT)
        sizes = set(map(_measure, gone.values())) & set(map(_measure, made.values()))
        halves = {n: each for n, each in (gone | made).items() if _measure(each) in sizes}
        # Threat: a command creates huge sparse files. Then the size alone makes a pair.
        is_read = sum(_measure(each)[1] for each in halves.values()) <= _COMPARED_BYTES_MAX
        versions = {n: self._version(each, is_read=is_read) for n, each in halves.items()}
        moved: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, each in halves.items():
            look = each.upper or each.lower
            known = _measure(each), None if look is None else look.status.modified_ns
            moved[known, versions[number]].append(number)
            if number in gone and versions[number] is not None:
                # The new file may be closed, so that only its time is known.
                moved[known, None].append(number)
        pairs = [each for each in moved.values() if _joins(each, gone, made)]
        paired = {number for pair in pairs for number in pair}
        copied: defaultdict[str, list[int]] = defaultdict(list)
        for number, version in versions.items():
            if version is not None and number not in paired:
                copied[version].append(number)
        return [*pairs, *(each for each in copied.values() if _joins(each, gone, made))]

    def _halves(self, kinds: Collection[ChangeKind]) -> dict[int, CommandChange]:
        return {
            number: each
            for number, each in enumerate(self._found)
            if each.kind in kinds
            and self._unseen.isdisjoint((*directories_above(each.path), each.path))
            and not _is_in_git(each.path)
        }

    def _version(self, each: CommandChange, *, is_read: bool) -> str | None:
        _, size_bytes = _measure(each)
        if not size_bytes or not is_read:
            return str(size_bytes) if size_bytes else None
        layers, lower, path = self._layers, each.lower, each.path
        if each.upper is not None:
            return layers.find_version(layers.upper_fd, path)
        if lower is None or (lower.status.uid != os.geteuid() and not lower.mode & stat.S_IROTH):
            return None  # As root, we can read what the command could not.
        return layers.find_version(layers.lower_fd, path)


def _joins(group: Iterable[int], gone: Mapping[int, object], made: Mapping[int, object]) -> bool:
    return not (gone.keys().isdisjoint(group) or made.keys().isdisjoint(group))


def _measure(each: CommandChange) -> tuple[NodeKind, int]:
    look = each.upper or each.lower
    is_file = look is not None and look.kind is NodeKind.FILE
    return each.node, look.status.size_bytes if look is not None and is_file else 0


def _within_limit(judged: Sequence[JudgedChange], bytes_max: int) -> tuple[JudgedChange, ...]:
    total_bytes = written_bytes(judged)
    if total_bytes <= bytes_max:
        return tuple(judged)
    why = f"the command wrote {total_bytes} bytes, {bytes_max} are allowed: nothing is kept"
    return tuple(refuse(each, PermissionDeniedError.code, why) for each in judged)


def written_bytes(settled: Sequence[JudgedChange]) -> int:
    landing = (each.change for each in settled if each.lands)
    return sum(_measure(each)[1] for each in landing if each.upper and each.kind in _BROUGHT)


def refused_besides(differences: CommandDifferences) -> tuple[RefusedChange, ...]:
    found = [
        RefusedChange(
            show_name(path),
            InvalidPathError.code,
            f"deeper than {limits.path_depth_max} directories",
        )
        for path in differences.too_deep
    ]
    if not differences.is_whole:
        why = f"the command changed more than {limits.change_set_paths_max} paths: nothing is kept"
        found.append(RefusedChange(".", PermissionDeniedError.code, why))
    if differences.root_mode is not None:
        why = f"the workspace itself keeps its mode: the command set {differences.root_mode:04o}"
        found.append(RefusedChange(".", ReadOnlyPathError.code, why))
    return tuple(found)


# Count the content that changes could lose: up to a limit they land without a question, otherwise
# they wait. Content that can be recreated does not count: `generated` files, dependencies, files
# that git ignores, and, for a git operation, files identical to git's index.

_MEGABYTE: Final = 1_000_000
_COMPARED_BYTES_MAX: Final = 500_000_000
_GIT_WAIT_S: Final = 10.0
_CHECK_IGNORE: Final = ("git", *GIT_OPTIONS, "check-ignore", "-z", "--stdin")


def find_excess(
    settled: Sequence[JudgedChange], layers: OpenLayers, guards: PathGuards, most: ConfineMax
) -> str:
    """Return the limit that the landing changes exceed without a question; empty for none."""
    lost = [each for each in settled if _could_lose(each, guards)]
    if not _excess(lost, most):
        return ""
    # The slow checks only if needed.
    ignored = _find_ignored(layers.lower_fd, (each.change.path for each in lost))
    lost = [each for each in lost if each.change.path not in ignored]
    if any(_is_in_git(each.change.path) for each in settled if each.lands):
        known = frozenset(_find_as_indexed(layers.lower_fd, lost))
        lost = [each for each in lost if each.change.path not in known]
    return _excess(lost, most)


def _could_lose(settled: JudgedChange, guards: PathGuards) -> bool:
    change = settled.change
    path = change.path
    return (
        settled.lands
        and change.kind in (ChangeKind.MODIFIED, ChangeKind.DELETED)
        and change.node is not NodeKind.DIRECTORY
        and not _is_in_git(path)
        and guards.find_generated(path) is None
        and not guards.is_below_generated(path)
        and not guards.is_in_dependency(path)
    )


def _is_in_git(path: str) -> bool:
    return ".git" in path.split("/")


def _excess(lost: Sequence[JudgedChange], most: ConfineMax) -> str:
    deleted = sum(each.change.kind is ChangeKind.DELETED for each in lost)
    size = sum(each.change.lower.status.size_bytes for each in lost if each.change.lower)
    if len(lost) > most.files:
        return f"{len(lost)} files are changed or deleted, [shell] confine_max is {most.files}"
    if deleted > most.deleted:
        return f"{deleted} files are deleted, [shell] confine_max is {most.deleted} deleted"
    if size > most.mb * _MEGABYTE:
        return f"{size} bytes are replaced or deleted, [shell] confine_max is {most.mb} mb"
    return ""


def _find_ignored(root_fd: int, paths: Iterable[str]) -> frozenset[str]:
    try:
        done = subprocess.run(
            _CHECK_IGNORE,
            input=b"".join(os.fsencode(path) + b"\0" for path in paths),
            # The open workspace, even if its path was replaced since.
            cwd=f"/proc/self/fd/{root_fd}",
            pass_fds=(root_fd,),
            env=GIT_ENVIRONMENT,
            capture_output=True,
            timeout=_GIT_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(map(os.fsdecode, done.stdout.split(b"\0")[:-1]))


def _find_as_indexed(root_fd: int, lost: Sequence[JudgedChange]) -> Iterator[str]:
    wanted = frozenset(os.fsencode(each.change.path) for each in lost)
    found = find_indexed(IndexPlace(".", root_fd, ".git/"), wanted)
    entries = {entry.path: entry.object_id for entry in found}
    left = _COMPARED_BYTES_MAX
    for each in lost:
        path, lower = each.change.path, each.change.lower
        named = entries.get(os.fsencode(path))
        if named is None or lower is None or lower.status.size_bytes > left:
            continue
        left -= lower.status.size_bytes
        content = find_content(root_fd, path, lower.status.size_bytes)
        if content is not None and find_object_name(b"blob", content, len(named)) == named:
            yield path
