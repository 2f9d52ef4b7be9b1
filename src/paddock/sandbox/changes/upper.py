"""What a command changed, as the overlay's upper layer says it. Read only, nothing judged.

The layer holds whole copies, new things, and marks: a character device 0/0 for a name that is
gone, `user.overlay.opaque` on a directory that hides all below it. Any other mark is refused:
redirects and metadata-only copies are off (confine.py). O(changes). For whoever judges:

  * A file is here whole once it was opened for writing or its looks changed: compare.
  * A directory is here once something below it is; it is reported only if it is new, replaced,
    opaque, or of another mode. One of the workspace cannot be renamed (EXDEV; `mv` copies).
  * A name that was hidden counts as absent: what was made under it comes as new, with `lower`
    saying what really stands there; a directory that seemed empty may be gone.
  * Where another file system is mounted, the command saw the directory underneath: its changes
    have no `lower`, and the directory is in `mounted`.
  * Hard links show as the same `identity`; between the workspace's files they are broken.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import HostError
from paddock.kernel.files import RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, OpenHow
from paddock.sandbox.inside.protocol import HOST_IDS_COUNT, HOST_IDS_FIRST
from paddock.storage.atomic import held_open, host_error
from paddock.workspace.resolve import READ_DIRECTORY, Beside, Resolution, detect_resolution

# The layer that a command works on ends there: what is mounted is not part of it, and the
# command sees the directory underneath, as a rule an empty one. We see what is mounted.

_LOOK: Final = OpenHow(
    os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS
)


def is_mount_point(parent_fd: int, name: str, device: int) -> bool:
    """Ask the kernel: a bind has the same device, and a subvolume of one mount another."""
    try:
        os.close(_LOOK.open(parent_fd, os.fsencode(name)))
    except OSError as error:
        if error.errno == errno.EXDEV:
            return True
        # Without openat2, or not to be looked at: the device tells most of it.
        return os.fstat(parent_fd).st_dev != device
    return False


_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOWER_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARKS: Final = "user.overlay."
_OPAQUE: Final = "user.overlay.opaque"
_UNEXPECTED: Final = frozenset(
    _MARKS + name for name in ("redirect", "metacopy", "whiteout", "whiteouts")
)


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    GONE = "gone"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"


_KINDS: Final = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.LINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.DEVICE,
    stat.S_IFBLK: Kind.DEVICE,
}


class Look(Struct, frozen=True):
    kind: Kind
    mode: int
    owner: int
    group: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    links: int
    identity: tuple[int, int]
    is_mounted: bool = False


class RawChange(Struct, frozen=True):
    path: str
    kind: Kind
    upper: Look | None
    lower: Look | None
    """What stands in the workspace now, whatever the command saw; None for nothing."""
    is_opaque: bool = False
    link_text: str | None = None


class UpperLayer(Struct, frozen=True):
    changes: tuple[RawChange, ...]
    too_deep: tuple[str, ...]
    is_whole: bool
    """False where there were more than `limits.change_set_paths_max`; the rest is not here."""
    standing: Mapping[str, Look]
    """Of the directories that the layer has or hides: those that stand in the workspace now."""
    mounted: tuple[str, ...]


def read_changes(upper_fd: int, lower_fd: int, beside: Beside | None = None) -> UpperLayer:
    """Read every change below the upper layer's root, once the command has ended.

    `beside` stands elsewhere for one name. Raises: HostError: an unexpected mark, or unreadable.
    """
    reading = _Reading(beside)
    with host_error("the changes of a command cannot be read"):
        lower = os.open(".", _LOWER_DIRECTORY, dir_fd=lower_fd)
        reading.read(os.open(".", _DIRECTORY, dir_fd=upper_fd), lower, "", 0)
    return UpperLayer(
        tuple(reading.changes),
        tuple(reading.too_deep),
        reading.is_whole,
        reading.standing,
        tuple(path for path, look in reading.standing.items() if look.is_mounted),
    )


def names_below(
    root_fd: int, path: str, resolution: Resolution | None = None
) -> Iterator[tuple[str, Look]]:
    """Yield everything below a directory, parents first, links not followed.

    What vanishes, may not be read, or is mounted there yields itself and nothing below it.
    """
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
                if look.kind is Kind.DIRECTORY and not look.is_mounted:
                    waiting.append(f"{prefix}/{name}")


def host_owner(owner: int) -> int:
    """The host's number for an owner in the upper layer: shifted when started as root."""
    inside = owner - HOST_IDS_FIRST
    return inside if 0 <= inside < HOST_IDS_COUNT else owner


