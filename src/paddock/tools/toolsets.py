"""The named groups of tools that Paddock brings."""

from typing import Any

from paddock.tools.grep import grep_dev_tool, grep_tool
from paddock.tools.listing import find_tool, list_files_tool, ls_tool
from paddock.tools.move import delete_file_tool, move_file_tool
from paddock.tools.plane import gate_check_tool, list_packages_tool, query_ledger_tool
from paddock.tools.replace import edit_file_dev_tool, str_replace_tool
from paddock.tools.shell import run_shell_dev_tool, run_shell_tool
from paddock.tools.spec import Tool
from paddock.tools.view import read_file_tool, view_tool
from paddock.tools.write import create_file_tool, write_file_dev_tool, write_output_tool


def all_tools() -> list[Tool[Any]]:
    """Every tool that exists, in the order in which they are listed."""
    return [
        gate_check_tool(),
        read_file_tool(),
        query_ledger_tool(),
        list_files_tool(),
        list_packages_tool(),
        write_file_dev_tool(),
        edit_file_dev_tool(),
        grep_dev_tool(),
        run_shell_dev_tool(),
        create_file_tool(),
        str_replace_tool(),
        view_tool(),
        move_file_tool(),
        delete_file_tool(),
        grep_tool(),
        find_tool(),
        ls_tool(),
        write_output_tool(),
        run_shell_tool(),
    ]
