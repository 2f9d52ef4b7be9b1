"""What files of an agent's workspace held before: in the history, by what the ledger tells."""

from typing import Final

from msgspec import Struct

from paddock.assembly.history import look_at_history
from paddock.assembly.project import Project
from paddock.errors import ConfigError, HostError, IntegrityError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, FoundEffects, find_declarations, query
from paddock.plane.layout import LedgerName
from paddock.runtime.past import past_calls
from paddock.tools.spec import Change
from paddock.values.entries import TOOL_RESULT

_CHANGES_LOOKED_AT_MAX: Final = 100
"""The newest of a path: who wants one that is older has been away for long."""


class PlaneEarlier(Struct, frozen=True):
    """Of the workspace that `agent` has now; see `paddock.tools.ports.Earlier`."""

    project: Project
    agent: str

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        try:
            with look_at_history(self.project) as store:
                # First: a version that nobody keeps costs no look at the ledger.
                if not store.has(version) or store.stored_bytes(version) > bytes_max:
                    return None
                if not self._stood_at(path, version):
                    return None
                content = store.read(version)
        except (ConfigError, HostError, IntegrityError):
            return None  # what cannot be read, or is damaged, is not shown
        return content if len(content) <= bytes_max else None

    def _stood_at(self, path: str, version: str) -> bool:
        """Whether a call on this workspace found that version at that path, or left it there.

        Threat: the store knows contents by their digests alone, and holds those of every
        agent. Whoever knows the digest of what it may not view would name it as the
        version of a file of its own, and read the content in the difference.
        """
        paths = self.project.layout.ledger_paths()
        wanted = Filter(event_type=TOOL_RESULT, path=path)
        rows = query(str(paths[LedgerName.HO1M]), wanted, last=_CHANGES_LOOKED_AT_MAX).entries
        calls = past_calls(FoundEffects(rows, (), ()), ())
        agents = {
            call.agent
            for call in calls
            if any((path, version) in _stood(change) for change in call.changes)
        }
        if not agents:
            return False
        declared = find_declarations(str(paths[LedgerName.GOVERNANCE]))
        return any(self._shares_workspace(agent, declared) for agent in agents)

    def _shares_workspace(self, agent: str, declared: tuple[StoredEntry, ...]) -> bool:
        """Whether that agent worked where this one does, and neither ever worked elsewhere.

        Threat: the same path is another file in another workspace.
        """
        ours, theirs = _workspaces(self.agent, declared), _workspaces(agent, declared)
        # The admin agent of a bare plane has no declaration, and one workspace.
        return ours == theirs and (len(ours) == 1 or (not ours and agent == self.agent))


def _stood(change: Change) -> tuple[tuple[str, str | None], ...]:
    """Paths with the versions that a change found and left there."""
    return (change.path, change.before), (change.to or change.path, change.after)


def _workspaces(agent: str, declared: tuple[StoredEntry, ...]) -> frozenset[str]:
    return frozenset(
        str(row.entry.metadata.get("workspace")) for row in declared if row.entry.agent == agent
    )
