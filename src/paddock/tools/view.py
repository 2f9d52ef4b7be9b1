"""`view`: numbered lines of a file, or a directory's listing."""

from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.errors import PathNotAFileError
from paddock.text.show import escape_notices, name_notices, number_line, quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text, optional_integer
from paddock.tools.listed_names import (
    SPECIAL,
    TO_HIDDEN,
    TO_NOTHING,
    TO_OUTSIDE,
    ShownEntries,
    without_arrow,
    without_remark,
    without_size,
)
from paddock.tools.outputs import WORKSPACE_FAILURE, workspace_schema
from paddock.tools.spec import READS, Ports, Shown, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import absolute, path_actions
from paddock.tools.versions import pinned
from paddock.tools.windows import (
    ALL_LINES,
    require_text_start,
    require_utf8,
    window_limits,
    window_notices,
)
from paddock.values.actions import Action
from paddock.values.calls import Json
from paddock.workspace import (
    DirectoryEntry,
    EntryKind,
    Listing,
    OpenFile,
    ReadPath,
    Window,
    Workspace,
)
from paddock.workspace.read import WindowLine, whole_characters

DIRECTORY: Final = "directory"
"""Stands for the version of a directory, which has none."""
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ViewArguments(ArgumentType):
    """Arguments of `view`."""

    path: str = needed_text("File or directory to show, relative to the workspace root.")
    offset: int | None = optional_integer(
        "First line to show, or entry of a directory, from 1.", None, minimum=1
    )
    limit: int | None = optional_integer("How many lines, or entries, to show.", None, minimum=1)


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What will be shown."""

    path: ReadPath
    offset: int
    limit: int
    actions: tuple[Action, ...]
    version: str | None = None
    """What was approved; another content is not shown."""


class View:
    """Streams: line 900,000 of a million-line file costs one pass and little memory."""

    def resolve(self, arguments: ViewArguments, ports: Ports) -> ViewPlan:
        """Raises: ToolError for a path that leads out."""
        path = ports.workspace.resolve_read(arguments.path)
        return ViewPlan(
            path,
            arguments.offset or 1,
            arguments.limit or ALL_LINES,
            path_actions("file", "view", path),
        )

    def pin(self, plan: ViewPlan, ports: Ports) -> tuple[ViewPlan, str]:
        """Tied to the content that stands there now; a directory to being one."""
        try:
            found = ports.workspace.version(plan.path.real)
        except PathNotAFileError:
            found = DIRECTORY
        return replace(plan, version=found), found

    def run(self, plan: ViewPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where there is nothing to show."""
        workspace = ports.workspace
        try:
            file = workspace.open_file(plan.path)
        except PathNotAFileError:
            if plan.version is not None:
                pinned(plan.version, DIRECTORY, plan.path.asked)
            listing = workspace.list_directory(
                plan.path,
                limits.view_directory_depth,
                min(plan.limit, limits.view_directory_entries_max),
                ShownEntries(ports.shown),
                skipped=plan.offset - 1,
            )
            return _show_directory(plan, listing, ports)
        with file:
            return _show_file(plan, file, ports)


def _show_file(plan: ViewPlan, file: OpenFile, ports: Ports) -> ToolOutput:
    name = plan.path.asked.relative
    require_text_start(file, name)
    window = file.window_with_version(plan.offset, plan.limit, window_limits(ports.limits))
    if plan.version is not None:
        pinned(plan.version, str(window.version), plan.path.asked)
    require_utf8(window, name)
    window, rows, escaped = _number(window, ports.limits.view_bytes_max)
    said = window_notices(window, plan.offset, plan.limit, ports.limits.view_bytes_max)
    notices = [f"[{notice}]" for notice in (*said, *escape_notices(escaped))]
    snippet = "\n".join(rows)
    details = _details(plan, ports.workspace, snippet)
    details |= {
        "lines_total": window.lines_total,
        "truncated": window.truncated,
        "version": window.version,
    }
    return ToolOutput("\n".join([*rows, *notices]), details)


def _details(plan: ViewPlan, workspace: Workspace, snippet: str) -> dict[str, Json]:
    return {
        "path": absolute(workspace, plan.path.asked),
        "action": "viewed",
        "content_snippet": snippet,
        "success": True,
        "error": None,
    }


