"""The object that an answer has to be: found in the reply, checked against its schema.

A provider may promise that its answer fits; the promise proves less than the
schema says, as wires demote or drop what they cannot enforce. So every object is
checked here, whatever was promised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from paddock.errors import ConfigError
from paddock.providers.schema_references import schema_defect
from paddock.providers.wire_json import read_object
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.models import ModelRequest, OutputSchema, Stop

COMPATIBLE_NAME: Final = "output_json"
"""A tool name under which other programs' adapters let a model answer."""

_WITH_AN_ANSWER: Final = frozenset({Stop.END_TURN, Stop.STOP_SEQUENCE, Stop.TOOL_USE})


@dataclass(frozen=True, slots=True)
class AnswerNames:
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
        """Whether a call to `name` is the answer."""
        if name and name == self.issued:
            return True
        return name == COMPATIBLE_NAME and name not in self.tools


Answer = Mapping[str, Json] | Refusal


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
    """Look at the schema before anything is sent for it.

    Raises: ConfigError for a schema that is none, or that nothing can be checked against.
    """
    import jsonschema
    from jsonschema import exceptions

    try:
        cast("Any", jsonschema.Draft202012Validator).check_schema(output.schema)
    except exceptions.SchemaError as error:
        raise _no_schema(output, cast("Any", error).message) from None
    if defect := schema_defect(output.schema):
        raise _no_schema(output, defect)


def schema_problem(output: OutputSchema, value: Mapping[str, Json]) -> str:
    """Why `value` does not fit the schema (JSON Schema 2020-12); "" where it does.

    Raises: ConfigError for a schema that is none, or that nothing can be checked against.
    """
    require_schema(output)
    # Loaded when the first structured answer arrives: most sessions never need it.
    import jsonschema
    import referencing
    from jsonschema import exceptions

    # Threat: as in `schema_references`: nothing is fetched.
    kind = cast("Any", jsonschema.Draft202012Validator)
    checker = kind(output.schema, registry=cast("Any", referencing).Registry())
    found = cast("Any", exceptions).best_match(checker.iter_errors(dict(value)))
    if found is None:
        return ""
    place = "".join(f"/{step}" for step in found.absolute_path)
    said = f"the answer does not fit {quote(output.name)}: {quote(found.message)}"
    return f"{said} at {quote(place)}" if place else said


def _no_schema(output: OutputSchema, why: str) -> ConfigError:
    return ConfigError(
        f"the output schema {quote(output.name)} cannot be used: {why}",
        hint="write JSON Schema 2020-12 that refers to nothing outside itself",
    )
