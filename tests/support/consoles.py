"""A console that runs on a governed project, and a program that talks to it as a page does."""

import contextlib
import http.client
import json
import signal
import subprocess
from collections.abc import Generator, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from tests.support import forked
from tests.support.mcp_servers import McpPlace, make_place

POLICY = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
ask = ["tool:file:create asked/**"]
deny = ["tool:file:delete"]
"""


class ConsoleAnswer(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.value["error"]["code"]


class ConsoleServer(Struct, dict=True):
    origin: str
    code: str
    process: subprocess.Popen[str]
    token: str = ""

    @property
    def host(self) -> str:
        return self.origin.partition("//")[2]

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> ConsoleAnswer:
        """One request; a header that is given as empty is not sent."""
        wanted = {"Host": self.host, "Authorization": f"Bearer {self.token}"}
        if body is not None:
            wanted["Content-Type"] = "application/json"
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None:
                wanted["Content-Length"] = str(len(body))
            for name, value in wanted.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body)
            found = connection.getresponse()
            named = {name.lower(): value for name, value in found.getheaders()}
            return ConsoleAnswer(found.status, named, found.read())

    def get(
        self, path: str, /, headers: dict[str, str] | None = None, **query: Any
    ) -> ConsoleAnswer:
        asked = f"?{urlencode(query)}" if query else ""
        return self.send("GET", f"/api/{path}{asked}", **(headers or {}))

    def post(
        self, path: str, /, headers: dict[str, str] | None = None, **body: Any
    ) -> ConsoleAnswer:
        content = json.dumps(body).encode()
        return self.send("POST", f"/api/{path}", content, **(headers or {}))

    def exchange(self, code: str) -> ConsoleAnswer:
        return self.post("exchange", {"Authorization": ""}, code=code)

    @contextlib.contextmanager
    def stream(self) -> Generator["ConsoleStream", None, None]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Host": self.host, "Authorization": f"Bearer {self.token}"}
        connection.request("GET", "/api/stream", headers=headers)
        response = connection.getresponse()
        try:
            yield ConsoleStream(response)
        finally:
            # Both hold the socket.
            response.close()
            connection.close()


class ConsoleStream(Struct, frozen=True):
    response: HTTPResponse

    def events(self) -> Iterator[tuple[str, Any]]:
        name = ""
        with contextlib.suppress(http.client.IncompleteRead, ConnectionResetError):
            while line := self.response.readline().decode():
                kind, _, value = line.rstrip("\n").partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    yield name, json.loads(value)

    def until(self, name: str, **members: Any) -> Any:
        """The next event of that name with these members."""
        for kind, value in self.events():
            if kind == name and members.items() <= value.items():
                return value
        raise AssertionError(f"the stream ended without {name} {members}")


@contextlib.contextmanager
def serving(
    place: McpPlace,
    *options: str,
    is_exchanged: bool = True,
    command: str = "web --no-browser",
    variables: dict[str, str] | None = None,
    streams: dict[str, int] | None = None,
) -> Generator[ConsoleServer, None, None]:
    process = subprocess.Popen(
        [
            *forked.command(forked.CONSOLE),
            *(*command.split(), "--json", *options),
        ],
        cwd=place.project,
        env={**place.variables, **(variables or {})},
        stdout=subprocess.PIPE,
        text=True,
        **(streams or {}),
    )
    try:
        said = json.loads(process.stdout.readline())
        origin, _, code = said["url"].partition("/#code=")
        server = ConsoleServer(origin, code, process)
        if is_exchanged:
            server.token = server.exchange(code).value["token"]
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def serving_demo(place: McpPlace) -> contextlib.AbstractContextManager[ConsoleServer]:
    return serving(place, command="demo --web --no-browser")


def console_place(base: Path, policy: str = POLICY) -> McpPlace:
    return make_place(base, policy)


def make_call(place: McpPlace, tool: str, **arguments: Any) -> dict[str, Any]:
    return json.loads(place.run("call", "--json", tool, json.dumps(arguments)).stdout)
