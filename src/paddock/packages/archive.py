"""Read an archive without unpacking it: all checks come before the first byte is written.

    gzip within limits → members in the accepted format → names → manifest → both agree

The bytes that were checked are installed: nothing opens the archive again.

The format is ustar (POSIX.1-2017, under `pax`, without pax headers) of regular files, owner and
group 0, time 0, mode 0644 or 0755, in one gzip member. A tar is accepted only if encoding its
members again gives the same bytes; any order and any deflate stream are accepted. It is written in
stored blocks (RFC 1951, 3.2.4), since zlib's output differs between versions and builds.

Threat: two programs read one archive differently. Extended headers (pax, GNU) give a member a
second name or size, base-256 numbers a second length, bytes after a name's NUL a second name. So
headers are read one by one, and extended headers are refused.
"""

import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.packages.manifest import (
    FILE_MODE,
    MANIFEST,
    PROGRAM_MODE,
    Manifest,
    find_collision,
    parse_manifest,
    path_problem,
    shown_collision,
)
from paddock.packages.rows import ArchiveRefusedError, Failure, GateRefusedError
from paddock.pattern import lazy_pattern
from paddock.plane.json_files import parse_file, write_object
from paddock.storage.atomic import host_errors, read_file, read_file_through_links, replace_file
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import digest_of

# Magic, deflate, no flags, time 0, no extra flags, unknown system: the same everywhere.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_STORED_BYTES_MAX: Final = 65_535
_GZIP_WINDOW: Final = 31
"""zlib.h, inflateInit2: 15 bits of window, plus 16 for a gzip header only."""
_BLOCK_BYTES: Final = 512
_KINDS: Final = {
    b"\0": "a member of the oldest tar format",
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"g": "a global pax header",
    b"x": "a pax header",
    b"L": "a long name of GNU tar",
    b"S": "a sparse file of GNU tar",
    b"V": "a volume label of GNU tar",
}


class PackedFile(Struct, frozen=True):
    path: str
    content: bytes
    mode: int


class Archive(Struct, frozen=True):
    """A package as it was read: exactly the files that its manifest declares."""

    manifest: Manifest
    files: tuple[PackedFile, ...]
    """By path, without the manifest itself."""
    sha256: str
    """Digest of the archive's bytes. The package's identity is the manifest's digest."""


def load_archive(path: Path) -> Archive:
    """Raises: UsageError, ConfigError; ArchiveRefusedError: as `read_archive`, or too large."""
    content = load_bytes(path)
    if len(content) > limits.package_archive_bytes_max:
        raise ArchiveRefusedError(
            f"the archive has more than {limits.package_archive_bytes_max} bytes"
        )
    return read_archive(content)


def load_bytes(path: Path) -> bytes:
    """Read an archive's bytes, at most one more than allowed, so that excess is detected."""
    content = read_file_through_links(path, limits.package_archive_bytes_max + 1)
    if content is None:
        raise UsageError(f"archive {quote(str(path))} does not exist", where=str(path))
    return content


def read_archive(content: bytes) -> Archive:
    """Raises: ArchiveRefusedError: another format, or not what its manifest declares."""
    members = read_members(content)
    manifest = _manifest(members)
    files = tuple(members[asset.path] for asset in manifest.assets if asset.path in members)
    failures = find_disagreements(manifest, members)
    if failures:
        first = failures[0]
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise ArchiveRefusedError(first.reason + more, file=first.file)
    return Archive(manifest, files, digest_of(content))


def write_archive(manifest: Manifest, files: tuple[PackedFile, ...]) -> bytes:
    return write_members((PackedFile(MANIFEST, manifest.canonical, FILE_MODE), *files))


def write_members(members: Iterable[PackedFile]) -> bytes:
    tar = b"".join(map(_encode, sorted(members, key=lambda member: member.path.encode())))
    return wrap(tar + _end_at(len(tar)))


def find_disagreements(manifest: Manifest, members: dict[str, PackedFile]) -> list[Failure]:
    """G0A: return the differences between manifest and content; empty if they agree."""
    found = [
        Failure(path, "it is in the archive, and the manifest does not declare it")
        for path in sorted(members.keys() - manifest.by_path.keys() - {MANIFEST})
    ]
    for asset in manifest.assets:
        member = members.get(asset.path)
        if member is None:
            found.append(Failure(asset.path, "the manifest declares it, and it is missing"))
            continue
        digest = digest_of(member.content)
        if digest != asset.sha256:
            found.append(Failure(asset.path, f"its digest is {digest}, not {asset.sha256}"))
    return found


