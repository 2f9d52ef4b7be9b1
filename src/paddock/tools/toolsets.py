"""The named groups of tools that Paddock brings."""

from typing import Any

from paddock.tools.create_file import create_file_tool
from paddock.tools.delete_file import delete_file_tool
from paddock.tools.move_file import move_file_tool
from paddock.tools.spec import Tool
from paddock.tools.str_replace import str_replace_tool
from paddock.tools.view import view_tool


def all_tools() -> list[Tool[Any]]:
    """Every tool that exists, in the order in which they are listed."""
    return [
        create_file_tool(),
        str_replace_tool(),
        view_tool(),
        move_file_tool(),
        delete_file_tool(),
    ]
