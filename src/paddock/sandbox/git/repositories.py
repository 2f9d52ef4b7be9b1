"""Which git directories the changes of a command touch, as they stood before it and as they would.

A preset treats a git directory as one unit, so it has to be known where each begins, and
where a submodule's or worktree's begins inside it. Found by looking at the directories
above what changed: O(changes), no walk.

Bare repositories have no `.git` in their name. What stood there as one before the command
is one; so is what would be one afterwards.

Threat: `HEAD`, `objects`, `refs` and a `config` of its own, planted in any directory,
make it a repository for the next git command that is run in there. By several commands
too: each name is an ordinary one until the last is there. So what completes a
repository is told with what stood there already (`GitDirectory.armed_by`).
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paddock.errors import HostError
from paddock.sandbox.git.entries import SHA1_BYTES, SHA256_BYTES
from paddock.sandbox.git.rules import (
    ARMING_NAMES,
    BARE_NAMES,
    CONTENT_BYTES_MAX,
    GitDirectory,
    find_git_place,
    looks_bare,
)
from paddock.sandbox.host.places import directories_above
from paddock.text.show import quote
from paddock.workspace.resolution import (
    PASS_DIRECTORY,
    READ_FILE,
    Resolution,
    detect_resolution,
)

_MODULE_NAMES: Final = ("HEAD", "objects", "refs")
_WORKTREE_NAMES: Final = ("HEAD", "commondir", "gitdir")
_INSIDE: Final = ("modules", "worktrees")
_CONFIG_BYTES_MAX: Final = 1_000_000
_SHA256: Final = re.compile(rb"(?im)^(?:\s*\[extensions\])?\s*objectformat\s*=\s*\"?sha256\b")


@dataclass(frozen=True, slots=True)
class Touched:
    """What a command did to names, without what it did to contents."""

    present: frozenset[str]
    """Made, replaced or written to."""
    gone: frozenset[str]


def find_repositories(
    lower_fd: int, touched: Touched, resolution: Resolution | None = None
) -> tuple[GitDirectory, ...]:
    """The git directories of the workspace in which something was touched."""
    paths = touched.present | touched.gone
    looking = _Looking(lower_fd, touched, resolution or detect_resolution())
    bare = sorted({above for path in paths for above in _above(path) if looking.is_bare(above)})
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
            looking.hash_bytes(directory),
            is_new=not looking.is_repository(directory),
        )
        for directory, nested in sorted(inside.items())
    )


def read_git_file(root_fd: int, path: str, resolution: Resolution | None = None) -> bytes | None:
    """What a checked file holds; None where it is closed to us, or of more than is looked into.

    Raises: HostError: it cannot be read.
    """
    try:
        fd = (resolution or detect_resolution()).open(root_fd, path, READ_FILE)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_size > CONTENT_BYTES_MAX:
            return None
        return os.pread(fd, CONTENT_BYTES_MAX, 0)
    except OSError as error:
        raise HostError(
            f"the changes of a command cannot be read: {os.strerror(error.errno or 0)}"
        ) from error
    finally:
        os.close(fd)


def read_whole_file(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """What a file of git's holds; None where there is no file.

    Raises: HostError: it cannot be read, or is too large.
    """
    try:
        fd = (resolution or detect_resolution()).open(root_fd, path, READ_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
            raise _unreadable(path, f"no file of at most {bytes_max} bytes")
        return os.pread(fd, found.st_size + 1, 0)
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error
    finally:
        os.close(fd)


def _unreadable(path: str, why: str) -> HostError:
    return HostError(f"what the repository names is not known: {quote(path)}: {why}")


def find_hash_bytes(root_fd: int, directory: str) -> int:
    """The size of an object's name in a git directory, as its configuration says."""
    nothing = Touched(frozenset(), frozenset())
    return _Looking(root_fd, nothing, detect_resolution()).hash_bytes(directory)


def _find_armed(looking: "_Looking", bare: Sequence[str]) -> dict[str, str]:
    """The outermost directory of each that would become an armed repository, and by what.

    Threat: `s/refs` as a repository of its own, where `s` is one: what is in it is
    judged by its name in `s`.
    """
    armed: dict[str, str] = {}
    for directory in bare:
        name = looking.find_arming(directory)
        place = find_git_place(_join(directory, "HEAD"), bare)
        if name is not None and place is not None:
            armed.setdefault(place.directory, _join(directory, name))
    return armed


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
        # What a command removed counts too: policy may refuse that, and then it stays.
        before = self._standing(directory, BARE_NAMES)
        made = {name for name in BARE_NAMES if _join(directory, name) in self.touched.present}
        return looks_bare(before | made)

    def find_arming(self, directory: str) -> str | None:
        """By what git could run code in it, if it was no repository before; relative to it."""
        if looks_bare(self._standing(directory, BARE_NAMES)):
            return None
        standing = self._standing(directory, ARMING_NAMES)
        return next((name for name in ARMING_NAMES if name in standing), None)

    def is_repository(self, directory: str) -> bool:
        """Whether it was one before the command, or could be the half of one."""
        return bool(self._standing(directory, BARE_NAMES))

    def hash_bytes(self, directory: str) -> int:
        """The size of an object's name, as the configuration before the command says.

        Git reads it from this one file, nothing included; commands do not write it.
        """
        try:
            fd = self.resolution.open(self.lower_fd, _join(directory, "config"), READ_FILE)
        except OSError:
            return SHA1_BYTES
        try:
            text = os.pread(fd, _CONFIG_BYTES_MAX, 0)
        except OSError:
            return SHA1_BYTES
        finally:
            os.close(fd)
        return SHA256_BYTES if _SHA256.search(text) else SHA1_BYTES

    def nested(self, directory: str, name: str) -> Iterable[str]:
        """The git directories of submodules and worktrees on the way to `name` in it."""
        parts = name.split("/")
        for position, part in enumerate(parts[:-1]):
            if part not in _INSIDE:
                continue
            names = _MODULE_NAMES if part == "modules" else _WORKTREE_NAMES
            for depth in range(position + 2, len(parts) + 1):
                inner = "/".join(parts[:depth])
                if self._standing(_join(directory, inner), names) == frozenset(names):
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
    """The directories that it lies in, the workspace itself included."""
    return [".", *directories_above(path)]


def _join(directory: str, name: str) -> str:
    return name if directory == "." else f"{directory}/{name}"
