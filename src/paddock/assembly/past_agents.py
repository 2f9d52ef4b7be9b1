"""Whether there is an agent of a name, or was one."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from paddock.assembly.project import PlaneSite, Project, read_project
from paddock.errors import ConfigError, UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import find_declarations, has_entry_of
from paddock.ledger.read import stands
from paddock.plane.agent_files import AgentRecord
from paddock.runtime.past import PastCall
from paddock.text.show import quote


def require_past_agent(project: Project, agent: str, *others: Path) -> None:
    """Refuse a name that no agent has, or ever had: nothing found would say nothing.

    `others` are ledgers from elsewhere, which have agents of their own. Raises: UsageError,
    ConfigError.
    """
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
    """As `require_past_agent`; an agent with an entry needs nothing that governs to load.

    Raises: UsageError, ConfigError: the name is on no record, and what governs does not load.
    """
    try:
        project = read_project(site.root, site.environment)
    except ConfigError:
        if not _has_acted(agent, site.layout.ledger_paths().values()):
            raise
        return
    require_past_agent(project, agent)


def _has_acted(agent: str, ledgers: Iterable[Path]) -> bool:
    return any(stands(path) and has_entry_of(str(path), agent) for path in ledgers)


# A call's paths are relative to its agent's workspace, and an agent that was removed can be
# made again under its name, on another one. There the same paths are other files.


class PastWorkspaces(Struct, frozen=True):
    """The declarations of each agent, and since when each session was at work."""

    declared: Mapping[str, Sequence[StoredEntry]]
    """By the agent's name, oldest first."""
    began: Mapping[str, str]
    """By the session's id: a session keeps the workspace with which it began."""

    def left_since(self, call: PastCall, now: AgentRecord) -> str:
        """The workspace that the call worked on, where its agent has another one now.

        Empty where it is the same, and where no entry tells.
        """
        rows = self.declared.get(call.workspace_of, ())
        began = self.began.get(call.session_id, call.timestamp)
        earlier = [row for row in rows if row.timestamp <= began]
        if not earlier:
            return ""
        then, last = earlier[-1], rows[-1]
        # What was recorded is compared with what was recorded: a plane can be moved. What
        # was edited by hand is on record only once the agent has been at work again.
        is_recorded = last.entry.metadata.get("digest") == now.digest
        present = _workspace(last) if is_recorded else str(now.workspace)
        return "" if _workspace(then) in {"", present} else _workspace(then)


def _workspace(stored: StoredEntry) -> str:
    value = stored.entry.metadata.get("workspace")
    return value if isinstance(value, str) else ""


def past_workspaces(governance: Path, calls: Sequence[PastCall]) -> PastWorkspaces:
    """What the governance ledger tells of the agents of these calls. Raises: HostError."""
    declared: dict[str, list[StoredEntry]] = {}
    for stored in find_declarations(str(governance)) if stands(governance) else ():
        declared.setdefault(stored.entry.agent, []).append(stored)
    began: dict[str, str] = {}
    for call in calls:
        began[call.session_id] = min(call.timestamp, began.get(call.session_id, call.timestamp))
    return PastWorkspaces(declared, began)
