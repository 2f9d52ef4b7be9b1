"""`import paddock`: what an embedding program holds in its hands."""

import asyncio
import json
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import paddock
from paddock.errors import (
    TOOL_ERRORS,
    AmbiguousMatchError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    FileChangedError,
    InvalidArgumentsError,
    PathExistsError,
    PathNotFoundError,
    PathTraversalError,
    ProtectedPathError,
    SecretPathError,
    StringNotFoundError,
    UnknownToolError,
)
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.providers.scripted import Say, ScriptedModel
from paddock.tools.arguments import ArgumentType, flag, needed_text
from tests.support.places import Place, program_place

HEAVY = (
    *("anthropic", "openai", "mcp", "claude_agent_sdk", "pydantic", "httpx", "requests"),
    *("tree_sitter", "tree_sitter_bash", "tree_sitter_toml", "cryptography"),
    *("argparse", "asyncio", "subprocess"),
)

PATIENCE_S = 60
"""After which a test that would hang fails."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with program_place(monkeypatch) as made:
        yield made


@pytest.fixture
def runtime(place: Place) -> Iterator[paddock.Runtime]:
    with paddock.open(place.project) as opened:
        yield opened


def entries(place: Place, event: str | None = None) -> list[dict[str, object]]:
    """What the ledger of calls holds, oldest first."""
    path = place.run("where", "--json").json["ledgers"]["ho1m"]
    assert verify(path).problems == ()
    return [
        {"call_id": row.entry.call_id, "event": row.entry.event_type, **row.entry.metadata}
        for row in query(path, Filter(event)).entries
    ]


def ask_before_deleting(place: Place) -> None:
    config = place.environment.user_config
    config.parent.mkdir(parents=True)
    config.write_text('[profiles.standard]\nask = ["tool:file:delete **"]\n')


def test_importing_it_loads_no_sdk_and_nothing_heavy():
    program = "import sys, paddock; paddock.ToolResult; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()}
    assert sorted(loaded & set(HEAVY)) == []


def test_opening_it_makes_the_plane_in_the_users_state_and_nothing_in_the_project(
    place, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(place.base / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.base / "config"))
    before = sorted(place.project.iterdir())
    with paddock.open(place.project) as opened:
        assert opened.call("view", {"path": "README.md"}).status == "ok"
    assert sorted(place.project.iterdir()) == before
    assert list(place.home.iterdir()) == []
    assert [path.name for path in (place.base / "state" / "paddock" / "planes").iterdir()] != []


def test_the_working_directory_is_the_default(place, monkeypatch):
    monkeypatch.chdir(place.project / "src")
    with paddock.open() as opened:
        assert opened.view("README.md").content.endswith("hello teh world")


def test_a_session_answers_and_delegates_to_a_child_of_its_agent(place):
    place.run("agent", "create", "reader", "--parent", "main", "--workspace", str(place.project))
    model = ScriptedModel([Say("hello"), Say("two lines")])
    with paddock.open_session(place.project, provider=model) as session:
        turn = session.handle_turn("hi")
        order = session.delegate("reader", "count the lines of README.md", budget=50_000)
    assert (turn.response, turn.outcome) == ("hello", "success")
    assert (order.state, order.output_result) == ("completed", {"response_text": "two lines"})


def test_a_session_has_the_built_in_model_and_asks_its_approver(place):
    asked = []

    def answer(request: paddock.ApprovalRequest) -> bool:
        asked.append(request.tool)
        return True

    ask_before_deleting(place)
    with paddock.open_session(place.project, approver=answer) as session:
        assert session.handle_turn("delete README.md").outcome == "success"
    assert (asked, (place.project / "README.md").exists()) == (["delete_file"], False)
    with pytest.raises(paddock.UsageError):
        paddock.open_session(place.project, agent="nobody")


def test_a_call_returns_text_for_the_model_and_fields_for_the_program(place, runtime):
    result = runtime.call("create_file", {"path": "a/b.md", "content": "x\n"}, call_id="toolu_1")
    assert (result.call_id, result.tool, result.status) == ("toolu_1", "create_file", "ok")
    assert "a/b.md" in result.content
    assert str(place.project) not in result.content
    assert result.details["path"] == str(place.project / "a" / "b.md")
    assert result.unwrap() is result


@pytest.mark.parametrize("given", [5, b"view", ["view"]])
def test_a_name_or_an_id_that_is_no_text_is_a_usage_error_and_nothing_runs(place, runtime, given):
    for wrong in ({"tool": given}, {"call_id": given}):
        with pytest.raises(paddock.UsageError, match="has to be text"):
            runtime.call(**{"tool": "view", "arguments": {"path": "README.md"}, **wrong})
    assert runtime.call("view", given).refusal.code == "args.invalid"
    assert [row["event"] for row in entries(place)] == ["GENESIS", "TOOL_DENIED"]


@pytest.mark.parametrize("message", [None, 5, ["hello"]])
def test_a_message_that_is_no_text_is_a_usage_error(place, message):
    with paddock.open_session(place.project) as session:
        with pytest.raises(paddock.UsageError, match="the message is .*, and has to be text"):
            session.handle_turn(message)
        assert session.handle_turn("hello").outcome == "success"


def test_a_call_can_be_awaited(runtime):
    async def two() -> list[paddock.ToolResult]:
        return await asyncio.gather(
            runtime.acall("view", {"path": "README.md"}, call_id="1"),
            runtime.acall("view", {"path": "nowhere"}, call_id="2"),
        )

    one, other = asyncio.run(two())
    assert (one.call_id, one.status) == ("1", "ok")
    assert (other.call_id, other.refusal and other.refusal.code) == ("2", "path.not_found")


def test_a_message_can_be_awaited(runtime):
    blocks = [
        {"type": "tool_use", "id": f"toolu_{path}", "name": "view", "input": {"path": path}}
        for path in ("README.md", "nowhere")
    ]
    answered = asyncio.run(runtime.aanswer("anthropic", {"content": blocks}))
    assert [(block["tool_use_id"], block["is_error"]) for block in answered] == [
        ("toolu_README.md", False),
        ("toolu_nowhere", True),
    ]
    with pytest.raises(paddock.UsageError):
        asyncio.run(runtime.aanswer("anthropic", None))


def test_a_message_that_is_cancelled_begins_none_of_its_calls_any_more(place):
    asked, answered = threading.Event(), threading.Event()

    def approve(request: paddock.ApprovalRequest) -> bool:
        asked.set()
        return answered.wait(PATIENCE_S)

    blocks = [
        {"type": "tool_use", "id": "1", "name": "delete_file", "input": {"path": "README.md"}},
        {
            "type": "tool_use",
            "id": "2",
            "name": "create_file",
            "input": {"path": "new", "content": ""},
        },
    ]

    async def leave(runtime: paddock.Runtime) -> None:
        answering = asyncio.ensure_future(runtime.aanswer("anthropic", {"content": blocks}))
        await until(asked)
        answering.cancel()
        await asyncio.wait([answering], timeout=0)
        answered.set()
        with pytest.raises(asyncio.CancelledError):
            await answering

    ask_before_deleting(place)
    with paddock.open(place.project, approver=approve) as runtime:
        asyncio.run(leave(runtime))
    assert [row.get("code") for row in entries(place)[1:]] == ["call.cancelled"] * 2
    assert (place.project / "README.md").exists()
    assert not (place.project / "new").exists()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_S)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_call_that_is_cancelled_is_stopped_and_its_end_is_waited_for(place, is_cancelled):
    asked, answered = threading.Event(), threading.Event()

    def approve(request: paddock.ApprovalRequest) -> bool:
        asked.set()
        return answered.wait(PATIENCE_S)

    async def delete(runtime: paddock.Runtime) -> str:
        calling = asyncio.ensure_future(runtime.acall("delete_file", {"path": "README.md"}))
        await until(asked)
        if is_cancelled:
            # Once more does not make it wait any less.
            for _ in range(2):
                calling.cancel()
                await asyncio.wait([calling], timeout=0)
                assert not calling.done()
        answered.set()
        await asyncio.wait([calling])
        assert calling.cancelled() is is_cancelled
        return "" if is_cancelled else calling.result().status

    ask_before_deleting(place)
    with paddock.open(place.project, approver=approve) as runtime:
        said = asyncio.run(delete(runtime))
    events = [(entry["event"], entry.get("code")) for entry in entries(place)[1:]]
    if is_cancelled:
        assert events == [("TOOL_DENIED", "call.cancelled")]
    else:
        assert (said, [event for event, _ in events]) == ("ok", ["TOOL_INTENT", "TOOL_RESULT"])
    assert (place.project / "README.md").exists() is is_cancelled


def test_a_call_that_is_cancelled_before_its_thread_runs_changes_nothing(place, runtime):
    async def at_once() -> None:
        calling = asyncio.ensure_future(
            runtime.acall("create_file", {"path": "new", "content": "x"})
        )
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    asyncio.run(at_once())
    assert not (place.project / "new").exists()


def test_a_call_needs_none_of_the_loops_own_threads(runtime):
    async def beside() -> paddock.ToolResult:
        free = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(one := ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, free.wait, PATIENCE_S)
        seen = await asyncio.wait_for(runtime.acall("view", {"path": "README.md"}), PATIENCE_S)
        assert not busy.done()
        free.set()
        await busy
        one.shutdown()
        return seen

    assert asyncio.run(beside()).status == "ok"


def test_any_number_of_calls_can_wait_for_an_answer_at_once(place):
    # More than a loop has threads, on any machine: min(32, processors + 4).
    names = [f"{each}.txt" for each in range(40)]
    together = threading.Barrier(len(names))

    def approve(request: paddock.ApprovalRequest) -> bool:
        del request
        return together.wait(PATIENCE_S) < 0

    async def ask(runtime: paddock.Runtime) -> list[paddock.ToolResult]:
        calls = [runtime.acall("delete_file", {"path": name}) for name in names]
        return await asyncio.gather(*calls)

    ask_before_deleting(place)
    for name in names:
        (place.project / name).write_text(name)
    with paddock.open(place.project, approver=approve) as runtime:
        codes = {result.refusal and result.refusal.code for result in asyncio.run(ask(runtime))}
    assert codes == {"approval.refused"}


# Errors


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda r: r.view("../outside/kept.txt"), PathTraversalError),
        (lambda r: r.view("nowhere"), PathNotFoundError),
        (lambda r: r.view(".env"), SecretPathError),
        (lambda r: r.create_file(".git/hooks/x", ""), ProtectedPathError),
        (lambda r: r.create_file("README.md", "", if_version="sha256:0"), FileChangedError),
        (lambda r: r.str_replace("README.md", "nope", "x"), StringNotFoundError),
        (lambda r: r.str_replace("README.md", "e", "x"), AmbiguousMatchError),
        (lambda r: r.move_file("README.md", "src/a.py"), PathExistsError),
        (lambda r: r.delete_file(""), InvalidArgumentsError),
        (lambda r: r.view("README.md", offset=0), InvalidArgumentsError),
        (lambda r: r.call("nope", {}).unwrap(), UnknownToolError),
    ],
)
def test_a_typed_method_raises_the_class_of_the_code(runtime, act, error):
    with pytest.raises(paddock.ToolError) as raised:
        act(runtime)
    assert type(raised.value) is error
    assert TOOL_ERRORS[raised.value.code] is error


def test_typed_methods_do_what_they_say(place, runtime):
    runtime.create_file("a.md", "one\n")
    runtime.str_replace("a.md", "one", "two")
    runtime.move_file("a.md", "b.md")
    assert runtime.view("b.md", offset=1, limit=1).content == "     1\ttwo"
    runtime.delete_file("b.md")
    assert not (place.project / "b.md").exists()


def test_typed_methods_look_and_write_results(place, runtime):
    assert "README.md" in runtime.ls().content
    assert runtime.find("*.py").content.splitlines()[0].startswith("src/a.py")
    assert "README.md:2" in runtime.grep("TEH", ignore_case=True, literal=True, limit=1).content
    assert runtime.grep("x", "src", glob="*.md").details["matches"] == []
    runtime.write_output("report", "fine")
    assert (place.project / "outputs").is_dir()
    with pytest.raises(PathNotFoundError):
        runtime.ls("nowhere")


@pytest.mark.parametrize(
    ("said", "decision", "row"),
    [
        (
            paddock.Approval(
                False, "desk", "approval.unavailable", "Ann is asked", is_deferred=True
            ),
            "ask",
            "deferred by desk: Ann is asked",
        ),
        (paddock.Approval(False, "desk", note="no"), "deny", "refused by desk: no"),
        (paddock.Approval(True, "desk"), "allow", "granted by desk"),
        (paddock.Approval(True, "desk", is_deferred=True), "allow", "granted by desk"),
    ],
)
def test_a_question_that_is_put_off_is_on_record_as_no_answer(place, said, decision, row):
    ask_before_deleting(place)
    (place.project / "a.txt").write_text("a")
    with paddock.open(place.project) as runtime:
        bounds = paddock.Bounds(approver=SimpleNamespace(answer=lambda _: said))
        runtime.call("delete_file", {"path": "a.txt"}, bounds=bounds)

    assert (place.project / "a.txt").exists() == (not said.is_granted)
    asked = ("ledger", "query", "--ledger", "governance", "--type", "APPROVAL_ANSWERED")
    shown = place.run(*asked).out
    assert f"  {decision}" in shown
    assert row in shown


def test_a_program_takes_a_call_back_and_its_undo_too(place, runtime):
    readme = place.project / "README.md"
    before = readme.read_bytes()
    edit = runtime.str_replace("README.md", "Widgets", "Gadgets")
    made = runtime.create_file("new/deep/a.txt", "a")
    after = readme.read_bytes()

    undone = runtime.undo(edit.call_id)
    assert readme.read_bytes() == before
    assert undone.details["undone"] == edit.call_id
    runtime.undo(made.call_id)
    assert not (place.project / "new").exists()
    runtime.undo(undone.call_id)
    assert readme.read_bytes() == after
    rows = place.run("history", "--json", "--last", "3").json["calls"]
    assert [(row["agent"], row["tool"]) for row in rows] == [("(operator)", "undo")] * 3


def test_an_undo_is_refused_where_a_file_changed_since_and_nothing_is_changed(place, runtime):
    edit = runtime.str_replace("README.md", "Widgets", "Gadgets")
    (place.project / "README.md").write_text("# By hand\n")

    with pytest.raises(FileChangedError, match="changed since the call"):
        runtime.undo(edit.call_id)
    assert (place.project / "README.md").read_text() == "# By hand\n"


@pytest.mark.parametrize("call", ["CALL-0000000000000000", "", "viewed"])
def test_what_changed_nothing_is_not_undone(runtime, call):
    runtime.call("view", {"path": "README.md"}, call_id="viewed")
    with pytest.raises(paddock.UsageError, match="no call .* changed anything"):
        runtime.undo(call)


def test_a_traceback_shows_the_hint_which_names_each_call_of_a_repeated_id(runtime):
    for path in ("a", "b"):
        runtime.call("create_file", {"path": path, "content": ""}, call_id="twice")
    with pytest.raises(paddock.UsageError, match="twice") as caught:
        runtime.undo("twice")
    shown = "".join(traceback.format_exception(caught.value))
    said = f"paddock.errors.UsageError: {caught.value.message}\nhint: {caught.value.hint}\n"
    assert shown.endswith(said)
    assert caught.value.hint.count("LED-") == 2
    assert caught.value.render().count("hint:") == 1


def test_an_approver_without_a_clear_answer_is_what_the_refusal_says_has_to_be_mended(place):
    ask_before_deleting(place)
    hints: list[str] = []
    for answer in (lambda _: "yes", lambda _: {}["yes"]):
        with paddock.open(place.project, approver=answer, agent=paddock.AgentSpec("bot")) as opened:
            refused = opened.call("delete_file", {"path": "README.md"}).refusal
        assert refused.code == "approval.unavailable"
        hints.append(refused.hint)
    mend = "a person has to mend the program's approver: it must return True or False"
    assert hints == [mend, f"{mend}, and not raise"]
    assert (place.project / "README.md").exists()


@pytest.mark.parametrize("profile", ["standard", "locked"])
def test_who_names_an_unknown_tool_is_told_those_that_it_is_offered(place, profile):
    with paddock.open(place.project, agent=paddock.AgentSpec("guest", profile)) as runtime:
        offered = sorted(tool["name"] for tool in runtime.tools.for_provider("mcp"))
        said = runtime.call("nope", {}).refusal

    assert said.hint == f"the tools are: {', '.join(offered)}"


def test_no_model_undoes_a_call(runtime):
    made = runtime.create_file("a.txt", "a")
    with pytest.raises(UnknownToolError):
        runtime.call("undo", {"call": made.call_id, "agent": "main"}).unwrap()
    assert "undo" not in str(runtime.tools.for_provider("mcp"))


def test_what_an_agent_of_the_program_did_is_undone(place):
    agent = paddock.AgentSpec("clerk")
    with paddock.open(place.project, agent=agent) as runtime:
        made = runtime.create_file("a.txt", "a")
        runtime.undo(made.call_id)
    assert not (place.project / "a.txt").exists()


@pytest.mark.parametrize("given", [None, [], "x", 5])
def test_arguments_that_a_model_made_no_object_are_an_error_result(runtime, given):
    result = runtime.call("view", given, call_id="c")
    assert (result.call_id, result.refusal.code) == ("c", "args.invalid")


def nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "given", [{"path": nested(5_000)}, {"path": 10**5_000}, {"more": [10**5_000]}, {1: True}]
)
def test_arguments_that_python_cannot_print_are_answered_and_on_record(place, runtime, given):
    result = runtime.call("view", given, call_id="c")
    assert result.refusal.code in {"args.invalid", "args.unknown"}
    assert [row["call_id"] for row in entries(place, "TOOL_DENIED")] == ["c"]


@pytest.mark.parametrize(("levels", "said"), [(31, "path must be a string"), (32, "too deep")])
def test_json_text_nests_as_deep_as_the_limit_and_no_deeper(runtime, levels, said):
    text = json.dumps({"path": nested(levels)})
    call = {"id": "c", "function": {"name": "view", "arguments": text}}
    (answered,) = runtime.answer("openai", {"tool_calls": [call]})
    assert said in answered["content"]


def test_closing_twice_is_harmless_and_a_closed_runtime_runs_nothing(place):
    opened = paddock.open(place.project)
    opened.close()
    opened.close()
    for act in (
        lambda: opened.call("view", {"path": "README.md"}),
        lambda: opened.create_file("a.md", ""),
        lambda: opened.answer("anthropic", {"content": [{"type": "tool_use"}]}),
    ):
        with pytest.raises(paddock.UsageError, match="closed"):
            act()
    assert not (place.project / "a.md").exists()


def test_a_call_that_runs_while_another_thread_closes_comes_to_its_end(place):
    def closes(request: paddock.ApprovalRequest) -> bool:
        closing = threading.Thread(target=opened.close)
        closing.start()
        closing.join()
        return True

    (place.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete **"]\n'
    )
    place.run("trust", "--yes")
    opened = paddock.open(place.project, approver=closes)
    assert opened.call("delete_file", {"path": "README.md"}).status == "ok"
    assert not (place.project / "README.md").exists()
    with pytest.raises(paddock.UsageError):
        opened.call("view", {"path": "src/a.py"})
    assert [row["event"] for row in entries(place)] == ["GENESIS", "TOOL_INTENT", "TOOL_RESULT"]


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda p: paddock.open(p.base / "nowhere"), paddock.UsageError, "nowhere"),
        (lambda p: paddock.open(p.project, agent="nobody"), paddock.UsageError, "nobody"),
        (lambda p: paddock.open(p.home), paddock.ConfigError, "home"),
    ],
)
def test_what_cannot_be_opened_says_why(place, act, error, said):
    with pytest.raises(error, match=said):
        act(place)


# A model's messages

VIEW = {"path": "src/binary"}
EDIT = {"path": "README.md", "old_str": "teh", "new_str": "the"}


def as_object(value: object) -> object:
    """As an SDK hands it over: attributes, not keys."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    return [as_object(inner) for inner in value] if isinstance(value, list) else value


