"""Pydantic AI with Paddock's tools: its own models, its own runs, its own approvals."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied, ToolReturnPart
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import ToolApproved

import paddock
from paddock.errors import UsageError
from paddock.integrations.pydantic_ai import DIGEST, PaddockToolset
from tests.support.places import Place

ASKS = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:output:*"]
ask = ["tool:file:delete **"]
"""
DELETE = ToolCallPart("delete_file", {"path": "src/a.py"}, tool_call_id="call-1")


@pytest.fixture
def toolset(place: Place, write_policy: Callable[[str], None]) -> Iterator[PaddockToolset]:
    write_policy(ASKS)
    with PaddockToolset(place.project) as opened:
        yield opened


def scripted(*turns: list[ToolCallPart]) -> FunctionModel:
    """A model that makes these calls, turn by turn, and then repeats what it was told last."""
    left = list(turns)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if left:
            return ModelResponse(parts=left.pop(0))
        said = [each for each in messages[-1].parts if isinstance(each, ToolReturnPart)]
        return ModelResponse(parts=[TextPart("\n".join(str(each.content) for each in said))])

    return FunctionModel(respond)


def run(agent: Agent[None, object], prompt: str | None = None, **more: object) -> AgentRunResult:
    return asyncio.run(agent.run(prompt, **more))


def agent_of(toolset: PaddockToolset, model: FunctionModel) -> Agent[None, object]:
    return Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def test_the_model_is_offered_what_policy_may_allow(toolset: PaddockToolset):
    model = TestModel(call_tools=[])
    run(Agent(model, toolsets=[toolset]), "hello")

    offered = model.last_model_request_parameters.function_tools
    tools = {tool["name"]: tool for tool in toolset.runtime.tools.for_provider("mcp")}
    assert [each.name for each in offered] == list(tools)
    assert "run_shell" not in tools
    assert {each.name: each.parameters_json_schema for each in offered} == {
        name: tool["inputSchema"] for name, tool in tools.items()
    }
    assert {each.name for each in offered if each.sequential} == {
        "create_file", "str_replace", "move_file", "delete_file", "write_output",
    }  # fmt: skip


