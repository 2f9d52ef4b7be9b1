"""Find the git directories that a command's changes touch, and their work trees.

Only the directories above changed paths are checked: O(changes), no walk. A directory is a bare
repository if it was one before the command, or would be one afterwards.

Threat: `HEAD`, `objects`, `refs` and a `config`, planted one by one in any directory, make it a
repository for the next git command. So a directory that becomes one is reported with the dangerous
entry that existed already (`GitDirectory.armed_by`).

A repository is its common directory. A linked worktree has a separate git directory in there; a
submodule's is in that of its superproject. A directory's role is read from its files as they were
before the command, or, if the command created it, as they are now: those never land.
"""

import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import HostError
from paddock.pattern import lazy_pattern
from paddock.sandbox.git.objects import SHA1_BYTES, SHA256_BYTES
from paddock.sandbox.git.rules import (
    ARMING_NAMES,
    BARE_NAMES,
    GitDirectory,
    find_git_place,
    looks_bare,
)
from paddock.sandbox.host.host_facts import directories_above, find_content, stat_at
from paddock.storage.atomic import held_open
from paddock.workspace.workspace import PASS_DIRECTORY, Resolution, detect_resolution

_MODULE_NAMES: Final = ("HEAD", "objects", "refs")
_WORKTREE_NAMES: Final = ("HEAD", "commondir", "gitdir")
_INSIDE: Final = ("modules", "worktrees")
_CONFIG_BYTES_MAX: Final = 1_000_000
_SHA256: Final = lazy_pattern(rb"(?im)^(?:\s*\[extensions\])?\s*objectformat\s*=\s*\"?sha256\b")
_MADE: Final = lazy_pattern(r"((?:.+/)?worktrees/[^/]+)/gitdir|((?:.+/)?modules/.+)/config")
_WORK_TREE: Final = lazy_pattern(rb"(?im)^\s*(?:\[core\]\s*)?worktree\s*=[ \t]*(.*?)[ \t\r]*$")
_LEAD: Final = lazy_pattern(rb"gitdir: ([^\n\0]+)[\r\n]*")
_PLAIN: Final = lazy_pattern(rb"[^\"\\#;\x00-\x1f]+")

Read = Callable[[str], bytes | None]
"""Read a workspace-relative file on one side of a command; None for none. Raises: HostError."""


class Touched(Struct, frozen=True):
    present: frozenset[str]
    gone: frozenset[str]


def find_repositories(
    lower_fd: int, touched: Touched, resolution: Resolution | None = None
) -> tuple[GitDirectory, ...]:
    paths = touched.present | touched.gone
    looking = _Looking(lower_fd, touched, resolution or detect_resolution())
    above = {each for path in paths for each in (".", *directories_above(path))}
    bare = sorted(filter(looking.is_bare, above))
    inside: dict[str, set[str]] = {}
    for path in paths:
        place = find_git_place(path, bare)
        if place is not None:
            nested = inside.setdefault(place.directory, set())
            nested.update(looking.nested(place.directory, place.name))
    armed = _find_armed(looking, bare)
    return tuple(
        GitDirectory(
            directory,
            frozenset(nested),
            armed.get(directory, ""),
            find_hash_bytes(lower_fd, directory, looking.resolution),
            is_new=not looking.existing(directory, BARE_NAMES),
        )
        for directory, nested in sorted(inside.items())
    )


def find_hash_bytes(root_fd: int, directory: str, resolution: Resolution | None = None) -> int:
    """Return the size of object ids, from the config file, which no command can change."""
    text = find_content(root_fd, _join(directory, "config"), _CONFIG_BYTES_MAX, resolution)
    return SHA256_BYTES if _SHA256.search(text or b"") else SHA1_BYTES


def find_lead(content: bytes, directory: str, workspace: str) -> str | None:
    match = _LEAD.fullmatch(content)
    return None if match is None else find_inside(os.fsdecode(match[1]), directory, workspace)


def find_inside(text: str, directory: str, workspace: str) -> str | None:
    """Threat: a path whose text leads out. Symlinks are not followed when it is opened."""
    where = posixpath.normpath(posixpath.join(workspace, directory, text))
    if where == workspace:
        return "."
    below = f"{workspace.rstrip('/')}/"
    return where[len(below) :] if where.startswith(below) else None


def _find_armed(looking: "_Looking", bare: Sequence[str]) -> dict[str, str]:
    """Threat: `s/refs` as a repository in a repository `s`: it is judged by its name in `s`."""
    armed: dict[str, str] = {}
    for directory in bare:
        name = looking.find_arming(directory)
        place = find_git_place(_join(directory, "HEAD"), bare)
        if name is not None and place is not None:
            armed.setdefault(place.directory, _join(directory, name))
    return armed


