"""Which names that are closed to commands git tracks: each by the index of its own repository.

    closed names of the workspace → the repository that each lies in → the entries of its index

A repository is looked for as git does it, from the directory of the name upwards, and
never beyond the workspace: its index and its work tree both lie in there. An index that has
not changed is not read again.

Threat: `.git` as a link, or as a file that leads to another repository of this host: what it
says is taken for a name in the workspace, and opened without passing a link.

Threat: an index that an agent wrote. It can say of any name that it is tracked, with any
object of this repository: that is content which the agent can read anyway. What stands
under the name in the workspace is not read here.
"""

import contextlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.sandbox.git.entries import (
    FILE_MODES,
    LINK_MODE,
    SHA1_BYTES,
    SHA256_BYTES,
    SUBMODULE_MODE,
    Index,
    IndexEntry,
    ReadShared,
    open_index,
)
from paddock.workspace.resolution import PASS, READ_FILE, Resolution, detect_resolution

_INDEX_BYTES_MAX: Final = 1 << 28
_LEAD_BYTES_MAX: Final = 4096 + len("gitdir: \n")
_LEAD: Final = re.compile(r"gitdir: ([^\n\0]+)\n*")
_UNUSUAL: Final = re.compile(rb"(?:\A|/)(?:\.{0,2}|\.git)(?:/|\Z)|\n")
"""A path that git would not enter, or of which it cannot be asked line by line."""
_PREFERRED: Final = (0, 2, 3)
"""The stages of a path that stand in the work tree: of a conflict ours, else theirs."""
_OUTSIDE: Final = "outside"
"""Stands for the git directory that is not in the workspace; no name in one has no slash."""

