"""From the parts of a reply to a turn, the same way for every wire."""

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.structured import Answer, AnswerNames, find_structured
from paddock.providers.wire import read_object
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

NO_USAGE: Final = Usage()


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
        usage=parts.usage or NO_USAGE,
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
