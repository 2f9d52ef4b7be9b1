"""Result fields that the workspace tools have in common, and their JSON Schema."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from paddock.values.calls import Json

WORKSPACE_FAILURE: Final[Mapping[str, Json]] = MappingProxyType({"success": False})


def result_schema(own: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of a result object: what every tool has, and a tool's own fields."""
    common: dict[str, Json] = {
        "status": {"enum": ["ok", "error"]},
        "content": {"type": "string", "description": "The text for the model."},
        "code": {"type": "string", "description": "Stable code of an error."},
        "error": {"type": ["string", "null"], "description": "What happened."},
        "hint": {"type": "string", "description": "What to do next."},
        "rule": {"type": "object", "description": "The rule that refused: text, file, line."},
        "approval": {"type": "string", "description": "The request that waits for an answer."},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "clamped": {"type": "object", "description": "Numbers that were clamped, as used."},
    }
    return {
        "type": "object",
        "properties": {**common, **own},
        "required": ["status", "content"],
        "additionalProperties": False,
    }


def workspace_schema(actions: Sequence[str], own: Mapping[str, Json]) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "path": {"type": "string", "description": "Absolute path, for the host."},
        "action": {"enum": list(actions)},
        "success": {"type": "boolean"},
    }
    return result_schema({**fields, **own})


def written_schema(actions: Sequence[str]) -> dict[str, Json]:
    return workspace_schema(
        actions,
        {
            "content_snippet": {"type": "string"},
            "bytes_written": {"type": "integer"},
            "version": {"type": "string", "description": "sha256 of the bytes written."},
        },
    )
