"""Reading a small file over MCP: Paddock's server beside others, over stdio.

    python bench/mcp_peers.py [--turns 15]

`initialize`, then `tools/call` of each server's own way to read the same file. Boot is from
the start of the process to its first answer to a read; then, in turns, reads one after the
other and reads with 32 in flight. Paddock's are judged, and recorded durably before the answer
is let go; the others read. Beside it:

  raw loop   reads JSON, reads the file, writes JSON: the floor
  SDK        one tool on the official Python SDK's server, of the version that Paddock's
             server is made with, under the same interpreter: it sets the pace
  MCP filesystem server   of npm

Ratios are medians of the turns' ratios. A server that cannot be had is said.
"""

import argparse
import importlib.metadata
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from peers.installing import Unavailable, npm_program, npm_version
from raw_client import RawClient, ServerFailed

import paddock

PADDOCK = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
HERE = Path(__file__).resolve().parent
POLICY = "[mcp]\ncalls_max = 32\n"
TEXT = "hello\n"
IN_FLIGHT = 32
CALLS = 32
BOOTS = 5
RAW = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {}
    if message["method"] == "tools/call":
        with open(message["params"]["arguments"]["path"]) as file:
            result = {"content": [{"type": "text", "text": file.read()}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


class Server(Struct, frozen=True, dict=True):
    """One server, and how a file is read with it."""

    name: str
    version: str
    command: list[str]
    tool: str
    path: str = "README.md"

    @property
    def request(self) -> dict[str, Any]:
        return {"name": self.tool, "arguments": {"path": self.path}}

    def start(self, root: Path, variables: dict[str, str]) -> RawClient:
        """A client of it that has read the file. Raises: Unavailable."""
        try:
            client = RawClient(self.command, root, variables)
            said = client.call(self.tool, {"path": self.path})
        except (OSError, ServerFailed) as error:
            raise Unavailable(str(error)) from error
        if TEXT.strip() not in said["content"][0]["text"]:
            raise Unavailable(f"it answered {said['content']}")
        return client


class Found(Struct, dict=True):
    """What was measured of a server: milliseconds, and of each turn microseconds a call."""

    boots: list[float]
    alone: list[float]
    """Of every call."""
    turns: list[float]
    """The median of each turn."""
    together: list[float]
    """With 32 in flight."""


def servers(root: Path) -> tuple[list[Server], list[str]]:
    """Who can be had, ours first; who cannot, and why."""
    found = [
        Server("Paddock", paddock.__version__, [*PADDOCK, "mcp"], "view"),
        Server("raw loop", "", [sys.executable, "-c", RAW], "read"),
    ]
    sdk = [sys.executable, str(HERE / "peers" / "mcp_sdk.py"), str(root)]
    found.append(Server("SDK", importlib.metadata.version("mcp"), sdk, "read"))
    package, name = "@modelcontextprotocol/server-filesystem", "MCP filesystem server"
    try:
        command = [npm_program(package, "mcp-server-filesystem"), str(root)]
    except Unavailable as reason:
        return found, [f"{name}: {reason}"]
    path = str(root / "README.md")
    return [*found, Server(name, npm_version(package), command, "read_text_file", path)], []


def boot_ms(server: Server, root: Path, variables: dict[str, str]) -> float:
    began = time.perf_counter()
    with server.start(root, variables):
        return (time.perf_counter() - began) * 1e3


def turn(client: RawClient, server: Server, found: Found) -> None:
    """Some calls one after the other, and as many with 32 in flight."""
    alone = []
    for _ in range(CALLS):
        began = time.perf_counter()
        client.ask("tools/call", server.request)
        alone.append((time.perf_counter() - began) * 1e6)
    found.alone += alone
    found.turns.append(statistics.median(alone))
    began = time.perf_counter()
    for begun in [client.begin("tools/call", server.request) for _ in range(IN_FLIGHT)]:
        said = begun.answer.get()
        if said.get("result", {}).get("isError", "error" in said):
            raise ServerFailed(f"{server.name}: {said}")
    found.together.append((time.perf_counter() - began) / IN_FLIGHT * 1e6)


def measure(
    ours: list[Server], root: Path, variables: dict[str, str], turns: int
) -> dict[str, Found]:
    """Each server's figures, from turns that alternate."""
    found = {server.name: Found([], [], [], []) for server in ours}
    for _ in range(BOOTS):
        for server in ours:
            found[server.name].boots.append(boot_ms(server, root, variables))
    with ExitStack() as stack:
        clients = [stack.enter_context(server.start(root, variables)) for server in ours]
        for number in range(turns + 1):
            for server, client in zip(ours, clients, strict=True):
                # The first turn is for warming up.
                kept = found[server.name] if number else Found([], [], [], [])
                turn(client, server, kept)
    return found


def median_ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def show(found: dict[str, Found]) -> None:
    """A line for each, and what Paddock's is to it."""
    ours = found["Paddock"]
    print(f"{'':24}{'boot ms':>9}{'p50 us':>9}{'p99 us':>9}{'32 in flight, us a call':>25}")
    for name, each in found.items():
        p99 = statistics.quantiles(each.alone, n=100)[98]
        print(
            f"{name:24}{statistics.median(each.boots):9.0f}{statistics.median(each.alone):9.0f}"
            f"{p99:9.0f}{statistics.median(each.together):25.0f}"
        )
    for name, each in found.items():
        if each is not ours:
            print(
                f"Paddock to {name}: boot {median_ratio(ours.boots, each.boots):.2f}, "
                f"p50 {median_ratio(ours.turns, each.turns):.2f}, "
                f"32 in flight {median_ratio(ours.together, each.together):.2f}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        home, root = Path(base, "home"), Path(base, "project").resolve()
        home.mkdir()
        (root / ".git").mkdir(parents=True)
        (root / "README.md").write_text(TEXT, encoding="utf-8")
        (root / "paddock.toml").write_text(POLICY, encoding="utf-8")
        variables = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        trust = [*PADDOCK, "trust", "--yes"]
        subprocess.run(trust, cwd=root, env=variables, check=True, capture_output=True)
        here, away = servers(root)
        kept: list[Server] = []
        for server in here:
            try:
                server.start(root, variables).end()
                kept.append(server)
            except Unavailable as reason:
                away.append(f"{server.name}: {reason}")
        print(", ".join(f"{server.name} {server.version}".strip() for server in kept))
        for who in away:
            print(f"not here: {who}")
        show(measure(kept, root, variables, options.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
