"""A server at a URL, through the program that stands in a sandbox for it."""

import logging
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
            assert [each.name for each in (await client.list_tools()).tools] == ["add", "slow"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
            await client.call_tool("slow", {}, progress_callback=progress)

    anyio.run(run)
    assert seen == [(1.0, 2.0)]


def test_a_url_where_nobody_answers_is_an_error_and_no_silence():
    async def run() -> None:
        async with Client(bridged("http://127.0.0.1:9/mcp"), mode="legacy"):
            pytest.fail("somebody answered")

    with pytest.raises((MCPError, ExceptionGroup)):
        anyio.run(run)
