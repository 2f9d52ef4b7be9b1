"""Functions of a program as tools: their schemas, their calls, and what is not taken."""

import asyncio
import dataclasses
import enum
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pydantic
import pytest
from mcp import Client
from msgspec import Meta, Struct
from msgspec.structs import replace

import paddock
from paddock.apps.mcp.agents import Agents
from paddock.apps.mcp.server import make_server
from paddock.assembly.project_open import open_project
from paddock.ledger.query import Filter, query
from paddock.values.calls import Json
from tests.support.places import Place, program_place

Call = Callable[..., object]
ALLOWED = paddock.Policy.parse('[profiles.standard]\nextends = "standard"\nallow = ["tool:own:*"]')


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with program_place(monkeypatch) as made:
        yield made


@pytest.fixture
def runtime(place: Place) -> Iterator[paddock.Runtime]:
    with paddock.open(place.project, policy=ALLOWED) as opened:
        yield opened


def tool_rows(place: Place, event: str) -> list[dict[str, Json]]:
    path = place.run("where", "--json").json["ledgers"]["ho1m"]
    return [row.entry.metadata for row in query(path, Filter(event)).entries]


def schema_of(runtime: paddock.Runtime, name: str) -> dict[str, Json]:
    return runtime.tools.get(name).binder.schema


# Schemas, and what they let in


class Unit(enum.Enum):
    C = "c"
    F = "f"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Place2D:
    """Where it is."""

    x: int
    y: float = 1.0


class Window(TypedDict):
    first: str
    last: NotRequired[int]


class Report(Struct, forbid_unknown_fields=True):
    days: list[int]
    note: str | None = None


class Person(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=1)]
    unit: Unit = Unit.C
    friends: "list[Person]" = []


KINDS: list[tuple[Any, list[Json], list[Json]]] = [
    (str, ["", "é"], [1, None, ["a"], "\ud800"]),
    (int, [0, -3, 10**30], ["1", 1.5, True, None]),
    (float, [1, 1.5], ["1", True, None]),
    (bool, [True], [1, "true", None]),
    (Literal["c", "f"], ["c"], ["k", None, 1]),
    (Literal["a", 1], ["a", 1], [True, 2, "1"]),
    (Unit, ["c"], ["k", "C", None]),
    (Level, [1], [3, "1", True]),
    (int | None, [None, 1], ["1", True]),
    (str | int, ["a", 1], [None, 1.5, ["a"]]),
    (list[str], [[], ["a"]], [["a", 1], "a", None, {}, ["\ud800"]]),
    (list, [[1, "a"]], ["a", {}]),
    (Sequence[int], [[1]], [["1"], 1]),
    (tuple[int, str], [[1, "a"]], [[1], ["a", 1], [1, "a", 2]]),
    (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, [1], None]),
    (dict, [{"a": [1]}], ["a", [1]]),
    (Place2D, [{"x": 1}, {"x": 1, "y": 2}], [{}, {"x": "1"}, 1, None]),
    (list[Place2D], [[{"x": 1}]], [[{"y": 1}], [1]]),
    (Window, [{"first": "a"}, {"first": "a", "last": 1}], [{}, {"first": 1}, "a"]),
    (Report, [{"days": [1]}], [{"days": ["1"]}, {"days": [], "x": 1}, {}]),
    (Person, [{"name": "a", "age": 1}], [{"name": "a", "age": 0}, {"name": "a"}, 1]),
    (Person | None, [None, {"name": "a", "age": 1, "unit": "f"}], [{"name": "a", "age": "1"}]),
    (list[Person], [[{"name": "a", "age": 2, "friends": [{"name": "b", "age": 1}]}]], [[1]]),
    (Annotated[int, Meta(ge=1, le=7)], [1, 7], [0, 8, "3"]),
    (Annotated[str, Meta(min_length=1, pattern="^a")], ["ab"], ["", "b"]),
    (Annotated[list[int], Meta(max_length=2)], [[1, 2]], [[1, 2, 3]]),
    (list[Literal["a"]], [["a"]], [["b"]]),
    (dict[str, Place2D], [{"p": {"x": 1}}], [{"p": {}}]),
    (Any, [None, 1, [{}]], []),
]


