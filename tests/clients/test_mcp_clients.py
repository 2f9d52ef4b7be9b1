"""The MCP server with real clients: Claude Code, Codex and the MCP Inspector.

The clients come from npm: `npm install --prefix tests/clients`, or PADDOCK_CLIENTS names a
directory with their node_modules. Where they are not, these tests skip and say so. Models
are played by a server on this machine; no address but loopback is needed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateways import table
from tests.support.mcp_servers import McpPlace, make_place
from tests.support.wire_server import Raw, Speak, WireServer
from tests.support.wire_words import calls, responses_events, says

HERE = Path(os.environ.get("PADDOCK_CLIENTS") or Path(__file__).parent)
BIN = HERE / "node_modules" / ".bin"
TIMEOUT_S = 120

pytestmark = pytest.mark.loopback


def client(name: str) -> str:
    program = BIN / name
    if not program.exists():
        pytest.skip(f"{name} is not installed; npm install --prefix {HERE}")
    return str(program)


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return make_place(tmp_path)


def variables(place: McpPlace, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(BIN), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"HOME": str(place.home), "PATH": path, **more}


def run(place: McpPlace, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=place.project,
        env=variables(place, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def installed(place: McpPlace, name: str, *options: str) -> None:
    assert place.run("mcp", "install", "--client", name, *options).returncode == 0


# --- Inspector ---------------------------------------------------------------------


def inspect(place: McpPlace, era: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = client("mcp-inspector")
    server = ["--config", ".mcp.json", "--server", "paddock", "--protocol-era", era]
    return run(place, [program, "--cli", *server, *options])


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_the_tools_and_nothing_wrong_with_their_schemas(place, era):
    installed(place, "claude")
    ran = inspect(place, era, "--method", "tools/list", "--strict")
    assert ran.returncode == 0, ran.stderr
    tools = json.loads(ran.stdout)["tools"]
    assert [tool["name"] for tool in tools] == [
        "create_file",
        "str_replace",
        "view",
        "grep",
        "find",
        "ls",
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_a_tool_and_sees_a_refusal(place, era):
    installed(place, "claude")
    call = ["--method", "tools/call", "--tool-name"]
    ran = inspect(place, era, *call, "view", "--tool-arg", "path=README.md")
    assert (ran.returncode, "hello" in ran.stdout) == (0, True), ran.stderr
    refused = inspect(place, era, *call, "view", "--tool-arg", "path=../x")
    assert (refused.returncode, "path.escapes_root" in refused.stdout) == (5, True)


def test_the_inspector_needs_the_token_over_http(place):
    program = client("mcp-inspector")
    with place.http() as server:
        listing = [program, "--cli", server.url, "--transport", "http", "--method", "tools/list"]
        assert run(place, listing).returncode == 3
        token = f"Authorization: Bearer {server.token}"
        ran = run(place, [*listing, "--header", token])
        assert (ran.returncode, "create_file" in ran.stdout) == (0, True), ran.stderr


# --- Claude Code -------------------------------------------------------------------


def claude(place: McpPlace, server: WireServer) -> subprocess.CompletedProcess[str]:
    command = [client("claude"), "-p", "go", "--output-format", "json"]
    command += ["--mcp-config", ".mcp.json", "--strict-mcp-config"]
    command += ["--allowedTools", "mcp__paddock"]
    return run(
        place,
        command,
        ANTHROPIC_BASE_URL=server.url,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CONFIG_DIR=str(place.home / ".claude"),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        ENABLE_TOOL_SEARCH="false",
    )


def results_of(request: dict) -> list[dict]:
    """The tool results of an Anthropic request's last user message."""
    content = next(m["content"] for m in reversed(request["messages"]) if m["role"] == "user")
    return [block for block in content if block["type"] == "tool_result"]


def test_claude_code_calls_a_tool_and_its_id_finds_the_call_in_the_ledger(place):
    client("claude")
    installed(place, "claude")
    with WireServer() as server:
        server.reply(
            Speak(
                calls(
                    ("mcp__paddock__view", {"path": "README.md"}),
                    ("mcp__paddock__view", {"path": "../outside"}),
                )
            ),
            Speak(says("done")),
        )
        ran = claude(place, server)
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        results = {each["tool_use_id"]: each for each in results_of(server.requests[-1].body)}
    seen, refused = results["call_1"], results["call_2"]
    assert "hello" in json.dumps(seen["content"])
    assert "path.escapes_root" in json.dumps(refused["content"])
    assert refused["is_error"] is True
    names = {tool["name"] for tool in server.requests[0].body["tools"]}
    assert "mcp__paddock__view" in names
    assert "mcp__paddock__delete_file" not in names
    found = place.entries("ho1m", "--call", "call_1")
    assert [entry["event_type"] for entry in found] == ["TOOL_INTENT", "TOOL_RESULT"]


JOINED = '[profiles.standard]\nallow = ["tool:file:view", "tool:mcp:call mcp__paddock__view"]\n'


def decided_and_done(place: McpPlace) -> list[str]:
    """What the ledger has of the call, but for what the client reported afterwards."""
    found = [entry["event_type"] for entry in place.entries("ho1m", "--call", "call_1")]
    return [each for each in found if each != "HOOK_EVENT"]


def test_claude_codes_hook_and_server_know_a_call_by_one_id(place):
    client("claude")
    place.govern(JOINED)
    installed(place, "claude")
    assert place.run("hook", "install", "--yes").returncode == 0
    with WireServer() as server:
        server.reply(
            Speak(calls(("mcp__paddock__view", {"path": "README.md"}))), Speak(says("done"))
        )
        ran = claude(place, server)
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        (seen,) = results_of(server.requests[-1].body)
    assert "hello" in json.dumps(seen["content"])
    assert decided_and_done(place) == ["HOOK_DECISION", "TOOL_INTENT", "TOOL_RESULT"]


