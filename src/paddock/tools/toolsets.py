"""The list of Paddock's tools. A module is loaded when one of its tools is needed."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from paddock.tools.spec import Tool


class ListedTool(NamedTuple):
    name: str
    toolset: str
    module: str
    heads: str  # category:operation of its actions; a call needs all of them
    is_offered: bool = True
    """False: offered only as a provider's tool, under that one's name and schema."""

    def load(self) -> Tool[Any]:
        """Return the tool: in its module, it has its name in capitals."""
        module = import_module(f"paddock.tools.{self.module}")
        return cast("Tool[Any]", getattr(module, self.name.upper()))


TOOLS: Final = (
    ListedTool("gate_check", "core", "plane", "gate:check"),
    ListedTool("read_file", "core", "view", "file:view"),
    ListedTool("query_ledger", "core", "plane", "ledger:query"),
    ListedTool("list_files", "core", "listing", "search:ls"),
    ListedTool("list_packages", "core", "plane", "package:list"),
    ListedTool("write_file_dev", "development", "write", "file:create"),
    ListedTool("edit_file_dev", "development", "replace", "file:str_replace"),
    ListedTool("grep_dev", "development", "grep", "search:grep"),
    ListedTool("run_shell_dev", "development", "shell", "shell:run"),
    ListedTool("create_file", "workspace", "write", "file:create"),
    ListedTool("str_replace", "workspace", "replace", "file:str_replace"),
    ListedTool("view", "workspace", "view", "file:view"),
    ListedTool("insert_text", "workspace", "replace", "file:str_replace", is_offered=False),
    ListedTool("patch_file", "workspace", "replace", "file:str_replace", is_offered=False),
    ListedTool("memory_view", "workspace", "memory", "memory:view", is_offered=False),
    ListedTool("memory_create", "workspace", "memory", "memory:create", is_offered=False),
    ListedTool("memory_str_replace", "workspace", "memory", "memory:str_replace", is_offered=False),
    ListedTool("memory_insert", "workspace", "memory", "memory:str_replace", is_offered=False),
    ListedTool("memory_delete", "workspace", "memory", "memory:delete", is_offered=False),
    ListedTool(
        "memory_rename", "workspace", "memory", "memory:delete memory:create", is_offered=False
    ),
    ListedTool("move_file", "workspace", "write", "file:delete file:create"),
    ListedTool("delete_file", "workspace", "write", "file:delete"),
    ListedTool("grep", "search", "grep", "search:grep"),
    ListedTool("find", "search", "listing", "search:find"),
    ListedTool("ls", "search", "listing", "search:ls"),
    ListedTool("write_output", "output", "write", "output:write"),
    ListedTool("run_shell", "shell", "shell", "shell:run"),
    ListedTool("shell_output", "shell", "processes", "shell:process"),
    ListedTool("shell_input", "shell", "processes", "shell:input"),
    ListedTool("shell_stop", "shell", "processes", "shell:process"),
    ListedTool("shell_sync", "shell", "processes", "shell:process"),
    ListedTool("shell_list", "shell", "processes", "shell:process"),
)
HEADS: Final[Mapping[str, list[list[str]]]] = MappingProxyType(
    {tool.name: [head.split(":") for head in tool.heads.split()] for tool in TOOLS}
)
"""For decisions about a whole tool. The actions of a call are in its plan."""


def all_tools() -> list[Tool[Any]]:
    return [listed.load() for listed in TOOLS]
