"""The entries of a repository's index, of every version that git writes. Pure.

Read strictly, so that no two readers find different paths in one file: what does not
parse raises. A split index names another file (`link`), whose entries it changes;
whoever calls finds that one. A sparse index has directories among its entries.

A repository may have 100,000 entries, and a command waits for this: `walk` makes no
object for each, and `find_entries` does not begin where no name can be found.

Source: gitformat-index(5).
"""

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

SHA1_BYTES: Final = 20
"""An object's name in a repository of the usual format."""
SHA256_BYTES: Final = 32

DIRECTORY_MODE: Final = 0o040000
"""Of a sparse index: a directory that is not looked into. Its name ends in `/`."""
LINK_MODE: Final = 0o120000
SUBMODULE_MODE: Final = 0o160000
FILE_MODES: Final = frozenset({0o100644, 0o100755})
NAME_BYTES_MAX: Final = 4096
"""PATH_MAX: nothing longer can be checked out."""

_HEADER: Final = struct.Struct(">4sII")
HEADER_BYTES: Final = _HEADER.size
"""Where the first entry begins."""
_STATUS_BYTES: Final = 40
"""Times, device, inode, mode, owner, group and size, before the object's name."""
_MODE_AT: Final = 24
_IS_ASSUMED: Final = 0x8000
_IS_EXTENDED: Final = 0x4000
_STAGE_SHIFT: Final = 12
_LENGTH_MASK: Final = 0xFFF
_IS_SKIPPED: Final = 0x4000
_IS_INTENDED: Final = 0x2000
_EXTENDED_UNKNOWN: Final = 0xFFFF & ~(_IS_SKIPPED | _IS_INTENDED)
_PADDING: Final = tuple(bytes(count) for count in range(9))
_NAMES_LOOKED_FOR: Final = 64
"""With more of them, reading the entries costs no more than looking for each name."""
_LINK: Final = b"link\0"
"""Stands in every split index: the name of an extension, and the first byte of its size."""
_RUN_BITS: Final = 32
_WORD_BITS: Final = 64


class IndexEntry(NamedTuple):
    """One path of one stage."""

    path: bytes
    object_id: bytes
    """As bytes, not as hex."""
    mode: int
    stage: int
    """0, or in a conflict 1 (common ancestor), 2 (ours), 3 (theirs)."""
    is_skipped: bool = False
    """skip-worktree: git does not expect the file to be there."""
    is_intended: bool = False
    """intent-to-add: no content has been added yet."""
    is_assumed: bool = False
    """assume-valid: git does not look whether the file has changed."""


