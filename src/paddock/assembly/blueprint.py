"""What a new bare plane is made of: the one place that decides it."""

from typing import Final

from paddock.assembly.admin import declared_core_tools
from paddock.plane import admin_config as config
from paddock.plane.admin_schema import admin_config_schema_bytes
from paddock.plane.bare import Blueprint
from paddock.plane.dual_gate import ToolProfile
from paddock.plane.strict_json import write_object
from paddock.plane.template import BARE_POLICY_TEMPLATE
from paddock.values.calls import Json

POLICY: Final = "HOT/config/policy.toml"
SCHEMA: Final = "HOT/schemas/admin_config.schema.json"


def bare_plane_blueprint(tool_profile: ToolProfile) -> Blueprint:
    """Configuration with every default said aloud, its schema, and a commented policy."""
    return Blueprint(
        config=write_object(_config(tool_profile)),
        files={SCHEMA: admin_config_schema_bytes(), POLICY: BARE_POLICY_TEMPLATE},
    )


def _config(tool_profile: ToolProfile) -> dict[str, Json]:
    attention, budget, model = config.Attention(), config.Budget(), config.ModelChoice()
    permissions = config.DEFAULT_PERMISSIONS
    return {
        "agent_id": config.DEFAULT_AGENT_ID,
        "agent_class": config.DEFAULT_AGENT_CLASS,
        "framework_id": config.DEFAULT_FRAMEWORK_ID,
        "tier": config.DEFAULT_TIER,
        "tool_profile": tool_profile,
        "system_prompt": config.DEFAULT_SYSTEM_PROMPT,
        "attention": {
            "template_id": attention.template_id,
            "stages": [_stage(stage) for stage in attention.stages],
            "token_budget": attention.token_budget,
            "fallback": attention.fallback,
        },
        "tools": declared_core_tools(),
        "classify": True,
        "budget": {
            "session_tokens": budget.session_tokens,
            "turn_tokens": budget.turn_tokens,
            "order_tokens": budget.order_tokens,
            "mode": budget.mode,
        },
        "model": {
            "provider": model.provider,
            "name": model.name,
            "base_url": model.base_url,
            "api": model.api,
        },
        "permissions": {
            "read": list(permissions.read),
            "write": list(permissions.write),
            "forbidden": list(permissions.forbidden),
        },
    }


def _stage(stage: config.Stage) -> dict[str, Json]:
    if stage.kind == "tier":
        return {"type": stage.kind}
    shown: dict[str, Json] = {"type": stage.kind, "ledger": stage.ledger}
    if stage.event_type is not None:
        shown["event_type"] = stage.event_type
    return {**shown, "max_entries": stage.max_entries}