IndexIdentity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime in ns."""


@dataclass(frozen=True, slots=True)
class TrackedName:
    """One name that is closed to commands, stands in the workspace, and is in an index."""

    path: str
    """Workspace-relative."""
    object_id: str
    mode: int
    """A file's, a link's or a submodule's, as the index has it."""
    repository: str
    """The root of its work tree, workspace-relative, `.` for the workspace itself."""
    is_intended: bool
    size_bytes: int
    """Of the file when git last found it to be as the index says; 0 where that is not known."""
    modified_ns: int
    """Of what stands there: what is shown in its place has another time."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """The names, sorted, and the indexes that say so, as they were."""

    names: tuple[TrackedName, ...]
    indexes: Mapping[str, IndexIdentity]


@dataclass(frozen=True, slots=True)
class OutsideIndex:
    """The index of a workspace whose git directory was found, and proved, outside of it."""

    fd: int
    """Of the directory that holds what work trees share."""
    name: str
    """Of the index in there."""
    folder: str = ""
    """What the workspace is of the work tree; empty where it is all of it."""


@dataclass(frozen=True, slots=True)
class _Read:
    identity: IndexIdentity
    names: frozenset[str]
    entries: tuple[IndexEntry, ...]


class TrackedNames:
    """Finds them for one workspace; one thread asks at a time."""

    __slots__ = ("_outside", "_read", "_resolution", "_workspace")

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._workspace = ""
        self._outside: OutsideIndex | None = None
        self._resolution: Resolution = detect_resolution()
        self._read: Mapping[str, _Read] = {}

    def find(
        self,
        root_fd: int,
        workspace: str,
        closed: Sequence[str],
        outside: OutsideIndex | None = None,
    ) -> Tracked:
        """Those of the closed names, and of the names below them, that git tracks.

        `workspace` is its real path: what an absolute `gitdir:` is compared with. What is in
        no repository of the workspace may be in the one `outside` of it.
        """
        self._workspace = workspace
        self._outside = outside
        places = self._places(root_fd, closed)
        read: dict[str, _Read] = {}
        found: list[TrackedName] = []
        for repository, (git_directory, names) in sorted(places.items()):
            known = self._look(root_fd, repository, git_directory, frozenset(names))
            if known is not None:
                read[git_directory] = known
                prefix = self._prefix(repository, git_directory)
                found += _standing(root_fd, repository, prefix, known.entries)
        self._read = read
        names = tuple(sorted(found, key=lambda each: each.path))
        return Tracked(names, {path: known.identity for path, known in read.items()})

    def is_current(
        self, root_fd: int, tracked: Tracked, outside: OutsideIndex | None = None
    ) -> bool:
        """Whether every index that it was found in is still the same file."""
        places = {path: _place_of(path, root_fd, outside) for path in tracked.indexes}
        return all(
            _identity_of(self._resolution, fd, f"{above}index") == tracked.indexes[path]
            for path, (fd, above) in places.items()
        )

    def _prefix(self, repository: str, git_directory: str) -> str:
        """What a path of that index has before it in the workspace, or lacks: see `_standing`."""
        if git_directory != _OUTSIDE or self._outside is None or not self._outside.folder:
            return ""
        return f"{self._outside.folder}/"

    def _places(self, root_fd: int, closed: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
        """The closed names by the root of the work tree that holds them, with its git directory."""
        known: dict[str, tuple[str, str] | None] = {}
        places: dict[str, tuple[str, list[str]]] = {}
        for name in closed:
            place = self._place(root_fd, name.rpartition("/")[0] or ".", known)
            if place is not None:
                places.setdefault(place[0], (place[1], []))[1].append(name)
        return places

    def _place(
        self, root_fd: int, directory: str, known: dict[str, tuple[str, str] | None]
    ) -> tuple[str, str] | None:
        if directory not in known:
            led_to = self._lead(root_fd, directory)
            if directory == "." and not led_to and self._outside is not None:
                led_to = _OUTSIDE
            if led_to is not None:
                known[directory] = (directory, led_to) if led_to else None
            elif directory == ".":
                known[directory] = None
            else:
                above = directory.rpartition("/")[0] or "."
                known[directory] = self._place(root_fd, above, known)
        return known[directory]

    def _lead(self, root_fd: int, directory: str) -> str | None:
        """The git directory of a work tree; None where it is none, empty if out of reach."""
        name = ".git" if directory == "." else f"{directory}/.git"
        try:
            fd = self._resolution.open(root_fd, directory, PASS)
        except OSError:
            return ""
        try:
            look = os.stat(".git", dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(look.st_mode):
                return name
            if stat.S_ISLNK(look.st_mode):
                return self._inside(directory, os.readlink(".git", dir_fd=fd))
        except FileNotFoundError:
            return None
        except OSError:
            return ""
        finally:
            os.close(fd)
        content = _read_file(self._resolution, root_fd, name, _LEAD_BYTES_MAX) or b""
        said = _LEAD.fullmatch(os.fsdecode(content))
        return "" if said is None else self._inside(directory, said[1])

    def _inside(self, directory: str, target: str) -> str:
        """Where a target leads by its text, workspace-relative; empty for out of the workspace."""
        base = self._workspace if directory == "." else f"{self._workspace}/{directory}"
        absolute = os.path.normpath(f"{base}/{target}" if target[:1] != "/" else target)
        prefix = f"{self._workspace}/"
        return absolute[len(prefix) :] if absolute.startswith(prefix) else ""

    def _look(
        self, root_fd: int, repository: str, git_directory: str, names: frozenset[str]
    ) -> _Read | None:
        git_fd, above = _place_of(git_directory, root_fd, self._outside)
        identity = _identity_of(self._resolution, git_fd, f"{above}index")
        known = self._read.get(git_directory)
        if known is not None and (known.identity, known.names) == (identity, names):
            return known
        content = _read_file(self._resolution, git_fd, f"{above}index", _INDEX_BYTES_MAX)
        if identity is None or content is None:
            return None

        def read_shared(name: str) -> bytes | None:
            return _read_file(self._resolution, git_fd, f"{above}{name}", _INDEX_BYTES_MAX)

        prefix = "" if repository == "." else f"{repository}/"
        lacking = self._prefix(repository, git_directory)
        inside = {os.fsencode(lacking + name[len(prefix) :]): name for name in names}
        folders = frozenset(inner for inner, name in inside.items() if _is_directory(root_fd, name))
        entries = _find(content, frozenset(inside), folders, read_shared)
        return _Read(identity, names, entries)


def _place_of(git_directory: str, root_fd: int, outside: OutsideIndex | None) -> tuple[int, str]:
    """Where its index stands: below a descriptor, and what comes before the name."""
    if git_directory == _OUTSIDE and outside is not None:
        return outside.fd, outside.name.removesuffix("index")
    return root_fd, f"{git_directory}/"


def list_tracked(root: Path) -> tuple[str, ...]:
    """Every path of the repository whose work tree has its root there; empty where none has.

    For people: a nested repository is one of its own. Raises: OSError.
    """
    resolution = detect_resolution()
    root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        content = _read_file(resolution, root_fd, ".git/index", _INDEX_BYTES_MAX)
        if content is None:
            return ()

        def read_shared(name: str) -> bytes | None:
            return _read_file(resolution, root_fd, f".git/{name}", _INDEX_BYTES_MAX)

        for hash_bytes in (SHA1_BYTES, SHA256_BYTES):
            with contextlib.suppress(ValueError):
                index = Index(open_index(content, hash_bytes), read_shared)
                return tuple(sorted({os.fsdecode(entry.path) for entry in index.entries()}))
        return ()
    finally:
        os.close(root_fd)


def _find(
    content: bytes, files: frozenset[bytes], directories: frozenset[bytes], read_shared: ReadShared
) -> tuple[IndexEntry, ...]:
    """Of an index in either format: the configuration that says which is not read for it.

    None where it cannot be read: then git can do nothing with it, either.
    """
    for hash_bytes in (SHA1_BYTES, SHA256_BYTES):
        try:
            index = Index(open_index(content, hash_bytes), read_shared)
            return index.find_entries(files, directories)
        except ValueError:
            continue
    return ()


def _standing(
    root_fd: int, repository: str, folder: str, entries: Sequence[IndexEntry]
) -> list[TrackedName]:
    """What of the entries is expected in the work tree, and is there, one entry a path.

    `folder` is what the index calls the workspace, with a slash.
    """
    by_path: dict[bytes, dict[int, IndexEntry]] = {}
    for entry in entries:
        by_path.setdefault(entry.path, {})[entry.stage] = entry
    found: list[TrackedName] = []
    for path, stages in by_path.items():
        entry = next((stages[stage] for stage in _PREFERRED if stage in stages), None)
        if entry is None or entry.is_skipped or _UNUSUAL.search(path) is not None:
            continue
        inner = os.fsdecode(path).removeprefix(folder)
        name = inner if repository == "." else f"{repository}/{inner}"
        try:
            look = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(look.st_mode) is not (entry.mode == SUBMODULE_MODE):
            continue
        if entry.mode not in FILE_MODES and entry.mode not in (LINK_MODE, SUBMODULE_MODE):
            continue
        found.append(
            TrackedName(
                name,
                entry.object_id.hex(),
                entry.mode,
                repository,
                entry.is_intended,
                entry.size_bytes,
                look.st_mtime_ns,
            )
        )
    return found


def _is_directory(root_fd: int, name: str) -> bool:
    try:
        look = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(look.st_mode)


def _identity_of(resolution: Resolution, root_fd: int, path: str) -> IndexIdentity | None:
    """What tells whether a file is another, or has changed; None where there is none."""
    try:
        fd = resolution.open(root_fd, path, PASS)
    except OSError:
        return None
    try:
        look = os.fstat(fd)
    finally:
        os.close(fd)
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns


def _read_file(resolution: Resolution, root_fd: int, path: str, bytes_max: int) -> bytes | None:
    """A regular file of the workspace, no link passed; None where there is none like that."""
    try:
        fd = resolution.open(root_fd, path, READ_FILE)
    except OSError:
        return None
    try:
        look = os.fstat(fd)
        if not stat.S_ISREG(look.st_mode) or look.st_size > bytes_max:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(bytes_max + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
