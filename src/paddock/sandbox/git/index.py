"""Read index files in every format that git writes, check them, and reduce them to a folder.

A file that does not parse raises, so that no two readers find different paths in it. An index
may have 100,000 entries: `walk` creates no object for each.

Threat: git checks a path when it adds an entry, not when it reads the file: the user's next
`git checkout -- .` would write `../evil`. A file that could lead git to other entries is refused
too: a split index, and wrong tables for starting in the middle (`EOIE`, `IEOT`).

If the workspace is a folder of a work tree, a command gets a sparse checkout: all other entries
have the skip-worktree bit, and afterwards get their old bytes back. If the command changed one of
these entries, the index does not land.

Source: gitformat-index(5), `verify_path` of git's read-cache.c, and git's racy-git.txt.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.errors import HostError
from paddock.pattern import lazy_pattern
from paddock.sandbox.git.objects import SHA1_BYTES, find_digest, join_split_index

DIRECTORY_MODE: Final = 0o040000
"""In a sparse index: a directory as one entry. Its name ends in `/`."""
LINK_MODE: Final = 0o120000
SUBMODULE_MODE: Final = 0o160000
FILE_MODES: Final = frozenset({0o100644, 0o100755})
SPARSE_NAME: Final = "info/sparse-checkout"

_MODES: Final = FILE_MODES | {LINK_MODE, SUBMODULE_MODE, DIRECTORY_MODE}
_NAME_BYTES_MAX: Final = 4096
_NAMES_BYTES_MAX: Final = 32_000_000
"""All names together: version 4 compresses names."""
_NAMES_SEARCHED: Final = 64
"""With more names, reading the entries costs no more than searching for each name."""

_HEADER: Final = struct.Struct(">4sII")
_STATUS_BYTES: Final = 40
"""Times, device, inode, mode, owner, group and size, before the object id."""
_TIME: Final = struct.Struct(">II")
_TIME_AT: Final = 8
_MODE_AT: Final = 24
_SIZE_AT: Final = 36
_IS_EXTENDED: Final = 0x4000
_STAGE_SHIFT: Final = 12
_LENGTH_MASK: Final = 0xFFF
_IS_SKIPPED: Final = 0x4000
_IS_INTENDED: Final = 0x2000
_EXTENDED_UNKNOWN: Final = 0xFFFF & ~(_IS_SKIPPED | _IS_INTENDED)
_PADDING: Final = tuple(bytes(count) for count in range(9))
_BLOCK: Final = struct.Struct(">II")

_LINK: Final = b"link\0"
_HARMLESS: Final = frozenset({b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT", b"sdir"})
_KEPT: Final = (b"TREE", b"REUC")
"""Extensions independent of files and positions in the index; git recreates the others."""
_SPECIAL: Final = frozenset("\\*?[")
_IGNORED: Final = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
"""Code points that HFS+ ignores in comparisons, as git lists them."""
_UNSAFE: Final = lazy_pattern(
    rb"(?:\A|/)\.{0,2}(?:/|\Z)"
    # NTFS drops trailing dots and spaces, and has streams (`:`) and short names.
    rb"|(?:\A|[/\\])(?:%(x)s\.%(x)sg%(x)si%(x)st%(x)s|git~1)[. ]*(?:[/\\:]|\Z)" % {b"x": _IGNORED},
    re.IGNORECASE,
)
"""A component that is empty, `.` or `..`, or `.git` on any file system that git supports."""


class IndexEntry(NamedTuple):
    path: bytes
    stage: int
    """0, or in a conflict 1 (common ancestor), 2 (ours), 3 (theirs)."""
    fixed: bytes
    """The raw bytes of status and object id."""
    flags: int
    more: int = 0

    @property
    def object_id(self) -> bytes:
        return self.fixed[_STATUS_BYTES:]

    @property
    def mode(self) -> int:
        return int.from_bytes(self.fixed[_MODE_AT : _MODE_AT + 4], "big")

    @property
    def size_bytes(self) -> int:
        return int.from_bytes(self.fixed[_SIZE_AT:_STATUS_BYTES], "big")

    @property
    def is_skipped(self) -> bool:
        return bool(self.more & _IS_SKIPPED)

    @property
    def is_intended(self) -> bool:
        return bool(self.more & _IS_INTENDED)


EntryStep = tuple[int, bytes, int, int]
"""One entry as `IndexFile.walk` yields it: its offset, its path, the length of the path prefix
shared with the entry before, and the next entry's offset. A tuple, because creating objects would
dominate the run time."""


class IndexFile(Struct, frozen=True):
    content: bytes
    end: int
    version: int
    count: int
    hash_bytes: int

    def number(self, at: int, size: int = 4) -> int:
        return int.from_bytes(self.content[at : at + size], "big")

    def walk(self) -> Iterator[EntryStep]:
        content, end, is_short = self.content, self.end, self.version == 4
        find, fixed = content.find, _STATUS_BYTES + self.hash_bytes
        at, path, copied = _HEADER.size, b"", 0
        for _ in range(self.count):
            flags_at = at + fixed
            if flags_at + 4 > end:
                raise ValueError("an entry beyond the end of the index")
            flags = content[flags_at] << 8 | content[flags_at + 1]
            name_at = flags_at + 2
            if flags & _IS_EXTENDED:
                if self.version == 2 or self.number(name_at, 2) & _EXTENDED_UNKNOWN:
                    raise ValueError("an entry with unknown flags")
                name_at += 2
            if is_short:
                dropped = content[name_at]
                if dropped < 0x80:
                    name_at += 1
                else:
                    dropped, name_at = _read_varint(content, name_at)
                copied = len(path) - dropped
                name_end = find(0, name_at, end)
                next_at = name_end + 1
                if copied < 0 or name_end < 0:
                    raise ValueError("an entry whose name has no end, or a wrong prefix")
                path = path[:copied] + content[name_at:name_end]
            else:
                name_end = find(0, name_at, end)
                # One to eight zeros, up to a multiple of eight.
                next_at = at + ((name_end - at + 8) & ~7)
                if name_end < 0 or content[name_end:next_at] != _PADDING[next_at - name_end]:
                    raise ValueError("an entry whose name has wrong padding")
                path = content[name_at:name_end]
            length = len(path)
            if next_at > end or length > _NAME_BYTES_MAX:
                raise ValueError("an entry that is too long")
            stated = flags & _LENGTH_MASK
            if length != stated and min(length, _LENGTH_MASK) != stated:
                raise ValueError("an entry whose name has a wrong length")
            yield at, path, copied, next_at
            at = next_at

    def entry(self, step: EntryStep) -> IndexEntry:
        at, path, _, _ = step
        flags_at = at + _STATUS_BYTES + self.hash_bytes
        flags = self.number(flags_at, 2)
        more = self.number(flags_at + 2, 2) if flags & _IS_EXTENDED else 0
        stage = flags >> _STAGE_SHIFT & 3
        return IndexEntry(path, stage, self.content[at:flags_at], flags, more)

    def entries(self) -> Iterator[IndexEntry]:
        return map(self.entry, self.walk())

    def find_entries(
        self, files: frozenset[bytes], directories: frozenset[bytes] = frozenset()
    ) -> tuple[IndexEntry, ...]:
        """Return the entries of these files, and below these directories (without a final `/`)."""
        if not self._may_hold(files | directories):
            return ()

        @cache
        def is_below(above: bytes) -> bool:
            parent = above.rpartition(b"/")[0]
            return above in directories or (parent != b"" and is_below(parent))

        steps = (
            step
            for step in self.walk()
            if step[1] in files or is_below(step[1].rpartition(b"/")[0])
        )
        return tuple(map(self.entry, steps))

    def _may_hold(self, names: frozenset[bytes]) -> bool:
        # Before version 4 names are not compressed, so a text search finds them.
        last = {name.rpartition(b"/")[2] for name in names}
        if self.version == 4 or len(last) > _NAMES_SEARCHED:
            return bool(last)
        return any(name in self.content for name in last)

    def extensions(self, at: int) -> dict[bytes, int]:
        """Return the extensions' offsets; `at` is the end of the entries. Raises: ValueError."""
        found: dict[bytes, int] = {}
        while at < self.end:
            name = self.content[at : at + 4]
            if name in found or at + 8 > self.end:
                raise ValueError("an incomplete or repeated extension of an index")
            found[name] = at
            at += 8 + self.number(at + 4)
        if at != self.end:
            raise ValueError("an extension beyond the end of the index")
        return found

    def extension(self, at: int) -> bytes:
        return self.content[at + 8 : at + 8 + self.number(at + 4)]


