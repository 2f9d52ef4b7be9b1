"""`ls`, `list_files` and `find`: which entries a listing has, and what it says of one."""

import re
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidPatternError, PathNotADirectoryError, PathNotFoundError
from paddock.pattern import lazy_pattern
from paddock.text.show import name_notices, quote, show_name
from paddock.tools.arguments import (
    ArgumentType,
    clamped_integer,
    filled_text,
    needed_text,
    optional_integer,
    result_schema,
)
from paddock.tools.search_rows import (
    EMPTY_DIRECTORY,
    NO_FILES,
    glob_notices,
    is_partial,
    limit_notice,
    path_text,
    refuse_cancelled,
    remark_notices,
    show_path,
)
from paddock.tools.spec import READS, Ports, Shown, Tool, ToolOutput, ToolSpec, path_actions
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import EntryKind, ReadPath, Workspace, WorkspacePath
from paddock.workspace.listing import (
    DirectoryEntry,
    EntryFilter,
    Listing,
    first_entries,
    list_directory,
)
from paddock.workspace.search.asked import Until
from paddock.workspace.search.globs import SearchGlob, compile_glob

TO_NOTHING: Final = "(link to nothing)"
TO_HIDDEN: Final = "(link to what is not shown)"
TO_OUTSIDE: Final = "(link out of the workspace, never followed)"
SPECIAL: Final = "(FIFO, socket or device)"

_REMARKS: Final = (TO_NOTHING, TO_HIDDEN, TO_OUTSIDE, SPECIAL)
_INSIDE: Final = "|".join(re.escape(remark.removeprefix("(")) for remark in _REMARKS)
_LIKE_A_REMARK: Final = lazy_pattern(rf"\((?=(?:{_INSIDE})\s*$)")
_LIKE_A_SIZE: Final = lazy_pattern(r" (?=[0-9]+ bytes\s*$)")
_LIKE_AN_ARROW: Final = lazy_pattern(r"(?<= -)>(?= )")


class ShownEntries(EntryFilter):
    """Leaves out what may not be shown, and does not enter `.git`."""

    __slots__ = ("_shown",)

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        del is_directory
        return self._shown.is_shown(path.relative)

    def enters(self, path: WorkspacePath) -> bool:
        return path.name != ".git" and self._shown.is_shown(path.relative)


def without_remark(shown: str) -> str:
    """Threat: a file called `a (link to nothing)` would be listed like a link called `a`."""
    return _LIKE_A_REMARK.sub(r"\\x28", shown) if "(" in shown else shown


def without_arrow(shown: str) -> str:
    """Threat: a file called `a -> b` would be listed like a link called `a`."""
    return _LIKE_AN_ARROW.sub(r"\\x3e", shown)


def without_size(shown: str) -> str:
    """Threat: a link to `b  5 bytes` would be listed like a file."""
    return _LIKE_A_SIZE.sub(r"\\x20", shown)


_DEFAULT_ENTRIES: Final = 500
_OTHERWISE: Final = "use find with a pattern, or view with an offset"


class LsArguments(ArgumentType):
    path: str = filled_text("Directory to list.", ".")
    limit: int = optional_integer(
        "The most entries to show.", _DEFAULT_ENTRIES, minimum=1, limit="ls_entries_max"
    )


class LsPlan(Struct, frozen=True):
    path: ReadPath
    limit: int
    actions: tuple[Action, ...]


class Ls:
    """Names alone; only what is shown is looked at closely."""

    def resolve(self, arguments: LsArguments, ports: Ports) -> LsPlan:
        path = ports.workspace.resolve_read(arguments.path)
        return LsPlan(path, arguments.limit, path_actions("search", "ls", path))

    def run(self, plan: LsPlan, ports: Ports) -> ToolOutput:
        try:
            entries, has_more = first_entries(
                ports.workspace, plan.path, plan.limit, ports.shown.is_shown
            )
        except PathNotADirectoryError:
            raise PathNotADirectoryError(
                f"Not a directory: {quote(plan.path.asked.relative)}", hint="use view for a file"
            ) from None
        rows = [_row(name, told, ports.shown) for name, told in entries]
        said = [_shown(name, remark) for name, remark in rows] or [EMPTY_DIRECTORY]
        if has_more:
            said += [limit_notice("entries", plan.limit, ports.limits.ls_entries_max, _OTHERWISE)]
        said += [f"[{notice}]" for notice in name_notices(name for name, _ in rows)]
        details: dict[str, Json] = {
            "count": len(rows),
            "truncated": has_more,
            "entries": [path_text(name) for name, _ in rows],
        }
        return ToolOutput("\n".join(said), details)


