"""Tools of the embedding program: the same door, policy, approvals and ledger."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from paddock.errors import ConfigError, HostError, ToolError, ToolFailedError
from paddock.policy.actions import find_judged_as
from paddock.text.show import quote
from paddock.tools.spec import Ports, Tool, ToolOutput, ToolSpec
from paddock.values.decisions import Action

EmbeddedHandler = Callable[[Any], str | ToolOutput]
"""Takes the bound arguments; returns text for the model, or a whole output."""

_HINT: Final = (
    "it is a tool of the program that runs you, and may have done part of it: look before you "
    "call it again"
)


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
        """Call the function.

        Raises: ToolError, ConfigError, HostError of the function's own; ToolFailedError for
            whatever else it raises, and for what is no output: no defect of ours.
        """
        del ports
        try:
            said = cast("object", self._handler(plan.arguments))
        except (ToolError, ConfigError, HostError):
            raise
        except Exception as error:  # The embedding program's code: whatever it raises is its own.
            # Not its text, which may name what no model must see.
            raise self._failed(type(error).__name__) from error
        if isinstance(said, str):
            return ToolOutput(said, {})
        if isinstance(said, ToolOutput) and type(said.content) is str:
            return said
        if inspect.iscoroutine(said):
            said.close()
        raise self._failed(f"its handler returned {type(said).__name__}, not text")

    def _failed(self, why: str) -> ToolFailedError:
        return ToolFailedError(f"{quote(self._actions[0].operation)} failed: {why}", hint=_HINT)


def embedded_tool(spec: ToolSpec[Any], handler: EmbeddedHandler) -> Tool[Any]:
    """A tool from a spec and a function.

    Raises: ConfigError for a name that no provider would take, unusable arguments, or a
        function that has to be awaited.
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
    if has_to_be_awaited(handler):
        raise ConfigError(
            f"the handler of {quote(name)} is async, and nobody awaits it",
            hint="give a plain function: it has the thread of its call, and may wait",
        )
    try:
        return Tool(spec, EmbeddedTool(name, handler))
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"the argument type of {quote(name)} cannot be used",
            hint="a frozen dataclass with slots, its fields made with needed_text and its kin",
        ) from None


def has_to_be_awaited(function: Callable[..., object]) -> bool:
    """Whether a function of the program, or an object that is called as one, is async."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
