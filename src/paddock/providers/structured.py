"""The object that an answer has to be: found in the reply, checked against its schema.

A provider may promise that its answer fits; the promise proves less than the
schema says, as wires demote or drop what they cannot enforce. So every object is
checked here, whatever was promised.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from msgspec import Struct

from paddock.errors import ConfigError, InvalidArgumentsError
from paddock.text.json import parse_object
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.models import ModelRequest, OutputSchema, Stop, ToolSchema

# A schema that is well-formed may still refer to nothing, to an address, or to itself
# without end. An answer would be asked for, paid for and then could not be checked; so this
# is looked at before.

_REFERENCES: Final = ("$ref", "$dynamicRef")
_LISTS_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
"""Keywords whose schemas are applied to the very same value (JSON Schema Core, 10.2)."""


def schema_defect(schema: Mapping[str, Json]) -> str:
    """Why no value can be checked against it (2020-12), or "". Nothing is fetched."""
    import jsonschema
    from jsonschema.exceptions import SchemaError

    try:
        cast("Any", jsonschema.Draft202012Validator).check_schema(schema)
        _Walk().through(dict(schema))
    except SchemaError as error:
        return cast("str", cast("Any", error).message)
    except _NowhereError as error:
        return f"nothing stands at {quote(str(error))}"
    except CycleError:
        return "it refers to itself without end"
    return ""


class _NowhereError(LookupError):
    """A schema refers to what is not within it."""


class _Walk:
    """Meets every schema that a schema holds or refers to, once."""

    def __init__(self) -> None:
        self._in_place: dict[int, list[int]] = {}
        """Of each schema that was met, those that are applied to the same value as it is."""
        self._waiting: list[tuple[Mapping[str, Any], Any]] = []

    def through(self, schema: Mapping[str, Any]) -> None:
        """Raises: SchemaError, _NowhereError, CycleError."""
        import referencing
        from referencing.jsonschema import DRAFT202012

        # Threat: a schema that refers to an address must not make us fetch it; an empty
        # registry knows no address.
        registry = cast("Any", referencing).Registry()
        whole = DRAFT202012.create_resource(schema)
        self._meet(schema, registry.resolver_with_root(whole))
        while self._waiting:
            met, resolver = self._waiting.pop()
            self._follow(met, resolver)
            for part in DRAFT202012.create_resource(met).subresources():
                self._meet(part.contents, resolver.in_subresource(part))
        TopologicalSorter(self._in_place).prepare()

    def _meet(self, schema: Any, resolver: Any) -> None:
        if not isinstance(schema, bool) and id(schema) not in self._in_place:
            self._in_place[id(schema)] = [id(part) for part in _parts_in_place(schema)]
            self._waiting.append((schema, resolver))

    def _follow(self, schema: Mapping[str, Any], resolver: Any) -> None:
        import jsonschema
        from referencing.exceptions import Unresolvable

        for name in _REFERENCES:
            if name in schema:
                try:
                    found = resolver.lookup(schema[name])
                except Unresolvable:
                    raise _NowhereError(schema[name]) from None
                # It may stand where no schema is looked for.
                cast("Any", jsonschema.Draft202012Validator).check_schema(found.contents)
                self._in_place[id(schema)].append(id(found.contents))
                self._meet(found.contents, found.resolver)


def _parts_in_place(schema: Mapping[str, Any]) -> Iterator[object]:
    for name in _LISTS_IN_PLACE:
        yield from schema.get(name, ())
    for name in _IN_PLACE:
        if name in schema:
            yield schema[name]
    yield from schema.get("dependentSchemas", {}).values()


COMPATIBLE_NAME: Final = "output_json"
"""A tool name under which other programs' adapters let a model answer."""

_WITH_AN_ANSWER: Final = frozenset({Stop.END_TURN, Stop.STOP_SEQUENCE, Stop.TOOL_USE})


class AnswerNames(Struct, frozen=True):
    """The tool names that are no tools: a call to one of them is the answer.

    Threat: a tool of the user's may have any name, so our own holds random letters and
    is known for one request alone, and the compatible one counts only where no tool has it.
    """

    tools: frozenset[str]
    issued: str = ""

    @classmethod
    def of(cls, request: ModelRequest, issued: str = "") -> "AnswerNames":
        """For a request in which the adapter issued that name, if any."""
        return cls(frozenset(tool.name for tool in request.tools), issued)

    def has(self, name: str) -> bool:
        if name and name == self.issued:
            return True
        return name == COMPATIBLE_NAME and name not in self.tools


Answer = Mapping[str, Json] | Refusal


def read_object(text: str, subject: str = "the arguments are") -> Answer:
    """The one JSON object that `text` is, or why it is none; see `parse_object`."""
    try:
        return parse_object(text, subject)
    except InvalidArgumentsError as error:
        place = f" ({error.where})" if error.where else ""
        return Refusal(error.code, f"{error.message}{place}", error.hint)


