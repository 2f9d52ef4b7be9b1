"""Declaring agents and undeclaring them, each put on record."""

from contextlib import closing

from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project import Project
from paddock.errors import UsageError
from paddock.plane import records
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import NewAgent, RemovedAgent
from paddock.text.show import quote


def create_agent(project: Project, new: NewAgent) -> AgentRecord:
    """Declare an agent and record it. Raises: UsageError, ConfigError."""
    if new.profile not in project.policy.profiles:
        raise UsageError(
            f"there is no profile {quote(new.profile)}",
            where="--profile",
            hint=f"one of: {', '.join(sorted(project.policy.profiles))}",
        )
    record = project.agents.create(new)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.agent_created(record)])
    return record


def remove_agent(project: Project, name: str) -> RemovedAgent:
    """Undeclare an agent and record it. Raises: UsageError."""
    if name == project.default_agent:
        raise UsageError(
            f"{quote(name)} is the agent of every call without --agent",
            hint="it cannot be removed; give it a stricter profile instead",
        )
    removed = project.agents.remove(name)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.agent_removed(removed.name, removed.kept)])
    return removed