def test_anthropic_calls_are_run_in_order_and_answered(place, runtime):
    message = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I'll fix it."},
            {"type": "tool_use", "id": "toolu_1", "name": "str_replace", "input": EDIT},
            {"type": "tool_use", "id": "toolu_2", "name": "view", "input": VIEW},
        ],
    }
    done, failed = runtime.answer("anthropic", message)
    assert (done["type"], done["tool_use_id"]) == ("tool_result", "toolu_1")
    assert done["is_error"] is False
    assert done["content"].startswith("edited README.md")
    assert (failed["tool_use_id"], failed["is_error"]) == ("toolu_2", True)
    assert failed["content"].startswith("error[text.binary]")
    assert (place.project / "README.md").read_bytes() == b"# Widgets\nhello the world\n"
    assert [row["call_id"] for row in entries(place, "TOOL_INTENT")] == ["toolu_1", "toolu_2"]


def test_openai_calls_are_run_and_answered(place, runtime):
    message = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "str_replace", "arguments": json.dumps(EDIT)},
            },
            {"id": "call_2", "type": "function", "function": {"name": "view", "arguments": "{"}},
        ],
    }
    done, failed = runtime.answer("openai", as_object(message))
    assert (done["role"], done["tool_call_id"]) == ("tool", "call_1")
    assert done["content"].startswith("edited README.md")
    assert failed["tool_call_id"] == "call_2"
    assert failed["content"].startswith("error[args.invalid]")
    assert [row["call_id"] for row in entries(place, "TOOL_DENIED")] == ["call_2"]


