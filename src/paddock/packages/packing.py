"""Making an archive from a directory, and writing the hashes of its manifest.

A source is a directory with `manifest.json` and the declared files at their paths. What
tools and systems leave lying about is left out, and said; anything else that is not
declared stops the packing: a package never holds what nobody meant to put into it.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.packages.archive import PackedFile, read_archive, write_archive
from paddock.packages.hashing import compute_sha256
from paddock.packages.manifest import Manifest, parse_manifest
from paddock.packages.names import FILE_MODE, MANIFEST, PROGRAM_MODE, path_problem
from paddock.packages.refusals import Failure, GateRefusedError
from paddock.plane.files import host_errors, read_file, replace_file
from paddock.plane.strict_json import parse_object, write_object
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.digests import digest_of

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
_LITTER_FORMS: Final = re.compile(r"\._.*|.*\.py[co]|.*~|\..*\.sw[op]", re.DOTALL)
ARCHIVE_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class PackReport:
    """An archive that was made."""

    archive: Path
    manifest: Manifest
    sha256: str
    """Of the archive."""
    size_bytes: int
    left_out: tuple[str, ...]
    """Names below the source that are in no package; a directory ends in a slash."""


@dataclass(frozen=True, slots=True)
class PackedSource:
    """A source as it was read: what goes into its archive."""

    manifest: Manifest
    files: tuple[PackedFile, ...]
    """By path."""
    left_out: tuple[str, ...]
    """See `PackReport`."""


@dataclass(frozen=True, slots=True)
class HashReport:
    """What the manifest said of each file, and what is so."""

    manifest: Path
    stale: tuple[Failure, ...]
    """Files whose hash was missing or another."""
    files: int
    written: bool


def pack(source: Path, destination: Path) -> PackReport:
    """Make the archive of `source` at `destination`, a file, or a directory for `<id>.tar.gz`.

    The same tree gives the same bytes, whatever clock, owner, umask or order of files.

    Raises:
        ConfigError: the manifest does not load.
        GateRefusedError: a file that is not declared, no regular file, or not at its hash.
        UsageError: no source, or the archive would lie in it.
        HostError: something cannot be read or written.
    """
    packed = read_source(source)
    manifest = packed.manifest
    content = write_archive(manifest, packed.files)
    read_archive(content)  # What we could not read ourselves is not given away.
    target = _target(source, destination, manifest)
    replace_file(target, content, mode=ARCHIVE_MODE)
    return PackReport(target, manifest, digest_of(content), len(content), packed.left_out)


def read_source(source: Path) -> PackedSource:
    """The package that a source directory holds, every file read once.

    Raises: as `pack`, but for what it says of the archive.
    """
    manifest = read_source_manifest(source)
    found = _Survey(source)
    found.look()
    failures = list(found.refused)
    failures += [
        Failure(path, "it is not declared in the manifest")
        for path in sorted(found.files.keys() - manifest.by_path.keys() - {MANIFEST})
    ]
    files = tuple(_packed(source, found, manifest, failures))
    if failures:
        raise GateRefusedError(
            "G0A", failures, hint="declare it, remove it, or: paddock package hash SRC"
        )
    return PackedSource(manifest, files, tuple(sorted(found.left_out)))


def write_hashes(source: Path, *, check: bool) -> HashReport:
    """Write each declared file's hash into the manifest of `source`; with `check`, only compare.

    Raises: ConfigError (the manifest, but for its hashes), UsageError, HostError.
    """
    path = source / MANIFEST
    content = _manifest_bytes(path)
    fields = parse_object(content, str(path))
    stale: list[Failure] = []
    assets: list[Json] = []
    for table in fields.tables("assets"):
        name, before = table.text("path"), table.members.get("sha256")
        problem = path_problem(name)  # before it is opened
        if problem:
            raise table.error("path", f"{quote(name)}: {problem}", "name it relative to the plane")
        digest = _digest_at(source, name)
        assets.append({**table.members, "sha256": digest})
        if before != digest:
            stale.append(Failure(name, f"the manifest says {_said(before)}, and it is {digest}"))
    after = _with_assets(fields.members, assets)
    parse_manifest(after, str(path))
    is_written = bool(stale) and not check
    if is_written:
        mode = stat.S_IMODE(os.stat(path).st_mode) & 0o777
        replace_file(path, after, mode=mode)
    return HashReport(path, tuple(stale), len(assets), is_written)


def read_source_manifest(source: Path) -> Manifest:
    """The manifest of a source. Raises: ConfigError, UsageError, HostError."""
    path = source / MANIFEST
    return parse_manifest(_manifest_bytes(path), str(path))


def is_litter(name: str) -> bool:
    """Whether a tool or a system left it: by its name alone."""
    return name in _LITTER_NAMES or _LITTER_FORMS.fullmatch(name) is not None


class _Survey:
    """What a source holds: regular files by name, and what is left out or refused."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.files: dict[str, int] = {}
        """Name → permission bits."""
        self.left_out: list[str] = []
        self.refused: list[Failure] = []

    def look(self) -> None:
        """Walk through it; no link is followed."""
        waiting = [""]
        while waiting:
            waiting += self._directory(waiting.pop())
            if len(self.files) > limits.package_files_max + 1:
                raise UsageError(
                    f"{quote(str(self._source))} holds more than {limits.package_files_max} files"
                )

    def _directory(self, prefix: str) -> Iterator[str]:
        place = self._source / prefix
        with host_errors("listing", place):
            entries = list(os.scandir(place))
            for entry in entries:
                name = prefix + entry.name
                status = entry.stat(follow_symlinks=False)
                is_directory = stat.S_ISDIR(status.st_mode)
                if is_litter(entry.name):
                    self.left_out.append(f"{name}/" if is_directory else name)
                elif is_directory:
                    yield f"{name}/"
                elif stat.S_ISREG(status.st_mode):
                    self.files[name] = status.st_mode
                else:
                    # Threat: a link packs what it leads to, from anywhere on this machine.
                    self.refused.append(Failure(name, "it is a link or a special file"))