def find_structured(
    request: ModelRequest, text: str, answers: Sequence[Answer], stop: Stop, *, has_calls: bool
) -> tuple[Mapping[str, Json] | None, str]:
    """The structured answer, else None and why it is not there; "" where none is due.

    `answers` are the arguments of calls to an answer's name, in order. A turn that
    was cut, refused or ended for an unknown reason has no answer.

    Raises: ConfigError where the request's schema is none.
    """
    if stop not in _WITH_AN_ANSWER:
        return None, ""
    if answers:
        return _given(request.output, answers)
    if request.output is None:
        return None, ""
    found = read_object(_unfenced(text), "the answer is")
    if isinstance(found, Refusal):
        # Text beside calls is talk, not an answer.
        return None, "" if has_calls else found.error
    return _checked(request.output, found)


def _given(
    output: OutputSchema | None, answers: Sequence[Answer]
) -> tuple[Mapping[str, Json] | None, str]:
    first, *rest = answers
    if any(other != first for other in rest):
        return None, f"the answer was given {len(answers)} times, and differently"
    if isinstance(first, Refusal):
        return None, first.error
    return (first, "") if output is None else _checked(output, first)


def _unfenced(text: str) -> str:
    """The inside where all of the text is one fenced block: local models write that."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and stripped.count("```") == 2:
        first, _, rest = stripped.partition("\n")
        if first in {"```", "```json", "```JSON"}:
            return rest.removesuffix("```").strip()
    return stripped


def _checked(
    output: OutputSchema, value: Mapping[str, Json]
) -> tuple[Mapping[str, Json] | None, str]:
    problem = schema_problem(output, value)
    return (None, problem) if problem else (value, "")


def require_schema(output: OutputSchema) -> None:
    """Before anything is sent. Raises: ConfigError: nothing can be checked against it."""
    if defect := schema_defect(output.schema):
        raise ConfigError(
            f"the output schema {quote(output.name)} cannot be used: {defect}",
            hint="write JSON Schema 2020-12 that refers to nothing outside itself",
        )


def schema_problem(output: OutputSchema, value: Mapping[str, Json]) -> str:
    """Empty where it fits (JSON Schema 2020-12). Raises: ConfigError, as `require_schema`."""
    require_schema(output)
    # Loaded when the first structured answer arrives: most sessions never need it.
    import jsonschema
    import referencing
    from jsonschema import exceptions

    # Threat: as above: nothing is fetched.
    kind = cast("Any", jsonschema.Draft202012Validator)
    checker = kind(output.schema, registry=cast("Any", referencing).Registry())
    found = cast("Any", exceptions).best_match(checker.iter_errors(dict(value)))
    if found is None:
        return ""
    place = "".join(f"/{step}" for step in found.absolute_path)
    said = f"the answer does not fit {quote(output.name)}: {quote(found.message)}"
    return f"{said} at {quote(place)}" if place else said


# The adapter adds a tool that does not exist, recognises its own name in the reply
# and hands the arguments on as the answer. Nobody above it sees the tool.

Issue = Callable[[], str]

DESCRIPTION: Final = (
    "Give the final answer by calling this tool exactly once, when no other call is left to make."
)


def issue_name() -> str:
    """A name that no tool of the user's has, and that no earlier reply can have learnt."""
    return f"answer_{secrets.token_hex(8)}"


def answer_tool(name: str, output: OutputSchema) -> ToolSchema:
    return ToolSchema(name, DESCRIPTION, output.schema)


def is_closed(schema: Mapping[str, Json]) -> bool:
    """Whether every object in the schema has known members only, so that closing it keeps it."""
    return all(
        (each.get("type") != "object" or bool(each.get("properties")))
        and each.get("additionalProperties", False) is False
        and "patternProperties" not in each
        for each in _schemas(schema)
    )


def is_strict(schema: Mapping[str, Json]) -> bool:
    """Whether every object is closed in so many words and requires all of its members."""
    return all(
        each.get("type") != "object"
        if each.get("properties") is None
        else each.get("additionalProperties") is False
        and set(each.get("required") or ()) == set(each["properties"])
        for each in _schemas(schema)
    )


def _schemas(part: Json) -> Iterator[Mapping[str, Json]]:
    """The schema and all within it; a property may be called like a keyword, so names are left."""
    if isinstance(part, Mapping):
        members = cast("Mapping[str, Json]", part)
        yield members
        for name, value in members.items():
            if name == "properties" and isinstance(value, Mapping):
                value = list(cast("Mapping[str, Json]", value).values())
            yield from _schemas(value)
    elif isinstance(part, list):
        for each in cast("list[Json]", part):
            yield from _schemas(each)
