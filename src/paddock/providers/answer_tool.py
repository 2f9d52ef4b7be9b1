"""Where a wire cannot hold the answer to its schema: the answer as a call.

The adapter adds a tool that does not exist, recognises its own name in the reply
and hands the arguments on as the answer. Nobody above it sees the tool.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Final, cast

from paddock.values.calls import Json
from paddock.values.models import OutputSchema, ToolSchema

Issue = Callable[[], str]
"""Draws a name for one request's answer."""

DESCRIPTION: Final = (
    "Give the final answer by calling this tool exactly once, when no other call is left to make."
)


def issue_name() -> str:
    """A name that no tool of the user's has, and that no earlier reply can have learnt."""
    return f"answer_{secrets.token_hex(8)}"


def answer_tool(name: str, output: OutputSchema) -> ToolSchema:
    return ToolSchema(name, DESCRIPTION, output.schema)


def is_closed(schema: Json) -> bool:
    """Whether every object in the schema has known members only, so that closing it keeps it."""
    if isinstance(schema, list):
        return all(is_closed(part) for part in cast("list[Json]", schema))
    if not isinstance(schema, Mapping):
        return True
    members = cast("Mapping[str, Json]", schema)
    if members.get("type") == "object" and not members.get("properties"):
        return False
    if members.get("additionalProperties", False) is not False or "patternProperties" in members:
        return False
    properties = members.get("properties")
    inner = list(members.values()) if properties is None else _without_names(members, properties)
    return all(is_closed(part) for part in inner)


def _without_names(members: Mapping[str, Json], properties: Json) -> list[Json]:
    """The schema's parts; a property may be called like a keyword, so names are left out."""
    rest = [part for name, part in members.items() if name != "properties"]
    if not isinstance(properties, Mapping):
        return rest
    return [*rest, *cast("Mapping[str, Json]", properties).values()]


def is_strict(schema: Json) -> bool:
    """Whether every object is closed in so many words and requires all of its members."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in cast("list[Json]", schema))
    if not isinstance(schema, Mapping):
        return True
    members = cast("Mapping[str, Json]", schema)
    properties = members.get("properties")
    if properties is None:
        return members.get("type") != "object" and all(map(is_strict, members.values()))
    if members.get("additionalProperties") is not False:
        return False
    if set(members.get("required") or ()) != set(cast("Mapping[str, Json]", properties)):
        return False
    return all(is_strict(part) for part in _without_names(members, properties))
