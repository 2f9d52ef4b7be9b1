"""`list_files`: what a directory holds, some levels down."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from paddock import limits
from paddock.errors import InvalidPatternError, PathNotADirectoryError, PathNotFoundError
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, clamped_integer, filled_text
from paddock.tools.outputs import result_schema
from paddock.tools.search_rows import path_text, show_path
from paddock.tools.spec import READS, Ports, Shown, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import DirectoryEntry, EntryKind, Listing, ReadPath, WorkspacePath

_EVERY_ENTRY: Final = 2**62
_DEPTH_DEFAULT: Final = 3
_LEFT_OUT: Final = "__pycache__"


@dataclass(frozen=True, slots=True)
class ListFilesArguments(ArgumentType):
    """Arguments of `list_files`."""

    path: str = filled_text("Directory to list, relative to the workspace root.", ".")
    max_depth: int = clamped_integer(
        "How many levels down.", _DEPTH_DEFAULT, minimum=1, limit="listed_depth_max"
    )
    glob: str = filled_text("Only files whose name matches, such as *.py.", "*")


@dataclass(frozen=True, slots=True)
class ListFilesPlan:
    """What will be listed; `given` is the path as it was asked for."""

    given: str
    path: ReadPath
    depth: int
    glob: str
    actions: tuple[Action, ...]


class ListFiles:
    """Names, types and sizes; contents are closed to it."""

    def resolve(self, arguments: ListFilesArguments, ports: Ports) -> ListFilesPlan:
        """Raises: ToolError for a path that leads out, or a glob that no name matches."""
        if "/" in arguments.glob:
            raise InvalidPatternError(
                f"the glob {quote(arguments.glob)} has a slash, and no file name has one",
                hint="give the directory as path, and a glob such as *.py",
            )
        path = ports.workspace.resolve_read(arguments.path)
        return ListFilesPlan(
            arguments.path,
            path,
            arguments.max_depth,
            arguments.glob,
            path_actions("search", "ls", path),
        )

    def run(self, plan: ListFilesPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where there is no such directory."""
        about = _Wanted(plan.glob, ports.shown)
        try:
            # All of them: only a close look tells a link that leads out, and the count is real.
            listing = ports.workspace.list_directory(plan.path, plan.depth, _EVERY_ENTRY, about)
        except (PathNotFoundError, PathNotADirectoryError) as error:
            raise type(error)(
                f"directory not found: {quote(plan.path.asked.relative)}",
                hint="list_files without a path shows the workspace root",
            ) from None
        return _output(plan, listing, ports)


class _Wanted:
    """Leaves out what may not be shown, hidden directories and files by another name."""

    __slots__ = ("_glob", "_shown")

    def __init__(self, glob: str, shown: Shown) -> None:
        self._glob = glob
        self._shown = shown

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        """Whether the entry is part of the listing."""
        if is_directory:
            return self.enters(path)
        return fnmatchcase(path.name, self._glob) and self._shown.is_shown(path.relative)

    def enters(self, path: WorkspacePath) -> bool:
        name = path.name
        return not (name.startswith(".") or name == _LEFT_OUT) and self._shown.is_shown(
            path.relative
        )


def _output(plan: ListFilesPlan, listing: Listing, ports: Ports) -> ToolOutput:
    looked_at = [(entry, _file(entry, ports.shown)) for entry in listing.entries]
    files = [(entry, file) for entry, file in looked_at if file is not None]
    listed = files[: ports.limits.listed_entries_max]
    rows = [_row(entry, file) for entry, file in listed]
    if not rows:
        rows.append("[nothing to list]")
    if len(files) > len(listed):
        rows.append(
            f"[{len(listed)} of {len(files)} entries listed; list a directory below, "
            "or use glob or max_depth]"
        )
    rows += [
        f"[{quote(path.relative)} could not be read]"
        for path in listing.unreadable[: limits.snippet_lines_max]
    ]
    more = len(listing.unreadable) - limits.snippet_lines_max
    if more > 0:
        rows.append(f"[{more} more could not be read]")
    details = {
        "root": plan.given,
        "count": len(files),
        "files": [file for _, file in listed],
        "truncated": len(files) > len(listed),
    }
    return ToolOutput("\n".join(rows), details)


def _file(entry: DirectoryEntry, shown: Shown) -> dict[str, Json] | None:
    """The entry for the host; None for what is neither file nor directory in here."""
    name = path_text(entry.path.relative)
    kind = entry.kind
    if kind is EntryKind.LINK:
        # Threat: what is not shown would be, as the name and the kind of a link's target.
        if entry.target is None or not shown.is_shown(entry.target.relative):
            return None
        if entry.target_kind is EntryKind.DIRECTORY:
            return {"path": f"{name}/", "type": "dir"}
        return {"path": name, "type": "file"} if entry.target_kind is EntryKind.FILE else None
    if kind is EntryKind.DIRECTORY:
        return {"path": f"{name}/", "type": "dir"}
    if kind is EntryKind.FILE:
        return {"path": name, "type": "file", "size": entry.size_bytes}
    return None


def _row(entry: DirectoryEntry, file: dict[str, Json]) -> str:
    """The path and, behind it, what tells a file, a directory and a link apart.

    Threat: a link called `z  5 bytes` would be listed like a file called `z`.
    """
    shown = show_path(file["path"])
    if entry.kind is EntryKind.LINK:
        return f"{shown}  link"
    return f"{shown}  {file['size']} bytes" if "size" in file else shown


SPEC: Final = ToolSpec(
    name="list_files",
    title="List files",
    description=(
        "List a directory some levels down: paths, types and sizes. Hidden directories and "
        "__pycache__ are left out, and so are links that lead out of the workspace. At most "
        f"{limits.listed_entries_max} entries are listed; count says how many there are."
    ),
    toolset="core",
    arguments=ListFilesArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "root": {"type": "string", "description": "The path as it was given."},
            "count": {"type": "integer", "description": "How many entries there are."},
            "truncated": {"type": "boolean"},
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "type": {"enum": ["dir", "file"]},
                        "size": {"type": "integer", "description": "Bytes of a file."},
                    },
                    "required": ["path", "type"],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def list_files_tool() -> Tool[ListFilesArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, ListFiles())