class _Looking(Struct):
    lower_fd: int
    touched: Touched
    resolution: Resolution
    _names: dict[tuple[str, Sequence[str]], frozenset[str]] = field(
        default_factory=dict[tuple[str, Sequence[str]], frozenset[str]]
    )

    def is_bare(self, directory: str) -> bool:
        if find_git_place(directory) is not None:
            return False
        # A removed entry counts too: if policy refuses the removal, it stays.
        before = self.existing(directory, BARE_NAMES)
        made = {name for name in BARE_NAMES if _join(directory, name) in self.touched.present}
        return looks_bare(before | made)

    def find_arming(self, directory: str) -> str | None:
        """Return an entry by which git could run code, if it was not a repository before."""
        if looks_bare(self.existing(directory, BARE_NAMES)):
            return None
        existing = self.existing(directory, ARMING_NAMES)
        return next((name for name in ARMING_NAMES if name in existing), None)

    def nested(self, directory: str, name: str) -> Iterable[str]:
        """Yield the git directories of submodules and worktrees on the way to `name` in it."""
        parts = name.split("/")
        for position, part in enumerate(parts[:-1]):
            if part not in _INSIDE:
                continue
            names = _MODULE_NAMES if part == "modules" else _WORKTREE_NAMES
            for depth in range(position + 2, len(parts) + 1):
                inner = "/".join(parts[:depth])
                if self.existing(_join(directory, inner), names) == frozenset(names):
                    yield inner

    def existing(self, directory: str, names: tuple[str, ...]) -> frozenset[str]:
        known = self._names.get((directory, names))
        if known is None:
            known = self._names[directory, names] = self._look_for(directory, names)
        return known

    def _look_for(self, directory: str, names: Sequence[str]) -> frozenset[str]:
        try:
            fd = self.resolution.open(self.lower_fd, directory, PASS_DIRECTORY)
        except OSError:
            return frozenset()
        with held_open(fd):
            return frozenset(name for name in names if stat_at(fd, name) is not None)


def _join(directory: str, name: str) -> str:
    return name if directory == "." else f"{directory}/{name}"


class WorkTree(Struct, frozen=True):
    """One work tree and its git directories. Paths are workspace-relative."""

    place: str
    git: str
    common: str
    root: str | None
    hash_bytes: int
    is_sure: bool = True
    """False if its location is unknown: it could be the whole workspace."""
    folder: str = ""


def find_work_trees(
    directories: Sequence[GitDirectory],
    made: Iterable[str],
    read: tuple[Read, Read],
    workspace: str,
) -> tuple[WorkTree, ...]:
    made = tuple(made)
    before, after = (_Files(each, workspace) for each in read)
    found: list[WorkTree] = []
    for directory in directories:
        if directory.own is None:
            found.append(
                _look_through(directory, before)
                or _look_through(directory, after)
                or _look(directory.path, directory, before)
            )
        else:
            found += _look_outside(directory)
        found += [
            _look(f"{directory.path}/{name}", directory, before)
            for name in sorted(directory.nested - {directory.own})
        ]
        for name in sorted(frozenset(_made_in(directory.path, made)) - directory.nested):
            tree = _look(f"{directory.path}/{name}", directory, after)
            # A new submodule lands with its superproject, or not at all.
            found.append(replace(tree, common=directory.path))
    return tuple(found)


def _look_outside(directory: GitDirectory) -> Iterable[WorkTree]:
    common, own = directory.path, directory.own
    if own:
        yield WorkTree(common, common, common, None, directory.hash_bytes)
    git = f"{common}/{own}" if own else common
    yield WorkTree(git, git, common, ".", directory.hash_bytes, folder=directory.folder)


def _made_in(directory: str, made: Iterable[str]) -> Iterable[str]:
    for path in made:
        if path.startswith(f"{directory}/"):
            match = _MADE.fullmatch(path[len(directory) + 1 :])
            if match is not None:
                yield match[1] or match[2]


def _look_through(directory: GitDirectory, files: "_Files") -> WorkTree | None:
    parent = posixpath.dirname(directory.path)
    try:
        git = find_lead(files.read(directory.path) or b"", parent, files.workspace)
    except HostError:
        return None
    if git is None:
        return None
    return replace(_look(git, directory, files), place=directory.path, root=parent or ".")


def _look(git: str, directory: GitDirectory, files: "_Files") -> WorkTree:
    hash_bytes = directory.hash_bytes
    try:
        lead = files.read(f"{git}/commondir")
        if lead is None:
            return WorkTree(git, git, git, files.work_tree(git), hash_bytes)
        common = files.inside(lead.strip(), git) or git
        named = files.inside((files.read(f"{git}/gitdir") or b"").strip(), git)
        root = None if named is None else posixpath.dirname(named) or "."
        return WorkTree(git, git, common, root, hash_bytes)
    except (HostError, ValueError):
        return WorkTree(git, git, directory.path, ".", hash_bytes, is_sure=False)


class _Files(Struct, frozen=True):
    read: Read
    workspace: str

    def work_tree(self, git: str) -> str | None:
        for name in ("config.worktree", "config"):
            values = _WORK_TREE.findall(self.read(f"{git}/{name}") or b"")
            if values:
                return self.inside(values[-1], git)
        parent, _, own = git.rpartition("/")
        return (parent or ".") if own.casefold() == ".git" else None

    def inside(self, text: bytes, base: str) -> str | None:
        """Return None for a path outside. Raises: ValueError: special characters."""
        if _PLAIN.fullmatch(text) is None:
            raise ValueError(text)
        return find_inside(os.fsdecode(text), base, self.workspace)
