"""From the parts of a reply to a turn, the same way for every wire.

A server of one's own may write anything anywhere. What is not of the kind that is looked
for counts as missing; the arguments of a call are read strictly.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.structured import Answer, AnswerNames, find_structured, read_object
from paddock.text.json import has_half_character, json_name
from paddock.text.show import text_of
from paddock.values.calls import Json, Refusal
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Native,
    Stop,
    ToolUse,
    Usage,
)


class CallReader:
    """The calls of one reply, in order: real ones, and those that are the answer.

    Every call gets an id that no other call of the conversation has: small servers
    number the calls of each reply anew, or leave ids out, and a result is told
    apart by nothing else.
    """

    def __init__(self, request: ModelRequest, issued: str = "") -> None:
        self.calls: list[ToolUse] = []
        self.answers: list[Answer] = []
        self._names = AnswerNames.of(request, issued)
        self._used = {
            call.id
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }

    def read(
        self, call_id: str, name: str, given: Json, problem: Refusal | None = None
    ) -> ToolUse | None:
        """The call, its arguments parsed from the text `given`; None where it is the answer.

        With a `problem` it was not whole, whatever its arguments look like.

        Raises: ProviderError over `limits.model_calls_max`.
        """
        if len(self.calls) >= limits.model_calls_max:
            raise ProviderError(
                f"the model asks for more than {limits.model_calls_max} calls in one turn",
                kind=FailureKind.TOO_LARGE,
            )
        is_answer = self._names.has(name)
        subject = "the answer is" if is_answer else "the arguments are"
        raw = raw_text(given)
        parsed = problem or _not_text(given, subject) or _read(raw, subject)
        if is_answer:
            self.answers.append(parsed)
            return None
        fresh = self._fresh(call_id)
        if isinstance(parsed, Refusal):
            call = ToolUse(fresh, name, {}, parsed, raw)
        else:
            call = ToolUse(fresh, name, parsed, None, raw)
        self.calls.append(call)
        return call

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
    """A call's arguments as they came; as JSON where a server sent no text."""
    if given is None or isinstance(given, str):
        return given or ""
    try:
        return json.dumps(given)
    except RecursionError:
        return text_of(given)


def joined(pieces: Sequence[Json]) -> Json:
    """The text of arguments that came in pieces; what came where one of them is none."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return "".join(texts)
    return pieces[0] if len(pieces) == 1 else list(pieces)


def _not_text(given: Json, subject: str) -> Refusal | None:
    """Why these arguments are not read; None where they are text, or not there at all."""
    if given is None or isinstance(given, str):
        return None
    # Threat: what is not understood must not run as a call that has no arguments.
    said = f"{subject} {json_name(given)}, not text"
    return Refusal(InvalidArgumentsError.code, said, "write the text of one JSON object")


def _read(raw: str, subject: str) -> Mapping[str, Json] | Refusal:
    # Some servers write no arguments at all where there are none to write.
    found = read_object(raw if raw.strip() else "{}", subject)
    if isinstance(found, Refusal) or not has_half_character(found):
        return found
    # As an object it could not go back to the model; as the text that came, it can.
    said = f"{subject} text with half of a surrogate pair"
    return Refusal(InvalidArgumentsError.code, said, "write whole characters")


class Parts(Struct, frozen=True):
    """What a wire says beside the calls. `usage` is None where it says nothing."""

    text: str
    stop: Stop
    model: str
    usage: Usage | None
    stop_raw: str = ""
    stop_reason: str = ""
    raw_ref: str = ""
    native: Native | None = None


def finish(request: ModelRequest, parts: Parts, reader: CallReader) -> ModelTurn:
    """Raises: ConfigError where the request's output schema is none."""
    stop = _normal_stop(parts.stop, reader)
    structured, problem = find_structured(
        request, parts.text, reader.answers, stop, has_calls=bool(reader.calls)
    )
    return ModelTurn(
        text=parts.text,
        tool_calls=tuple(reader.calls),
        structured=structured,
        stop=stop,
        usage=parts.usage or Usage(),
        model=parts.model,
        raw_ref=parts.raw_ref,
        stop_raw=parts.stop_raw,
        stop_reason=parts.stop_reason,
        structured_problem=problem,
        usage_is_known=parts.usage is not None,
        native=parts.native,
    )


def _normal_stop(stop: Stop, reader: CallReader) -> Stop:
    """Make the reason and the calls agree.

    Some servers end a turn with calls as if it had none. One that claims calls and
    has none is not understood; the answer as a call is an end.
    """
    if reader.calls and stop in {Stop.END_TURN, Stop.STOP_SEQUENCE}:
        return Stop.TOOL_USE
    if stop is Stop.TOOL_USE and not reader.calls:
        return Stop.END_TURN if reader.answers else Stop.UNKNOWN
    return stop


def readable_arguments(call: ToolUse) -> Mapping[str, Json]:
    """The arguments for a wire that wants an object: what could not be read is wrapped."""
    return call.arguments if call.problem is None else {"INVALID_JSON": call.raw}


def whole_characters(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """The message with no half of a surrogate pair in it.

    Halves that came in two pieces are joined; a lone one becomes U+FFFD, for no wire
    carries it back and the conversation would end there.
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
    """The objects of a list; what is no object counts as an empty one."""
    return [as_map(item) for item in as_list(value)]


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else 0


def json_text(call: ToolUse) -> str:
    """A call's arguments as JSON text: as it came, or wrapped where it could not be read.

    Some servers parse the arguments of earlier calls, and fail where they are none.
    """
    if call.problem is not None:
        return json.dumps({"INVALID_JSON": call.raw})
    return call.raw if call.raw.strip() else json.dumps(dict(call.arguments))
