"""Manage Paddock's directories that commands write: the staging area, and a workspace's caches.

Each launcher has one area, claimed while it lives; the next launcher sweeps leftovers of dead ones.
Caches are kept in the plane, one directory for each workspace, and are never used by the host:

    caches/DIGEST/          private: its lock, and the time of the last size check
    caches/DIGEST/tree/     seen by commands as ~/.cache, written directly, not staged

No content of either is trusted. A claim is a locked directory, swept once the lock is free.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, SandboxUnavailableError
from paddock.pattern import lazy_pattern
from paddock.sandbox.git.index import LINK_MODE, SUBMODULE_MODE
from paddock.sandbox.host.host_facts import directories_above
from paddock.sandbox.inside.protocol import (
    HIDDEN_PREFIX,
    HOST_IDS_COUNT,
    HOST_IDS_FIRST,
    inside_id,
    remove_tree,
)
from paddock.sandbox.values import ConfinementError, Laid, ShownFile
from paddock.storage.atomic import held_open, host_error, host_errors
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import SHARED, locked, open_locked, try_locked

# The lock is flock(2) on the directory itself: the kernel releases it with the process. A process
# whose new directory is swept before it is locked finds it gone, and creates another.

_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TOKEN: Final = lazy_pattern("[0-9a-f]{16}")
_TRIES_MAX: Final = 100


class Claim:
    def __init__(self, name: str, fd: int) -> None:
        """Takes over `fd`, which holds the lock."""
        self.name = name
        self.fd = fd

    def release(self) -> None:
        with contextlib.suppress(OSError):
            # The lock is held to the end, so that no sweep takes a half removed directory.
            for name in os.listdir(self.fd):
                remove_tree(self.fd, name)
            os.rmdir(f"../{self.name}", dir_fd=self.fd)
        self.forget()

    def forget(self) -> None:
        """Close without removing, in a forked child of the owner."""
        os.close(self.fd)


def claim(parent: int, prefix: str) -> Claim:
    """Create a directory in `parent`, a descriptor, and lock it. Raises: OSError."""
    for _ in range(_TRIES_MAX):
        name = prefix + secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = open_locked(parent, name, DIRECTORY)
        if fd is not None:
            return Claim(name, fd)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextlib.contextmanager
def claimed(home: Path, prefix: str) -> Generator[Path]:
    """Hold a claim in `home`; sweep leftovers with the same prefix. Raises: OSError."""
    with held_open(os.open(home, _PASSED)) as parent:
        with contextlib.suppress(OSError):
            sweep(parent, prefix)
        held = claim(parent, prefix)
        try:
            yield home / held.name
        finally:
            held.release()


def sweep(parent: int, prefix: str) -> None:
    """Threat: other users may write in `parent`: no link is followed, their files are kept."""
    with held_open(os.open(".", DIRECTORY, dir_fd=parent)) as listed:
        names = os.listdir(listed)
    for name in names:
        if not name.startswith(prefix) or not _TOKEN.fullmatch(name.removeprefix(prefix)):
            continue
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid != os.geteuid():
                continue
            fd = open_locked(parent, name, DIRECTORY)
            if fd is not None:
                Claim(name, fd).release()


_PREFIX: Final = "launcher-"
_WHITEOUT: Final = os.makedev(0, 0)
"""A character device 0/0 hides a name of the layers below (overlayfs). Every user may create
one since Linux 5.8, as it opens nothing."""
_OPAQUE: Final = "user.overlay.opaque"
"""On a directory: hides the content of the layers below."""


class StagingArea:
    def __init__(self, home: Path) -> None:
        """`home` is private and out of every agent's reach. Raises: HostError."""
        with host_error("cannot create a staging area for commands", str(home)):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with held_open(os.open(home, DIRECTORY)) as parent:
                sweep(parent, _PREFIX)
                self.claim = claim(parent, _PREFIX)
        self.fd = self.claim.fd
        self.path = f"{os.fspath(home)}/{self.claim.name}"
        self._lock = threading.Lock()
        self._layers: dict[_Layer, str] = {}
        """The existing layers' names by content, the most recently requested last."""
        self._users: Counter[str] = Counter()

    def hide(self, workspace: int, names: Collection[str], shown: Sequence[ShownFile] = ()) -> str:
        """Create a directory of whiteouts for workspace-relative names; return its name.

        Layers are reused while the names' parents look the same. Each call needs one `release`.
        `shown` files replace a whiteout or an existing file. Raises: SandboxUnavailableError
        without whiteouts, ConfinementError without user ids for commands.
        """
        if not names and not shown:
            return ""
        with host_error("cannot inspect the directories of a workspace"):
            layer = _Layer.plan(workspace, names, shown)
        with self._lock:
            name = self._layers[layer] = self._layers.pop(layer, "") or self._make(layer)
            self._users[name] += 1
        return name

    def hold(self, *layers: str) -> None:
        with self._lock:
            self._users.update(filter(None, layers))

    def release(self, *layers: str) -> None:
        with self._lock:
            self._users.subtract(filter(None, layers))

    def take_unused(self) -> list[str]:
        with self._lock:
            known = list(self._layers.items())[:-1]
            unused = {layer: name for layer, name in known if not self._users[name]}
            for layer, name in unused.items():
                del self._layers[layer], self._users[name]
        return list(unused.values())

    def _make(self, layer: "_Layer") -> str:
        # A new name each time: an equal layer may be about to be removed.
        name = HIDDEN_PREFIX.decode("ascii") + secrets.token_hex(8)
        try:
            os.mkdir(name, 0o700, dir_fd=self.fd)
            with held_open(os.open(name, DIRECTORY, dir_fd=self.fd)) as root:
                layer.build(root)
        except OSError as error:
            if not has_command_users():
                raise ConfinementError("users", error.errno or 0) from error
            raise SandboxUnavailableError(
                f"cannot hide names from commands: {os.strerror(error.errno or 0)}",
                hint="keep the plane on ext4, xfs, btrfs or tmpfs",
            ) from error
        return name


