"""Judging what a command changed: every change by the policy that a file tool meets. Pure.

Decided with `Writer.COMMAND` (so `generated` may be written). Refused is what no tool makes:
special files, set-id bits, links that lead out, impossible names. In a git directory the preset
decides instead of `protected` and `secret`; whatever else denies there, denies still.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    ApprovalUnavailableError,
    DirectoryNotEmptyError,
    PaddockError,
    PathTraversalError,
    PermissionDeniedError,
    ProtectedPathError,
    ReadOnlyPathError,
    SecretPathError,
    SpecialFileError,
)
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, Writer
from paddock.policy.settings import Commit, Git
from paddock.sandbox.git.rules import (
    SPECIAL_KINDS,
    GitChange,
    GitDirectory,
    NodeKind,
    bare_paths,
    find_git_place,
    judge_git,
)
from paddock.sandbox.host.host_facts import GitOutside, directories_above, is_covered
from paddock.text.show import quote
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch
from paddock.workspace.paths import parse_asked

_NEW_DIRECTORY_MODE: Final = 0o755
_SET_ID_BITS: Final = 0o6000
_LIFTED_IN_GIT: Final = frozenset({"paths.protected", "paths.secret", "paths.generated"})
_ALL_OR_NOTHING: Final = 'commit = "all", and another change of this command is refused'


class ChangeKind(Enum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    """One entry for each name that is gone: what stood below a removed directory too."""
    MODE = "mode"


class CommandChange(Struct, frozen=True):
    path: str
    """Workspace-relative, canonical but for its characters: the disk gave it."""
    kind: ChangeKind
    node: NodeKind
    mode: int = 0o644
    """Twelve bits, as it stands now; of no interest for a link or a deletion."""
    link_text: str = ""
    content: bytes | None = None
    """Only where `rules.wants_content` asks for it."""
    obstacle: str = ""
    """Why this user cannot do it, whatever policy says; found by whoever looked at the disk."""


class StagedJudgement(Struct, frozen=True):
    change: CommandChange
    outcome: Outcome
    """ASK where policy would ask a person before a file tool does this."""
    code: str = ""
    reason: str = ""
    rule: RuleMatch | None = None
    warnings: tuple[str, ...] = ()
    warned_by: str = ""
    phase: int = 0
    """Within a git directory, lower ones land first (`git_names.Phase`)."""
    is_aside: bool = False

    @property
    def is_allowed(self) -> bool:
        return self.outcome is Outcome.ALLOW


class Bench(Struct, frozen=True):
    policy: Policy
    chain: AgentChain
    git: Git
    workspace: str
    """Absolute, real: what an absolute link is compared with."""
    readable: tuple[str, ...] = ()
    repositories: tuple[GitDirectory, ...] = ()
    """Git directories that stood there before the command, bare ones among them."""
    shown: frozenset[str] = frozenset()
    stand_ins: frozenset[str] = frozenset()
    """Of these, what git would have checked out as something else: a filter or an object is
    missing. No change of them is recorded."""
    git_outside: GitOutside | None = None
    commit: Commit = "each"
    unseen: tuple[str, ...] = ()
    """Names in the workspace that were not there for the command, but for what is `shown`."""
    as_root: bool = False
    """Whoever lands this reads what its owner may not."""


def judge_changes(bench: Bench, changes: Sequence[CommandChange]) -> tuple[StagedJudgement, ...]:
    judged: list[StagedJudgement] = []
    bare = bare_paths(bench.repositories)
    for change in changes:
        place = None if bench.git == "none" else find_git_place(change.path, bare)
        if place is None:
            judged.append(_judge(bench, change))
        else:
            judged.append(_judge_in_git(bench, change, place.directory, place.name))
    return follow_directories(judged)


def settle_commit(
    judgements: Sequence[StagedJudgement], commit: Commit, refused_besides: int = 0
) -> tuple[StagedJudgement, ...]:
    """Settle change by change or, under `all`, everything or nothing; a question is no refusal."""
    denied = sum(each.outcome is Outcome.DENY for each in judgements)
    if commit == "each" or denied + refused_besides == 0:
        return tuple(judgements)
    return tuple(refuse(each, PermissionDeniedError.code, _ALL_OR_NOTHING) for each in judgements)


def _judge(bench: Bench, change: CommandChange) -> StagedJudgement:
    problem = _unusable(change) or _impossible(bench, change)
    if problem is not None:
        return problem
    decision = decide(bench.policy, bench.chain, _actions(change), Writer.COMMAND)
    if change.path in bench.shown and decision.outcome is not Outcome.DENY:
        # Threat: what stands there, which the command never saw, would be lost.
        reason = f"{quote(change.path)} was shown as git's index has it, and is not written"
        return _refused(change, ReadOnlyPathError.code, reason)
    warning = bench.policy.guards.find_warning(change.path) if decision.warnings else None
    return StagedJudgement(
        change,
        decision.outcome,
        decision.code,
        decision.reason,
        decision.rule,
        decision.warnings,
        "" if warning is None else warning.text,
    )


def _actions(change: CommandChange) -> tuple[Action, ...]:
    path = change.path
    if change.kind is ChangeKind.DELETED:
        return (Action("file", "delete", path),)
    if change.kind is ChangeKind.MODE:
        return (Action("file", "mode", path),)
    if change.node is NodeKind.LINK:
        return (Action("file", "create", path), Action("file", "link", path))
    return (Action("file", "create", path),)


def _unusable(change: CommandChange) -> StagedJudgement | None:
    try:
        parse_asked(change.path, ())
    except PaddockError as problem:
        return _refused(change, problem.code, problem.message)
    return None


def _impossible(bench: Bench, change: CommandChange) -> StagedJudgement | None:
    shown = quote(change.path)
    if change.node in SPECIAL_KINDS:
        return _refused(change, SpecialFileError.code, f"{shown} is a FIFO, socket or device")
    if change.obstacle:
        return _obstructed(change)
    if change.kind is ChangeKind.DELETED:
        return None
    if change.node is NodeKind.LINK:
        return _judge_link(bench, change)
    if change.node is NodeKind.FILE and change.mode & _SET_ID_BITS:
        reason = f"{shown} has a setuid or setgid bit"
        return _refused(change, PermissionDeniedError.code, reason)
    # Threat: a directory that its owner may not enter can be neither listed nor removed
    # by the tools, and hides what is in it from every later look. A closed file could be
    # neither kept nor brought back, but by root.
    of_file = 0 if bench.as_root else 0o400
    needed = 0o700 if change.node is NodeKind.DIRECTORY else of_file
    if change.mode & needed != needed:
        return _refused(
            change,
            PermissionDeniedError.code,
            f"{shown} would be closed to its owner: {change.mode:04o}",
        )
    return None


def _judge_link(bench: Bench, change: CommandChange) -> StagedJudgement | None:
    """Refuse a link out of the workspace, or to a secret; not into what the plan makes readable."""
    shown = f"{quote(change.path)} is a link to {quote(change.link_text)}"
    text = change.link_text
    if text.startswith("/"):
        absolute = _without_dots(text)
        if absolute is not None and is_covered(absolute, (bench.workspace,)):
            inside = absolute[len(bench.workspace) :].strip("/") or "."
        elif absolute is not None and is_covered(absolute, bench.readable):
            return None
        else:
            return _refused(change, PathTraversalError.code, f"{shown}, out of the workspace")
    else:
        parent = change.path.rpartition("/")[0]
        inside = _within(parent, text)
        if inside is None:
            return _refused(change, PathTraversalError.code, f"{shown}, out of the workspace")
    secret = bench.policy.guards.find_secret_for_command(inside)
    if secret is not None:
        return _refused(change, SecretPathError.code, f"{shown}, which is secret")
    return None


def _without_dots(text: str) -> str | None:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/" + "/".join(parts)


def _within(parent: str, text: str) -> str | None:
    """Threat: `a/../..` where `a` is a link leads elsewhere: `..` counts only at the beginning."""
    place = parent.split("/") if parent else []
    names: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            names.append(part)
        elif names or not place:
            return None
        else:
            place.pop()
    return "/".join((*place, *names)) or "."


def _judge_in_git(
    bench: Bench, change: CommandChange, directory: str, name: str
) -> StagedJudgement:
    known = next(
        (each for each in bench.repositories if each.path == directory), GitDirectory(directory)
    )
    ruling = judge_git(
        GitChange(
            name,
            change.node,
            change.mode & 0o7777,
            change.content,
            is_removed=change.kind is ChangeKind.DELETED,
        ),
        known,
        bench.git,
    )
    judged = _unusable(change) or (_obstructed(change) if change.obstacle else None)
    judged = judged or _denied_in_git(bench, change)
    if judged is None and not ruling.is_allowed:
        reason = f"{quote(change.path)} is not committed by the git preset: {ruling.reason}"
        judged = _refused(change, ProtectedPathError.code, reason)
    judged = judged or StagedJudgement(change, Outcome.ALLOW)
    return replace(judged, phase=int(ruling.phase), is_aside=ruling.is_aside)


def _denied_in_git(bench: Bench, change: CommandChange) -> StagedJudgement | None:
    for rule in decide(bench.policy, bench.chain, _actions(change), Writer.COMMAND).matched:
        if rule.outcome is Outcome.DENY and rule.source not in _LIFTED_IN_GIT:
            return StagedJudgement(change, Outcome.DENY, rule.code, rule.reason, rule)
    return None


def follow_directories(judgements: Sequence[StagedJudgement]) -> tuple[StagedJudgement, ...]:
    """Let directories follow what is in them: one is made for whatever lands, and stays with it."""
    landing: set[str] = set()
    staying: dict[str, Outcome] = {}
    for each in judgements:
        if each.change.kind is ChangeKind.DELETED:
            if each.outcome is not Outcome.ALLOW:
                for path in directories_above(each.change.path):
                    staying[path] = max(each.outcome, staying.get(path, Outcome.ALLOW))
        elif each.outcome is Outcome.ALLOW and each.change.node is not NodeKind.DIRECTORY:
            landing.update(directories_above(each.change.path))
    return tuple(_following(each, landing, staying) for each in judgements)


def _following(
    judgement: StagedJudgement, landing: set[str], staying: dict[str, Outcome]
) -> StagedJudgement:
    change = judgement.change
    if change.node is not NodeKind.DIRECTORY:
        return judgement
    if change.kind is ChangeKind.CREATED and not judgement.is_allowed and change.path in landing:
        made = replace(change, mode=_NEW_DIRECTORY_MODE)
        return StagedJudgement(made, Outcome.ALLOW, phase=judgement.phase)
    kept = staying.get(change.path, Outcome.ALLOW)
    if change.kind is ChangeKind.DELETED and kept > judgement.outcome:
        reason = f"{quote(change.path)} is not empty: something in it may not be removed"
        # Not by the rule that would have allowed it.
        return replace(
            judgement, outcome=kept, code=DirectoryNotEmptyError.code, reason=reason, rule=None
        )
    return judgement


def refuse(judgement: StagedJudgement, code: str, reason: str) -> StagedJudgement:
    if judgement.outcome is Outcome.DENY:
        return judgement
    # The rule stays only where it is the reason.
    rule = judgement.rule if code == ApprovalUnavailableError.code else None
    return replace(judgement, outcome=Outcome.DENY, code=code, reason=reason, rule=rule)


def _obstructed(change: CommandChange) -> StagedJudgement:
    return _refused(change, ReadOnlyPathError.code, f"{quote(change.path)} {change.obstacle}")


def _refused(change: CommandChange, code: str, reason: str) -> StagedJudgement:
    return StagedJudgement(change, Outcome.DENY, code, reason)
