"""The JSON Schema (draft 2020-12) of `admin_config.json`, for editors and other programs.

It stands beside the configuration, in `HOT/schemas/`, and says what
`plane/admin.py` does: both accept and refuse the same JSON values. What a
schema cannot say (a key given twice, entries of `tools` that differ from what is
registered, a pattern that can match nothing) the reader alone refuses.
"""

from collections.abc import Sequence
from typing import Final

from paddock import limits
from paddock.plane import admin as config
from paddock.plane.dual_gate import TOOL_PROFILES
from paddock.plane.strict_json import write_object
from paddock.values.calls import Json

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def admin_config_schema() -> dict[str, Json]:
    return {
        "$schema": DRAFT,
        "title": "admin_config.json",
        "description": "The admin agent of a bare plane. An absent field has its default.",
        **_object(
            {
                "agent_id": _short(config.ID_CHARS_MAX, "Who the agent is in records."),
                "agent_class": _short(config.ID_CHARS_MAX, "What kind of agent it is."),
                "framework_id": _short(config.ID_CHARS_MAX, "The framework that governs it."),
                "tier": _one_of(config.TIERS, "The tier that it belongs to."),
                "tool_profile": _one_of(
                    TOOL_PROFILES,
                    "Half of the dual gate; development tools need the environment's too.",
                ),
                "system_prompt": {"type": "string", "description": "What the model is told first."},
                "attention": _attention(),
                "tools": {
                    "type": "array",
                    "description": "Core tools that the model is offered, as they are registered.",
                    "items": _tool(),
                },
                "package_tools": {
                    "type": "array",
                    "description": "Tools of packages: code that runs in Paddock's own process.",
                    "items": _package_tool(),
                },
                "classify": {
                    "type": "boolean",
                    "description": "Whether a message is classified before it is answered.",
                },
                "budget": _budget(),
                "model": _model(),
                "permissions": _permissions(),
            },
            "",
        ),
    }


def admin_config_schema_bytes() -> bytes:
    return write_object(admin_config_schema())


def _object(
    properties: dict[str, Json], description: str, required: Sequence[str] = ()
) -> dict[str, Json]:
    said: dict[str, Json] = {"description": description} if description else {}
    needed: dict[str, Json] = {"required": list(required)} if required else {}
    return {
        "type": "object",
        **said,
        "properties": properties,
        **needed,
        "additionalProperties": False,
    }


def _short(chars_max: int, description: str) -> dict[str, Json]:
    return {"type": "string", "minLength": 1, "maxLength": chars_max, "description": description}


def _one_of(known: Sequence[str], description: str) -> dict[str, Json]:
    return {"enum": [str(each) for each in known], "description": description}


def _whole(maximum: int, description: str) -> dict[str, Json]:
    return {"type": "integer", "minimum": 1, "maximum": maximum, "description": description}


def _attention() -> dict[str, Json]:
    tier_stage = _object({"type": {"const": "tier"}}, "The tier's name.", ["type"])
    ledger_stage = _object(
        {
            "type": {"const": "ledger"},
            "ledger": _one_of(config.STAGE_LEDGERS, "Which ledger."),
            "event_type": _short(config.ID_CHARS_MAX, "Only entries of this type."),
            "max_entries": _whole(limits.attention_entries_max, "The newest so many."),
        },
        "Entries of a ledger.",
        ["type"],
    )
    return _object(
        {
            "template_id": _short(config.ID_CHARS_MAX, "The template that lays it out."),
            "stages": {"type": "array", "items": {"oneOf": [tier_stage, ledger_stage]}},
            "token_budget": _whole(limits.json_integer_max, "Tokens of all stages together."),
            "fallback": _one_of(config.FALLBACKS, "Where a stage cannot be made."),
        },
        "What context the supervisor adds to a turn.",
    )


def _tool() -> dict[str, Json]:
    return _object(
        {
            "tool_id": _short(config.ID_CHARS_MAX, "The tool's name."),
            "description": {"type": "string"},
            "handler": {"type": "string"},
            "parameters": {"type": "object"},
        },
        "One core tool, exactly as it is registered.",
        ["tool_id", "description", "parameters"],
    )


def _package_tool() -> dict[str, Json]:
    return _object(
        {
            "tool_id": _short(config.ID_CHARS_MAX, "The tool's name, which its file has too."),
            "package_id": _short(limits.package_id_chars_max, "The package that brings it."),
        },
        "One tool that an installed package brings.",
        ["tool_id", "package_id"],
    )


def _budget() -> dict[str, Json]:
    most = limits.json_integer_max
    return _object(
        {
            "session_tokens": _whole(most, "Of one session."),
            "turn_tokens": _whole(most, "Of one turn."),
            "order_tokens": _whole(most, "Of one work order."),
            "mode": _one_of(config.BUDGET_MODES, "What happens when one is used up."),
        },
        "Tokens that may be spent.",
    )


def _model() -> dict[str, Json]:
    # ECMA 262 and Python read this expression alike; `$` they do not.
    url = "^https?://(?=[\\s\\S])(?![\\s\\S]*[^!-~])"
    return _object(
        {
            "provider": _short(config.ID_CHARS_MAX, "builtin, anthropic, openai, or your own."),
            "name": {
                "type": ["string", "null"],
                "minLength": 1,
                "maxLength": config.NAME_CHARS_MAX,
            },
            "base_url": {"type": ["string", "null"], "pattern": url},
            "api": {"enum": [*config.MODEL_APIS, None]},
        },
        "Which model answers.",
    )


def _permissions() -> dict[str, Json]:
    patterns: dict[str, Json] = {
        "type": "array",
        "items": {"type": "string"},
        "uniqueItems": True,
    }
    return _object(
        {
            "read": {**patterns, "description": "What may be read; absent: everything."},
            "write": {**patterns, "description": "What may be written; absent: everything."},
            "forbidden": {
                **patterns,
                "default": list(config.DEFAULT_PERMISSIONS.forbidden),
                "description": "Neither read nor written, whatever the other lists say.",
            },
        },
        "Path patterns as in .gitignore. An empty list is nothing.",
    )
