"""Judge a command's changes: each change alone, then each repository as one unit.

A change is judged by the policy of the file tools with `Writer.COMMAND` (so `generated` may be
written), without disk access. Refused are entries that no tool creates: special files, set-id
bits, links that lead out, impossible names. In a git directory the preset decides instead of
`protected` and `secret`; other denials still apply.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import (
    ApprovalUnavailableError,
    DirectoryNotEmptyError,
    HostError,
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
from paddock.sandbox.changes.differences import (
    ChangeKind,
    CommandChange,
    CommandDifferences,
    OpenLayers,
    is_only_touched,
)
from paddock.sandbox.git.layout import WorkTree, find_work_trees
from paddock.sandbox.git.rules import (
    CONTENT_BYTES_MAX,
    SPECIAL_KINDS,
    GitChange,
    GitDirectory,
    NodeKind,
    bare_paths,
    differ_in_upstreams,
    find_git_place,
    judge_git,
)
from paddock.sandbox.git.tracked import Naming, Sides
from paddock.sandbox.host.host_facts import (
    GitOutside,
    directories_above,
    is_covered,
    read_content,
)
from paddock.text.show import quote
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch
from paddock.workspace.paths import parse_asked

_NEW_DIRECTORY_MODE: Final = 0o755
_SET_ID_BITS: Final = 0o6000
_LIFTED_IN_GIT: Final = frozenset({"paths.protected", "paths.secret", "paths.generated"})
_ALL_OR_NOTHING: Final = 'commit = "all", and another change of this command is refused'


class JudgedChange(Struct, frozen=True):
    change: CommandChange
    outcome: Outcome
    """ASK where policy would ask the approver before a file tool does this."""
    code: str = ""
    reason: str = ""
    rule: RuleMatch | None = None
    warnings: tuple[str, ...] = ()
    warned_by: str = ""
    phase: int = 0
    """Within a git directory, lower ones land first (`git.rules.Phase`)."""
    is_aside: bool = False

    @property
    def lands(self) -> bool:
        return self.outcome is Outcome.ALLOW


class JudgeContext(Struct, frozen=True):
    policy: Policy
    chain: AgentChain
    git: Git
    workspace: str
    """Absolute and real; absolute links are compared with it."""
    readable: tuple[str, ...] = ()
    repositories: tuple[GitDirectory, ...] = ()
    """The git directories that the changes touch, bare ones included."""
    shown: frozenset[str] = frozenset()
    stand_ins: frozenset[str] = frozenset()
    """The `shown` files that git would check out differently: a filter or an object is missing.
    No recorded change of them lands."""
    git_outside: GitOutside | None = None
    commit: Commit = "each"
    unseen: tuple[str, ...] = ()
    """Names in the workspace that were hidden from the command, including the `shown` ones."""
    as_root: bool = False
    """True if the commit runs as root, which can read files closed to their owner."""


def judge_changes(
    context: JudgeContext, changes: Sequence[CommandChange]
) -> tuple[JudgedChange, ...]:
    judged: list[JudgedChange] = []
    bare = bare_paths(context.repositories)
    for change in changes:
        place = None if context.git == "none" else find_git_place(change.path, bare)
        if place is None:
            judged.append(_judge(context, change))
        else:
            judged.append(_judge_in_git(context, change, place.directory, place.name))
    return follow_directories(judged)


def settle_commit(
    judged: Sequence[JudgedChange], commit: Commit, refused_besides: int = 0
) -> tuple[JudgedChange, ...]:
    """Under `commit = "all"`, refuse all changes if one is denied; ASK is not a denial."""
    denied = sum(each.outcome is Outcome.DENY for each in judged)
    if commit == "each" or denied + refused_besides == 0:
        return tuple(judged)
    return tuple(refuse(each, PermissionDeniedError.code, _ALL_OR_NOTHING) for each in judged)


def _judge(context: JudgeContext, change: CommandChange) -> JudgedChange:
    problem = _unusable(change) or _impossible(context, change)
    if problem is not None:
        return problem
    decision = decide(context.policy, context.chain, _actions(change), Writer.COMMAND)
    if change.path in context.shown and decision.outcome is not Outcome.DENY:
        # Threat: the real file, which the command never saw, would be lost.
        reason = f"{quote(change.path)} was shown as in git's index, and is not written"
        return _refused(change, ReadOnlyPathError.code, reason)
    warning = context.policy.guards.find_warning(change.path) if decision.warnings else None
    return JudgedChange(
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


def _unusable(change: CommandChange) -> JudgedChange | None:
    try:
        parse_asked(change.path, ())
    except PaddockError as problem:
        return _refused(change, problem.code, problem.message)
    return None


def _impossible(context: JudgeContext, change: CommandChange) -> JudgedChange | None:
    shown = quote(change.path)
    if change.node in SPECIAL_KINDS:
        return _refused(change, SpecialFileError.code, f"{shown} is a FIFO, socket or device")
    if change.obstacle:
        return _obstructed(change)
    if change.kind is ChangeKind.DELETED:
        return None
    if change.node is NodeKind.LINK:
        return _judge_link(context, change)
    if change.node is NodeKind.FILE and change.mode & _SET_ID_BITS:
        reason = f"{shown} has a setuid or setgid bit"
        return _refused(change, PermissionDeniedError.code, reason)
    # Threat: tools can neither list nor remove a directory that its owner may not enter, and later
    # checks do not see its content. A closed file could be kept and restored only by root.
    of_file = 0 if context.as_root else 0o400
    needed = 0o700 if change.node is NodeKind.DIRECTORY else of_file
    if change.mode & needed != needed:
        return _refused(
            change,
            PermissionDeniedError.code,
            f"{shown} would be closed to its owner: {change.mode:04o}",
        )
    return None


def _judge_link(context: JudgeContext, change: CommandChange) -> JudgedChange | None:
    """Refuse a link to a secret, or out of the workspace except to the plan's readable places."""
    shown = f"{quote(change.path)} is a link to {quote(change.link_text)}"
    text = change.link_text
    if text.startswith("/"):
        absolute = _without_dots(text)
        if absolute is not None and is_covered(absolute, (context.workspace,)):
            inside = absolute[len(context.workspace) :].strip("/") or "."
        elif absolute is not None and is_covered(absolute, context.readable):
            return None
        else:
            return _refused(change, PathTraversalError.code, f"{shown}, out of the workspace")
    else:
        parent = change.path.rpartition("/")[0]
        inside = _within(parent, text)
        if inside is None:
            return _refused(change, PathTraversalError.code, f"{shown}, out of the workspace")
    secret = context.policy.guards.find_secret_for_command(inside)
    if secret is not None:
        return _refused(change, SecretPathError.code, f"{shown}, which is secret")
    return None


