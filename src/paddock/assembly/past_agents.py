"""Whether there is an agent of a name, or was one."""

from collections.abc import Iterable
from pathlib import Path

from paddock.assembly.project import PlaneSite, Project, read_project
from paddock.errors import ConfigError, UsageError
from paddock.ledger.query import has_entry_of
from paddock.ledger.read import stands
from paddock.text.show import quote


def require_past_agent(project: Project, agent: str, *others: Path) -> None:
    """Refuse a name that no agent has or had, in `others` too. Raises: UsageError, ConfigError."""
    names = sorted({*project.agents.names(), project.default_agent})
    paths = (*project.layout.ledger_paths().values(), *others)
    if agent in names or _has_acted(agent, paths):
        return
    raise UsageError(
        f"there is no agent {quote(agent)}, and there was none",
        where="--agent",
        hint=f"one of: {', '.join(names)}",
    )


def require_agent_of_site(site: PlaneSite, agent: str) -> None:
    """As `require_past_agent`, also where no policy loads. Raises: UsageError, ConfigError."""
    try:
        project = read_project(site.root, site.environment)
    except ConfigError:
        if not _has_acted(agent, site.layout.ledger_paths().values()):
            raise
        return
    require_past_agent(project, agent)


def _has_acted(agent: str, ledgers: Iterable[Path]) -> bool:
    return any(stands(path) and has_entry_of(str(path), agent) for path in ledgers)
