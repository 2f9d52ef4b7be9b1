"""A root and its plane, by their place alone: whatever governs them may not even load.

Who audits has to get at the ledgers just when a policy file, or an admin's configuration,
was spoilt: what was recorded does not depend on either.
"""

from pathlib import Path

from msgspec import Struct

from paddock.plane.discover import ProjectRoot, find_root, plane_for, root_on_record
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.report import WhereReport, where_report


class PlaneSite(Struct, frozen=True):
    """Where a plane is; nothing of what stands there was read."""

    root: ProjectRoot
    layout: PlaneLayout
    environment: Environment

    def report(self) -> WhereReport:
        """Where everything is, whose policy is not known."""
        return where_report(self.root, self.layout, None, self.environment)


def find_site(start: Path, environment: Environment, override: Path | None) -> PlaneSite:
    """The place for someone who stands at `start`. Makes nothing.

    Inside a project's plane it is that project's, although that may have been moved away.

    Raises:
        UsageError: `start` is no directory.
        ConfigError: root and plane overlap, or a plane's record does not load.
    """
    recorded = root_on_record(override or environment.plane or start, environment)
    root = recorded or find_root(start, environment, override)
    return PlaneSite(root, plane_for(root, environment), environment)
