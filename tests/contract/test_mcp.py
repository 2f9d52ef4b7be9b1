"""The MCP server with the SDK's own client: both protocol eras, both transports."""

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support.mcp_servers import ERAS, POLICY, YES, McpPlace, Person, make_place

INVALID_PARAMS = -32602


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return make_place(tmp_path)


@pytest.fixture(params=sorted(ERAS))
def era(request) -> str:
    return request.param


Connect = Callable[..., contextlib.AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["stdio", pytest.param("http", marks=pytest.mark.loopback)])
def connect(request, place: McpPlace, era: str):
    """A client, however it reaches the server."""
    if request.param == "http":
        with place.http("--structured") as server:

            @contextlib.asynccontextmanager
            async def over_http(**options) -> AsyncIterator[Client]:
                async with server.client(era, **options) as client:
                    yield client

            yield over_http
        return

    @contextlib.asynccontextmanager
    async def over_stdio(**options) -> AsyncIterator[Client]:
        async with Client(place.stdio("--structured"), mode=ERAS[era], **options) as client:
            yield client

    yield over_stdio


@pytest.mark.loopback
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_signs_its_last_entries_first(place, era, ending):
    with place.http("--structured") as server:

        async def run() -> None:
            async with server.client(era) as client:
                assert not (await client.call_tool("view", {"path": "README.md"})).is_error
                server.process.send_signal(ending)
                await anyio.to_thread.run_sync(server.process.wait)

        with contextlib.suppress(httpx2.HTTPError, ExceptionGroup):
            anyio.run(run)
        assert server.process.wait(120) == 0
    said = place.run("ledger", "verify", "--ledger", "ho1m").stdout
    assert "covered by no exported checkpoint" not in said
    assert "are as they were signed" in said


def test_an_agents_tools_are_listed_and_work_and_refuse(place, connect: Connect):
    async def run() -> None:
        async with connect() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            # What every call of would be denied is not there: delete_file, and move_file with it.
            assert sorted(tools) == ["create_file", "find", "grep", "ls", "str_replace", "view"]
            view = tools["view"]
            assert (view.title, view.annotations.read_only_hint) == ("View", True)
            assert view.input_schema["required"] == ["path"]
            assert view.output_schema["type"] == "object"
            result = await client.call_tool("view", {"path": "README.md"})
            assert not result.is_error
            assert result.structured_content["content"] == "     1\thello"
            assert str(place.project) not in json.dumps(result.structured_content)
            refused = await client.call_tool("create_file", {"path": ".git/x", "content": "x"})
            assert refused.is_error
            assert refused.structured_content["code"] == "policy.protected"
            unknown = await client.call_tool(
                "view", {"path": "README.md", "_meta": {"callId": "x"}}
            )
            assert unknown.structured_content["code"] == "args.unknown"
            for name in ("delete_file", "nonsense"):
                with pytest.raises(MCPError, match="unknown tool") as raised:
                    await client.call_tool(name, {"path": "README.md"})
                assert raised.value.error.code == INVALID_PARAMS
        assert not (place.project / ".git/x").exists()

    anyio.run(run)
    denied = place.entries("ho1m", "--type", "TOOL_DENIED")
    assert [entry["metadata"]["tool"] for entry in denied][-2:] == ["delete_file", "nonsense"]


