"""What a hostile page, client or model can send to the MCP server, and what becomes of it."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult

from paddock import limits
from tests.support.mcp_servers import YES, HttpServer, McpPlace, Person, make_place

HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ASKED = {"path": "asked/a", "content": "x"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> McpPlace:
    made = make_place(tmp_path_factory.mktemp("mcp"))
    made.run("agent", "create", "reader", "--workspace", str(made.project), "--profile", "locked")
    return made


@pytest.fixture(scope="module")
def server(place: McpPlace) -> Iterator[HttpServer]:
    with place.http("--structured") as running:
        yield running


def headers(server: HttpServer, **more: str) -> dict[str, str]:
    wanted = {
        "Authorization": f"Bearer {server.token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    return {**wanted, **{name.replace("_", "-"): value for name, value in more.items()}}


def post(server: HttpServer, content: bytes | None = None, **more: str) -> httpx2.Response:
    body = json.dumps(HANDSHAKE).encode() if content is None else content
    return httpx2.post(server.url, content=body, headers=headers(server, **more), timeout=60)


# --- over HTTP ---------------------------------------------------------------------


HALVES = {
    "nothing": b"",
    "half a head": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "half a body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "refused and kept": b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


def dial(server: HttpServer, sent: bytes) -> socket.socket:
    parts = urlsplit(server.url)
    made = socket.create_connection((parts.hostname, parts.port), timeout=60)
    made.sendall(sent)
    return made


@pytest.mark.loopback
@pytest.mark.parametrize("half", HALVES)
def test_half_open_connections_keep_nobody_out_who_has_a_token(server, half):
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(dial(server, HALVES[half])) for _ in range(400)]
        assert post(server).status_code == 200
        # Of those without a token, only so many are kept.
        assert ended(opened[0])
        for each in opened:
            each.setblocking(False)
        kept = sum(not ended(each) for each in opened)
        assert kept <= limits.mcp_half_open_max


def ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(65_536):
            continue
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.loopback
def test_a_request_that_does_not_arrive_whole_in_time_is_closed(server):
    lines = [f"{name}: {value}" for name, value in headers(server).items()]
    head = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 9999", *lines]
    with_a_token = "\r\n".join(head) + "\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        sent = (*HALVES.values(), with_a_token.encode())
        assert all(map(ended, [stack.enter_context(dial(server, half)) for half in sent]))
    assert post(server).status_code == 200


@pytest.mark.loopback
def test_a_whole_request_in_pieces_is_answered(server):
    body = json.dumps(HANDSHAKE).encode()
    lines = [f"{name}: {value}" for name, value in headers(server).items()]
    head = "\r\n".join(
        ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *lines]
    )
    whole = f"{head}\r\n\r\n".encode() + body
    with dial(server, whole[:50]) as connection:
        for at in range(50, len(whole), 200):
            connection.sendall(whole[at : at + 200])
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.loopback
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "[2001:db8::1]",
        "",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
    ],
)
def test_another_host_is_refused_whatever_the_token(server, host):
    assert post(server, Host=host).status_code in {400, 421}


@pytest.mark.loopback
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "[::1]:80"])
def test_this_machine_by_any_of_its_names_is_served(server, host):
    assert post(server, Host=host).status_code == 200


@pytest.mark.loopback
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://", "x"]
)
def test_a_page_of_another_origin_is_refused(server, origin):
    assert post(server, Origin=origin).status_code == 403


@pytest.mark.loopback
def test_a_page_of_this_machine_is_served(server):
    assert post(server, Origin="http://127.0.0.1:3000").status_code == 200


@pytest.mark.loopback
def test_two_hosts_are_none(server):
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port)) as connection:
        request = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n"
            f"Authorization: Bearer {server.token}\r\nContent-Length: 0\r\n\r\n"
        )
        connection.sendall(request.encode())
        assert connection.recv(100).split()[1] in {b"400", b"421"}


@pytest.mark.loopback
@pytest.mark.parametrize("given", ["", "Bearer wrong", "Basic {token}", "{token}"])
def test_without_the_token_nothing_is_answered(server, given):
    answer = post(server, Authorization=given.format(token=server.token))
    assert answer.status_code == 401
    assert "tools" not in answer.text


@pytest.mark.loopback
def test_the_token_is_private_and_is_printed_nowhere(server):
    assert os.stat(server.token_file).st_mode & 0o777 == 0o600
    assert os.stat(server.token_file.parent).st_mode & 0o777 == 0o700
    assert len(server.token) > 40


@pytest.mark.loopback
def test_a_client_that_never_ends_its_request_does_not_keep_the_server(place):
    with place.http("--structured") as server:
        where = urlsplit(server.url)
        with socket.create_connection((where.hostname, where.port)) as connection:
            lines = [f"{name}: {value}" for name, value in headers(server).items()]
            lines += ["Host: 127.0.0.1", "Content-Length: 100", "Expect: 100-continue", "", "{"]
            connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines]).encode())
            # Its body is waited for by now.
            assert connection.recv(100).split()[1] == b"100"
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0


@pytest.mark.loopback
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "in chunks"])
def test_a_body_over_the_limit_is_refused(server, is_declared):
    piece = b"x" * 1_000_000
    count = limits.mcp_body_bytes_max // len(piece) + 1
    if is_declared:
        where = urlsplit(server.url)
        with socket.create_connection((where.hostname, where.port)) as connection:
            lines = [f"{name}: {value}" for name, value in headers(server).items()]
            lines += ["Host: 127.0.0.1", f"Content-Length: {count * len(piece)}", "", ""]
            connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines]).encode())
            assert connection.recv(100).split()[1] == b"413"
        return
    pieces = (piece for _ in range(count))
    assert post(server, content=pieces).status_code == 413


@pytest.mark.loopback
def test_a_body_in_which_a_name_is_given_twice_is_refused_and_nothing_runs(place, server):
    session = {"Mcp_Session_Id": post(server).headers["mcp-session-id"]}
    post(server, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', **session)
    call = (
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "create_file", '
        b'"arguments": {"path": "one", %s: "two", "content": "x"}}}'
    )
    refused = post(server, call % b'"path"', **session)
    assert (refused.status_code, refused.json()) == (
        400,
        {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": -32600, "message": "'path' is given twice: give every name once"},
        },
    )
    assert not (place.project / "one").exists()
    assert not (place.project / "two").exists()
    # Nobody without a token has anything parsed.
    assert post(server, call % b'"path"', Authorization="Bearer wrong").status_code == 401
    assert post(server, call % b'"if_version"', **session).status_code == 200


@pytest.mark.loopback
@pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_no_name_is_given_twice_in_an_encoding_that_another_reader_guesses(
    place, server, encoding, era
):
    call = """{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "create_file",
      "arguments": {"path": "guessed", "path": "other", "content": "x"}, "_meta": {
      "io.modelcontextprotocol/protocolVersion": "%s",
      "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
      "io.modelcontextprotocol/clientCapabilities": {}}}}"""
    version = {"Mcp_Protocol_Version": era, "Mcp_Method": "tools/call", "Mcp_Name": "create_file"}
    refused = post(server, (call % era).encode(encoding), **version)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32700)
    assert not (place.project / "guessed").exists()
    assert not (place.project / "other").exists()


def session_that_can_be_asked(server: HttpServer) -> dict[str, str]:
    """The header that names it."""
    params = {**HANDSHAKE["params"], "capabilities": {"elicitation": {}}}
    started = post(server, json.dumps({**HANDSHAKE, "params": params}).encode())
    session = {"Mcp_Session_Id": started.headers["mcp-session-id"]}
    post(server, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', **session)
    return session


@contextlib.contextmanager
def asking(
    server: HttpServer, session: dict[str, str]
) -> Iterator[tuple[dict[str, Any], Iterator[str]]]:
    """A call with the id 11 that waits for an answer: the question, and the lines behind it."""
    params = {"name": "create_file", "arguments": ASKED}
    call = {"jsonrpc": "2.0", "id": 11, "method": "tools/call", "params": params}
    named = headers(server, **session)
    with httpx2.stream("POST", server.url, json=call, headers=named, timeout=60) as waiting:
        lines = waiting.iter_lines()
        yield next(json.loads(line[6:]) for line in lines if line.startswith("data: {")), lines


def ping(request_id: int | str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping"}).encode()


@pytest.mark.loopback
@pytest.mark.parametrize("again", [11, "11"])
def test_no_two_requests_of_a_session_run_under_one_id(server, again):
    session, other = (session_that_can_be_asked(server) for _ in range(2))
    with asking(server, session) as (question, lines):
        refused = post(server, ping(again), **session)
        message = "a request with the id '11' is still running"
        assert (refused.status_code, refused.json()) == (
            400,
            {"jsonrpc": "2.0", "id": again, "error": {"code": -32600, "message": message}},
        )
        # Another session's ids are its own.
        assert post(server, ping(again), **other).status_code == 200
        said = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert post(server, json.dumps(said).encode(), **session).status_code == 202
        assert "approval.refused" in "".join(lines)
    assert post(server, ping(again), **session).status_code == 200


@pytest.mark.loopback
def test_the_id_of_a_request_whose_client_has_hung_up_is_not_free_before_its_end(server):
    session = session_that_can_be_asked(server)
    with asking(server, session):
        pass
    assert post(server, ping(11), **session).status_code == 400
    told = {"method": "notifications/cancelled", "params": {"requestId": 11}}
    post(server, json.dumps({"jsonrpc": "2.0", **told}).encode(), **session)
    while (answer := post(server, ping(11), **session)).status_code == 400:
        pass
    assert answer.status_code == 200


@pytest.mark.loopback
@pytest.mark.parametrize("arguments", [[], "x", 0, False])
def test_a_call_whose_arguments_are_no_object_is_on_record_over_http_too(place, server, arguments):
    session = {"Mcp_Session_Id": post(server).headers["mcp-session-id"]}
    post(server, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', **session)
    before = len(place.entries("ho1m", "--type", "TOOL_DENIED"))
    params = {"name": "view", "arguments": arguments, "_meta": {"callId": "odd"}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    assert "-32602" in post(server, json.dumps(call).encode(), **session).text
    (entry,) = place.entries("ho1m", "--type", "TOOL_DENIED")[before:]
    assert (entry["metadata"]["tool"], entry["metadata"]["code"], entry["agent"]) == (
        "view",
        "args.invalid",
        "main",
    )
    assert entry["call_id"] in {e["call_id"] for e in place.entries("ho1m", "--call", "odd")}


@pytest.mark.loopback
def test_a_token_is_one_agents_and_a_session_is_its_tokens(place, server):
    made = json.loads(place.run("mcp", "token", "create", "--agent", "reader", "--json").stdout)

    async def tools(token: str) -> set[str]:
        async with server.client("stateless", token) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert anyio.run(tools, made["token"]) == {"view", "grep", "find", "ls"}
    assert "create_file" in anyio.run(tools, server.token)
    session = post(server).headers["mcp-session-id"]
    listing = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
    other = post(
        server,
        content=listing,
        Authorization=f"Bearer {made['token']}",
        Mcp_Session_Id=session,
    )
    assert other.status_code == 404


@pytest.mark.loopback
def test_a_token_that_was_replaced_counts_no_more(place, server):
    before = json.loads(place.run("mcp", "token", "create", "--agent", "reader", "--json").stdout)
    assert post(server, Authorization=f"Bearer {before['token']}").status_code == 200
    place.run("mcp", "token", "create", "--agent", "reader")
    assert post(server, Authorization=f"Bearer {before['token']}").status_code == 401


@pytest.mark.loopback
def test_a_token_of_no_agent_counts_for_nothing_and_for_no_agent_that_comes_later(place, server):
    create = ("agent", "create", "leaver", "--workspace", str(place.project))
    place.run(*create, "--profile", "locked")
    made = json.loads(place.run("mcp", "token", "create", "--agent", "leaver", "--json").stdout)
    bearer = f"Bearer {made['token']}"
    assert post(server, Authorization=bearer).status_code == 200
    (declaration,) = place.home.rglob("leaver/agent.json")
    declared = declaration.read_bytes()
    declaration.unlink()
    assert post(server, Authorization=bearer).status_code == 401
    declaration.write_bytes(declared)
    assert post(server, Authorization=bearer).status_code == 200
    assert place.run("agent", "remove", "leaver").returncode == 0
    assert place.run(*create).returncode == 0
    assert post(server, Authorization=bearer).status_code == 401


@pytest.mark.loopback
def test_a_token_that_does_not_load_keeps_no_other_out_and_is_said_once(place):
    with place.http("--structured") as server:
        broken = server.token_file.with_name("broken.token")
        broken.mkdir()
        assert [post(server).status_code for _ in range(3)] == [200, 200, 200]
        os.rmdir(broken)
        os.chmod(server.token_file.parent, 0o777)
        shut = [post(server) for _ in range(3)]
        os.chmod(server.token_file.parent, 0o700)
        assert post(server).status_code == 200
        assert {answer.status_code for answer in shut} == {503}
        assert str(place.home) not in "".join(answer.text for answer in shut)
        server.process.send_signal(signal.SIGTERM)
        said = server.process.stderr.read()
    assert said.count("error[") == 2
    assert str(broken) in said


@pytest.mark.loopback
def test_a_server_for_one_agent_knows_no_other_token(place):
    made = json.loads(place.run("mcp", "token", "create", "--agent", "reader", "--json").stdout)
    with place.http("--structured", "--agent", "main") as server:
        assert post(server).status_code == 200
        assert post(server, Authorization=f"Bearer {made['token']}").status_code == 401


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"])
def test_another_address_needs_to_be_allowed(place, address):
    ran = place.run("mcp", "--http", address)
    assert (ran.returncode, "--allow-remote" in ran.stderr) == (2, True)


# --- answers that come back ----------------------------------------------------------


async def asked(client: Client, **more) -> InputRequiredResult:
    arguments = {**ASKED, **more}
    said = await client.session.call_tool("create_file", arguments, allow_input_required=True)
    assert isinstance(said, InputRequiredResult), said
    return said


async def again(client: Client, state: str | None, said: ElicitResult, **more):
    return await client.session.call_tool(
        "create_file",
        {**ASKED, **more},
        input_responses={"approval": said},
        request_state=state,
        allow_input_required=True,
    )


ACCEPTED = ElicitResult(action="accept", content=YES)


def with_client(place: McpPlace, run) -> None:
    async def connected() -> None:
        person = Person(content=YES)
        async with Client(
            place.stdio("--structured"), mode="2026-07-28", elicitation_callback=person
        ) as client:
            await run(client)

    anyio.run(connected)


@pytest.fixture
def fresh(tmp_path: Path) -> McpPlace:
    return make_place(tmp_path)


def test_an_answer_counts_once_however_often_it_is_sent(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        assert not (await again(client, state, ACCEPTED)).is_error
        os.unlink(fresh.project / "asked/a")
        for _ in range(2):
            replayed = await again(client, state, ACCEPTED)
            assert replayed.structured_content["code"] == "approval.expired"
        assert not (fresh.project / "asked/a").exists()

    with_client(fresh, run)


def test_an_answer_does_not_count_again_where_its_request_is_put_back(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        (file,) = fresh.home.rglob("APR-*.json")
        content = file.read_bytes()
        assert not (await again(client, state, ACCEPTED)).is_error
        os.unlink(fresh.project / "asked/a")
        file.write_bytes(content)
        replayed = await again(client, state, ACCEPTED)
        assert replayed.structured_content["code"] == "approval.expired"
        assert not (fresh.project / "asked/a").exists()

    with_client(fresh, run)


def test_of_answers_sent_at_once_one_counts(fresh):
    results = []

    async def run(client: Client) -> None:
        state = (await asked(client)).request_state

        async def send() -> None:
            results.append(await again(client, state, ACCEPTED))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(send)

    with_client(fresh, run)
    ran = [result for result in results if getattr(result, "is_error", None) is False]
    assert len(ran) == 1


def test_of_the_same_call_made_twice_at_once_one_is_answered_and_the_other_hears_why(fresh):
    async def run(client: Client) -> None:
        states = [(await asked(client)).request_state for _ in range(2)]
        assert not (await again(client, states[0], ACCEPTED)).is_error
        os.unlink(fresh.project / "asked/a")
        second = (await again(client, states[1], ACCEPTED)).structured_content
        assert second["code"] == "approval.expired"
        assert "whose answer counts for one of them" in second["content"]
        assert "make the call again to ask again" in second["content"]
        anew = (await asked(client)).request_state
        assert not (await again(client, anew, ACCEPTED)).is_error

    with_client(fresh, run)


@pytest.mark.parametrize("state", ["", "v1.AAAA", '{"request": "APR-0", "digest": "x"}'])
def test_a_state_that_we_did_not_seal_is_no_state(fresh, state):
    async def run(client: Client) -> None:
        kept = await asked(client)
        for _ in range(2):
            refused = await again(client, state, ACCEPTED)
            assert (refused.is_error, refused.structured_content["code"]) == (
                True,
                "approval.expired",
            )
        # The question stays: its own answer counts.
        assert not (await again(client, kept.request_state, ACCEPTED)).is_error

    with_client(fresh, run)
    denied = fresh.entries("ho1m", "--type", "TOOL_DENIED")
    # The first is the question.
    assert [entry["metadata"]["code"] for entry in denied[1:]] == ["approval.expired"] * 2


def test_a_state_counts_for_no_other_call(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        refused = await again(client, state, ACCEPTED, content="other")
        assert (refused.is_error, refused.structured_content["code"]) == (True, "approval.expired")

    with_client(fresh, run)
    assert not (fresh.project / "asked").exists()
    denied = fresh.entries("ho1m", "--type", "TOOL_DENIED")[-1]
    assert denied["metadata"]["code"] == "approval.expired"


def test_a_state_with_a_tool_that_is_not_there_is_an_error_of_the_protocol(fresh):
    async def run(client: Client) -> None:
        returned = {"input_responses": {"approval": ACCEPTED}, "request_state": "v1.AAAA"}
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool("nothing", {}, **returned)

    with_client(fresh, run)


def test_an_answer_without_a_state_is_a_question_again(fresh):
    async def run(client: Client) -> None:
        assert isinstance(await again(client, None, ACCEPTED), InputRequiredResult)

    with_client(fresh, run)
    assert not (fresh.project / "asked").exists()


def test_an_answer_does_not_count_for_a_target_that_has_changed(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        (fresh.project / "asked").mkdir()
        (fresh.project / "asked/a").write_text("somebody else's")
        assert isinstance(await again(client, state, ACCEPTED), InputRequiredResult)

    with_client(fresh, run)
    assert (fresh.project / "asked/a").read_text() == "somebody else's"


def test_an_operator_who_refuses_meanwhile_is_heard(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        fresh.run("approvals", "refuse", fresh.waiting()[0]["id"])
        refused = await again(client, state, ACCEPTED)
        assert refused.structured_content["code"] == "approval.refused"

    with_client(fresh, run)
    assert not (fresh.project / "asked").exists()


def test_what_a_model_writes_cannot_draw_in_the_question(fresh):
    async def run() -> None:
        person = Person("cancel")
        content = "x\n\nagent main asks to run view {}\n  rule: harmless\u202e\u200b"
        async with Client(
            fresh.stdio("--structured"), mode="legacy", elicitation_callback=person
        ) as client:
            await client.call_tool("create_file", {"path": "asked/a", "content": content})
        (shown,) = person.shown
        assert [row.split()[0] for row in shown.splitlines()] == [
            "agent",
            "action:",
            "why",
            "rule:",
        ]
        assert all(character.isprintable() for row in shown.splitlines() for character in row)

    anyio.run(run)


# --- changes that wait for an answer -------------------------------------------------

DIFF = """
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:shell:*"]
[shell]
approve = "diff"
"""
EACH_OTHER = {"command": "date +%s%N > stamp"}
SAME = {"command": "echo a > stamp"}


@pytest.fixture
def staged(tmp_path: Path) -> McpPlace:
    return make_place(tmp_path, DIFF)


async def command(client: Client, arguments: dict[str, str], **returned):
    return await client.session.call_tool(
        "run_shell", arguments, allow_input_required=True, **returned
    )


async def answered(client: Client, arguments: dict[str, str], state: str, said: ElicitResult):
    responses = {"approval": said}
    return await command(client, arguments, input_responses=responses, request_state=state)


def question_in(result: InputRequiredResult) -> str:
    return result.input_requests["approval"].params.message


def answers_to(place: McpPlace) -> list[tuple[str, str]]:
    entries = place.entries("governance", "--type", "APPROVAL_ANSWERED")
    return [(each["decision"], each["metadata"].get("answer")) for each in entries]


@pytest.mark.needs("stage")
@pytest.mark.parametrize("arguments", [EACH_OTHER, SAME], ids=["another each time", "the same"])
def test_a_yes_brings_in_the_changes_that_were_shown_and_runs_nothing_again(staged, arguments):
    async def run(client: Client) -> None:
        question = await command(client, arguments)
        state = question.request_state
        result = await answered(client, arguments, state, ACCEPTED)
        assert (result.is_error, result.structured_content) == (
            False,
            {"status": "ok", "content": "committed 1 change\n  created 'stamp'"},
        )
        made = (staged.project / "stamp").read_text()
        assert f"+{made.strip()}" in question_in(question)
        # Sent again, it is a question again or an answer that came too late: nothing is written.
        os.unlink(staged.project / "stamp")
        replayed = await answered(client, arguments, state, ACCEPTED)
        assert getattr(replayed, "is_error", None) is not False
        assert not (staged.project / "stamp").exists()

    with_client(staged, run)
    assert answers_to(staged)[:3] == [("deny", "kept"), ("allow", "granted"), ("allow", "used")]
    (by,) = {
        each["metadata"]["by"]
        for each in staged.entries("governance", "--type", "APPROVAL_ANSWERED")
        if each["metadata"].get("answer") == "granted"
    }
    assert by.startswith("client ")


@pytest.mark.needs("stage")
def test_the_entry_of_changes_that_are_brought_in_names_the_clients_call(staged):
    async def run(client: Client) -> None:
        state = (await command(client, EACH_OTHER, meta={"callId": "first"})).request_state
        responses = {"approval": ACCEPTED}
        await command(
            client,
            EACH_OTHER,
            input_responses=responses,
            request_state=state,
            meta={"callId": "second"},
        )

    with_client(staged, run)
    found = staged.entries("ho1m", "--call", "second")
    assert [(each["event_type"], each["metadata"]["tool"]) for each in found] == [
        ("TOOL_INTENT", "commit_parked"),
        ("TOOL_RESULT", "commit_parked"),
    ]


@pytest.mark.needs("stage")
@pytest.mark.parametrize(
    ("said", "code", "kept"),
    [
        (ElicitResult(action="decline"), "approval.refused", 0),
        (ElicitResult(action="accept", content={}), "approval.refused", 0),
        (ElicitResult(action="cancel"), "approval.unavailable", 1),
    ],
    ids=["declined", "no yes", "closed"],
)
def test_anything_but_a_yes_brings_no_changes_in_and_asks_no_second_time(staged, said, code, kept):
    async def run(client: Client) -> None:
        state = (await command(client, EACH_OTHER)).request_state
        refused = await answered(client, EACH_OTHER, state, said)
        assert (refused.is_error, refused.structured_content["code"]) == (True, code)
        assert refused.structured_content.get("approval") == (
            staged.waiting()[0]["id"] if kept else None
        )

    with_client(staged, run)
    assert not (staged.project / "stamp").exists()
    assert len(staged.waiting()) == kept
    assert answers_to(staged) == [("deny", "kept")] + [("deny", "refused")] * (1 - kept)
    denied = staged.entries("ho1m", "--type", "TOOL_DENIED")
    assert [each["metadata"]["code"] for each in denied] == ["approval.unavailable", code]


@pytest.mark.needs("stage")
def test_a_yes_to_changes_does_not_count_under_another_policy_or_in_another_workspace(staged):
    async def run(client: Client) -> None:
        for change in (
            lambda: staged.govern(DIFF + "# changed\n"),
            lambda: (staged.project / "stamp").write_text("somebody else's"),
        ):
            state = (await command(client, EACH_OTHER)).request_state
            change()
            refused = await answered(client, EACH_OTHER, state, ACCEPTED)
            assert refused.structured_content["code"] == "approval.expired"

    with_client(staged, run)
    assert (staged.project / "stamp").read_text() == "somebody else's"
    assert staged.waiting() == []


@pytest.mark.needs("stage")
def test_an_operator_who_refuses_changes_meanwhile_is_not_overruled(staged):
    async def run(client: Client) -> None:
        state = (await command(client, SAME)).request_state
        staged.run("approvals", "refuse", staged.waiting()[0]["id"])
        refused = await answered(client, SAME, state, ACCEPTED)
        assert refused.structured_content["code"] == "approval.refused"

    with_client(staged, run)
    assert not (staged.project / "stamp").exists()


def test_a_question_that_another_takes_the_place_of_is_forgotten(fresh):
    async def run(client: Client) -> None:
        state = (await asked(client)).request_state
        (fresh.project / "asked").mkdir()
        (fresh.project / "asked/a").write_text("somebody else's")
        (first,) = fresh.waiting()
        assert isinstance(await again(client, state, ACCEPTED), InputRequiredResult)
        (second,) = fresh.waiting()
        assert first["id"] != second["id"]

    with_client(fresh, run)
