"""What a work tree's index and HEAD name, before a command and after it.

Its own files are read from both sides; commits by git, from the objects of both (`trees`).
Everything is looked up once, and only when it is asked for. What cannot be read is a
HostError: whoever asks takes that for a no.
"""

import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from paddock.errors import HostError
from paddock.sandbox.git.entries import Index, IndexEntry, open_index
from paddock.sandbox.git.trees import TreeEntry, TreeReader
from paddock.sandbox.git.worktrees import Read, WorkTree
from paddock.workspace.resolution import PASS_DIRECTORY, Resolution

_HOPS_MAX: Final = 5
"""From HEAD to the commit, as git follows them."""
_OID: Final = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = re.compile(rb"ref:\s*(refs/[^\x00-\x20]+)")
_ELSEWHERE: Final = b"refs/heads/.invalid"
"""What HEAD says where refs are kept in tables (`reftable`), which are not read here."""


@dataclass(frozen=True, slots=True)
class Sides:
    """A workspace before a command and after it."""

    before: Read
    after: Read
    fds: tuple[int, int]
    """Of the workspace's root and of the layer's, for objects."""
    resolution: Resolution


@dataclass(slots=True)
class Naming:
    """One work tree's names. Paths are relative to it, as bytes."""

    tree: WorkTree
    sides: Sides
    _index_pair: tuple[Index | None, Index | None] | None = None
    _head_pair: tuple[bytes | None, bytes | None] | None = None
    _named: dict[frozenset[bytes], frozenset[bytes]] = field(
        default_factory=dict[frozenset[bytes], frozenset[bytes]]
    )

    def is_only_refreshed(self) -> bool:
        """Whether the index has the same entries, and only what it knows of files is another."""
        before, after = ({_what(each) for each in _entries(one)} for one in self._indexes())
        return before == after

    def named(self, paths: frozenset[bytes]) -> frozenset[bytes]:
        """Those of the paths that index or HEAD names, before or after. Raises: HostError."""
        known = self._named.get(paths)
        if known is None:
            known = self._named[paths] = self._look_for(paths)
        return known

    def _look_for(self, paths: frozenset[bytes]) -> frozenset[bytes]:
        # A sparse index has a whole directory as one entry.
        sparse = frozenset(os.fsencode(f"{above}/") for path in paths for above in _above(path))
        found: set[bytes] = set()
        for index in self._indexes():
            found.update(each.path for each in _find(index, paths | sparse))
        whole = tuple(each for each in found if each.endswith(b"/"))
        found.update(path for path in paths if whole and path.startswith(whole))
        heads = {head for head in self._heads() if head is not None}
        if heads:
            with self._trees() as trees:
                for head in heads:
                    found.update(trees.find(head, paths))
        return frozenset(found & paths)

    def find_unseen(
        self, closed: frozenset[bytes], shown: frozenset[bytes] = frozenset()
    ) -> bytes | None:
        """A path at or below `closed` that index or HEAD has another way than before.

        But for what is `shown`, and for what was staged before: a commit may bring that into
        HEAD. Raises: HostError.
        """
        before, after = (_find(index, closed, closed) for index in self._indexes())
        changed = {_what(each) for each in before} ^ {_what(each) for each in after}
        unseen = {path for path, _, _ in changed} - shown
        if unseen:
            return min(unseen)
        old, new = self._heads()
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
                had, has = (_files(trees, path, entries.get(path)) for entries in (was, now))
                for name in sorted((had.keys() | has.keys()) - shown):
                    if has.get(name) not in (had.get(name), staged.get(name)):
                        return name
        return None

    def has_moved(self, submodule: bytes) -> bool:
        """Whether the index has another commit of a submodule. Raises: HostError."""
        before, after = (_find(index, frozenset({submodule})) for index in self._indexes())
        return {_what(each) for each in before} != {_what(each) for each in after}

    def _indexes(self) -> tuple[Index | None, Index | None]:
        if self._index_pair is None:
            sides = self.sides
            self._index_pair = self._index(sides.before), self._index(sides.after)
        return self._index_pair

    def _index(self, read: Read) -> Index | None:
        content = read(f"{self.tree.git}/index")
        if content is None:
            return None
        try:
            file = open_index(content, self.tree.hash_bytes)
        except ValueError as error:
            raise _unknown(str(error)) from error
        return Index(file, lambda name: read(f"{self.tree.git}/{name}"))

    def _heads(self) -> tuple[bytes | None, bytes | None]:
        if self._head_pair is None:
            sides = self.sides
            self._head_pair = self._head(sides.before), self._head(sides.after)
        return self._head_pair

    def _head(self, read: Read) -> bytes | None:
        """The commit; None for no HEAD, or for a branch without a commit."""
        said = read(f"{self.tree.git}/HEAD")
        for _ in range(_HOPS_MAX):
            text = (said or b"").strip()
            if said is None or _OID.fullmatch(text) is not None:
                return None if said is None else text
            ref = _REF.fullmatch(text)
            if ref is None or ref[1] == _ELSEWHERE:
                break
            said = read(f"{self.tree.common}/{os.fsdecode(ref[1])}")
            if said is None:
                said = _packed(read(f"{self.tree.common}/packed-refs") or b"", ref[1])
        raise _unknown("where HEAD stands cannot be told")

    @contextmanager
    def _trees(self) -> Generator[TreeReader]:
        resolution = self.sides.resolution
        objects = f"{self.tree.common}/objects"
        # Threat: git would read whatever object directory of this host a command names.
        for name in ("alternates", "http-alternates"):
            path = f"{objects}/info/{name}"
            if self.sides.before(path) != self.sides.after(path):
                raise _unknown("the command leads it to objects elsewhere")
        with ExitStack() as held:
            fds: list[int] = []
            for root_fd in self.sides.fds:
                try:
                    fds.append(resolution.open(root_fd, objects, PASS_DIRECTORY))
                except OSError:
                    continue
                held.callback(os.close, fds[-1])
            if not fds:
                raise _unknown("it has no objects")
            yield held.enter_context(TreeReader(fds, self.tree.hash_bytes))


def _entries(index: Index | None) -> Iterable[IndexEntry]:
    return () if index is None else _read(lambda: tuple(index.entries()))


def _find(
    index: Index | None, files: frozenset[bytes], directories: frozenset[bytes] = frozenset()
) -> Sequence[IndexEntry]:
    return () if index is None else _read(lambda: index.find_entries(files, directories))


def _read(look: Callable[[], Sequence[IndexEntry]]) -> Sequence[IndexEntry]:
    try:
        return look()
    except ValueError as error:
        raise _unknown(str(error)) from error


def _what(entry: IndexEntry) -> tuple[bytes, TreeEntry, int]:
    return entry.path, TreeEntry(entry.mode, entry.object_id), entry.stage


def _above(path: bytes) -> Iterable[str]:
    parts = os.fsdecode(path).split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _files(trees: TreeReader, path: bytes, mark: TreeEntry | None) -> dict[bytes, TreeEntry]:
    return {} if mark is None else dict(trees.below(path, mark))


def _packed(refs: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"(?m)^([0-9a-f]+) " + re.escape(name) + rb"$", refs)
    return None if found is None else found[1]


def _unknown(why: str) -> HostError:
    return HostError(f"what the repository names is not known: {why}")