def read_members(content: bytes) -> dict[str, PackedFile]:
    tar, found, offset = unwrap(content), dict[str, PackedFile](), 0
    while any(tar[offset : offset + _BLOCK_BYTES]):
        if len(found) > limits.package_files_max:
            raise ArchiveRefusedError(f"it contains more than {limits.package_files_max} files")
        member = _member(tar, offset, found)
        found[member.path] = member
        offset += len(_encode(member))
    rest, end = tar[offset:], _end_at(offset)
    # Threat: a second archive after the end, which a reader that skips NULs would read.
    if rest != end:
        is_cut = end.startswith(rest)
        raise ArchiveRefusedError(
            "the archive is cut off: it has no end" if is_cut else "bytes follow the archive's end"
        )
    collision = find_collision(found)
    if collision is not None:
        raise ArchiveRefusedError(shown_collision(collision), file=collision[1])
    return found


def _member(tar: bytes, offset: int, known: dict[str, PackedFile]) -> PackedFile:
    start = offset + _BLOCK_BYTES
    header = tar[offset:start]
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except UnicodeDecodeError:
        shown = header[:100].rstrip(b"\0").decode("utf-8", "backslashreplace")
        raise ArchiveRefusedError("its name is not UTF-8", file=shown) from None
    except tarfile.TarError:
        raise ArchiveRefusedError(
            "a header's checksum or a number is wrong: damaged, cut off, or not a tar archive"
        ) from None
    name, kind = info.name, header[156:157]
    if kind != tarfile.REGTYPE:
        what = _KINDS.get(kind, f"a member of the unknown type {kind!r}")
        raise ArchiveRefusedError(
            f"it is {what}, and a package contains only regular files", file=name
        )
    if info.mode not in (FILE_MODE, PROGRAM_MODE):
        raise ArchiveRefusedError(f"its mode is {info.mode:04o}, not 0644 or 0755", file=name)
    if start + info.size + -info.size % _BLOCK_BYTES > len(tar):
        raise ArchiveRefusedError("the archive is cut off in it", file=name)
    _require_name(name, known)
    member = PackedFile(name, tar[start : start + info.size], info.mode)
    encoded = _encode(member)
    if encoded[:_BLOCK_BYTES] != header:
        raise ArchiveRefusedError(
            "its header has more than name, size and mode in ustar format",
            file=name,
            hint="make archives with: paddock package pack",
        )
    # Threat: no listing shows bytes between members.
    if not tar.startswith(encoded, offset):
        raise ArchiveRefusedError("bytes follow its content before the next file", file=name)
    return member


def _require_name(name: str, known: dict[str, PackedFile]) -> None:
    if name in known:
        raise ArchiveRefusedError("it is in the archive twice", file=name)
    problem = path_problem(name) if name != MANIFEST else ""
    if problem:
        raise ArchiveRefusedError(problem, file=name)


def _encode(member: PackedFile) -> bytes:
    info = tarfile.TarInfo(member.path)
    info.size, info.mode = len(member.content), member.mode
    try:
        header = info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError:
        raise ArchiveRefusedError(
            "the name is too long for an archive", file=member.path, hint="shorten it"
        ) from None
    return header + member.content + b"\0" * (-info.size % _BLOCK_BYTES)


def _end_at(offset: int) -> bytes:
    """Return two blocks of NULs, and padding to a record of twenty blocks."""
    end = 2 * _BLOCK_BYTES
    return b"\0" * (end + -(offset + end) % tarfile.RECORDSIZE)


