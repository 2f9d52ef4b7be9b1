"""A workspace that is a folder of a larger work tree: the index as commands see it, and back. Pure.

The rest of the work tree is not there for a command, and must not look deleted. So the
command gets git's own sparse checkout: an index in which all else has its skip-worktree
bit, and a pattern that names the folder. What it leaves is put together again with the
index of before: of the folder what the command says, of all else what stood there, byte
for byte, with its times and flags. Where a command gave all else another content (a merge,
another branch), the index does not land: the files could not be changed with it.

An entry that was entered in the same tick as the index was written counts as changed for
git as long as the index has that time. The index gets another one, so such an entry loses
its own: git then looks at the file.

Source: gitformat-index(5), and git's racy-git.txt.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from paddock.sandbox.git.entries import SHA1_BYTES, IndexFile, open_index

SPARSE_NAME: Final = "info/sparse-checkout"

_HEADER: Final = struct.Struct(">4sII")
_STATUS_BYTES: Final = 40
_MODE: Final = slice(24, 28)
_TIME: Final = struct.Struct(">II")
_TIME_AT: Final = 8
"""Of the last change of content, after that of the status."""
_IS_EXTENDED: Final = 0x4000
_IS_SKIPPED: Final = 0x4000
_IS_INTENDED: Final = 0x2000
_STAGE_MASK: Final = 0x3000
_KEPT: Final = (b"TREE", b"REUC")
"""Extensions that say nothing of files or places in the index; git makes the others again."""
_UNKNOWN: Final = frozenset({b"link", b"sdir"})
_SPECIAL: Final = frozenset("\\*?[")


class _Record(NamedTuple):
    path: bytes
    stage: int
    fixed: bytes
    """Status and object's name."""
    flags: int
    more: int


@dataclass(frozen=True, slots=True)
class Landing:
    """An index that may land, or what it changes outside of the folder."""

    content: bytes
    changed: tuple[str, ...] = ()


def sparse_pattern(folder: str) -> bytes:
    """What `info/sparse-checkout` says for a folder. Raises: ValueError: git has no word for it."""
    if not folder.isprintable():
        raise ValueError("a folder's name with control characters")
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in folder)
    return f"/{escaped}/\n".encode()


def show_folder(content: bytes, hash_bytes: int, folder: str) -> bytes:
    """The index in which only the folder is expected to stand on disk.

    Raises: ValueError: it is no index, or one that needs other files.
    """
    file = open_index(content, hash_bytes)
    records, extensions = _read(file)
    inside = f"{folder}/".encode()
    shown = (
        each
        if each.path.startswith(inside)
        else each._replace(flags=each.flags | _IS_EXTENDED, more=each.more | _IS_SKIPPED)
        for each in records
    )
    return _written(list(shown), file, extensions)


def land_folder(
    after: bytes, before: bytes, hash_bytes: int, folder: str, written_ns: int
) -> Landing:
    """What a command made of `show_folder`, with everything outside of the folder as before.

    `written_ns` is the time of the index of before. Raises: ValueError: as `show_folder`.
    """
    file = open_index(after, hash_bytes)
    now, extensions = _read(file)
    then, _ = _read(open_index(before, hash_bytes)) if before else ([], b"")
    inside = f"{folder}/".encode()
    ours = [each for each in now if each.path.startswith(inside)]
    theirs = [each for each in then if not each.path.startswith(inside)]
    outside = {each[:2]: _said(each) for each in now if not each.path.startswith(inside)}
    known = {each[:2]: _said(each) for each in theirs}
    if outside != known:
        changed = {
            key[0] for key in outside.keys() | known.keys() if outside.get(key) != known.get(key)
        }
        return Landing(
            b"", tuple(each.decode("utf-8", "surrogateescape") for each in sorted(changed))
        )
    kept = [_looked_at_again(each, written_ns) for each in theirs]
    merged = sorted((*ours, *kept), key=lambda each: each[:2])
    return Landing(_written(merged, file, extensions))


def _said(record: _Record) -> tuple[bytes, bytes, int]:
    """What an entry says of a file: its mode, its content, and whether it is one yet."""
    return record.fixed[_MODE], record.fixed[_STATUS_BYTES:], record.more & _IS_INTENDED


def _looked_at_again(record: _Record, written_ns: int) -> _Record:
    seconds, rest = _TIME.unpack_from(record.fixed, _TIME_AT)
    if seconds * 1_000_000_000 + rest < written_ns:
        return record
    end = _TIME_AT + _TIME.size
    return record._replace(fixed=record.fixed[:_TIME_AT] + bytes(_TIME.size) + record.fixed[end:])


def _read(file: IndexFile) -> tuple[list[_Record], bytes]:
    content, size, end = file.content, _STATUS_BYTES + file.hash_bytes, _HEADER.size
    records: list[_Record] = []
    for at, path, _, next_at in file.walk():
        flags, more = struct.unpack_from(">HH", content, at + size)
        is_extended = flags & _IS_EXTENDED
        fixed = content[at : at + size]
        stage = flags & _STAGE_MASK
        records.append(_Record(path, stage, fixed, flags, more if is_extended else 0))
        end = next_at
    found = file.extensions(end)
    if _UNKNOWN & found.keys():
        raise ValueError("an index that is split, or sparse")
    kept = (file.content[at : at + 8 + file.number(at + 4, 4)] for at in _places(found))
    return records, b"".join(kept)


def _places(found: dict[bytes, int]) -> Iterator[int]:
    return (found[name] for name in _KEPT if name in found)


def _written(records: list[_Record], file: IndexFile, extensions: bytes) -> bytes:
    version = file.version
    if version < 4:
        version = 3 if any(each.more for each in records) else 2
    body = _short_entries(records) if version == 4 else map(_entry, records)
    content = b"".join((_HEADER.pack(b"DIRC", version, len(records)), *body, extensions))
    kind = "sha1" if file.hash_bytes == SHA1_BYTES else "sha256"
    return content + hashlib.new(kind, content, usedforsecurity=False).digest()


def _entry(record: _Record) -> bytes:
    begin = _beginning(record)
    # One to eight zeros, up to a multiple of eight.
    size = len(begin) + len(record.path)
    return begin + record.path + bytes(8 - size % 8)


def _short_entries(records: Iterable[_Record]) -> Iterator[bytes]:
    """As version 4 has them: what a path has in common with the one before is left out."""
    before = b""
    for record in records:
        path, same = record.path, 0
        most = min(len(path), len(before))
        while same < most and path[same] == before[same]:
            same += 1
        yield b"%b%b%b\0" % (_beginning(record), _varint(len(before) - same), path[same:])
        before = path


def _beginning(record: _Record) -> bytes:
    if not record.more:
        return record.fixed + struct.pack(">H", record.flags & ~_IS_EXTENDED)
    return record.fixed + struct.pack(">HH", record.flags | _IS_EXTENDED, record.more)


def _varint(value: int) -> bytes:
    """A number as git's varint.c writes it."""
    found = [value & 0x7F]
    value >>= 7
    while value:
        value -= 1
        found.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes(reversed(found))
