"""Adapt Paddock to agent frameworks, as a sandbox, a backend or a toolset.

    claude_agent_sdk  the permission callback, and the tools as an MCP server in the process
    deepagents        a backend: file tools, search, shell
    inspect_ai        a sandbox for evaluations, and its configuration
    openai_agents     a sandbox client, a shell, a patch editor
    pydantic_ai       a toolset; `ask` becomes a deferred call
    strands           a sandbox

Each module needs the extra of its name, and only importing it loads the framework.
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
REFUSED: Final = 126  # the shell's status for a command that may not be executed


class Opened:
    """The runtime behind an integration: opened here for a root, or passed in by the program.

    A context manager, sync and async. A runtime that was passed in stays open.
    """

    def __init__(self, root: Root, **open_arguments: Any) -> None:
        """`open_arguments` are those of `paddock.open`. Raises: as `paddock.open`."""
        self._is_own = not isinstance(root, Runtime)
        if open_arguments and not self._is_own:
            raise UsageError(
                f"an open runtime does not accept {', '.join(sorted(open_arguments))}",
                hint="pass the arguments to paddock.open",
            )
        self.runtime = root if isinstance(root, Runtime) else open_workspace(root, **open_arguments)

    def close(self) -> None:
        """Release the workspace. Calling it twice is harmless."""
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
    """Convert a refusal into the framework's error, which `said` creates."""
    try:
        yield
    except ToolError as error:
        raise said(error) from error


def whole_seconds(timeout: float | None) -> int:
    """Return a command's time limit; without one, the longest that policy permits."""
    return shell_timeout_raised_s if timeout is None else max(1, math.ceil(timeout))


def text_of(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")
