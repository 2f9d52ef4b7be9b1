"""Which actions a tool's calls are judged as, before there is a call: by tool name.

For what is decided about a tool as a whole. Each call's own actions are in its plan.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Head = tuple[str, str]
"""Category and operation."""

HEADS: Final[Mapping[str, tuple[Head, ...]]] = MappingProxyType(
    {
        "read_file": (("file", "view"),),
        "list_files": (("search", "ls"),),
        "query_ledger": (("ledger", "query"),),
        "list_packages": (("package", "list"),),
        "gate_check": (("gate", "check"),),
        "write_file_dev": (("file", "create"),),
        "edit_file_dev": (("file", "str_replace"),),
        "grep_dev": (("search", "grep"),),
        "run_shell_dev": (("shell", "run"),),
        "create_file": (("file", "create"),),
        "str_replace": (("file", "str_replace"),),
        "view": (("file", "view"),),
        "move_file": (("file", "delete"), ("file", "create")),
        "delete_file": (("file", "delete"),),
        "grep": (("search", "grep"),),
        "find": (("search", "find"),),
        "ls": (("search", "ls"),),
        "write_output": (("output", "write"),),
        "run_shell": (("shell", "run"),),
    }
)
"""A call of the tool needs all of them."""