def _packed(
    source: Path, found: _Survey, manifest: Manifest, failures: list[Failure]
) -> Iterator[PackedFile]:
    """Every declared file with its content, read once; what is wrong goes to `failures`."""
    refused = {failure.file for failure in found.refused}
    left_out = set(found.left_out)
    room = limits.package_bytes_max
    for asset in manifest.assets:
        mode = found.files.get(asset.path)
        if mode is None:
            if asset.path not in refused:
                is_litter_of = any(_is_in(asset.path, each) for each in left_out)
                why = "it is always left out" if is_litter_of else "it is not there"
                failures.append(Failure(asset.path, f"it is declared, and {why}"))
            continue
        content = read_file(source / asset.path, room)
        digest = "" if content is None else digest_of(content)
        if content is None or digest != asset.sha256:
            failures.append(
                Failure(asset.path, f"its hash is stale: it is {digest}, not {asset.sha256}")
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
    # An archive in its own source would be in the next one, or stop it.
    inner, outer = target.parent.resolve(), source.resolve()
    if inner == outer or outer in inner.parents:
        raise UsageError(
            f"the archive {quote(str(target))} would lie in its own source",
            hint="name a place outside it",
        )
    return target


def _manifest_bytes(path: Path) -> bytes:
    content = read_file(path, limits.manifest_bytes_max)
    if content is None:
        raise UsageError(
            f"there is no {MANIFEST} in {quote(str(path.parent))}", where=str(path.parent)
        )
    return content


def _with_assets(members: object, assets: list[Json]) -> bytes:
    return write_object({**cast("dict[str, Json]", members), "assets": assets})


def _digest_at(source: Path, name: str) -> str:
    path = source / name
    if not os.path.lexists(path):
        raise ConfigError(f"the manifest declares {quote(name)}, and it is not there")
    return compute_sha256(path)


def _said(value: Json) -> str:
    return "nothing" if value is None else quote(value)