@pytest.mark.parametrize(
    ("key", "value"), [("claudecode/toolUseId", "toolu_1"), ("callId", "call_1")]
)
def test_the_clients_id_of_a_call_finds_its_entries_and_says_nothing_else(
    place, connect: Connect, key, value
):
    async def run() -> None:
        async with connect() as client:
            meta = {key: value, "agent": "admin"}
            await client.call_tool("view", {"path": "README.md"}, meta=meta)

    anyio.run(run)
    found = place.entries("ho1m", "--call", value)
    assert [(entry["event_type"], entry["agent"]) for entry in found] == [
        ("TOOL_INTENT", "main"),
        ("TOOL_RESULT", "main"),
    ]
    assert {entry["call_id"] for entry in found} & {value} == set()


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_hooks_entry_and_the_servers_are_found_by_one_id(place, connect: Connect, name):
    key = {"claude": "claudecode/toolUseId", "codex": "callId"}[name]
    place.govern('[profiles.standard]\nallow = ["tool:file:view", "tool:mcp:*"]\n')
    event = {
        "hook_event_name": "PreToolUse",
        "tool_name": "mcp__paddock__view",
        "tool_input": {"path": "README.md"},
        "tool_use_id": "one-call",
        "session_id": "s",
        "cwd": str(place.project),
    }
    asked = place.run("hook", "--client", name, given=json.dumps(event))
    assert (asked.returncode, asked.stdout) == (0, ""), asked.stderr

    async def run() -> None:
        async with connect() as client:
            await client.call_tool("view", {"path": "README.md"}, meta={key: "one-call"})

    anyio.run(run)
    found = place.entries("ho1m", "--call", "one-call")
    assert [entry["event_type"] for entry in found] == [
        "HOOK_DECISION",
        "TOOL_INTENT",
        "TOOL_RESULT",
    ]


def test_what_is_asked_about_is_put_to_the_client_and_runs_after_a_yes(place, connect: Connect):
    async def run() -> None:
        person = Person(content=YES)
        async with connect(elicitation_callback=person) as client:
            result = await client.call_tool("create_file", {"path": "asked/a", "content": "x"})
            assert not result.is_error, result.structured_content
        assert len(person.shown) == 1
        assert "tool:file:create asked/a" in person.shown[0]

    anyio.run(run)
    assert (place.project / "asked/a").read_text() == "x"
    assert place.waiting() == []
    (intent,) = place.entries("ho1m", "--type", "TOOL_INTENT")
    assert intent["metadata"]["approval"]["by"].startswith("client ")


@pytest.mark.parametrize(
    ("action", "content", "code", "kept"),
    [
        ("accept", {"approve": False}, "approval.refused", 0),
        ("accept", {}, "approval.refused", 0),
        ("decline", None, "approval.refused", 0),
        ("cancel", None, "approval.unavailable", 1),
    ],
)
def test_anything_but_a_yes_is_a_no(place, connect: Connect, action, content, code, kept):
    async def run() -> None:
        person = Person(action, content)
        async with connect(elicitation_callback=person) as client:
            result = await client.call_tool("create_file", {"path": "asked/a", "content": "x"})
            assert (result.is_error, result.structured_content["code"]) == (True, code)

    anyio.run(run)
    assert not (place.project / "asked").exists()
    assert len(place.waiting()) == kept


@pytest.mark.parametrize("era", ["handshake"], indirect=True)
def test_a_call_that_is_cancelled_while_it_is_asked_about_takes_no_place_in_the_inbox(
    place, connect: Connect
):
    async def run() -> None:
        asked = anyio.Event()

        async def nobody(*_: object) -> None:
            asked.set()
            await anyio.sleep_forever()

        async with connect(elicitation_callback=nobody) as client:
            async with anyio.create_task_group() as tasks:
                arguments = {"path": "asked/a", "content": "x"}
                tasks.start_soon(client.call_tool, "create_file", arguments)
                await asked.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(120):
                while not place.entries("ho1m", "--type", "TOOL_DENIED"):  # noqa: ASYNC110 - no answer tells it
                    await anyio.sleep(0.01)

    anyio.run(run)
    (denied,) = place.entries("ho1m", "--type", "TOOL_DENIED")
    assert denied["metadata"]["code"] == "call.cancelled"
    assert (place.waiting(), (place.project / "asked").exists()) == ([], False)