EntryStep = tuple[int, bytes, int, int]
"""One entry as `IndexFile.walk` passes it: where it begins, its path, how much of the path was
taken over from the entry before, and where the next one begins. No class: that costs more
than all the rest."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index, or the file that a split index shares, as its bytes."""

    content: bytes
    end: int
    """Where the checksum begins."""
    version: int
    count: int
    hash_bytes: int

    def number(self, at: int, size: int) -> int:
        """An unsigned number of the file."""
        return int.from_bytes(self.content[at : at + size], "big")

    def mode(self, at: int) -> int:
        """The mode of the entry that begins there."""
        return self.number(at + _MODE_AT, 4)

    def walk(self) -> Iterator[EntryStep]:
        """Every entry in its order. Raises: ValueError: git would not have written it."""
        content, end, is_short = self.content, self.end, self.version == 4
        find, fixed = content.find, _STATUS_BYTES + self.hash_bytes
        at, path, copied = HEADER_BYTES, b"", 0
        for _ in range(self.count):
            flags_at = at + fixed
            if flags_at + 4 > end:
                raise ValueError("an entry beyond the end of the index")
            flags = content[flags_at] << 8 | content[flags_at + 1]
            name_at = flags_at + 2
            if flags & _IS_EXTENDED:
                if self.version == 2 or self.number(name_at, 2) & _EXTENDED_UNKNOWN:
                    raise ValueError("flags of an entry that are not known")
                name_at += 2
            if is_short:
                dropped, name_at = _read_varint(content, name_at)
                copied = len(path) - dropped
                name_end = find(0, name_at, min(end, name_at + NAME_BYTES_MAX + 1))
                next_at = name_end + 1
                if copied < 0 or name_end < 0:
                    raise ValueError("an entry whose name does not end, or begins nowhere")
                path = path[:copied] + content[name_at:name_end]
            else:
                name_end = find(0, name_at, min(end, name_at + NAME_BYTES_MAX + 1))
                # One to eight zeros, up to a multiple of eight.
                next_at = at + ((name_end - at + 8) & ~7)
                if name_end < 0 or content[name_end:next_at] != _PADDING[next_at - name_end]:
                    raise ValueError("an entry whose name does not end as it has to")
                path = content[name_at:name_end]
            length = len(path)
            if next_at > end or length > NAME_BYTES_MAX:
                raise ValueError("an entry that is too long")
            said = flags & _LENGTH_MASK
            if length != said and (said < _LENGTH_MASK or length < _LENGTH_MASK):
                raise ValueError("an entry whose name has another length than it says")
            yield at, path, copied, next_at
            at = next_at

    def entry(self, step: EntryStep) -> IndexEntry:
        """What stands in one step of `walk`."""
        at, path, _, _ = step
        id_at = at + _STATUS_BYTES
        flags_at = id_at + self.hash_bytes
        flags = self.number(flags_at, 2)
        more = self.number(flags_at + 2, 2) if flags & _IS_EXTENDED else 0
        return IndexEntry(
            path,
            self.content[id_at:flags_at],
            self.mode(at),
            flags >> _STAGE_SHIFT & 3,
            bool(more & _IS_SKIPPED),
            bool(more & _IS_INTENDED),
            bool(flags & _IS_ASSUMED),
        )

    def extensions(self, at: int) -> dict[bytes, int]:
        """Where each begins, by its name. `at` is where the entries end.

        Raises: ValueError: they do not fill what is left, or one comes twice.
        """
        found: dict[bytes, int] = {}
        while at < self.end:
            name = self.content[at : at + 4]
            if name in found or at + 8 > self.end:
                raise ValueError("extensions of an index that are not whole")
            found[name] = at
            at += 8 + self.number(at + 4, 4)
        if at != self.end:
            raise ValueError("an extension beyond the end of the index")
        return found

    def find_link(self, steps: list[EntryStep]) -> bytes | None:
        """What makes it a split index; None where it is none. `steps` are all of `walk`.

        Raises: ValueError: see `extensions`.
        """
        at = self.extensions(steps[-1][3] if steps else HEADER_BYTES).get(b"link")
        return None if at is None else self.content[at + 8 : at + 8 + self.number(at + 4, 4)]


def open_index(content: bytes, hash_bytes: int) -> IndexFile:
    """Read the header and verify the checksum (all zeros where `index.skipHash` is set).

    Raises: ValueError: it is no index of version 2 to 4.
    """
    end = len(content) - hash_bytes
    if end < HEADER_BYTES or not _is_summed(content, end):
        raise ValueError("an index that is not whole")
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of a version that is known")
    return IndexFile(content, end, version, count, hash_bytes)


def _is_summed(content: bytes, end: int) -> bool:
    if not any(content[end:]):
        return True
    kind = "sha1" if len(content) - end == SHA1_BYTES else "sha256"
    return hashlib.new(kind, content[:end], usedforsecurity=False).digest() == content[end:]


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; one that no name reaches where it does not end in time."""
    value = 0
    for position in range(at, min(at + 3, len(content))):
        byte = content[position]
        value = (value << 7) + (byte & 0x7F)
        if not byte & 0x80:
            return value, position + 1
        value += 1
    return NAME_BYTES_MAX + 1, at


ReadShared = Callable[[str], bytes | None]
"""Gives the file of that name beside the index; None where there is none to be read."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index as git reads it: with the file that it shares, where it is a split one."""

    file: IndexFile
    read_shared: ReadShared

    def entries(self) -> Iterator[IndexEntry]:
        """All of them; of a split index not in their order.

        Raises: ValueError: git would not have written it, or the shared file is missing.
        """
        file = self.file
        if _LINK not in file.content:
            yield from map(file.entry, file.walk())
            return
        steps = list(file.walk())
        link = file.find_link(steps)
        shared = None if link is None else self._open_shared(link)
        if link is None or shared is None:
            yield from map(file.entry, steps)
        else:
            yield from _merge(file, steps, link, shared)

    def find_entries(
        self, files: frozenset[bytes], directories: frozenset[bytes] = frozenset()
    ) -> tuple[IndexEntry, ...]:
        """Those of these paths, and those below these directories, which end in no `/`.

        Raises: ValueError: git would not have written it, or the shared file is missing.
        """
        file, wanted = self.file, _Wanted(files, directories)
        if _LINK in file.content:
            return tuple(entry for entry in self.entries() if wanted.has(entry.path))
        if not self._may_hold(files | directories):
            return ()
        if directories:
            steps = [step for step in file.walk() if wanted.has(step[1])]
        else:
            steps = [step for step in file.walk() if step[1] in files]
        return tuple(map(file.entry, steps))

    def _may_hold(self, names: frozenset[bytes]) -> bool:
        """Whether it is worth reading; before version 4, every name stands there whole."""
        last = {name.rpartition(b"/")[2] for name in names}
        if self.file.version == 4 or len(last) > _NAMES_LOOKED_FOR:
            return bool(last)
        return any(name in self.file.content for name in last)

    def _open_shared(self, link: bytes) -> IndexFile | None:
        """None for a split index that shares nothing any more."""
        hash_bytes = self.file.hash_bytes
        name = link[:hash_bytes]
        if len(name) != hash_bytes:
            raise ValueError("a split index that names no file")
        if not any(name):
            return None
        content = self.read_shared(f"sharedindex.{name.hex()}")
        if content is None:
            raise ValueError("a split index whose shared file is missing")
        return open_index(content, hash_bytes)


