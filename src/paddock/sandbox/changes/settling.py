"""Settle what of a command's differences lands, and what is refused.

Each is judged by itself (`judging`). What takes the place of something else needs that to go; a
repository's are one unit (`units`); the whole set has a limit; under `commit = "all"` one
refusal is everybody's.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
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
from paddock.policy.settings import Commit
from paddock.sandbox.changes.differences import CommandDifferences, Difference, OpenLayers, paths_of
from paddock.sandbox.changes.judging import (
    Bench,
    ChangeKind,
    CommandChange,
    StagedJudgement,
    follow_directories,
    judge_changes,
    settle_commit,
)
from paddock.sandbox.changes.units import Units, Unseen
from paddock.sandbox.changes.upper import Kind
from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.rules import CONTENT_BYTES_MAX, NodeKind, find_git_place, wants_content
from paddock.sandbox.host.host_facts import directories_above, find_content
from paddock.sandbox.values import RefusedChange
from paddock.storage.atomic import held_open
from paddock.text.show import quote, show_name
from paddock.values.decisions import Outcome
from paddock.workspace.resolve import PASS_DIRECTORY

# A command has its way in its layer: it opens a read-only directory or a closed file with
# chmod(1), and goes on. In the workspace they are as they were, and the commit has the
# user's rights and no more. So each such change is refused by itself, before the commit
# would fail over it with everything else.

_PERMISSIONS: Final = 0o777
_ENTER_AND_WRITE: Final = os.W_OK | os.X_OK
_READABLE_BY_ALL: Final = 0o444


class Obstacles:
    __slots__ = ("_going", "_guards", "_holders", "_lower_fd", "_made", "_resolution", "_writable")

    def __init__(self, found: Sequence[Difference], layers: OpenLayers, guards: PathGuards) -> None:
        self._lower_fd = layers.lower_fd
        self._guards = guards
        self._resolution = layers.resolution
        self._writable: dict[str, bool] = {}
        self._holders: dict[str, str | None] = {}
        self._made = _directories(found, ChangeKind.CREATED)
        self._going = set(_directories(found, ChangeKind.DELETED))

    def find(self, difference: Difference) -> str:
        return (
            difference.change.obstacle
            or _of_itself(difference)
            or self._of_its_content(difference)
            or self._of_its_directory(difference)
        )

    def keep(self, judged: Sequence[StagedJudgement]) -> bool:
        """Count on directories that stay after all; True: judge their contents anew."""
        staying = {
            each.change.path
            for each in judged
            if each.change.path in self._going
            and each.change.kind is ChangeKind.DELETED
            and not each.is_allowed
        }
        self._going -= staying
        self._holders.clear()
        return any(not self._is_writable(path) for path in staying)

    def _of_its_content(self, difference: Difference) -> str:
        change, lower = difference.change, difference.lower
        if lower is None or lower.kind is not Kind.FILE or change.kind is ChangeKind.MODE:
            return ""
        if lower.mode & _READABLE_BY_ALL == _READABLE_BY_ALL:
            return ""
        if self._guards.is_below_generated(change.path):
            return ""
        parent, _, name = change.path.rpartition("/")
        if self._may(parent or ".", name, os.R_OK):
            return ""
        return "could not be kept in the history: this user may not read it"

    def _of_its_directory(self, difference: Difference) -> str:
        if _stays_in_place(difference):
            return ""
        parent = difference.change.path.rpartition("/")[0]
        if parent not in self._holders:
            self._holders[parent] = self._holder_of(difference.change.path)
        holder = self._holders[parent]
        if holder is None or self._is_writable(holder):
            return ""
        where = "the workspace's root" if holder == "." else quote(holder)
        return f"is in {where}, where this user may not write"

    def _holder_of(self, path: str) -> str | None:
        for above in reversed(directories_above(path)):
            if above in self._going:
                return None
            if above not in self._made:
                return above
        return "."

    def _is_writable(self, path: str) -> bool:
        known = self._writable.get(path)
        if known is None:
            known = self._writable[path] = self._may(path, ".", _ENTER_AND_WRITE)
        return known

    def _may(self, directory: str, name: str, rights: int) -> bool:
        try:
            fd = self._resolution.open(self._lower_fd, directory, PASS_DIRECTORY)
        except OSError:
            return True  # It is gone, or another: the commit finds that out.
        with held_open(fd):
            # Only where it matters: see `workspace.metadata.require_writable`.
            set_id = os.geteuid() != os.getuid()
            return os.access(name, rights, dir_fd=fd, effective_ids=set_id)


def _of_itself(difference: Difference) -> str:
    change, lower, upper = difference.change, difference.lower, difference.upper
    if change.kind is ChangeKind.MODIFIED and lower is not None:
        user = os.geteuid()
        if user not in (0, lower.owner):
            return f"belongs to user {lower.owner}, which a new version could not keep"
    if change.kind is ChangeKind.MODE and lower is not None and upper is not None:
        same_bits = (upper.mode ^ lower.mode) & _PERMISSIONS == 0
        same_time = upper.kind is Kind.DIRECTORY or upper.mtime_ns == lower.mtime_ns
        if same_bits and same_time:
            return "keeps its setuid, setgid and sticky bits"
    return ""


def _stays_in_place(difference: Difference) -> bool:
    change, lower = difference.change, difference.lower
    if change.kind is not ChangeKind.MODE:
        return False
    # A file with a second name becomes one of its own: see `committing`.
    return change.node is NodeKind.DIRECTORY or lower is None or lower.links == 1


def _directories(found: Sequence[Difference], kind: ChangeKind) -> frozenset[str]:
    return frozenset(
        each.change.path
        for each in found
        if each.change.kind is kind and each.change.node is NodeKind.DIRECTORY
    )


_PRESENT: Final = (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.MODE)


class LandingTerms(Struct, frozen=True):
    commit: Commit
    bytes_max: int
    grants_asks: bool = False


class Settled(Struct, frozen=True):
    difference: Difference
    judgement: StagedJudgement

    @property
    def lands(self) -> bool:
        return self.judgement.is_allowed


def settle(
    differences: CommandDifferences, layers: OpenLayers, bench: Bench, terms: LandingTerms
) -> tuple[Settled, ...]:
    """Judge every difference and settle what lands; finds repositories. Raises: HostError."""
    found = differences.found
    touched = Touched(paths_of(found, *_PRESENT), paths_of(found, ChangeKind.DELETED))
    repositories = find_repositories(layers.lower_fd, touched, layers.resolution)
    outside = bench.git_outside
    if outside is not None:
        repositories = tuple(
            replace(each, own=outside.own, folder=outside.folder) if each.path == ".git" else each
            for each in repositories
        )
    bench = replace(bench, repositories=repositories)
    changes = [each.change for each in found]
    if bench.git == "safe":
        nested = {each.path: each.nested for each in repositories}
        changes = [_with_content(each, nested, layers.upper_fd) for each in changes]
    unseen = Unseen(bench.unseen, bench.shown - bench.stand_ins, differences.too_deep)
    units = Units(found, repositories, layers, unseen, bench.workspace)
    obstacles = Obstacles(found, layers, bench.policy.guards)
    while True:
        tried = [
            replace(change, obstacle=why) if (why := obstacles.find(each)) else change
            for each, change in zip(found, changes, strict=True)
        ]
        judged = _answered(judge_changes(bench, tried), grants=terms.grants_asks)
        judged = _bound(found, judged, units)
        if not obstacles.keep(judged):
            break
    judged = _within_limit(found, judged, terms.bytes_max)
    judged = settle_commit(judged, terms.commit, len(refused_besides(differences)))
    return tuple(Settled(*pair) for pair in zip(found, judged, strict=True))


def refusals_of(
    settled: Sequence[Settled], hidden: Sequence[str], shown: Collection[str] = ()
) -> tuple[RefusedChange, ...]:
    """Report what does not land.

    Threat: `rm -r` would name the secrets in a directory that nobody was shown: of what the
    command could not see (but `shown`), only the directory is reported.
    """
    closed = tuple(f"{name}/" for name in hidden)
    return tuple(
        RefusedChange(show_name(each.judgement.change.path), each.judgement.code, _rule(each))
        for each in settled
        if not each.lands
        and (each.judgement.change.path in shown or not _is_unseen(each.judgement.change, closed))
    )


def _is_unseen(change: CommandChange, closed: tuple[str, ...]) -> bool:
    return change.kind is ChangeKind.DELETED and f"{change.path}/".startswith(closed)


def _rule(settled: Settled) -> str:
    judgement = settled.judgement
    rule = judgement.rule
    if rule is None:
        return judgement.reason
    return show_name(rule.said)


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
    # One that is closed to us is refused for that.
    return replace(change, content=find_content(upper_fd, change.path, CONTENT_BYTES_MAX))


def _answered(judged: Sequence[StagedJudgement], *, grants: bool) -> tuple[StagedJudgement, ...]:
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
        _refused(each, ApprovalUnavailableError.code, f"policy asks first: {each.reason}")
        if each.outcome is Outcome.ASK
        else each
        for each in judged
    )


def _bound(
    found: Sequence[Difference], judged: Sequence[StagedJudgement], units: Units
) -> tuple[StagedJudgement, ...]:
    while True:
        bound = follow_directories(units.settle(_without_blocked(found, judged)))
        if [each.outcome for each in bound] == [each.outcome for each in judged]:
            return bound
        judged = bound


def _without_blocked(
    found: Sequence[Difference], judged: Sequence[StagedJudgement]
) -> tuple[StagedJudgement, ...]:
    """Refuse what takes a place that is not given up, and anything below it."""
    taken = {
        difference.change.path
        for difference, judgement in zip(found, judged, strict=True)
        if difference.is_replaced
        and difference.change.kind is ChangeKind.DELETED
        and not judgement.is_allowed
    }
    if not taken:
        return tuple(judged)
    below = tuple(f"{path}/" for path in taken)
    return tuple(
        _refused(
            each, PathExistsError.code, f"{quote(each.change.path)} is taken by what has to stay"
        )
        if each.change.kind is not ChangeKind.DELETED
        and (each.change.path in taken or each.change.path.startswith(below))
        else each
        for each in judged
    )


def _within_limit(
    found: Sequence[Difference], judged: Sequence[StagedJudgement], bytes_max: int
) -> tuple[StagedJudgement, ...]:
    total_bytes = sum(
        difference.upper.size_bytes
        for difference, judgement in zip(found, judged, strict=True)
        if judgement.is_allowed and difference.upper is not None and _brings_content(difference)
    )
    if total_bytes <= bytes_max:
        return tuple(judged)
    why = f"the command wrote {total_bytes} bytes, {bytes_max} are allowed: none of it is kept"
    return tuple(_refused(each, PermissionDeniedError.code, why) for each in judged)


def _brings_content(difference: Difference) -> bool:
    upper = difference.upper
    is_written = difference.change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED)
    return is_written and upper is not None and upper.kind is Kind.FILE


def written_bytes(settled: Sequence[Settled]) -> int:
    return sum(
        each.difference.upper.size_bytes
        for each in settled
        if each.lands and each.difference.upper is not None and _brings_content(each.difference)
    )


def _refused(judgement: StagedJudgement, code: str, reason: str) -> StagedJudgement:
    if judgement.outcome is Outcome.DENY:
        return judgement
    # The rule stays only where it is the reason.
    rule = judgement.rule if code == ApprovalUnavailableError.code else None
    return replace(judgement, outcome=Outcome.DENY, code=code, reason=reason, rule=rule)


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
        why = f"the command changed more than {limits.change_set_paths_max} paths: none is kept"
        found.append(RefusedChange(".", PermissionDeniedError.code, why))
    if differences.root_mode is not None:
        why = f"the workspace itself keeps its mode: the command set {differences.root_mode:04o}"
        found.append(RefusedChange(".", ReadOnlyPathError.code, why))
    return tuple(found)
