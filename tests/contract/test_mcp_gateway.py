"""Other people's servers through our server, with the SDK's own client in both protocol eras."""

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support.gateways import table, toml
from tests.support.mcp_servers import ERAS, McpPlace, Person, make_place

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

TALKS = """
TOOLS += [tool("slow"), tool("asks"), tool("samples"), tool("draws"), tool("fails")]

def act(arguments, id):
    return text("acted")

def called(name, arguments, id):
    global wanted
    wanted = id
    if name == "say":
        result = text(arguments.get("text", ""))
    elif name == "slow":
        token = last["params"]["_meta"]["progressToken"]
        for n in range(3):
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                 {"progressToken": token, "progress": n, "total": 3, "message": f"step {n}"}})
        if arguments.get("text") == "for ever":
            return
        result = text("slow")
    elif name == "draws":
        result = {"content": [{"type": "image", "mimeType": "image/png", "data": "aGk="}]}
    elif name == "fails":
        result = text("no", isError=True)
    elif name == "asks":
        say({"jsonrpc": "2.0", "id": "e", "method": "elicitation/create", "params":
             {"message": "Which colour?\\u202e", "requestedSchema":
              {"type": "object", "properties": {"colour": {"type": "string"}}}}})
        return
    elif name == "samples":
        say({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params":
             {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
              "maxTokens": 10}})
        return
    else:
        result = act(arguments, id)
    say({"jsonrpc": "2.0", "id": id, "result": result})

def answered(message):
    say({"jsonrpc": "2.0", "id": wanted, "result": text(json.dumps(message.get("result")))})

before = answer
def answer(message):
    global last
    if message.get("method") == "notifications/cancelled":
        open("/tmp/cancelled", "w")
    last = message
    before(message)
"""
LATER = """
import json, sys
def say(m): print(json.dumps(m), flush=True)
TOOL={"name":"asks","description":"Ask.","inputSchema":{"type":"object"}}
for line in sys.stdin:
    m=json.loads(line); id=m.get("id"); p=m.get("params") or {}
    if m.get("method")=="server/discover":
        say({"jsonrpc":"2.0","id":id,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}})
    elif m.get("method")=="tools/list":
        say({"jsonrpc":"2.0","id":id,"result":{"tools":[TOOL],"resultType":"complete","ttlMs":0,"cacheScope":"private"}})
    elif m.get("method")=="tools/call":
        if p.get("inputResponses"):
            say({"jsonrpc":"2.0","id":id,"result":{"content":[{"type":"text","text":json.dumps([p["inputResponses"],p["requestState"]])}],"resultType":"complete"}})
        else:
            say({"jsonrpc":"2.0","id":id,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"c":{"method":"elicitation/create","params":{"mode":"form","message":"which?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}}}}}}}})
    elif id is not None: say({"jsonrpc":"2.0","id":id,"error":{"code":-32601,"message":"x"}})
"""
ALL = '[profiles.standard]\nallow = ["tool:*"]\n'


@pytest.fixture(params=sorted(ERAS))
def era(request) -> str:
    return ERAS[request.param]


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    made = make_place(tmp_path, ALL + table("talks", TALKS) + table("plain"))
    ran = made.run("mcp", "review", "--yes")
    assert ran.returncode == 0, ran.stderr
    return made


def texts(result: types.CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if each.type == "text")


def test_tools_of_two_servers_stand_beside_ours_and_are_called(place: McpPlace, era: str):
    async def run() -> None:
        async with Client(place.stdio(), mode=era) as client:
            names = {each.name for each in (await client.list_tools()).tools}
            assert {"view", "talks__say", "talks__draws", "plain__say", "plain__act"} <= names
            assert texts(await client.call_tool("talks__say", {"text": "a"})) == "a"
            assert texts(await client.call_tool("plain__act", {})) == "acted"
            drawn = await client.call_tool("talks__draws", {})
            assert [each.type for each in drawn.content] == ["text", "image"]
            failed = await client.call_tool("talks__fails", {})
            assert failed.is_error
            assert texts(failed) == "[the server reports an error]\nno"

    anyio.run(run)


def test_progress_passes_through_and_a_cancelled_call_is_told_to_the_server(
    place: McpPlace, era: str
):
    seen: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async def run() -> None:
        async with Client(place.stdio(), mode=era) as client:
            result = await client.call_tool("talks__slow", {}, progress_callback=progress)
            assert texts(result) == "slow"
            with anyio.move_on_after(2):
                await client.call_tool("talks__slow", {"text": "for ever"})
            assert texts(await client.call_tool("talks__say", {"text": "on"})) == "on"

    anyio.run(run)
    assert (2.0, 3.0, "step 2") in seen


