"""The Claude Agent SDK with the client that it brings, in front of a model's server of the tests."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
    query,
)

import paddock
from paddock.integrations.claude_agent_sdk import PaddockServer, permission_callback
from tests.support.places import SECRET, Place
from tests.support.real_clients import Session, wants
from tests.support.wire_server import WireServer
from tests.support.wire_words import Said, says

Recorded = Callable[[], list[tuple[str, str, str]]]
ASKS = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
ask = ["tool:file:create docs/**", "tool:file:delete **"]
"""


@pytest.fixture
def root(
    place: Place, write_policy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    for name in ("CLAUDE_PROJECT_DIR", "CLAUDECODE", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    write_policy(ASKS)
    return place.project


@pytest.fixture
def model() -> Iterator[WireServer]:
    with WireServer() as server:
        yield server


def run(root: Path, model: WireServer, *turns: Said, **options: Any) -> Session:
    """One query with the real client, in a home of its own."""
    home = os.environ["HOME"]
    model.say(*turns, says("done"))

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "go"}}

    async def ask() -> str:
        env = {
            "HOME": home,
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "no-key",
            "CLAUDE_CONFIG_DIR": f"{home}/.claude",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        given = ClaudeAgentOptions(cwd=root, env=env, setting_sources=[], max_turns=20, **options)
        messages = [message async for message in query(prompt=prompts(), options=given)]
        (result,) = [each for each in messages if isinstance(each, ResultMessage)]
        return str(result.result)

    out = asyncio.run(ask())
    assert model.replies_left == 0, out
    return Session(out, "", tuple(model.requests))


@pytest.mark.loopback
def test_the_model_calls_the_tools_of_the_program(
    root: Path, model: WireServer, recorded: Recorded
):
    view = wants("mcp__paddock__view", path="README.md")
    edit = wants("mcp__paddock__str_replace", path="README.md", old_str="teh", new_str="the")
    secret = wants("mcp__paddock__view", path=".env")
    delete = wants("mcp__paddock__delete_file", path="src/a.py")
    asked: list[str] = []

    def approve(request: paddock.ApprovalRequest) -> bool:
        asked.append(request.tool)
        return False

    with PaddockServer(root, approver=approve) as server:
        came_to = run(
            root, model, view, edit, secret, delete,
            mcp_servers={server.name: server.config}, allowed_tools=server.allowed_tools, tools=[],
        )  # fmt: skip

    answers = [came_to.answers()[each.calls[0].id] for each in (view, edit, secret, delete)]
    assert came_to.out == "done"
    assert "hello teh world" in answers[0]
    assert (root / "README.md").read_text() == "# Widgets\nhello the world\n"
    assert "error[policy.secret]" in answers[2]
    assert "error[approval.refused]" in answers[3]
    assert asked == ["delete_file"]
    assert SECRET not in came_to.seen()
    assert [(tool, event) for event, tool, _ in recorded() if event != "TOOL_INTENT"] == [
        ("view", "TOOL_RESULT"),
        ("str_replace", "TOOL_RESULT"),
        ("view", "TOOL_DENIED"),
        ("delete_file", "TOOL_DENIED"),
    ]


@pytest.mark.loopback
def test_the_callback_judges_the_clients_own_tools(root: Path, model: WireServer):
    good = wants("Write", file_path=str(root / "notes.md"), content="mine\n")
    bad = wants("Write", file_path=str(root / ".git/hooks/post-commit"), content="x")
    asked = wants("Write", file_path=str(root / "docs/plan.md"), content="x")
    came_to = run(root, model, good, bad, asked, can_use_tool=permission_callback(root))

    answers = [came_to.answers()[each.calls[0].id] for each in (good, bad, asked)]
    assert (root / "notes.md").read_text() == "mine\n"
    assert "Protected path: .git/hooks/post-commit" in answers[1]
    assert "no approver can be reached here" in answers[2]
    assert not (root / ".git/hooks").exists()
    assert not (root / "docs").exists()


@pytest.mark.loopback
def test_the_callback_of_a_server_lets_its_own_tools_judge_themselves(
    root: Path, model: WireServer
):
    view = wants("mcp__paddock__view", path="README.md")
    own = wants("Write", file_path=str(root / ".env"), content="x")
    with PaddockServer(root) as server:
        came_to = run(
            root, model, view, own,
            mcp_servers={server.name: server.config}, can_use_tool=server.permission_callback(),
        )  # fmt: skip

    answers = [came_to.answers()[each.calls[0].id] for each in (view, own)]
    assert "hello teh world" in answers[0]
    assert "Protected path: .env" in answers[1]


def test_the_sdk_gets_its_own_results(root: Path):
    async def no(tool: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultDeny(message=f"a person said no to {tool}")

    def ask(path: str, *more: Any) -> Any:
        context = ToolPermissionContext(tool_use_id="toolu_1")
        given = {"file_path": path, "content": "x"}
        return asyncio.run(permission_callback(root, *more)("Write", given, context))

    assert ask("notes.md") == PermissionResultAllow()
    assert ask("docs/a", no) == PermissionResultDeny(message="a person said no to Write")
    denied = ask("/elsewhere/x")
    assert isinstance(denied, PermissionResultDeny)
    assert denied.message.startswith("Path outside project boundary: /elsewhere/x")


def test_an_open_runtime_stays_open(root: Path):
    with paddock.open(root) as runtime:
        with PaddockServer(runtime) as server:
            assert set(server.config) == {"type", "name", "instance"}
            assert "mcp__paddock__view" in server.allowed_tools
        assert not runtime.is_closed
