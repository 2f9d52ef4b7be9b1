"""The rows of a plane's packages, each looked at now; and whose file is whose."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct

from paddock.packages.installed import (
    InstalledPackage,
    InstalledSet,
    check_package,
    file_problem,
    read_installed,
)
from paddock.packages.ledger import PackageLedger, replay
from paddock.packages.manifest import TIERS_OF, install_order
from paddock.packages.rows import GateRefusedError, PackageRow, State
from paddock.packages.transaction import PendingChange
from paddock.plane.layout import PlaneLayout
from paddock.values.calls import Json
from paddock.workspace import Workspace


class PlanePackages(Struct, frozen=True):
    layout: PlaneLayout
    ledger: PackageLedger
    open_workspace: Callable[[], AbstractContextManager[Workspace]]

    def list_all(self) -> tuple[PackageRow, ...]:
        installed = read_installed(self.layout)
        record = replay(self.ledger.read().entries)
        rows: list[PackageRow] = []
        with self.open_workspace() as workspace:
            for package in installed.packages.values():
                wo_id = record.approval_of(package.package_id, package.manifest.digest)
                rows.append(_row(package, workspace, wo_id))
        places = _places(installed)
        rows.sort(key=lambda row: (places.get(row.package_id, 0), row.layer, row.package_id))
        on_its_way = PendingChange(self.layout).read()
        return (*rows, *_unread(installed, "" if on_its_way is None else on_its_way.package_id))


def _unread(installed: InstalledSet, changing: str) -> Iterator[PackageRow]:
    for failure in installed.problems:
        name = failure.file.rpartition("/")[2]
        if name == changing:
            yield PackageRow(package_id=name, state=State.CHANGING)
        else:
            yield PackageRow(package_id=name, state=State.DAMAGED, failures=(failure,))


def _row(package: InstalledPackage, workspace: Workspace, wo_id: str | None) -> PackageRow:
    failures = check_package(package, workspace)
    manifest, receipt = package.manifest, package.receipt
    return PackageRow(
        package_id=manifest.package_id,
        state=State.CHANGED if failures else State.INSTALLED,
        version=manifest.version,
        tier=TIERS_OF[manifest.plane_id][0],
        layer=manifest.layer,
        framework_id=manifest.framework_id,
        spec_id=manifest.spec_id,
        title=manifest.title,
        digest=manifest.digest,
        installed_at=receipt.installed_at,
        wo_id=wo_id,
        dev=receipt.dev,
        failures=failures,
    )


def _places(installed: InstalledSet) -> dict[str, int]:
    try:
        ordered = install_order(package.manifest for package in installed.packages.values())
    except GateRefusedError:
        return {}  # What is wrong with the graph is for G3 to say; the list stands by layer.
    return {manifest.package_id: place for place, manifest in enumerate(ordered)}


class Ownership(Struct, frozen=True):
    path: str
    owner: PackageRow | None
    classification: str = ""
    problem: str = ""

    def as_json(self) -> dict[str, Json]:
        owner = self.owner
        return {
            "path": self.path,
            "owner": None if owner is None else owner.package_id,
            "version": None if owner is None else owner.version,
            "digest": None if owner is None else owner.digest,
            "wo_id": None if owner is None else owner.wo_id,
            "classification": self.classification,
            "problem": self.problem,
            "handed_over_by": [],
        }


def find_owner(packages: PlanePackages, path: str) -> Ownership:
    installed = read_installed(packages.layout)
    owner = installed.owner_of(path)
    if owner is None:
        return Ownership(path, None)
    record = replay(packages.ledger.read().entries)
    with packages.open_workspace() as workspace:
        wo_id = record.approval_of(owner.package_id, owner.manifest.digest)
        row = _row(owner, workspace, wo_id)
        problem = file_problem(owner, path, workspace)
    classification = owner.manifest.by_path[path].classification
    return Ownership(path, row, classification, problem)
