"""Packages whose files may be used as what they are: installed, approved, unchanged.

Threat: whoever changes a file of a package, with its manifest and receipt beside it, would
have what it wants loaded or read to a model. So each question is answered by somebody else:
what is installed by the packages ledger, verified, and by the plane; who stands for it by
the approval that the ledger names; what a file holds by the manifest of that digest. The
bytes that are used are those whose digest was compared; nothing is read a second time.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from paddock.assembly.packages import is_development_plane, package_ledger
from paddock.assembly.project import Project
from paddock.errors import PaddockError
from paddock.packages.installed import InstalledPackage, InstalledSet, check_package, read_installed
from paddock.packages.ledger import RecordedPackage, replay
from paddock.packages.manifest import Asset
from paddock.values.entries import digest_of
from paddock.workspace import Workspace


class UnsoundPackageError(Exception):
    """A package, or a file of one, that may not be used, and why."""


@dataclass(frozen=True, slots=True)
class SoundPackages:
    """One plane, as it was looked at once."""

    workspace: Workspace
    installed: InstalledSet
    recorded: Mapping[str, RecordedPackage]
    plane_is_dev: bool

    def find(self, package_id: str) -> InstalledPackage:
        """The package, every file of it looked at now. Raises: UnsoundPackageError."""
        package, told = self.installed.packages.get(package_id), self.recorded.get(package_id)
        if package is None or told is None:
            raise UnsoundPackageError("the package is not installed")
        if package.manifest.digest != told.digest:
            raise UnsoundPackageError("its manifest is not the one that was installed")
        if told.wo_id is None and not self.plane_is_dev:
            raise UnsoundPackageError("no operator approved the package")
        failures = check_package(package, self.workspace)
        if failures:
            raise UnsoundPackageError(f"{failures[0].file}: {failures[0].reason}")
        return package

    def content(self, package: InstalledPackage, asset: Asset, bytes_max: int) -> bytes:
        """A file of a package, read once, exactly as it was brought.

        Raises: UnsoundPackageError.
        """
        if self.installed.owner_of(asset.path) is not package:
            raise UnsoundPackageError(f"{asset.path} is brought by another package, too")
        try:
            path = self.workspace.resolve_entry(asset.path).path
            content = self.workspace.read_all(path, bytes_max).content
        except PaddockError as error:
            raise UnsoundPackageError(error.message) from error
        if digest_of(content) != asset.sha256:
            raise UnsoundPackageError(f"{asset.path} is not as the package brought it")
        return content


@contextmanager
def open_sound_packages(project: Project) -> Generator[SoundPackages]:
    """The packages of a bare plane.

    Raises:
        HostError: the plane cannot be read.
        LedgerDamagedError: nobody can tell what was installed.
    """
    entries = package_ledger(project).read().entries
    with Workspace.open(str(project.layout.root)) as workspace:
        yield SoundPackages(
            workspace,
            read_installed(project.layout),
            replay(entries).packages,
            is_development_plane(project),
        )
