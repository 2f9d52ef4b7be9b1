"""One tool spec in each provider's words."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from paddock.errors import UsageError
from paddock.text.show import quote
from paddock.tools.arguments import Binder
from paddock.tools.spec import ToolSpec
from paddock.values.calls import Json

Spec = ToolSpec[Any]


def schemas_for(provider: str, specs: Sequence[Spec]) -> list[dict[str, Json]]:
    """The specs as `provider` wants them in its request.

    Raises: UsageError for a provider that is not known.
    """
    form = _FORMS.get(provider)
    if form is None:
        raise UsageError(
            f"unknown provider {quote(provider)}", hint=f"one of: {', '.join(sorted(_FORMS))}"
        )
    return [form(spec) for spec in specs]


def _input_schema(spec: Spec) -> dict[str, Json]:
    return Binder(spec.arguments).schema


def _anthropic(spec: Spec) -> dict[str, Json]:
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": _input_schema(spec),
    }


def _openai(spec: Spec) -> dict[str, Json]:
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": _input_schema(spec),
    }
    return {"type": "function", "function": function}


def _openai_responses(spec: Spec) -> dict[str, Json]:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": _input_schema(spec),
    }


def _mcp(spec: Spec) -> dict[str, Json]:
    # A tool need not say what it returns, and `{}` is no schema that the protocol takes.
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
