"""Paddock as what each framework for agents calls a sandbox, a backend or a toolset.

    claude_agent_sdk  the permission callback, and the tools as an MCP server in the process
    deepagents        a backend: file tools, searches, shell
    inspect_ai        a sandbox for evaluations, and its configuration
    openai_agents     a sandbox's client, a shell, an editor of patches
    pydantic_ai       a toolset; an ask is a deferred call
    strands           a sandbox

One module a framework, and an extra of its name. Importing a module loads its framework; nothing
else of Paddock does.
"""

import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Self

from paddock.assembly.runtimes import open_workspace
from paddock.errors import ToolError, UsageError
from paddock.limits import shell_timeout_raised_s
from paddock.runtime.runtime import Runtime

Root = str | os.PathLike[str] | Runtime
REFUSED: Final = 126  # as a shell says of a command that may not be run


class Opened:
    """The runtime behind an integration: opened here for a root, or brought open by the program.

    A context manager, sync and async; what was brought open stays open.
    """

    def __init__(self, root: Root, **open_arguments: Any) -> None:
        """`open_arguments` are those of `paddock.open`. Raises: as that."""
        self._is_own = not isinstance(root, Runtime)
        if open_arguments and not self._is_own:
            raise UsageError(
                f"an open runtime takes no {', '.join(sorted(open_arguments))}",
                hint="give it to paddock.open",
            )
        self.runtime = root if isinstance(root, Runtime) else open_workspace(root, **open_arguments)

    def close(self) -> None:
        """Let go of the workspace. Twice is harmless."""
        if self._is_own:
            self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


@contextmanager
def raising(said: Callable[[ToolError], Exception]) -> Generator[None]:
    """Have a refusal be the framework's own error, as `said` makes it."""
    try:
        yield
    except ToolError as error:
        raise said(error) from error


def whole_seconds(timeout: float | None) -> int:
    """Return a time that a command can have; without one, as long as policy lets it run."""
    return shell_timeout_raised_s if timeout is None else max(1, math.ceil(timeout))


def text_of(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")
