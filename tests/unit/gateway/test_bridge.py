"""A server at a URL, through the program that stands in a sandbox for it."""

import http.server
import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from msgspec import Struct, field

import paddock.gateway
from tests.support.mcp_servers import ERAS

pytestmark = pytest.mark.loopback
BRIDGE = Path(paddock.gateway.__file__).with_name("bridge.py")


@pytest.fixture
def logging_as_it_was() -> Generator[None, None, None]:
    """The SDK's server sets up the logging of the whole process."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def url(logging_as_it_was: None) -> Generator[str, None, None]:
    far = MCPServer("far", log_level="ERROR")

    @far.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @far.tool(name="大小")
    def size() -> str:
        return "large"

    @far.tool()
    async def slow(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        return "done"

    class Server(uvicorn.Server):
        started_up = threading.Event()

        async def startup(self, sockets=None) -> None:
            await super().startup(sockets)
            self.started_up.set()

    config = uvicorn.Config(far.streamable_http_app(), port=0, log_level="error", ws="none")
    server = Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.started_up.wait(30)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/mcp"
    server.should_exit = server.force_exit = True
    thread.join(30)


def bridged(url: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(BRIDGE), url])


@pytest.mark.parametrize("era", sorted(ERAS))
def test_a_server_at_a_url_is_asked_as_one_that_runs_here(url: str, era: str):
    seen: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total))

    async def run() -> None:
        async with Client(bridged(url), mode=ERAS[era]) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            assert names == ["add", "大小", "slow"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
            await client.call_tool("slow", {}, progress_callback=progress)

    anyio.run(run)
    assert seen == [(1.0, 2.0)]


class Raw(http.server.BaseHTTPRequestHandler):
    """A server of the earlier era with a session, strict about the order of things."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        world = self.server.world
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message["method"], message.get("id")
        if method == "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            self.say(number, {**result, "serverInfo": info}, {"Mcp-Session-Id": world.session})
        elif self.headers["Mcp-Session-Id"] != world.session:
            self.reply(404, b"", {})
        elif method == "notifications/initialized":
            # Whoever does not wait for the answer comes meanwhile.
            world.asked_early.wait(0.5)
            world.is_ready = True
            self.reply(202, b"", {})
        else:
            if not world.is_ready:
                world.asked_early.set()
            world.seen.append((method, self.headers["MCP-Protocol-Version"], world.is_ready))
            self.answer(world.breaks, number)

    def do_GET(self) -> None:
        self.reply(405, b"", {})

    def answer(self, breaks: str, number: int) -> None:
        if breaks == "length":
            self.reply(200, b'{"jsonrpc"', {"Content-Type": "application/json"}, more=100)
        elif breaks == "stream":
            self.reply(200, b": nothing\n\n", {"Content-Type": "text/event-stream"})
        else:
            self.say(number, {"tools": []}, {})

    def say(self, number: int, result: object, headers: dict[str, str]) -> None:
        content = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        self.reply(200, content, {"Content-Type": "application/json", **headers})

    def reply(self, status: int, content: bytes, headers: dict[str, str], more: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) + more))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class World(Struct):
    """How such a server behaves, and what it was asked."""

    session: str = "first"
    breaks: str = ""
    is_ready: bool = False
    asked_early: threading.Event = field(default_factory=threading.Event)
    seen: list[tuple[str, str | None, bool]] = field(default_factory=list)


@pytest.fixture
def raw() -> Generator[tuple[str, World], None, None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Raw) as server:
        server.world = World()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", server.world
        server.shutdown()


def test_a_server_is_asked_once_it_has_heard_that_all_is_ready_and_told_the_version(raw):
    url, world = raw

    async def run() -> None:
        async with Client(bridged(url), mode="legacy") as client:
            await client.list_tools()

    anyio.run(run)
    assert world.seen == [("tools/list", "2025-06-18", True)]


@pytest.mark.parametrize("breaks", ["length", "stream"])
def test_an_answer_that_is_cut_is_an_error_and_no_silence(raw, breaks: str):
    url, world = raw

    async def run() -> None:
        async with Client(bridged(url), mode="legacy", read_timeout_seconds=20) as client:
            world.breaks = breaks
            with pytest.raises(MCPError) as refused:
                await client.list_tools()
            assert refused.value.code == -32000
            world.breaks = ""
            assert (await client.list_tools()).tools == []

    anyio.run(run)


def test_a_server_that_has_forgotten_its_session_ends_the_bridge_which_says_so(raw):
    url, world = raw
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]

    with subprocess.Popen(
        [sys.executable, BRIDGE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        for line in lines:
            bridge.stdin.write(f"{json.dumps(line)}\n")
        bridge.stdin.flush()
        bridge.stdout.readline()
        world.session = "second"
        bridge.stdin.write('{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n')
        bridge.stdin.flush()
        assert bridge.wait(30) == -signal.SIGTERM
        assert bridge.stderr is not None
        assert bridge.stderr.read() == "the server no longer knows the session"


def test_a_name_that_no_header_holds_is_asked_for_all_the_same(url: str):
    async def run() -> None:
        async with Client(bridged(url), mode=ERAS["stateless"], read_timeout_seconds=20) as client:
            assert (await client.call_tool("大小", {})).content[0].text == "large"

    anyio.run(run)


def test_a_url_where_nobody_answers_is_an_error_and_no_silence():
    async def run() -> None:
        async with Client(bridged("http://127.0.0.1:9/mcp"), mode="legacy"):
            pytest.fail("somebody answered")

    with pytest.raises((MCPError, ExceptionGroup)):
        anyio.run(run)
