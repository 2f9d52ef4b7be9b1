"""Host facts for a sandbox plan: collected by `facts`, read by `plan`; paths and their resolution.

Every path is absolute. A *real* path contains no symlink; an *asked* path is as written in policy
or PATH, and `links` are the symlinks between the two.
"""

import os
import stat
from collections.abc import Iterable

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError
from paddock.policy.settings import SYSTEM_READ
from paddock.storage.atomic import held_open
from paddock.text.show import quote
from paddock.workspace.workspace import READ_FILE, Resolution, detect_resolution

Link = tuple[str, str]


class ResolvedPath(Struct, frozen=True):
    asked: str
    real: str
    links: tuple[Link, ...] = ()


class Closed(Struct, frozen=True):
    path: str
    what: str


class LeftOut(Struct, frozen=True):
    path: str
    why: str


class Toolchain(Struct, frozen=True):
    name: str
    readable: tuple[str, ...]
    links: tuple[Link, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """Without these its programs look for it in the home directory."""


class HostListing(Struct, frozen=True):
    directory: str
    names: tuple[str, ...]
    links: tuple[Link, ...] = ()


class GitOutside(Struct, frozen=True):
    """The workspace's git directory, outside the workspace."""

    common: str
    own: str = ""
    """A linked worktree's private directory in it (`worktrees/NAME`)."""
    folder: str = ""
    """The workspace's path in the work tree (`packages/a`); empty if it is the whole work tree."""
    pointer: str = ""
    """The file `.git` above the workspace that points to it, if there is one."""
    links: tuple[Link, ...] = ()
    """The symlinks on the path in that file, or in the workspace's `.git` file."""
    is_sparse: bool = False

    @property
    def index(self) -> str:
        return self.beside_index("index")

    def beside_index(self, name: str) -> str:
        return f"{self.own}/{name}" if self.own else name


class GitFilter(Struct, frozen=True):
    name: str
    is_own: bool
    lines: tuple[tuple[str, str], ...]
    programs: tuple[tuple[str, ...], ...]
    """For each line the candidates for its program: real paths, in the order of PATH."""


class GitFacts(Struct, frozen=True):
    values: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    filters: tuple[GitFilter, ...] = ()
    filter_names: tuple[str, ...] = ()
    """The filters that attributes files name, whether they are defined or not."""
    ignored: str = ""
    attributes: str = ""
    own_keys: tuple[str, ...] = ()
    is_signing: bool = False
    left_out: tuple[LeftOut, ...] = ()


class HostFacts(Struct, frozen=True):
    workspace: str
    home: str
    """The real home of the user who runs Paddock. It is never readable as a whole."""
    existing: tuple[ResolvedPath, ...] = ()
    """The existing paths that policy lets any agent of the chain read or write."""
    search_path: tuple[ResolvedPath, ...] = ()
    toolchains: tuple[Toolchain, ...] = ()
    closed: tuple[Closed, ...] = ()
    """The plane, Paddock's state and configuration, other agents' workspaces. Paths in the
    workspace are not listed: they are judged one by one."""
    listings: tuple[HostListing, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    changeable: tuple[str, ...] = ()
    """Real paths outside the workspace that commands of this plane can write."""
    left_out: tuple[LeftOut, ...] = ()
    git_outside: GitOutside | None = None
    git: GitFacts = GitFacts()
    memory_mb: int = 0
    caches: str = ""
    downloads: tuple[str, ...] = ()
    """The user's real cache directories that contain nothing but downloads."""


SYSTEM_PATHS = frozenset(SYSTEM_READ)
"""A missing one of these is not reported."""

# A set of paths means everything at and below each of them. Paths are absolute and real, so
# comparing whole components is enough.


def is_below(path: str, place: str) -> bool:
    # Threat: a sibling with the same prefix (/srv/app-secrets next to /srv/app).
    return path == place or path.startswith(place.rstrip("/") + "/")


def overlaps(path: str, place: str) -> bool:
    return is_below(path, place) or is_below(place, path)


def is_covered(path: str, places: Iterable[str]) -> bool:
    return any(is_below(path, place) for place in places)


def directories_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_changeable(resolved: ResolvedPath, changeable: Iterable[str]) -> bool:
    """Return True if a command that writes in `changeable` can change the path, or a link to it."""
    places = tuple(changeable)
    names = (resolved.real, *(name for name, _ in resolved.links))
    return any(is_covered(name, places) for name in names)


def is_led_by(links: Iterable[Link], changeable: Iterable[str]) -> bool:
    places = tuple(changeable)
    return any(is_covered(name, places) for name, _ in links)


def topmost(paths: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in sorted(set(paths), key=lambda each: each.split("/")):
        if not found or not is_below(path, found[-1]):
            found.append(path)
    return tuple(sorted(found))


def shared(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    ours, theirs = topmost(first), topmost(second)
    both = [path for path in ours if is_covered(path, theirs)]
    both += [path for path in theirs if is_covered(path, ours)]
    return topmost(both)


# `Resolver` opens nothing for an agent: it reads the operator's directories before a command
# runs. The command's view is bind-mounted by descriptor, and its changes are read by descriptor.


class Resolver:
    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}

    def find(self, path: str) -> ResolvedPath | None:
        """Resolve `path`; return None if it does not exist or has too many links."""
        links: list[Link] = []
        waiting = _parts(path)[::-1]
        real = ""
        while waiting:
            part = waiting.pop()
            if part == "..":
                real = real.rpartition("/")[0]
                continue
            here = f"{real}/{part}"
            try:
                text = self._link_text(here)
            except OSError:
                return None
            if text is None:
                real = here
                continue
            links.append((here, text))
            if len(links) > limits.link_hops_max:
                return None
            if text.startswith("/"):
                real = ""
            waiting += _parts(text)[::-1]
        return ResolvedPath(path, real or "/", tuple(links))

    def stays_in_system(self, path: str) -> bool:
        """Return True if a system directory's link leads to one, or to an entry next to it."""
        try:
            text = self._link_text(path) or ""
            if text.startswith("/etc/alternatives/"):
                text = self._link_text(text) or ""
        except OSError:
            return True
        return "/" not in text or (text.startswith("/usr/") and "/../" not in text)

    def _link_text(self, path: str) -> str | None:
        if path not in self._texts:
            # lstat first: readlink(2) fails with EINVAL for other files, and on some network
            # file systems with ENOENT for existing ones.
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            self._texts[path] = os.readlink(path) if is_link else None
        return self._texts[path]


def stat_at(root_fd: int, path: str) -> os.stat_result | None:
    """Return the status of the entry at the path, following no link; None if that fails."""
    try:
        return os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return None


def read_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """Read a regular file, following no link; None if there is no file. Raises: HostError."""
    try:
        with held_open((resolution or detect_resolution()).open(root_fd, path, READ_FILE)) as fd:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                return None
            if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
                raise _unreadable(path, f"it is not a file of at most {bytes_max} bytes")
            return os.pread(fd, found.st_size + 1, 0)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error


def find_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """Return the content as `read_content`, but None if it raises."""
    try:
        return read_content(root_fd, path, bytes_max, resolution)
    except HostError:
        return None


def _unreadable(path: str, why: str) -> HostError:
    return HostError(f"{quote(path)} cannot be read: {why}")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
