"""Packages, for those who open a plane for something else: loaded when they are needed."""

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paddock.assembly.project import Project
from paddock.values.decisions import PlaneKind

if TYPE_CHECKING:
    from paddock.packages.change import RecoveredChange
    from paddock.packages.rows import PackageRow, Packages
    from paddock.plane.report import WhereReport


def settle_left_packages(project: Project) -> "RecoveredChange | None":
    """Settle a change of packages that a killed process left; one look where there is none.

    Raises: HostError, IntegrityError, LedgerBusyError, LedgerFullError.
    """
    if not os.path.lexists(project.layout.package_transaction):
        return None
    from paddock.assembly.packages import settle_packages  # noqa: PLC0415 - after a crash only

    return settle_packages(project)


def is_made_with_dev(project: Project) -> bool:
    """Whether nobody approves what changes the plane; see `packages.is_development_plane`."""
    if project.layout.kind is not PlaneKind.BARE:
        return False
    from paddock.assembly.packages import is_development_plane  # noqa: PLC0415 - bare planes only

    return is_development_plane(project)


def report_of(project: Project) -> "WhereReport":
    """Where everything is, and whether the plane was made with `--dev`."""
    return replace(project.report(), made_with_dev=is_made_with_dev(project))


def packages_of(project: Project) -> "Packages | None":
    """The port by which tools ask what is installed; a project's plane has no packages."""
    return LazyPackages(project) if project.layout.kind is PlaneKind.BARE else None


class LazyPackages(Struct, frozen=True):
    project: Project

    def list_all(self) -> "tuple[PackageRow, ...]":
        from paddock.assembly.packages import plane_packages  # noqa: PLC0415 - few calls ask

        return plane_packages(self.project).list_all()