@pytest.mark.parametrize(("kind", "good", "bad"), KINDS, ids=lambda each: str(each)[:30])
def test_the_schema_says_what_the_binder_takes(runtime, kind, good, bad):
    def own(value: kind) -> str:  # pyright: ignore[reportInvalidTypeForm] - it is the parameter
        """Take one value."""
        return type(value).__name__

    runtime.tools.add(own, reads_only=True)
    schema = schema_of(runtime, "own")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for value in good:
        assert validator.is_valid({"value": value})
        assert runtime.call("own", {"value": value}).status == "ok"
    for value in bad:
        refused = runtime.call("own", {"value": value})
        assert refused.refusal.code == "args.invalid"
        assert refused.refusal.error.startswith("value")
        is_half = "ud800" in repr(value)
        assert is_half or not validator.is_valid({"value": value})


def test_the_schema_has_the_words_of_the_docstring_and_the_defaults(runtime):
    @runtime.tool(permission="tool:own:sky", reads_only=True)
    def weather_of(
        city: str,
        days: Annotated[int, Meta(ge=1, le=7)] = 1,
        units: Literal["c", "f"] = "c",
        tags: list[str] = [],  # noqa: B006 - one for each call
    ) -> str:
        """Say the weather of a city.

        It is never sure.

        Args:
            city: The city, as in Oslo.
            days (int): How many days,
                1 to 7.

        Returns:
            Words.
        """
        tags.append("x")
        return f"{city} {days} {units} {tags}"

    (found,) = (
        each for each in runtime.tools.for_provider("anthropic") if "weather" in each["name"]
    )
    assert found == {
        "name": "weather_of",
        "description": "Say the weather of a city.\n\nIt is never sure.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city, as in Oslo."},
                "days": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 7,
                    "description": "How many days, 1 to 7.",
                    "default": 1,
                },
                "units": {"enum": ["c", "f"], "default": "c"},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    for _ in range(2):
        assert runtime.call("weather_of", {"city": "Oslo"}).content == "Oslo 1 c ['x']"
    assert weather_of("Rome", 2) == "Rome 2 c ['x']"


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"report": {"days": [1, "2"]}}, "report.days[1]: expected int, got str"),
        ({"report": {"days": [], "x": 1}}, "report: object contains unknown field x"),
        ({"people": [{"name": "a", "age": 0}]}, "people[0].age: input should be greater"),
        ({"count": "3"}, "count must be an integer, not a string '3'"),
        ({"cuont": 3}, "unknown argument 'cuont'"),
    ],
)
def test_a_bad_argument_is_answered_with_its_path(runtime, given, where):
    def own(count: int = 1, report: Report | None = None, people: list[Person] = []) -> str:  # noqa: B006 - as above
        """Take some."""
        return ""

    runtime.tools.add(own)
    refused = runtime.call("own", given)
    assert refused.refusal.error.startswith(where)
    assert runtime.call("own", {}).status == "ok"


# Calls


@dataclasses.dataclass
class Forecast:
    city: str
    on: date


def forecast(city: str) -> Forecast:
    """Say the weather."""
    return Forecast(city, date(2026, 1, 2))


async def forecast_later(city: str) -> Forecast:
    """Say the weather."""
    await asyncio.sleep(0)
    return forecast(city)


SAID = '{"city":"Oslo","on":"2026-01-02"}'


def anthropic(name: str) -> Json:
    return {"content": [{"type": "tool_use", "id": "1", "name": name, "input": {"city": "Oslo"}}]}


def openai(name: str) -> Json:
    function = {"name": name, "arguments": '{"city": "Oslo"}'}
    return {"tool_calls": [{"id": "1", "type": "function", "function": function}]}


def responses(name: str) -> Json:
    item = {"type": "function_call", "call_id": "1", "name": name, "arguments": '{"city": "Oslo"}'}
    return {"output": [item]}