def test_a_client_that_cannot_be_asked_gets_a_request_that_an_operator_can_grant(
    place, connect: Connect
):
    async def run() -> None:
        async with connect() as client:
            arguments = {"path": "asked/a", "content": "x"}
            refused = (await client.call_tool("create_file", arguments)).structured_content
            assert refused["code"] == "approval.unavailable"
            place.run("approvals", "grant", refused["approval"])
            assert not (await client.call_tool("create_file", arguments)).is_error
            os.unlink(place.project / "asked/a")
            assert (await client.call_tool("create_file", arguments)).is_error

    anyio.run(run)


def test_an_operator_who_changes_the_policy_means_the_next_call(place, connect: Connect):
    async def run() -> None:
        async with connect() as client:
            arguments = {"path": "README.md", "content": "x"}
            assert not (await client.call_tool("create_file", arguments)).is_error
            place.govern('[profiles.standard]\nallow = ["tool:file:view"]\n')
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("create_file", arguments)
            (place.project / "paddock.toml").write_text("nonsense")
            for _ in range(2):
                with pytest.raises(MCPError, match=r"error\[config.invalid\]") as refused:
                    await client.call_tool("view", {"path": "README.md"})
                # What is wrong in which file is for a person.
                assert str(place.project) not in str(refused.value)

    anyio.run(run)


TIGHTER = '[profiles.standard]\nallow = ["tool:file:view"]\n'


def test_a_yes_does_not_count_where_the_policy_became_tighter_meanwhile(place, connect: Connect):
    class Operator(Person):
        async def __call__(self, context, params):
            place.govern(TIGHTER)
            return await super().__call__(context, params)

    async def run() -> None:
        async with connect(elicitation_callback=Operator(content=YES)) as client:
            try:
                result = await client.call_tool("create_file", {"path": "asked/a", "content": "x"})
            except MCPError as error:
                assert "unknown tool" in str(error)
            else:
                assert result.structured_content["code"] == "approval.expired"

    anyio.run(run)
    assert not (place.project / "asked").exists()


