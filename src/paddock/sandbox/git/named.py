"""What a work tree's index and HEAD name, before a command and after it.

Looked up once, when asked for. What cannot be read is a HostError: take that for a no.
"""

import os
import re
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Final

from msgspec import Struct, field

from paddock.pattern import lazy_pattern
from paddock.sandbox.git.index import NO_INDEX, IndexEntry, IndexFile, open_index
from paddock.sandbox.git.layout import Read, WorkTree
from paddock.sandbox.git.objects import TreeEntry, TreeReader, unknown_names
from paddock.workspace.resolve import PASS_DIRECTORY, Resolution

_HOPS_MAX: Final = 5
_OID: Final = lazy_pattern(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = lazy_pattern(rb"ref:\s*(refs/[^\x00-\x20]+)")
_ELSEWHERE: Final = b"refs/heads/.invalid"
"""What HEAD says where refs are kept in tables (`reftable`), which are not read here."""


class Sides(Struct, frozen=True):
    before: Read
    after: Read
    fds: tuple[int, int]
    resolution: Resolution


class Naming(Struct, dict=True):
    tree: WorkTree
    sides: Sides
    _named: dict[frozenset[bytes], frozenset[bytes]] = field(
        default_factory=dict[frozenset[bytes], frozenset[bytes]]
    )

    def is_only_refreshed(self) -> bool:
        with _strictly():
            before, after = ({_what(each) for each in one.entries()} for one in self._indexes)
        return before == after

    def named(self, paths: frozenset[bytes]) -> frozenset[bytes]:
        """Return those paths that index or HEAD names, before or after. Raises: HostError."""
        if paths not in self._named:
            self._named[paths] = self._look_for(paths)
        return self._named[paths]

    def _look_for(self, paths: frozenset[bytes]) -> frozenset[bytes]:
        # A sparse index has a whole directory as one entry.
        sparse = frozenset(os.fsencode(f"{above}/") for path in paths for above in _above(path))
        found: set[bytes] = set()
        for entries in self._find(paths | sparse):
            found.update(each.path for each in entries)
        whole = tuple(each for each in found if each.endswith(b"/"))
        found.update(path for path in paths if whole and path.startswith(whole))
        heads = set(self._heads) - {None}
        if heads:
            with self._trees() as trees:
                for head in filter(None, heads):
                    found.update(trees.find(head, paths))
        return frozenset(found & paths)

    def find_unseen(
        self, closed: frozenset[bytes], shown: frozenset[bytes] = frozenset()
    ) -> bytes | None:
        """Return a path below `closed`, not `shown`, that index or HEAD has otherwise than before.

        What was staged before a commit may bring into HEAD. Raises: HostError.
        """
        before, after = self._find(closed, closed)
        changed = set(map(_what, before)) ^ set(map(_what, after))
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
                had, has = (_files(trees, path, marks.get(path)) for marks in (was, now))
                for name in sorted((had.keys() | has.keys()) - shown):
                    if has.get(name) not in (had.get(name), staged.get(name)):
                        return name
        return None

    def has_moved(self, submodule: bytes) -> bool:
        before, after = self._find(frozenset({submodule}))
        return set(map(_what, before)) != set(map(_what, after))

    @cached_property
    def _indexes(self) -> tuple[IndexFile, IndexFile]:
        return self._index(self.sides.before), self._index(self.sides.after)

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
        raise unknown_names("where HEAD stands cannot be told")

    @contextmanager
    def _trees(self) -> Generator[TreeReader]:
        resolution = self.sides.resolution
        objects = f"{self.tree.common}/objects"
        # Threat: git would read whatever object directory of this host a command names.
        for name in ("alternates", "http-alternates"):
            path = f"{objects}/info/{name}"
            if self.sides.before(path) != self.sides.after(path):
                raise unknown_names("the command leads it to objects elsewhere")
        with ExitStack() as held:
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


@contextmanager
def _strictly() -> Generator[None]:
    try:
        yield
    except ValueError as error:
        raise unknown_names(str(error)) from error


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
