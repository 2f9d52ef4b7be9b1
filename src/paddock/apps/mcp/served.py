"""The agents behind the server: their runtimes, and the tools that clients are shown."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from mcp_types import Tool

from paddock.apps.mcp.asking import ClientApprover
from paddock.assembly.approvals import open_inbox
from paddock.assembly.ids import new_session_id
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.errors import HostError
from paddock.plane.discover import registry_directory
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PROJECT_POLICY, PROJECT_POLICY_JSON
from paddock.runtime.inbox import Inbox
from paddock.runtime.runtime import Runtime

_OPENED_MAX: Final = 5
"""So often what governs may change while it is read."""


class _Stamp(NamedTuple):
    """How a place looks: of a directory that was moved this is another."""

    device: int
    inode: int
    rights: int
    """Mode and owner."""
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Looks:
    """How some places looked; None where there was nothing, or nothing readable."""

    places: tuple[Path, ...]
    stamps: tuple[_Stamp | None, ...]

    @classmethod
    def of(cls, *places: Path) -> "Looks":
        return cls(places, tuple(map(_stamp, places)))

    @property
    def are_current(self) -> bool:
        """Whether every place looks as it did."""
        return self.stamps == tuple(map(_stamp, self.places))

    @property
    def identities(self) -> list[tuple[int, int] | None]:
        """Which files or directories they are, whatever became of them."""
        return [None if stamp is None else (stamp.device, stamp.inode) for stamp in self.stamps]


@dataclass(frozen=True, slots=True)
class Seen:
    """What governed an agent when it was last looked through."""

    files: Looks
    """What they say is in the runtime."""
    directories: Looks
    """They have to be private, or apart from each other; what else changes in them is nothing."""

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to look through again."""
        return self.files.are_current and self.directories.are_current

    @property
    def governs(self) -> bool:
        """Whether it is in force still: what was asked under it counts."""
        places = Looks.of(*self.directories.places)
        return self.files.are_current and places.identities == self.directories.identities

    def says_as(self, other: "Seen") -> bool:
        are_same = self.directories.identities == other.directories.identities
        return are_same and self.files == other.files


@dataclass(frozen=True, slots=True)
class Served:
    agent: str
    project: Project
    runtime: Runtime
    inbox: Inbox
    tools: Mapping[str, Tool]
    """What is listed, and what may be called: the rest is unknown here."""
    seen: Seen


class Agents:
    """Opens agents as they are asked for, and again when what governs them has changed.

    A server runs for days, and an operator who tightens a policy means the next call.
    """

    def __init__(self, open_project: Callable[[], Project], *, is_structured: bool = False) -> None:
        """With `is_structured`, clients are offered structured content beside the text."""
        self._open_project = open_project
        self.is_structured = is_structured
        self._lock = threading.Lock()
        self._served: dict[str, Served] = {}
        self._session_id = new_session_id()
        self.project = open_project()

    def get(self, name: str | None = None) -> Served:
        """The agent of this name, else the project's own, as it is governed now.

        Raises: UsageError (no such agent), ConfigError, HostError: then it serves nothing.
        """
        with self._lock:
            agent = self.project.agent_named(name)
            known = self._served.get(agent)
            if known is not None:
                if known.seen.is_current:
                    return known
                seen = _look(self.project, agent)
                if seen.says_as(known.seen):
                    self._served[agent] = known = replace(known, seen=seen)
                    return known
            # Threat: what cannot be read must not leave the old policy in force. Until there
            # is another runtime, the old one stays known, and is not current.
            opened = self._open(agent)
            self._served[agent] = opened
            if known is not None:
                # Calls that run in it come to their end under the policy that let them in.
                known.runtime.close()
            return opened

    def close(self) -> None:
        """Let go of everything; calls that still run come to their end first."""
        with self._lock:
            for served in self._served.values():
                served.runtime.close()
            self._served.clear()

    def _open(self, agent: str) -> Served:
        """The agent as it is governed now: the policy is read between two looks that agree."""
        project = self.project
        for _ in range(_OPENED_MAX):
            before = _look(project, agent)
            project = self._open_project()
            seen = _look(project, agent)
            if seen.files == before.files:
                self.project = project
                return self._open_runtime(project, agent, seen)
        raise HostError(
            "what governs the agent changes all the time", hint="try again when it does not"
        )

    def _open_runtime(self, project: Project, agent: str, seen: Seen) -> Served:
        runtime = open_runtime(
            project, agent=agent, approver=ClientApprover(), session_id=self._session_id
        )
        tools = {
            schema["name"]: Tool.model_validate(schema)
            for schema in runtime.tools.for_provider("mcp")
        }
        return Served(agent, project, runtime, open_inbox(project), tools, seen)


def _look(project: Project, agent: str) -> Seen:
    """Look through what governs this agent; raises as `Agents.get`."""
    layout, environment = project.layout, project.environment
    lineage = project.agents.lineage(agent)
    files = Looks.of(
        project.root.path / PROJECT_POLICY,
        project.root.path / PROJECT_POLICY_JSON,
        layout.config / "policy.toml",
        layout.config / "policy.json",
        layout.admin_config,
        # Threat: a tool whose package was uninstalled is called on by who was shown it.
        layout.ledger_paths()[LedgerName.PACKAGES],
        environment.user_config,
        environment.trust,
        registry_directory(environment),
        *(record.file for record in lineage),
    )
    directories = Looks.of(
        project.root.path,
        layout.root,
        layout.agents,
        *(record.file.parent for record in lineage),
        *(record.workspace for record in lineage),
    )
    return Seen(files, directories)


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    rights = found.st_mode << 32 | found.st_uid
    return _Stamp(found.st_dev, found.st_ino, rights, found.st_size, found.st_ctime_ns)
