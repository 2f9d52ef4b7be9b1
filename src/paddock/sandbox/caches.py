"""The caches of a workspace's commands: one directory, kept in the plane, that no host reads.

    caches/DIGEST/          ours: its lock, and when it was last looked at
    caches/DIGEST/tree/     what commands see as ~/.cache, written directly, not staged

Nothing in it is believed, and nothing opened but directories, to count and to remove.
"""

import contextlib
import os
import stat
import time
from collections.abc import Generator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError
from paddock.sandbox.inside.protocol import HOST_IDS_FIRST, remove_tree
from paddock.storage.atomic import held_open, host_errors
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import SHARED, locked, try_locked

FOLDER: Final = "caches"
_TREE: Final = "tree"
_LOOKED: Final = "looked"
_LOOKED_S: Final = 3600.0
"""Between two looks at how large it is, but for a command that took its time."""
_LONG_S: Final = 30.0
_DEPTH_MAX: Final = 128
"""Deeper than any tool's; whoever nests deeper hides what it holds."""


class Caches(Struct, frozen=True):
    folder: Path

    @classmethod
    def of(cls, home: Path, workspace: str) -> "Caches":
        return cls(home / sha256(os.fsencode(workspace)).hexdigest()[:32])

    @property
    def tree(self) -> Path:
        return self.folder / _TREE

    @contextlib.contextmanager
    def in_use(self) -> Generator[None]:
        """Hold it while a command runs; look at its size afterwards. Raises: HostError."""
        began_s = time.monotonic()
        self._make()
        with locked(self.folder, SHARED):
            yield
        if time.monotonic() - began_s > _LONG_S or self._was_looked_at() > _LOOKED_S:
            self._look()

    def size_bytes(self) -> int:
        try:
            fd = os.open(self.tree, DIRECTORY)
        except FileNotFoundError:
            return 0
        except OSError:
            return limits.shell_cache_bytes_max + 1
        with held_open(fd):
            return _size(fd, _DEPTH_MAX, limits.shell_cache_bytes_max)

    def clear(self) -> bool:
        """Begin anew; False where a command uses it now. Raises: HostError."""
        if not self.folder.exists():
            return True
        with try_locked(self.folder) as is_ours:
            if is_ours:
                self._remove()
        return is_ours

    def _remove(self) -> None:
        with (
            host_errors("clearing", self.folder),
            held_open(os.open(self.folder, DIRECTORY)) as fd,
        ):
            remove_tree(fd, _TREE)

    def _make(self) -> None:
        """As root, give it to the user that root is in a sandbox: to nobody here."""
        tree, owner = self.tree, HOST_IDS_FIRST if os.geteuid() == 0 else os.geteuid()
        with host_errors("making", self.folder):
            with contextlib.suppress(OSError):
                look = os.lstat(tree)
                if stat.S_ISDIR(look.st_mode) and look.st_uid == owner:
                    return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                tree.mkdir(mode=0o700)
            if owner == HOST_IDS_FIRST:
                os.chown(tree, owner, owner, follow_symlinks=False)

    def _was_looked_at(self) -> float:
        try:
            return time.time() - (self.folder / _LOOKED).stat().st_mtime
        except OSError:
            return float("inf")

    def _look(self) -> None:
        with contextlib.suppress(OSError, HostError):
            if self.size_bytes() <= limits.shell_cache_bytes_max or self.clear():
                (self.folder / _LOOKED).touch(mode=0o600)


def _size(directory: int, depth: int, room: int) -> int:
    """Count the bytes below a descriptor, or more than `room`; follow no link.

    Threat: a running command exchanges a directory for a link, nests deep, or closes a directory.
    """
    total = 0
    try:
        names = os.listdir(directory)
    except OSError:
        return room + 1
    for name in names:
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        total += found.st_blocks * 512
        if stat.S_ISDIR(found.st_mode):
            total += _size_of_child(directory, name, depth, room - total)
        if total > room:
            return total
    return total


def _size_of_child(directory: int, name: str, depth: int, room: int) -> int:
    try:
        fd = os.open(name, DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError:
        return room + 1
    with held_open(fd):
        return _size(fd, depth - 1, room) if depth else room + 1


DOWNLOADS: Final = ("go/pkg/mod/cache/download", ".gradle/caches/modules-2", ".m2/repository")
"""Below a user's home: downloads alone, no settings, no credentials. Only tools that know a second
place to read: no two overlays may share one upper layer.
"""


def cache_variables(cache: str, downloads: Sequence[str]) -> dict[str, str]:
    go, gradle, maven = (
        next((path for path in downloads if path.endswith(f"/{name}")), "") for name in DOWNLOADS
    )
    tail = f" -Dmaven.repo.local.tail={maven}" if maven else ""
    second = {
        # Behind it Go's own default.
        "GOPROXY": f"file://{go},https://proxy.golang.org,direct" if go else "",
        "GRADLE_RO_DEP_CACHE": gradle.removesuffix("/modules-2"),
    }
    return {
        **{name: value for name, value in second.items() if value},
        "XDG_CACHE_HOME": cache,
        "GOCACHE": f"{cache}/go-build",
        "GOMODCACHE": f"{cache}/go-mod",
        "CARGO_HOME": f"{cache}/cargo",
        "GRADLE_USER_HOME": f"{cache}/gradle",
        "NPM_CONFIG_CACHE": f"{cache}/npm",
        "MAVEN_OPTS": f"-Dmaven.repo.local={cache}/maven{tail}",
    }
