"""The workspace: one root, held by its descriptor, and the resolution of its paths.

Every open starts at the root's descriptor and cannot leave it. A path is resolved once, policy
judges the result, and exactly that is opened without following a link, by one of two
interchangeable implementations: a swap in between makes the operation fail. Neither compares
texts or checks before opening: a check is made on the descriptor that is used.
"""

import errno
import os
import stat
import sys
from contextlib import AbstractContextManager
from typing import Final, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import errors, limits
from paddock.kernel import files
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper
from paddock.text.show import quote, show_name
from paddock.workspace import paths
from paddock.workspace.failures import converting
from paddock.workspace.paths import ROOT, AskedPath, EntryPath, ReadPath, WorkspacePath, WritePath
from paddock.workspace.read import KnownFiles, OpenFile

# macOS has no O_PATH: there a directory must be readable to be passed through.
O_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)
PASS: Final = O_PATH | os.O_CLOEXEC
PASS_DIRECTORY: Final = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
READ_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOCTTY: a terminal must not
# become the controlling one.
READ_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# EAGAIN: the kernel saw a rename or mount during its walk and cannot vouch for it.
# EINTR: a slow file system was interrupted; os.open retries, ctypes does not.
_AGAIN: Final = frozenset({errno.EAGAIN, errno.EINTR})
_RESOLVE: Final = files.RESOLVE_BENEATH | files.RESOLVE_NO_MAGICLINKS | files.RESOLVE_NO_SYMLINKS


class WalkResolution:
    """Opens each component with openat(2) and O_NOFOLLOW, relative to the one before."""

    name = "walk"
    beside: "Beside | None" = None

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        """Raises: OSError: ELOOP: a link, the last included; EXDEV: not canonical (`..`, `/…`)."""
        if relative == ".":
            return os.open(".", flags, dir_fd=root_fd)
        parts = relative.split("/")
        # Threat: `..` is not a link, so O_NOFOLLOW would let it climb out of the root.
        if not all(parts) or ".." in parts or "." in parts:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        held = root_fd
        try:
            for part in parts[:-1]:
                below = _open_component(part, PASS_DIRECTORY, held)
                if held != root_fd:
                    os.close(held)
                held = below
            return _open_component(parts[-1], flags, held)
        finally:
            if held != root_fd:
                os.close(held)


Resolution: TypeAlias = WalkResolution


def _open_component(name: str, flags: int, dir_fd: int) -> int:
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    except NotADirectoryError:
        # The kernel checks O_DIRECTORY before O_NOFOLLOW, so a link gives ENOTDIR here.
        # This stat only chooses the error: nothing is opened because of it.
        if stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    # O_PATH with O_NOFOLLOW opens the link itself instead of failing.
    if flags & O_PATH and not flags & os.O_DIRECTORY and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return fd


class Openat2Resolution(WalkResolution):
    """Lets the kernel walk: openat2(2) with BENEATH, NO_MAGICLINKS and NO_SYMLINKS."""

    name = "openat2"

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        path = relative.encode("utf-8", "surrogateescape")
        left = limits.openat2_retries_max
        while True:
            try:
                return files.openat2(root_fd, path, flags, _RESOLVE)
            except OSError as failure:
                left -= 1
                if failure.errno not in _AGAIN or left < 0:
                    raise


def detect_resolution() -> Resolution:
    """Return openat2 if it works here, else the walk.

    ENOSYS: a kernel before 5.6, or not Linux. EPERM: a container's seccomp filter that does
    not know the call. With any other error the call exists.
    """
    resolution = Openat2Resolution()
    with held_open(os.open("/", PASS_DIRECTORY)) as slash:
        try:
            os.close(resolution.open(slash, ".", PASS_DIRECTORY))
        except OSError as failure:
            if failure.errno in (errno.ENOSYS, errno.EPERM):
                return WalkResolution()
            raise
    return resolution


# The result is a path without links. It is information, not a permission.
#   * each component is inspected relative to the descriptor of the one before;
#   * a link's text is resolved as the kernel would, but from the held root: an absolute
#     one must begin with one of the root's names, `..` may not climb above the root;
#   * `..` after a link means the parent of the link's target; otherwise it is resolved as
#     text, as is everything after a component that is missing or is not a directory.


