"""Whose a file becomes: what an install, an upgrade or an uninstall does to each path. Pure.

Two packages never own one file. A package may take a file over from one that it depends on
directly; what stood there is kept, and comes back when the taker lets go of it. The giver
cannot leave before the taker does, because the taker depends on it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from paddock.packages.installed import InstalledPackage, InstalledSet, owner_among
from paddock.packages.manifest import Asset, Manifest
from paddock.packages.names import find_collision, place_problem, shown_collision
from paddock.packages.receipts import HandOver, InstalledFile
from paddock.packages.refusals import Failure, GateRefusedError, OwnershipRefusedError


@dataclass(frozen=True, slots=True)
class Put:
    """The package's file is to stand there."""

    asset: Asset
    before: InstalledFile | None
    """What an earlier version of this package brought."""
    giver: InstalledPackage | None = None
    """Who owns it now, and hands it over."""
    carried: HandOver | None = None
    """It was taken over by an earlier version already."""

    @property
    def path(self) -> str:
        """Where."""
        return self.asset.path


@dataclass(frozen=True, slots=True)
class Leave:
    """Another package took it over, and it stays the same: nothing happens on the disk."""

    path: str


@dataclass(frozen=True, slots=True)
class Restore:
    """What the giver had there comes back."""

    taken: HandOver
    before: InstalledFile

    @property
    def path(self) -> str:
        """Where."""
        return self.taken.path


@dataclass(frozen=True, slots=True)
class Remove:
    """The file goes away."""

    path: str
    before: InstalledFile


Act = Put | Leave | Restore | Remove


_NO_MODES: Final[Mapping[str, int]] = MappingProxyType({})


def plan_ownership(
    new: Manifest | None,
    old: InstalledPackage | None,
    installed: InstalledSet,
    modes: Mapping[str, int] = _NO_MODES,
) -> tuple[Act, ...]:
    """What happens to each path when `old` gives way to `new`; either may be None.

    `modes` are those of the new files, which an archive tells and a manifest does not.

    Raises:
        GateRefusedError: a file for a place where no package of its tier may bring one.
        OwnershipRefusedError: a file that is another's, or that another took over.
    """
    if new is not None:
        _require_places(new)
    plan = _Planning(new, old, installed, modes)
    acts = tuple(plan.acts())
    if plan.failures:
        raise OwnershipRefusedError(plan.failures)
    if new is not None:
        _require_one_name(new, plan.others)
    return acts


class _Planning:
    """One plan on its way; what is refused is collected."""

    def __init__(
        self,
        new: Manifest | None,
        old: InstalledPackage | None,
        installed: InstalledSet,
        modes: Mapping[str, int],
    ) -> None:
        self._new = new
        self._modes = modes
        self._old = old
        self._installed = installed
        own = {each.package_id for each in (new, old) if each is not None}
        self.others = tuple(
            package for name, package in installed.packages.items() if name not in own
        )
        self.failures: list[Failure] = []

    def acts(self) -> Iterator[Act]:
        """One for each path, in order."""
        wanted: Mapping[str, Asset] = {} if self._new is None else self._new.by_path
        had: Mapping[str, InstalledFile] = {} if self._old is None else self._old.files
        for path in sorted(wanted.keys() | had.keys()):
            act = self._keep(wanted[path], had.get(path)) if path in wanted else self._drop(path)
            if isinstance(act, Failure):
                self.failures.append(act)
            else:
                yield act

    def _keep(self, asset: Asset, before: InstalledFile | None) -> Act | Failure:
        path = asset.path
        taker = self._taker(path)
        if before is not None and taker is not None:
            # What comes back when the taker lets go is what it took: its mode, too.
            mode = self._modes.get(path, before.mode)
            if (before.sha256, before.mode) == (asset.sha256, mode):
                return Leave(path)
            return Failure(
                path, f"{taker.package_id} took it over: upgrade or uninstall that first"
            )
        owner = owner_among(self.others, path)
        if owner is None:
            return Put(asset, before)
        if self._new is None or owner.package_id not in self._new.dependencies:
            return Failure(path, f"it belongs to {owner.package_id}, which is no direct dependency")
        carried = None if self._old is None else self._old.receipt.taken.get(path)
        if carried is not None and carried.giver == owner.package_id:
            return Put(asset, before, carried=carried)
        return Put(asset, before, giver=owner)

    def _drop(self, path: str) -> Act | Failure:
        old = self._old
        if old is None:
            raise KeyError(path)  # only a version that was installed can let go of anything
        taker = self._taker(path)
        if taker is not None:
            return Failure(
                path, f"{taker.package_id} took it over: upgrade or uninstall that first"
            )
        taken, before = old.receipt.taken.get(path), old.files[path]
        owner = owner_among(self.others, path)
        if taken is not None and owner is not None and owner.package_id == taken.giver:
            return Restore(taken, before)
        return Remove(path, before)

    def _taker(self, path: str) -> InstalledPackage | None:
        return None if self._old is None else self._installed.taker_from(self._old.package_id, path)


def _require_places(new: Manifest) -> None:
    failures = [
        Failure(asset.path, problem)
        for asset in new.assets
        if (problem := place_problem(asset.path, new.plane_id))
    ]
    if failures:
        raise GateRefusedError("G0B", failures)


def _require_one_name(new: Manifest, others: tuple[InstalledPackage, ...]) -> None:
    theirs = (path for package in others for path in package.manifest.by_path)
    found = find_collision(dict.fromkeys((*theirs, *new.by_path)))
    if found is not None:
        raise OwnershipRefusedError([Failure(found[1], shown_collision(found))])