def test_resources_and_prompts_pass_through_with_their_servers_name(place: McpPlace, era: str):
    async def run() -> None:
        async with Client(place.stdio(), mode=era) as client:
            listed = (await client.list_resources()).resources
            assert {str(each.uri) for each in listed} == {"talks+made:///one", "plain+made:///one"}
            read = await client.read_resource("talks+made:///one")
            assert [(str(each.uri), each.text) for each in read.contents] == [
                ("talks+made:///one", "what stands in made:///one")
            ]
            prompts = (await client.list_prompts()).prompts
            assert {each.name for each in prompts} == {"talks__plan", "plain__plan"}
            got = await client.get_prompt("plain__plan")
            assert got.messages[0].content.text == "do plan"
            with pytest.raises(MCPError):
                await client.read_resource("nobody+made:///one")

    anyio.run(run)


def test_a_person_is_asked_about_a_resource_and_a_prompt(place: McpPlace, era: str):
    asking = ALL + 'ask = ["tool:mcp:*"]\n'
    place.govern((place.project / "paddock.toml").read_text().replace(ALL, asking))
    person = Person(content={"approve": True})

    async def run() -> None:
        async with Client(place.stdio(), mode=era, elicitation_callback=person) as client:
            read = await client.read_resource("talks+made:///one")
            assert [each.text for each in read.contents] == ["what stands in made:///one"]
            got = await client.get_prompt("plain__plan")
            assert got.messages[0].content.text == "do plan"
            person.content = {"approve": False}
            with pytest.raises(MCPError, match=r"approval\.refused"):
                await client.read_resource("talks+made:///one")
            with pytest.raises(MCPError, match=r"approval\.refused"):
                await client.get_prompt("plain__plan")

    anyio.run(run)
    assert [shown.splitlines()[1].strip() for shown in person.shown] == [
        "action: tool:mcp:read talks/made:///one",
        "action: tool:mcp:prompt plain/plan",
    ] * 2


def test_a_server_asks_the_client_of_the_call_in_its_own_name(place: McpPlace):
    person = Person(content={"colour": "red"})

    async def run() -> None:
        async with Client(place.stdio(), mode="legacy", elicitation_callback=person) as client:
            said = json.loads(texts(await client.call_tool("talks__asks", {})))
            assert said == {"action": "accept", "content": {"colour": "red"}}

    anyio.run(run)
    assert person.shown == ["The MCP server talks asks (not Paddock):\nWhich colour?\\u202e"]


def test_a_server_of_the_later_era_asks_by_its_answer_whatever_era_the_client_speaks(
    tmp_path: Path, era: str
):
    command = toml(["python3", "-c", LATER])
    place = make_place(tmp_path, f"{ALL}\n[mcp.servers.later]\ncommand = {command}\n")
    assert place.run("mcp", "review", "--yes").returncode == 0
    person = Person(content={"colour": "red"})

    async def run() -> None:
        async with Client(place.stdio(), mode=era, elicitation_callback=person) as client:
            said, state = json.loads(texts(await client.call_tool("later__asks", {})))
            assert said == {"c": {"action": "accept", "content": {"colour": "red"}}}
            assert state == "s1"

    anyio.run(run)
    assert person.shown == ["The MCP server later asks (not Paddock):\nwhich?"]


def test_a_person_who_is_asked_about_a_call_answers_what_its_server_asks_too(
    tmp_path: Path, era: str
):
    policy = '[profiles.standard]\nask = ["tool:mcp:*"]\n\n[mcp.servers.later]\n'
    place = make_place(tmp_path, f"{policy}command = {toml(['python3', '-c', LATER])}\n")
    assert place.run("mcp", "review", "--yes").returncode == 0
    person = Person(content={"approve": True, "colour": "red"})

    async def run() -> str:
        async with Client(place.stdio(), mode=era, elicitation_callback=person) as client:
            return texts(await client.call_tool("later__asks", {}))

    answers, state = json.loads(anyio.run(run))
    assert (answers["c"]["content"]["colour"], state) == ("red", "s1")
    assert "The MCP server later asks (not Paddock):\nwhich?" in person.shown


@pytest.mark.parametrize(("approves", "answer"), [(True, "sampled"), (False, "null")])
def test_a_server_has_the_clients_model_only_after_a_yes(
    place: McpPlace, approves: bool, answer: str
):
    person = Person(content={"approve": approves})

    async def sample(context: object, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="sampled")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def run() -> None:
        async with Client(
            place.stdio(), mode="legacy", elicitation_callback=person, sampling_callback=sample
        ) as client:
            assert answer in texts(await client.call_tool("talks__samples", {}))

    anyio.run(run)
    assert "wants to ask your model" in person.shown[0]


def test_a_client_hears_of_another_list_after_a_review(place: McpPlace):
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    async def run() -> None:
        async with Client(place.stdio(), mode="legacy", message_handler=hear) as client:
            await client.list_tools()
            own = TALKS + 'TOOLS.append(tool("came"))\n'
            place.govern(ALL + table("talks", own) + table("plain"))
            # Started by another command it is another server, until somebody has looked.
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("talks__say", {"text": "x"})
            assert place.run("mcp", "review", "--yes").returncode == 0
            assert texts(await client.call_tool("plain__say", {"text": "x"})) == "x"
            names = {each.name for each in (await client.list_tools()).tools}
            assert "talks__came" in names

    anyio.run(run)
    assert "notifications/tools/list_changed" in heard
