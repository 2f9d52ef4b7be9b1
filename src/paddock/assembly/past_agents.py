"""Whether there is an agent of a name, or was one."""

from pathlib import Path

from paddock.assembly.project import Project
from paddock.errors import UsageError
from paddock.ledger.effects import has_entry_of
from paddock.ledger.presence import stands
from paddock.text.show import quote


def require_past_agent(project: Project, agent: str, *others: Path) -> None:
    """Refuse a name that no agent has, or ever had: nothing found would say nothing.

    `others` are ledgers from elsewhere, which have agents of their own.

    Raises:
        UsageError: there is no such agent, and no ledger has an entry of one.
        ConfigError: what declares the agents does not load.
    """
    names = sorted({*project.agents.names(), project.default_agent})
    paths = (*project.layout.ledger_paths().values(), *others)
    if agent in names or any(stands(p) and has_entry_of(str(p), agent) for p in paths):
        return
    raise UsageError(
        f"there is no agent {quote(agent)}, and there was none",
        where="--agent",
        hint=f"one of: {', '.join(names)}",
    )
