"""The Agent SDK's permission callback: policy's answer, on record, and never by default a yes."""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.errors import ConfigError
from paddock.integrations.claude_agent_sdk import (
    Permission,
    Requested,
    judge_permission,
    permission_callback,
)
from tests.support.hooks import Client

ASKS = """
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:create docs/**"]
otherwise = { "tool:shell:*" = "ask" }
"""
INSIDE = {"file_path": "notes.md", "content": "x"}


@pytest.fixture(autouse=True)
def at_home(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's environment; it was started by a client that stands elsewhere."""
    monkeypatch.setenv("HOME", str(client.place.home))
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", "/somewhere/else")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME"):
        monkeypatch.delenv(name, raising=False)


def judged(client: Client, tool: str, given: Any, **more: Any) -> Permission:
    return asyncio.run(judge_permission(Requested(tool, given, client.root, **more)))


def recorded(client: Client) -> list[tuple[str, str]]:
    return [(entry.decision, entry.metadata["answer"]) for entry in client.entries()]


def test_what_policy_allows_is_allowed_and_on_record(client: Client):
    assert judged(client, "Write", INSIDE, tool_use_id="toolu_1") == Permission("allow")

    (entry,) = client.entries()
    assert (entry.agent, entry.call_id, entry.metadata["actions"]) == (
        "main",
        "toolu_1",
        ["tool:file:create notes.md"],
    )
    assert recorded(client) == [("allow", "allow")]


@pytest.mark.parametrize(
    ("tool", "given", "reason"),
    [
        ("Write", {"file_path": "/elsewhere/x"}, "Path outside project boundary: /elsewhere/x"),
        ("Edit", {"file_path": ".git/config"}, "Protected path: .git/config cannot be modified"),
        ("Read", {"file_path": ".env"}, "Secret path: .env cannot be read via Read"),
        ("Bash", {"command": "echo x > .git/config"}, "Protected path: .git/config"),
    ],
)
def test_what_policy_denies_is_denied_whoever_could_be_asked(tool, given, reason, client: Client):
    for can_ask in (False, True):
        said = judged(client, tool, given, can_ask=can_ask)
        assert (said.behavior, said.message.startswith(reason)) == ("deny", True)
        assert "agent_sandbox/" in said.message
    assert recorded(client) == [("deny", "deny")] * 2


@pytest.mark.parametrize(
    ("tool", "given", "decision"),
    [
        ("Write", {"file_path": "docs/a"}, "ask"),
        ("Bash", {"command": "make"}, "ask"),
        # Outside the project it is not ours to grant.
        ("Read", {"file_path": "/usr/share/x"}, "allow"),
    ],
)
def test_what_policy_asks_or_leaves_open_is_denied_where_nobody_answers(
    tool, given, decision, client: Client
):
    client.write_policy(ASKS)

    denied = judged(client, tool, given)
    asked = judged(client, tool, given, can_ask=True)

    assert (denied.behavior, asked.behavior) == ("deny", "ask")
    assert denied.message == f"{asked.message} (no approver can be reached here)"
    assert recorded(client) == [(decision, "deny"), (decision, "ask")]


TYPES = """
[agents."reviewer"]
profile = "locked"
"""
NOT_KNOWN = "the type of this sub-agent is not known"


def test_a_sub_agent_that_does_not_say_what_it_is_may_little_and_hears_why(client: Client):
    assert judged(client, "Write", INSIDE).behavior == "allow"
    said = judged(client, "Write", INSIDE, agent_id="a1")
    assert (said.behavior, NOT_KNOWN in said.message) == ("deny", True)


def test_a_sub_agent_of_a_known_type_has_the_profile_of_its_type(client: Client):
    client.write_policy(TYPES)

    writer = judged(client, "Write", INSIDE, agent_id="a1", agent_type="writer")
    reviewer = judged(client, "Write", INSIDE, agent_id="a2", agent_type="reviewer")

    assert writer == Permission("allow")
    assert (reviewer.behavior, NOT_KNOWN in reviewer.message) == ("deny", False)
    assert [entry.agent for entry in client.entries()] == ["writer", "reviewer"]


def test_the_callback_looks_the_type_up_as_it_is_known_at_each_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    results = SimpleNamespace(
        PermissionResultAllow=lambda updated_input: ("allow", updated_input),
        PermissionResultDeny=lambda message: ("deny", message),
    )
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", results)
    types: dict[str, str] = {}
    can_use_tool = permission_callback(client.root, agent_types=types)
    context = SimpleNamespace(tool_use_id="toolu_1", agent_id="a1")

    early = asyncio.run(can_use_tool("Write", INSIDE, context))
    types["a1"] = "writer"
    late = asyncio.run(can_use_tool("Write", INSIDE, context))

    assert (early[0], NOT_KNOWN in early[1]) == ("deny", True)
    assert late == ("allow", None)


@pytest.mark.parametrize(
    "given",
    [{"file_path": 7}, {}, {"file_path": "a", "n": float("nan")}, {"file_path": {1, 2}}, "text"],
)
def test_an_input_that_is_not_understood_is_denied(given, client: Client):
    said = judged(client, "Write", given, can_ask=True)

    assert (said.behavior, "the call was not understood" in said.message) == ("deny", True)


def test_under_a_policy_that_does_not_load_it_is_denied_and_on_record(client: Client):
    client.write_policy("nonsense", trusted=False)

    said = judged(client, "Write", INSIDE, can_ask=True)

    assert (said.behavior, "paddock.toml" in said.message) == ("deny", True)
    assert [entry.metadata["code"] for entry in client.entries()] == ["config.invalid"]


def test_a_ledger_that_cannot_be_written_denies(client: Client):
    judged(client, "Write", INSIDE)
    ledger = client.ledger
    ledger.unlink()
    ledger.mkdir()

    assert judged(client, "Write", INSIDE).behavior == "deny"


@pytest.mark.needs("stage")
def test_a_command_for_the_sandbox_is_allowed_as_one(client: Client):
    client.write_policy(
        '[hook]\nsandbox_shell = true\n[profiles.standard]\nallow = ["tool:shell:*"]\n'
    )

    said = judged(client, "Bash", {"command": "make"})
    lasting = judged(client, "Bash", {"command": "make", "run_in_background": True})
    elsewhere = Requested("Bash", {"command": "make"}, str(client.place.outside))
    kept_out = asyncio.run(judge_permission(elsewhere))

    assert said.behavior == "allow"
    assert said.updated_input is not None
    assert "/apps/hook/exec.py' '--plane' " in str(said.updated_input["command"])
    assert lasting.updated_input is not None
    assert " '--background' " in str(lasting.updated_input["command"])
    assert (kept_out.behavior, "cannot run there" in kept_out.message) == ("deny", True)


def test_without_the_sdk_there_is_no_callback(client: Client, monkeypatch: pytest.MonkeyPatch):
    del client
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)

    with pytest.raises(ConfigError, match="not installed"):
        permission_callback()
