"""Find tracked closed names, and the paths that index and HEAD name before and after a command.

A repository is searched from the directory of a name upwards, not beyond the workspace. An
unchanged index is not read again. The paths of index and HEAD are looked up once, when needed;
an unreadable one is a HostError, which callers treat as a refusal.

Threat: `.git` is a symlink, or a file that leads to another repository of this host: its target is
taken as a name in the workspace, and opened without following links. An index written by an agent
can name any object of this repository, but the agent can read these objects anyway.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from paddock.errors import HostError
from paddock.pattern import lazy_pattern
from paddock.sandbox.git.index import (
    FILE_MODES,
    LINK_MODE,
    NO_INDEX,
    SUBMODULE_MODE,
    IndexEntry,
    IndexFile,
    open_index,
)
from paddock.sandbox.git.layout import Read, WorkTree, find_inside, find_lead
from paddock.sandbox.git.objects import (
    SHA1_BYTES,
    SHA256_BYTES,
    TreeEntry,
    TreeReader,
    unknown_names,
)
from paddock.sandbox.host.host_facts import directories_above, find_content, stat_at
from paddock.storage.atomic import held_open
from paddock.workspace.paths import TEMPORARY_PREFIX, is_temporary_name
from paddock.workspace.workspace import (
    PASS,
    PASS_DIRECTORY,
    READ_FILE,
    Resolution,
    detect_resolution,
)

INDEX_BYTES_MAX: Final = 1 << 28
_LEAD_BYTES_MAX: Final = 4096 + len("gitdir: \n")
_MODES: Final = FILE_MODES | {LINK_MODE, SUBMODULE_MODE}
_UNUSUAL: Final = lazy_pattern(rb"(?:\A|/)(?:\.{0,2}|\.git)(?:/|\Z)|\n")
"""A path that git would not enter, or that does not fit in one line of a query."""
_INDEXES_MAX: Final = 64
"""Held open while a command runs; further ones are compared by their times alone."""
_PREFERRED: Final = (0, 2, 3)
"""The stages that the work tree has: in a conflict ours, or else theirs."""

FileIdentity = tuple[int, ...]
"""Device, inode, size, mtime and ctime in ns; empty for a missing file."""


class TrackedName(Struct, frozen=True):
    path: str
    object_id: str
    mode: int
    repository: str
    is_intended: bool
    size_bytes: int
    """The file's size when git last found it unmodified; 0 if unknown."""
    modified_ns: int
    """The real file's time: the file shown in its place has another time."""


class IndexPlace(Struct, frozen=True):
    repository: str
    fd: int
    directory: str
    above: str = ""
    """The prefix of the workspace's paths in the index, with a slash."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify the place without its descriptor, which differs each time."""
        return self.repository, self.directory, self.above

    def read(self, name: str) -> bytes | None:
        return find_content(self.fd, self.directory + name, INDEX_BYTES_MAX)

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
    def __init__(self) -> None:
        self._read: Mapping[tuple[str, str, str], _Read] = {}

    def find(
        self,
        root_fd: int,
        workspace: str,
        closed: Sequence[str],
        outside: IndexPlace | None = None,
    ) -> Tracked:
        """Return the tracked files among the closed names and below them.

        `workspace` is its real path. Names in no repository here may be in the one `outside`.
        """

        @cache
        def place_of(directory: str) -> IndexPlace | None:
            led_to = _find_lead(root_fd, directory, workspace)
            if directory == "." and not led_to and outside is not None:
                return outside
            if led_to is None and directory != ".":
                return place_of(directory.rpartition("/")[0] or ".")
            return IndexPlace(directory, root_fd, f"{led_to}/") if led_to else None

        places: dict[IndexPlace, list[str]] = {}
        for name in closed:
            place = place_of(name.rpartition("/")[0] or ".")
            if place is not None:
                places.setdefault(place, []).append(name)
        looks = {place: self._look(root_fd, place, names) for place, names in places.items()}
        looks = {place: known for place, known in looks.items() if known.identity}
        self._read = {place.key: known for place, known in looks.items()}
        found = (
            each
            for place, known in looks.items()
            for each in _existing(root_fd, place, known.entries)
        )
        names = tuple(sorted(found, key=lambda each: each.path))
        return Tracked(names, {place: known.identity for place, known in looks.items()})

    def _look(self, root_fd: int, place: IndexPlace, closed: Iterable[str]) -> _Read:
        identity, names = place.identity(), frozenset(closed)
        known = self._read.get(place.key)
        if known is not None and (known.identity, known.names) == (identity, names):
            return known
        prefix = "" if place.repository == "." else f"{place.repository}/"
        inside = {os.fsencode(place.above + name[len(prefix) :]): name for name in names}
        folders = frozenset(
            inner
            for inner, name in inside.items()
            if (found := stat_at(root_fd, name)) and stat.S_ISDIR(found.st_mode)
        )
        files = frozenset(inside)
        return _Read(identity, names, find_indexed(place, files, folders))