def _without_dots(text: str) -> str | None:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/" + "/".join(parts)


def _within(parent: str, text: str) -> str | None:
    """Threat: `a/../..` leads elsewhere if `a` is a link: allow `..` only at the beginning."""
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
    context: JudgeContext, change: CommandChange, directory: str, name: str
) -> JudgedChange:
    known = next(
        (each for each in context.repositories if each.path == directory), GitDirectory(directory)
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
        context.git,
    )
    judged = _unusable(change) or (_obstructed(change) if change.obstacle else None)
    judged = judged or _denied_in_git(context, change)
    if judged is None and not ruling.is_allowed:
        reason = f"{quote(change.path)} is not committed by the git preset: {ruling.reason}"
        judged = _refused(change, ProtectedPathError.code, reason)
    judged = judged or JudgedChange(change, Outcome.ALLOW)
    return replace(judged, phase=int(ruling.phase), is_aside=ruling.is_aside)


def _denied_in_git(context: JudgeContext, change: CommandChange) -> JudgedChange | None:
    for rule in decide(context.policy, context.chain, _actions(change), Writer.COMMAND).matched:
        if rule.outcome is Outcome.DENY and rule.source not in _LIFTED_IN_GIT:
            return JudgedChange(change, Outcome.DENY, rule.code, rule.reason, rule)
    return None