def test_openai_responses_calls_are_run_and_answered(place, runtime):
    item = {"call_id": "fc_1", "name": "str_replace", "arguments": json.dumps(EDIT)}
    message = {"output": [{"type": "reasoning"}, {"type": "function_call", **item}]}
    (done,) = runtime.answer("openai-responses", message)
    assert (done["type"], done["call_id"]) == ("function_call_output", "fc_1")
    assert done["output"].startswith("edited README.md")
    assert b"the world" in (place.project / "README.md").read_bytes()


@pytest.mark.parametrize(
    ("provider", "shape"),
    [
        ("anthropic", {"name", "description", "input_schema"}),
        ("openai", {"type", "function"}),
        ("openai-responses", {"type", "name", "description", "parameters"}),
    ],
)
def test_every_provider_gets_the_tools_in_its_own_shape(runtime, provider, shape):
    tools = runtime.tools.for_provider(provider)
    assert len(tools) == len(runtime.tools.list_all()) > 0
    assert all(shape <= set(tool) for tool in tools)
    json.dumps(tools)


def test_a_provider_that_is_not_known_is_a_usage_error(runtime):
    with pytest.raises(paddock.UsageError, match="acme"):
        runtime.answer("acme", {})


# Approvals


async def says_yes_later(request: paddock.ApprovalRequest) -> bool:
    return True