class Found(Struct, frozen=True):
    asked: WorkspacePath
    real: WorkspacePath
    mode: int  # 0 if `real` does not exist
    through_link: bool

    @property
    def exists(self) -> bool:
        return self.mode != 0


def find_real(root_fd: int, path: AskedPath, roots: tuple[str, ...], *, follow_last: bool) -> Found:
    trail = _Trail(path, roots, follow_last, held=[root_fd])
    try:
        for number, name in enumerate(path.parts, 1):
            trail.step_asked(name, is_last=number == len(path.parts))
    finally:
        for fd in trail.held[1:]:
            os.close(fd)
    asked, real = paths.join_parts(trail.asked), paths.join_parts(trail.real)
    return Found(asked, real, trail.mode, trail.through_link)


class _Trail(Struct):
    path: AskedPath
    roots: tuple[str, ...]
    follow_last: bool
    held: list[int]  # `held[i]` is the directory of `real[:i]`; `held[0]` belongs to the caller
    asked: list[str] = field(default_factory=list[str])
    real: list[str] = field(default_factory=list[str])
    hops: int = 0
    mode: int = stat.S_IFDIR
    through_link: bool = False

    def step_asked(self, name: str, *, is_last: bool) -> None:
        if name == "..":
            self._climb()
            # After a link the asked text no longer matches: continue from the real path.
            self.asked = list(self.real) if self.through_link else self.asked[:-1]
            return
        self.asked.append(name)
        hops, pending = self.hops, [name]
        while pending:
            part = pending.pop()
            if part == "..":
                self._climb()
            else:
                pending += self._descend(part, follow=self.follow_last or not is_last)
        if not is_last and (self.hops > hops or stat.S_ISLNK(self.mode)):
            self.through_link = True

    def _climb(self) -> None:
        if not self.real:
            raise paths.escapes_root(self.path.text)
        self.real.pop()
        while len(self.held) > len(self.real) + 1:
            os.close(self.held.pop())
        # The parent of something missing may be missing as well.
        self.mode = stat.S_IFDIR if len(self.held) == len(self.real) + 1 else 0

    def _descend(self, name: str, *, follow: bool) -> list[str]:
        missing = len(self.real) + 1 - len(self.held)
        if missing == 1 and stat.S_ISDIR(self.mode):
            flags = PASS_DIRECTORY | os.O_NOFOLLOW
            self.held.append(os.open(self.real[-1], flags, dir_fd=self.held[-1]))
            missing = 0
        self.mode = 0 if missing else _mode_of(name, self.held[-1])
        if stat.S_ISLNK(self.mode) and follow:
            return self._follow_link(os.readlink(name, dir_fd=self.held[-1]))
        self.real.append(name)
        return []

    def _follow_link(self, target: str) -> list[str]:
        self.hops += 1
        if self.hops > limits.link_hops_max:
            raise errors.InvalidPathError(
                f"path {quote(self.path.text)} passes more than {limits.link_hops_max} links",
                hint="they may form a loop; use a path without them",
            )
        paths.check_link_text(self.path.text, target)
        parts = paths.components(target)
        if target.startswith("/"):
            parts = paths.inside_root(self.path.text, parts, self.roots)
            while self.real:
                self._climb()
        paths.check_names(self.path.text, tuple(part for part in parts if part != ".."))
        self.mode = stat.S_IFDIR
        return list(reversed(parts))


def _mode_of(name: str, dir_fd: int) -> int:
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError as failure:
        if failure.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return 0
        raise


# The given name; the name without links (none was followed when opening it); the descriptor.
Root: TypeAlias = tuple[str, str, int]


def open_root(root: str, resolution: Resolution, name: str | None = None) -> Root:
    if sys.getfilesystemencoding() != "utf-8":
        raise errors.HostError("file names must be UTF-8 here: start Python in its UTF-8 mode")
    try:
        real_root = os.path.realpath(root, strict=True)  # noqa: TID251 - defines the root
        with held_open(os.open("/", PASS_DIRECTORY)) as slash:
            fd = resolution.open(slash, real_root.strip("/") or ".", PASS_DIRECTORY)
    except (OSError, ValueError) as failure:
        said = f"workspace root {quote(root)} cannot be opened: {failure}"
        raise errors.ConfigError(said) from None
    # The given name, unless a `..` after a link makes it name another directory.
    given = os.path.abspath(name or root)
    try:
        is_same = os.path.samestat(os.stat(given), os.fstat(fd))
    except OSError:
        is_same = False
    return given if is_same else real_root, real_root, fd


