"""Requests judged one by one behind ended TLS, with credentials that the command never has."""

import http.server
import os
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.test_network_clients import certify
from tests.support.networks import a_proxy, a_server
from tests.support.shells import Yard

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("bash"),
    pytest.mark.needs("curl"),
    pytest.mark.loopback,
]

VALUE = "a-value-that-nobody-inside-may-see-4711"
USER = """
[credentials.issues]
hosts = ["api.example.org:443"]
variable = "ISSUES_TOKEN"
from = { env = "REAL_TOKEN" }
"""
POLICY = """
[profiles.standard]
extends = "standard"
allow = [
  "tool:shell:*",
  "tool:net:request GET api.example.org/issues/**",
  "tool:net:connect other.example.org:443",
]
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """Says what it was asked, with its authorization."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if len(self.rfile.read(length)) < length:
            # It was stopped on its way.
            return
        said = f"{self.command} {self.path} {self.headers.get('Authorization')}\n".encode()
        self.server.seen.append(said.decode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_DELETE = do_GET  # noqa: N815 - the handler's own way to name a method

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def an_api(
    certificate: Path, answers: type[http.server.BaseHTTPRequestHandler] = Answers
) -> Generator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.seen = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What lines of shell say, and the server that they ask."""
    certificate = certify("api.example.org", tmp_path / "server.pem")
    # Whom the host believes, on the way out.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with (
        an_api(certificate) as server,
        a_server(a_proxy({"api.example.org:443": server.server_address[1]})) as proxy,
    ):
        variables = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}", "REAL_TOKEN": VALUE}
        yard = Yard(tmp_path / "yard", POLICY, variables)
        config = yard.home / ".config/paddock"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(USER)
        config.chmod(0o700)
        (config / "config.toml").chmod(0o600)
        yard.make()

        def run(line: str) -> dict[str, Any]:
            with yard.opened() as terminal:
                return terminal.run(line)

        run.yard, run.server = yard, server
        yield run


def test_the_value_goes_to_its_host_and_nobody_inside_sees_it(said):
    got = said('curl -sS -H "Authorization: Bearer $ISSUES_TOKEN" https://api.example.org/issues/1')

    assert said.server.seen == [f"GET /issues/1 Bearer {VALUE}\n"]
    assert got["exit_code"] == 0, got["stderr"]
    assert got["stdout"].startswith("GET /issues/1 Bearer paddock_")
    assert got["network"]["refused"] == []


def test_the_value_is_found_nowhere(said):
    got = said(
        'curl -sS -H "Authorization: Bearer $ISSUES_TOKEN" https://api.example.org/issues/1;'
        " env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -R /run /tmp"
    )

    assert VALUE not in str(got)
    for folder, _, files in os.walk(said.yard.home):
        for name in files:
            content = Path(folder, name).read_bytes()
            assert VALUE.encode() not in content, name


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("curl -sS -X DELETE https://api.example.org/issues/1", "DELETE /issues/1"),
        ("curl -sS https://api.example.org/admin", "GET /admin"),
        ("curl -sS --path-as-is https://api.example.org/issues/../admin", "GET /issues/../admin"),
        ("curl -sS https://api.example.org/issues/$ISSUES_TOKEN", "net.credential_misused"),
        ("curl -sS https://api.example.org/issues/1?t=$ISSUES_TOKEN", "net.credential_misused"),
        ("curl -sS -d $ISSUES_TOKEN -X GET https://api.example.org/issues/1", "net.credential"),
    ],
)
def test_a_request_that_no_rule_allows_does_not_reach_the_host(said, line: str, why: str):
    got = said(line)

    assert said.server.seen == []
    assert why in str(got["network"]["refused"])
    assert "paddock" in got["stdout"]
    assert said("curl -sS https://api.example.org/issues/2")["stdout"] == "GET /issues/2 None\n"


def test_a_server_that_fails_is_not_said_to_be_policy(
    said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = certify("api.example.org", tmp_path / "other.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    failed = said("curl -sSf https://api.example.org/issues/1")

    (refused,) = failed["network"]["refused"]
    assert refused["why"].startswith("net.server_failed: api.example.org ")
    assert (failed["exit_code"] != 0, failed.get("fence")) == (True, None)
    assert said.server.seen == []


def test_a_credential_opens_nothing_by_itself(said):
    said.yard.govern(
        POLICY.replace("tool:net:request GET api", "tool:net:connect api").replace(
            "/issues/**", ":443"
        )
    )
    got = said('curl -sS -H "Authorization: Bearer $ISSUES_TOKEN" https://api.example.org/issues/1')

    assert said.server.seen == []
    assert "no rule allows its requests" in str(got["network"]["refused"])


def test_a_credential_whose_source_is_gone_says_what_to_do(said):
    said.yard.variables = {**said.yard.variables, "REAL_TOKEN": ""}
    with said.yard.opened() as terminal:
        result = terminal.call("run_shell", command="true")

    assert result.refusal is not None
    assert "REAL_TOKEN" in result.content
    assert "set it where Paddock is started" in result.content
