"""Paddock's own files, directories and state on a plane, whatever a profile or a file says."""

from pathlib import Path

import pytest

from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, Writer, load_policy
from paddock.policy.presets import OWN_FILES
from paddock.values.decisions import WRITING_OPERATIONS, Action, Agent, Decision, Outcome, PlaneKind

ADMIN = (Agent("admin", "open"),)
BARE = load_policy(None, None, PlaneKind.BARE)
PROJECT = load_policy(None, None, PlaneKind.PROJECT)
BELOW = ("ops/plane*",)
AROUND = load_policy(None, None, PlaneKind.PROJECT, BELOW)
LIFTING = PolicySource("paddock.toml", b"[paths]\nprotected = []\nsecret = []\n")
READING = (("file", "view"), ("search", "grep"), ("search", "find"), ("search", "ls"))
OWN_DIRECTORIES = (
    *("HOT", "HO2", "HO1", "agents", "agents/kid", "agents/new"),
    *("HOT/kernel", "HOT/scripts", "HOT/tests", "HO2/kernel", "HO2/scratch", "HO2/tests"),
    *("HO1/kernel", "HO1/tests", "hot", "Agents/Kid", "ho2/SCRATCH", "."),
)


def ask(policy: Policy, head: tuple[str, str], path: str, writer=Writer.FILE_TOOL) -> Decision:
    return decide(policy, ADMIN, (Action(*head, path),), writer)


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("head", sorted(WRITING_OPERATIONS))
def test_no_agent_touches_a_planes_own_directories_and_every_agent_those_of_a_project(head, writer):
    found = {path: ask(BARE, head, path, writer) for path in OWN_DIRECTORIES}
    assert {path: (said.code, said.rule.source) for path, said in found.items()} == dict.fromkeys(
        OWN_DIRECTORIES, ("policy.protected", "paths.own")
    )
    assert found["agents"].reason == (
        '"agents" is one of Paddock\'s own directories ("/agents", built-in)'
    )
    in_a_project = {path: ask(PROJECT, head, path, writer).outcome for path in OWN_DIRECTORIES}
    assert set(in_a_project.values()) == {Outcome.ALLOW}


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("policy", [PROJECT, BARE, load_policy(LIFTING, None, PlaneKind.PROJECT)])
@pytest.mark.parametrize("head", sorted(WRITING_OPERATIONS))
def test_no_agent_writes_where_a_client_finds_its_hooks_and_servers(policy, head, writer):
    for path in (
        *(".claude/settings.json", ".claude/settings.local.json", "sub/.claude/settings.json"),
        *(".codex/config.toml", ".codex/hooks.json", "a/b/.Codex/Hooks.JSON"),
        *(".mcp.json", "sub/.MCP.json"),
    ):
        said = ask(policy, head, path, writer)
        assert (said.outcome, said.code, said.rule.source) == (
            Outcome.DENY,
            "policy.protected",
            "paths.own",
        )
        assert "is where a coding agent's client finds its hooks and MCP servers" in said.reason


def test_what_else_stands_in_a_clients_folder_is_anybodys_and_its_settings_are_read():
    for path in (".claude/agents/a.md", ".claude/commands", ".codex/notes", "claude/settings.json"):
        assert ask(PROJECT, ("file", "create"), path).outcome is Outcome.ALLOW, path
    for path in ("mcp.json", ".mcp.json.example", ".vscode/mcp.json", "docs/.mcp.json.md"):
        assert ask(PROJECT, ("file", "create"), path).outcome is Outcome.ALLOW, path
    for path in (".claude/settings.json", ".mcp.json"):
        assert ask(PROJECT, ("file", "view"), path).outcome is Outcome.ALLOW, path


@pytest.mark.parametrize("path", [".claude", "sub/.codex", ".CLAUDE"])
def test_no_link_takes_the_place_of_a_clients_folder(path):
    assert ask(PROJECT, ("file", "link"), path).code == "policy.protected"
    assert ask(PROJECT, ("file", "create"), path).outcome is Outcome.ALLOW
    assert ask(PROJECT, ("file", "link"), f"{path}/skills").outcome is Outcome.ALLOW


@pytest.mark.parametrize("head", sorted(WRITING_OPERATIONS))
def test_below_the_planes_directories_agents_work(head):
    for path in (
        *("HO2/scratch/a", "HO2/scratch/agents", "HOT/kernel/a.py", "HO1/kernel/a", "HO2/new"),
        *("agents/kid/workspace", "agents/kid/workspace/agent.json", "x/agents", "HOTTER"),
        *("x/HO2", "agent", "agents.txt", "HO2/scratch/agents/kid"),
    ):
        assert ask(BARE, head, path).outcome is Outcome.ALLOW, path


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("head", sorted(WRITING_OPERATIONS))
def test_no_agent_writes_in_a_plane_that_stands_below_its_workspace(head, writer):
    own = ("ops/plane*", "ops/plane*/HOT/config/policy.toml", "ops/plane*/HO2/scratch/a")
    for policy in (AROUND, load_policy(LIFTING, None, PlaneKind.PROJECT, BELOW)):
        for path in (*own, "OPS/Plane*/hot/x"):
            said = ask(policy, head, path, writer)
            assert (said.code, said.rule.source) == ("policy.protected", "paths.own"), path
        for path in ("ops", "ops/plane", "ops/planes/HOT/config/policy.toml", "HOT/config/a"):
            assert ask(policy, head, path, writer).outcome is Outcome.ALLOW, path
    for path in own:
        assert ask(PROJECT, head, path, writer).outcome is Outcome.ALLOW, path