def test_a_call_that_waits_for_a_place_is_judged_by_the_policy_of_its_turn(place):
    place.govern(POLICY + "[mcp]\ncalls_max = 1\n")
    is_asked, is_changed = anyio.Event(), anyio.Event()

    class Slow(Person):
        async def __call__(self, context, params):
            is_asked.set()
            await is_changed.wait()
            return await super().__call__(context, params)

    async def run() -> None:
        found = {}

        async def call(client: Client, tool: str, path: str) -> None:
            try:
                found[path] = (
                    await client.call_tool(tool, {"path": path, "content": "x"})
                ).is_error
            except MCPError as error:
                found[path] = str(error)

        slow = Slow(content=YES)
        async with (
            Client(
                place.stdio("--structured"), mode=ERAS["handshake"], elicitation_callback=slow
            ) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(call, client, "create_file", "asked/a")
            await is_asked.wait()
            tasks.start_soon(call, client, "create_file", "b")
            await client.list_tools()
            place.govern(TIGHTER)
            assert [tool.name for tool in (await client.list_tools()).tools] == ["view"]
            is_changed.set()
        assert found["asked/a"] is True
        assert "unknown tool 'create_file'" in found["b"]

    anyio.run(run)
    assert not (place.project / "b").exists()


SHELL = '[profiles.standard]\nallow = ["tool:*"]\n'


def processes_with(mark: str) -> list[str]:
    """The ids of processes whose command line holds this, wherever they have got to."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


async def come_to(mark: str, processes: int) -> None:
    """Wait until at least so many (or, for 0, exactly none) processes hold this mark.

    They start and end without telling us, and the first word of progress may come before
    them; a machine that never gets there fails the test.
    """
    with anyio.fail_after(120):
        while len(found := processes_with(mark)) < processes or (found and not processes):  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.needs("stage")
def test_cancelling_one_call_of_32_kills_its_whole_process_tree_and_no_other(
    place, connect: Connect
):
    place.govern(SHELL)
    mark = os.urandom(6).hex()
    away = f'setsid bash -c "sleep 98; : {mark}"'
    command = f"bash -c '{away} & sleep 99; : {mark}'"

    async def run() -> None:
        heard = anyio.Event()

        async def progress(*_: object) -> None:
            heard.set()

        async def slow(client: Client) -> None:
            await client.call_tool("run_shell", {"command": command}, progress_callback=progress)

        async def view(client: Client) -> None:
            assert not (await client.call_tool("view", {"path": "README.md"})).is_error

        async with connect() as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow, client)
                await heard.wait()
                await come_to(mark, 2)
                # One slow call holds none of the 31 beside it.
                async with anyio.create_task_group() as others:
                    for _ in range(31):
                        others.start_soon(view, client)
                assert len(processes_with(mark)) >= 2
                tasks.cancel_scope.cancel()
            await come_to(mark, 0)
            assert not (await client.call_tool("view", {"path": "README.md"})).is_error

    anyio.run(run)
    (stopped,) = [
        entry
        for entry in place.entries("ho1m", "--type", "TOOL_RESULT")
        if entry["metadata"]["tool"] == "run_shell"
    ]
    assert (stopped["metadata"]["code"], stopped["metadata"]["effect"]) == (
        "call.cancelled",
        "none",
    )


@pytest.mark.loopback
@pytest.mark.needs("stage")
def test_a_server_that_is_told_to_end_stops_the_commands_that_run(place, era):
    place.govern(SHELL)
    mark = os.urandom(6).hex()
    with place.http("--structured") as server:

        async def run() -> None:
            told = anyio.Event()

            async def progress(*_: object) -> None:
                if not told.is_set():  # A second signal ends it at once.
                    told.set()
                    server.process.send_signal(signal.SIGTERM)

            call = {"command": f"bash -c 'sleep 99; : {mark}'"}
            async with server.client(era) as client:
                await client.call_tool("run_shell", call, progress_callback=progress)

        with contextlib.suppress(httpx2.HTTPError, MCPError, ExceptionGroup):
            anyio.run(run)
        assert server.process.wait(60) == 0
    assert processes_with(mark) == []
    (stopped,) = place.entries("ho1m", "--type", "TOOL_RESULT")
    assert stopped["metadata"]["code"] == "call.cancelled"


@pytest.mark.needs("stage")
def test_a_client_that_leaves_takes_its_commands_with_it(place, connect: Connect):
    place.govern(SHELL)
    mark = os.urandom(6).hex()

    async def run() -> None:
        heard = anyio.Event()

        async def progress(*_: object) -> None:
            heard.set()

        async with connect() as client, anyio.create_task_group() as tasks:
            call = {"command": f"bash -c 'sleep 99; : {mark}'"}
            tasks.start_soon(
                partial(client.call_tool, "run_shell", call, progress_callback=progress)
            )
            await heard.wait()
            await come_to(mark, 1)
            tasks.cancel_scope.cancel()
        await come_to(mark, 0)

    anyio.run(run)


@pytest.mark.loopback
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_unless_structured_answers_are_asked_for_a_tool_answers_with_text_alone(place, way):
    async def run(client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.output_schema for tool in tools} == {None}
        for call in (
            ("view", {"path": "README.md"}),
            ("grep", {"pattern": "hello"}),
            ("create_file", {"path": ".git/x", "content": "x"}),
        ):
            result = await client.call_tool(*call)
            assert result.structured_content is None
            assert [block.type for block in result.content] == ["text"]
        assert result.is_error
        assert "policy.protected" in result.content[0].text or ".git" in result.content[0].text

    async def connect() -> None:
        if way == "stdio":
            async with Client(place.stdio(), mode=ERAS["handshake"]) as client:
                await run(client)
        else:
            with place.http() as server:
                async with server.client("stateless") as client:
                    await run(client)

    anyio.run(connect)
