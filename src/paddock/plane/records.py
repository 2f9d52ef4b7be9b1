"""Make governance ledger entries about planes, policies and agents, and `paddock where`'s answer.

Pure: the ledger appends them, with time and sequence number.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from paddock.plane.agents import AgentRecord
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import DualGate, Environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.trust import PolicyFile, PolicyFiles, TrustRecord
from paddock.values import entries as events
from paddock.values.calls import Json
from paddock.values.decisions import Permissions

if TYPE_CHECKING:
    from paddock.plane.admin import AdminConfig  # only of a bare plane


def plane_created(layout: PlaneLayout, root: Path) -> events.Entry:
    return events.Entry(
        event_type=events.PLANE_CREATED,
        reason=f"a {layout.kind} plane was created",
        metadata={"plane": str(layout.root), "kind": layout.kind, "root": str(root)},
    )


def policy_loaded(files: PolicyFiles, policy_digest: str) -> events.Entry:
    return events.Entry(
        event_type=events.POLICY_LOADED,
        reason="the policy in force was loaded",
        metadata={
            "policy_digest": policy_digest,
            "kind": files.kind.value,
            "project": _file(files.project),
            "user": _file(files.user),
        },
    )


def policy_given(given: PolicyFile, policy_digest: str) -> events.Entry:
    return events.Entry(
        event_type=events.POLICY_GIVEN,
        reason="a program opened the workspace with its own policy",
        metadata={"policy_digest": policy_digest, "program": _file(given)},
    )


def server_reviewed(name: str, version: str, digests: Mapping[str, str], by: str) -> events.Entry:
    """`digests` of the definitions (such as tools) that the server offers, by kind and name."""
    return events.Entry(
        event_type=events.MCP_REVIEWED,
        reason=f"reviewed by {by}",
        metadata={
            "server": name,
            "version": events.clean(version),
            "definitions": {events.clean(key): digest for key, digest in digests.items()},
            "by": by,
        },
    )


def policy_trusted(record: TrustRecord, by: str = "") -> events.Entry:
    """`by` says how, such as `person`, `--yes` or `init`; empty for trust found unrecorded."""
    return events.Entry(
        event_type=events.POLICY_TRUSTED,
        decision="allow",
        reason=f"trusted by {by}" if by else "found trusted, but not recorded",
        metadata={
            "path": record.path,
            "digest": record.digest,
            "trusted_at": record.trusted_at,
            "by": by,
        },
    )


def config_changed(
    before: Mapping[str, Json], files: Mapping[str, Json], config: "AdminConfig"
) -> events.Entry:
    """Record the digest of every file: the next change is detected against this entry."""
    changed = sorted(name for name in {*before, *files} if before.get(name) != files.get(name))
    return events.Entry(
        event_type=events.CONFIG_CHANGED,
        reason=f"changed: {', '.join(changed)}" if before else "the configuration was first loaded",
        metadata={
            "files": dict(files),
            "before": dict(before),
            "changed": list(changed),
            "agent_id": config.agent_id,
            "tool_profile": config.tool_profile,
            "permissions": _permissions(config.permissions),
        },
    )


def dual_gate(gate: DualGate, session_id: str, agent: str) -> events.Entry:
    return events.Entry(
        event_type=events.DUAL_GATE,
        decision="allow" if gate.is_open else "deny",
        reason=str(gate),
        session_id=session_id,
        agent=agent,
        metadata=gate.as_json(),
    )


def agent_created(record: AgentRecord) -> events.Entry:
    return events.Entry(
        event_type=events.AGENT_CREATED,
        reason="the agent was declared",
        agent=record.agent.name,
        metadata=_agent(record),
    )


def agent_changed(before_digest: str, record: AgentRecord) -> events.Entry:
    return events.Entry(
        event_type=events.AGENT_CHANGED,
        reason="the agent's declaration changed",
        agent=record.agent.name,
        metadata={"before_digest": before_digest, **_agent(record)},
    )


def agent_removed(name: str, kept: Path) -> events.Entry:
    return events.Entry(
        event_type=events.AGENT_REMOVED,
        reason="the agent was undeclared",
        agent=name,
        metadata={"kept": str(kept)},
    )


def _file(file: PolicyFile | None) -> Json:
    if file is None:
        return None
    return {
        "path": str(file.path),
        "digest": file.digest,
        "trusted": file.trusted,
        "reason": file.reason,
    }


def _permissions(permissions: Permissions) -> dict[str, Json]:
    return {name: list(patterns) for name, patterns in asdict(permissions).items()}


def _agent(record: AgentRecord) -> dict[str, Json]:
    return {
        "file": str(record.file),
        "digest": record.digest,
        "profile": record.agent.profile,
        "workspace": str(record.workspace),
        "parent": record.agent.parent,
        "toolsets": list(record.agent.toolsets),
        "permissions": _permissions(record.agent.permissions),
    }


# The answer of `paddock where`.

MADE_WITH_DEV: Final = "made with --dev: changes of this plane need no approval"


class WhereReport(Struct, frozen=True):
    root: ProjectRoot
    layout: PlaneLayout
    files: PolicyFiles | None
    """None where the policy does not load."""
    environment: Environment
    gate: DualGate | None = None
    made_with_dev: bool = False

    @property
    def policy(self) -> tuple[Path, ...] | None:
        return None if self.files is None else self.files.paths()

    def as_json(self) -> dict[str, Json]:
        """`{root, plane, policy[] or null, ledgers{name: path}, user_config}`.

        A bare plane also has `dual_gate` and `made_with_dev`.
        """
        gate: dict[str, Json] = {}
        if self.gate is not None:
            gate = {"dual_gate": self.gate.as_json(), "made_with_dev": self.made_with_dev}
        return {
            "root": str(self.root.path),
            "plane": str(self.layout.root),
            "policy": None if self.policy is None else [str(path) for path in self.policy],
            "ledgers": {name: str(path) for name, path in self.layout.ledger_paths().items()},
            "user_config": str(self.environment.user_config),
            **gate,
        }