class SaysYesLater:
    async def answer(self, request: paddock.ApprovalRequest) -> paddock.Approval:
        return paddock.Approval(True, "somebody")


@pytest.mark.parametrize("open_it", [paddock.open, paddock.open_session])
@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (5, "is int"),
        ("yes", "is str"),
        (True, "is bool"),
        (SimpleNamespace(answer="yes"), "is str"),
        (says_yes_later, "has to be awaited"),
        (SaysYesLater(), "has to be awaited"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_opened(place, open_it, approver, why):
    with pytest.raises(
        paddock.UsageError, match=f"the approver {why}, and has to be a plain function"
    ):
        open_it(place.project / "nowhere", approver=approver)


ASKING = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete **"]\n'


@pytest.fixture
def asking(place: Place) -> Place:
    (place.project / "paddock.toml").write_text(ASKING)
    assert place.run("trust", "--yes").status == 0
    return place


def test_a_callback_is_asked_about_exactly_this_call(asking):
    seen: list[paddock.ApprovalRequest] = []

    def ask(request: paddock.ApprovalRequest) -> bool:
        seen.append(request)
        return True

    with paddock.open(asking.project, approver=ask) as opened:
        opened.delete_file("README.md")
        opened.view("src/a.py")
    assert [(each.tool, each.arguments, each.actions, each.agent) for each in seen] == [
        ("delete_file", {"path": "README.md"}, ("tool:file:delete README.md",), "main")
    ]
    assert not (asking.project / "README.md").exists()
    (row,) = (row for row in entries(asking, "TOOL_INTENT") if row["tool"] == "delete_file")
    assert (row["outcome"], row["source"]) == ("ask", "callback")


def raises(request: paddock.ApprovalRequest) -> bool:
    raise RuntimeError("not now")


class Refuses:
    """An approver of its own kind."""

    def answer(self, request: paddock.ApprovalRequest) -> paddock.Approval:
        return paddock.Approval(False, "committee", note="not on a Friday")


@pytest.mark.parametrize(
    ("approver", "error", "said"),
    [
        (None, ApprovalUnavailableError, "no approver"),
        (lambda request: False, ApprovalRefusedError, "not approved"),
        (lambda request: "yes", ApprovalUnavailableError, "no clear answer"),
        (raises, ApprovalUnavailableError, "RuntimeError"),
        (Refuses(), ApprovalRefusedError, "not on a Friday"),
    ],
)
def test_anything_but_true_is_a_no_and_changes_nothing(asking, approver, error, said):
    with (
        paddock.open(asking.project, approver=approver) as opened,
        pytest.raises(error, match=said) as raised,
    ):
        opened.delete_file("README.md")
    assert type(raised.value) is error
    assert (asking.project / "README.md").exists()


# Tools of the embedding program


class CountArguments(ArgumentType):
    text: str = needed_text("What to count.")


COUNT: paddock.ToolSpec[CountArguments] = paddock.ToolSpec(
    name="count_words",
    title="Count words",
    description="Count the words of a text.",
    toolset="own",
    arguments=CountArguments,
    effects=paddock.Effects(reads_only=True),
)


def count(arguments: CountArguments) -> str:
    return f"{len(arguments.text.split())} words"


def opened_with(
    place: Place, handler: Callable[[CountArguments], object], approver: object
) -> paddock.Runtime:
    opened = paddock.open(place.project, approver=approver)
    opened.tools.register(COUNT, handler)
    return opened


def test_a_tool_of_the_program_is_asked_about_and_then_runs_and_is_recorded(place):
    seen: list[tuple[str, ...]] = []

    def ask(request: paddock.ApprovalRequest) -> bool:
        seen.append(request.actions)
        return True

    with opened_with(place, count, ask) as opened:
        result = opened.call("count_words", {"text": "a b c"}).unwrap()
        assert "count_words" in [tool["name"] for tool in opened.tools.for_provider("anthropic")]
    assert (result.content, seen) == ("3 words", [("tool:client:count_words",)])
    assert [row["event"] for row in entries(place)] == ["GENESIS", "TOOL_INTENT", "TOOL_RESULT"]


def test_a_tool_that_says_nothing_of_its_output_has_no_output_schema_for_mcp(place):
    with opened_with(place, count, None) as opened:
        found = {tool["name"]: tool for tool in opened.tools.for_provider("mcp")}
    assert "outputSchema" not in found.pop("count_words")
    assert all(tool["outputSchema"]["type"] == "object" for tool in found.values())
    assert "view" in found


def test_without_a_yes_a_tool_of_the_program_does_not_run(place):
    ran: list[CountArguments] = []
    with opened_with(place, ran.append, None) as opened:
        result = opened.call("count_words", {"text": "a"})
    assert (result.refusal.code, ran) == ("approval.unavailable", [])


def test_a_kept_call_of_a_tool_of_the_program_is_granted_outside_of_the_program(place):
    with opened_with(place, count, None) as opened:
        refused = opened.call("count_words", {"text": "a b"})
        kept = str(refused.details["approval"])
        # The command line does not know the tool, and takes nothing for changed.
        assert [row["outdated"] for row in place.run("approvals", "list", "--json").json] == [""]
        assert place.run("approvals", "grant", kept).status == 0
        assert opened.call("count_words", {"text": "a b"}).content == "2 words"


class GreetArguments(ArgumentType):
    name: str = needed_text("Who is greeted.")
    is_loud: bool = flag("Whether to shout.", default=False)


GREET: paddock.ToolSpec[GreetArguments] = paddock.ToolSpec(
    name="greet",
    title="Greet",
    description="Greet somebody.",
    toolset="own",
    arguments=GreetArguments,
    effects=paddock.Effects(reads_only=True),
)


def test_a_kept_call_of_a_tool_of_the_program_is_granted_only_as_it_is_shown(place):
    with paddock.open(place.project) as opened:
        opened.tools.register(GREET, lambda arguments: f"hello {arguments.name}")
        kept = str(opened.call("greet", {"name": "a"}).details["approval"])
        shown = place.run("approvals", "show", kept)
        assert "  argument name: a\n  filled in is_loud: false\n" in shown.out
        (file,) = place.home.rglob(f"{kept}.*.json")
        content = file.read_text()
        for harmless in ({"arguments": {"name": "b"}}, {"filled": {}}, {"filled": {"name": "b"}}):
            file.write_text(json.dumps({**json.loads(content), **harmless}))
            assert place.run("approvals", "grant", kept).status == 1
        file.write_text(content)
        assert place.run("approvals", "grant", kept).status == 0
        assert opened.call("greet", {"name": "a"}).content == "hello a"


def test_a_rule_can_allow_a_tool_of_the_program(place):
    (place.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:client:count_words"]\n'
    )
    place.run("trust", "--yes")
    with opened_with(place, count, None) as opened:
        assert opened.call("count_words", {"text": "a b"}).content == "2 words"
        assert opened.call("count_words", {"txt": "a b"}).refusal.code == "args.unknown"


def test_a_name_that_is_taken_or_unusable_is_not_registered(runtime):
    runtime.tools.register(COUNT, count)
    for name in ("count_words", "view", "no spaces", "", "x" * 65, "Bash", "mcp__a__b"):
        with pytest.raises(paddock.ConfigError):
            runtime.tools.register(replace(COUNT, name=name), count)
    assert [tool.name for tool in runtime.tools.list_all()].count("count_words") == 1


@dataclass(frozen=True)
class NoArgumentType:
    text: str = needed_text("A text.")


class PlainFields(ArgumentType):
    text: str = "x"


@pytest.mark.parametrize("kind", [NoArgumentType, PlainFields, dict])
def test_a_tool_whose_arguments_cannot_be_bound_is_not_registered(runtime, kind):
    spec = replace(COUNT, arguments=kind)
    with pytest.raises(paddock.ConfigError, match="argument type"):
        runtime.tools.register(spec, count)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (1j, "its handler returned complex, which is neither text nor JSON"),
        ({"a": object()}, "its handler returned dict, which is neither text nor JSON"),
        (paddock.ToolOutput(None, {}), "the content that its handler returned is not text"),
    ],
)
def test_a_tool_that_returns_no_text_and_no_json_is_an_error_result_on_record(place, returned, why):
    with opened_with(place, lambda _: returned, lambda _: True) as opened:
        refused = opened.call("count_words", {"text": "a"}).refusal
    assert (refused.code, refused.error) == ("tool.failed", f"'count_words' failed: {why}")
    assert [row["event"] for row in entries(place)][1:] == ["TOOL_INTENT", "TOOL_RESULT"]


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "null"), ({"a": 1}, '{"a":1}'), ((1, "é"), '[1,"é"]')]
)
def test_a_value_that_a_tool_returns_is_json_for_the_model(place, returned, said):
    with opened_with(place, lambda _: returned, lambda _: True) as opened:
        result = opened.call("count_words", {"text": "a"})
    assert (result.content, result.details) == (said, {"value": json.loads(said)})


