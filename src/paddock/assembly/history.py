"""The history of a plane, as every runtime writes it."""

from dataclasses import dataclass

from paddock.assembly.project import Project
from paddock.history.journal import Journal
from paddock.history.keeping import History
from paddock.policy.engine import Policy
from paddock.workspace.disk import Disk


@dataclass(frozen=True, slots=True)
class GeneratedPaths:
    """What only commands write, and can make again: its replaced contents are not kept."""

    policy: Policy

    def is_exempt(self, path: str) -> bool:
        """See `paddock.history.keeping.Exempt`."""
        return self.policy.guards.find_generated(path) is not None


def open_history(project: Project) -> History:
    """The history, opened for good when something is first written."""
    bytes_max = project.policy.settings.history.bytes_max
    return History(str(project.layout.objects), bytes_max=bytes_max)


def open_journal(project: Project) -> Journal:
    """The one journal of the plane's changes. Raises: ConfigError, HostError."""
    return Journal.open(str(project.layout.objects / "journal"), Disk())
