"""Reading an archive without unpacking it: all of it is judged before a byte is written.

    gzip within limits → members in the one form → names → the manifest → both agree

What comes out is a value: the manifest, and the content of every file in memory. Whatever
comes later (planning, a dry run, the swap) works on this value and never opens the archive
again, so what was judged is what is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.packages.gzip_format import unwrap, wrap
from paddock.packages.manifest import Manifest, parse_manifest
from paddock.packages.names import MANIFEST, find_collision, path_problem, shown_collision
from paddock.packages.refusals import ArchiveRefusedError, Failure
from paddock.packages.tar_format import (
    BLOCK_BYTES,
    END,
    FILE_MODE,
    RECORD_BYTES,
    Header,
    decode_header,
    encode_header,
    padding_of,
)
from paddock.plane.files import read_file_through_links
from paddock.text.show import quote
from paddock.values.digests import digest_of

_PADDING_BYTES_MAX: Final = len(END) + 2 * RECORD_BYTES


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of a package, with its content."""

    path: str
    content: bytes
    mode: int
    """0644 or 0755."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A package as it came: exactly what its manifest declares."""

    manifest: Manifest
    files: tuple[PackedFile, ...]
    """By path, without the manifest itself."""
    sha256: str
    """Of the archive's bytes. Tells copies apart; the identity is the manifest's digest."""


def load_archive(path: Path) -> Archive:
    """Read the archive at `path`.

    Raises:
        UsageError: there is none.
        ConfigError: no regular file, or not readable.
        ArchiveRefusedError: see `read_archive`; also one that is too large.
    """
    content = load_bytes(path)
    if len(content) > limits.package_archive_bytes_max:
        raise ArchiveRefusedError(f"the archive is over {limits.package_archive_bytes_max} bytes")
    return read_archive(content)


def load_bytes(path: Path) -> bytes:
    """An archive's bytes, one more than it may have at most. Raises: UsageError, ConfigError."""
    content = read_file_through_links(path, limits.package_archive_bytes_max + 1)
    if content is None:
        raise UsageError(f"there is no archive {quote(str(path))}", where=str(path))
    return content


def read_archive(content: bytes) -> Archive:
    """The package that these bytes are.

    Raises:
        ArchiveRefusedError: in any way not the one form, or not what its manifest
            declares: nothing more, nothing missing, every hash right.
    """
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
    """The archive of these files: the same bytes whenever and wherever it is made."""
    return write_members((PackedFile(MANIFEST, manifest.canonical, FILE_MODE), *files))


def write_members(members: Iterable[PackedFile]) -> bytes:
    """An archive in the one form, of these files and nothing else."""
    pieces: list[bytes] = []
    for member in sorted(members, key=_name_bytes):
        size_bytes = len(member.content)
        pieces.append(encode_header(Header(member.path, size_bytes, member.mode)))
        pieces.append(member.content + b"\0" * padding_of(size_bytes))
    pieces.append(END)
    size_bytes = sum(map(len, pieces))
    pieces.append(b"\0" * padding_of(size_bytes, RECORD_BYTES))
    return wrap(b"".join(pieces))


def read_members(content: bytes) -> dict[str, PackedFile]:
    """The files of an archive in the one form, whatever they are, by their names.

    Raises: ArchiveRefusedError: in any way not the one form.
    """
    return _members(unwrap(content))


def find_disagreements(manifest: Manifest, members: dict[str, PackedFile]) -> list[Failure]:
    """G0A: where manifest and content do not agree; empty where they do."""
    found = [
        Failure(path, "it is in the archive, and the manifest does not declare it")
        for path in sorted(members.keys() - manifest.by_path.keys() - {MANIFEST})
    ]
    for asset in manifest.assets:
        member = members.get(asset.path)
        if member is None:
            found.append(Failure(asset.path, "the manifest declares it, and it is not there"))
            continue
        digest = digest_of(member.content)
        if digest != asset.sha256:
            found.append(Failure(asset.path, f"its digest is {digest}, not {asset.sha256}"))
    return found


def _name_bytes(member: PackedFile) -> bytes:
    return member.path.encode()


def _members(tar: bytes) -> dict[str, PackedFile]:
    """Every member by its name; all names are safe, and no two of them collide."""
    found: dict[str, PackedFile] = {}
    offset = 0
    while True:
        block = tar[offset : offset + BLOCK_BYTES]
        if len(block) < BLOCK_BYTES:
            raise ArchiveRefusedError("the archive is cut off: it has no end")
        if not any(block):
            break
        header = decode_header(block)
        if len(found) > limits.package_files_max:
            raise ArchiveRefusedError(f"it holds more than {limits.package_files_max} files")
        offset += BLOCK_BYTES
        found[_new_name(header.name, found)] = PackedFile(
            header.name, _content(tar, offset, header), header.mode
        )
        offset += header.size_bytes + padding_of(header.size_bytes)
    _require_end(tar, offset)
    collision = find_collision(found)
    if collision is not None:
        raise ArchiveRefusedError(shown_collision(collision), file=collision[1])
    return found


def _new_name(name: str, known: dict[str, PackedFile]) -> str:
    if name in known:
        raise ArchiveRefusedError("it is in the archive twice", file=name)
    problem = path_problem(name) if name != MANIFEST else ""
    if problem:
        raise ArchiveRefusedError(problem, file=name)
    return name


def _content(tar: bytes, offset: int, header: Header) -> bytes:
    end = offset + header.size_bytes
    padded = end + padding_of(header.size_bytes)
    if padded > len(tar):
        raise ArchiveRefusedError("the archive is cut off in it", file=header.name)
    # Threat: bytes between members are shown by no listing.
    if any(tar[end:padded]):
        raise ArchiveRefusedError("bytes follow its content before the next file", file=header.name)
    return tar[offset:end]


def _require_end(tar: bytes, offset: int) -> None:
    rest = tar[offset:]
    if len(rest) < len(END):
        raise ArchiveRefusedError("the archive is cut off: it has half an end")
    # Threat: a second archive behind the end, which a reader that passes over NULs goes on to.
    if len(rest) > _PADDING_BYTES_MAX or any(rest):
        raise ArchiveRefusedError("bytes follow the archive's end")


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
