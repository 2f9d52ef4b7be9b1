"""Which workspace an agent had when a call was made, as the governance ledger tells it.

A call's paths are relative to its agent's workspace, and an agent that was removed can be
made again under its name, on another one. There the same paths are other files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import find_declarations
from paddock.ledger.read import stands
from paddock.plane.agent_files import AgentRecord
from paddock.runtime.past import PastCall


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
