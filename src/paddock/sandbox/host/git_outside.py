"""The git directory of a workspace's repository, where it stands outside of the workspace.

`.git` is a file that leads elsewhere (a linked worktree, a submodule), or stands above.

Threat: a `.git` file may be anybody's word, and what it leads to would be read and written. So
the git directory has to say itself that it belongs here (`gitdir`, `core.worktree`); it is read
below the descriptor that is mounted afterwards, and all of it and the workspace has one owner.
"""

import os
import stat
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import HostError
from paddock.pattern import lazy_pattern
from paddock.sandbox.host.host_facts import GitOutside, Resolver, is_below, read_content
from paddock.storage.atomic import held_open
from paddock.workspace.workspace import PASS_DIRECTORY, READ_FILE, Beside, detect_resolution

GIT: Final = ".git"
_POINTER_BYTES_MAX: Final = 4096
_CONFIG_BYTES_MAX: Final = 1_000_000
_WORKTREE: Final = lazy_pattern(r'(?im)^(?:\s*\[core\])?\s*worktree\s*=\s*"?([^"\n]+?)"?\s*$')
_IS_SPARSE: Final = lazy_pattern(
    r'(?im)^(?:\s*\[core\])?\s*sparsecheckout\s*(?:=\s*"?(?:true|yes|on|1)|$)'
)
_NAMES: Final = ("HEAD", "objects", "refs")


class HeldGit(Struct, frozen=True):
    outside: GitOutside
    beside: Beside

    def close(self) -> None:
        os.close(self.beside.fd)


def find_git_outside(workspace: str) -> GitOutside | None:
    held = open_git_outside(workspace)
    if held is None:
        return None
    held.close()
    return held.outside


def open_git_outside(workspace: str) -> HeldGit | None:
    """Hold what is found; only links above the git directory are followed, and told."""
    try:
        device = os.stat(workspace).st_dev
        place = workspace
        while place != "/":
            if os.stat(place).st_dev != device:
                return None  # Where git stops looking, too.
            found = _kind_of(f"{place}/{GIT}")
            if found is not None:
                return _Found(workspace, place).hold(is_file=stat.S_ISREG(found))
            place = place.rpartition("/")[0] or "/"
    except (HostError, OSError, ValueError):
        # It went while it was looked at, may not be looked at, or says nothing that git writes.
        return None
    return None


def _is_sparse(fd: int, outside: GitOutside) -> bool:
    texts = (_text(fd, name) for name in ("config", outside.beside_index("config.worktree")))
    return any(_IS_SPARSE.search(text) for text in texts)


def _kind_of(path: str) -> int | None:
    try:
        return os.stat(path, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Found:
    """A `.git` at or above a workspace. `hold` raises OSError, ValueError where it is none."""

    def __init__(self, workspace: str, place: str) -> None:
        self._workspace = workspace
        self._place = place
        self._resolver = Resolver()
        self._owner = os.stat(workspace).st_uid

    def hold(self, *, is_file: bool) -> HeldGit | None:
        folder = self._workspace[len(self._place) :].strip("/")
        if not is_file:
            if not folder:
                return None
            outside = GitOutside(f"{self._place}/.git", folder=folder)
            return self._opened(outside, lambda _: True)
        text = self._pointer()
        asked = text if text.startswith("/") else f"{self._place}/{text}"
        standing = self._resolver.find(asked)
        if standing is None or is_below(standing.real, self._workspace):
            return None
        real, pointer = standing.real, f"{self._place}/.git" if folder else ""
        common, between, name = real.rpartition("/worktrees/")
        if between and "/" not in name:
            own = f"worktrees/{name}"
            outside = GitOutside(common, own, folder, pointer, standing.links)
            return self._opened(outside, lambda fd: self._is_worktree(fd, outside))
        outside = GitOutside(real, "", folder, pointer, standing.links)
        return self._opened(outside, lambda fd: self._is_module(fd, real))

    def _pointer(self) -> str:
        with held_open(os.open(f"{self._place}/.git", READ_FILE | os.O_NOFOLLOW)) as fd:
            self._require_owner(os.fstat(fd))
            content = os.pread(fd, _POINTER_BYTES_MAX, 0)
        text = content.decode("utf-8").removesuffix("\n")
        if not text.startswith("gitdir: ") or not text.isprintable():
            raise ValueError("no file that leads to a git directory")
        return text.removeprefix("gitdir: ")

    def _opened(self, outside: GitOutside, belongs: Callable[[int], bool]) -> HeldGit | None:
        common = outside.common
        if is_below(self._workspace, common):
            return None
        with held_open(os.open("/", PASS_DIRECTORY)) as slash:
            fd = detect_resolution().open(slash, common.strip("/"), PASS_DIRECTORY)
        with held_open(fd):
            self._require_owner(os.fstat(fd))
            for name in _NAMES:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
            if belongs(fd):
                found = replace(outside, is_sparse=_is_sparse(fd, outside))
                return HeldGit(found, Beside(GIT, common, os.dup(fd)))
        return None

    def _is_worktree(self, fd: int, outside: GitOutside) -> bool:
        with held_open(detect_resolution().open(fd, outside.own, PASS_DIRECTORY)) as own:
            self._require_owner(os.fstat(own))
        back, common = (_text(fd, f"{outside.own}/{name}") for name in ("gitdir", "commondir"))
        directory = f"{outside.common}/{outside.own}"
        path = _joined(directory, back)
        is_back = path.endswith("/.git") and self._leads(path[: -len("/.git")], self._place)
        return is_back and self._leads(_joined(directory, common), outside.common)

    def _is_module(self, fd: int, real: str) -> bool:
        said = _WORKTREE.findall(_text(fd, "config"))
        return bool(said) and self._leads(_joined(real, said[-1]), self._place)

    def _leads(self, path: str, place: str) -> bool:
        standing = self._resolver.find(path)
        return standing is not None and standing.real == place

    def _require_owner(self, found: os.stat_result) -> None:
        # Threat: a repository of another user's, whose files would be read with our rights.
        if found.st_uid != self._owner or os.geteuid() not in (0, found.st_uid):
            raise ValueError("somebody else's")


def _joined(directory: str, text: str) -> str:
    line = text.removesuffix("\n")
    return line if line.startswith("/") else f"{directory}/{line}"


def _text(fd: int, name: str) -> str:
    return os.fsdecode(read_content(fd, name, _CONFIG_BYTES_MAX) or b"")
