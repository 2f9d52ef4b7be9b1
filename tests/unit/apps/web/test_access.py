"""Who is let in: each line of what the console promises, from both sides."""

import os
import pty
import socket
import stat
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from paddock import limits
from paddock.apps.web.access import Codes
from paddock.apps.web.view import HttpRefusal
from tests.support.consoles import ConsoleServer, serving
from tests.support.mcp_servers import McpPlace

pytestmark = pytest.mark.loopback
ACTS = ("inbox/grant", "inbox/refuse", "inbox/always", "undo", "session/resume")
ACTS = (*ACTS, "policy/save", "ledgers/checkpoint")
LOOKS = ("now", "timeline", "inbox", "files", "sessions", "policy", "ledgers", "stream")


def test_a_code_lets_one_page_in_and_no_second_one(place: McpPlace):
    with serving(place, is_exchanged=False) as server:
        first = server.exchange(server.code)
        assert (first.status, first.value["read_only"]) == (200, False)
        assert server.exchange(server.code).code == "web.code"
        server.token = first.value["token"]
        assert server.get("now").status == 200


def test_a_guessed_code_lets_nobody_in_and_uses_nothing_up(place: McpPlace):
    with serving(place, is_exchanged=False) as server:
        assert server.exchange("guessed").status == 403
        assert server.exchange(server.code).status == 200


def test_the_browser_is_given_a_private_file_and_no_code(place: McpPlace, tmp_path: Path):
    told, copied = tmp_path / "told", tmp_path / "copied"
    os.mkfifo(told)
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nfile="${{1#file://}}"\ncp -p "$file" {copied}\necho "$@" > {told}\n'
    )
    browser.chmod(0o700)
    variables = {"DISPLAY": ":0", "BROWSER": str(browser)}
    with serving(place, command="web", variables=variables, is_exchanged=False) as server:
        arguments = told.read_text()
        assert server.code not in arguments
        assert f"{server.origin}/#code={server.code}" in copied.read_text()
        assert stat.S_IMODE(copied.stat().st_mode) == 0o600
        opened = Path(arguments.strip().removeprefix("file://"))
        assert opened.exists()
        assert server.exchange(server.code).status == 200
    assert not opened.exists()


def test_at_a_terminal_enter_gives_an_address_for_another_page(place: McpPlace):
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stderr": slave}
    with serving(place, is_exchanged=False, streams=streams) as server:
        os.write(master, b"\n")
        other = json_of(server.process.stdout.readline())["url"].partition("#code=")[2]
        codes = {server.code, other}
        assert [server.exchange(code).status for code in codes] == [200, 200]
        assert {server.exchange(code).status for code in codes} == {403}
    os.close(master)
    os.close(slave)


def test_a_code_is_good_for_a_minute_and_then_no_more():
    now = [0.0]
    codes = Codes(lambda: now[0])
    in_time, late = codes.new(), codes.new()
    now[0] = limits.web_code_s - 1
    assert codes.find(codes.exchange(in_time, reads_only=True)) is True
    now[0] = limits.web_code_s
    with pytest.raises(HttpRefusal, match="older than a minute"):
        codes.exchange(late, reads_only=True)


@pytest.mark.parametrize("given", ["", "Bearer ", "Bearer wrong", "Basic wrong", "Bearer \u00e9"])
def test_without_a_token_nothing_is_shown_and_nothing_done(console: ConsoleServer, given: str):
    headers = {"Authorization": given}
    refused = [console.get(path, headers) for path in LOOKS]
    refused += [console.post(path, headers) for path in ACTS]
    assert {(each.status, each.code) for each in refused} == {(401, "web.token")}


def test_with_the_token_everything_is_shown(console: ConsoleServer):
    shown = [path for path in LOOKS if path != "stream"]
    assert {console.get(path).status for path in shown} == {200}


def test_the_token_of_a_server_that_ended_is_none_of_the_next_one(place: McpPlace):
    with serving(place) as before:
        old = before.token
    with serving(place) as server:
        assert server.get("now", {"Authorization": f"Bearer {old}"}).status == 401
        assert server.get("now").status == 200


