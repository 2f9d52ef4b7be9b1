"""What of a command's differences lands, and what is refused: judged, and then settled together.

Each is judged by itself, as a file tool's act would be (`judging`). Four things bind them
to each other: what takes the place of something else needs that to go; a repository's are
one unit (`units`); the whole set has a limit; and under `commit = "all"` one refusal is
everybody's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.errors import (
    ApprovalUnavailableError,
    InvalidPathError,
    PathExistsError,
    PermissionDeniedError,
    ReadOnlyPathError,
)
from paddock.policy.settings import Commit
from paddock.sandbox.changes.differences import Difference, Differences, Layers, paths_of
from paddock.sandbox.changes.judging import (
    Bench,
    ChangeKind,
    CommandChange,
    StagedJudgement,
    follow_directories,
    judge_changes,
    settle_commit,
)
from paddock.sandbox.changes.obstacles import Obstacles
from paddock.sandbox.changes.units import Units, Unseen
from paddock.sandbox.changes.upper import Kind
from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.rules import (
    CONTENT_BYTES_MAX,
    NodeKind,
    find_git_place,
    wants_content,
)
from paddock.sandbox.host.standing import find_content
from paddock.sandbox.outcome import RefusedChange
from paddock.text.show import quote, show_name
from paddock.values.decisions import Outcome

_PRESENT: Final = (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.MODE)


@dataclass(frozen=True, slots=True)
class Terms:
    commit: Commit
    bytes_max: int
    grants_asks: bool = False
    """Somebody was shown the differences, and said yes to what policy asks about."""


@dataclass(frozen=True, slots=True)
class Settled:
    difference: Difference
    judgement: StagedJudgement

    @property
    def lands(self) -> bool:
        return self.judgement.is_allowed


def settle(
    differences: Differences, layers: Layers, bench: Bench, terms: Terms
) -> tuple[Settled, ...]:
    """Judge every difference and settle what lands.

    `bench` comes without repositories: they are found here.

    Raises: HostError: something of the layer cannot be read.
    """
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
    """What is reported of what does not land.

    Threat: `rm -r` of a directory would name the secrets in it that nobody was shown. A
    command cannot have named what it did not see: of these only the directory is reported.
    What is `shown` was seen, though not as it stands.
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
    """What lands of changes that need each other: each refusal may be the reason of the next."""
    while True:
        bound = follow_directories(units.settle(_without_blocked(found, judged)))
        if [each.outcome for each in bound] == [each.outcome for each in judged]:
            return bound
        judged = bound


def _without_blocked(
    found: Sequence[Difference], judged: Sequence[StagedJudgement]
) -> tuple[StagedJudgement, ...]:
    """What takes a place that is not given up does not land, nor anything below it."""
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


def refused_besides(differences: Differences) -> tuple[RefusedChange, ...]:
    """What is reported of what is not judged: the root's mode, and more than is looked at."""
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