def _shown(name: str, remark: str) -> str:
    shown = without_remark(show_path(name))
    return f"{shown} {remark}" if remark else shown


def _row(name: str, told: EntryKind | DirectoryEntry, shown: Shown) -> tuple[str, str]:
    match told:
        case EntryKind.FILE:
            return name, ""
        case EntryKind.DIRECTORY:
            return f"{name}/", ""
        case DirectoryEntry(kind=EntryKind.LINK, target=target):
            # Threat: what is not shown would be, as what a link leads to.
            if target is None or not shown.is_shown(target.relative):
                return name, TO_HIDDEN
            return f"{name}/" if told.target_kind is EntryKind.DIRECTORY else name, ""
        case DirectoryEntry(kind=kind):
            return name, TO_NOTHING if kind is EntryKind.DANGLING_LINK else TO_OUTSIDE
        case _:
            return name, SPECIAL


LS: Final = ToolSpec(
    name="ls",
    title="List a directory",
    description=(
        "List one directory, an entry a line, without regard to case in the order. "
        "Directories end in /. Hidden entries are listed; a link is shown as what it leads to."
    ),
    toolset="search",
    arguments=LsArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "count": {"type": "integer", "description": "Entries shown."},
            "truncated": {"type": "boolean", "description": "Whether there are more."},
            "entries": {"type": "array", "items": {"type": "string"}},
        }
    ),
)


def ls_tool() -> Tool[LsArguments]:
    return Tool(LS, Ls())


_EVERY_ENTRY: Final = 2**62
_DEPTH_DEFAULT: Final = 3
_LEFT_OUT: Final = "__pycache__"


def view_directory(
    workspace: Workspace, path: ReadPath, offset: int, limit: int, shown: Shown
) -> tuple[str, dict[str, Json]]:
    """Return what `view` shows of a directory, and the details that go with it."""
    listing = list_directory(
        workspace,
        path,
        limits.view_directory_depth,
        min(limit, limits.view_directory_entries_max),
        ShownEntries(shown),
        skipped=offset - 1,
    )
    name = path.asked.relative
    rows = [f"{show_name(name)}/", *(_viewed_row(entry, shown) for entry in listing.entries)]
    rows += _left_out(offset, listing)
    names = (entry.path.relative for entry in listing.entries)
    rows += [f"[{notice}]" for notice in name_notices(names)]
    unreadable = listing.unreadable
    cut = limits.snippet_lines_max
    base = 0 if name == "." else name.count("/") + 1
    deepest = base + limits.view_directory_depth - 1
    if any(
        e.kind is EntryKind.DIRECTORY and e.path.relative.count("/") == deepest
        for e in listing.entries
    ):
        rows.append("[listed two levels deep; view a directory to see what is below it]")
    rows += [f"[{quote(path.relative)} could not be read]" for path in unreadable[:cut]]
    if len(unreadable) > cut:
        rows.append(f"[{len(unreadable) - cut} more could not be read]")
    has_more = offset + len(listing.entries) <= listing.total
    return "\n".join(rows), {"entries_total": listing.total, "truncated": has_more}


def _left_out(offset: int, listing: Listing) -> list[str]:
    total, following = listing.total, offset + len(listing.entries)
    if not total:
        return ["[the directory is empty]"]
    if offset > total:
        return [f"[entry {offset} is behind the last one: there are {total}]"]
    if following <= total:
        here = f"entries {offset} to {following - 1} of {total}"
        return [f"[{here}; view with offset={following} for more, or find with a pattern]"]
    return [f"[entries {offset} to {total} of {total}]"] if offset > 1 else []


def _viewed_row(entry: DirectoryEntry, shown: Shown) -> str:
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


class ListFilesArguments(ArgumentType):
    path: str = filled_text("Directory to list, relative to the workspace root.", ".")
    max_depth: int = clamped_integer(
        "How many levels down.", _DEPTH_DEFAULT, minimum=1, limit="listed_depth_max"
    )
    glob: str = filled_text("Only files whose name matches, such as *.py.", "*")


class ListFilesPlan(Struct, frozen=True):
    given: str
    path: ReadPath
    depth: int
    glob: str
    actions: tuple[Action, ...]


class ListFiles:
    """Names, types and sizes; contents are closed to it."""

    def resolve(self, arguments: ListFilesArguments, ports: Ports) -> ListFilesPlan:
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
        about = _Wanted(plan.glob, ports.shown)
        try:
            # All of them: only a close look tells a link that leads out, and the count is real.
            listing = list_directory(ports.workspace, plan.path, plan.depth, _EVERY_ENTRY, about)
        except (PathNotFoundError, PathNotADirectoryError) as error:
            raise type(error)(
                f"directory not found: {quote(plan.path.asked.relative)}",
                hint="list_files without a path shows the workspace root",
            ) from None
        return _output(plan, listing, ports)


