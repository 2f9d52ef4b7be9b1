"""Turn a reply into a `ModelTurn`: read its calls strictly, check its structured answer.

APIs that promise an answer that fits the schema ignore the keywords that they cannot enforce. So
every answer is checked here.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, InvalidArgumentsError
from paddock.providers.failures import FailureKind, ProviderError
from paddock.text.json import has_half_character, json_name, parse_object
from paddock.text.show import quote, text_of
from paddock.values.calls import Json, Refusal
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Native,
    OutputSchema,
    Stop,
    ToolSchema,
    ToolUse,
    Usage,
)

# A well-formed schema may refer to a missing place, to an address, or to itself without end. This
# is checked before a request is sent, so that no answer is paid for that cannot be checked.

_REFERENCES: Final = ("$ref", "$dynamicRef")
_LISTS_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
"""Keywords whose schemas apply to the same value (JSON Schema Core, 10.2)."""


def schema_defect(schema: Mapping[str, Json]) -> str:
    import jsonschema
    import referencing
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    check: Any = cast("Any", jsonschema.Draft202012Validator).check_schema
    # Threat: a schema refers to an address, and the library fetches it. An empty registry resolves
    # no address.
    registry, whole = cast("Any", referencing).Registry(), dict(schema)
    waiting: list[Any] = [(whole, registry.resolver_with_root(DRAFT202012.create_resource(whole)))]
    # Each visited schema → the schemas that apply to the same value.
    in_place: dict[int, list[int]] = {}
    place = ""
    try:
        check(whole)
        while waiting:
            met, resolver = waiting.pop()
            if isinstance(met, bool) or id(met) in in_place:
                continue
            applied = in_place[id(met)] = [id(part) for part in _parts_in_place(met)]
            for place in (met[name] for name in _REFERENCES if name in met):
                found = resolver.lookup(place)
                check(found.contents)  # It may be at a place that is not checked as a schema.
                applied.append(id(found.contents))
                waiting.append((found.contents, found.resolver))
            parts = DRAFT202012.create_resource(met).subresources()
            waiting += [(part.contents, resolver.in_subresource(part)) for part in parts]
        TopologicalSorter(in_place).prepare()
    except SchemaError as error:
        return cast("str", cast("Any", error).message)
    except Unresolvable:
        return f"no schema at {quote(place)}"
    except CycleError:
        return "it refers to itself without end"
    return ""


def _parts_in_place(schema: Mapping[str, Any]) -> Iterator[object]:
    for name in _LISTS_IN_PLACE:
        yield from schema.get(name, ())
    for name in _IN_PLACE:
        if name in schema:
            yield schema[name]
    yield from schema.get("dependentSchemas", {}).values()


COMPATIBLE_NAME: Final = "output_json"
"""A tool name that other programs' adapters use for a model's answer."""

_WITH_AN_ANSWER: Final = frozenset({Stop.END_TURN, Stop.STOP_SEQUENCE, Stop.TOOL_USE})


Answer = Mapping[str, Json] | Refusal


def read_object(text: str, subject: str = "the arguments are") -> Answer:
    try:
        return parse_object(text, subject)
    except InvalidArgumentsError as error:
        place = f" ({error.where})" if error.where else ""
        return Refusal(error.code, f"{error.message}{place}", error.hint)


def _unfenced(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and stripped.count("```") == 2:
        first, _, rest = stripped.partition("\n")
        if first in {"```", "```json", "```JSON"}:
            return rest.removesuffix("```").strip()
    return stripped


def require_schema(output: OutputSchema) -> None:
    if defect := schema_defect(output.schema):
        raise ConfigError(
            f"the output schema {quote(output.name)} cannot be used: {defect}",
            hint="write JSON Schema 2020-12 without references to other documents",
        )


def schema_problem(output: OutputSchema, value: Mapping[str, Json]) -> str:
    require_schema(output)
    # Imported at the first structured answer, because most sessions never need it.
    import jsonschema
    import referencing
    from jsonschema import exceptions

    # Threat: as in `schema_defect`: the empty registry prevents a fetch.
    kind = cast("Any", jsonschema.Draft202012Validator)
    checker = kind(output.schema, registry=cast("Any", referencing).Registry())
    found = cast("Any", exceptions).best_match(checker.iter_errors(dict(value)))
    if found is None:
        return ""
    place = "".join(f"/{step}" for step in found.absolute_path)
    said = f"the answer does not fit {quote(output.name)}: {quote(found.message)}"
    return f"{said} at {quote(place)}" if place else said


# For a provider without schema support, the adapter offers a fictitious tool with a random name,
# and uses the arguments of its call as the answer. Callers never see this tool.

Issue = Callable[[], str]

DESCRIPTION: Final = (
    "Give the final answer by calling this tool exactly once, after all other calls."
)


def issue_name() -> str:
    return f"answer_{secrets.token_hex(8)}"


def answer_tool(name: str, output: OutputSchema) -> ToolSchema:
    return ToolSchema(name, DESCRIPTION, output.schema)


def is_closed(schema: Mapping[str, Json]) -> bool:
    return all(
        (each.get("type") != "object" or bool(each.get("properties")))
        and each.get("additionalProperties", False) is False
        and "patternProperties" not in each
        for each in _schemas(schema)
    )


def is_strict(schema: Mapping[str, Json]) -> bool:
    return all(
        each.get("type") != "object"
        if each.get("properties") is None
        else each.get("additionalProperties") is False
        and set(each.get("required") or ()) == set(each["properties"])
        for each in _schemas(schema)
    )


def _schemas(part: Json) -> Iterator[Mapping[str, Json]]:
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


# --- from the parts of a reply to a turn, the same way for every wire --------------------
#
# A self-hosted server may send any JSON. A value of the wrong type counts as missing; the arguments
# of a call are read strictly.


class TurnBuilder:
    """Builds a turn from one reply: its calls in order, and the calls that are the answer.

    Every call gets a unique id in the conversation, because a result is matched to its call only by
    the id, and small servers number the calls of each reply from 0 or omit ids.
    """

    def __init__(self, request: ModelRequest, issued: str = "") -> None:
        self.calls: list[ToolUse] = []
        self.answers: list[Answer] = []
        """Arguments of calls that are the answer."""
        self._output = request.output
        self._issued = issued
        self._tools = frozenset(tool.name for tool in request.tools)
        self._used = {
            call.id
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }

    def read(
        self, call_id: str, name: str, given: Json, problem: Refusal | None = None
    ) -> ToolUse | None:
        """Return the call with its arguments parsed from `given`; None if it is the answer.

        `problem`: the call is incomplete, whatever its arguments look like.
        """
        if len(self.calls) >= limits.model_calls_max:
            raise ProviderError(
                f"the model made more than {limits.model_calls_max} calls in one turn",
                kind=FailureKind.TOO_LARGE,
            )
        # Threat: a user's tool may have any name. So the issued name is random and valid for one
        # request, and the compatible name counts only if no tool has it.
        is_issued = name != "" and name == self._issued
        is_answer = is_issued or (name == COMPATIBLE_NAME and name not in self._tools)
        subject = "the answer is" if is_answer else "the arguments are"
        raw = raw_text(given)
        parsed = problem or _not_text(given, subject) or _read(raw, subject)
        if is_answer:
            self.answers.append(parsed)
            return None
        call = ToolUse(self._fresh(call_id), name, {}, raw=raw)
        if isinstance(parsed, Refusal):
            call = replace(call, problem=parsed)
        else:
            call = replace(call, arguments=parsed)
        self.calls.append(call)
        return call

    def turn(
        self,
        text: str,
        stop: Stop,
        usage: Usage | None,
        *,
        model: str,
        stop_raw: str,
        stop_reason: str = "",
        raw_ref: str = "",
        native: Native | None = None,
    ) -> ModelTurn:
        stop = self._normal(stop)
        structured, problem = self._find_structured(text, stop)
        return ModelTurn(
            text=text,
            tool_calls=tuple(self.calls),
            structured=structured,
            stop=stop,
            usage=usage or Usage(),
            model=model,
            raw_ref=raw_ref,
            stop_raw=stop_raw,
            stop_reason=stop_reason,
            structured_problem=problem,
            usage_is_known=usage is not None,
            native=native,
        )

    def _normal(self, stop: Stop) -> Stop:
        """Make the stop reason consistent with the calls.

        Some servers give the reason for a normal end although the turn has calls. A reason for
        calls without calls is unknown, unless the answer came as a call.
        """
        if self.calls and stop in {Stop.END_TURN, Stop.STOP_SEQUENCE}:
            return Stop.TOOL_USE
        if stop is Stop.TOOL_USE and not self.calls:
            return Stop.END_TURN if self.answers else Stop.UNKNOWN
        return stop

    def _find_structured(self, text: str, stop: Stop) -> tuple[Mapping[str, Json] | None, str]:
        """Return the structured answer, or None and the reason; "" if no answer is expected.

        A turn that was cut, refused or ended for an unknown reason has no answer.
        """
        output = self._output
        if stop not in _WITH_AN_ANSWER or (output is None and not self.answers):
            return None, ""
        if any(other != self.answers[0] for other in self.answers):
            return None, f"the model gave {len(self.answers)} different answers"
        found = self.answers[0] if self.answers else read_object(_unfenced(text), "the answer is")
        if isinstance(found, Refusal):
            # Text beside calls is commentary, not an answer.
            return None, "" if self.calls and not self.answers else found.error
        problem = "" if output is None else schema_problem(output, found)
        return (None, problem) if problem else (found, "")

    def _fresh(self, call_id: str) -> str:
        wanted = call_id or "call"
        found = wanted
        number = 1
        while found in self._used:
            number += 1
            found = f"{wanted}-{number}"
        self._used.add(found)
        return found


def raw_text(given: Json) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    try:
        return json.dumps(given)
    except RecursionError:
        return text_of(given)


def joined(pieces: Sequence[Json]) -> Json:
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return "".join(texts)
    return pieces[0] if len(pieces) == 1 else list(pieces)


def _not_text(given: Json, subject: str) -> Refusal | None:
    if given is None or isinstance(given, str):
        return None
    # Threat: a call with unreadable arguments must not run without arguments.
    said = f"{subject} {json_name(given)}, not text"
    return Refusal(InvalidArgumentsError.code, said, "write the text of one JSON object")


def _read(raw: str, subject: str) -> Mapping[str, Json] | Refusal:
    # Some servers send an empty text for a call without arguments.
    found = read_object(raw if raw.strip() else "{}", subject)
    if isinstance(found, Refusal) or not has_half_character(found):
        return found
    # The object cannot be sent back to the model; `raw`, the received text, can.
    said = f"{subject} text with half of a surrogate pair"
    return Refusal(InvalidArgumentsError.code, said, "write whole characters")


def readable_arguments(call: ToolUse) -> Mapping[str, Json]:
    return call.arguments if call.problem is None else {"INVALID_JSON": call.raw}


def whole_characters(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the message without halves of surrogate pairs.

    Two adjacent halves are joined; a lone one becomes U+FFFD, because it could not be sent back and
    would end the conversation.
    """
    text = json.dumps(message, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return as_map(json.loads(mended))
    return message


def as_map(value: Json) -> Mapping[str, Json]:
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def as_maps(value: Json) -> list[Mapping[str, Json]]:
    return [as_map(item) for item in as_list(value)]


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else 0


def json_text(call: ToolUse) -> str:
    """Return a call's arguments as JSON text: as received, or wrapped if they are invalid.

    Some servers parse the arguments of earlier calls, and fail if they are not JSON.
    """
    is_whole = call.problem is None and bool(call.raw.strip())
    return call.raw if is_whole else json.dumps(dict(readable_arguments(call)))
