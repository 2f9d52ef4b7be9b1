"""What the full path and the images both say about agents and places of the plane."""

from paddock.plane.layout import PlaneLayout
from paddock.values.agents import Agent
from paddock.values.calls import Json


def agent_json(agent: Agent) -> dict[str, Json]:
    """An agent as entries of the ledger keep it: enough to decide again."""
    kept: dict[str, Json] = {"name": agent.name, "profile": agent.profile}
    permissions = agent.permissions
    if permissions.read != ("**",) or permissions.write != ("**",) or permissions.forbidden:
        kept["permissions"] = {
            "read": list(permissions.read),
            "write": list(permissions.write),
            "forbidden": list(permissions.forbidden),
        }
    return kept


def warned_directory(layout: PlaneLayout) -> str:
    """Where the plane keeps which warnings were given."""
    return str(layout.ho2 / "scratch" / "hook-warnings")
