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

import re
import struct
from dataclasses import dataclass
from typing import Final

from paddock.sandbox.git.entries import (
    DIRECTORY_MODE,
    FILE_MODES,
    HEADER_BYTES,
    LINK_MODE,
    SHA1_BYTES,
    SUBMODULE_MODE,
    IndexFile,
    open_index,
)

_BLOCK: Final = struct.Struct(">II")
_MODES: Final = FILE_MODES | {LINK_MODE, SUBMODULE_MODE, DIRECTORY_MODE}
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
    try:
        file = open_index(content, hash_bytes)
        entries = _read_entries(file)
        return entries is not None and _are_extensions_harmless(file, entries)
    except ValueError:
        # Not in the form that git gives it.
        return False


@dataclass(frozen=True, slots=True)
class _Entries:
    count: int
    end: int
    has_directories: bool
    whole: dict[int, int]
    """Where entries begin whose names stand there whole, and how many come before each."""


def _read_entries(file: IndexFile) -> _Entries | None:
    at, names_bytes, has_directories = HEADER_BYTES, 0, False
    whole: dict[int, int] = {}
    for number, (begins_at, path, copied, next_at) in enumerate(file.walk()):
        mode = file.mode(begins_at)
        is_directory = mode == DIRECTORY_MODE
        has_directories = has_directories or is_directory
        names_bytes += len(path)
        if mode not in _MODES or names_bytes > _NAMES_BYTES_MAX:
            return None
        if not _stays_inside(path, copied, is_directory=is_directory):
            return None
        if not copied:
            whole[begins_at] = number
        at = next_at
    return _Entries(file.count, at, has_directories, whole)


def _stays_inside(name: bytes, copied: int, *, is_directory: bool) -> bool:
    if is_directory:
        if not name.endswith(b"/"):
            return False
        name = name[:-1]
    # Directories taken over whole were looked at in the entry before.
    return _UNSAFE.search(name[name.rfind(b"/", 0, copied) + 1 :]) is None


def _are_extensions_harmless(index: IndexFile, entries: _Entries) -> bool:
    places = index.extensions(entries.end)
    if not places.keys() <= _EXTENSIONS or (entries.has_directories and b"sdir" not in places):
        return False
    return _is_end_true(index, entries, places) and _are_blocks_true(index, entries, places)


def _is_end_true(index: IndexFile, entries: _Entries, places: dict[bytes, int]) -> bool:
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


def _are_blocks_true(index: IndexFile, entries: _Entries, places: dict[bytes, int]) -> bool:
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
