"""What a plan has to know of the host, as values: found by `facts`, read by `plan`. Pure.

Every path is absolute. A *real* path has no link in it; an *asked* one is what policy or PATH
says, and `links` are those that lead from one to the other.
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


class Standing(Struct, frozen=True):
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
    """Without which its programs look for it in the home directory."""


class HostListing(Struct, frozen=True):
    directory: str
    names: tuple[str, ...]
    links: tuple[Link, ...] = ()


class GitOutside(Struct, frozen=True):
    """A git directory outside of the workspace whose repository the workspace belongs to."""

    common: str
    own: str = ""
    """Of a linked worktree: what of it is the worktree's alone (`worktrees/NAME`)."""
    folder: str = ""
    """What the workspace is of the work tree (`packages/a`); empty where it is all of it."""
    pointer: str = ""
    """A file `.git` above the workspace that leads to it; empty where there is none."""
    links: tuple[Link, ...] = ()
    """By which that file, or the workspace's own, leads there."""
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
    """For each line where its program may be: real paths, in the order of PATH."""


class GitFacts(Struct, frozen=True):
    values: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    filters: tuple[GitFilter, ...] = ()
    filter_names: tuple[str, ...] = ()
    """That attributes name, whether anybody has a filter for them or not."""
    ignored: str = ""
    attributes: str = ""
    own_keys: tuple[str, ...] = ()
    is_signing: bool = False
    left_out: tuple[LeftOut, ...] = ()


class HostFacts(Struct, frozen=True):
    workspace: str
    home: str
    """Real, of the user who runs Paddock. Never readable as such."""
    standing: tuple[Standing, ...] = ()
    """What exists of what any agent of the chain may read or write by policy."""
    search_path: tuple[Standing, ...] = ()
    toolchains: tuple[Toolchain, ...] = ()
    closed: tuple[Closed, ...] = ()
    """The plane, Paddock's state and configuration, other agents' workspaces. Not what lies in the
    workspace, which is judged path by path instead."""
    listings: tuple[HostListing, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    changeable: tuple[str, ...] = ()
    """Real places besides the workspace in which a command of this plane can put what it likes."""
    left_out: tuple[LeftOut, ...] = ()
    git_outside: GitOutside | None = None
    git: GitFacts = GitFacts()
    memory_mb: int = 0
    caches: str = ""
    downloads: tuple[str, ...] = ()
    """Of the user's own, real, what holds downloads and nothing else."""


SYSTEM_PATHS = frozenset(SYSTEM_READ)
"""Of these nobody has to be told that one is not there."""

# Pure.
#
# A set of paths stands for everything at and below each of them. Paths are absolute
# and real, so comparing whole components is enough.


def is_below(path: str, place: str) -> bool:
    # Threat: a sibling whose name begins alike (/srv/app-secrets beside /srv/app).
    return path == place or path.startswith(place.rstrip("/") + "/")


def overlaps(path: str, place: str) -> bool:
    return is_below(path, place) or is_below(place, path)


def is_covered(path: str, places: Iterable[str]) -> bool:
    return any(is_below(path, place) for place in places)


def directories_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_changeable(standing: Standing, changeable: Iterable[str]) -> bool:
    """Return whether a command that writes in `changeable` says what stands there, or where to."""
    places = tuple(changeable)
    names = (standing.real, *(name for name, _ in standing.links))
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


# `Resolver` opens nothing for an agent: these are the operator's own directories, looked
# at before a command runs. What a command then sees is bound by descriptor, and what it wrote
# is read by one.


class Resolver:
    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}

    def find(self, path: str) -> Standing | None:
        """Return where `path` leads; None where nothing stands, or the links never end."""
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
        return Standing(path, real or "/", tuple(links))

    def stays_in_system(self, path: str) -> bool:
        """Return whether a link in a system directory leads to one, or to a neighbour."""
        try:
            text = self._link_text(path) or ""
            if text.startswith("/etc/alternatives/"):
                text = self._link_text(text) or ""
        except OSError:
            return True
        return "/" not in text or (text.startswith("/usr/") and "/../" not in text)

    def _link_text(self, path: str) -> str | None:
        if path not in self._texts:
            # lstat first: readlink(2) answers EINVAL for all that is no link, and on
            # some network file systems ENOENT for what is there.
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            self._texts[path] = os.readlink(path) if is_link else None
        return self._texts[path]


def find_look(root_fd: int, path: str) -> os.stat_result | None:
    """Return what stands there, no link followed; None where nothing can be looked at."""
    try:
        return os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return None


def read_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """Return a regular file's content, no link passed; None for no file. Raises: HostError."""
    try:
        with held_open((resolution or detect_resolution()).open(root_fd, path, READ_FILE)) as fd:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                return None
            if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
                raise _unreadable(path, f"no file of at most {bytes_max} bytes")
            return os.pread(fd, found.st_size + 1, 0)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error


def find_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """None also for what `read_content` raises on."""
    try:
        return read_content(root_fd, path, bytes_max, resolution)
    except HostError:
        return None


def _unreadable(path: str, why: str) -> HostError:
    return HostError(f"{quote(path)} cannot be read: {why}")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
