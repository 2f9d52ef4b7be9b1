"""Servers that need a token: the host at the other end has it, and nothing on this side does."""

import http.server
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.kernel.test_network_clients import certify
from tests.kernel.test_network_requests import an_api
from tests.support.gateways import OPEN, Gates, gates, table
from tests.support.networks import a_proxy, a_server

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash"), pytest.mark.loopback]

VALUE = "a-value-that-nobody-inside-may-see-4711"
USER = """
[credentials.issues]
hosts = ["api.example.org:443"]
variable = "ISSUES_TOKEN"
from = { env = "REAL_TOKEN" }
"""
URL = """
[mcp.servers.far]
url = "https://api.example.org/mcp"
headers = { Authorization = "Bearer credential:issues" }
"""


class Far(http.server.BaseHTTPRequestHandler):
    """A server of either era that answers nobody without the token, and says it back."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers["Authorization"] or self.headers["X-Api-Key"]
        self.server.seen.append(given)
        if not given or VALUE not in given:
            self.reply(401, b"who are you?", "text/plain")
        elif "id" not in message:
            self.reply(202, b"", "text/plain")
        else:
            said = {"jsonrpc": "2.0", "id": message["id"], **self.answer(message["method"], given)}
            self.reply(200, json.dumps(said).encode(), "application/json")

    do_GET = do_POST  # noqa: N815 - the handler's own way to name a method

    def answer(self, method: str, given: str) -> dict[str, Any]:
        region = f" from {self.headers['X-Region']}" if "X-Region" in self.headers else ""
        server = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "far", "version": "1"}}
        results = {
            "initialize": {**server, "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"you sent {given}{region}"}]},
        }
        if method in results:
            return {"result": results[method]}
        return {"error": {"code": -32601, "message": "unknown"}}

    def reply(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


class Place(Struct):
    """A project, a user with a credential, and the host that it is for."""

    base: Path
    variables: dict[str, str]
    seen: list[str | None]

    def with_servers(self, *tables: str, user: str = USER) -> Gates:
        config = self.base / "home/.config/paddock"
        config.mkdir(parents=True, mode=0o700)
        (config / "config.toml").write_text(user)
        (config / "config.toml").chmod(0o600)
        return gates(self.base, *tables, policy=OPEN, variables=self.variables)

    def require_value_nowhere(self) -> None:
        for folder, _, files in os.walk(self.base):
            for name in files:
                assert VALUE.encode() not in Path(folder, name).read_bytes(), name


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Place]:
    certificate = certify("api.example.org", tmp_path / "server.pem")
    # Whom the host believes, on the way out.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    base = tmp_path / "yard"
    base.mkdir()
    with (
        an_api(certificate, Far) as server,
        a_server(a_proxy({"api.example.org:443": server.server_address[1]})) as proxy,
    ):
        variables = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}", "REAL_TOKEN": VALUE}
        yield Place(base, variables, server.seen)


@pytest.mark.parametrize(
    ("header", "before"),
    [
        ('Authorization = "Bearer credential:issues"', "Bearer "),
        ('X-Api-Key = "credential:issues"', ""),
    ],
)
def test_a_server_at_a_url_has_the_value_and_its_answer_does_not(
    place: Place, header: str, before: str
):
    made = place.with_servers(URL.replace('Authorization = "Bearer credential:issues"', header))
    with made.opened("far") as terminal:
        result = terminal.call("far__whoami")

    assert set(place.seen) == {f"{before}{VALUE}"}
    assert result.content.startswith(f"you sent {before}paddock_")
    assert VALUE not in str(result)
    place.require_value_nowhere()


def test_a_server_at_a_url_has_literal_headers_as_they_are_written(place: Place):
    url = URL.replace("headers = {", 'headers = { X-Region = "eu; 100% {x} \\\\n",')
    with place.with_servers(url).opened("far") as terminal:
        result = terminal.call("far__whoami")

    assert set(place.seen) == {f"Bearer {VALUE}"}
    assert result.content.endswith(" from eu; 100% {x} \\n")


def test_a_server_at_a_url_that_does_not_take_the_token_says_what_it_answered(place: Place):
    place.variables["REAL_TOKEN"] = "a-value-of-last-year"
    ran = place.with_servers(URL).yard.cli("mcp", "review", "far", "--yes")

    assert place.seen[0] == "Bearer a-value-of-last-year"
    assert "HTTP status 401: who are you?" in ran.err


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", '"issues", which is not defined: add [credentials.issues] to the user\'s'),
        (
            USER.replace("api.example", "other.example"),
            '"issues", whose hosts do not name api.example.org:443: add it to hosts of',
        ),
    ],
)
def test_a_server_is_not_asked_where_the_credential_is_not_for_its_host(
    place: Place, user: str, why: str
):
    made = place.with_servers(URL, user=user)
    ran = made.yard.cli("mcp", "review", "far", "--yes")
    linted = made.yard.cli("policy", "lint")

    assert place.seen == []
    assert why in ran.err
    assert why.partition(":")[0] in linted.out + linted.err


def test_a_server_that_is_added_by_hand_is_shown_with_the_credentials_name(place: Place):
    made = place.with_servers()
    ran = made.yard.cli(
        *("mcp", "add", "far", "--yes", "--url", "https://api.example.org/mcp"),
        *("--header", "Authorization=Bearer credential:issues"),
    )

    assert ran.status == 0, ran.err
    assert 'headers = { Authorization = "Bearer credential:issues" }' in ran.out
    assert "new: tool whoami" in ran.out
    assert set(place.seen) == {f"Bearer {VALUE}"}
    place.require_value_nowhere()


ASKS = """
import urllib.error, urllib.request

def act(arguments, id):
    headers = {"Authorization": "Bearer " + os.environ[arguments["text"]]}
    request = urllib.request.Request("https://api.example.org/mcp", BODY, headers)
    try:
        with urllib.request.urlopen(request) as response:
            return text(response.read().decode() + " " + str(dict(os.environ)))
    except urllib.error.HTTPError as error:
        return text("refused: " + error.read().decode())

BODY = b'{"id": 1, "method": "tools/call"}'
"""


def test_a_server_that_runs_here_sends_what_stands_for_the_value_and_the_host_has_it(place: Place):
    tokens = {"ISSUES_TOKEN": "credential:issues", "GH_TOKEN": "credential:issues"}
    tables = table("near", ASKS, env=tokens, network=["api.example.org:443"])
    with place.with_servers(tables).opened("near") as terminal:
        results = [terminal.call("near__act", text=name) for name in tokens]

    assert place.seen == [f"Bearer {VALUE}"] * 2
    assert all("you sent Bearer paddock_" in each.content for each in results)
    assert VALUE not in str(results)
    place.require_value_nowhere()


def test_rules_for_requests_of_a_server_hold_with_a_credential_as_without(place: Place):
    network = ["api.example.org:443", "GET api.example.org/**"]
    tables = table("near", ASKS, env={"TOKEN": "credential:issues"}, network=network)
    with place.with_servers(tables).opened("near") as terminal:
        result = terminal.call("near__act", text="TOKEN")

    assert place.seen == []
    assert result.content.startswith("refused: paddock: ")