def _number(window: Window, bytes_max: int) -> tuple[Window, list[str], int]:
    """The lines that have room, at least one; their rows; how many characters were escaped."""
    rows: list[str] = []
    lines: list[WindowLine] = []
    escaped = 0
    room = bytes_max + _NUMBER_BYTES  # so that one line may take all of it
    for line in window.lines:
        row, changed = number_line(line.number, line.content)
        # Numbers and escapes count: an empty line may be eight bytes of what a model gets.
        while (size := len(row.encode())) > room and line.content and not rows:
            shorter = line.content[: len(line.content) * room // size]
            line = replace(line, content=whole_characters(shorter))
            row, changed = number_line(line.number, line.content)
        if size > room and rows:
            return replace(window, lines=tuple(lines), cut_by_bytes=True), rows, escaped
        if line.is_cut:
            row += f" [... {line.length_bytes - len(line.content)} more bytes of this line]"
        rows.append(row)
        lines.append(line)
        escaped += changed
        room -= size + 1
    return replace(window, lines=tuple(lines)), rows, escaped


def _show_directory(plan: ViewPlan, listing: Listing, ports: Ports) -> ToolOutput:
    name = plan.path.asked.relative
    rows = [f"{show_name(name)}/", *(_row(entry, ports.shown) for entry in listing.entries)]
    rows += _left_out(plan, listing)
    names = (entry.path.relative for entry in listing.entries)
    rows += [f"[{notice}]" for notice in name_notices(names)]
    unreadable = listing.unreadable
    cut = limits.snippet_lines_max
    base = 0 if name == "." else name.count("/") + 1
    deepest = base + limits.view_directory_depth - 1
    if any(e.is_directory and e.path.relative.count("/") == deepest for e in listing.entries):
        rows.append("[listed two levels deep; view a directory to see what is below it]")
    rows += [f"[{quote(path.relative)} could not be read]" for path in unreadable[:cut]]
    if len(unreadable) > cut:
        rows.append(f"[{len(unreadable) - cut} more could not be read]")
    text = "\n".join(rows)
    details = _details(plan, ports.workspace, text)
    has_more = plan.offset + len(listing.entries) <= listing.total
    details |= {"entries_total": listing.total, "truncated": has_more}
    return ToolOutput(text, details)


def _left_out(plan: ViewPlan, listing: Listing) -> list[str]:
    """What to say where the listing is not the whole of it."""
    total, following = listing.total, plan.offset + len(listing.entries)
    if not total:
        return ["[the directory is empty]"]
    if plan.offset > total:
        return [f"[entry {plan.offset} is behind the last one: there are {total}]"]
    if following <= total:
        here = f"entries {plan.offset} to {following - 1} of {total}"
        return [f"[{here}; view with offset={following} for more, or find with a pattern]"]
    return [f"[entries {plan.offset} to {total} of {total}]"] if plan.offset > 1 else []


def _row(entry: DirectoryEntry, shown: Shown) -> str:
    name = without_arrow(show_name(entry.path.relative))
    match entry.kind:
        case EntryKind.DIRECTORY:
            return f"  {name}/"
        case EntryKind.FILE:
            return f"  {name}  {entry.size_bytes} bytes"
        case EntryKind.LINK:
            target = entry.target
            # Threat: what is not shown would be, as the name that a link leads to.
            if target is None or not shown.is_shown(target.relative):
                return f"  {name} {TO_HIDDEN}"
            return f"  {name} -> {without_size(without_remark(show_name(target.relative)))}"
        case EntryKind.DANGLING_LINK:
            return f"  {name} {TO_NOTHING}"
        case EntryKind.LINK_OUT:
            return f"  {name} {TO_OUTSIDE}"
        case EntryKind.SPECIAL:
            return f"  {name} {SPECIAL}"


SPEC: Final = ToolSpec(
    name="view",
    title="View",
    description=(
        "Show a UTF-8 text file with line numbers, up to 100 kB of them, or from line "
        "`offset` on for `limit` lines; for a directory, list it two levels deep."
    ),
    toolset="workspace",
    arguments=ViewArguments,
    effects=READS,
    output_schema=workspace_schema(
        ["viewed"],
        {
            "content_snippet": {"type": "string", "description": "The numbered lines."},
            "lines_total": {"type": "integer"},
            "entries_total": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "version": {"type": "string", "description": "sha256 of the whole file's bytes."},
        },
    ),
    failure_details=WORKSPACE_FAILURE,
)


def view_tool() -> Tool[ViewArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, View())
