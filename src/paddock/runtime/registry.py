"""The tools that exist: name, spec and handler registered together, once."""

from collections.abc import Iterable
from typing import Any

from paddock.errors import ConfigError, UnknownToolError
from paddock.runtime.messages import schemas_for
from paddock.text.show import quote
from paddock.tools.spec import Tool
from paddock.tools.toolsets import ListedTool
from paddock.values.calls import Json


class Registry:
    """Tools by name. A name used twice stops the start."""

    __slots__ = ("_tools", "_withheld")

    def __init__(
        self,
        tools: Iterable[Tool[Any] | ListedTool] = (),
        withheld: frozenset[str] = frozenset(),
    ) -> None:
        """`withheld` are names that policy would deny at every call: known, and not offered."""
        self._tools: dict[str, Tool[Any] | ListedTool] = {}
        self._withheld = withheld
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool[Any] | ListedTool) -> None:
        """Register a tool.

        Raises: ConfigError where the name is taken.
        """
        if tool.name in self._tools:
            raise ConfigError(
                f"the tool name {quote(tool.name)} is used twice",
                hint="every tool needs a name of its own",
            )
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[Any]:
        """The tool of that name.

        Raises: UnknownToolError naming what there is.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownToolError(
                f"unknown tool {quote(name)}",
                hint=f"the tools are: {', '.join(sorted(self._tools)) or 'none'}",
            )
        if isinstance(tool, ListedTool):
            tool = self._tools[name] = tool.load()
        return tool

    def list_all(self) -> list[Tool[Any]]:
        """Every tool that is offered, in the order in which they were registered."""
        return [self.get(name) for name in self._tools if name not in self._withheld]

    def for_provider(self, provider: str) -> list[dict[str, Json]]:
        """What is offered as `provider` wants it: anthropic, openai, openai-responses or mcp.

        Raises: UsageError for another provider.
        """
        return schemas_for(provider, [tool.spec for tool in self.list_all()])

    def only(self, toolsets: Iterable[str]) -> "Registry":
        wanted = frozenset(toolsets)
        return Registry(tool for tool in self._tools.values() if tool.toolset in wanted)
