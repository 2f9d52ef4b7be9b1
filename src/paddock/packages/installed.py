"""What is installed in a plane: read from `HOT/installed`, and whose which file is.

A package is installed when its manifest and its receipt stand there and agree. Anything
else in that directory is a problem that is named, never passed over.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock import limits
from paddock.errors import ConfigError
from paddock.packages.manifest import Manifest, parse_manifest
from paddock.packages.names import MANIFEST, RECEIPT, is_package_id
from paddock.packages.receipts import InstalledFile, Receipt, parse_receipt
from paddock.packages.refusals import Failure
from paddock.plane.files import host_errors, read_file
from paddock.plane.layout import PlaneLayout
from paddock.values.digests import digest_of
from paddock.workspace.temporary import is_temporary_name


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """One package of a plane."""

    manifest: Manifest
    receipt: Receipt
    files: Mapping[str, InstalledFile] = field(init=False, repr=False, compare=False)
    """What it brought, by path."""

    def __post_init__(self) -> None:
        # Worked out once; a frozen value takes its own fields only so.
        object.__setattr__(self, "files", {each.path: each for each in self.receipt.files})

    @property
    def package_id(self) -> str:
        """Its id."""
        return self.manifest.package_id


@dataclass(frozen=True, slots=True)
class InstalledSet:
    """All packages of a plane, by id, and what in `HOT/installed` is none."""

    packages: Mapping[str, InstalledPackage]
    problems: tuple[Failure, ...] = ()

    def owner_of(self, path: str) -> InstalledPackage | None:
        """Whose file it is; None where no package brings it, or more than one."""
        owners = [each for each in self.packages.values() if path in each.manifest.by_path]
        return owners[0] if len(owners) == 1 else None

    def dependents_of(self, package_id: str) -> tuple[str, ...]:
        """The packages that need this one directly."""
        found = [
            name
            for name, package in self.packages.items()
            if package_id in package.manifest.dependencies
        ]
        return tuple(sorted(found))

    @property
    def digest(self) -> str:
        """One digest for the whole set; see `digest_of_set`."""
        return digest_of_set(package.manifest for package in self.packages.values())


SetRow = tuple[str, str, str]
"""Id, version and digest of one package of a set."""


def digest_of_set(manifests: Iterable[Manifest]) -> str:
    """The digest of the set of these packages; see `digest_of_rows`."""
    return digest_of_rows(map(row_of, manifests))


def row_of(manifest: Manifest) -> SetRow:
    """What of a package stands in the digest of a set."""
    return manifest.package_id, manifest.version.text, manifest.digest


def digest_of_rows(rows: Iterable[SetRow]) -> str:
    """SHA-256 over `<id> <version> <digest>` LF of every package, sorted by id."""
    text = "".join(f"{' '.join(row)}\n" for row in sorted(rows))
    return digest_of(text.encode("utf-8"))


def read_installed(layout: PlaneLayout) -> InstalledSet:
    """Look at `HOT/installed`.

    Raises: HostError: it cannot be listed.
    """
    directory = layout.installed
    if not directory.is_dir():
        return InstalledSet({})
    with host_errors("listing", directory):
        names = sorted(os.listdir(directory))
    packages: dict[str, InstalledPackage] = {}
    problems: list[Failure] = []
    for name in names:
        if is_temporary_name(name):
            continue  # of a change on its way
        try:
            packages[name] = _read_package(directory / name)
        except ConfigError as error:
            problems.append(Failure(f"HOT/installed/{name}", error.message))
    return InstalledSet(packages, tuple(problems))


def _read_package(directory: Path) -> InstalledPackage:
    name = directory.name
    if not is_package_id(name):
        raise ConfigError("it is no installed package")
    manifest_bytes = read_file(directory / MANIFEST, limits.manifest_bytes_max)
    receipt_bytes = read_file(directory / RECEIPT, limits.receipt_bytes_max)
    if manifest_bytes is None or receipt_bytes is None:
        missing = MANIFEST if manifest_bytes is None else RECEIPT
        raise ConfigError(f"it has no {missing}")
    manifest = parse_manifest(manifest_bytes, f"{name}/{MANIFEST}")
    receipt = parse_receipt(receipt_bytes, f"{name}/{RECEIPT}")
    if manifest.canonical != manifest_bytes:
        raise ConfigError(f"its {MANIFEST} is not in the form in which it was installed")
    if manifest.package_id != name or receipt.package_id != name:
        raise ConfigError("it is named after another package")
    if receipt.digest != manifest.digest or receipt.version != manifest.version.text:
        raise ConfigError(f"its {RECEIPT} is of another package than its {MANIFEST}")
    brought = {(each.path, each.sha256) for each in receipt.files}
    if brought != {(asset.path, asset.sha256) for asset in manifest.assets}:
        raise ConfigError(f"its {RECEIPT} lists other files than its {MANIFEST}")
    return InstalledPackage(manifest, receipt)
