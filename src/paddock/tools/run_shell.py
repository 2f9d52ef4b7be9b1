"""`run_shell`: one line of shell, for any agent whose policy allows or asks for it."""

from typing import Final

from paddock.tools.shell_calls import RunShell, ShellArguments
from paddock.tools.shell_results import SHELL_SCHEMA
from paddock.tools.spec import Effects, Tool, ToolSpec

SPEC: Final = ToolSpec(
    name="run_shell",
    title="Run command",
    description=(
        "Run one line of shell in a sandbox over the workspace. Each file that it changed is "
        "then judged by the policy: allowed changes land, others are refused and listed. "
        "HOME and /tmp are private and gone afterwards but for the caches of tools, there is no "
        "network outside unless policy grants it, and nothing goes on running when it ends."
    ),
    toolset="shell",
    arguments=ShellArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=SHELL_SCHEMA,
)


def run_shell_tool() -> Tool[ShellArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, RunShell())