async def count_later(arguments: CountArguments) -> str:
    return count(arguments)


class CountsLater:
    async def __call__(self, arguments: CountArguments) -> str:
        return count(arguments)


@pytest.mark.parametrize(
    "handler",
    [
        count_later,
        CountsLater(),
        CountsLater().__call__,
        partial(count_later),
        lambda arguments: count_later(replace(arguments)),
    ],
)
def test_a_function_that_has_to_be_awaited_is_awaited(place, handler):
    with opened_with(place, handler, lambda _: True) as opened:
        assert opened.call("count_words", {"text": "a b"}).content == "2 words"


def test_what_a_tool_says_of_its_own_error_is_what_the_model_reads(place):
    def refuse(arguments: CountArguments) -> str:
        raise paddock.ToolError(f"no words in {arguments.text}", hint="send words")

    with opened_with(place, refuse, lambda _: True) as opened:
        result = opened.call("count_words", {"text": "1"})
        assert result.content == "error[tool.failed]: no words in 1\nhint: send words"
        with pytest.raises(paddock.ToolError, match="no words in 1"):
            result.unwrap()
    (done,) = entries(place, "TOOL_RESULT")
    assert (done["code"], done["effects"]) == ("tool.failed", [])


def test_the_details_of_a_tool_cannot_say_another_status(place):
    forged = paddock.ToolOutput("c", {"status": "error", "content": "x", "own": 1})
    with opened_with(place, lambda _: forged, lambda _: True) as opened:
        result = opened.call("count_words", {"text": "a"})
    assert result.as_json() == {"status": "ok", "content": "c", "own": 1}