def _find_lead(root_fd: int, directory: str, workspace: str) -> str | None:
    """Return where the `.git` of a directory leads, empty for nowhere; None if it has none."""
    name = ".git" if directory == "." else f"{directory}/.git"
    try:
        fd = detect_resolution().open(root_fd, directory, PASS)
    except OSError:
        return ""
    with held_open(fd):
        try:
            look = os.stat(".git", dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(look.st_mode):
                return name
            if stat.S_ISLNK(look.st_mode):
                return find_inside(os.readlink(".git", dir_fd=fd), directory, workspace) or ""
        except FileNotFoundError:
            return None
        except OSError:
            return ""
    content = find_content(root_fd, name, _LEAD_BYTES_MAX) or b""
    return find_lead(content, directory, workspace) or ""


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
    """Search in both hash formats; empty for an index that git cannot read either."""
    content = place.read("index") or b""
    for hash_bytes in (SHA1_BYTES, SHA256_BYTES):
        with contextlib.suppress(ValueError):
            return tuple(look(open_index(content, hash_bytes, place.read)))
    return ()


def _existing(
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
        look = stat_at(root_fd, name)
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


class KnownIndex:
    """The index of a repository at a command's start, and the versions shown to it since.

    `git status` only refreshes the file data in the index: the entries stay the same. Git replaces
    the file and never writes to the old one, so its descriptor is kept open.
    """

    def __init__(self, root_fd: int, name: str, path: str = "", shown: bytes = b"") -> None:
        """`path`: its path in a command's layer, if not `name`; `shown`: its content there."""
        self.path = path or name
        self._known = [_names_in(shown)] if shown else []
        self._fd = -1
        self.identity: FileIdentity = ()
        with contextlib.suppress(OSError):
            self._fd = detect_resolution().open(root_fd, name, READ_FILE)
            self._found = os.fstat(self._fd)
            self.identity = identity_of_look(self._found)

    def learn(self, root_fd: int) -> None:
        """Record the current index as shown to the command."""
        self.read()
        self._known.append(_names_in(find_content(root_fd, self.path, INDEX_BYTES_MAX)))

    def is_known(self, content: bytes | None, *, is_last: bool) -> bool:
        """Return True if it has the entries of the last shown version, or of any version."""
        self.read()
        known = self._known[-1:] if is_last else self._known
        return _names_in(content) in filter(None, known)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def read(self) -> None:
        if self._fd < 0:
            return
        size, content = self._found.st_size, None
        if stat.S_ISREG(self._found.st_mode) and size <= INDEX_BYTES_MAX:
            content = os.pread(self._fd, size, 0)
        now = os.fstat(self._fd)
        is_same = (now.st_size, now.st_mtime_ns) == (size, self._found.st_mtime_ns)
        self._known.append(_names_in(content) if is_same else b"")
        self.close()


def find_known_indexes(root_fd: int, directories: Collection[str]) -> dict[str, KnownIndex]:
    """Open the index of the workspace's repository, and those of repositories below it."""
    found = [path for path in directories if ".git" in path and _has_index(path, directories)]
    names = [f"{path}/index" for path in sorted(found, key=len)[:_INDEXES_MAX]]
    return {name: KnownIndex(root_fd, name) for name in names}


def _has_index(path: str, directories: Collection[str]) -> bool:
    above, _, name = path.rpartition("/")
    is_module = ".git/modules/" in path and f"{path}/refs" in directories
    return name == ".git" or is_module or above.endswith(".git/worktrees")


def _names_in(content: bytes | None) -> bytes:
    """Digest an index's entries without file data; empty if it is unreadable or split."""
    digest = hashlib.sha256()
    for hash_bytes in (SHA1_BYTES, SHA256_BYTES):
        with contextlib.suppress(ValueError):
            for each in open_index(content or b"", hash_bytes, lambda _: None).entries():
                digest.update(repr((each.path, each.object_id, each.mode, each[3:])).encode())
            return digest.digest()
    return b""


def identity_of_look(look: os.stat_result) -> FileIdentity:
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns


_HOPS_MAX: Final = 5
_OID: Final = lazy_pattern(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = lazy_pattern(rb"ref:\s*(refs/[^\x00-\x20]+)")
_ELSEWHERE: Final = b"refs/heads/.invalid"
"""The target of HEAD in a repository with `reftable`, which is not supported here."""


class Sides(Struct, frozen=True):
    before: Read
    after: Read
    fds: tuple[int, int]
    resolution: Resolution


class Naming(Struct, dict=True):
    tree: WorkTree
    sides: Sides
    changed: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    """The changed paths in this work tree, with the numbers of their changes."""

    def is_only_refreshed(self) -> bool:
        with _strictly():
            before, after = ({_key(each) for each in one.entries()} for one in self._indexes)
        return before == after

    def find_draft(self) -> bytes | None:
        """Return a temporary name of Paddock's that the command added to the index."""
        after = self._after
        # Before version 4 names are not compressed.
        if after.version != 4 and os.fsencode(TEMPORARY_PREFIX) not in after.content:
            return None
        with _strictly():
            drafts = {
                path
                for _, path, _, _ in after.walk()
                if any(map(is_temporary_name, os.fsdecode(path).split("/")))
            }
            known = {path for _, path, _, _ in self._indexes[0].walk()} if drafts else set[bytes]()
        return min(drafts - known, default=None)

    @cached_property
    def named(self) -> frozenset[bytes]:
        """The changed paths in index or HEAD, before or after. Raises: HostError."""
        paths = frozenset(self.changed)
        if not paths or not self.tree.is_sure:
            return paths
        # A sparse index has a whole directory as one entry.
        sparse = frozenset(
            os.fsencode(f"{above}/")
            for path in paths
            for above in directories_above(os.fsdecode(path))
        )
        found: set[bytes] = set()
        for entries in self._find(paths | sparse):
            found.update(each.path for each in entries)
        whole = tuple(each for each in found if each.endswith(b"/"))
        found.update(path for path in paths if path.startswith(whole))
        heads = set(filter(None, self._heads))
        if heads:
            with self._trees() as trees:
                for head in heads:
                    found.update(trees.find(head, paths))
        return frozenset(found & paths)

    def find_unseen(
        self, closed: frozenset[bytes], shown: frozenset[bytes] = frozenset()
    ) -> bytes | None:
        """Return a path below `closed`, not `shown`, that changed in index or HEAD.

        A commit may bring entries into HEAD that were staged before. Raises: HostError.
        """
        before, after = self._find(closed, closed)
        changed = set(map(_key, before)) ^ set(map(_key, after))
        unseen = {path for path, _, _ in changed} - shown
        if unseen:
            return min(unseen)
        old, new = self._heads
        if new is None or new == old:
            return None
        staged = {
            each.path: TreeEntry(each.mode, each.object_id) for each in before if not each.stage
        }
        with self._trees() as trees:
            was = {} if old is None else trees.find(old, closed)
            now = trees.find(new, closed)
            for path in sorted(closed):
                if was.get(path) == now.get(path):
                    continue
                had, has = (
                    dict(trees.below(path, marks[path])) if path in marks else {}
                    for marks in (was, now)
                )
                for name in sorted((had.keys() | has.keys()) - shown):
                    if has.get(name) not in (had.get(name), staged.get(name)):
                        return name
        return None

    def has_moved(self, submodule: bytes) -> bool:
        """Return True also where that cannot be read."""
        try:
            before, after = self._find(frozenset({submodule}))
        except HostError:
            return True
        return set(map(_key, before)) != set(map(_key, after))

    @cached_property
    def _indexes(self) -> tuple[IndexFile, IndexFile]:
        return self._index(self.sides.before), self._after

    @cached_property
    def _after(self) -> IndexFile:
        return self._index(self.sides.after)

    def _index(self, read: Read) -> IndexFile:
        git, hash_bytes = self.tree.git, self.tree.hash_bytes
        content = read(f"{git}/index")
        if content is None:
            return NO_INDEX
        with _strictly():
            return open_index(content, hash_bytes, lambda name: read(f"{git}/{name}"))

    def _find(
        self, files: frozenset[bytes], directories: frozenset[bytes] = frozenset()
    ) -> tuple[tuple[IndexEntry, ...], tuple[IndexEntry, ...]]:
        before, after = self._indexes
        with _strictly():
            return before.find_entries(files, directories), after.find_entries(files, directories)

    @cached_property
    def _heads(self) -> tuple[bytes | None, bytes | None]:
        return self._head(self.sides.before), self._head(self.sides.after)

    def _head(self, read: Read) -> bytes | None:
        content = read(f"{self.tree.git}/HEAD")
        for _ in range(_HOPS_MAX):
            text = (content or b"").strip()
            if content is None or _OID.fullmatch(text) is not None:
                return None if content is None else text
            ref = _REF.fullmatch(text)
            if ref is None or ref[1] == _ELSEWHERE:
                break
            content = read(f"{self.tree.common}/{os.fsdecode(ref[1])}")
            if content is None:
                content = _packed(read(f"{self.tree.common}/packed-refs") or b"", ref[1])
        raise unknown_names("HEAD cannot be resolved")

    @contextlib.contextmanager
    def _trees(self) -> Generator[TreeReader]:
        resolution = self.sides.resolution
        objects = f"{self.tree.common}/objects"
        # Threat: git reads any object directory of this host that a command names.
        for name in ("alternates", "http-alternates"):
            path = f"{objects}/info/{name}"
            if self.sides.before(path) != self.sides.after(path):
                raise unknown_names("the command changed its object alternates")
        with contextlib.ExitStack() as held:
            fds: list[int] = []
            for root_fd in self.sides.fds:
                try:
                    fds.append(resolution.open(root_fd, objects, PASS_DIRECTORY))
                except OSError:
                    continue
                held.callback(os.close, fds[-1])
            if not fds:
                raise unknown_names("it has no objects")
            yield held.enter_context(TreeReader(fds, self.tree.hash_bytes))


@contextlib.contextmanager
def _strictly() -> Generator[None]:
    try:
        yield
    except ValueError as error:
        raise unknown_names(str(error)) from error


def _key(entry: IndexEntry) -> tuple[bytes, TreeEntry, int]:
    return entry.path, TreeEntry(entry.mode, entry.object_id), entry.stage


def _packed(refs: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"(?m)^([0-9a-f]+) " + re.escape(name) + rb"$", refs)
    return None if found is None else found[1]
