"""Which work trees belong to the repositories that a command changed, and where they stand.

A repository is its common directory: objects and refs. A linked worktree has a git directory
of its own in there, with the index and the HEAD; a submodule's repository lies in that of its
superproject, and is one of its own.

What a directory is, its own files say: as they were before the command, and of one that the
command made, as they are now. Those never land, so a lie in them binds more, or a repository
that does not come anyway.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paddock.errors import HostError
from paddock.sandbox.git.rules import GitDirectory

Read = Callable[[str], bytes | None]
"""The content of a workspace-relative file on one side of a command; None where there is none.

Raises: HostError: it cannot be read.
"""

_MADE: Final = re.compile(r"((?:.+/)?worktrees/[^/]+)/gitdir|((?:.+/)?modules/.+)/config")
_WORK_TREE: Final = re.compile(rb"(?im)^\s*(?:\[core\]\s*)?worktree\s*=[ \t]*(.*?)[ \t\r]*$")
_LEADS: Final = b"gitdir: "
_PLAIN: Final = re.compile(rb"[^\"\\#;\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class WorkTree:
    """One work tree, and where git keeps what it knows of it. Paths are workspace-relative."""

    place: str
    """Where it is found: its git directory, or the file that leads there."""
    git: str
    """The git directory with its index and its HEAD."""
    common: str
    """The repository: objects and refs."""
    root: str | None
    """None where it has none, or none in the workspace."""
    hash_bytes: int
    is_sure: bool = True
    """Whether it is known where the work tree stands; else it could be the whole workspace."""
    folder: str = ""
    """What the workspace is of it, where it is larger."""


def find_work_trees(
    directories: Sequence[GitDirectory],
    made: Iterable[str],
    read: tuple[Read, Read],
    workspace: str,
) -> tuple[WorkTree, ...]:
    """The work trees of `directories`. `made`: what a command created; `read`: before and after."""
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
            # A submodule that is new comes with its superproject, or not at all.
            found.append(replace(tree, common=directory.path))
    return tuple(found)


def _look_outside(directory: GitDirectory) -> Iterable[WorkTree]:
    """The work tree that the workspace is, or is a folder of, and the repository's main one."""
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
    """Where a file `.git` leads; None where it is none, or leads out of the workspace."""
    parent = posixpath.dirname(directory.path)
    try:
        said = files.read(directory.path) or b""
        if not said.startswith(_LEADS):
            return None
        git = files.inside(said[len(_LEADS) :].strip(), parent)
    except (HostError, ValueError):
        return None
    if git is None:
        return None
    return replace(_look(git, directory, files), place=directory.path, root=parent or ".")


def _look(git: str, directory: GitDirectory, files: "_Files") -> WorkTree:
    hash_bytes = directory.hash_bytes
    try:
        said = files.read(f"{git}/commondir")
        if said is None:
            return WorkTree(git, git, git, files.work_tree(git), hash_bytes)
        common = files.inside(said.strip(), git) or git
        named = files.inside((files.read(f"{git}/gitdir") or b"").strip(), git)
        root = None if named is None else posixpath.dirname(named) or "."
        return WorkTree(git, git, common, root, hash_bytes)
    except (HostError, ValueError):
        return WorkTree(git, git, directory.path, ".", hash_bytes, is_sure=False)


@dataclass(frozen=True, slots=True)
class _Files:
    read: Read
    workspace: str

    def work_tree(self, git: str) -> str | None:
        for name in ("config.worktree", "config"):
            said = _WORK_TREE.findall(self.read(f"{git}/{name}") or b"")
            if said:
                return self.inside(said[-1], git)
        parent, _, own = git.rpartition("/")
        return (parent or ".") if own.casefold() == ".git" else None

    def inside(self, text: bytes, base: str) -> str | None:
        """Workspace-relative; None for what lies outside. Raises: ValueError: not plain to read."""
        if _PLAIN.fullmatch(text) is None:
            raise ValueError(text)
        where = posixpath.join(self.workspace, base, text.decode("utf-8", "surrogateescape"))
        where = posixpath.normpath(where)
        if where == self.workspace:
            return "."
        below = f"{self.workspace.rstrip('/')}/"
        return where[len(below) :] if where.startswith(below) else None
