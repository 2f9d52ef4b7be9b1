"""What policy judges: `tool:<category>:<operation> <target>`, target resolved."""

from types import MappingProxyType
from typing import Final, NamedTuple

OPERATIONS: Final = MappingProxyType(
    {
        "file": frozenset({"create", "str_replace", "view", "delete", "link", "mode"}),
        "search": frozenset({"grep", "find", "ls"}),
        "output": frozenset({"write"}),
        "shell": frozenset({"run"}),
        "ledger": frozenset({"query"}),
        "package": frozenset({"list", "run"}),
        "gate": frozenset({"check"}),
        "mcp": frozenset({"call"}),
        # A client's own tool, named by its operation: any name is known here.
        "client": frozenset[str](),
    }
)
"""Categories and their operations. `client` takes any tool name as operation."""

PATH_CATEGORIES: Final = frozenset({"file", "search", "output"})
"""Categories whose target is a workspace-relative path."""

WRITING_OPERATIONS: Final = frozenset(
    {
        ("file", "create"),
        ("file", "str_replace"),
        ("file", "delete"),
        ("file", "link"),
        ("file", "mode"),
        ("output", "write"),
    }
)
"""Heads whose path target is changed by the call."""


class Action(NamedTuple):
    """One thing that a call would do.

    `target` is a workspace-relative path with `/` between components and no
    leading slash (`.` is the root), a command line for `shell:run`, a name
    otherwise. It may be empty where an operation has no target.
    """

    category: str
    operation: str
    target: str = ""

    @property
    def head(self) -> str:
        return f"tool:{self.category}:{self.operation}"

    @property
    def is_path(self) -> bool:
        """Whether the target is a workspace-relative path."""
        return self.category in PATH_CATEGORIES

    @property
    def is_write(self) -> bool:
        """Whether the call would change what the path target names."""
        return (self.category, self.operation) in WRITING_OPERATIONS

    def __str__(self) -> str:
        head = f"tool:{self.category}:{self.operation}"
        return f"{head} {self.target}" if self.target else head
