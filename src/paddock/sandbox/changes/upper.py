"""Read a command's changes from the overlay's upper layer, without judging them.

The layer contains full copies, new entries, and marks: a character device 0/0 for a removed name,
`user.overlay.opaque` on a directory that hides the one below. Other marks are refused: confine.py
disables redirects and metadata-only copies. O(changes). Notes for the judgement:

  * A file opened for writing, or with new metadata, is copied whole: compare its content.
  * A directory with changes below is copied too; it is reported only if it is new, replaced,
    opaque, or of another mode. A workspace directory cannot be renamed (EXDEV; `mv` copies).
  * A hidden name looked absent: an entry created there is new, and `lower` is the real entry.
    A directory that seemed empty may have been removed.
  * Below a mount point the command saw the covered directory: changes have no `lower`, and the
    directory is in `mounted`. Hard links have the same `identity`; copying up breaks them.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import HostError
from paddock.kernel.files import RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, openat2
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.inside.protocol import HOST_IDS_COUNT, HOST_IDS_FIRST
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import DIRECTORY
from paddock.workspace.metadata import FileStatus, status_from
from paddock.workspace.workspace import READ_DIRECTORY, Beside, Resolution, detect_resolution

# A command's overlay does not include mounts in the workspace: it sees the directory underneath,
# usually an empty one. Paddock sees the mounted file system.

_LOOK: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def is_mount_point(parent_fd: int, name: str, device: int) -> bool:
    """Ask the kernel: a bind mount has the same device, and a subvolume has another."""
    try:
        resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS
        os.close(openat2(parent_fd, os.fsencode(name), _LOOK, resolve))
    except OSError as error:
        if error.errno == errno.EXDEV:
            return True
        # Without openat2, or without access: the device detects most mounts.
        return os.fstat(parent_fd).st_dev != device
    return False


_LOWER_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MARKS: Final = "user.overlay."
OPAQUE: Final = "user.overlay.opaque"
_UNEXPECTED: Final = frozenset(
    MARKS + name for name in ("redirect", "metacopy", "whiteout", "whiteouts")
)


_KINDS: Final = {
    stat.S_IFREG: NodeKind.FILE,
    stat.S_IFDIR: NodeKind.DIRECTORY,
    stat.S_IFLNK: NodeKind.LINK,
    stat.S_IFIFO: NodeKind.FIFO,
    stat.S_IFSOCK: NodeKind.SOCKET,
    stat.S_IFCHR: NodeKind.DEVICE,
    stat.S_IFBLK: NodeKind.DEVICE,
}


class Look(Struct, frozen=True):
    status: FileStatus
    """With the host's ids for owner and group: see `host_owner`."""
    is_mounted: bool = False

    @property
    def kind(self) -> NodeKind:
        return _KINDS[stat.S_IFMT(self.status.mode)]

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.mode)

    @property
    def identity(self) -> tuple[int, int]:
        return self.status.device, self.status.inode

    @property
    def mark(self) -> tuple[int, ...]:
        """Return a value that stays equal until the entry changes; ignores directory contents."""
        status = self.status
        if self.kind is NodeKind.DIRECTORY:
            return status.mode, *self.identity
        times = status.modified_ns, status.changed_ns
        return status.mode, *self.identity, status.size_bytes, *times


class RawChange(Struct, frozen=True):
    path: str
    upper: Look | None
    """None for a removed name."""
    lower: Look | None
    """The entry in the workspace now, whatever the command saw; None for none."""
    is_opaque: bool = False
    link_text: str | None = None


class UpperLayer(Struct):
    changes: list[RawChange] = field(default_factory=list[RawChange])
    too_deep: list[str] = field(default_factory=list[str])
    is_whole: bool = True
    """False over `limits.change_set_paths_max`; the rest was not read."""
    lower_directories: dict[str, Look] = field(default_factory=dict[str, Look])
    """The directories that the layer has or hides, as they are in the workspace now."""

    @property
    def mounted(self) -> tuple[str, ...]:
        return tuple(path for path, look in self.lower_directories.items() if look.is_mounted)


def read_changes(upper_fd: int, lower_fd: int, beside: Beside | None = None) -> UpperLayer:
    """Read every change below the upper layer's root, once the command has ended.

    `beside` replaces one lower name. Raises: HostError: an unexpected mark, or unreadable.
    """
    layer = UpperLayer()
    with host_error("the changes of a command cannot be read"):
        lower = os.open(".", _LOWER_DIRECTORY, dir_fd=lower_fd)
        upper = os.open(".", DIRECTORY, dir_fd=upper_fd)
        _Reading(layer, beside).read(upper, lower, "", 0)
    return layer


