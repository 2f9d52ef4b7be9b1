"""The staging area: where the layers of sandboxes lie, and how they go away again.

One directory for each launcher, claimed while it lives; the next sweeps what a dead one left.
Nothing in here is believed to be harmless: it was written by commands.

Claims: directories of ours with a lock, swept once nobody holds it.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import SandboxUnavailableError
from paddock.pattern import lazy_pattern
from paddock.sandbox.conversation import ConfinementError
from paddock.sandbox.git.index import LINK_MODE, SUBMODULE_MODE
from paddock.sandbox.host.host_facts import directories_above
from paddock.sandbox.inside.protocol import (
    HIDDEN_PREFIX,
    HOST_IDS_COUNT,
    HOST_IDS_FIRST,
    inside_id,
    remove_tree,
)
from paddock.sandbox.values import Laid, ShownFile
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import open_locked

# The lock is flock(2) on the directory itself: the kernel lets it go with the process. Whoever is
# taken for dead between making and locking finds his directory gone, and makes another.

_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TOKEN: Final = lazy_pattern("[0-9a-f]{16}")
_TRIES_MAX: Final = 100


class Claim:
    def __init__(self, parent: int, name: str, fd: int) -> None:
        """Takes over `fd`, which holds the lock; `parent` stays the caller's, and open."""
        self._parent = parent
        self.name = name
        self.fd = fd

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._remove()
        self.forget()

    def forget(self) -> None:
        """Remove nothing: in a child of the process whose it is."""
        os.close(self.fd)

    def _remove(self) -> None:
        # The lock is held to the end, so nobody takes what is half removed for a dead one's.
        for name in os.listdir(self.fd):
            remove_tree(self.fd, name)
        os.rmdir(self.name, dir_fd=self._parent)


def claim(parent: int, prefix: str) -> Claim:
    """Make a directory in `parent`, a descriptor, and hold it. Raises: OSError."""
    for _ in range(_TRIES_MAX):
        name = prefix + secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = open_locked(parent, name, DIRECTORY)
        if fd is not None:
            return Claim(parent, name, fd)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextlib.contextmanager
def claimed(home: Path, prefix: str) -> Generator[Path]:
    """Hold a claim in `home`; sweep what the dead left of the kind. Raises: OSError."""
    with held_open(os.open(home, _PASSED)) as parent:
        with contextlib.suppress(OSError):
            sweep(parent, prefix)
        held = claim(parent, prefix)
        try:
            yield home / held.name
        finally:
            held.release()


def sweep(parent: int, prefix: str) -> None:
    """Threat: others may write in `parent`, too: no link is followed, what is not ours stays."""
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
                Claim(parent, name, fd).release()


_PREFIX: Final = "launcher-"
_WHITEOUT: Final = os.makedev(0, 0)
"""A character device 0/0 hides a name of the layers below (overlayfs; Linux 5.8 lets
anybody make one, for it opens nothing)."""
_OPAQUE: Final = "user.overlay.opaque"
"""On a directory: nothing of the layers below is seen in it."""


class Overlaid(Struct, frozen=True):
    files: Mapping[str, bytes]
    digest: str
    modified_ns: int = 0


NOTHING_SHOWN: Final = Overlaid({}, "")


