"""Strands' sandbox operations and the tools that it vends over them, on Paddock and on the host."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.sandbox import ExecutionResult, FileInfo, Sandbox, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment

import paddock
from examples.strands_agent import ScriptedModel
from paddock.errors import UsageError
from paddock.integrations.strands import PaddockSandbox
from tests.support.places import SECRET, Place

pytestmark = pytest.mark.needs("stage")

Recorded = Callable[[], list[tuple[str, str, str]]]


@pytest.fixture
def sandbox(place: Place, write_policy: Callable[[str], None]) -> Iterator[PaddockSandbox]:
    with PaddockSandbox(place.project) as opened:
        yield opened


async def outcome_of(awaited: Any) -> Any:
    """What it came to; of an error its nearest built-in kind."""
    try:
        return await awaited
    except (ValueError, OSError) as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


async def script(sandbox: Sandbox, root: Path) -> list[Any]:
    """One of everything, and what each came to."""
    steps = [
        sandbox.execute("printf out; printf err >&2; exit 3"),
        sandbox.execute("pwd; echo $WHO", cwd=str(root / "src"), env={"WHO": "it's me"}),
        sandbox.execute("no-such-program-at-all 2>/dev/null"),
        sandbox.execute("sleep 600", timeout=1),
        sandbox.execute("kill -9 $$"),
        sandbox.execute("true", env={"not a name": "x"}),
        sandbox.execute_code("import sys; print(sys.argv, 'é\"$`')", "python3"),
        sandbox.execute_code("x", "python3; touch pwned"),
        sandbox.write_file(str(root / "new/deep/data"), bytes(range(256))),
        sandbox.read_file(str(root / "new/deep/data")),
        sandbox.write_text(str(root / "README.md"), "# Gadgets\n"),
        sandbox.read_text(str(root / "README.md")),
        sandbox.read_file(str(root / "none")),
        sandbox.read_file(str(root / "src")),
        sandbox.write_file(str(root / "src"), b""),
        sandbox.remove_file(str(root / "src/latin")),
        sandbox.remove_file(str(root / "src/latin")),
        sandbox.list_files(str(root / "src")),
        sandbox.list_files(str(root / "none")),
        sandbox.list_files(str(root / "README.md")),
        sandbox.execute("ls src; cat README.md"),
    ]
    return [await outcome_of(step) for step in steps]


def test_the_same_script_comes_to_the_same_as_on_the_host(
    place: Place, sandbox: PaddockSandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(place.project)
    here = asyncio.run(script(NotASandboxLocalEnvironment(), place.project))
    place.fill()
    there = asyncio.run(script(sandbox, place.project))

    assert there == here
    assert not (place.project / "pwned").exists()


def test_output_is_heard_as_it_is_printed_and_the_result_comes_last(sandbox: PaddockSandbox):
    async def listen() -> list[StreamChunk | ExecutionResult]:
        line = "printf a; printf b >&2; until [ -e /tmp/go ]; do :; done; printf c"
        heard = []
        async for each in sandbox.execute_streaming(line):
            heard.append(each)
            if len(heard) == 2:
                await sandbox.write_file("/tmp/go", b"")
        return heard

    heard = asyncio.run(listen())
    assert sorted(heard[:2], key=str) == [StreamChunk("a"), StreamChunk("b", "stderr")]
    assert heard[2:] == [StreamChunk("c"), ExecutionResult(0, "ac", "b")]


def test_a_command_that_is_not_done_in_time_says_what_it_printed(sandbox: PaddockSandbox):
    with pytest.raises(SandboxTimeoutError, match="timed out after 0.5 seconds") as caught:
        asyncio.run(sandbox.execute("echo begun; sleep 600", timeout=0.5))
    assert caught.value.stdout == "begun\n"


def test_whoever_stops_waiting_ends_the_command(
    place: Place, sandbox: PaddockSandbox, recorded: Recorded
):
    async def stop() -> None:
        stream = sandbox.execute_streaming("echo begun; sleep 600; touch late")
        assert await anext(stream) == StreamChunk("begun\n")
        await stream.aclose()
        running = asyncio.create_task(sandbox.execute("sleep 600; touch late"))
        while len(await asyncio.to_thread(recorded)) < 3:
            pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(stop())
    assert [event for event, _, _ in recorded()] == ["TOOL_INTENT", "TOOL_RESULT"] * 2
    assert not (place.project / "late").exists()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda sandbox: sandbox.read_file(".env"),
        lambda sandbox: sandbox.write_file(".git/config", b""),
        lambda sandbox: sandbox.write_file("locked/x", b""),
        lambda sandbox: sandbox.remove_file(".env"),
        lambda sandbox: sandbox.execute("cat .env"),
        lambda sandbox: sandbox.execute_code("mkdir locked; touch locked/x", "bash"),
    ],
)
def test_what_policy_refuses_is_refused(
    attempt: Callable[[Sandbox], Any], place: Place, sandbox: PaddockSandbox
):
    before = place.untouchable()
    try:
        said = asyncio.run(attempt(sandbox))
    except PermissionError as error:
        assert "error[policy." in str(error)
    else:
        assert said.stderr.splitlines()[-1].startswith("paddock: ")
    assert place.untouchable() == before
    assert not (place.project / "locked/x").exists()


def test_the_tmp_of_the_sandbox_is_its_own(sandbox: PaddockSandbox):
    async def use() -> list[Any]:
        await sandbox.write_file("/tmp/mine/a", b"\0a")
        seen = await sandbox.execute("cat /tmp/mine/a")
        listed = await sandbox.list_files("/tmp/mine")
        for path in ("/tmp/none", "/tmp/mine/a"):
            with pytest.raises(SandboxPathNotFoundError):
                await sandbox.list_files(path)
        content = await sandbox.read_file("/tmp/mine/a")
        await sandbox.remove_file("/tmp/mine/a")
        gone = await outcome_of(sandbox.read_file("/tmp/mine/a"))
        return [seen.stdout, listed, content, gone]

    assert asyncio.run(use()) == ["\0a", [FileInfo("a", False)], b"\0a", FileNotFoundError]
    assert not Path("/tmp/mine").exists()


def test_the_vended_tools_run_through_the_door(
    place: Place, sandbox: PaddockSandbox, recorded: Recorded
):
    root = place.project
    edit = {"command": "str_replace", "path": f"{root}/README.md", "old_str": "teh"}
    turns = [
        ("sandbox_file_editor", {"command": "view", "path": f"{root}/README.md"}),
        ("sandbox_file_editor", {**edit, "new_str": "the"}),
        ("sandbox_file_editor", {"command": "view", "path": str(root)}),
        ("sandbox_shell", {"command": "grep -c the README.md"}),
        ("sandbox_shell", {"command": "cat .env"}),
        "done",
    ]
    agent = Agent(model=ScriptedModel(turns), sandbox=sandbox, callback_handler=None)
    assert str(agent("fix it")) == "done\n"

    answers = [
        block["toolResult"]
        for message in agent.messages
        for block in message["content"]
        if "toolResult" in block
    ]
    assert [each["status"] for each in answers] == ["success"] * 5
    assert '"output": "1\\n"' in answers[3]["content"][0]["text"]
    assert "paddock: a person can change it" in answers[4]["content"][0]["text"]
    assert SECRET not in str(agent.messages)
    assert (root / "README.md").read_text() == "# Widgets\nhello the world\n"
    assert {tool for _, tool, _ in recorded()} == {
        "read_bytes",
        "write_bytes",
        "list_entries",
        "exec",
    }


def test_an_open_runtime_stays_open(place: Place, write_policy: Callable[[str], None]):
    with paddock.open(place.project) as runtime:
        with PaddockSandbox(runtime) as sandbox:
            assert asyncio.run(sandbox.read_text("README.md")).startswith("# Widgets")
        assert not runtime.is_closed
        with pytest.raises(UsageError):
            PaddockSandbox(runtime, agent="main")
