"""Which git directories the changes of a command touch, as they stood before it and as they would.

A preset treats a git directory as one unit, so it has to be known where each begins, and
where a submodule's or worktree's begins inside it. Found by looking at the directories
above what changed: O(changes), no walk.

Bare repositories have no `.git` in their name. What stood there as one before the command
is one; so is what would be one afterwards.

# Threat: `HEAD`, `objects`, `refs` and a `config` of its own, planted in any directory,
make it a repository for the next git command that is run in there.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paddock.sandbox.git_rules import GitDirectory, find_git_place, looks_bare
from paddock.workspace.resolution import PASS_DIRECTORY, Resolution, detect_resolution

_BARE_NAMES: Final = ("HEAD", "objects", "refs")
_WORKTREE_NAMES: Final = ("HEAD", "commondir", "gitdir")
_INSIDE: Final = ("modules", "worktrees")


@dataclass(frozen=True, slots=True)
class Touched:
    """What a command did to names, without what it did to contents."""

    present: frozenset[str]
    """Made, replaced or written to."""
    gone: frozenset[str]


def find_repositories(lower_fd: int, touched: Touched) -> tuple[GitDirectory, ...]:
    """The git directories of the workspace in which something was touched."""
    paths = touched.present | touched.gone
    looking = _Looking(lower_fd, touched, detect_resolution())
    bare = sorted({above for path in paths for above in _above(path) if looking.is_bare(above)})
    inside: dict[str, set[str]] = {}
    for path in paths:
        place = find_git_place(path, bare)
        if place is not None:
            nested = inside.setdefault(place.directory, set())
            nested.update(looking.nested(place.directory, place.name))
    return tuple(
        GitDirectory(directory, frozenset(nested)) for directory, nested in sorted(inside.items())
    )


@dataclass(slots=True)
class _Looking:
    """Looks at each directory of the workspace once."""

    lower_fd: int
    touched: Touched
    resolution: Resolution
    _names: dict[tuple[str, tuple[str, ...]], frozenset[str]] = field(
        default_factory=dict[tuple[str, tuple[str, ...]], frozenset[str]]
    )
    _bare: dict[str, bool] = field(default_factory=dict[str, bool])

    def is_bare(self, directory: str) -> bool:
        """Whether it is taken for a repository, before the command or after it."""
        known = self._bare.get(directory)
        if known is None:
            known = self._bare[directory] = self._look_bare(directory)
        return known

    def _look_bare(self, directory: str) -> bool:
        if find_git_place(directory) is not None:
            return False
        before = self._standing(directory, _BARE_NAMES)
        if looks_bare(before):
            return True
        made = {name for name in _BARE_NAMES if f"{directory}/{name}" in self.touched.present}
        stays = {name for name in before if f"{directory}/{name}" not in self.touched.gone}
        return looks_bare(made | stays)

    def nested(self, directory: str, name: str) -> Iterable[str]:
        """The git directories of submodules and worktrees on the way to `name` in it."""
        parts = name.split("/")
        for position, part in enumerate(parts[:-1]):
            if part not in _INSIDE:
                continue
            names = _BARE_NAMES if part == "modules" else _WORKTREE_NAMES
            for depth in range(position + 2, len(parts) + 1):
                inner = "/".join(parts[:depth])
                if self._standing(f"{directory}/{inner}", names) == frozenset(names):
                    yield inner

    def _standing(self, directory: str, names: Sequence[str]) -> frozenset[str]:
        """Which of these names the directory had, nothing followed."""
        key = directory, tuple(names)
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = self._look_for(directory, names)
        return known

    def _look_for(self, directory: str, names: Sequence[str]) -> frozenset[str]:
        try:
            fd = self.resolution.open(self.lower_fd, directory, PASS_DIRECTORY)
        except OSError:
            return frozenset()
        try:
            return frozenset(name for name in names if _stands(fd, name))
        finally:
            os.close(fd)


def _stands(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]