def test_its_test_model_calls_every_tool_and_whatever_it_makes_up_is_answered(
    toolset: PaddockToolset, recorded: Callable[[], list[tuple[str, str, str]]]
):
    agent = Agent(TestModel(), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    run(agent, "call everything")

    offered = {tool.name for tool in toolset.runtime.tools.list_all()}
    assert {tool for _, tool, _ in recorded()} == offered


def test_a_run_reads_and_writes_through_the_door(
    toolset: PaddockToolset, place: Place, recorded: Callable[[], list[tuple[str, str, str]]]
):
    edit = {"path": "README.md", "old_str": "teh", "new_str": "the"}
    model = scripted(
        [ToolCallPart("view", {"path": "README.md"})], [ToolCallPart("str_replace", edit)]
    )
    first = run(agent_of(toolset, model), "fix the typo")

    assert (place.project / "README.md").read_text() == "# Widgets\nhello the world\n"
    viewed, edited = returns(first.all_messages())
    assert viewed.content == "     1\t# Widgets\n     2\thello teh world"
    assert edited.metadata["path"] == str(place.project / "README.md")
    assert recorded() == [
        ("TOOL_INTENT", "view", "allow"),
        ("TOOL_RESULT", "view", "allow"),
        ("TOOL_INTENT", "str_replace", "allow"),
        ("TOOL_RESULT", "str_replace", "allow"),
    ]


def test_a_refusal_is_a_failed_result_that_the_model_reads(toolset: PaddockToolset):
    model = scripted(
        [ToolCallPart("view", {"path": ".env"}), ToolCallPart("view", {"path": 7})],
        [ToolCallPart("view", {"path": "README.md"})],
    )
    first = run(agent_of(toolset, model), "look around")

    secret, wrong, seen = returns(first.all_messages())
    assert [each.outcome for each in (secret, wrong, seen)] == ["failed", "failed", "success"]
    assert secret.content.startswith("error[policy.secret]: ")
    assert wrong.content.startswith("error[args.invalid]: ")


def test_writes_of_one_turn_happen_in_its_order(toolset: PaddockToolset, place: Place):
    turn = [ToolCallPart("create_file", {"path": "a.txt", "content": f"{n}\n"}) for n in range(5)]
    run(agent_of(toolset, scripted(turn)), "write")

    assert (place.project / "a.txt").read_text() == "4\n"


def test_an_ask_is_deferred_and_runs_once_it_is_approved(
    toolset: PaddockToolset, place: Place, recorded: Callable[[], list[tuple[str, str, str]]]
):
    agent = agent_of(toolset, scripted([DELETE]))
    first = run(agent, "clean up")

    waiting = first.output
    assert isinstance(waiting, DeferredToolRequests)
    assert waiting.approvals == [DELETE]
    assert waiting.metadata["call-1"]["question"].startswith(
        'agent main asks to run delete_file {"path": "src/a.py"}\n  action: tool:file:delete'
    )
    assert (place.project / "src/a.py").exists()

    yes = waiting.build_results(approve_all=True)
    done = run(agent, message_history=first.all_messages(), deferred_tool_results=yes)

    assert not (place.project / "src/a.py").exists()
    assert [each.outcome for each in returns(done.all_messages())] == ["success"]
    assert recorded() == [
        ("TOOL_DENIED", "delete_file", "deny"),
        ("TOOL_INTENT", "delete_file", "allow"),
        ("TOOL_RESULT", "delete_file", "allow"),
    ]
    assert place.run("approvals", "list", "--json").json == []
    asked = place.run("ledger", "query", "--ledger", "governance", "--type", "APPROVAL_ANSWERED")
    assert [row.partition("delete_file")[2].split("  ")[1] for row in asked.out.splitlines()] == [
        "deferred by pydantic-ai: the program is asked",
        "granted by pydantic-ai",
    ]


def test_what_a_person_denies_does_not_happen(toolset: PaddockToolset, place: Place):
    agent = agent_of(toolset, scripted([DELETE]))
    first = run(agent, "clean up")
    no = DeferredToolResults(approvals={"call-1": ToolDenied("not that one")})
    done = run(agent, message_history=first.all_messages(), deferred_tool_results=no)

    assert (place.project / "src/a.py").exists()
    assert done.output == "not that one"


def test_a_program_that_was_started_anew_hands_the_metadata_back(
    toolset: PaddockToolset, place: Place
):
    first = run(agent_of(toolset, scripted([DELETE])), "clean up")
    metadata = first.output.metadata
    with PaddockToolset(place.project) as other:
        agent = agent_of(other, scripted())
        yes = DeferredToolResults(approvals={"call-1": True}, metadata=metadata)
        run(agent, message_history=first.all_messages(), deferred_tool_results=yes)

    assert not (place.project / "src/a.py").exists()


@pytest.mark.parametrize("approved", [True, ToolApproved(override_args={"path": "src/latin"})])
def test_an_approval_for_something_else_is_a_new_question(
    approved: object, toolset: PaddockToolset, place: Place
):
    agent = agent_of(toolset, scripted([DELETE]))
    first = run(agent, "clean up")
    if approved is True:
        (place.project / "src/a.py").write_text("changed meanwhile\n")
    again = run(
        agent,
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={"call-1": approved}),
    )

    assert isinstance(again.output, DeferredToolRequests)
    assert again.output.metadata["call-1"][DIGEST] != first.output.metadata["call-1"][DIGEST]
    assert (place.project / "src/a.py").exists()
    assert (place.project / "src/latin").exists()

    yes = DeferredToolResults(approvals={"call-1": approved})
    run(agent, message_history=again.all_messages(), deferred_tool_results=yes)
    assert len({"a.py", "latin"} & {path.name for path in (place.project / "src").iterdir()}) == 1


def test_with_an_approver_nothing_is_deferred(place: Place, toolset: PaddockToolset):
    asked: list[str] = []

    def approve(request: paddock.ApprovalRequest) -> bool:
        asked.append(request.tool)
        return True

    with PaddockToolset(place.project, approver=approve) as own:
        run(agent_of(own, scripted([DELETE])), "clean up")

    assert asked == ["delete_file"]
    assert not (place.project / "src/a.py").exists()


def test_an_open_runtime_stays_open_and_its_asks_are_deferred_too(
    place: Place, toolset: PaddockToolset
):
    with paddock.open(place.project) as runtime:
        with PaddockToolset(runtime, id="paddock") as own:
            first = run(agent_of(own, scripted([DELETE])), "clean up")
            assert isinstance(first.output, DeferredToolRequests)
            assert own.id == "paddock"
        assert not runtime.is_closed
        with pytest.raises(UsageError, match="an open runtime does not accept agent"):
            PaddockToolset(runtime, agent="main")
    assert runtime.is_closed


@pytest.mark.needs("stage")
def test_who_stops_the_run_stops_its_command(
    place: Place,
    write_policy: Callable[[str], None],
    recorded: Callable[[], list[tuple[str, str, str]]],
):
    write_policy('[profiles.standard]\nallow = ["tool:*"]\n')
    call = ToolCallPart("run_shell", {"command": "sleep 600 && touch late"})

    async def stop(toolset: PaddockToolset) -> None:
        waiting = asyncio.create_task(agent_of(toolset, scripted([call])).run("wait"))
        while not await asyncio.to_thread(recorded):
            pass
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with PaddockToolset(place.project) as toolset:
        asyncio.run(stop(toolset))
    assert [event for event, _, _ in recorded()] == ["TOOL_INTENT", "TOOL_RESULT"]
    assert not (place.project / "late").exists()
