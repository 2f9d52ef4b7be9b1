"""The agents behind the server: their runtimes, and the tools that clients are shown."""

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
"""So often what governs may change while it is read."""


_Stamp = tuple[int, int, int, int, int] | None
"""Device, inode, rights, size, change: of a directory that was moved this is another."""
_Looks = dict[Path, _Stamp]


class SeenGovernance(Struct, frozen=True):
    files: _Looks
    """What they say is in the runtime."""
    directories: _Looks
    """They have to be private, or apart from each other; what else changes in them is nothing."""

    def again(self) -> "SeenGovernance":
        return SeenGovernance(_look_at(*self.files), _look_at(*self.directories))

    @property
    def governs(self) -> bool:
        return self.again().says_as(self)

    def says_as(self, other: "SeenGovernance") -> bool:
        identities, others = (
            [stamp and stamp[:2] for stamp in each.directories.values()] for each in (self, other)
        )
        return self.files == other.files and identities == others


class Served(Struct, frozen=True):
    agent: str
    project: Project
    runtime: Runtime
    inbox: Inbox
    tools: Mapping[str, Tool]
    """What is listed, and what may be called: the rest is unknown here."""
    seen: SeenGovernance


class Agents:
    def __init__(self, open_project: Callable[[], Project], *, is_structured: bool = False) -> None:
        self._open_project = open_project
        self.is_structured = is_structured
        self._lock = threading.Lock()
        self._served: dict[str, Served] = {}
        self._session_id = new_session_id()
        self.project = open_project()

    def get(self, name: str | None = None) -> Served:
        with self._lock:
            agent = self.project.agent_named(name)
            known = self._served.get(agent)
            if known is not None:
                if known.seen.again() == known.seen:
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
                break
        else:
            raise errors.HostError(
                "what governs the agent changes all the time", hint="try again when it does not"
            )
        self.project = project
        runtime = open_runtime(
            project, agent=agent, approver=NoApprover(), session_id=self._session_id
        )
        schemas = runtime.tools.for_provider("mcp")
        tools = {schema["name"]: Tool.model_validate(schema) for schema in schemas}
        return Served(agent, project, runtime, open_inbox(project), tools, seen)


def _look(project: Project, agent: str) -> SeenGovernance:
    layout, environment = project.layout, project.environment
    lineage = project.agents.lineage(agent)
    files = _look_at(
        project.root.path / PROJECT_POLICY,
        project.root.path / PROJECT_POLICY_JSON,
        layout.config / "policy.toml",
        layout.config / "policy.json",
        layout.admin_config,
        # Threat: a tool whose package was uninstalled is called on by who was shown it.
        layout.ledger_paths()[LedgerName.PACKAGES],
        environment.user_config,
        environment.trust,
        pins_path(project.root, environment),
        registry_directory(environment),
        *(record.file for record in lineage),
    )
    directories = _look_at(
        project.root.path,
        layout.root,
        layout.agents,
        *(record.file.parent for record in lineage),
        *(record.workspace for record in lineage),
    )
    return SeenGovernance(files, directories)


def _look_at(*places: Path) -> _Looks:
    return {place: _stamp(place) for place in places}


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    rights = found.st_mode << 32 | found.st_uid
    return (found.st_dev, found.st_ino, rights, found.st_size, found.st_ctime_ns)


# In the era in which a call is answered with its question and made again with the answer, a
# command whose effect differs from run to run would never be what was approved. What it left
# when it was asked about is kept, and that is what the answer is for.


def settle_changes(
    served: Served,
    asker: elicitation.ReturningAsker,
    tool: str,
    arguments: Mapping[str, Json],
    bounds: Bounds,
) -> ToolResult | None:
    """What came of the answer; None where no changes wait for it: then the call is made.

    Threat: whatever comes back is the client's to forge, keep and send again. The state is sealed;
    what it names is looked up and compared, and its changes are taken once. Raises: UsageError: the
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
        return _bring_in(served, parked, approval, bounds)
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


def _find(served: Served, returned: elicitation.Returned) -> Parked | None:
    try:
        parked = served.inbox.find(returned.identity)
    except (errors.UsageError, errors.ConfigError):
        # It is gone, or does not load: what becomes of the call is said where it is asked about.
        return None
    return parked if parked.request.digest == returned.digest else None


def _bring_in(served: Served, parked: Parked, approval: Approval, bounds: Bounds) -> ToolResult:
    try:
        granted = grant_here(served.project, parked.id, approval.by, parked)
        return resume(served.project, granted, bounds)
    except errors.ApprovalExpiredError as error:
        note, hint = error.message, error.hint
    except errors.UsageError:
        note, hint = elicitation.ANSWERED_BEFORE, elicitation.ASK_ANEW
    # Nobody can say yes to it any more: the call is asked about anew.
    served.inbox.forget_waiting(parked.request)
    late = Approval(False, approval.by, errors.ApprovalExpiredError.code, note, hint=hint)
    return _refused(served, parked, late, bounds)


def _refused(served: Served, parked: Parked, approval: Approval, bounds: Bounds) -> ToolResult:
    request = parked.request
    refusal = refusal_without(approval, request.actions[0])
    return served.runtime.refuse(request.tool, refusal, bounds)