def test_a_tool_that_raises_has_failed_and_the_runtime_goes_on(place):
    def broken(arguments: CountArguments) -> str:
        raise RuntimeError(f"/secret/path {arguments.text}")

    with opened_with(place, broken, lambda request: True) as opened:
        result = opened.call("count_words", {"text": "a"})
        assert (result.refusal.code, result.refusal.error) == (
            "tool.failed",
            "'count_words' failed: RuntimeError",
        )
        assert "/secret" not in result.content
        with pytest.raises(paddock.ToolError):
            result.unwrap()
        assert opened.call("view", {"path": "README.md"}).status == "ok"
    done = entries(place, "TOOL_RESULT")[0]
    assert (done["effects"], done["frames"][0]) == ("unknown", "RuntimeError")
    # Where in the program it was raised, for whoever mends it.
    assert done["frames"][-1].endswith(" broken")
    assert "/secret" not in json.dumps(done)


# Threads

THREADS, CALLS = 8, 25


def test_many_threads_share_a_runtime_and_every_call_is_on_record(place, runtime):
    together = threading.Barrier(THREADS)
    # A file that appears between a call's resolution and its write is `text.changed`.
    (place.project / "shared.md").write_bytes(b"")

    def work(thread: int) -> list[paddock.ToolResult]:
        together.wait(30)
        results = []
        for number in range(CALLS):
            identity = f"{thread}-{number}"
            if number % 3 == 0:
                given = {"path": f"made/{thread}.md", "content": f"{identity}\n"}
                results.append(runtime.call("create_file", given, call_id=identity))
            elif number % 3 == 1:
                given = {"path": "shared.md", "content": f"{identity}\n"}
                results.append(runtime.call("create_file", given, call_id=identity))
            else:
                results.append(runtime.call("view", {"path": "README.md"}, call_id=identity))
        return results

    with ThreadPoolExecutor(THREADS) as pool:
        results = [result for each in pool.map(work, range(THREADS)) for result in each]
    assert Counter(result.status for result in results) == {"ok": THREADS * CALLS}
    expected = Counter(f"{thread}-{n}" for thread in range(THREADS) for n in range(CALLS))
    for event in ("TOOL_INTENT", "TOOL_RESULT"):
        assert Counter(row["call_id"] for row in entries(place, event)) == expected
    for thread in range(THREADS):
        assert (place.project / "made" / f"{thread}.md").read_text() == f"{thread}-24\n"


@pytest.mark.parametrize("name", ["open", "open_session"])
def test_an_argument_that_is_none_is_an_error_that_names_what_was_called(tmp_path, name):
    with pytest.raises(TypeError) as wrong:
        getattr(paddock, name)(tmp_path, approve=True)

    # Python 3.14 goes on with what one may have meant.
    said, _, _ = str(wrong.value).partition(".")
    assert said == f"{name}() got an unexpected keyword argument 'approve'"