def wrap(content: bytes) -> bytes:
    pieces = [_GZIP_HEADER]
    for start in range(0, len(content), _STORED_BYTES_MAX) or range(1):
        piece = content[start : start + _STORED_BYTES_MAX]
        is_last = start + _STORED_BYTES_MAX >= len(content)
        size = len(piece)
        pieces.append(bytes([is_last]) + size.to_bytes(2, "little"))
        pieces.append((size ^ 0xFFFF).to_bytes(2, "little") + piece)
    pieces.append(zlib.crc32(content).to_bytes(4, "little"))
    pieces.append((len(content) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(pieces)


def unwrap(archive: bytes) -> bytes:
    """Return the content of one gzip member. Raises: ArchiveRefusedError.

    Threat: a bomb. Never inflate more than the limit and one byte.
    """
    ceiling = min(
        limits.package_bytes_max,
        limits.package_ratio_allowance_bytes + limits.package_ratio_max * len(archive),
    )
    inflating = zlib.decompressobj(_GZIP_WINDOW)
    try:
        found = inflating.decompress(archive, ceiling + 1)
    except zlib.error as fault:
        raise ArchiveRefusedError(f"it is not a gzip archive, or is damaged: {fault}") from fault
    if len(found) > ceiling:
        raise ArchiveRefusedError(f"{len(archive)} bytes unpack to more than {ceiling}: a bomb")
    if not inflating.eof:
        raise ArchiveRefusedError("the archive is cut off")
    if inflating.unused_data:
        raise ArchiveRefusedError(f"{len(inflating.unused_data)} bytes follow the archive's end")
    return found


def _manifest(members: dict[str, PackedFile]) -> Manifest:
    member = members.get(MANIFEST)
    if member is None:
        raise ArchiveRefusedError("it is not in the archive", file=MANIFEST)
    if member.mode != FILE_MODE:
        raise ArchiveRefusedError("its mode is not 0644", file=MANIFEST)
    try:
        return parse_manifest(member.content, MANIFEST)
    except ConfigError as error:
        raise ArchiveRefusedError(
            error.message, file=error.where or MANIFEST, hint=error.hint
        ) from error


def compute_sha256(path: Path) -> str:
    content = read_file(path, limits.package_bytes_max)
    if content is None:
        raise ConfigError(f"{quote(str(path))} does not exist", where=str(path))
    return digest_of(content)


# A source is a directory with `manifest.json` and the declared files at their paths. Leftovers of
# tools and systems are skipped and listed (`left_out`); any other undeclared file stops the
# packing: a package never contains a file by accident.

_LITTER_NAMES: Final = frozenset(
    {
        ".DS_Store",
        ".Spotlight-V100",
        ".Trashes",
        ".git",
        ".hg",
        ".hypothesis",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        "Thumbs.db",
        "__MACOSX",
        "__pycache__",
        "desktop.ini",
    }
)
_LITTER_FORMS: Final = lazy_pattern(r"\._.*|.*\.py[co]|.*~|\..*\.sw[op]", re.DOTALL)
ARCHIVE_MODE: Final = 0o644


class PackReport(Struct, frozen=True):
    archive: Path
    manifest: Manifest
    sha256: str
    size_bytes: int
    left_out: tuple[str, ...]
    """Skipped names below the source; a directory ends in a slash."""


class PackedSource(Struct, frozen=True):
    manifest: Manifest
    files: tuple[PackedFile, ...]
    left_out: tuple[str, ...]


class HashReport(Struct, frozen=True):
    manifest: Path
    stale: tuple[Failure, ...]
    files: int
    written: bool


def pack(source: Path, destination: Path) -> PackReport:
    """Create the archive at a file, or in a directory as `<id>.tar.gz`, reproducibly.

    Raises: ConfigError, UsageError, HostError; GateRefusedError: a file that is not declared.
    """
    packed = read_source(source)
    manifest = packed.manifest
    content = write_archive(manifest, packed.files)
    read_archive(content)  # Do not include files that this user cannot read.
    target = _target(source, destination, manifest)
    replace_file(target, content, mode=ARCHIVE_MODE)
    return PackReport(target, manifest, digest_of(content), len(content), packed.left_out)


def read_source(source: Path) -> PackedSource:
    manifest = read_source_manifest(source)
    found = survey_source(source)
    undeclared = sorted(found.files.keys() - manifest.by_path.keys() - {MANIFEST})
    why = "it is not declared in the manifest"
    failures = [*found.refused, *(Failure(path, why) for path in undeclared)]
    files = tuple(_packed(source, found, manifest, failures))
    if failures:
        raise GateRefusedError(
            "G0A", failures, hint="declare it, remove it, or: paddock package hash SRC"
        )
    return PackedSource(manifest, files, tuple(sorted(found.left_out)))


def write_hashes(source: Path, *, check: bool) -> HashReport:
    """Write the digests of its files into a source's manifest; with `check`, only compare."""
    path = source / MANIFEST
    content = _manifest_bytes(path)
    given = parse_file(content, str(path))
    stale: list[Failure] = []
    assets: list[Json] = []
    for position, row in enumerate(given.convert(_HashedRows).assets):
        name, before = row.get("path"), row.get("sha256")
        problem = path_problem(name) if isinstance(name, str) else "it is missing"
        if problem or not isinstance(name, str):  # before it is opened
            way = ("assets", position, "path")
            raise given.error(way, f"{quote(name)}: {problem}", "name it relative to the plane")
        digest = compute_sha256(source / name)
        assets.append({**row, "sha256": digest})
        if before != digest:
            said = "nothing" if before is None else quote(before)
            stale.append(Failure(name, f"the manifest says {said}, and it is {digest}"))
    after = write_object({**given.members, "assets": assets})
    parse_manifest(after, str(path))
    is_written = bool(stale) and not check
    if is_written:
        mode = stat.S_IMODE(os.stat(path).st_mode) & 0o777
        replace_file(path, after, mode=mode)
    return HashReport(path, tuple(stale), len(assets), is_written)


def read_source_manifest(source: Path) -> Manifest:
    path = source / MANIFEST
    return parse_manifest(_manifest_bytes(path), str(path))


def is_litter(name: str) -> bool:
    return name in _LITTER_NAMES or _LITTER_FORMS.fullmatch(name) is not None


class SourceSurvey(Struct, frozen=True):
    files: dict[str, int] = field(default_factory=dict[str, int])
    """Name → `st_mode`."""
    left_out: list[str] = field(default_factory=list[str])
    refused: list[Failure] = field(default_factory=list[Failure])


def survey_source(source: Path) -> SourceSurvey:
    found, waiting = SourceSurvey(), [""]
    while waiting:
        waiting += _survey_directory(source, waiting.pop(), found)
        if len(found.files) > limits.package_files_max + 1:
            raise UsageError(
                f"{quote(str(source))} contains more than {limits.package_files_max} files"
            )
    return found


def _survey_directory(source: Path, prefix: str, found: SourceSurvey) -> Iterator[str]:
    with host_errors("listing", source / prefix):
        for entry in list(os.scandir(source / prefix)):
            name = prefix + entry.name
            mode = entry.stat(follow_symlinks=False).st_mode
            if is_litter(entry.name):
                found.left_out.append(f"{name}/" if stat.S_ISDIR(mode) else name)
            elif stat.S_ISDIR(mode):
                yield f"{name}/"
            elif stat.S_ISREG(mode):
                found.files[name] = mode
            else:
                # Threat: a link would pack its target, from anywhere on this machine.
                found.refused.append(Failure(name, "it is a link or a special file"))


def _packed(
    source: Path, found: SourceSurvey, manifest: Manifest, failures: list[Failure]
) -> Iterator[PackedFile]:
    refused = {failure.file for failure in found.refused}
    left_out = set(found.left_out)
    room = limits.package_bytes_max
    for asset in manifest.assets:
        mode = found.files.get(asset.path)
        if mode is None:
            if asset.path not in refused:
                is_litter_of = any(_is_in(asset.path, each) for each in left_out)
                why = "it is always left out" if is_litter_of else "it is missing"
                failures.append(Failure(asset.path, f"it is declared, and {why}"))
            continue
        content = read_file(source / asset.path, room)
        digest = "" if content is None else digest_of(content)
        if content is None or digest != asset.sha256:
            failures.append(
                Failure(asset.path, f"its hash is out of date: it is {digest}, not {asset.sha256}")
            )
            continue
        room -= len(content)
        yield PackedFile(asset.path, content, PROGRAM_MODE if mode & 0o100 else FILE_MODE)


def _is_in(path: str, left_out: str) -> bool:
    return path == left_out or (left_out.endswith("/") and path.startswith(left_out))


def _target(source: Path, destination: Path, manifest: Manifest) -> Path:
    target = destination
    if destination.is_dir():
        target = destination / f"{manifest.package_id}.tar.gz"
    # An archive in its own source would be undeclared there, and stop the next packing.
    inner, outer = target.parent.resolve(), source.resolve()
    if inner == outer or outer in inner.parents:
        raise UsageError(
            f"the archive {quote(str(target))} would be in its own source",
            hint="name a place outside it",
        )
    return target


def _manifest_bytes(path: Path) -> bytes:
    content = read_file(path, limits.manifest_bytes_max)
    if content is None:
        raise UsageError(
            f"{quote(str(path.parent))} contains no {MANIFEST}", where=str(path.parent)
        )
    return content


class _HashedRows(Struct, frozen=True):
    assets: tuple[dict[str, Any], ...] = ()
