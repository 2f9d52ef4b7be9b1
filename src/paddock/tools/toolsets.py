"""The tools that Paddock brings. A module is loaded when one of its tools is asked for."""

from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from paddock.tools.spec import Tool


class ListedTool(NamedTuple):
    name: str
    toolset: str
    module: str
    is_offered: bool = True
    """False: only as a tool of a provider, which has its own name and schema."""

    def load(self) -> Tool[Any]:
        """Return the tool: its module has one function for each, named after it."""
        module = import_module(f"paddock.tools.{self.module}")
        return cast("Tool[Any]", getattr(module, f"{self.name}_tool")())


TOOLS: Final = (
    ListedTool("gate_check", "core", "plane"),
    ListedTool("read_file", "core", "view"),
    ListedTool("query_ledger", "core", "plane"),
    ListedTool("list_files", "core", "listing"),
    ListedTool("list_packages", "core", "plane"),
    ListedTool("write_file_dev", "development", "write"),
    ListedTool("edit_file_dev", "development", "replace"),
    ListedTool("grep_dev", "development", "grep"),
    ListedTool("run_shell_dev", "development", "shell"),
    ListedTool("create_file", "workspace", "write"),
    ListedTool("str_replace", "workspace", "replace"),
    ListedTool("view", "workspace", "view"),
    ListedTool("insert_text", "workspace", "replace", is_offered=False),
    ListedTool("patch_file", "workspace", "replace", is_offered=False),
    ListedTool("memory_view", "workspace", "memory", is_offered=False),
    ListedTool("memory_create", "workspace", "memory", is_offered=False),
    ListedTool("memory_str_replace", "workspace", "memory", is_offered=False),
    ListedTool("memory_insert", "workspace", "memory", is_offered=False),
    ListedTool("memory_delete", "workspace", "memory", is_offered=False),
    ListedTool("memory_rename", "workspace", "memory", is_offered=False),
    ListedTool("move_file", "workspace", "move"),
    ListedTool("delete_file", "workspace", "move"),
    ListedTool("grep", "search", "grep"),
    ListedTool("find", "search", "listing"),
    ListedTool("ls", "search", "listing"),
    ListedTool("write_output", "output", "write"),
    ListedTool("run_shell", "shell", "shell"),
    ListedTool("shell_output", "shell", "processes"),
    ListedTool("shell_input", "shell", "processes"),
    ListedTool("shell_stop", "shell", "processes"),
    ListedTool("shell_sync", "shell", "processes"),
    ListedTool("shell_list", "shell", "processes"),
)


def all_tools() -> list[Tool[Any]]:
    return [listed.load() for listed in TOOLS]