def test_a_token_of_a_program_is_private_and_ends_with_the_next_one(
    place: McpPlace, console: ConsoleServer
):
    first, second = (place.run("web", "token", "--json") for _ in range(2))
    old, new = (json_of(each.stdout) for each in (first, second))
    file = Path(new["file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.is_relative_to(place.project)
    assert console.get("now", {"Authorization": f"Bearer {old['token']}"}).status == 401
    assert console.get("now", {"Authorization": f"Bearer {new['token']}"}).status == 200


def test_a_token_that_reads_shows_everything_and_acts_on_nothing(
    place: McpPlace, console: ConsoleServer
):
    token = json_of(place.run("web", "token", "--read-only", "--json").stdout)["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert console.get("now", headers).value["read_only"] is True
    refused = [console.post(path, headers) for path in ACTS]
    assert {(each.status, each.code) for each in refused} == {(403, "web.read_only")}
    policy = console.post("policy/lint", headers, text="")
    assert policy.value == {"findings": []}


def test_a_console_that_reads_acts_for_nobody(place: McpPlace):
    acting = json_of(place.run("web", "token", "--json").stdout)["token"]
    with serving(place, "--read-only") as server:
        for token in (server.token, acting):
            headers = {"Authorization": f"Bearer {token}"}
            assert server.get("now", headers).value["read_only"] is True
            assert {server.post(path, headers).code for path in ACTS} == {"web.read_only"}


def test_no_cookie_is_set_and_one_that_is_sent_lets_nobody_in(console: ConsoleServer):
    answers = [console.send("GET", "/"), console.get("now"), console.exchange("x")]
    assert not [each for each in answers if "set-cookie" in each.headers]
    refused = console.get("now", {"Authorization": "", "Cookie": f"token={console.token}"})
    assert refused.status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "[::1]", "x.localhost:80"]
)
def test_a_name_that_was_not_printed_is_no_host_here(console: ConsoleServer, host: str):
    for path in ("/", "/api/now", "/static/app.js"):
        refused = console.send("GET", path, Host=host)
        assert (refused.status, refused.code) == (421, "web.host")


def test_a_request_without_a_host_or_with_two_is_refused(console: ConsoleServer):
    with closing(socket.create_connection(("127.0.0.1", console.port), timeout=60)) as raw:
        lines = f"GET / HTTP/1.1\r\nHost: {console.host}\r\nHost: {console.host}\r\n\r\n"
        raw.sendall(lines.encode())
        assert b" 200 " not in raw.recv(100)
    assert console.send("GET", "/", Host="").status in (400, 421)


@pytest.mark.parametrize("scheme", ["http://evil.example", "null", "http://127.0.0.1:9", "https"])
def test_another_origin_is_refused_with_a_token_too(console: ConsoleServer, scheme: str):
    # A server that an agent starts on this machine is another port, and so another origin.
    origin = f"https://{console.host}" if scheme == "https" else scheme
    for path in ACTS:
        refused = console.post(path, {"Origin": origin})
        assert (refused.status, refused.code) == (403, "web.origin")
    assert console.get("now", {"Origin": origin}).status == 403


def test_its_own_origin_is_let_in(console: ConsoleServer):
    assert console.get("now", {"Origin": console.origin}).status == 200


@pytest.mark.parametrize("path", ["/", "/inbox", "/static/app.js", "/api/now", "/api/none"])
def test_every_answer_forbids_frames_other_hosts_and_inline_scripts(
    console: ConsoleServer, path: str
):
    headers = console.send("GET", path).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/static/",
        "/server.py",
        "/static/app.js%00",
    ],
)
def test_no_file_is_served_but_those_of_the_page(console: ConsoleServer, path: str):
    assert console.send("GET", path).status == 404


def test_the_page_and_its_files_need_no_token_and_hold_no_data(console: ConsoleServer):
    page = console.send("GET", "/", Authorization="")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    script = console.send("GET", "/static/page/verify.js", Authorization="")
    assert (script.status, script.headers["content-type"]) == (
        200,
        "text/javascript; charset=utf-8",
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"[]", 400), (b'{"text": 1}', 400), (b'{"text": "", "text": ""}', 400)],
)
def test_a_body_that_two_readers_could_read_differently_is_refused(
    console: ConsoleServer, body: bytes, status: int
):
    assert console.send("POST", "/api/policy/lint", body).status == status


def test_a_body_of_another_kind_or_size_is_refused(console: ConsoleServer):
    form = console.send("POST", "/api/policy/lint", b"text=", Content_Type="text/plain")
    assert form.status == 415
    large = b'{"text": "%b"}' % (b"x" * limits.web_body_bytes_max)
    assert console.send("POST", "/api/policy/lint", large).status == 413


def test_an_unknown_member_or_one_given_twice_is_refused(console: ConsoleServer):
    assert console.get("timeline", wrong="1").status == 400
    assert console.send("GET", "/api/timeline?agent=a&agent=b").status == 400
    assert console.get("timeline", agent="main").status == 200
    assert console.get("timeline", before="../etc").status == 400


def test_an_act_by_get_does_nothing(console: ConsoleServer):
    assert {console.get(path).status for path in ACTS} == {405}


def test_one_stream_more_than_there_may_be_is_refused_until_one_ends(place: McpPlace):
    with serving(place) as server, ExitStack() as held:
        first = held.enter_context(ExitStack())
        streams = [first.enter_context(server.stream())]
        others = range(limits.web_streams_max - 1)
        streams += [held.enter_context(server.stream()) for _ in others]
        assert {each.response.status for each in streams} == {200}
        with server.stream() as refused:
            assert refused.response.status == 503
        assert server.get("now").status == 200
        first.close()
        # It is noticed when something is sent to it, or at once: asked until then.
        for _ in range(1000):
            with server.stream() as again:
                if again.response.status == 200:
                    return
        pytest.fail("no place became free")


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_cannot_be_is_refused_by_name(place: McpPlace, port: str):
    ran = place.run("web", "--no-browser", f"--port={port}")
    assert (ran.returncode, "invalid port" in ran.stderr) == (2, True)


def test_a_port_that_is_taken_is_refused_and_a_free_one_is_taken(
    place: McpPlace, console: ConsoleServer
):
    ran = place.run("web", "--no-browser", f"--port={console.port}")
    assert ran.returncode == 5
    assert "cannot listen on" in ran.stderr


def test_nobody_else_can_listen_on_its_port_by_the_other_loopback_address(console: ConsoleServer):
    # Browsers try ::1 first for a name below localhost.
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("::1", console.port), family=socket.AF_INET6)


def test_the_name_of_a_reverse_proxy_is_the_one_host_then(place: McpPlace):
    with serving(place, "--allow-remote", "paddock.example", is_exchanged=False) as server:
        assert server.origin == "https://paddock.example"


def test_a_name_of_a_proxy_that_is_none_is_refused(place: McpPlace):
    ran = place.run("web", "--allow-remote", "https://x/")
    assert (ran.returncode, "invalid host" in ran.stderr) == (2, True)


def test_the_console_is_a_persons_act():
    from paddock.policy.commands.operator_commands import is_persons_act

    assert is_persons_act(["web"])
    assert is_persons_act(["web", "token"])


def json_of(text: str) -> dict:
    import json

    return json.loads(text)
