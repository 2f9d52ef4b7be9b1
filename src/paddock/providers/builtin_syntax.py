"""The built-in model's exact way of asking: `tool name=value`, or `tool {"name": value}`."""

import json
import re
from collections.abc import Mapping
from typing import Final

from paddock.providers.builtin_meanings import TEXT, Wish, unquoted
from paddock.providers.wire_json import as_map, read_object
from paddock.values.calls import Json, Refusal
from paddock.values.models import ToolSchema

_PAIR: Final = re.compile(r"""\s*(\w+)=("(?:\\.|[^"\\])*"|'[^']*'|[^\s"']*)(?=\s|$)""", re.DOTALL)
_SEPARATOR: Final = re.compile(rf"({TEXT})|(\n+|,?\s+(?:and\s+)?then\s+)", re.IGNORECASE)


def parse_call(sentence: str, tools: Mapping[str, ToolSchema]) -> Wish | None:
    """The call that is written out; None where this is not the exact form.

    A value becomes what the tool's schema says of its name; one that cannot, or that
    nobody knows, stays text, and the tool will say what is wrong with it.
    """
    name, _, rest = sentence.strip().partition(" ")
    tool = tools.get(name)
    if tool is None:
        return None
    rest = rest.strip()
    if rest.startswith("{"):
        given = read_object(rest)
        return None if isinstance(given, Refusal) else Wish(name, given)
    properties = as_map(tool.parameters.get("properties"))
    arguments: dict[str, Json] = {}
    place = 0
    while place < len(rest):
        pair = _PAIR.match(rest, place)
        if pair is None:
            return None
        arguments[pair[1]] = _value(pair[2], as_map(properties.get(pair[1])))
        place = pair.end()
    return Wish(name, arguments)


def _value(text: str, schema: Mapping[str, Json]) -> Json:
    kind = schema.get("type")
    if kind in {"integer", "number", "boolean", "array", "object"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if text.startswith('"'):
        try:
            return json.loads(text, strict=False)
        except ValueError:
            return text[1:-1]
    return unquoted(text) if text.startswith("'") else text


def split_steps(text: str) -> list[str]:
    """The sentences of a message: by lines, and by "then"; never inside quotation marks."""
    steps = [""]
    place = 0
    for found in _SEPARATOR.finditer(text):
        steps[-1] += text[place : found.start()]
        place = found.end()
        if found[1] is not None:
            steps[-1] += found[1]
        else:
            steps.append("")
    steps[-1] += text[place:]
    return [step.strip() for step in steps if step.strip()]
