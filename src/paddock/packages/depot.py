"""What every act on the packages of one plane works with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from paddock.history.journal import Journal
from paddock.packages.acceptance import AcceptanceRunner, NoAcceptance
from paddock.packages.attic import Attic
from paddock.packages.loading import Loading, LoadsAlone
from paddock.packages.log import PackageLedger
from paddock.plane.layout import PlaneLayout
from paddock.workspace import Workspace
from paddock.workspace.changes import Objects


@dataclass(frozen=True, slots=True)
class Depot:
    """One plane, opened for a change of its packages."""

    layout: PlaneLayout
    workspace: Workspace
    """On the plane's root: what is installed goes through the same fence as any write."""
    objects: Objects
    """Keeps what is replaced."""
    journal: Journal
    ledger: PackageLedger
    clock: Callable[[], float]
    """Seconds since 1970."""
    acceptance: AcceptanceRunner = field(default_factory=NoAcceptance)
    loading: Loading = field(default_factory=LoadsAlone)

    @property
    def attic(self) -> Attic:
        """Where changes on their way are told."""
        return Attic(self.layout)