# The git directory of a linked worktree, or of a repository that contains the workspace, is
# outside the workspace, but a command's writes there belong to the same set of changes. So a
# set sees one tree: `.git` and everything below it are opened under the second root.


class Beside(Struct, frozen=True):
    name: str  # the component of the workspace's root that maps to it
    real_root: str  # absolute, without links
    fd: int  # owned by the caller


class BesideResolution(WalkResolution):
    def __init__(self, within: Resolution, root_fd: int, beside: Beside) -> None:
        self.within, self._root_fd = within, root_fd
        self.beside = self._beside = beside

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        first, _, rest = relative.partition("/")
        if root_fd == self._root_fd and first == self._beside.name:
            return self.within.open(self._beside.fd, rest or ".", flags)
        return self.within.open(root_fd, relative, flags)


def without_beside(resolution: Resolution) -> Resolution:
    return resolution.within if isinstance(resolution, BesideResolution) else resolution


def find_beside(beside: Beside, asked: AskedPath, *, follow_last: bool) -> Found:
    if ".." in asked.parts:
        raise paths.escapes_root(asked.text)
    found = find_real(beside.fd, replace(asked, parts=asked.parts[1:]), (), follow_last=follow_last)
    both = [paths.join_parts((beside.name, *each.parts)) for each in (found.asked, found.real)]
    return replace(found, asked=both[0], real=both[1])


