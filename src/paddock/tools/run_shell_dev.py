"""`run_shell_dev`: one line of shell, behind the dual gate."""

from typing import Final

from paddock.tools.shell_calls import RunShell, ShellDevArguments
from paddock.tools.shell_results import SHELL_SCHEMA
from paddock.tools.spec import Effects, Tool, ToolSpec

SPEC: Final = ToolSpec(
    name="run_shell_dev",
    title="Run command (development)",
    description=(
        "Run one line of shell in a sandbox over the workspace. Which commands may run is not "
        "restricted; where they may write is: each file that it changed is judged by the "
        "policy, allowed changes land, others are refused and listed. Standard input is empty, "
        "HOME and /tmp are private, and nothing goes on running when it ends."
    ),
    toolset="development",
    arguments=ShellDevArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=SHELL_SCHEMA,
)


def run_shell_dev_tool() -> Tool[ShellDevArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, RunShell())