@pytest.mark.parametrize("function", [forecast, forecast_later])
@pytest.mark.parametrize(
    ("provider", "message", "part"),
    [
        ("anthropic", anthropic, "content"),
        ("openai", openai, "content"),
        ("openai-responses", responses, "output"),
    ],
)
def test_a_providers_message_calls_it(place, runtime, function, provider, message, part):
    runtime.tools.add(function)
    (answer,) = runtime.answer(provider, message(function.__name__))
    assert answer[part] == SAID
    (intent,) = tool_rows(place, "TOOL_INTENT")
    assert (intent["actions"], intent["outcome"]) == (
        [f"tool:own:{function.__name__}"],
        "allow",
    )


def test_an_mcp_client_calls_it(place):
    place.environment.user_config.parent.mkdir(parents=True)
    place.environment.user_config.write_bytes(ALLOWED.sources[1].text)
    agents = Agents(partial(open_project, place.project, place.environment))
    served = agents.get()
    served.runtime.tools.add(forecast_later, name="forecast")
    (listed,) = (t for t in served.runtime.tools.for_provider("mcp") if t["name"] == "forecast")
    kind = type(next(iter(served.tools.values())))
    served = replace(served, tools={**served.tools, "forecast": kind.model_validate(listed)})
    server = make_server(lambda: served, agents)

    async def talk() -> tuple[list[str], str, bool]:
        async with Client(server) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            answer = await client.call_tool("forecast", {"city": "Oslo"})
            refused = await client.call_tool("forecast", {"city": 1})
            return names, answer.content[0].text, refused.is_error

    try:
        names, said, is_error = asyncio.run(talk())
    finally:
        agents.close()
    assert "forecast" in names
    assert (said, is_error) == (SAID, True)


def test_a_context_knows_the_call_and_shows_its_progress(place, runtime):
    @runtime.tool
    def own(context: paddock.Context, word: str) -> list[str]:
        """Say where it is."""
        context.progress(f"half of {word}")
        return [context.agent, context.call_id, str(context.workspace), str(context.is_cancelled)]

    heard: list[tuple[str, str]] = []
    result = runtime.call(
        "own", {"word": "it"}, call_id="c1", on_output=lambda *said: heard.append(said)
    )
    assert json.loads(result.content) == ["main", "c1", str(place.project), "False"]
    assert heard == [("stdout", "half of it\n")]
    assert "context" not in schema_of(runtime, "own")["properties"]


