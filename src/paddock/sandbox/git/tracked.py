"""Which names that are closed to commands git tracks: each by the index of its own repository.

A repository is looked for from the directory of the name upwards, never beyond the workspace. An
unchanged index is not read again.

Threat: `.git` as a link, or a file that leads to another repository of this host: what it says is
taken for a name in the workspace, and opened without passing a link. An index that an agent wrote
can name any object of this repository: content which the agent can read anyway.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from paddock.pattern import lazy_pattern
from paddock.sandbox.git.index import (
    FILE_MODES,
    LINK_MODE,
    SUBMODULE_MODE,
    IndexEntry,
    IndexFile,
    open_index,
)
from paddock.sandbox.git.layout import find_inside, find_lead
from paddock.sandbox.git.objects import SHA1_BYTES, SHA256_BYTES
from paddock.sandbox.host.host_facts import find_content
from paddock.storage.atomic import held_open
from paddock.workspace.resolve import PASS, detect_resolution

_INDEX_BYTES_MAX: Final = 1 << 28
_LEAD_BYTES_MAX: Final = 4096 + len("gitdir: \n")
_MODES: Final = FILE_MODES | {LINK_MODE, SUBMODULE_MODE}
_UNUSUAL: Final = lazy_pattern(rb"(?:\A|/)(?:\.{0,2}|\.git)(?:/|\Z)|\n")
"""A path that git would not enter, or of which it cannot be asked line by line."""
_PREFERRED: Final = (0, 2, 3)
"""The stages of a path that stand in the work tree: of a conflict ours, else theirs."""

FileIdentity = tuple[int, ...]
"""Device, inode, size, mtime and ctime in ns; empty for what is not there."""


class TrackedName(Struct, frozen=True):
    path: str
    object_id: str
    mode: int
    repository: str
    is_intended: bool
    size_bytes: int
    """Of the file when git last found it to be as the index says; 0 where that is not known."""
    modified_ns: int
    """Of what stands there: what is shown in its place has another time."""


class IndexPlace(Struct, frozen=True, eq=False):
    repository: str
    fd: int
    directory: str
    above: str = ""
    """What the index has before the workspace's own paths, with a slash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexPlace) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str]:
        return self.repository, self.directory, self.above

    def read(self, name: str) -> bytes | None:
        return find_content(self.fd, self.directory + name, _INDEX_BYTES_MAX)

    def identity(self) -> FileIdentity:
        try:
            fd = detect_resolution().open(self.fd, f"{self.directory}index", PASS)
        except OSError:
            return ()
        with held_open(fd):
            return identity_of_look(os.fstat(fd))


class Tracked(Struct, frozen=True):
    names: tuple[TrackedName, ...]
    indexes: Mapping[IndexPlace, FileIdentity]

    def is_current(self) -> bool:
        return all(place.identity() == known for place, known in self.indexes.items())


class _Read(Struct, frozen=True):
    identity: FileIdentity
    names: frozenset[str]
    entries: tuple[IndexEntry, ...]


class TrackedNames:
    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: Mapping[IndexPlace, _Read] = {}

    def find(
        self,
        root_fd: int,
        workspace: str,
        closed: Sequence[str],
        outside: IndexPlace | None = None,
    ) -> Tracked:
        """Return the tracked ones of the closed names, and of those below them.

        `workspace` is its real path. What is in no repository here may be in the one `outside`.
        """
        looking = _Looking(root_fd, workspace, outside)
        places: dict[IndexPlace, list[str]] = {}
        for name in closed:
            place = looking.place(name.rpartition("/")[0] or ".")
            if place is not None:
                places.setdefault(place, []).append(name)
        looks = {place: self._look(root_fd, place, names) for place, names in places.items()}
        self._read = {place: known for place, known in looks.items() if known.identity}
        found = (
            each
            for place, known in self._read.items()
            for each in _standing(root_fd, place, known.entries)
        )
        names = tuple(sorted(found, key=lambda each: each.path))
        return Tracked(names, {place: known.identity for place, known in self._read.items()})

    def _look(self, root_fd: int, place: IndexPlace, closed: Iterable[str]) -> _Read:
        identity, names = place.identity(), frozenset(closed)
        known = self._read.get(place)
        if known is not None and (known.identity, known.names) == (identity, names):
            return known
        prefix = "" if place.repository == "." else f"{place.repository}/"
        inside = {os.fsencode(place.above + name[len(prefix) :]): name for name in names}
        folders = frozenset(
            inner
            for inner, name in inside.items()
            if (found := _look_at(root_fd, name)) and stat.S_ISDIR(found.st_mode)
        )
        files = frozenset(inside)
        return _Read(identity, names, find_indexed(place, files, folders))