def follow_directories(judged: Sequence[JudgedChange]) -> tuple[JudgedChange, ...]:
    """Adjust directories to their content: create them for landing entries, keep non-empty ones."""
    landing: set[str] = set()
    staying: dict[str, Outcome] = {}
    for each in judged:
        if each.change.kind is ChangeKind.DELETED:
            if each.outcome is not Outcome.ALLOW:
                for path in directories_above(each.change.path):
                    staying[path] = max(each.outcome, staying.get(path, Outcome.ALLOW))
        elif each.outcome is Outcome.ALLOW and each.change.node is not NodeKind.DIRECTORY:
            landing.update(directories_above(each.change.path))
    return tuple(_following(each, landing, staying) for each in judged)


def _following(
    judgement: JudgedChange, landing: set[str], staying: dict[str, Outcome]
) -> JudgedChange:
    change = judgement.change
    if change.node is not NodeKind.DIRECTORY:
        return judgement
    if change.kind is ChangeKind.CREATED and not judgement.lands and change.path in landing:
        made = replace(change, mode=_NEW_DIRECTORY_MODE)
        return JudgedChange(made, Outcome.ALLOW, phase=judgement.phase)
    kept = staying.get(change.path, Outcome.ALLOW)
    if change.kind is ChangeKind.DELETED and kept > judgement.outcome:
        reason = f"{quote(change.path)} is not empty: something in it may not be removed"
        # Without the rule, which would have allowed the removal.
        return replace(
            judgement, outcome=kept, code=DirectoryNotEmptyError.code, reason=reason, rule=None
        )
    return judgement


def refuse(judgement: JudgedChange, code: str, reason: str) -> JudgedChange:
    if judgement.outcome is Outcome.DENY:
        return judgement
    # Keep the rule only if it is the reason.
    rule = judgement.rule if code == ApprovalUnavailableError.code else None
    return replace(judgement, outcome=Outcome.DENY, code=code, reason=reason, rule=rule)


def _obstructed(change: CommandChange) -> JudgedChange:
    return _refused(change, ReadOnlyPathError.code, f"{quote(change.path)} {change.obstacle}")


def _refused(change: CommandChange, code: str, reason: str) -> JudgedChange:
    return JudgedChange(change, Outcome.DENY, code, reason)


# --- the changes of one repository land together, or not at all -----------------
#
# A unit contains every change below a git directory and of every path that its index or HEAD names,
# before or after. Otherwise changes that did not land would look to git like reverted by the user.
# Without a change below the git directory, or with only new times, there is no unit. Untracked
# files are judged alone; a superproject joins submodules whose commit in its index changed.
#
# Threat: a command exploits the unit. A unit only refuses more, trusts nothing that the command
# wrote (`named`), and refuses every possible member where names cannot be looked up. A commit may
# remove or change a file only if the command was shown it.

_BYTES_MAX: Final = 256_000_000


class _Repository(Struct):
    trees: list[Naming] = field(default_factory=list[Naming])
    inside: list[int] = field(default_factory=list[int])


