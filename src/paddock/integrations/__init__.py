"""Paddock in other people's frameworks: same policy, same record, same undo, no rewrite.

    claude_agent_sdk   the permission callback, and the tools as an MCP server in the process
    openai_agents      a client of sandboxes, and what runs ShellTool and ApplyPatchTool
    pydantic_ai        a toolset
    strands            a sandbox

Each module loads its framework, and nothing else loads the module.
"""

import os
from collections.abc import Mapping
from typing import Any, Final, Self

from paddock.assembly.runtimes import open_workspace
from paddock.errors import (
    ApprovalError,
    InvalidArgumentsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PermissionDeniedError,
    ToolError,
    UsageError,
)
from paddock.runtime.runtime import Runtime

Root = str | os.PathLike[str] | Runtime
"""A directory, which is opened, or a runtime that the program has open."""


_BUILTIN_ERRORS: Final[dict[type, type[OSError | ValueError]]] = {
    InvalidArgumentsError: ValueError,
    PathNotFoundError: FileNotFoundError,
    PathNotAFileError: IsADirectoryError,
    PathNotADirectoryError: NotADirectoryError,
    PermissionDeniedError: PermissionError,
    ApprovalError: PermissionError,
    ToolError: OSError,
}


def builtin_error(error: ToolError) -> OSError | ValueError:
    """Return a refusal as what a file call raises, for frameworks that know no other errors."""
    kind = next(_BUILTIN_ERRORS[each] for each in type(error).__mro__ if each in _BUILTIN_ERRORS)
    return kind(error.render())


class RuntimeOwner:
    """Holds a runtime; what it opened itself it closes, a program's own stays open."""

    def __init__(self, root: Root, open_arguments: Mapping[str, Any]) -> None:
        """`open_arguments` are those of `paddock.open`. Raises: as that; UsageError."""
        self._is_given = isinstance(root, Runtime)
        if self._is_given and open_arguments:
            raise UsageError(
                f"an open runtime takes no {', '.join(sorted(open_arguments))}",
                hint="give these to paddock.open",
            )
        self.runtime = root if isinstance(root, Runtime) else open_workspace(root, **open_arguments)

    def close(self) -> None:
        if not self._is_given:
            self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