class StagingArea:
    def __init__(self, home: Path) -> None:
        """`home` is ours and no agent reaches it. Raises: HostError."""
        with host_error("no staging area for commands", str(home)):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._home = os.open(home, DIRECTORY)
            try:
                sweep(self._home, _PREFIX)
                self._claim = claim(self._home, _PREFIX)
            except OSError:
                os.close(self._home)
                raise
        self.fd = self._claim.fd
        self.path = f"{os.fspath(home)}/{self._claim.name}"
        self._lock = threading.Lock()
        self._hidden: dict[str, str] = {}
        self._users: dict[str, int] = {}
        self._newest = ""

    def hide(
        self,
        workspace: int,
        names: Collection[str],
        shown: Sequence[ShownFile] = (),
        laid: Overlaid = NOTHING_SHOWN,
    ) -> str:
        """Make a directory of whiteouts for workspace-relative names; return its name in the area.

        The same are made once, for as long as their parents look the same; no mount, however many.
        It stays until `let_go`, once for each call. What is `shown` stands there instead of a
        whiteout; what is `laid`, whatever is there. Raises: SandboxUnavailableError without
        whiteouts, ConfinementError without a user who could be a command.
        """
        if not names and not laid.files:
            return ""
        parents = _parents(workspace, names, laid.files)
        wanted = sorted(name for name in names if (os.path.dirname(name) or ".") in parents)
        layer = _Layer.plan(workspace, wanted, parents, shown, laid)
        digest = layer.digest()
        with self._lock:
            name = self._hidden.get(digest) or self._make_hidden(digest, layer)
            self._users[name] += 1
            self._newest = name
        return name

    def hold(self, hidden: str) -> None:
        if hidden:
            with self._lock:
                self._users[hidden] += 1

    def let_go(self, hidden: str) -> None:
        if hidden:
            with self._lock:
                self._users[hidden] -= 1

    def take_unused(self) -> list[str]:
        with self._lock:
            unused = [name for name, users in self._users.items() if users == 0]
            unused = [name for name in unused if name != self._newest]
            self._hidden = {key: name for key, name in self._hidden.items() if name not in unused}
            for name in unused:
                del self._users[name]
        return unused

    def close(self) -> None:
        self._claim.release()
        os.close(self._home)

    def forget(self) -> None:
        """Remove nothing: in a child of the process whose it is."""
        self._claim.forget()
        os.close(self._home)

    def _make_hidden(self, digest: str, layer: "_Layer") -> str:
        # Another name each time: one that looked the same may be about to be removed.
        name = HIDDEN_PREFIX.decode("ascii") + secrets.token_hex(8)
        try:
            os.mkdir(name, 0o700, dir_fd=self.fd)
            with held_open(os.open(name, DIRECTORY, dir_fd=self.fd)) as root:
                layer.build(root)
        except OSError as error:
            if not has_command_users():
                raise ConfinementError("users", error.errno or 0) from error
            raise SandboxUnavailableError(
                f"names cannot be hidden from commands: {os.strerror(error.errno or 0)}",
                hint="keep the plane on ext4, xfs, btrfs or tmpfs",
            ) from error
        self._hidden[digest] = name
        self._users[name] = 0
        return name