def test_what_claude_code_cannot_answer_is_kept_and_runs_after_a_grant(place):
    client("claude")
    installed(place, "claude")
    create = Speak(calls(("mcp__paddock__create_file", {"path": "asked/a", "content": "x"})))
    with WireServer() as server:
        server.reply(create, Speak(says("done")))
        claude(place, server)
        (refused,) = results_of(server.requests[-1].body)
        assert "approval.unavailable" in json.dumps(refused["content"])
        (kept,) = place.waiting()
        assert not (place.project / "asked").exists()
        place.run("approvals", "grant", kept["id"])
        server.reply(create, Speak(says("done")))
        claude(place, server)
    assert (place.project / "asked/a").read_text() == "x"


# --- Codex -------------------------------------------------------------------------


PROVIDER = """
model = "scripted-model"
model_provider = "here"
approval_policy = "never"
[analytics]
enabled = false
[features]
plugins = false
[model_providers.here]
name = "here"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "HERE_KEY"
"""


def codex_call(name: str, arguments: dict) -> Raw:
    """A call as Codex wants it of a model: tool and server apart."""
    events = responses_events(calls((name, arguments)))
    for _, event in events:
        for item in [event.get("item"), *event.get("response", {}).get("output", [])]:
            if item is not None and item.get("type") == "function_call":
                item["namespace"] = "mcp__paddock"
    lines = [f"event: {kind}\ndata: {json.dumps(event)}\n\n" for kind, event in events]
    return Raw("".join(lines).encode())


def codex_views(place: McpPlace, *options: str) -> str:
    """What the model is told when it asks Codex for the file by Paddock's server."""
    return codex_asks(place, codex_call("view", {"path": "README.md"}), *options)


def codex_asks(place: McpPlace, call: Raw, *options: str) -> str:
    config = place.home / ".codex" / "config.toml"
    with WireServer() as server:
        entry = config.read_text()
        config.write_text(PROVIDER.format(url=server.url) + entry)
        server.reply(call, Speak(says("done")))
        command = [client("codex"), "exec", "--skip-git-repo-check", "--json", *options]
        command += ["-s", "read-only", "go"]
        ran = run(place, command, HERE_KEY="none", CODEX_HOME=str(config.parent))
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        (output,) = [
            item
            for item in server.requests[-1].body["input"]
            if item.get("type") == "function_call_output"
        ]
    return json.dumps(output["output"])


def test_codex_calls_a_tool_and_its_id_finds_the_call_in_the_ledger(place):
    client("codex")
    installed(place, "codex")
    assert re.search("hello", codex_views(place))
    found = place.entries("ho1m", "--call", "call_1")
    assert [entry["event_type"] for entry in found] == ["TOOL_INTENT", "TOOL_RESULT"]


def test_codexs_hook_and_server_know_a_call_by_one_id(place):
    client("codex")
    place.govern(JOINED)
    installed(place, "codex")
    hook = place.run("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    assert hook.returncode == 0, hook.stderr
    assert re.search("hello", codex_views(place, "--dangerously-bypass-hook-trust"))
    assert decided_and_done(place) == ["HOOK_DECISION", "TOOL_INTENT", "TOOL_RESULT"]


# --- Other servers behind the gateway ----------------------------------------------

BEHIND = '[profiles.standard]\nallow = ["tool:*"]\n'


@pytest.fixture
def behind(tmp_path: Path) -> McpPlace:
    """One other server, and what it says reviewed."""
    place = make_place(tmp_path, BEHIND + table("plain"))
    assert place.run("mcp", "review", "--yes").returncode == 0
    return place


@pytest.mark.needs("stage")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_uses_a_server_behind_the_gateway(behind: McpPlace, era: str):
    installed(behind, "claude")
    listed = inspect(behind, era, "--method", "tools/list", "--strict")
    assert (listed.returncode, "plain__say" in listed.stdout) == (0, True), listed.stderr
    call = ["--method", "tools/call", "--tool-name", "plain__say", "--tool-arg", "text=heard"]
    ran = inspect(behind, era, *call)
    assert (ran.returncode, "heard" in ran.stdout) == (0, True), ran.stderr
    for method, found in (("resources/list", "plain+made"), ("prompts/list", "plain__plan")):
        ran = inspect(behind, era, "--method", method)
        assert (ran.returncode, found in ran.stdout) == (0, True), ran.stderr


@pytest.mark.needs("stage")
def test_claude_code_calls_a_server_behind_the_gateway(behind: McpPlace):
    client("claude")
    installed(behind, "claude")
    call = Speak(calls(("mcp__paddock__plain__say", {"text": "heard"})))
    with WireServer() as server:
        server.reply(call, Speak(says("done")))
        ran = claude(behind, server)
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        (seen,) = results_of(server.requests[-1].body)
    assert "heard" in json.dumps(seen["content"])
    found = behind.entries("ho1m", "--call", "call_1")
    assert [entry["event_type"] for entry in found] == ["TOOL_INTENT", "TOOL_RESULT"]


@pytest.mark.needs("stage")
def test_codex_calls_a_server_behind_the_gateway(behind: McpPlace):
    client("codex")
    installed(behind, "codex")
    # Codex asks about whatever may change something; here the door decides.
    leave = ["-c", 'mcp_servers.paddock.default_tools_approval_mode="approve"']
    assert "heard" in codex_asks(behind, codex_call("plain__say", {"text": "heard"}), *leave)
