"""The tool calls in a provider's message, and the blocks that answer them.

A message may be the SDK's own object or the plain dictionaries of the wire; both
are only read. No SDK is imported.

If a message says that its turn was cut, refused, or ended for an unknown reason, none
of its calls runs: the arguments of the last one may be incomplete, and an SDK completes
them silently. A message that gives no reason counts as complete.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from paddock.errors import CallDroppedError, InvalidArgumentsError, UsageError
from paddock.text.json import parse_object
from paddock.text.show import quote
from paddock.tools.spec import ToolSpec
from paddock.values.calls import Json, Refusal, ToolCall, ToolResult


class Malformed(Struct, frozen=True):
    call: ToolCall
    refusal: Refusal
    """The answer to the call, which is recorded and never runs."""


Asked = ToolCall | Malformed
T = TypeVar("T")

# Reasons that end a turn with complete calls. With any other, known or not, no call runs.
_ANTHROPIC_ENDS: Final = frozenset({"tool_use", "end_turn", "stop_sequence"})
_CHAT_ENDS: Final = frozenset({"tool_calls", "function_call", "stop"})
_COMPLETED: Final = frozenset({"completed"})

NATIVE_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": frozenset({"str_replace_based_edit_tool", "bash", "memory"}),
    "openai-responses": frozenset({"apply_patch_call", "shell_call"}),
}
"""Names of the providers' own tools, or of the items that call them; see `runtime.native`."""
_NATIVE_ITEMS: Final = {
    "apply_patch_call": ("operation", ("type", "path", "diff")),
    "shell_call": ("action", ("commands", "timeout_ms", "max_output_length")),
}
# The client runs these, so an item may be in progress when its turn is complete.
_AWAITED: Final = frozenset({"completed", "in_progress"})


class Dialect(Struct, frozen=True):
    read: Callable[[object], list[Asked]]
    block_of: Callable[[ToolResult], dict[str, Json]]

    def write(self, results: Iterable[ToolResult]) -> list[dict[str, Json]]:
        return list(map(self.block_of, results))


def dialect_of(provider: str) -> Dialect:
    return _known(provider, _DIALECTS)


def call_of(asked: Asked) -> ToolCall:
    return asked.call if isinstance(asked, Malformed) else asked


def _get(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def _part(message: object, name: str, *others: str) -> list[Any]:
    if not any(_has(message, each) for each in (name, *others)):
        raise UsageError(
            f"not a model's message: {quote(message)}",
            hint=f"give the whole message, the one that has {name}",
        )
    return _items(_get(message, name))


def _has(value: object, name: str) -> bool:
    return name in value if isinstance(value, Mapping) else hasattr(value, name)


def _items(value: object) -> list[Any]:
    is_text = isinstance(value, str | bytes | Mapping)
    return list(cast("Iterable[Any]", value)) if isinstance(value, Iterable) and not is_text else []


def text_of(what: str, given: object) -> str:
    """Return `given` if it is text; `what` names it. Raises: UsageError."""
    if isinstance(given, str):
        return given
    raise UsageError(f"{what} is {type(given).__name__}, and has to be text")


def _asked(call_id: object, tool: object, arguments: object, refusal: Refusal | None) -> Asked:
    """Return a call from its parts; a `Malformed` if its turn has a `refusal`, or a part is bad.

    Raises: UsageError if the id is not text.
    """
    name = tool if isinstance(tool, str) else ""
    identity = "" if call_id is None else text_of("the id of a call", call_id)
    if refusal is not None:
        return Malformed(ToolCall(identity, name, {}), refusal)
    if not isinstance(arguments, str):
        return asked_call(identity, name, arguments)
    try:
        return ToolCall(identity, name, parse_object(arguments))
    except InvalidArgumentsError as error:
        problem = Refusal(error.code, error.message, error.hint)
        return Malformed(ToolCall(identity, name, {}), problem)


def asked_call(call_id: str, tool: str, arguments: object) -> Asked:
    if isinstance(arguments, Mapping):
        return ToolCall(call_id, tool, dict(cast("Mapping[str, Json]", arguments)))
    refusal = Refusal(
        InvalidArgumentsError.code,
        f"the arguments are not an object: {quote(arguments)}",
        'give one object, such as {"path": "README.md"}',
    )
    return Malformed(ToolCall(call_id, tool, {}), refusal)


def _why_not(said: object, name: str, ends: frozenset[str]) -> Refusal | None:
    reason = _get(said, name)
    if reason is None or (isinstance(reason, str) and reason in ends):
        return None
    return _dropped(f"its {name} is {quote(reason)}")


def _dropped(why: str) -> Refusal:
    return Refusal(
        CallDroppedError.code,
        f"it was not run: {why}, so it may be cut, or not intended",
        "make it again in a turn that ends normally; if the turn was cut, do less in one turn",
    )


def _read_anthropic(message: object) -> list[Asked]:
    refusal = _why_not(message, "stop_reason", _ANTHROPIC_ENDS)
    return [
        _asked(_get(block, "id"), _get(block, "name"), _get(block, "input"), refusal)
        for block in _part(message, "content")
        if _get(block, "type") == "tool_use"
    ]


def _anthropic_block(result: ToolResult) -> dict[str, Json]:
    is_error = result.refusal is not None
    said: dict[str, Json] = {"content": result.content, "is_error": is_error}
    return {"type": "tool_result", "tool_use_id": result.call_id, **said}


def _read_openai(message: object) -> list[Asked]:
    # The API gives the reason beside the message; a program may have added it to the message.
    refusal = _why_not(message, "finish_reason", _CHAT_ENDS)
    if refusal is None and _get(message, "refusal"):
        refusal = _dropped("the model declined")
    asked: list[Asked] = []
    for call in _part(message, "tool_calls", "content"):
        function = _get(call, "function")
        name, arguments = _get(function, "name"), _get(function, "arguments")
        asked.append(_asked(_get(call, "id"), name, arguments, refusal))
    return asked


def _openai_block(result: ToolResult) -> dict[str, Json]:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.content}