def names_below(
    root_fd: int, path: str, resolution: Resolution | None = None
) -> Iterator[tuple[str, Look]]:
    """Yield every entry below a path; of a vanished, closed or mounted directory only itself."""
    resolution = resolution or detect_resolution()
    waiting = [path]
    while waiting:
        prefix = waiting.pop()
        try:
            fd = resolution.open(root_fd, prefix, READ_DIRECTORY)
        except OSError:
            continue
        with held_open(fd):
            for name in sorted(os.listdir(fd)):
                look = _look(fd, name)
                if look is None:
                    continue
                yield f"{prefix}/{name}", look
                if look.kind is NodeKind.DIRECTORY and not look.is_mounted:
                    waiting.append(f"{prefix}/{name}")


def host_owner(owner: int) -> int:
    """Return the host's id for an owner in the upper layer: shifted when started as root."""
    inside = owner - HOST_IDS_FIRST
    return inside if 0 <= inside < HOST_IDS_COUNT else owner


class _Reading(Struct, frozen=True):
    """One walk; keeps a descriptor of each layer open for every level, up to `path_depth_max`."""

    layer: UpperLayer
    beside: Beside | None

    def read(self, upper: int, lower: int, prefix: str, depth: int) -> None:
        """Read one directory and close both descriptors; `lower` is -1 for no directory."""
        try:
            for name in sorted(os.listdir(upper)):
                if len(self.layer.changes) >= limits.change_set_paths_max:
                    self.layer.is_whole = False
                    return
                self._take(upper, lower, name, prefix + name, depth)
        finally:
            os.close(upper)
            if lower >= 0:
                os.close(lower)

    def _take(self, upper: int, lower: int, name: str, path: str, depth: int) -> None:
        found = os.stat(name, dir_fd=upper, follow_symlinks=False)
        beside = self._beside_at(path)
        if beside is not None:
            below = _looks(os.fstat(beside))
        else:
            below = _look(lower, name) if lower >= 0 else None
        if below is not None and below.kind is NodeKind.DIRECTORY:
            self.layer.lower_directories[path] = below
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            self.layer.changes.append(RawChange(path, None, below))
            return
        look = _looks(found)
        if look.kind is NodeKind.DIRECTORY:
            self._take_directory(upper, lower, name, RawChange(path, look, below), depth)
            return
        text = os.readlink(name, dir_fd=upper) if look.kind is NodeKind.LINK else None
        self.layer.changes.append(RawChange(path, look, below, link_text=text))

    def _take_directory(
        self, upper: int, lower: int, name: str, change: RawChange, depth: int
    ) -> None:
        fd = _open_upper(upper, name, _mode(change.upper))
        is_opaque = _is_opaque(fd)
        was_directory = change.lower is not None and change.lower.kind is NodeKind.DIRECTORY
        is_mounted = change.lower is not None and change.lower.is_mounted
        if not was_directory or is_opaque or _mode(change.lower) != _mode(change.upper):
            # Without a directory underneath there is nothing to hide.
            hides = is_opaque and was_directory and not is_mounted
            self.layer.changes.append(replace(change, is_opaque=hides))
        if depth + 1 >= limits.path_depth_max:
            os.close(fd)
            self.layer.too_deep.append(change.path)
            return
        next_lower = -1
        beside = self._beside_at(change.path)
        if beside is not None:
            next_lower = os.open(".", _LOWER_DIRECTORY, dir_fd=beside)
        elif was_directory and not is_mounted:
            next_lower = _open_lower(lower, name)
        self.read(fd, next_lower, f"{change.path}/", depth + 1)

    def _beside_at(self, path: str) -> int | None:
        return self.beside.fd if self.beside is not None and path == self.beside.name else None


def _mode(look: Look | None) -> int:
    return -1 if look is None else look.mode


def _open_upper(parent: int, name: str, mode: int) -> int:
    # Without root, the content of a directory that the command closed could be neither read nor
    # moved out. `mode` was read before, and is the one that counts.
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    return os.open(name, DIRECTORY, dir_fd=parent)


def _open_lower(parent: int, name: str) -> int:
    try:
        return os.open(name, _LOWER_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP):
            return -1
        raise


def _is_opaque(fd: int) -> bool:
    """Raises: HostError for a mark that confine.py disables."""
    marks = {name for name in os.listxattr(fd) if name.startswith(MARKS)}
    if marks & _UNEXPECTED:
        raise HostError(f"an overlay left an unknown mark: {sorted(marks & _UNEXPECTED)}")
    return OPAQUE in marks and os.getxattr(fd, OPAQUE) == b"y"


def _look(parent: int, name: str) -> Look | None:
    try:
        look = _looks(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    if look.kind is NodeKind.DIRECTORY and is_mount_point(parent, name, look.identity[0]):
        return replace(look, is_mounted=True)
    return look


def look_at(root_fd: int, path: str) -> Look | None:
    """Return the entry at a path, following no link; None for none."""
    parent, _, name = path.rpartition("/")
    try:
        with held_open(detect_resolution().open(root_fd, parent or ".", READ_DIRECTORY)) as fd:
            return _look(fd, name)
    except OSError:
        return None


def _looks(found: os.stat_result) -> Look:
    owner, group = host_owner(found.st_uid), host_owner(found.st_gid)
    return Look(replace(status_from(found), uid=owner, gid=group))
