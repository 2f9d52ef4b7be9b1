"""Declaring agents and undeclaring them, each put on record; and what was edited by hand."""

from collections.abc import Sequence
from typing import Final

from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project
from paddock.errors import UsageError
from paddock.ledger.query import Filter, LedgerSearch
from paddock.plane import records
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import NewAgent, RemovedAgent
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.events import AGENT_CHANGED, AGENT_CREATED, AGENT_REMOVED

_DECLARATIONS: Final = (AGENT_CREATED, AGENT_CHANGED, AGENT_REMOVED)


def create_agent(project: Project, new: NewAgent) -> AgentRecord:
    """Declare an agent and record it. Raises: UsageError, ConfigError."""
    if new.profile not in project.policy.profiles:
        raise UsageError(
            f"there is no profile {quote(new.profile)}",
            where="--profile",
            hint=f"one of: {', '.join(sorted(project.policy.profiles))}",
        )
    record = project.agents.create(new)
    record_in_governance(project, records.agent_created(record))
    return record


def remove_agent(project: Project, name: str) -> RemovedAgent:
    """Undeclare an agent and record it. Raises: UsageError."""
    if name == project.default_agent:
        raise UsageError(
            f"{quote(name)} is the agent of every call without --agent",
            hint="it cannot be removed; give it a stricter profile instead",
        )
    removed = project.agents.remove(name)
    record_in_governance(project, records.agent_removed(removed.name, removed.kept))
    return removed


def note_agents(project: Project, lineage: Sequence[AgentRecord]) -> None:
    """Put on record which of these declarations are others than those recorded last.

    An `agent.json` that was edited by hand is in force from its first loading on, and on
    record before anything is done with it. The admin agent of a bare plane has none: its
    configuration is put on record as a whole.

    Raises: HostError, LedgerBusyError, LedgerFullError, LedgerDamagedError.
    """
    declared = [record for record in lineage if record.file != project.layout.admin_config]
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not declared or not path.exists():
        return
    with LedgerSearch(str(path)) as search:
        recorded = [_recorded_digest(search, record.agent.name) for record in declared]
    changed = [
        records.agent_changed(before, record)
        for before, record in zip(recorded, declared, strict=True)
        if before != record.digest
    ]
    record_in_governance(project, *changed)


def _recorded_digest(search: LedgerSearch, name: str) -> str:
    """The digest of an agent's file as it was recorded last; empty where it was not, or removed."""
    newest = [
        row
        for event_type in _DECLARATIONS
        for row in search.query(Filter(event_type, agent=name), last=1).entries
    ]
    if not newest:
        return ""
    digest = max(newest, key=lambda row: row.seq).entry.metadata.get("digest")
    return digest if isinstance(digest, str) else ""
