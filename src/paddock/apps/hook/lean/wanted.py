"""What a call of a client's tool would do: paths with operations, a line of shell, or a name."""

from paddock.apps.hook.lean.asked import Asked, ShapeError

FILE_TOOLS = {
    "Write": ("create", "file_path"),
    "Edit": ("str_replace", "file_path"),
    "MultiEdit": ("str_replace", "file_path"),
    "NotebookEdit": ("str_replace", "notebook_path"),
    "Read": ("view", "file_path"),
    "NotebookRead": ("view", "notebook_path"),
    "view_image": ("view", "path"),
}
"""Tool → operation of `tool:file:`, and the argument that holds the path."""
LOOKING_TOOLS = {"Grep": ("path", "glob"), "Glob": ("path",), "LS": ("path",)}
"""Tools of clients that look at files, and the arguments that name where."""
PATHS = ("path", "file_path", "notebook_path")
"""Arguments by which any tool of a client names a file."""
SHELL_TOOL = "Bash"
_NO_COMMAND = ("SlashCommand",)
"""Tools whose `command` is none of a shell."""
PATCH_TOOL = "apply_patch"
MCP_PREFIX = "mcp__"


class LeanWanted:
    __slots__ = ("line", "name", "paths")

    def __init__(
        self,
        paths: "tuple[tuple[str, str], ...]" = (),
        line: "str | None" = None,
        name: "tuple[str, str, str] | None" = None,
    ) -> None:
        self.paths = paths
        """Operations of `tool:file:` with paths as the client gave them."""
        self.line = line
        self.name = name
        """Category, operation and target of an action without a path."""


def find_wanted(asked: Asked) -> LeanWanted:
    """Raises: ShapeError for an argument that says it is missing or no text."""
    tool = asked.tool
    known = FILE_TOOLS.get(tool)
    if known is not None:
        operation, argument = known
        return LeanWanted(paths=((operation, _text(asked, argument)),))
    if tool == SHELL_TOOL:
        return LeanWanted(line=_text(asked, "command"))
    if tool == PATCH_TOOL:
        # A patch is rare: its reader is loaded for one.
        from paddock.apps.hook.lean.patches import read_patch

        return LeanWanted(paths=read_patch(_text(asked, "command")))
    if tool.startswith(MCP_PREFIX):
        return LeanWanted(name=("mcp", "call", tool))
    given = [(name, asked.input.get(name)) for name in LOOKING_TOOLS.get(tool, PATHS)]
    # A pattern that leaves files out opens none.
    paths = tuple(
        ("view", each) for _, each in given if type(each) is str and each[:1] not in ("", "!")
    )
    line = None if tool in _NO_COMMAND else asked.input.get("command")
    if type(line) is not str or not line.strip():
        line = None
    return LeanWanted(paths, line, ("client", tool, ""))


def _text(asked: Asked, argument: str) -> str:
    found = asked.input.get(argument)
    if type(found) is not str or not found:
        raise ShapeError(f"{argument} of {asked.tool} is no text")
    return found
