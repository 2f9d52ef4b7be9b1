"""What an embedding program holds: one agent's tools on one workspace."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from paddock.runtime.dispatch import Dispatcher
from paddock.runtime.embedding import EmbeddedHandler, embedded_tool
from paddock.runtime.messages import Malformed, dialect_of
from paddock.runtime.registry import Registry
from paddock.tools.spec import Tool, ToolSpec
from paddock.values.calls import Json, Refusal, ToolCall, ToolResult


class Tools:
    """The tools that this agent has."""

    __slots__ = ("_registry",)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> Tool[Any]:
        """The tool of that name. Raises: UnknownToolError."""
        return self._registry.get(name)

    def list_all(self) -> list[Tool[Any]]:
        """Every tool, in a fixed order."""
        return self._registry.list_all()

    def for_provider(self, provider: str) -> list[dict[str, Json]]:
        """Schemas for anthropic, openai, openai-responses or mcp. Raises: UsageError."""
        return self._registry.for_provider(provider)

    def register(self, spec: ToolSpec[Any], handler: EmbeddedHandler) -> None:
        """Add a tool of the embedding program; judged as `tool:client:<name>`.

        Raises: ConfigError where the name is taken or unusable.
        """
        self._registry.add(embedded_tool(spec, handler))


class Runtime:
    """One agent on one workspace. A context manager; closing lets go of the workspace.

    `call` and `acall` return error results, for a loop; the typed methods raise
    the matching class of `paddock.errors`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: Registry,
        new_id: Callable[[], str],
        close: Callable[[], None],
    ) -> None:
        self.tools = Tools(registry)
        self._dispatcher = dispatcher
        self._new_id = new_id
        self._close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the workspace and the ledgers. Twice is harmless."""
        self._close()

    def call(
        self, tool: str, arguments: Mapping[str, Json], *, call_id: str | None = None
    ) -> ToolResult:
        """Run one governed call; a refusal is a result."""
        return self._dispatcher.dispatch(ToolCall(call_id or self._new_id(), tool, arguments))

    def refuse(self, tool: str, refusal: Refusal) -> ToolResult:
        """Record and answer a call that the door could not even read; it does not run."""
        return self._dispatcher.refuse(ToolCall(self._new_id(), tool, {}), refusal)

    async def acall(
        self, tool: str, arguments: Mapping[str, Json], *, call_id: str | None = None
    ) -> ToolResult:
        """`call`, in a worker thread."""
        return await asyncio.to_thread(self.call, tool, arguments, call_id=call_id)

    def answer(self, provider: str, message: object) -> list[dict[str, Json]]:
        """Run every tool call of a model's message; the blocks to send back, in order.

        Raises: UsageError for a provider that is not known.
        """
        dialect = dialect_of(provider)
        results = [
            self._dispatcher.refuse(asked.call, asked.refusal)
            if isinstance(asked, Malformed)
            else self._dispatcher.dispatch(asked)
            for asked in dialect.read(message)
        ]
        return dialect.write(results)

    # Typed methods

    def create_file(self, path: str, content: str, *, if_version: str | None = None) -> ToolResult:
        """Write a whole file. Raises: ToolError."""
        return self._do("create_file", if_version, path=path, content=content)

    def str_replace(
        self, path: str, old_str: str, new_str: str, *, if_version: str | None = None
    ) -> ToolResult:
        """Change one exact text. Raises: ToolError."""
        return self._do("str_replace", if_version, path=path, old_str=old_str, new_str=new_str)

    def view(self, path: str, *, offset: int | None = None, limit: int | None = None) -> ToolResult:
        """Numbered lines of a file, or a directory's listing. Raises: ToolError."""
        window = {"offset": offset, "limit": limit}
        given = {name: value for name, value in window.items() if value is not None}
        return self.call("view", {"path": path, **given}).unwrap()

    def move_file(self, path: str, to: str, *, if_version: str | None = None) -> ToolResult:
        """Give a file another name. Raises: ToolError."""
        return self._do("move_file", if_version, path=path, to=to)

    def delete_file(self, path: str, *, if_version: str | None = None) -> ToolResult:
        """Remove a file. Raises: ToolError."""
        return self._do("delete_file", if_version, path=path)

    def _do(self, tool: str, if_version: str | None, **arguments: str) -> ToolResult:
        given = arguments if if_version is None else {**arguments, "if_version": if_version}
        return self.call(tool, given).unwrap()