class Units:
    def __init__(
        self, differences: CommandDifferences, layers: OpenLayers, context: JudgeContext
    ) -> None:
        self._found, self._too_deep = differences.found, differences.too_deep
        self._layers, self._closed = layers, context.unseen
        # The closed names, and names below them, that it was shown after all.
        self._shown = context.shown - context.stand_ins
        self._by_path = {each.path: each for each in self._found}
        self._repositories: defaultdict[str, _Repository] = defaultdict(_Repository)
        if context.repositories:
            self._group(context.repositories, context.workspace)

    def settle(self, judged: Sequence[JudgedChange]) -> tuple[JudgedChange, ...]:
        judged = self._with_asides(judged)
        refusals = {
            name: why
            for name, each in self._repositories.items()
            if (why := self._find_refusal(each, judged))
        }
        if not refusals:
            return tuple(judged)
        settled = list(judged)
        for name, why in self._spread_refusals(refusals).items():
            repository = self._repositories[name]
            reason = f"it is one unit with all changes of the repository {quote(name)}: {why}"
            for number in (*repository.inside, *self._named(repository)):
                settled[number] = refuse(settled[number], PermissionDeniedError.code, reason)
        return without_empty(judged, settled)

    def _group(self, directories: Sequence[GitDirectory], workspace: str) -> None:
        made = (each.path for each in self._found if each.kind is ChangeKind.CREATED)
        layers = self._layers
        fds = (layers.lower_fd, layers.upper_fd)
        sides = Sides(self._before, self._after, fds, layers.resolution)
        trees = find_work_trees(directories, made, (self._before, self._after), workspace)
        namings = {each.place: Naming(each, sides) for each in trees}
        bare, in_work = bare_paths(directories), dict[str, int]()
        for number, each in enumerate(self._found):
            path = each.path
            place = find_git_place(path, bare)
            if place is None:
                if each.node is not NodeKind.DIRECTORY:
                    in_work[path] = number
                continue
            above = (".", *directories_above(path), path)
            tree = next((namings[one].tree for one in reversed(above) if one in namings), None)
            if tree is None:
                raise AssertionError("a change in a git directory that was not found")
            self._repositories[tree.common].inside.append(number)
        for naming in namings.values():
            if naming.tree.common in self._repositories:
                paths = ((_below(naming.tree, path), number) for path, number in in_work.items())
                naming.changed = {name: number for name, number in paths if name}
                self._repositories[naming.tree.common].trees.append(naming)

    def _before(self, path: str) -> bytes | None:
        layers = self._layers
        return read_content(layers.lower_fd, path, _BYTES_MAX, layers.resolution)

    def _after(self, path: str) -> bytes | None:
        change = self._by_path.get(path)
        if change is None:
            return self._before(path)
        if change.kind is ChangeKind.DELETED:
            return None
        return read_content(self._layers.upper_fd, path, CONTENT_BYTES_MAX)

    def _find_refusal(self, repository: _Repository, judged: Sequence[JudgedChange]) -> str:
        try:
            why = self._search_refusal(repository, judged)
        except HostError as error:
            why = error.message
        return why if why and self._is_formed(repository) else ""

    def _search_refusal(self, repository: _Repository, judged: Sequence[JudgedChange]) -> str:
        for number in repository.inside:
            each = judged[number]
            if not (each.lands or each.is_aside):
                return _reason_of(each)
        found = (self._find_refusal_in(tree, judged) for tree in repository.trees)
        return next((why for why in found if why), "")

    def _find_refusal_in(self, tree: Naming, judged: Sequence[JudgedChange]) -> str:
        refused = {
            name: number
            for name, number in tree.changed.items()
            if not judged[number].lands and not is_only_touched(self._found[number])
        }
        for name, number in refused.items():
            if name in tree.named:
                return _reason_of(judged[number])
        draft = tree.find_draft()
        if draft is not None:
            return f"{quote(os.fsdecode(draft))} is a temporary file of Paddock: run it again"
        deep = next((path for path in self._too_deep if _below(tree.tree, path)), None)
        if deep is not None:
            return f"{quote(deep)} is too deep to be read"
        closed = _all_below(tree.tree, self._closed)
        if closed and not tree.tree.is_sure:
            return "the location of its work tree cannot be determined"
        shown = _all_below(tree.tree, self._shown)
        unseen = tree.find_unseen(closed, shown) if closed else None
        if unseen is None:
            return ""
        return f"{quote(os.fsdecode(unseen))} would change, and the command was not shown that file"

    def _with_asides(self, judged: Sequence[JudgedChange]) -> Sequence[JudgedChange]:
        marked = list(judged)
        for repository in self._repositories.values():
            for number in repository.inside:
                each = judged[number]
                if not (each.lands or each.is_aside) and self._is_aside(repository, number):
                    marked[number] = replace(each, is_aside=True)
        return marked

    def _is_formed(self, repository: _Repository) -> bool:
        return any(
            self._found[number].node is not NodeKind.DIRECTORY
            and not self._is_aside(repository, number)
            for number in repository.inside
        )

    def _is_aside(self, repository: _Repository, number: int) -> bool:
        try:
            return self._changes_nothing(repository, number)
        except HostError:
            return False

    def _changes_nothing(self, repository: _Repository, number: int) -> bool:
        change = self._found[number]
        is_deleted = change.kind is ChangeKind.DELETED
        if change.node is not NodeKind.FILE or change.lower is None or is_deleted:
            return False
        if change.kind is ChangeKind.MODE:
            return is_only_touched(change)
        above, _, name = change.path.rpartition("/")
        if name == "index":
            return any(
                each.is_only_refreshed() for each in repository.trees if each.tree.git == above
            )
        if name == "config" and any(each.tree.git == above for each in repository.trees):
            before, after = self._before(change.path), self._after(change.path)
            return before is not None and after is not None and differ_in_upstreams(before, after)
        return False

    def _named(self, repository: _Repository) -> Iterable[int]:
        for tree in repository.trees:
            try:
                named = tree.named
            except HostError:
                named = frozenset(tree.changed)
            yield from (tree.changed[name] for name in named)

    def _spread_refusals(self, refusals: dict[str, str]) -> dict[str, str]:
        held = dict(refusals)
        ties = self._ties()
        waiting = list(held)
        while waiting:
            name = waiting.pop()
            for other in ties.get(name, ()):
                if other not in held:
                    held[other] = held[name]
                    waiting.append(other)
        return held

    def _ties(self) -> dict[str, list[str]]:
        by_root: dict[str, tuple[str, Naming]] = {}
        for name, each in self._repositories.items():
            by_root.update((tree.tree.root, (name, tree)) for tree in each.trees if tree.tree.root)
        ties: dict[str, list[str]] = {}
        for root, (name, _) in by_root.items():
            for above in (".", *directories_above(root)):
                outer, tree = by_root.get(above, (name, None))
                if tree is not None and outer != name and tree.has_moved(_below(tree.tree, root)):
                    ties.setdefault(outer, []).append(name)
                    ties.setdefault(name, []).append(outer)
        return ties


