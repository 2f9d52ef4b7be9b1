"""What a command changed of one repository lands together, or none of it does.

A unit is every change below a git directory, and of every path that its index or HEAD names,
before or after: else the repository would say that the user reverted what did not land. Without
a change below the git directory, or with new times alone, there is none. Untracked files are
judged by themselves; a superproject is one with submodules whose commit in its index changed.

Threat: a command that counts on the unit. It only ever refuses more, believes nothing of the
command's (`named`), and refuses whatever could be named where that cannot be looked up. A commit
may take out or change a file only if the command was shown it.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from paddock.errors import HostError, PermissionDeniedError
from paddock.sandbox.changes.differences import Difference, OpenLayers, is_only_touched
from paddock.sandbox.changes.judging import ChangeKind, StagedJudgement, refuse
from paddock.sandbox.git.layout import WorkTree, find_work_trees
from paddock.sandbox.git.rules import (
    CONTENT_BYTES_MAX,
    GitDirectory,
    NodeKind,
    bare_paths,
    differ_in_upstreams,
    find_git_place,
)
from paddock.sandbox.git.tracked import Naming, Sides
from paddock.sandbox.host.host_facts import directories_above, read_content
from paddock.text.show import quote

_BYTES_MAX: Final = 256_000_000


class Unseen(Struct, frozen=True):
    closed: Sequence[str] = ()
    shown: Collection[str] = ()
    """Of these, and of what is below them: what it was shown after all."""
    too_deep: Sequence[str] = ()
    """Directories below which nobody looked for changes."""


class _Repository(Struct):
    trees: list[Naming] = field(default_factory=list[Naming])
    inside: list[int] = field(default_factory=list[int])
    is_formed: bool | None = None


class Units:
    def __init__(
        self,
        found: Sequence[Difference],
        directories: Sequence[GitDirectory],
        layers: OpenLayers,
        unseen: Unseen,
        workspace: str,
    ) -> None:
        self._found = found
        self._layers = layers
        self._unseen = unseen
        self._by_path = {each.change.path: each for each in found}
        self._in_work: dict[str, int] = {}
        self._repositories: defaultdict[str, _Repository] = defaultdict(_Repository)
        if directories:
            self._group(directories, workspace)

    def settle(self, judged: Sequence[StagedJudgement]) -> tuple[StagedJudgement, ...]:
        holders = {
            name: why
            for name, each in self._repositories.items()
            if (why := self._find_holder(each, judged))
        }
        if not holders:
            return tuple(judged)
        settled = list(judged)
        for name, why in self._spread(holders).items():
            repository = self._repositories[name]
            reason = f"it is one unit with all that changed of the repository {quote(name)}: {why}"
            for number in (*repository.inside, *self._named(repository)):
                settled[number] = refuse(settled[number], PermissionDeniedError.code, reason)
        return _without_empty(judged, settled)

    def _group(self, directories: Sequence[GitDirectory], workspace: str) -> None:
        made = (each.change.path for each in self._found if each.change.kind is ChangeKind.CREATED)
        layers = self._layers
        fds = (layers.lower_fd, layers.upper_fd)
        sides = Sides(self._before, self._after, fds, layers.resolution)
        trees = find_work_trees(directories, made, (self._before, self._after), workspace)
        namings = {each.place: Naming(each, sides) for each in trees}
        bare = bare_paths(directories)
        for number, each in enumerate(self._found):
            path = each.change.path
            place = find_git_place(path, bare)
            if place is None:
                if each.change.node is not NodeKind.DIRECTORY:
                    self._in_work[path] = number
                continue
            above = (".", *directories_above(path), path)
            tree = next((namings[one].tree for one in reversed(above) if one in namings), None)
            if tree is None:
                raise AssertionError("a change in a git directory that was not found")
            self._repositories[tree.common].inside.append(number)
        for naming in namings.values():
            if naming.tree.common in self._repositories:
                self._repositories[naming.tree.common].trees.append(naming)

    def _before(self, path: str) -> bytes | None:
        layers = self._layers
        return read_content(layers.lower_fd, path, _BYTES_MAX, layers.resolution)

    def _after(self, path: str) -> bytes | None:
        difference = self._by_path.get(path)
        if difference is None:
            return self._before(path)
        if difference.change.kind is ChangeKind.DELETED:
            return None
        return read_content(self._layers.upper_fd, path, CONTENT_BYTES_MAX)

    def _find_holder(self, repository: _Repository, judged: Sequence[StagedJudgement]) -> str:
        try:
            why = self._look_for_holder(repository, judged)
        except HostError as error:
            why = error.message
        return why if why and self._is_formed(repository) else ""

    def _look_for_holder(self, repository: _Repository, judged: Sequence[StagedJudgement]) -> str:
        for number in repository.inside:
            each = judged[number]
            if not (each.is_allowed or each.is_aside or self._is_aside(repository, number)):
                return _why(each)
        found = (self._find_holder_in(tree, judged) for tree in repository.trees)
        return next((why for why in found if why), "")

    def _find_holder_in(self, tree: Naming, judged: Sequence[StagedJudgement]) -> str:
        refused = {
            name: number
            for name, number in self._changed(tree).items()
            if not judged[number].is_allowed and not is_only_touched(self._found[number])
        }
        if refused:
            named = self._named_in(tree)
            for name, number in refused.items():
                if name in named:
                    return _why(judged[number])
        deep = next((path for path in self._unseen.too_deep if _below(tree.tree, path)), None)
        if deep is not None:
            return f"{quote(deep)} is too deep to be looked into"
        closed = _all_below(tree.tree, self._unseen.closed)
        if closed and not tree.tree.is_sure:
            return "where its work tree stands is not plain to read"
        shown = _all_below(tree.tree, self._unseen.shown)
        unseen = tree.find_unseen(closed, shown) if closed else None
        if unseen is None:
            return ""
        return f"{quote(os.fsdecode(unseen))} would change, and the command was not shown that file"

    def _is_formed(self, repository: _Repository) -> bool:
        if repository.is_formed is None:
            try:
                repository.is_formed = any(
                    self._found[number].change.node is not NodeKind.DIRECTORY
                    and not self._is_aside(repository, number)
                    for number in repository.inside
                )
            except HostError:
                repository.is_formed = True
        return repository.is_formed

    def _is_aside(self, repository: _Repository, number: int) -> bool:
        difference = self._found[number]
        change, lower = difference.change, difference.lower
        if change.node is not NodeKind.FILE or lower is None or change.kind is ChangeKind.DELETED:
            return False
        if change.kind is ChangeKind.MODE:
            return is_only_touched(difference)
        above, _, name = change.path.rpartition("/")
        if name == "index":
            return any(
                each.is_only_refreshed() for each in repository.trees if each.tree.git == above
            )
        if name == "config" and any(each.tree.git == above for each in repository.trees):
            before, after = self._before(change.path), self._after(change.path)
            return before is not None and after is not None and differ_in_upstreams(before, after)
        return False

    def _changed(self, tree: Naming) -> dict[bytes, int]:
        return {
            name: number
            for path, number in self._in_work.items()
            if (name := _below(tree.tree, path))
        }

    def _named_in(self, tree: Naming) -> frozenset[bytes]:
        """Raises: HostError."""
        changed = frozenset(self._changed(tree))
        return tree.named(changed) if changed and tree.tree.is_sure else changed

    def _named(self, repository: _Repository) -> Iterable[int]:
        for tree in repository.trees:
            changed = self._changed(tree)
            try:
                named = self._named_in(tree)
            except HostError:
                named = frozenset(changed)
            yield from (changed[name] for name in named)

    def _spread(self, holders: dict[str, str]) -> dict[str, str]:
        held = dict(holders)
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
                if tree is not None and outer != name and self._has_moved(tree, root):
                    ties.setdefault(outer, []).append(name)
                    ties.setdefault(name, []).append(outer)
        return ties

    @staticmethod
    def _has_moved(tree: Naming, root: str) -> bool:
        try:
            return tree.has_moved(_below(tree.tree, root))
        except HostError:
            return True


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


def _why(judgement: StagedJudgement) -> str:
    path = quote(judgement.change.path)
    return judgement.reason if path in judgement.reason else f"{path}: {judgement.reason}"


def _without_empty(
    judged: Sequence[StagedJudgement], settled: list[StagedJudgement]
) -> tuple[StagedJudgement, ...]:
    landing: set[str] = set()
    held: dict[str, str] = {}
    for before, after in zip(judged, settled, strict=True):
        above = directories_above(after.change.path)
        if after.is_allowed and after.change.node is not NodeKind.DIRECTORY:
            landing.update(above)
        elif before.is_allowed and not after.is_allowed:
            held.update(dict.fromkeys(above, after.reason))
    return tuple(
        refuse(each, PermissionDeniedError.code, held[each.change.path])
        if each.is_allowed
        and each.change.kind is ChangeKind.CREATED
        and each.change.node is NodeKind.DIRECTORY
        and each.change.path in held
        and each.change.path not in landing
        else each
        for each in settled
    )
