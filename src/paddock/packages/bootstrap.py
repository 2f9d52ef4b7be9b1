"""The bootstrap: the packages that a plane is made from, and the archive that carries them.

    CP_BOOTSTRAP.tar.gz
        README.md, install.sh, paddock, requirements.txt
        bootstrap.json          every other file with its SHA-256; the packages in order
        packages/PKG-….tar.gz
        src/paddock/…           our own source: a machine needs Python and its packages alone

Everything is made from the directory in which this program stands, and nothing of it depends
on a clock, a user, a umask, a locale or an order of files: whoever has the same source makes
the same bytes, and the source inside an archive makes that archive again.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.packages.archive import (
    Archive,
    PackedFile,
    is_litter,
    read_archive,
    read_members,
    read_source,
    write_archive,
    write_members,
)
from paddock.packages.manifest import (
    FILE_MODE,
    PROGRAM_MODE,
    install_order,
    is_digest,
    path_problem,
)
from paddock.packages.rows import ArchiveRefusedError, Failure, GateRefusedError
from paddock.plane.json_files import parse_file, write_object
from paddock.storage.atomic import host_errors, read_file
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.entries import digest_of

NAME: Final = "CP_BOOTSTRAP.tar.gz"
INDEX: Final = "bootstrap.json"
FORMAT: Final = 1

PROGRAM: Final = Path(__file__).parents[1]
SOURCES: Final = PROGRAM / "bootstrap" / "packages"
_TOP: Final = {
    "README.md": FILE_MODE,
    "install.sh": PROGRAM_MODE,
    "paddock": PROGRAM_MODE,
    "requirements.txt": FILE_MODE,
}
_TIERS: Final = ("HOT", "HO2", "HO1", "agents", "objects")
_NOT_SHIPPED: Final = frozenset({"ruff.toml"})
"""Only a linter reads it; a wheel does not hold it either."""


class Unpacked(Struct, frozen=True):
    directory: Path
    archives: tuple[Archive, ...]
    names: frozenset[str]


def load_packages(program: Path = PROGRAM) -> tuple[Archive, ...]:
    """In the order of their install. Raises: GateRefusedError, ConfigError, HostError."""
    return _in_order([_packed(source) for source in _sources(program)])


def build_bootstrap(program: Path = PROGRAM) -> bytes:
    """The archive of this distribution, or of a copy of it. Raises: as `load_packages`."""
    archives = load_packages(program)
    members = [*_top(program), *_packages(archives), *_source(program)]
    return write_members((*members, _index(members, archives)))


def find_differences(content: bytes, program: Path = PROGRAM) -> tuple[Failure, ...]:
    """Empty where nothing differs. Raises: ArchiveRefusedError; as `load_packages`."""
    ours = build_bootstrap(program)
    if content == ours:
        return ()
    theirs, own = read_members(content), read_members(ours)
    found = [Failure(name, "it is not in the archive") for name in sorted(own.keys() - theirs)]
    for name in sorted(theirs):
        if name not in own:
            found.append(Failure(name, "it is in the archive, and not in this distribution"))
        elif theirs[name] != own[name]:
            found.append(Failure(name, "it is another one than this distribution's"))
    return tuple(found) or (Failure("", "its files are the same, and its bytes are not"),)


def read_unpacked(directory: Path) -> Unpacked:
    """Each file is read once. Raises: UsageError, ArchiveRefusedError, ConfigError, HostError."""
    content = read_file(directory / INDEX, limits.manifest_bytes_max)
    if content is None:
        raise UsageError(
            f"{quote(str(directory))} is no unpacked bootstrap archive: it has no {INDEX}",
            where=str(directory),
        )
    given = parse_file(content, str(directory / INDEX))
    index = given.convert(_Index)
    if index.format != FORMAT:
        raise given.error("format", "the format is not known", f"this version reads {FORMAT}")
    read: dict[str, bytes] = {}
    for name, digest in ((row.path, row.sha256) for row in index.files):
        if path_problem(name) or name.split("/")[0] in _TIERS or not is_digest(digest):
            raise given.error("files", f"{quote(name)} is no file of an archive", "unpack it anew")
        read[name] = _declared(directory, name, digest)
    archives = tuple(_listed(read, name) for name in index.packages)
    if not archives or _in_order(archives) != archives:
        raise given.error("packages", "the packages are not in their order", "unpack it anew")
    return Unpacked(directory, archives, frozenset({*read, INDEX}))


class _IndexRow(Strict, frozen=True):
    path: str
    sha256: str


class _Index(Strict, frozen=True):
    format: int
    packages: tuple[str, ...]
    files: tuple[_IndexRow, ...]


def _sources(program: Path) -> list[Path]:
    directory = program / "bootstrap" / "packages"
    with host_errors("listing", directory):
        return sorted(path for path in directory.iterdir() if not is_litter(path.name))


def _packed(source: Path) -> Archive:
    packed = read_source(source)
    if source.name != packed.manifest.package_id:
        wrong = Failure(source.name, "the directory is named after another package")
        raise GateRefusedError("G0A", [wrong])
    # None of them is a program (`sh FILE` runs a script): a mode is what a file system, an
    # unpacker or a checkout may lose or add, and the bytes are to be the same everywhere.
    files = tuple(replace(file, mode=FILE_MODE) for file in packed.files)
    return Archive(packed.manifest, files, digest_of(write_archive(packed.manifest, files)))


def _in_order(archives: Sequence[Archive]) -> tuple[Archive, ...]:
    known = {archive.manifest.package_id: archive for archive in archives}
    ordered = install_order(archive.manifest for archive in archives)
    return tuple(known[manifest.package_id] for manifest in ordered)


def _top(program: Path) -> Iterator[PackedFile]:
    for name, mode in _TOP.items():
        yield PackedFile(name, _content(program / "bootstrap" / name), mode)


def _packages(archives: Sequence[Archive]) -> Iterator[PackedFile]:
    for archive in archives:
        content = write_archive(archive.manifest, archive.files)
        yield PackedFile(_archive_name(archive.manifest.package_id), content, FILE_MODE)


def _source(program: Path) -> Iterator[PackedFile]:
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with host_errors("listing", program / prefix):
            entries = list(os.scandir(program / prefix))
        for entry in entries:
            name = prefix + entry.name
            if is_litter(entry.name) or entry.name in _NOT_SHIPPED:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                waiting.append(f"{name}/")
            elif stat.S_ISREG(mode):
                yield PackedFile(f"src/paddock/{name}", _content(program / name), FILE_MODE)
            else:
                # Threat: a link packs what it leads to, from anywhere on this machine.
                raise ConfigError(
                    f"{quote(name)} is a link or a special file", where=str(program / name)
                )


def _index(members: Sequence[PackedFile], archives: Sequence[Archive]) -> PackedFile:
    rows = sorted((member.path, digest_of(member.content)) for member in members)
    content = write_object(
        {
            "format": FORMAT,
            "packages": [archive.manifest.package_id for archive in archives],
            "files": [{"path": path, "sha256": digest} for path, digest in rows],
        }
    )
    return PackedFile(INDEX, content, FILE_MODE)


def _archive_name(package_id: str) -> str:
    return f"packages/{package_id}.tar.gz"


def _content(path: Path) -> bytes:
    content = read_file(path, limits.package_bytes_max)
    if content is None:
        raise ConfigError(f"{quote(str(path))} is missing from this distribution", where=str(path))
    return content


def _declared(directory: Path, name: str, digest: str) -> bytes:
    content = read_file(directory / name, limits.package_bytes_max)
    if content is None:
        raise ArchiveRefusedError("the index names it, and it is not there", file=name)
    if digest_of(content) != digest:
        raise ArchiveRefusedError(f"its digest is {digest_of(content)}, not {digest}", file=name)
    return content


def _listed(read: dict[str, bytes], package_id: str) -> Archive:
    name = _archive_name(package_id)
    if name not in read:
        raise ArchiveRefusedError("the index names the package, and no such file", file=name)
    archive = read_archive(read[name])
    if archive.manifest.package_id != package_id:
        raise ArchiveRefusedError("it holds another package", file=name)
    return archive