def _read_responses(message: object) -> list[Asked]:
    items = _part(message, "output")
    refusal = _why_not(message, "status", _COMPLETED)
    if refusal is None and any(_has_refusal(item) for item in items):
        refusal = _dropped("the model declined")
    asked: list[Asked] = []
    for item in items:
        kind, call_id = _get(item, "type"), _get(item, "call_id")
        if kind == "function_call":
            why = refusal or _why_not(item, "status", _COMPLETED)
            asked.append(_asked(call_id, _get(item, "name"), _get(item, "arguments"), why))
        elif kind in _NATIVE_ITEMS:
            why = refusal or _why_not(item, "status", _AWAITED)
            asked.append(_asked(call_id, kind, _native_arguments(item, kind), why))
    return asked


def _native_arguments(item: object, kind: str) -> dict[str, Json]:
    holder, names = _NATIVE_ITEMS[kind]
    held: Any = _get(item, holder)
    # Threat: an unknown member (`move_to`) would be ignored, and reported as done.
    extra: Iterable[str] = _get(held, "model_extra") or (held if hasattr(held, "keys") else ())
    given = {name: _get(held, name) for name in (*names, *extra)}
    return {name: value for name, value in given.items() if value is not None}


def _has_refusal(item: object) -> bool:
    return any(_get(part, "type") == "refusal" for part in _items(_get(item, "content")))


def _responses_block(result: ToolResult) -> dict[str, Json]:
    return {"type": "function_call_output", "call_id": result.call_id, "output": result.content}


_DIALECTS: Final = {
    "anthropic": Dialect(_read_anthropic, _anthropic_block),
    "openai": Dialect(_read_openai, _openai_block),
    "openai-responses": Dialect(_read_responses, _responses_block),
}

Spec = ToolSpec[Any]


def schemas_for(provider: str, specs: Sequence[Spec]) -> list[dict[str, Json]]:
    form = _known(provider, _FORMS)
    return [form(spec) for spec in specs]


def _known(provider: str, table: Mapping[str, T]) -> T:
    if provider not in table:
        hint = f"one of: {', '.join(sorted(table))}"
        raise UsageError(f"unknown provider {quote(provider)}", hint=hint)
    return table[provider]


def _input_schema(spec: Spec) -> dict[str, Json]:
    return spec.make_binder().schema


def _anthropic(spec: Spec) -> dict[str, Json]:
    return {"name": spec.name, "description": spec.description, "input_schema": _input_schema(spec)}


def _openai(spec: Spec) -> dict[str, Json]:
    function = _openai_responses(spec)
    return {"type": function.pop("type"), "function": function}


def _openai_responses(spec: Spec) -> dict[str, Json]:
    said = {"name": spec.name, "description": spec.description, "parameters": _input_schema(spec)}
    return {"type": "function", **said}


def _mcp(spec: Spec) -> dict[str, Json]:
    # A tool may declare no output, and the protocol does not accept `{}` as a schema.
    output = {"outputSchema": dict(spec.output_schema)} if spec.output_schema else {}
    return {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "inputSchema": _input_schema(spec),
        **output,
        "annotations": {
            "title": spec.title,
            "readOnlyHint": spec.effects.reads_only,
            "destructiveHint": spec.effects.is_destructive,
            "idempotentHint": spec.effects.is_idempotent,
            "openWorldHint": spec.effects.is_open_world,
        },
    }


_FORMS: Final[dict[str, Callable[[Spec], dict[str, Json]]]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "openai-responses": _openai_responses,
    "mcp": _mcp,
}