class _Wanted(EntryFilter):
    """Leaves out what may not be shown, hidden directories and files by another name."""

    __slots__ = ("_glob", "_shown")

    def __init__(self, glob: str, shown: Shown) -> None:
        self._glob = glob
        self._shown = shown

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        if is_directory:
            return self.enters(path)
        return fnmatchcase(path.name, self._glob) and self._shown.is_shown(path.relative)

    def enters(self, path: WorkspacePath) -> bool:
        name = path.name
        return not (name.startswith(".") or name == _LEFT_OUT) and self._shown.is_shown(
            path.relative
        )


def _output(plan: ListFilesPlan, listing: Listing, ports: Ports) -> ToolOutput:
    looked_at = [(entry, entry_details(entry, ports.shown)) for entry in listing.entries]
    files = [(entry, file) for entry, file in looked_at if file is not None]
    listed = files[: ports.limits.listed_entries_max]
    rows = [_row_list_files(entry, file) for entry, file in listed]
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


def entry_details(entry: DirectoryEntry, shown: Shown) -> dict[str, Json] | None:
    """Return path, type and, of a file, size; None for what is neither file nor directory."""
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


def _row_list_files(entry: DirectoryEntry, file: dict[str, Json]) -> str:
    """Threat: a link called `z  5 bytes` would be listed like a file called `z`."""
    shown = show_path(file["path"])
    if entry.kind is EntryKind.LINK:
        return f"{shown}  link"
    return f"{shown}  {file['size']} bytes" if "size" in file else shown


LIST_FILES: Final = ToolSpec(
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
    return Tool(LIST_FILES, ListFiles())


_DEFAULT_ENTRIES_FIND: Final = 1_000


class FindArguments(ArgumentType):
    pattern: str = needed_text(
        "Glob: *.py by name at any depth; with a slash by path below the searched directory, "
        "such as src/**/*.ts; {a,b} for either."
    )
    path: str = filled_text("Directory to search.", ".")
    limit: int = optional_integer(
        "The most entries to show.",
        _DEFAULT_ENTRIES_FIND,
        minimum=1,
        limit="find_entries_max",
    )


class FindPlan(Struct, frozen=True):
    path: ReadPath
    glob: SearchGlob
    limit: int
    actions: tuple[Action, ...]


class Find:
    """The first entries by path; the same ones every time."""

    def resolve(self, arguments: FindArguments, ports: Ports) -> FindPlan:
        path = ports.workspace.resolve_read(arguments.path)
        glob = compile_glob(arguments.pattern, ports.workspace.root_names)
        return FindPlan(path, glob, arguments.limit, path_actions("search", "find", path))

    def run(self, plan: FindPlan, ports: Ports) -> ToolOutput:
        from paddock.workspace.search.walk import (  # noqa: PLC0415 - most that import this search no names
            search_names,
        )

        until = Until(ports.cancel)
        found = search_names(
            ports.workspace, ports.shown, plan.path.real, plan.glob, plan.limit, until
        )
        refuse_cancelled(ports)
        said = [show_path(path) for path in found.paths] or [NO_FILES]
        if found.has_more:
            said.append(
                limit_notice("results", plan.limit, ports.limits.find_entries_max, "refine pattern")
            )
        if not found.paths:
            said += glob_notices(plan.glob, plan.path)
        said += remark_notices(found.remarks)
        truncated = found.has_more or is_partial(found.remarks)
        count = len(found.paths)
        entries = "1 entry" if count == 1 else f"{count} entries"
        details: dict[str, Json] = {
            "summary": f"{entries}{', and there are more' if truncated else ''}",
            "count": count,
            "truncated": truncated,
            "paths": [path_text(path) for path in found.paths],
        }
        return ToolOutput("\n".join(said), details)


FIND: Final = ToolSpec(
    name="find",
    title="Find files",
    description=(
        "Find files and directories by a glob. Paths are relative to the workspace root, in "
        "byte order; a directory ends in /, and is found if it has a file below it. Hidden "
        "files are found; what .gitignore leaves out, .git, node_modules and links are not."
    ),
    toolset="search",
    arguments=FindArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "summary": {"type": "string"},
            "count": {"type": "integer", "description": "Entries shown."},
            "truncated": {"type": "boolean", "description": "Whether there are more."},
            "paths": {"type": "array", "items": {"type": "string"}},
        }
    ),
)


def find_tool() -> Tool[FindArguments]:
    return Tool(FIND, Find())