def test_a_call_that_is_cancelled_cancels_the_async_function(place, runtime):
    begun, ends = threading.Event(), list[str]()

    @runtime.tool
    async def own() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "never"

    async def cancel() -> None:
        call = asyncio.create_task(runtime.acall("own", {}))
        await asyncio.to_thread(begun.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    assert ends == ["cancelled"]
    (row,) = tool_rows(place, "TOOL_RESULT")
    assert (row["code"], row["effects"]) == ("call.cancelled", "unknown")
    assert runtime.call("view", {"path": "README.md"}).status == "ok"


def test_an_async_function_that_ends_in_spite_of_a_cancellation_is_on_record_so(place, runtime):
    begun = threading.Event()

    @runtime.tool(reads_only=True)
    async def own() -> str:
        """Wait, and end."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "ended"
        return "never"

    async def cancel() -> None:
        call = asyncio.create_task(runtime.acall("own", {}))
        await asyncio.to_thread(begun.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    (row,) = tool_rows(place, "TOOL_RESULT")
    assert row["status"] == "ok"


def test_one_that_cancels_itself_has_failed(runtime):
    @runtime.tool
    async def own() -> str:
        """Give up."""
        raise asyncio.CancelledError

    refused = runtime.call("own", {}).refusal
    assert (refused.code, refused.error) == ("tool.failed", "'own' failed: RuntimeError")


def test_an_async_function_is_called_from_within_a_loop_too(runtime):
    runtime.tools.add(forecast_later)

    async def call() -> paddock.ToolResult:
        return runtime.call("forecast_later", {"city": "Oslo"})

    assert asyncio.run(call()).content == SAID


def test_async_functions_that_read_run_beside_each_other(runtime):
    together = threading.Barrier(2)

    @runtime.tool(reads_only=True)
    async def own(number: int) -> int:
        """Wait for the other."""
        await asyncio.to_thread(together.wait, 60)
        return number

    blocks = [
        {"type": "tool_use", "id": str(n), "name": "own", "input": {"number": n}} for n in (1, 2)
    ]
    answers = runtime.answer("anthropic", {"content": blocks})
    assert [each["content"] for each in answers] == ["1", "2"]


# Policy


def test_the_permission_is_what_policy_judges(place):
    policy = paddock.Policy.parse(
        '[profiles.standard]\nextends = "standard"\n'
        'allow = ["tool:own:yes"]\ndeny = ["tool:own:no"]'
    )
    asked: list[tuple[str, ...]] = []

    def ask(request: paddock.ApprovalRequest) -> bool:
        asked.append(request.actions)
        return False

    with paddock.open(place.project, policy=policy, approver=ask) as opened:
        for permission in ("yes", "no", "maybe"):
            opened.tools.add(forecast, permission=f"tool:own:{permission}", name=f"f_{permission}")
        offered = {tool.name for tool in opened.tools.list_all()}
        codes = [
            refusal and refusal.code
            for name in ("f_yes", "f_no", "f_maybe")
            for refusal in [opened.call(name, {"city": "a"}).refusal]
        ]
    assert codes == [None, "policy.denied", "approval.refused"]
    assert asked == [("tool:own:maybe",)]
    # What policy never allows is not offered to the model.
    assert offered >= {"f_yes", "f_maybe", "view"}
    assert "f_no" not in offered


@pytest.mark.parametrize("profile", ["open", "standard", "locked"])
def test_a_built_in_profile_answers_for_tools_of_programs(place, profile):
    outcomes = {"open": "allow", "standard": "ask", "locked": "deny"}
    agent = paddock.AgentSpec("bot", profile)
    decision = paddock.check("tool:own:weather", place.project, agent=agent)
    assert decision.outcome.word == outcomes[profile]


# What is not taken


class Odd:
    pass


class OddModel(pydantic.BaseModel, arbitrary_types_allowed=True):
    odd: Odd


@dataclasses.dataclass
class ForCheckers:
    """As a framework's context: what it names is there for a type checker alone."""

    model: "Nowhere"  # noqa: F821 - that is what it is about


def documented(wrong: str) -> str:
    """Take one.

    Args:
        wrnog: It is not there.
    """
    return wrong


def undocumented(wrong: str) -> str:
    return wrong


def no_annotation(wrong):
    """Take one."""


def many(*wrong: str) -> str:
    """Take many."""
    return str(wrong)


def named(**wrong: str) -> str:
    """Take many."""
    return str(wrong)


def positional(wrong: str, /) -> str:
    """Take one."""
    return wrong


def unknown_name(wrong: "Nowhere") -> str:  # noqa: F821 - that is what it is about
    """Take one."""
    return str(wrong)


def no_expression(wrong: "1 +") -> str:  # noqa: F722 - the same
    """Take one."""
    return str(wrong)


def late_context(city: str, wrong: paddock.Context) -> str:
    """Take a context too late."""
    return str(wrong)


def taken_name(declared_arguments: str) -> str:
    """Take one."""
    return declared_arguments


def yields(city: str) -> Iterator[str]:
    """Yield."""
    yield city


def taking(kind: Any, default: Any = ...) -> Call:
    def own(wrong: kind = default) -> str:  # pyright: ignore[reportInvalidTypeForm] - as above
        """Take one."""
        return str(wrong)

    if default is ...:
        own.__defaults__ = None
    return own


BAD: list[tuple[Call, str, str]] = [
    (no_annotation, "wrong", "it has no annotation"),
    (many, "wrong", "it takes any number of arguments"),
    (named, "wrong", "it takes any number of arguments"),
    (positional, "wrong", "it is positional-only"),
    (unknown_name, "wrong", "its annotation 'Nowhere' cannot be read: name 'Nowhere' is not"),
    (no_expression, "wrong", "cannot be read"),
    (late_context, "wrong", "a Context has to be the first parameter"),
    (documented, "wrnog", "its docstring describes it, but the function does not have it"),
    (taken_name, "declared_arguments", "its name is reserved"),
    (taking(Odd), "wrong", "Odd"),
    (taking(object), "wrong", "object"),
    (taking(complex), "wrong", "complex"),
    (taking(Callable[[], int]), "wrong", "Callable"),
    (taking(list[Odd]), "wrong", "Odd"),
    (taking(dict[str, complex]), "wrong", "complex"),
    (taking(dict[int, str]), "wrong", "the keys of a JSON object are text"),
    (taking(list[dict[int, str]]), "wrong", "the keys of a JSON object are text"),
    (taking(set[str]), "wrong", "its schema is an array, in which"),
    (taking(frozenset[int]), "wrong", "its schema is an array, in which"),
    (taking(Place2D | Window), "wrong", "more than one dict-like type"),
    (taking(Report | Place2D), "wrong", "more than one dict-like type"),
    (taking(Literal[1.5]), "wrong", "Literal may only contain"),
    (taking(OddModel), "wrong", "Odd"),
    (taking(int, None), "wrong", "its default 'None' does not match its annotation"),
    (taking(int, "1"), "wrong", "its default '1' does not match its annotation"),
    (taking(Annotated[int, Meta(ge=1)], 0), "wrong", "its default '0' does not match"),
    (taking(Literal["a"], "b"), "wrong", "its default 'b' does not match"),
    (taking(list[int], ["a"]), "wrong", "does not match its annotation"),
    (taking(str, Odd()), "wrong", "does not match its annotation"),
    (taking(Unit, "k"), "wrong", "its default 'k' does not match"),
    (taking(ForCheckers), "wrong", "its type has no schema: name 'Nowhere' is not defined"),
    (taking(Annotated[int, pydantic.Field(ge=1)]), "wrong", "would not be applied to its values"),
    (taking(list[pydantic.PositiveInt] | None), "wrong", "'Gt(gt=0)' would not be applied"),
    (undocumented, "", "it has no docstring"),
    (yields, "", "it yields"),
    (lambda: "", "", "invalid tool name"),
    (print, "", "any number of arguments"),
]


@pytest.mark.parametrize(("function", "name", "why"), BAD)
def test_what_no_schema_can_say_is_an_error_that_names_the_parameter(runtime, function, name, why):
    before = [tool.name for tool in runtime.tools.list_all()]
    with pytest.raises(paddock.ConfigError) as raised:
        runtime.tools.add(function)
    error = raised.value
    assert why in error.message
    if name:
        assert error.message.startswith(f"parameter '{name}' of the tool '{function.__name__}'")
        assert error.where == name
    assert error.hint
    assert [tool.name for tool in runtime.tools.list_all()] == before


@pytest.mark.parametrize(
    ("permission", "why"),
    [
        ("weather", "does not begin with tool:"),
        ("tool:own", "can match nothing"),
        ("tool:own:*", "matches many actions"),
        ("tool:own:weather Oslo", "no call is judged as"),
        ("tool:wether:x", "names the unknown"),
        ("tool:file:wiew", "names the unknown"),
        ("tool:client:Bash", "no call is judged as"),
        ("tool:file:view ../x", "is not a resolved path"),
    ],
)
def test_a_permission_that_policy_cannot_judge_is_not_taken(runtime, permission, why):
    with pytest.raises(paddock.ConfigError, match=why):
        runtime.tools.add(forecast, permission=permission)
    runtime.tools.add(forecast, permission="tool:own:weather")


def test_a_name_is_taken_once(runtime):
    runtime.tools.add(forecast)
    with pytest.raises(paddock.ConfigError, match="'forecast' is used twice"):
        runtime.tools.add(forecast)
    with pytest.raises(paddock.ConfigError, match="'view' is used twice"):
        runtime.tool(name="view")(forecast)