_Directories = tuple[tuple[str, "_DirectoryLook"], ...]


class _DirectoryLook(Struct, frozen=True):
    mode: int
    user: int
    group: int
    modified_ns: int

    @classmethod
    def of(cls, workspace: int, path: str) -> "_DirectoryLook | None":
        try:
            found = os.stat(path, dir_fd=workspace, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISDIR(found.st_mode):
            return None
        return cls(found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns)

    def give(self, root: int, path: str) -> None:
        if os.geteuid() == 0:
            os.chown(path, inside_id(self.user), inside_id(self.group), dir_fd=root)
        # With the setgid bit: without it the command would seem to have removed it.
        os.chmod(path, self.mode & 0o3777, dir_fd=root)
        os.utime(path, ns=(self.modified_ns, self.modified_ns), dir_fd=root)


class _Layer(Struct, frozen=True):
    whiteouts: tuple[str, ...]
    directories: _Directories
    """Parents before children."""
    opaque: frozenset[str]
    """The directories that are not merged with the directory below."""
    files: tuple[ShownFile, ...]
    """Symlinks last: nothing is created through one."""

    @classmethod
    def plan(cls, workspace: int, names: Iterable[str], shown: Iterable[ShownFile]) -> "_Layer":
        root = _DirectoryLook.of(workspace, ".")
        if root is None:
            raise HostError("the workspace is gone")
        looks, closed = {".": root}, set[str]()
        for name in sorted(names):
            above = directories_above(name)
            for path in above:
                if path not in looks and (look := _DirectoryLook.of(workspace, path)) is not None:
                    looks[path] = look
            # Otherwise its parent is gone by now, and so is the name.
            if not above or above[-1] in looks:
                closed.add(name)
        opaque: set[str] = set()
        files = sorted(shown, key=lambda each: (each.mode == LINK_MODE, each.path))
        for each in files:
            above, is_closed = ".", False
            inside = [each.path] if each.mode == SUBMODULE_MODE else []
            for path in (*directories_above(each.path), *inside):
                is_closed = is_closed or path in closed
                if path not in looks:
                    # A missing directory, or a file in its place, gets its parent's attributes.
                    looks[path] = _DirectoryLook.of(workspace, path) or looks[above]
                    opaque |= {path} if is_closed else set()
                above = path
        files = [each for each in files if each.mode != SUBMODULE_MODE]
        replaced = opaque.union(each.path for each in files)
        whiteouts = tuple(sorted(closed - replaced))
        return cls(whiteouts, tuple(looks.items()), frozenset(opaque), tuple(files))

    def build(self, root: int) -> None:
        looks = dict(self.directories)
        for path in looks:
            if path != ".":
                os.mkdir(path, 0o700, dir_fd=root)
        for path in self.opaque:
            with held_open(os.open(path, DIRECTORY, dir_fd=root)) as fd:
                os.setxattr(fd, _OPAQUE, b"y")
        for path in self.whiteouts:
            os.mknod(path, stat.S_IFCHR, _WHITEOUT, dir_fd=root)
        for each in self.files:
            # The name may be a directory for another entry: git, too, checks out only one.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                _write_shown(root, each, looks[os.path.dirname(each.path) or "."])
        # The uppermost layer decides a directory's attributes: copy those of the real one.
        for path, look in reversed(self.directories):
            look.give(root, path)


def lay_over(
    laid: Laid, closed: Collection[str], root: int
) -> tuple[list[str], tuple[ShownFile, ...]]:
    """Return the names that these files replace, and the files, without those closed now.

    Raises: OSError.
    """
    hidden = frozenset(closed)
    seen = {
        path: file
        for path, file in laid.items()
        if hidden.isdisjoint((*directories_above(path), path))
    }
    files = tuple(file for file in seen.values() if file is not None)
    # For each file, the uppermost path component that is not a directory.
    names = {
        next(
            (above for above in directories_above(path) if _DirectoryLook.of(root, above) is None),
            path,
        )
        for path in seen
    }
    return sorted(name for name in names if names.isdisjoint(directories_above(name))), files


def _write_shown(root: int, file: ShownFile, holder: _DirectoryLook) -> None:
    if file.mode == LINK_MODE:
        os.symlink(file.content, os.fsencode(file.path), dir_fd=root)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(file.path, flags, 0o600, dir_fd=root), "wb") as made:
            made.write(file.content)
        os.chmod(file.path, file.mode & 0o777, dir_fd=root)
    if os.geteuid() == 0:
        owner, group = inside_id(holder.user), inside_id(holder.group)
        os.chown(file.path, owner, group, dir_fd=root, follow_symlinks=False)
    times = (file.modified_ns, file.modified_ns)
    os.utime(file.path, ns=times, dir_fd=root, follow_symlinks=False)


