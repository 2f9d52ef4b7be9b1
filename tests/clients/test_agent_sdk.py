"""The Claude Agent SDK itself, where somebody has installed it: it gets results of its own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from paddock.apps.hook.agent_sdk import permission_callback
from tests.support.hooks import Client
from tests.support.places import new_place

ASKS = """
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:create docs/**"]
"""
INSIDE = {"file_path": "notes.md", "content": "x"}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with new_place() as place:
        monkeypatch.setenv("HOME", str(place.home))
        for name in ("CLAUDE_PROJECT_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME"):
            monkeypatch.delenv(name, raising=False)
        yield Client(place)


def test_the_sdk_gets_its_own_results(client: Client):
    sdk = pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed")
    client.write_policy(ASKS)
    context = sdk.ToolPermissionContext(tool_use_id="toolu_1")

    async def no(tool: str, given: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultDeny(message=f"a person said no to {tool}")

    def ask(given: dict[str, Any], *more: Any) -> Any:
        return asyncio.run(permission_callback(client.root, *more)("Write", given, context))

    assert ask(INSIDE) == sdk.PermissionResultAllow()
    assert ask({"file_path": "docs/a"}, no) == sdk.PermissionResultDeny(
        message="a person said no to Write"
    )
    denied = ask({"file_path": "/elsewhere/x"}, no)
    assert isinstance(denied, sdk.PermissionResultDeny)
    assert denied.message.startswith("Path outside project boundary: /elsewhere/x")