class _Looking(Struct):
    root_fd: int
    workspace: str
    outside: IndexPlace | None
    _known: dict[str, IndexPlace | None] = field(default_factory=dict[str, IndexPlace | None])

    def place(self, directory: str) -> IndexPlace | None:
        if directory not in self._known:
            self._known[directory] = self._find(directory)
        return self._known[directory]

    def _find(self, directory: str) -> IndexPlace | None:
        led_to = self._lead(directory)
        if directory == "." and not led_to and self.outside is not None:
            return self.outside
        if led_to is None and directory != ".":
            return self.place(directory.rpartition("/")[0] or ".")
        return IndexPlace(directory, self.root_fd, f"{led_to}/") if led_to else None

    def _lead(self, directory: str) -> str | None:
        name = ".git" if directory == "." else f"{directory}/.git"
        try:
            fd = detect_resolution().open(self.root_fd, directory, PASS)
        except OSError:
            return ""
        try:
            look = os.stat(".git", dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(look.st_mode):
                return name
            if stat.S_ISLNK(look.st_mode):
                text = os.readlink(".git", dir_fd=fd)
                return find_inside(text, directory, self.workspace) or ""
        except FileNotFoundError:
            return None
        except OSError:
            return ""
        finally:
            os.close(fd)
        said = find_content(self.root_fd, name, _LEAD_BYTES_MAX) or b""
        return find_lead(said, directory, self.workspace) or ""


def list_tracked(root: Path) -> tuple[str, ...]:
    with held_open(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root_fd:
        entries = _find(IndexPlace(".", root_fd, ".git/"), IndexFile.entries)
        return tuple(sorted({os.fsdecode(entry.path) for entry in entries}))


def find_indexed(
    place: IndexPlace, files: frozenset[bytes], directories: frozenset[bytes] = frozenset()
) -> tuple[IndexEntry, ...]:
    return _find(place, lambda index: index.find_entries(files, directories))


def _find(
    place: IndexPlace, look: Callable[[IndexFile], Iterable[IndexEntry]]
) -> tuple[IndexEntry, ...]:
    """Look in either format; nothing where git could not read it, either."""
    content = place.read("index") or b""
    for hash_bytes in (SHA1_BYTES, SHA256_BYTES):
        with contextlib.suppress(ValueError):
            return tuple(look(open_index(content, hash_bytes, place.read)))
    return ()


def _standing(
    root_fd: int, place: IndexPlace, entries: Sequence[IndexEntry]
) -> Iterator[TrackedName]:
    by_path: dict[bytes, dict[int, IndexEntry]] = {}
    for entry in entries:
        by_path.setdefault(entry.path, {})[entry.stage] = entry
    for path, stages in by_path.items():
        entry = next((stages[stage] for stage in _PREFERRED if stage in stages), None)
        if entry is None or entry.is_skipped or _UNUSUAL.search(path) is not None:
            continue
        inner = os.fsdecode(path).removeprefix(place.above)
        name = inner if place.repository == "." else f"{place.repository}/{inner}"
        look = _look_at(root_fd, name)
        if look is None or entry.mode not in _MODES:
            continue
        if stat.S_ISDIR(look.st_mode) is (entry.mode == SUBMODULE_MODE):
            yield TrackedName(
                name,
                entry.object_id.hex(),
                entry.mode,
                place.repository,
                entry.is_intended,
                entry.size_bytes,
                look.st_mtime_ns,
            )


def _look_at(root_fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return None


def stamp_of(root_fd: int, name: str) -> FileIdentity:
    look = _look_at(root_fd, name)
    return () if look is None else identity_of_look(look)


def identity_of_look(look: os.stat_result) -> FileIdentity:
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns
