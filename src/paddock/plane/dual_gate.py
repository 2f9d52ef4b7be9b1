"""The dual gate: development tools exist only where two independent halves say so.

One half is governed (`tool_profile` in the plane's configuration, which no agent
writes), the other is the operator's own shell (an environment variable). Pure:
both come in as values.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from paddock.values.calls import Json

RISKY_TOOLS_VARIABLE: Final = "CP_ADMIN_ENABLE_RISKY_TOOLS"
RISKY_TOOLS_VALUE: Final = "1"

ToolProfile = Literal["production", "development"]
TOOL_PROFILES: Final[tuple[ToolProfile, ...]] = ("production", "development")


def allows_risky_tools(variables: Mapping[str, str]) -> bool:
    """Whether the environment's half holds: the variable is exactly `1`.

    Threat: whoever reads "true", " 1" or "01" as a yes opens the gate for a
    value that nobody meant as one.
    """
    return variables.get(RISKY_TOOLS_VARIABLE) == RISKY_TOOLS_VALUE


class DualGate(Struct, frozen=True):
    """What the gate found when the plane was opened; it is not asked again."""

    tool_profile: ToolProfile = "production"
    variable: bool = False
    accepted: bool = False
    """A bare plane that its user named or registered: only then does its profile count."""

    @property
    def is_open(self) -> bool:
        return self.tool_profile == "development" and self.variable and self.accepted

    @property
    def missing(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.tool_profile != "development":
            found.append(f"tool_profile is {self.tool_profile}")
        if not self.variable:
            found.append(f"{RISKY_TOOLS_VARIABLE} is not {RISKY_TOOLS_VALUE}")
        if not self.accepted:
            found.append("this is no bare plane that you named or registered")
        return tuple(found)

    def __str__(self) -> str:
        return "open: development tools are on" if self.is_open else self._closed()

    def _closed(self) -> str:
        return f"closed: {', '.join(self.missing)}"

    def as_json(self) -> dict[str, Json]:
        return {
            "open": self.is_open,
            "tool_profile": self.tool_profile,
            "variable": self.variable,
            "accepted": self.accepted,
            "missing": list(self.missing),
        }
