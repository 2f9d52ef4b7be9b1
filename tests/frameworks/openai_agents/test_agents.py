"""Agents of the OpenAI Agents SDK with its scripted model: a sandbox, a shell, an editor."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    RunConfig,
    Runner,
    ShellTool,
)
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseApplyPatchToolCall, ResponseFunctionShellToolCall

import paddock
from paddock.integrations.openai_agents import (
    PaddockSandboxClient,
    PatchEditor,
    patch_editor,
    shell_executor,
)
from tests.support.places import SECRET, Place

pytestmark = pytest.mark.needs("stage")

Recorded = Callable[[], list[tuple[str, str, str]]]


@pytest.fixture
def runtime(place: Place, write_policy: Callable[[str], None]) -> Iterator[paddock.Runtime]:
    with paddock.open(place.project) as opened:
        yield opened


@pytest.fixture
def editor(runtime: paddock.Runtime) -> PatchEditor:
    return patch_editor(runtime)


def run(agent: Agent[Any], **config: Any) -> list[Any]:
    """What the tools answered, in order."""
    done = asyncio.run(
        Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True, **config))
    )
    assert done.final_output == "done"
    return [each.output for each in done.new_items if each.type == "tool_call_output_item"]


def patches(kind: str, path: str, diff: str = "", move_to: str | None = None) -> Any:
    return ApplyPatchOperation(kind, path, diff, move_to=move_to)


def test_an_agent_in_a_sandbox_works_through_the_door(
    place: Place, runtime: paddock.Runtime, recorded: Recorded
):
    turns = [
        function_call("exec_command", {"cmd": "grep -c teh README.md; cd src; pwd"}, call_id="1"),
        function_call("exec_command", {"cmd": "pwd", "workdir": "src"}, call_id="2"),
        function_call("exec_command", {"cmd": "cat .env; echo x > .git/config"}, call_id="3"),
        function_call("exec_command", {"cmd": "sleep 600", "yield_time_ms": 250}, call_id="4"),
    ]
    model = ScriptedModel([*([turn] for turn in turns), [assistant_message("done")]])
    client = PaddockSandboxClient(runtime)
    answers = run(SandboxAgent(name="a", model=model), sandbox=SandboxRunConfig(client=client))

    assert [each.split("Output:\n")[1] for each in answers[:2]] == [
        f"1\n{place.project}/src\n", f"{place.project}/src\n",
    ]  # fmt: skip
    assert "Process exited with code 126" in answers[2]
    assert "error[policy.protected]" in answers[2]
    assert "Process running with session ID" in answers[3]
    assert SECRET not in str(answers)
    assert {tool for _, tool, _ in recorded()} >= {"run_shell", "shell_output", "shell_stop"}
    assert runtime.call("shell_list", {}).details["sessions"] == []


def test_a_plain_agent_has_a_shell_and_an_editor(
    place: Place, runtime: paddock.Runtime, recorded: Recorded
):
    commands = ["echo one; exit 3", "mkdir -p locked; cd locked; touch x", "cat .env", "sleep 9"]
    shell = ResponseFunctionShellToolCall.model_validate(
        {
            "id": "1", "call_id": "1", "type": "shell_call", "status": "completed",
            "action": {"commands": [*commands, "touch late"], "timeout_ms": 900},
        }
    )  # fmt: skip
    operation = {
        "type": "update_file",
        "path": "README.md",
        "diff": "@@\n # Widgets\n-hello teh world\n+hello the world\n",
    }
    patch = ResponseApplyPatchToolCall.model_validate(
        {
            "id": "2", "call_id": "2", "type": "apply_patch_call", "status": "completed",
            "operation": operation,
        }
    )  # fmt: skip
    agent = Agent(
        name="a",
        model=ScriptedModel([[shell], [patch], [assistant_message("done")]]),
        tools=[
            ShellTool(executor=shell_executor(runtime)),
            ApplyPatchTool(editor=patch_editor(runtime)),
        ],
    )
    ran, patched = run(agent)

    assert ran.startswith("$ echo one; exit 3\none\nexit code: 3\n")
    assert "paddock: not changed: locked/x: tool:file:create locked/**" in ran
    assert SECRET not in ran
    assert ran.rstrip().endswith("timeout")
    assert "README.md" in patched
    assert (place.project / "README.md").read_text() == "# Widgets\nhello the world\n"
    assert not (place.project / "late").exists()
    assert [tool for event, tool, _ in recorded() if event == "TOOL_RESULT"] == [
        "exec", "exec", "exec", "exec", "read_bytes", "create_file",
    ]  # fmt: skip


def test_native_calls_are_answered_in_the_form_in_which_the_sdk_answers_them(
    runtime: paddock.Runtime,
):
    def calls(name: str) -> list[Any]:
        done = {"id": "1", "status": "completed"}
        action = {"commands": ["echo one; exit 3", "true"], "max_output_length": 1000}
        create = {"type": "create_file", "path": name, "diff": "+one"}
        return [
            ResponseFunctionShellToolCall.model_validate(
                {**done, "call_id": "1", "type": "shell_call", "action": action}
            ),
            ResponseApplyPatchToolCall.model_validate(
                {**done, "call_id": "2", "type": "apply_patch_call", "operation": create}
            ),
        ]

    model = ScriptedModel([calls("theirs"), [assistant_message("done")]])
    tools = [
        ShellTool(executor=shell_executor(runtime)),
        ApplyPatchTool(editor=patch_editor(runtime)),
    ]
    config = RunConfig(tracing_disabled=True)
    done = asyncio.run(
        Runner.run(Agent(name="a", model=model, tools=tools), "go", run_config=config)
    )
    items = [each for each in done.to_input_list() if str(each.get("type")).endswith("_output")]
    message = {"output": [each.model_dump() for each in calls("ours")], "status": "completed"}

    assert list(map(form_of, runtime.answer("openai-responses", message))) == [
        form_of(each) for each in items
    ]


def form_of(item: Any) -> Any:
    """Names and types, and the values that are words of the wire."""
    if isinstance(item, dict):
        wire = ("type", "call_id", "status", "exit_code", "stdout")
        return {name: each if name in wire else form_of(each) for name, each in item.items()}
    return list(map(form_of, item)) if isinstance(item, list) else type(item)


def test_a_patch_is_applied_to_what_it_was_made_for(place: Place, editor: PatchEditor):
    crlf = patches("update_file", "src/a.py", "@@\n-x = 1\n+x = 2\n y = 'é'\n")
    moved = patches("update_file", "README.md", "@@\n-# Widgets\n+# Gadgets\n", "docs/new.md")

    async def apply() -> list[str | None]:
        return [
            (await editor.create_file(patches("create_file", "made/a", "+one\n+two\n"))).status,
            (await editor.update_file(crlf)).status,
            (await editor.update_file(moved)).status,
            (await editor.delete_file(patches("delete_file", "src/latin"))).status,
        ]

    root = place.project
    assert asyncio.run(apply()) == ["completed"] * 4
    assert (root / "made/a").read_bytes() == b"one\ntwo"
    assert (root / "src/a.py").read_bytes() == "x = 2\r\ny = 'é'\r\n".encode()
    assert (root / "docs/new.md").read_text() == "# Gadgets\nhello teh world\n"
    assert not (root / "README.md").exists()
    assert not (root / "src/latin").exists()


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (patches("create_file", "README.md", "+x\n"), "error[text.changed]"),
        (patches("create_file", "locked/x", "+x\n"), "error[policy.denied]"),
        (patches("create_file", "x", "no plus"), "Invalid"),
        (patches("update_file", "none", "@@\n-x\n+y\n"), "error[path.not_found]"),
        (patches("update_file", "README.md", "@@\n-nowhere\n+y\n"), "nowhere"),
        (patches("update_file", "src/latin", "@@\n-x\n+y\n"), "utf-8"),
        (patches("update_file", ".env", "@@\n-x\n+y\n"), "error[policy.secret]"),
        (patches("update_file", "README.md", "@@\n-# Widgets\n+x\n", "src/a.py"), "text.changed"),
        (
            patches("update_file", "README.md", "@@\n-# Widgets\n+x\n", "../out"),
            "path.escapes_root",
        ),
        (patches("delete_file", "none"), "error[path.not_found]"),
        (patches("delete_file", ".git/config"), "error[policy.protected]"),
    ],
)
def test_a_patch_that_does_not_fit_or_may_not_be_is_a_failed_result(
    operation: ApplyPatchOperation, why: str, place: Place, editor: PatchEditor
):
    before = {**place.untouchable(), "readme": (place.project / "README.md").read_bytes()}
    result = asyncio.run(getattr(editor, operation.type)(operation))

    assert isinstance(result, ApplyPatchResult)
    assert result.status == "failed"
    assert why in str(result.output)
    after = {**place.untouchable(), "readme": (place.project / "README.md").read_bytes()}
    assert after == before
    assert not (place.project / "x").exists()


def test_each_opens_a_directory_itself(place: Place, write_policy: Callable[[str], None]):
    with shell_executor(place.project) as shell, patch_editor(place.project) as editor:
        assert shell.runtime.root == editor.runtime.root == str(place.project)
    assert shell.runtime.is_closed
    assert editor.runtime.is_closed