@pytest.mark.parametrize("head", READING)
def test_a_plane_below_is_read_but_for_what_it_keeps(head):
    for path in ("ops/plane*", "ops/plane*/HOT/config/policy.toml", "ops/plane*/HO2/ledger/a"):
        assert ask(AROUND, head, path).outcome is Outcome.ALLOW, path
    for path in ("ops/plane*/objects/a", "ops/plane*/HO1/ledger/ho1m.d/a", "OPS/plane*/OBJECTS"):
        assert ask(AROUND, head, path).code == "policy.secret", path
        assert ask(PROJECT, head, path).outcome is Outcome.ALLOW, path


def test_a_plane_below_makes_it_another_policy():
    others = [load_policy(None, None, PlaneKind.PROJECT, below) for below in ((), ("a",), ("b",))]
    digests = [policy.digest for policy in (PROJECT, AROUND, *others)]
    assert len(set(digests)) == 4
    assert digests[0] == digests[2]


@pytest.mark.parametrize("head", READING)
def test_the_planes_directories_and_own_files_are_read(head):
    for path in (*OWN_DIRECTORIES, "HO1/contracts/PRC-A.json", "HOT/config/policy.toml"):
        assert ask(BARE, head, path).outcome is Outcome.ALLOW, path


def test_what_paddock_reads_as_configuration_or_trusts_is_written_by_no_agent():
    own = (
        *("HO1/contracts", "HO1/contracts/PRC-A.json", "ho1/Contracts/PRC-A.json", "plane.json"),
        *("HOT/registries", "HOT/registries/specs/SPEC-A.json", "HOT/registries/frameworks/F.json"),
        *("HOT/registries/keys/k.json", "HOT/registries/approvals/calls/a.json"),
        *("HOT/schemas", "HOT/schemas/admin_config.schema.json"),
    )
    for path in own:
        for head in sorted(WRITING_OPERATIONS):
            assert ask(BARE, head, path).code == "policy.protected", path
            assert ask(BARE, head, path, Writer.COMMAND).code == "policy.protected", path
            assert ask(PROJECT, head, path).outcome is Outcome.ALLOW, path
    for path in ("HO1/contracts.txt", "HO2/scratch/plane.json", "HOT/tests/registries/a"):
        assert ask(BARE, ("file", "create"), path).outcome is Outcome.ALLOW, path


@pytest.mark.parametrize("head", READING)
def test_no_agent_reads_or_searches_what_paddock_keeps_and_all_read_the_ledgers(head):
    kept = (
        *("objects", "objects/ab12", "Objects/ab12", "objects/changes/x"),
        *("HOT/ledger/governance.jsonl.d", "HO1/ledger/ho1m.jsonl.d/index"),
    )
    found = {path: ask(BARE, head, path) for path in kept}
    assert {path: (said.code, said.rule.source) for path, said in found.items()} == dict.fromkeys(
        kept, ("policy.secret", "paths.own")
    )
    open_ones = ("HOT/ledger/governance.jsonl", "HO2/scratch/objects/a", "HOT/ledger", "object")
    for path in open_ones:
        assert ask(BARE, head, path).outcome is Outcome.ALLOW, path
    for path in kept:
        assert ask(PROJECT, head, path).outcome is Outcome.ALLOW, path


def test_no_policy_file_opens_what_paddock_keeps():
    for paths in ("secret = []", 'secret = ["a", "!/objects/"]', 'safe = ["/objects/"]'):
        for trusted in (True, False):
            source = PolicySource("policy.toml", f"[paths]\n{paths}\n".encode(), trusted)
            policy = load_policy(source, None, PlaneKind.BARE)
            assert ask(policy, ("file", "view"), "objects/ab12").code == "policy.secret", paths
            assert policy.guards.find_secret("objects/ab12") is not None
            assert policy.guards.find_secret("HO2/scratch/b") is None


def test_all_that_a_bare_plane_is_made_of_is_held(tmp_path: Path):
    layout = PlaneLayout(tmp_path, PlaneKind.BARE)
    own = [path.relative_to(tmp_path).as_posix() for path in layout.own_directories()]
    for path in (*BARE_DIRECTORIES, *own):
        assert ask(BARE, ("file", "delete"), path).code == "policy.protected", path


def test_every_directory_above_an_own_file_is_held():
    for text in OWN_FILES[PlaneKind.BARE]:
        if not text.startswith("/"):
            continue
        parts = text.strip("/").split("/")
        for depth in range(1, len(parts)):
            path = "/".join(parts[:depth]).replace("*", "any")
            is_own = any(each.find(path) for each in BARE.guards.layers("own"))
            assert is_own or BARE.guards.is_above_own(path), path
