"""The agents behind the server: their runtimes, and the tools that clients are shown."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_types import Tool

from paddock.apps.mcp.asking import ClientApprover
from paddock.assembly import Project, new_session_id, open_inbox, open_runtime, tools_shown
from paddock.plane.policy_files import PROJECT_POLICY, PROJECT_POLICY_JSON
from paddock.runtime.inbox import Inbox
from paddock.runtime.runtime import Runtime

_Seen = tuple[tuple[int, int, int] | None, ...]
"""Of each governing file: its inode, size and time of change."""


@dataclass(frozen=True, slots=True)
class Served:
    """An agent that clients can call."""

    agent: str
    runtime: Runtime
    inbox: Inbox
    tools: Mapping[str, Tool]
    """What is listed, and what may be called: the rest is unknown here."""
    seen: _Seen


class Agents:
    """Opens agents as they are asked for, and again when what governs them has changed.

    A server runs for days, and an operator who tightens a policy means the next call.
    """

    def __init__(self, open_project: Callable[[], Project]) -> None:
        self._open_project = open_project
        self._lock = threading.Lock()
        self._served: dict[str, Served] = {}
        self._session_id = new_session_id()
        self.project = open_project()

    def get(self, name: str | None = None) -> Served:
        """The agent of this name, else the project's own, as it is governed now.

        Raises: UsageError (no such agent), ConfigError, HostError: then it serves nothing.
        """
        with self._lock:
            agent = name or self.project.default_agent
            known = self._served.get(agent)
            if known is not None and known.seen == _look(self.project, agent):
                return known
            if known is not None:
                # Calls that run in it come to their end under the policy that let them in.
                del self._served[agent]
                known.runtime.close()
                self.project = self._open_project()
            opened = self._open(agent)
            self._served[agent] = opened
            return opened

    def close(self) -> None:
        """Let go of everything; calls that still run come to their end first."""
        with self._lock:
            for served in self._served.values():
                served.runtime.close()
            self._served.clear()

    def _open(self, agent: str) -> Served:
        project = self.project
        seen = _look(project, agent)
        shown = frozenset(tools_shown(project, agent))
        runtime = open_runtime(
            project, agent=agent, approver=ClientApprover(), session_id=self._session_id
        )
        tools = {
            schema["name"]: Tool.model_validate(schema)
            for schema in runtime.tools.for_provider("mcp")
            if schema["name"] in shown
        }
        return Served(agent, runtime, open_inbox(project), tools, seen)


def _look(project: Project, agent: str) -> _Seen:
    """What the files that govern this agent look like now."""
    root, environment = project.root.path, project.environment
    lineage = project.agents.lineage(agent)
    files = [
        root / PROJECT_POLICY,
        root / PROJECT_POLICY_JSON,
        project.layout.config / "policy.toml",
        project.layout.config / "policy.json",
        project.layout.admin_config,
        environment.user_config,
        environment.trust,
        *(record.file for record in lineage),
    ]
    return tuple(map(_stat, files))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        # Absent or unreadable: a change of that is a change too.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