def _below(tree: WorkTree, path: str) -> bytes:
    if tree.root is None:
        return b""
    if tree.root == ".":
        return os.fsencode(f"{tree.folder}/{path}" if tree.folder else path)
    if not path.startswith(f"{tree.root}/"):
        return b""
    return os.fsencode(path[len(tree.root) + 1 :])


def _all_below(tree: WorkTree, paths: Iterable[str]) -> frozenset[bytes]:
    return frozenset(name for path in paths if (name := _below(tree, path)))


def _reason_of(judgement: JudgedChange) -> str:
    path = quote(judgement.change.path)
    return judgement.reason if path in judgement.reason else f"{path}: {judgement.reason}"


def without_empty(
    judged: Sequence[JudgedChange], settled: list[JudgedChange]
) -> tuple[JudgedChange, ...]:
    """Refuse new directories in which nothing lands, because what would is now refused."""
    landing: set[str] = set()
    held: dict[str, str] = {}
    for before, after in zip(judged, settled, strict=True):
        if before.lands and not after.lands:
            held.update(dict.fromkeys(directories_above(after.change.path), after.reason))
    for each in settled:
        is_directory = each.change.node is NodeKind.DIRECTORY
        if each.lands and not (is_directory and each.change.path in held):
            landing.update(directories_above(each.change.path))
    return tuple(
        refuse(each, PermissionDeniedError.code, held[each.change.path])
        if each.lands
        and each.change.kind is ChangeKind.CREATED
        and each.change.node is NodeKind.DIRECTORY
        and each.change.path in held
        and each.change.path not in landing
        else each
        for each in settled
    )
