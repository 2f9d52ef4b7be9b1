"""Open the runtimes of the served agents, and open them again when their policy changes."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mcp_types import Tool
from msgspec import Struct
from msgspec.structs import replace

from paddock import errors
from paddock.apps.mcp import elicitation
from paddock.assembly.history import open_inbox
from paddock.assembly.inbox_answers import grant_here, resume
from paddock.assembly.project import Project, new_session_id
from paddock.assembly.runtimes import open_runtime
from paddock.gateway.definitions import pins_path
from paddock.plane.discover import registry_directory
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PROJECT_POLICY, PROJECT_POLICY_JSON
from paddock.runtime.approvals import Approval, NoApprover
from paddock.runtime.inbox import Inbox, Parked
from paddock.runtime.prepared import Bounds
from paddock.runtime.question import refusal_without, with_question
from paddock.runtime.records import REFUSED, answered_later
from paddock.runtime.runtime import Runtime
from paddock.values.calls import Json, ToolResult

_OPENED_MAX: Final = 5
"""Attempts to read the policy while another process changes it."""

_Stamp = tuple[int, int, int, int, int] | None
"""Device, inode, mode and owner, size, change time. A moved directory gets another stamp."""
_Stamps = dict[Path, _Stamp]


class PolicySnapshot(Struct, frozen=True):
    files: _Stamps
    """Their content determines the runtime."""
    directories: _Stamps
    """Must stay private or separate. Other changes in them do not matter."""

    def again(self) -> "PolicySnapshot":
        return PolicySnapshot(_stamp_all(*self.files), _stamp_all(*self.directories))

    @property
    def is_current(self) -> bool:
        return self.again().has_same_content(self)

    def has_same_content(self, other: "PolicySnapshot") -> bool:
        identities, others = (
            [stamp and stamp[:2] for stamp in each.directories.values()] for each in (self, other)
        )
        return self.files == other.files and identities == others


class ServedAgent(Struct, frozen=True):
    agent: str
    project: Project
    runtime: Runtime
    inbox: Inbox
    tools: Mapping[str, Tool]
    """The tools that are listed and may be called; any other name is unknown."""
    seen: PolicySnapshot


class Agents:
    def __init__(self, open_project: Callable[[], Project], *, is_structured: bool = False) -> None:
        self._open_project = open_project
        self.is_structured = is_structured
        self._lock = threading.Lock()
        self._served: dict[str, ServedAgent] = {}
        self._session_id = new_session_id()
        self.project = open_project()

    def get(self, name: str | None = None) -> ServedAgent:
        with self._lock:
            agent = self.project.agent_named(name)
            known = self._served.get(agent)
            if known is not None:
                if known.seen.again() == known.seen:
                    return known
                seen = _take_snapshot(self.project, agent)
                if seen.has_same_content(known.seen):
                    self._served[agent] = known = replace(known, seen=seen)
                    return known
            # Threat: an unreadable policy must not leave the old one in force. The old runtime
            # stays registered until the new one opens, but is not current and is not returned.
            opened = self._open(agent)
            self._served[agent] = opened
            if known is not None:
                # Running calls finish under the policy that allowed them.
                known.runtime.close()
            return opened

    def close(self) -> None:
        with self._lock:
            for served in self._served.values():
                served.runtime.close()
            self._served.clear()

    def _open(self, agent: str) -> ServedAgent:
        """Open the agent under its current policy, read between two snapshots that agree."""
        project = self.project
        for _ in range(_OPENED_MAX):
            before = _take_snapshot(project, agent)
            project = self._open_project()
            seen = _take_snapshot(project, agent)
            if seen.files == before.files:
                break
        else:
            raise errors.HostError(
                "the agent's policy keeps changing while it is read", hint="try again later"
            )
        self.project = project
        runtime = open_runtime(
            project, agent=agent, approver=NoApprover(), session_id=self._session_id
        )
        schemas = runtime.tools.for_provider("mcp")
        tools = {schema["name"]: Tool.model_validate(schema) for schema in schemas}
        return ServedAgent(agent, project, runtime, open_inbox(project), tools, seen)


def _take_snapshot(project: Project, agent: str) -> PolicySnapshot:
    layout, environment = project.layout, project.environment
    lineage = project.agents.lineage(agent)
    files = _stamp_all(
        project.root.path / PROJECT_POLICY,
        project.root.path / PROJECT_POLICY_JSON,
        layout.config / "policy.toml",
        layout.config / "policy.json",
        layout.admin_config,
        # Threat: a client still calls a tool whose package was uninstalled.
        layout.ledger_paths()[LedgerName.PACKAGES],
        environment.user_config,
        environment.trust,
        pins_path(project.root, environment),
        registry_directory(environment),
        *(record.file for record in lineage),
    )
    directories = _stamp_all(
        project.root.path,
        layout.root,
        layout.agents,
        *(record.file.parent for record in lineage),
        *(record.workspace for record in lineage),
    )
    return PolicySnapshot(files, directories)


def _stamp_all(*places: Path) -> _Stamps:
    return {place: _stamp(place) for place in places}


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    rights = found.st_mode << 32 | found.st_uid
    return (found.st_dev, found.st_ino, rights, found.st_size, found.st_ctime_ns)


# In the 2026 era the client repeats the call with the answer. A command whose effect differs from
# run to run would then never match its approval, so its changes are kept, and the answer applies
# to the kept changes.


def settle_changes(
    served: ServedAgent,
    asker: elicitation.ReturningAsker,
    tool: str,
    arguments: Mapping[str, Json],
    bounds: Bounds,
) -> ToolResult | None:
    """Apply the answer to the kept changes; None if no changes wait for it, so that the call runs.

    Threat: the client can forge, keep and replay answers. The state is sealed, the request that it
    names is compared with the call, and its changes are applied once. Raises: UsageError: the
    runtime is closed. IntegrityError, ConfigError, HostError.
    """
    returned = asker.returned
    parked = None if returned is None else _find(served, returned)
    if returned is None or parked is None or parked.changes is None or parked.state != "waiting":
        return None
    request = parked.request
    if (request.agent, request.tool, request.arguments) != (served.agent, tool, arguments):
        return None
    approval = elicitation.approval_of(returned.said, asker.name)
    if approval.is_granted:
        return _apply_changes(served, parked, approval, bounds)
    if approval.code == errors.ApprovalRefusedError.code:
        served.inbox.record(answered_later(replace(parked, answered_by=approval.by), REFUSED))
        served.inbox.forget_waiting(request)
        return _refused(served, parked, approval, bounds)
    kept = replace(
        approval,
        note=f"{approval.note}; it is kept as {parked.id}",
        request_id=parked.id,
        changes_digest=parked.changes_digest,
    )
    return with_question(_refused(served, parked, kept, bounds), kept)


def _find(served: ServedAgent, returned: elicitation.ReturnedAnswer) -> Parked | None:
    try:
        parked = served.inbox.find(returned.identity)
    except (errors.UsageError, errors.ConfigError):
        # Missing or unreadable: the call then runs, and the approver reports the problem.
        return None
    return parked if parked.request.digest == returned.digest else None


def _apply_changes(
    served: ServedAgent, parked: Parked, approval: Approval, bounds: Bounds
) -> ToolResult:
    try:
        granted = grant_here(served.project, parked.id, approval.by, parked)
        return resume(served.project, granted, bounds)
    except errors.ApprovalExpiredError as error:
        note, hint = error.message, error.hint
    except errors.UsageError:
        note, hint = elicitation.ANSWERED_BEFORE, elicitation.ASK_AGAIN
    # The request can no longer be approved: the next call asks again.
    served.inbox.forget_waiting(parked.request)
    late = Approval(False, approval.by, errors.ApprovalExpiredError.code, note, hint=hint)
    return _refused(served, parked, late, bounds)


def _refused(served: ServedAgent, parked: Parked, approval: Approval, bounds: Bounds) -> ToolResult:
    request = parked.request
    refusal = refusal_without(approval, request.actions[0])
    return served.runtime.refuse(request.tool, refusal, bounds)
