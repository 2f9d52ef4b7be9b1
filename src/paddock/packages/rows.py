"""The installed packages as a person or a model sees them: rows, and the port that gives them.

Loads nothing else of packages: every runtime has the port, and few ask it anything.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from paddock.packages.refusals import Failure
from paddock.values.calls import Json


class State(StrEnum):
    """How a package stands in its plane."""

    INSTALLED = "installed"
    """Every file that it owns is as it brought it; configuration is there."""
    CHANGED = "changed"
    """A file is missing, or another one, or has another mode."""
    CHANGING = "changing"
    """It is being installed, upgraded or removed right now."""
    DAMAGED = "damaged"
    """Its manifest or its receipt does not load."""


@dataclass(frozen=True, slots=True)
class PackageRow:
    """One package. Of a damaged one only its id is known."""

    package_id: str
    state: State
    version: str = ""
    tier: str = ""
    layer: int = 0
    framework_id: str = ""
    spec_id: str = ""
    title: str = ""
    digest: str = ""
    installed_at: str = ""
    wo_id: str | None = None
    """The approval under which it stands there, given before or after."""
    dev: bool = False
    """It was installed without asking for one."""
    failures: tuple[Failure, ...] = ()

    def as_json(self) -> dict[str, Json]:
        """For programs."""
        return {
            "package_id": self.package_id,
            "version": self.version,
            "tier": self.tier,
            "framework": self.framework_id,
            "spec": self.spec_id,
            "state": self.state,
            "layer": self.layer,
            "title": self.title,
            "digest": self.digest,
            "installed_at": self.installed_at,
            "wo_id": self.wo_id,
            "dev": self.dev,
            "failures": [{"file": each.file, "reason": each.reason} for each in self.failures],
        }


class Packages(Protocol):
    """Tells what is installed."""

    def list_all(self) -> tuple[PackageRow, ...]:
        """Every package, by layer and name; each looked at now.

        Raises: HostError, LedgerDamagedError.
        """
        ...


class _NoPackages:
    """Of a workspace that is on no bare plane."""

    def list_all(self) -> tuple[PackageRow, ...]:
        """Nothing."""
        return ()


NO_PACKAGES: Final[Packages] = _NoPackages()