class _Layer(Struct, frozen=True):
    whiteouts: Sequence[str]
    parents: Mapping[str, os.stat_result]
    """What is merged with the directory below; parents before children."""
    opaque: Mapping[str, os.stat_result]
    files: Sequence[ShownFile]
    """Links last: nothing is ever made through one."""
    laid: Overlaid

    @classmethod
    def plan(
        cls,
        workspace: int,
        wanted: Sequence[str],
        parents: Mapping[str, os.stat_result],
        shown: Sequence[ShownFile],
        laid: Overlaid,
    ) -> "_Layer":
        names = frozenset(wanted)
        opaque: dict[str, os.stat_result] = {}
        files: list[ShownFile] = []
        for each in sorted(shown, key=lambda each: (each.mode == LINK_MODE, each.path)):
            above = directories_above(each.path)
            closed = next((path for path in (*above, each.path) if path in names), None)
            if closed is None:
                continue
            inside = [path for path in above if path not in parents]
            inside += [each.path] if each.mode == SUBMODULE_MODE else []
            for path in inside:
                # Gone by now, or a file: then it looks like what holds it.
                opaque[path] = _look_of(workspace, path) or parents["."]
            if each.mode != SUBMODULE_MODE:
                files.append(each)
        replaced = {each.path for each in files} | opaque.keys()
        whiteouts = [name for name in wanted if name not in replaced]
        return cls(whiteouts, parents, opaque, files, laid)

    @property
    def _looks(self) -> Mapping[str, os.stat_result]:
        return {**self.parents, **self.opaque}

    def digest(self) -> str:
        looks = [
            f"{path}\0{look.st_mode}\0{look.st_uid}\0{look.st_gid}\0{look.st_mtime_ns}"
            for path, look in self._looks.items()
        ]
        contents = [
            f"{each.path}\0{each.mode}\0{each.modified_ns}\0{sha256(each.content).hexdigest()}"
            for each in self.files
        ]
        text = "\0\0".join([*self.whiteouts, "", *looks, "", *contents, self.laid.digest])
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def build(self, root: int) -> None:
        looks = self._looks
        for path in looks:
            if path != ".":
                os.mkdir(path, 0o700, dir_fd=root)
        for path in self.opaque:
            with held_open(os.open(path, DIRECTORY, dir_fd=root)) as fd:
                os.setxattr(fd, _OPAQUE, b"y")
        for path in self.whiteouts:
            os.mknod(path, stat.S_IFCHR, _WHITEOUT, dir_fd=root)
        laid = (
            ShownFile(path, 0o100644, content, self.laid.modified_ns, is_faithful=True)
            for path, content in self.laid.files.items()
        )
        for each in (*self.files, *laid):
            # A name that is a directory for another entry: git has only one of them, too.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                holder = os.path.dirname(each.path) or "."
                _write_shown(root, each, looks[holder])
        # The uppermost layer that has a directory says how it looks: as the real one does.
        for path in reversed(list(looks)):
            _look_like(root, path, looks[path])


def lay_over(
    laid: Laid, closed: Collection[str], root: int
) -> tuple[list[str], tuple[ShownFile, ...]]:
    """The names that these files stand in for, and the files; what is closed now stays closed."""
    now, hidden = time.time_ns(), frozenset(closed)
    seen = {path: file for path, file in laid.items() if hidden.isdisjoint(_way(path))}
    files = tuple(
        ShownFile(path, stat.S_IFREG | file.mode, file.content, now, is_faithful=True)
        for path, file in seen.items()
        if file is not None
    )
    # The uppermost name on the way in whose place there is no directory.
    names = {
        next((above for above in directories_above(path) if _look_of(root, above) is None), path)
        for path in seen
    }
    return sorted(name for name in names if names.isdisjoint(directories_above(name))), files


def _way(path: str) -> tuple[str, ...]:
    return (*directories_above(path), path)


def _look_of(workspace: int, path: str) -> os.stat_result | None:
    try:
        look = os.stat(path, dir_fd=workspace, follow_symlinks=False)
    except OSError:
        return None
    return look if stat.S_ISDIR(look.st_mode) else None


def _write_shown(root: int, file: ShownFile, holder: os.stat_result) -> None:
    if file.mode == LINK_MODE:
        os.symlink(file.content, os.fsencode(file.path), dir_fd=root)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(file.path, flags, 0o600, dir_fd=root), "wb") as made:
            made.write(file.content)
        os.chmod(file.path, file.mode & 0o777, dir_fd=root)
    if os.geteuid() == 0:
        owner, group = inside_id(holder.st_uid), inside_id(holder.st_gid)
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


def _parents(
    workspace: int, names: Collection[str], shown: Collection[str] = ()
) -> dict[str, os.stat_result]:
    found = {".": os.stat(".", dir_fd=workspace)}
    for name in shown:
        above = "."
        for path in directories_above(name):
            if path not in found:
                found[path] = found[above]
            above = path
    for name in names:
        for path in directories_above(name):
            if path in found:
                continue
            try:
                found[path] = os.stat(path, dir_fd=workspace, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                break
    return found


def _look_like(root: int, path: str, look: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(path, inside_id(look.st_uid), inside_id(look.st_gid), dir_fd=root)
    # With the setgid bit: without it the command would seem to have taken it away.
    os.chmod(path, look.st_mode & 0o3777, dir_fd=root)
    os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns), dir_fd=root)