NO_INDEX: Final = IndexFile(b"", 0, 2, 0, SHA1_BYTES)

ReadShared = Callable[[str], bytes | None]


def open_index(content: bytes, hash_bytes: int, read_shared: ReadShared | None = None) -> IndexFile:
    """Read the header and verify the checksum (all zeros where `index.skipHash` is set).

    `read_shared` is needed to join a split index. Raises: ValueError: not an index, or incomplete.
    """
    end = len(content) - hash_bytes
    if end < _HEADER.size or (
        any(content[end:]) and find_digest(content[:end], hash_bytes) != content[end:]
    ):
        raise ValueError("an incomplete index")
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of a known version")
    file = IndexFile(content, end, version, count, hash_bytes)
    if read_shared is None or _LINK not in content:
        return file
    return _with_shared(file, read_shared)


def _with_shared(file: IndexFile, read_shared: ReadShared) -> IndexFile:
    entries_end = _HEADER.size
    for step in file.walk():
        entries_end = step[3]
    link_at = file.extensions(entries_end).get(b"link")
    if link_at is None:
        return file
    shares = file.extension(link_at)[: file.hash_bytes]
    name = f"sharedindex.{shares.hex()}"
    shared = read_shared(name) if any(shares) else b""
    if shared is None:
        raise ValueError("a split index whose shared file is missing")
    try:
        joined = join_split_index(file.content, name, shared, file.hash_bytes)
    except HostError as error:
        raise ValueError(error.message) from error
    return open_index(joined, file.hash_bytes)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position in range(at, min(at + 3, len(content))):
        byte = content[position]
        value = (value << 7) + (byte & 0x7F)
        if not byte & 0x80:
            return value, position + 1
        value += 1
    return _NAME_BYTES_MAX + 1, at


