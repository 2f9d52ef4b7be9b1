"""The named groups of tools that Paddock brings."""

from typing import Any

from paddock.tools.create_file import create_file_tool
from paddock.tools.delete_file import delete_file_tool
from paddock.tools.edit_file_dev import edit_file_dev_tool
from paddock.tools.find import find_tool
from paddock.tools.gate_check import gate_check_tool
from paddock.tools.grep import grep_tool
from paddock.tools.grep_dev import grep_dev_tool
from paddock.tools.list_files import list_files_tool
from paddock.tools.list_packages import list_packages_tool
from paddock.tools.ls import ls_tool
from paddock.tools.move_file import move_file_tool
from paddock.tools.query_ledger import query_ledger_tool
from paddock.tools.read_file import read_file_tool
from paddock.tools.run_shell import run_shell_tool
from paddock.tools.run_shell_dev import run_shell_dev_tool
from paddock.tools.spec import Tool
from paddock.tools.str_replace import str_replace_tool
from paddock.tools.view import view_tool
from paddock.tools.write_file_dev import write_file_dev_tool
from paddock.tools.write_output import write_output_tool


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