class Workspace:
    """File access under one root. Safe for threads and forked children."""

    def __init__(self, root: Root, resolution: Resolution, disk: Disk, keeper: Keeper) -> None:
        self.root, self.real_root, self.root_fd = root  # its names are for the host alone
        self.root_names = self.root, self.real_root
        self.resolution, self.disk, self.keeper = resolution, disk, keeper
        self._known = KnownFiles()

    @classmethod
    def open(
        cls,
        root: str,
        resolution: Resolution | None = None,
        disk: Disk | None = None,
        keeper: Keeper | None = None,
        name: str | None = None,
    ) -> Self:
        """Open the workspace at `root`, an existing directory, and clean up after killed writers.

        `name` is another name of that directory. `disk` is for failure tests; `keeper` stores
        replaced content, which is lost without one. Raises: ConfigError: of `root`.
        """
        chosen = resolution or detect_resolution()
        workspace = cls(open_root(root, chosen, name), chosen, disk or Disk(), keeper or Keeper())
        try:
            workspace._clean_up()
        except BaseException:
            workspace.close()
            raise
        return workspace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.root_fd >= 0:
            fd, self.root_fd = self.root_fd, -1
            os.close(fd)

    def with_beside(self, beside: Beside) -> "Workspace":
        """Return this workspace extended by a second root, which the caller still owns."""
        root = self.root, self.real_root, os.dup(self.root_fd)
        resolution = BesideResolution(self.resolution, root[2], beside)
        return Workspace(root, resolution, self.disk, self.keeper)

    def _clean_up(self) -> None:
        with converting(ROOT, "list"):
            try:
                # The root's descriptor is O_PATH, which cannot be read: open it once more.
                with held_open(os.open(".", READ_DIRECTORY, dir_fd=self.root_fd)) as fd:
                    left = [name for name in os.listdir(fd) if paths.is_temporary_name(name)]
            except PermissionError:
                return
            if left:
                from paddock.workspace.targets import sweep  # noqa: PLC0415 - a writer was killed

                sweep(self, left)

    def names(self, absolute: str) -> bool:
        """Return True if an absolute path is inside the root, by one of its names."""
        return any(f"{absolute}/".startswith(f"{root}/") for root in self.root_names)

    def open_at(self, path: WorkspacePath, flags: int) -> int:
        return self.resolution.open(self.root_fd, path.relative, flags)

    def hold_parent(self, path: WorkspacePath) -> AbstractContextManager[int]:
        return held_open(self.open_at(path.parent, PASS_DIRECTORY))

    # Resolving: text → paths to be judged. Nothing is changed, nothing stays open. Each raises
    # PathTraversalError: it leads out of the root; InvalidPathError: invalid in any workspace;
    # PathNotADirectoryError: it ends in a slash but is not a directory.

    def resolve_read(self, path: str) -> ReadPath:
        """Resolve `path`, following links inside the root. It need not exist."""
        here = self._find_plain(path)
        if here is not None:
            return ReadPath(here, here)
        asked, found = self._find(path, follow_last=True)
        _require_directory_form(asked, found)
        return ReadPath(found.asked, found.real)

    def resolve_write(self, path: str) -> WritePath:
        """Return the file that a write to `path` would change; a final link is followed.

        Raises: PathThroughLinkError: a directory on the way is a link; PathNotAFileError: it
            ends in a slash.
        """
        here = self._find_plain(path)
        if here is not None:
            return WritePath(here, here, exists=True)
        asked, found = self._find(path, follow_last=True)
        _refuse_link_on_way(asked, found)
        if asked.as_directory:
            raise errors.PathNotAFileError(
                f"path {quote(path)} names a directory, not a file",
                hint="use the path of a file, without a slash at its end",
            )
        return WritePath(found.asked, found.real, found.exists)

    def resolve_entry(self, path: str) -> EntryPath:
        """Return the entry that `path` names, to move or delete it. Raises: as `resolve_write`."""
        here = self._find_plain(path)
        if here is not None:
            return EntryPath(here, exists=True)
        asked, found = self._find(path, follow_last=False)
        _refuse_link_on_way(asked, found)
        _require_directory_form(asked, found)
        return EntryPath(found.real, found.exists)

    def _find_plain(self, path: str) -> WorkspacePath | None:
        # A canonical name that opens without following a link is its own real path.
        if not paths.is_plain(path):
            return None
        try:
            fd = self.resolution.open(self.root_fd, path, PASS)
        except OSError:
            return None  # missing, a link, or a failure: the full resolution reports which
        os.close(fd)
        return paths.unchecked_path(path)

    def _find(self, path: str, *, follow_last: bool) -> tuple[AskedPath, Found]:
        asked, beside = paths.parse_asked(path, self.root_names), self.resolution.beside
        with converting(paths.join_parts(asked.parts), "resolve"):
            if beside is not None and asked.parts[:1] == (beside.name,):
                return asked, find_beside(beside, asked, follow_last=follow_last)
            return asked, find_real(self.root_fd, asked, self.root_names, follow_last=follow_last)

    def open_file(self, path: ReadPath | WorkspacePath) -> OpenFile:
        """Open a regular file for reading; of a ReadPath, the real path that was judged.

        Raises: PathError: not found, not readable, not a regular file, or (FileChangedError) a
            link took its place since it was resolved.
        """
        real = path.real if isinstance(path, ReadPath) else path
        with converting(real, "read"):
            fd = self.open_at(real, READ_FILE)
        return OpenFile(real, fd, self._known)

    def read_all(self, path: ReadPath | WorkspacePath, bytes_max: int) -> bytes:
        """Raises: TextTooLargeError: over `bytes_max`; else as `open_file`."""
        with self.open_file(path) as file:
            return file.read_all(bytes_max)

    def version(self, path: ReadPath | WorkspacePath) -> str:
        with self.open_file(path) as file:
            return file.version()


def _refuse_link_on_way(asked: AskedPath, found: Found) -> None:
    # Threat: a link to a directory makes a file reachable under a name that policy
    # judges differently. Writes must use the real name.
    if found.through_link:
        raise errors.PathThroughLinkError(
            f"path {quote(asked.text)} passes a link",
            hint=f"use the real path: {show_name(found.real.relative)}",
        )


def _require_directory_form(asked: AskedPath, found: Found) -> None:
    if asked.as_directory and found.exists and not stat.S_ISDIR(found.mode):
        raise errors.PathNotADirectoryError(
            f"{quote(asked.text)} is not a directory", hint="remove the slash at the end"
        )