def has_command_users() -> bool:
    if os.geteuid() != 0:
        return True
    try:
        rows = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return True
    ranges = [tuple(map(int, row.split())) for row in rows]
    last = HOST_IDS_FIRST + HOST_IDS_COUNT
    return any(first <= HOST_IDS_FIRST and last <= first + count for first, _, count in ranges)


FOLDER: Final = "caches"
_TREE: Final = "tree"
_LOOKED: Final = "looked"
_LOOKED_S: Final = 3600.0
"""Between two checks of the cache size; a check also follows a command longer than `_LONG_S`."""
_LONG_S: Final = 30.0
_DEPTH_MAX: Final = 128
"""Deeper than any tool nests; a deeper tree counts as too large."""


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
        """Hold it while a command runs; check its size afterwards. Raises: HostError."""
        began_s = time.monotonic()
        self._make()
        with locked(self.folder, SHARED):
            yield
        if time.monotonic() - began_s <= _LONG_S and not self._is_look_due():
            return
        with contextlib.suppress(OSError, HostError):
            if self.size_bytes() <= limits.shell_cache_bytes_max or self.clear():
                (self.folder / _LOOKED).touch(mode=0o600)

    def size_bytes(self) -> int:
        return _size_at(None, self.tree, _DEPTH_MAX, limits.shell_cache_bytes_max)

    def clear(self) -> bool:
        """Empty the cache; False where a command uses it now. Raises: HostError."""
        if not self.folder.exists():
            return True
        with try_locked(self.folder) as is_ours, host_errors("clearing", self.folder):
            if is_ours:
                with held_open(os.open(self.folder, DIRECTORY)) as fd:
                    remove_tree(fd, _TREE)
        return is_ours

    def _make(self) -> None:
        """As root, give it to the unused host id that root has in a sandbox."""
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

    def _is_look_due(self) -> bool:
        try:
            return time.time() - (self.folder / _LOOKED).stat().st_mtime > _LOOKED_S
        except OSError:
            return True


def _size(directory: int, depth: int, room: int) -> int:
    """Count the bytes below a descriptor; more than `room` if too large. Follows no link.

    Threat: a running command replaces a directory by a link, nests deep, or closes a directory.
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
        if stat.S_ISDIR(found.st_mode) and total <= room:
            total += _size_at(directory, name, depth - 1, room - total)
        if total > room:
            break
    return total


def _size_at(directory: int | None, name: str | Path, depth: int, room: int) -> int:
    try:
        fd = os.open(name, DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError:
        return room + 1
    with held_open(fd):
        return _size(fd, depth, room) if depth else room + 1


DOWNLOADS: Final = ("go/pkg/mod/cache/download", ".gradle/caches/modules-2", ".m2/repository")
"""Below a user's home: only downloads, no settings or credentials, and only of tools that can read
a second directory, because two overlays may not share one upper layer.
"""


def cache_variables(cache: str, downloads: Sequence[str]) -> dict[str, str]:
    go, gradle, maven = (
        next((path for path in downloads if path.endswith(f"/{name}")), "") for name in DOWNLOADS
    )
    tail = f" -Dmaven.repo.local.tail={maven}" if maven else ""
    second = {
        # Followed by Go's default.
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
