"""What a bare plane's configuration wants beyond the defaults: what `paddock trust` shows of it.

Threat: as in `paddock.plane.grants`: every key is looked at, and every text is escaped.
"""

from paddock.plane.admin_config import (
    DEFAULT_PERMISSIONS,
    DEFAULT_SYSTEM_PROMPT,
    AdminConfig,
    ModelChoice,
)
from paddock.text.show import show_name


def summarise_admin(config: AdminConfig) -> str:
    """What a bare plane's configuration wants beyond the defaults, one line each."""
    found: list[str] = []
    if config.tool_profile == "development":
        found.append("tool_profile is development: one half of the dual gate")
    if config.model != ModelChoice():
        model = config.model
        said = [model.provider, model.name or "", model.base_url or ""]
        found.append(f"the model that answers: {show_name(' '.join(filter(None, said)))}")
    if config.system_prompt != DEFAULT_SYSTEM_PROMPT:
        found.append(f"a system prompt of its own ({len(config.system_prompt)} characters)")
    found += [
        f"permissions: {show_name(pattern)} is not forbidden"
        for pattern in DEFAULT_PERMISSIONS.forbidden
        if pattern not in config.permissions.forbidden
    ]
    found += [
        f"code of {show_name(each.package_id)} runs as the tool {show_name(each.tool_id)}"
        for each in config.package_tools
    ]
    name = show_name(str(config.file))
    if not found:
        return f"{name} allows nothing beyond the defaults"
    return "\n".join([f"{name} wants, beyond the defaults:", *(f"  - {each}" for each in found)])