def is_harmless_index(content: bytes, hash_bytes: int) -> bool:
    """Return True if git could have written it, and a checkout of it stays in the work tree."""
    try:
        file = open_index(content, hash_bytes)
        end, names_bytes, has_directories = _HEADER.size, 0, False
        # The offsets of entries with uncompressed names, and the number of entries before each.
        whole: dict[int, int] = {}
        for number, step in enumerate(file.walk()):
            at, path, copied, end = step
            mode = file.number(at + _MODE_AT)
            is_directory = mode == DIRECTORY_MODE
            has_directories = has_directories or is_directory
            names_bytes += len(path)
            if mode not in _MODES or names_bytes > _NAMES_BYTES_MAX:
                return False
            if not _stays_inside(path, copied, is_directory=is_directory):
                return False
            if not copied:
                whole[at] = number
        places = file.extensions(end)
        if not places.keys() <= _HARMLESS or (has_directories and b"sdir" not in places):
            return False
        return _is_end_true(file, end, places) and _are_blocks_true(file, whole, places)
    except ValueError:
        # Not a file that git would write.
        return False


def _stays_inside(name: bytes, copied: int, *, is_directory: bool) -> bool:
    if is_directory:
        if not name.endswith(b"/"):
            return False
        name = name[:-1]
    # Directories in the shared prefix were checked with the entry before.
    return _UNSAFE.search(name[name.rfind(b"/", 0, copied) + 1 :]) is None


def _is_end_true(file: IndexFile, end: int, places: dict[bytes, int]) -> bool:
    """Threat: git looks for `EOIE` at a fixed distance from the end, maybe in another extension."""
    stated_at = places.get(b"EOIE")
    if stated_at is not None and file.number(stated_at + 8) != end:
        return False
    for size in (4 + SHA1_BYTES, 4 + file.hash_bytes):
        expected_at = file.end - 8 - size
        header = file.content[max(expected_at, 0) : max(expected_at + 8, 0)]
        if header == b"EOIE" + size.to_bytes(4, "big") and expected_at != stated_at:
            return False
    return True


def _are_blocks_true(file: IndexFile, whole: dict[int, int], places: dict[bytes, int]) -> bool:
    """Return True if the blocks that git may read separately are all entries, in order."""
    at = places.get(b"IEOT")
    if at is None:
        return True
    size = file.number(at + 4) - 4
    if size < 0 or size % _BLOCK.size or file.number(at + 8) != 1:
        return False
    passed = 0
    for offset, count in _BLOCK.iter_unpack(file.content[at + 12 : at + 12 + size]):
        if count and whole.get(offset) != passed:
            return False
        passed += count
    return passed == file.count


class Landing(Struct, frozen=True):
    content: bytes
    changed: tuple[str, ...] = ()


def sparse_pattern(folder: str) -> bytes:
    """Return the text of `info/sparse-checkout`. Raises: ValueError: git cannot express it."""
    if not folder.isprintable():
        raise ValueError("a folder's name with control characters")
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in folder)
    return f"/{escaped}/\n".encode()


