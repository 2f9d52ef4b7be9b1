"""The page of the Claude Agent SDK can be followed, and its example runs."""

from collections.abc import Iterator

import pytest

from tests.frameworks.conftest import Reader
from tests.support.real_clients import wants
from tests.support.wire_server import WireServer
from tests.support.wire_words import says

pytestmark = pytest.mark.loopback


@pytest.fixture
def model(reader: Reader) -> Iterator[WireServer]:
    with WireServer() as server:
        reader.environment.update(
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY="no-key",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )
        yield server


def test_the_page_can_be_followed(reader: Reader, model: WireServer):
    model.say(wants("mcp__paddock__view", path=".env"), says("That file is not for me."))

    assert reader.follow("claude-agent-sdk.md") == []


def test_the_example_runs(reader: Reader, model: WireServer):
    reader.write_policy(
        '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete **"]\n'
    )
    edit = {"path": "README.md", "old_str": "teh", "new_str": "the"}
    model.say(
        wants("mcp__paddock__str_replace", **edit),
        wants("mcp__paddock__delete_file", path="README.md"),
        wants("Write", file_path=str(reader.project / ".env"), content="x"),
        says("README.md is mended, and .env is not for me."),
    )

    assert reader.run("claude_agent.py").splitlines() == [
        "call: mcp__paddock__str_replace",
        "call: mcp__paddock__delete_file",
        "asked: tool:file:delete README.md",
        "call: Write",
        "README.md is mended, and .env is not for me.",
    ]
    assert (reader.project / "README.md").read_text().endswith("Widgets for the web.\n")
    assert (reader.project / ".env").read_text() == "TOKEN=of-nobody\n"
