"""A project with an MCP server on it, and the SDK's own client, in either protocol era."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from msgspec import Struct

from tests.support import forked
from tests.support.places import Ground, run_command

PADDOCK = [sys.executable, "-c", forked.CONSOLE]
ERAS = {"handshake": "legacy", "stateless": "2026-07-28"}
POLICY = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
ask = ["tool:file:create asked/**"]
deny = ["tool:file:delete"]
"""


class McpPlace(Ground, frozen=True):
    """The project has a trusted policy."""

    @property
    def variables(self) -> dict[str, str]:
        # PYTHONPATH: the tree that is tested may be a mutant's.
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return {"HOME": str(self.home), **kept}

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """One command, beside whatever servers run."""
        ran = run_command(
            *arguments, variables=self.variables, here=self.project, stdin=given.encode()
        )
        return subprocess.CompletedProcess(arguments, ran.status, ran.out, ran.err)

    def govern(self, policy: str) -> None:
        (self.project / "paddock.toml").write_text(policy)
        assert self.run("trust", "--yes").returncode == 0

    def entries(self, ledger: str, *options: str) -> list[dict[str, Any]]:
        ran = self.run("ledger", "query", "--ledger", ledger, "--json", *options)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def waiting(self) -> list[dict[str, Any]]:
        return json.loads(self.run("approvals", "list", "--json").stdout)

    def stdio(self, *options: str) -> StdioServerParameters:
        program, *arguments = [*forked.command(forked.CONSOLE), "mcp", *options]
        return StdioServerParameters(
            command=program, args=arguments, cwd=str(self.project), env=self.variables
        )

    @contextlib.contextmanager
    def http(self, *options: str) -> Generator["HttpServer", None, None]:
        """A server on a free port of this machine."""
        process = subprocess.Popen(
            [*forked.command(forked.CONSOLE), "mcp", "--http", "127.0.0.1:0", *options],
            cwd=self.project,
            env=self.variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = ""
            while "serving on " not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            url = re.search(r"serving on (\S+)", said)[1]
            token = Path(re.search(r"token of \S+: (.+)", said)[1])
            yield HttpServer(url, token, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            process.stderr.close()


class HttpServer(Struct, frozen=True, dict=True):
    url: str
    token_file: Path
    process: subprocess.Popen[str]

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    @contextlib.asynccontextmanager
    async def client(
        self, era: str, token: str | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=ERAS[era], **options) as client:
                yield client


def make_place(base: Path, policy: str = POLICY) -> McpPlace:
    place = McpPlace(base)
    place.home.mkdir()
    (place.project / ".git").mkdir(parents=True)
    (place.project / "README.md").write_text("hello\n")
    place.govern(policy)
    return place


class Person(Struct, dict=True):
    """Answers every form as it was told, and remembers what it was shown."""

    action: str = "accept"
    content: dict[str, Any] | None = None
    shown: list[str] = None

    def __post_init__(self) -> None:
        self.shown = []

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        self.shown.append(params.message)
        return ElicitResult(action=self.action, content=self.content)


YES = {"approve": True}
