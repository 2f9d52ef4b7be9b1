"""Tools of the embedding program: the same door, policy, approvals and ledger."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from paddock.errors import ConfigError
from paddock.policy.names import find_judged_as
from paddock.text.show import quote
from paddock.tools.spec import Ports, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action

EmbeddedHandler = Callable[[Any], str | ToolOutput]
"""Takes the bound arguments; returns text for the model, or a whole output."""


@dataclass(frozen=True, slots=True)
class EmbeddedPlan:
    """Bound arguments, judged as `tool:client:<name>`."""

    arguments: Any
    actions: tuple[Action, ...]


class EmbeddedTool:
    """Lets a plain function stand where a tool's handler stands."""

    def __init__(self, name: str, handler: EmbeddedHandler) -> None:
        self._actions = (Action("client", name),)
        self._handler = handler

    def resolve(self, arguments: Any, ports: Ports) -> EmbeddedPlan:
        """Nothing to resolve: the action is the tool itself."""
        del ports
        return EmbeddedPlan(arguments, self._actions)

    def run(self, plan: EmbeddedPlan, ports: Ports) -> ToolOutput:
        """Raises: whatever the function raises; ToolError is the model's to act on."""
        del ports
        said = cast("object", self._handler(plan.arguments))
        if isinstance(said, str):
            return ToolOutput(said, {})
        if isinstance(said, ToolOutput) and type(said.content) is str:
            return said
        raise TypeError(f"the handler returned {type(said).__name__}, not text")


def embedded_tool(spec: ToolSpec[Any], handler: EmbeddedHandler) -> Tool[Any]:
    """A tool from a spec and a function.

    Raises: ConfigError for a name that no provider would take, or unusable arguments.
    """
    name = spec.name
    if not (
        0 < len(name) <= 64
        and name.isascii()
        and name.replace("_", "a").replace("-", "a").isalnum()
    ):
        raise ConfigError(
            f"{quote(name)} is no name for a tool",
            hint="1 to 64 letters, digits, underscores or hyphens",
        )
    if find_judged_as(name):
        # Threat: no rule can name `tool:client:Bash`, for that is not how a client's is judged.
        raise ConfigError(
            f"{quote(name)} is no name for a tool: a client's tool of that name is judged"
            f" as {find_judged_as(name)[0]}",
            hint="give it a name that policy can speak of",
        )
    try:
        return Tool(spec, EmbeddedTool(name, handler))
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"the argument type of {quote(name)} cannot be used",
            hint="a frozen dataclass with slots, its fields made with needed_text and its kin",
        ) from None
