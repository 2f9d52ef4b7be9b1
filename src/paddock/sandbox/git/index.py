"""The index of a repository: whether the paths in it are ones that git itself would enter. Pure.

Threat: git checks a path where it makes an entry, not where it reads the file. So
`.git/hooks/post-checkout` or `../evil` in an index is written, and perhaps run, by the
user's own next `git checkout -- .`.

The file is read strictly, so that no two readers find different paths in it: what does
not parse is refused, and so is what could lead git to entries elsewhere. A split index
(`link`) takes paths from another file; the tables that let git begin in the middle
(`EOIE`, `IEOT`) have to name the very entries that were looked at.

Source: gitformat-index(5), and `verify_path` of git's read-cache.c.
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

SHA1_BYTES: Final = 20
"""An object's name in a repository of the usual format."""
SHA256_BYTES: Final = 32

_HEADER: Final = struct.Struct(">4sII")
_BLOCK: Final = struct.Struct(">II")
_STATUS_BYTES: Final = 40
"""Times, device, inode, mode, owner, group and size, before the object's name."""
_MODE_AT: Final = 24
_DIRECTORY_MODE: Final = 0o040000
"""Of a sparse index: a directory that is not looked into. Its name ends in `/`."""
_MODES: Final = frozenset({0o100644, 0o100755, 0o120000, 0o160000, _DIRECTORY_MODE})

_IS_EXTENDED: Final = 0x4000
_EXTENDED_UNKNOWN: Final = 0xFFFF & ~0x6000
_LENGTH_MASK: Final = 0xFFF

_NAME_BYTES_MAX: Final = 4096
"""PATH_MAX: nothing longer can be checked out."""
_NAMES_BYTES_MAX: Final = 32_000_000
"""Of all names together: version 4 lets few bytes stand for many."""