def show_folder(content: bytes, hash_bytes: int, folder: str) -> bytes:
    """Mark all entries outside the folder as skipped. Raises: ValueError: no index, or split."""
    file = open_index(content, hash_bytes)
    entries, extensions = _read_whole(file)
    inside = f"{folder}/".encode()
    shown = (
        each if each.path.startswith(inside) else each._replace(more=each.more | _IS_SKIPPED)
        for each in entries
    )
    return _written(list(shown), file, extensions)


def land_folder(
    after: bytes, before: bytes, hash_bytes: int, folder: str, written_ns: int
) -> Landing:
    """Return the index that a command made of `show_folder`, with the old entries outside.

    `written_ns` is the time of the old index. Raises: ValueError: as `show_folder`.
    """
    file = open_index(after, hash_bytes)
    now, extensions = _read_whole(file)
    then = _read_whole(open_index(before, hash_bytes))[0] if before else []
    inside = f"{folder}/".encode()
    theirs = [each for each in then if not each.path.startswith(inside)]
    outside = {_content_of(each) for each in now if not each.path.startswith(inside)}
    if outside != (known := set(map(_content_of, theirs))):
        changed = sorted({path for path, *_ in outside ^ known})
        return Landing(b"", tuple(each.decode("utf-8", "surrogateescape") for each in changed))
    merged = [each for each in now if each.path.startswith(inside)]
    merged += (_without_racy_time(each, written_ns) for each in theirs)
    merged.sort(key=lambda each: each[:2])
    return Landing(_written(merged, file, extensions))


def _content_of(entry: IndexEntry) -> tuple[bytes, int, int, bytes, bool]:
    return entry.path, entry.stage, entry.mode, entry.object_id, entry.is_intended


def _without_racy_time(entry: IndexEntry, written_ns: int) -> IndexEntry:
    """Make git check a file again that changed in the old index's tick: the new time is later."""
    seconds, rest = _TIME.unpack_from(entry.fixed, _TIME_AT)
    if seconds * 1_000_000_000 + rest < written_ns:
        return entry
    end = _TIME_AT + _TIME.size
    return entry._replace(fixed=entry.fixed[:_TIME_AT] + bytes(_TIME.size) + entry.fixed[end:])


def _read_whole(file: IndexFile) -> tuple[list[IndexEntry], bytes]:
    steps = list(file.walk())
    found = file.extensions(steps[-1][3] if steps else _HEADER.size)
    if {b"link", b"sdir"} & found.keys():
        raise ValueError("a split or sparse index")
    places = (found[name] for name in _KEPT if name in found)
    kept = (file.content[at : at + 8] + file.extension(at) for at in places)
    return [file.entry(step) for step in steps], b"".join(kept)


def _written(entries: list[IndexEntry], file: IndexFile, extensions: bytes) -> bytes:
    version = file.version
    if version < 4:
        version = 3 if any(each.more for each in entries) else 2
    body = _short_entries(entries) if version == 4 else map(_long_entry, entries)
    content = b"".join((_HEADER.pack(b"DIRC", version, len(entries)), *body, extensions))
    return content + find_digest(content, file.hash_bytes)


def _long_entry(entry: IndexEntry) -> bytes:
    begin = _beginning(entry)
    # One to eight zeros, up to a multiple of eight.
    size = len(begin) + len(entry.path)
    return begin + entry.path + bytes(8 - size % 8)


def _short_entries(entries: Iterable[IndexEntry]) -> Iterator[bytes]:
    """Write as version 4: without the prefix that a path shares with the one before."""
    before = b""
    for entry in entries:
        pairs = enumerate(zip(entry.path, before, strict=False))
        shorter = min(len(entry.path), len(before))
        same = next((at for at, (new, old) in pairs if new != old), shorter)
        dropped = _varint(len(before) - same)
        yield b"%b%b%b\0" % (_beginning(entry), dropped, entry.path[same:])
        before = entry.path


def _beginning(entry: IndexEntry) -> bytes:
    if not entry.more:
        return entry.fixed + struct.pack(">H", entry.flags & ~_IS_EXTENDED)
    return entry.fixed + struct.pack(">HH", entry.flags | _IS_EXTENDED, entry.more)


def _varint(value: int) -> bytes:
    found = [value & 0x7F]
    value >>= 7
    while value:
        value -= 1
        found.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes(reversed(found))