class _Reading:
    """One walk; holds one descriptor a layer for each level, of at most `path_depth_max`."""

    __slots__ = ("_beside", "changes", "is_whole", "standing", "too_deep")

    def __init__(self, beside: Beside | None) -> None:
        self._beside = beside
        self.changes: list[RawChange] = []
        self.too_deep: list[str] = []
        self.standing: dict[str, Look] = {}
        self.is_whole = True

    def read(self, upper: int, lower: int, prefix: str, depth: int) -> None:
        """Take in one directory and close both descriptors; `lower` is -1 for nothing there."""
        try:
            for name in sorted(os.listdir(upper)):
                if len(self.changes) >= limits.change_set_paths_max:
                    self.is_whole = False
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
        if below is not None and below.kind is Kind.DIRECTORY:
            self.standing[path] = below
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            self.changes.append(RawChange(path, Kind.GONE, None, below))
            return
        look = _looks(found)
        if look.kind is Kind.DIRECTORY:
            self._take_directory(upper, lower, name, RawChange(path, look.kind, look, below), depth)
            return
        text = os.readlink(name, dir_fd=upper) if look.kind is Kind.LINK else None
        self.changes.append(RawChange(path, look.kind, look, below, link_text=text))

    def _take_directory(
        self, upper: int, lower: int, name: str, change: RawChange, depth: int
    ) -> None:
        fd = _open_upper(upper, name, _mode(change.upper))
        is_opaque = _is_opaque(fd)
        was_directory = change.lower is not None and change.lower.kind is Kind.DIRECTORY
        is_mounted = change.lower is not None and change.lower.is_mounted
        if not was_directory or is_opaque or _mode(change.lower) != _mode(change.upper):
            # Without a directory underneath there is nothing to hide.
            hides = is_opaque and was_directory and not is_mounted
            self.changes.append(replace(change, is_opaque=hides))
        if depth + 1 >= limits.path_depth_max:
            os.close(fd)
            self.too_deep.append(change.path)
            return
        next_lower = -1
        beside = self._beside_at(change.path)
        if beside is not None:
            next_lower = os.open(".", _LOWER_DIRECTORY, dir_fd=beside)
        elif was_directory and not is_mounted:
            next_lower = _open_lower(lower, name)
        self.read(fd, next_lower, f"{change.path}/", depth + 1)

    def _beside_at(self, path: str) -> int | None:
        return self._beside.fd if self._beside is not None and path == self._beside.name else None


def _mode(look: Look | None) -> int:
    return -1 if look is None else look.mode


def _open_upper(parent: int, name: str, mode: int) -> int:
    # Without root, what is in a directory that its command closed could be neither looked at
    # nor moved out of it. `mode` was read before, and it is what counts from here on.
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def _open_lower(parent: int, name: str) -> int:
    try:
        return os.open(name, _LOWER_DIRECTORY, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return -1
    except OSError as error:
        if error.errno == errno.ELOOP:
            return -1
        raise


def _is_opaque(fd: int) -> bool:
    """Raises: HostError for a mark that confine.py has switched off."""
    marks = {name for name in os.listxattr(fd) if name.startswith(_MARKS)}
    if marks & _UNEXPECTED:
        raise HostError(
            f"an overlay left a mark that is not understood: {sorted(marks & _UNEXPECTED)}"
        )
    return _OPAQUE in marks and os.getxattr(fd, _OPAQUE) == b"y"


def _look(parent: int, name: str) -> Look | None:
    try:
        look = _looks(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    if look.kind is Kind.DIRECTORY and is_mount_point(parent, name, look.identity[0]):
        return replace(look, is_mounted=True)
    return look


def _looks(found: os.stat_result) -> Look:
    return Look(
        kind=_KINDS[stat.S_IFMT(found.st_mode)],
        mode=stat.S_IMODE(found.st_mode),
        owner=host_owner(found.st_uid),
        group=host_owner(found.st_gid),
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        links=found.st_nlink,
        identity=(found.st_dev, found.st_ino),
    )