_EXTENSIONS: Final = frozenset({b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT", b"sdir"})
"""`link` is none of them."""

_IGNORED: Final = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
"""Code points that HFS+ leaves out of a comparison, as git lists them."""
_UNSAFE: Final = re.compile(
    rb"(?:\A|/)\.{0,2}(?:/|\Z)"
    # NTFS drops points and blanks at the end, and knows streams (`:`) and short names.
    rb"|(?:\A|[/\\])(?:%(x)s\.%(x)sg%(x)si%(x)st%(x)s|git~1)[. ]*(?:[/\\:]|\Z)" % {b"x": _IGNORED},
    re.IGNORECASE,
)
"""A component that is empty, `.` or `..`, or `.git` for any file system that git knows."""


def is_harmless_index(content: bytes, hash_bytes: int) -> bool:
    """Whether git could have written it, and a checkout of it stays in the work tree.

    `hash_bytes` is the size of an object's name in the repository that it lies in.
    """
    end = len(content) - hash_bytes
    if end < _HEADER.size or not _is_summed(content, end):
        return False
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        return False
    index = _Index(content, end, version, hash_bytes)
    entries = _read_entries(index, count)
    return entries is not None and _are_extensions_harmless(index, entries)


@dataclass(frozen=True, slots=True)
class _Index:
    content: bytes
    end: int
    """Where the checksum begins."""
    version: int
    hash_bytes: int

    def number(self, at: int, size: int) -> int:
        return int.from_bytes(self.content[at : at + size], "big")


class _Entry(NamedTuple):
    name: bytes
    mode: int
    next_at: int
    copied: int
    """How much of the name was taken over from the entry before."""


@dataclass(frozen=True, slots=True)
class _Entries:
    count: int
    end: int
    has_directories: bool
    whole: dict[int, int]
    """Where entries begin whose names stand there whole, and how many come before each."""


def _is_summed(content: bytes, end: int) -> bool:
    """All zeros where `index.skipHash` is set."""
    if not any(content[end:]):
        return True
    kind = "sha1" if len(content) - end == SHA1_BYTES else "sha256"
    return hashlib.new(kind, content[:end], usedforsecurity=False).digest() == content[end:]


def _read_entries(index: _Index, count: int) -> _Entries | None:
    at, name, names_bytes, has_directories = _HEADER.size, b"", 0, False
    whole: dict[int, int] = {}
    for number in range(count):
        entry = _read_entry(index, at, name)
        if entry is None or entry.mode not in _MODES:
            return None
        name = entry.name
        names_bytes += len(name)
        is_directory = entry.mode == _DIRECTORY_MODE
        has_directories = has_directories or is_directory
        if names_bytes > _NAMES_BYTES_MAX or not _stays_inside(entry):
            return None
        if not entry.copied:
            whole[at] = number
        at = entry.next_at
    return _Entries(count, at, has_directories, whole)


def _stays_inside(entry: _Entry) -> bool:
    name = entry.name
    if entry.mode == _DIRECTORY_MODE:
        if not name.endswith(b"/"):
            return False
        name = name[:-1]
    # Directories taken over whole were looked at in the entry before.
    return _UNSAFE.search(name[name.rfind(b"/", 0, entry.copied) + 1 :]) is None


def _read_entry(index: _Index, at: int, previous: bytes) -> _Entry | None:
    flags_at = at + _STATUS_BYTES + index.hash_bytes
    name_at = flags_at + 2
    flags = index.number(flags_at, 2)
    if flags & _IS_EXTENDED:
        if index.version == 2 or index.number(name_at, 2) & _EXTENDED_UNKNOWN:
            return None
        name_at += 2
    copied = 0
    if index.version == 4:
        dropped, name_at = _read_varint(index.content, name_at)
        copied = len(previous) - dropped
    name_end = index.content.find(b"\0", name_at, min(index.end, name_at + _NAME_BYTES_MAX + 1))
    if copied < 0 or name_end < 0:
        return None
    name = previous[:copied] + index.content[name_at:name_end]
    if len(name) > _NAME_BYTES_MAX or min(len(name), _LENGTH_MASK) != flags & _LENGTH_MASK:
        return None
    # Before version 4, one to eight zeros up to a multiple of eight.
    next_at = name_end + 1 if index.version == 4 else at + ((name_end - at + 8) & ~7)
    if next_at > index.end or any(index.content[name_end:next_at]):
        return None
    return _Entry(name, index.number(at + _MODE_AT, 4), next_at, copied)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; one that no name reaches where it does not end in time."""
    value = 0
    for position in range(at, min(at + 3, len(content))):
        byte = content[position]
        value = (value << 7) + (byte & 0x7F)
        if not byte & 0x80:
            return value, position + 1
        value += 1
    return _NAME_BYTES_MAX + 1, at


def _are_extensions_harmless(index: _Index, entries: _Entries) -> bool:
    at = entries.end
    places: dict[bytes, int] = {}
    while at < index.end:
        name = index.content[at : at + 4]
        if name not in _EXTENSIONS or name in places or at + 8 > index.end:
            return False
        places[name] = at
        at += 8 + index.number(at + 4, 4)
    if at != index.end or (entries.has_directories and b"sdir" not in places):
        return False
    return _is_end_true(index, entries, places) and _are_blocks_true(index, entries, places)


def _is_end_true(index: _Index, entries: _Entries, places: dict[bytes, int]) -> bool:
    """Whether the entries end where git is told so.

    Threat: git looks for `EOIE` at a fixed distance from the end, which can lie in
    the content of another extension.
    """
    said_at = places.get(b"EOIE")
    if said_at is not None and index.number(said_at + 8, 4) != entries.end:
        return False
    for size in (4 + SHA1_BYTES, 4 + index.hash_bytes):
        looked_at = index.end - 8 - size
        header = index.content[max(looked_at, 0) : max(looked_at + 8, 0)]
        if header == b"EOIE" + size.to_bytes(4, "big") and looked_at != said_at:
            return False
    return True


def _are_blocks_true(index: _Index, entries: _Entries, places: dict[bytes, int]) -> bool:
    """Whether the blocks that git may read on their own are all entries, one after the other."""
    at = places.get(b"IEOT")
    if at is None:
        return True
    size = index.number(at + 4, 4) - 4
    if size < 0 or size % _BLOCK.size or index.number(at + 8, 4) != 1:
        return False
    passed = 0
    for offset, count in _BLOCK.iter_unpack(index.content[at + 12 : at + 12 + size]):
        if count and entries.whole.get(offset) != passed:
            return False
        passed += count
    return passed == entries.count