class _Wanted:
    """Which paths are looked for; most entries are in the directory of the one before."""

    __slots__ = ("_directories", "_files", "_is_below", "_parent")

    def __init__(self, files: frozenset[bytes], directories: frozenset[bytes]) -> None:
        self._files = files
        self._directories = directories
        self._parent = b""
        self._is_below = False

    def has(self, path: bytes) -> bool:
        if path in self._files:
            return True
        parent = path[: path.rfind(b"/") + 1]
        if parent != self._parent:
            ends = [at for at, byte in enumerate(parent) if byte == 0x2F]
            self._is_below = any(parent[:end] in self._directories for end in ends)
            self._parent = parent
        return self._is_below


def _merge(
    file: IndexFile, steps: list[EntryStep], link: bytes, shared: IndexFile
) -> Iterator[IndexEntry]:
    deleted, replaced = _read_link(link, file.hash_bytes)
    taken = 0
    for position, step in enumerate(shared.walk()):
        if position in replaced:
            if taken >= len(steps) or steps[taken][1]:
                raise ValueError("a split index that replaces without an entry")
            yield file.entry(steps[taken])._replace(path=step[1])
            taken += 1
        elif position not in deleted:
            yield shared.entry(step)
    yield from map(file.entry, steps[taken:])


def _read_link(link: bytes, hash_bytes: int) -> tuple[frozenset[int], frozenset[int]]:
    """Which entries of the shared file are gone, and which are replaced."""
    if len(link) == hash_bytes:
        return frozenset(), frozenset()
    deleted, at = _read_bits(link, hash_bytes)
    replaced, at = _read_bits(link, at)
    if at != len(link):
        raise ValueError("a split index with more than two sets of entries")
    return deleted, replaced


def _read_bits(content: bytes, at: int) -> tuple[frozenset[int], int]:
    """A set of numbers as EWAH, and where it ends.

    Runs of equal words and words as they are, announced by a word that counts both.
    Source: "EWAH format" in gitformat-pack's bitmap format (bitmap-format.txt).
    """
    bits, words = struct.unpack_from(">II", _part(content, at, 8))
    body = _part(content, at + 8, 8 * words + 4)
    values = struct.unpack_from(f">{words}Q", body)
    found: set[int] = set()
    place, number = 0, 0
    while place < words:
        marker = values[place]
        run = marker >> 1 & (1 << _RUN_BITS) - 1
        literals = marker >> (1 + _RUN_BITS)
        if (number + run) * _WORD_BITS >= bits + _WORD_BITS or place + literals >= words:
            raise ValueError("a set of entries that is longer than it says")
        if marker & 1:
            found.update(range(number * _WORD_BITS, (number + run) * _WORD_BITS))
        number += run
        for value in values[place + 1 : place + 1 + literals]:
            base = number * _WORD_BITS
            found.update(base + bit for bit in range(_WORD_BITS) if value >> bit & 1)
            number += 1
        place += 1 + literals
    return frozenset(found), at + 8 + len(body)


def _part(content: bytes, at: int, size: int) -> bytes:
    part = content[at : at + size]
    if len(part) != size:
        raise ValueError("a set of entries that is not whole")
    return part
