from pathlib import Path

from paddock.plane import records
from paddock.plane.admin import AdminConfig
from paddock.plane.agents import AgentRecord
from paddock.plane.environment import DualGate
from paddock.plane.layout import PlaneLayout
from paddock.plane.trust import PolicyFile, PolicyFiles, TrustRecord
from paddock.values.decisions import Agent, PlaneKind
from paddock.values.entries import Entry, digest_of

RECORD = AgentRecord(
    agent=Agent("writer", "standard", ("search",), parent="main"),
    workspace=Path("/w"),
    owns_workspace=False,
    file=Path("/p/agents/writer/agent.json"),
    digest="sha256:new",
)
DECLARED = {
    "file": "/p/agents/writer/agent.json",
    "digest": "sha256:new",
    "profile": "standard",
    "workspace": "/w",
    "parent": "main",
    "toolsets": ["search"],
    "permissions": {"read": ["**"], "write": ["**"], "forbidden": []},
}


def test_a_new_plane_is_recorded():
    assert records.plane_created(PlaneLayout(Path("/p"), PlaneKind.PROJECT), Path("/w")) == Entry(
        "PLANE_CREATED",
        reason="a project plane was created",
        metadata={"plane": "/p", "kind": "project", "root": "/w"},
    )


def test_a_loaded_policy_is_recorded_with_its_files_and_their_trust():
    own = PolicyFile(Path("/w/paddock.toml"), b"x", trusted=False, reason="it was never trusted")
    assert records.policy_loaded(PolicyFiles(PlaneKind.PROJECT, own, None), "sha256:all") == Entry(
        "POLICY_LOADED",
        reason="the policy in force was loaded",
        metadata={
            "policy_digest": "sha256:all",
            "kind": "project",
            "project": {
                "path": "/w/paddock.toml",
                "digest": digest_of(b"x"),
                "trusted": False,
                "reason": "it was never trusted",
            },
            "user": None,
        },
    )


def test_trust_is_recorded_with_who_gave_it():
    record = TrustRecord("/w/paddock.toml", "sha256:x", "2026-01-01T00:00:00+00:00")
    assert records.policy_trusted(record, "init") == Entry(
        "POLICY_TRUSTED",
        decision="allow",
        reason="trusted by init",
        metadata={
            "path": "/w/paddock.toml",
            "digest": "sha256:x",
            "trusted_at": "2026-01-01T00:00:00+00:00",
            "by": "init",
        },
    )


def test_what_becomes_of_an_agent_is_recorded():
    assert records.agent_created(RECORD) == Entry(
        "AGENT_CREATED", reason="the agent was declared", agent="writer", metadata=DECLARED
    )
    assert records.agent_changed("sha256:old", RECORD) == Entry(
        "AGENT_CHANGED",
        reason="the agent's declaration changed",
        agent="writer",
        metadata={"before_digest": "sha256:old", **DECLARED},
    )
    kept = Path("/p/agents/writer/agent.removed-1.json")
    assert records.agent_removed("writer", kept) == Entry(
        "AGENT_REMOVED",
        reason="the agent was undeclared",
        agent="writer",
        metadata={"kept": str(kept)},
    )


def test_a_changed_configuration_is_recorded_with_every_files_digest():
    config = AdminConfig(file=Path("/p/HOT/config/admin_config.json"), digest="sha256:new")
    policy = "HOT/config/policy.toml"
    before = {"HOT/config/admin_config.json": "sha256:old", policy: "sha256:p"}
    after = {"HOT/config/admin_config.json": "sha256:new", policy: "sha256:p"}
    assert records.config_changed(before, after, config) == Entry(
        "CONFIG_CHANGED",
        reason="changed: HOT/config/admin_config.json",
        metadata={
            "files": after,
            "before": before,
            "changed": ["HOT/config/admin_config.json"],
            "agent_id": "admin",
            "tool_profile": "production",
            "permissions": {
                "read": ["**"],
                "write": ["**"],
                "forbidden": ["HOT/kernel/*", "HOT/scripts/*"],
            },
        },
    )
    assert records.config_changed({}, after, config).reason == "the configuration was first loaded"
    assert records.config_changed(after, {}, config).metadata["changed"] == sorted(after)


def test_what_the_dual_gate_found_is_recorded_for_a_session():
    gate = DualGate("development", variable=True, accepted=True)
    assert records.dual_gate(gate, "SES-1", "admin") == Entry(
        "DUAL_GATE",
        decision="allow",
        reason="open: development tools are on",
        session_id="SES-1",
        agent="admin",
        metadata=gate.as_json(),
    )
    assert records.dual_gate(DualGate(), "SES-1", "admin").decision == "deny"
