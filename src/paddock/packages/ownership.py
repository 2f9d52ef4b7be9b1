"""Whose a file becomes: two packages never own one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.packages.installed import InstalledPackage, InstalledSet
from paddock.packages.manifest import Asset, Manifest
from paddock.packages.names import find_collision, place_problem, shown_collision
from paddock.packages.receipts import InstalledFile
from paddock.packages.refusals import Failure, GateRefusedError, OwnershipRefusedError


@dataclass(frozen=True, slots=True)
class Put:
    """The package's file is to stand there."""

    asset: Asset
    before: InstalledFile | None
    """What an earlier version of this package brought."""

    @property
    def path(self) -> str:
        """Where."""
        return self.asset.path


@dataclass(frozen=True, slots=True)
class Remove:
    """The file goes away."""

    path: str
    before: InstalledFile


Act = Put | Remove


def plan_ownership(
    new: Manifest | None, old: InstalledPackage | None, installed: InstalledSet
) -> tuple[Act, ...]:
    """What happens to each path when `old` gives way to `new`; either may be None.

    Raises:
        GateRefusedError: a file for a place where no package of its tier may bring one.
        OwnershipRefusedError: a file that is another's.
    """
    own = {each.package_id for each in (new, old) if each is not None}
    others = [package for name, package in installed.packages.items() if name not in own]
    wanted: Mapping[str, Asset] = {} if new is None else new.by_path
    had: Mapping[str, InstalledFile] = {} if old is None else old.files
    if new is not None:
        _require_places(new)
    failures = [
        Failure(path, f"it belongs to {other.package_id}")
        for path in sorted(wanted)
        for other in others
        if path in other.manifest.by_path
    ]
    if failures:
        raise OwnershipRefusedError(failures)
    theirs = (path for package in others for path in package.manifest.by_path)
    found = find_collision(dict.fromkeys((*theirs, *wanted))) if wanted else None
    if found is not None:
        raise OwnershipRefusedError([Failure(found[1], shown_collision(found))])
    return tuple(
        Put(wanted[path], had.get(path)) if path in wanted else Remove(path, had[path])
        for path in sorted(wanted.keys() | had.keys())
    )


def _require_places(new: Manifest) -> None:
    failures = [
        Failure(asset.path, problem)
        for asset in new.assets
        if (problem := place_problem(asset.path, new.plane_id))
    ]
    if failures:
        raise GateRefusedError("G0B", failures)
