"""`ls`, `list_files` and `find`: the entries of a listing and their rows."""

import re
from fnmatch import fnmatchcase
from typing import Final

from paddock import limits
from paddock.errors import InvalidPatternError, PathNotADirectoryError, PathNotFoundError
from paddock.pattern import lazy_pattern
from paddock.text.show import name_notices, quote, show_name
from paddock.tools import arguments as fields
from paddock.tools import grep
from paddock.tools.spec import (
    READS,
    Ports,
    ReadPlan,
    Shown,
    Tool,
    ToolOutput,
    ToolSpec,
    plan_read,
)
from paddock.values.calls import Json
from paddock.workspace import EntryKind, ReadPath, WorkspacePath
from paddock.workspace.listing import (
    DirectoryEntry,
    EntryFilter,
    Listing,
    first_entries,
    list_directory,
)
from paddock.workspace.search.request import Until

_TO_HIDDEN: Final = "(link, target not shown)"
_OF_KIND: Final = {
    EntryKind.DANGLING_LINK: "(dangling link)",
    EntryKind.LINK_OUT: "(link out of the workspace, never followed)",
    EntryKind.SPECIAL: "(FIFO, socket or device)",
}
_INSIDE: Final = "|".join(re.escape(each[1:]) for each in (_TO_HIDDEN, *_OF_KIND.values()))
_LIKE_A_REMARK: Final = lazy_pattern(rf"\((?=(?:{_INSIDE})\s*$)")
_LIKE_A_SIZE: Final = lazy_pattern(r" (?=[0-9]+ bytes\s*$)")
_LIKE_AN_ARROW: Final = lazy_pattern(r"(?<= -)>(?= )")


class ShownEntries(EntryFilter):
    """Leaves out entries that the agent may not see, and does not enter `.git`."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        del is_directory
        return self._shown.is_shown(path.relative)

    def enters(self, path: WorkspacePath) -> bool:
        return path.name != ".git" and self._shown.is_shown(path.relative)


def _leads_to_shown(link: DirectoryEntry, shown: Shown) -> bool:
    # Threat: a symlink would show the name and kind of a target that is not shown.
    return link.target is not None and shown.is_shown(link.target.relative)


def _without_remark(shown: str) -> str:
    # Threat: a file called `a (dangling link)` would be listed like a link called `a`.
    return _LIKE_A_REMARK.sub(r"\\x28", shown) if "(" in shown else shown


_DEFAULT_ENTRIES: Final = 500
_OTHERWISE: Final = "use find with a pattern, or view with an offset"


class LsArguments(fields.ArgumentType):
    path: str = fields.filled_text("Directory to list.", ".")
    limit: int = fields.optional_integer(
        "Maximum number of entries to show.", _DEFAULT_ENTRIES, minimum=1, limit="ls_entries_max"
    )


class Ls:
    """Lists names; resolves only the entries it shows."""

    def resolve(self, arguments: LsArguments, ports: Ports) -> ReadPlan[LsArguments]:
        return plan_read("search", "ls", arguments, ports)

    def run(self, plan: ReadPlan[LsArguments], ports: Ports) -> ToolOutput:
        limit = plan.given.limit
        try:
            entries, has_more = first_entries(
                ports.workspace, plan.path, limit, ports.shown.is_shown
            )
        except PathNotADirectoryError:
            raise PathNotADirectoryError(
                f"Not a directory: {quote(plan.path.asked.relative)}", hint="use view for a file"
            ) from None
        rows = [_row(name, entry, ports.shown) for name, entry in entries]
        said = [f"{_without_remark(grep.show_path(name))}{remark}" for name, remark in rows]
        if has_more:
            said += [grep.limit_notice("entries", limit, ports.limits.ls_entries_max, _OTHERWISE)]
        said += [f"[{notice}]" for notice in name_notices(name for name, _ in rows)]
        details: dict[str, Json] = {
            "count": len(rows),
            "truncated": has_more,
            "entries": [grep.path_text(name) for name, _ in rows],
        }
        return ToolOutput("\n".join(said or [grep.EMPTY_DIRECTORY]), details)


def _row(name: str, entry: EntryKind | DirectoryEntry, shown: Shown) -> tuple[str, str]:
    """Return a name as it is listed, and the remark after it."""
    if entry is EntryKind.FILE:
        return name, ""
    kind = entry if isinstance(entry, EntryKind) else entry.kind
    remark = f" {_OF_KIND[kind]}" if kind in _OF_KIND else ""
    if isinstance(entry, DirectoryEntry) and kind is EntryKind.LINK:
        if not _leads_to_shown(entry, shown):
            return name, f" {_TO_HIDDEN}"
        kind = entry.target_kind
    return (f"{name}/" if kind is EntryKind.DIRECTORY else name), remark


LS: Final = Tool(
    ToolSpec(
        name="ls",
        title="List a directory",
        description=(
            "List one directory, one entry per line, in case-insensitive order, hidden entries "
            "included. Directories end in /; a symlink is shown like its target."
        ),
        toolset="search",
        arguments=LsArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "count": {"type": "integer", "description": "Entries shown."},
                "truncated": {"type": "boolean", "description": "True if there may be more."},
                "entries": fields.TEXTS,
            }
        ),
    ),
    Ls(),
)


_EVERY_ENTRY: Final = 2**62
_DEPTH_DEFAULT: Final = 3
_LEFT_OUT: Final = "__pycache__"


def view_directory(
    path: ReadPath, offset: int, limit: int | None, ports: Ports
) -> tuple[str, dict[str, Json]]:
    """Return the text that `view` shows for a directory, and its details."""
    depth, most = limits.view_directory_depth, limits.view_directory_entries_max
    listing = list_directory(
        ports.workspace,
        path,
        depth,
        min(limit or most, most),
        ShownEntries(ports.shown),
        skipped=offset - 1,
    )
    name = path.asked.relative
    rows = [f"{show_name(name)}/"]
    rows += [_viewed_row(entry, ports.shown) for entry in listing.entries]
    rows += _left_out(offset, listing)
    names = (entry.path.relative for entry in listing.entries)
    rows += [f"[{notice}]" for notice in name_notices(names)]
    deepest = depth - 1 + (0 if name == "." else name.count("/") + 1)
    if any(
        e.kind is EntryKind.DIRECTORY and e.path.relative.count("/") == deepest
        for e in listing.entries
    ):
        rows.append("[listed two levels deep; view a subdirectory to see more]")
    rows += _unreadable(listing)
    has_more = offset + len(listing.entries) <= listing.total
    return "\n".join(rows), {"entries_total": listing.total, "truncated": has_more}


def _left_out(offset: int, listing: Listing) -> list[str]:
    total, following = listing.total, offset + len(listing.entries)
    if not total:
        return ["[the directory is empty]"]
    if offset > total:
        return [f"[offset {offset} is past the end: the directory has {total} entries]"]
    if following <= total:
        here = f"entries {offset} to {following - 1} of {total}"
        return [f"[{here}; view with offset={following} for more, or find with a pattern]"]
    return [f"[entries {offset} to {total} of {total}]"] if offset > 1 else []


def _unreadable(listing: Listing) -> list[str]:
    named = listing.unreadable[: limits.snippet_lines_max]
    more = len(listing.unreadable) - len(named)
    said = [f"[{quote(path.relative)} could not be read]" for path in named]
    return [*said, f"[{more} more could not be read]"] if more else said


def _viewed_row(entry: DirectoryEntry, shown: Shown) -> str:
    # Threat: a file called `a -> b` would be listed like a link called `a`.
    name = _LIKE_AN_ARROW.sub(r"\\x3e", show_name(entry.path.relative))
    if entry.kind is EntryKind.DIRECTORY:
        return f"  {name}/"
    if entry.kind is EntryKind.FILE:
        return f"  {name}  {entry.size_bytes} bytes"
    if entry.kind is not EntryKind.LINK:
        return f"  {name} {_OF_KIND[entry.kind]}"
    if entry.target is None or not _leads_to_shown(entry, shown):
        return f"  {name} {_TO_HIDDEN}"
    # Threat: a link to `b  5 bytes` would be listed like a file.
    target = _LIKE_A_SIZE.sub(r"\\x20", _without_remark(show_name(entry.target.relative)))
    return f"  {name} -> {target}"


class ListFilesArguments(fields.ArgumentType):
    path: str = fields.filled_text("Directory to list, relative to the workspace root.", ".")
    max_depth: int = fields.clamped_integer(
        "How many directory levels to list.", _DEPTH_DEFAULT, minimum=1, limit="listed_depth_max"
    )
    glob: str = fields.filled_text("List only files whose name matches, such as *.py.", "*")


class ListFiles:
    """Lists names, types and sizes; never reads contents."""

    def resolve(self, arguments: ListFilesArguments, ports: Ports) -> ReadPlan[ListFilesArguments]:
        if "/" in arguments.glob:
            raise InvalidPatternError(
                f"the glob {quote(arguments.glob)} has a slash, but it matches file names only",
                hint="give the directory as path, and a glob such as *.py",
            )
        return plan_read("search", "ls", arguments, ports)

    def run(self, plan: ReadPlan[ListFilesArguments], ports: Ports) -> ToolOutput:
        given, about = plan.given, _Wanted(ports.shown, plan.given.glob)
        try:
            # All entries: the count is exact, and symlinks that lead out must be resolved.
            listing = list_directory(
                ports.workspace, plan.path, given.max_depth, _EVERY_ENTRY, about
            )
        except (PathNotFoundError, PathNotADirectoryError) as error:
            raise type(error)(
                f"directory not found: {quote(plan.path.asked.relative)}",
                hint="list_files without a path shows the workspace root",
            ) from None
        detailed = [(entry, entry_details(entry, ports.shown)) for entry in listing.entries]
        files = [(entry, file) for entry, file in detailed if file is not None]
        listed = files[: ports.limits.listed_entries_max]
        rows = [_listed_row(entry, file) for entry, file in listed] or ["[nothing to list]"]
        if len(files) > len(listed):
            rows.append(
                f"[{len(listed)} of {len(files)} entries listed; list a subdirectory, "
                "or use glob or max_depth]"
            )
        details = {
            "root": given.path,
            "count": len(files),
            "files": [file for _, file in listed],
            "truncated": len(files) > len(listed),
        }
        return ToolOutput("\n".join([*rows, *_unreadable(listing)]), details)


class _Wanted(ShownEntries):
    """Also leaves out hidden directories and files whose name does not match."""

    def __init__(self, shown: Shown, glob: str) -> None:
        super().__init__(shown)
        self._glob = glob

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        if is_directory:
            return self.enters(path)
        return fnmatchcase(path.name, self._glob) and super().shows(path, is_directory=False)

    def enters(self, path: WorkspacePath) -> bool:
        is_left_out = path.name.startswith(".") or path.name == _LEFT_OUT
        return not is_left_out and super().enters(path)


def entry_details(entry: DirectoryEntry, shown: Shown) -> dict[str, Json] | None:
    """Return path, type and a file's size; None if it is neither a file nor a directory."""
    name, kind = grep.path_text(entry.path.relative), entry.kind
    if kind is EntryKind.LINK:
        kind = entry.target_kind if _leads_to_shown(entry, shown) else None
    if kind is EntryKind.DIRECTORY:
        return {"path": f"{name}/", "type": "dir"}
    if kind is not EntryKind.FILE:
        return None
    size = {} if entry.kind is EntryKind.LINK else {"size": entry.size_bytes}
    return {"path": name, "type": "file", **size}


def _listed_row(entry: DirectoryEntry, file: dict[str, Json]) -> str:
    # Threat: a link called `z  5 bytes` would be listed like a file called `z`.
    shown = grep.show_path(file["path"])
    if entry.kind is EntryKind.LINK:
        return f"{shown}  link"
    return f"{shown}  {file['size']} bytes" if "size" in file else shown


LIST_FILES: Final = Tool(
    ToolSpec(
        name="list_files",
        title="List files",
        description=(
            "List a directory and its subdirectories, max_depth levels deep: paths, types and "
            "sizes. Leaves out hidden directories, __pycache__ and symlinks that lead out of the "
            f"workspace. Lists at most {limits.listed_entries_max} entries; count is the total."
        ),
        toolset="core",
        arguments=ListFilesArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "root": {"type": "string", "description": "The path as it was given."},
                "count": {"type": "integer", "description": "Total number of entries."},
                "truncated": fields.BOOLEAN,
                "files": fields.rows_schema(
                    {"path": fields.TEXT, "type": {"enum": ["dir", "file"]}},
                    optional={"size": {"type": "integer", "description": "Bytes of a file."}},
                ),
            }
        ),
    ),
    ListFiles(),
)


_DEFAULT_ENTRIES_FIND: Final = 1_000


class FindArguments(fields.ArgumentType):
    pattern: str = fields.needed_text(
        "Glob: *.py matches names at any depth; with a slash, such as src/**/*.ts, it matches "
        "paths relative to the searched directory; {a,b} matches either."
    )
    path: str = fields.filled_text("Directory to search.", ".")
    limit: int = fields.optional_integer(
        "Maximum number of entries to show.",
        _DEFAULT_ENTRIES_FIND,
        minimum=1,
        limit="find_entries_max",
    )


class Find:
    def resolve(self, arguments: FindArguments, ports: Ports) -> grep.SearchPlan[FindArguments]:
        return grep.plan_search("find", arguments, arguments.pattern, ports)

    def run(self, plan: grep.SearchPlan[FindArguments], ports: Ports) -> ToolOutput:
        from paddock.workspace.search.walk import (  # noqa: PLC0415 - most that import this search no names
            search_names,
        )

        until, limit = Until(ports.cancel), plan.given.limit
        found = search_names(ports.workspace, ports.shown, plan.path.real, plan.glob, limit, until)
        grep.refuse_cancelled(ports)
        said = [grep.show_path(path) for path in found.paths] or [grep.NO_FILES]
        if found.has_more:
            said.append(
                grep.limit_notice("results", limit, ports.limits.find_entries_max, "refine pattern")
            )
        if not found.paths:
            said += grep.glob_notices(plan.glob, plan.path)
        said += grep.remark_notices(found.remarks)
        truncated = found.has_more or grep.is_partial(found.remarks)
        count = len(found.paths)
        entries = "1 entry" if count == 1 else f"{count} entries"
        details: dict[str, Json] = {
            "summary": f"{entries}{', and there are more' if truncated else ''}",
            "count": count,
            "truncated": truncated,
            "paths": [grep.path_text(path) for path in found.paths],
        }
        return ToolOutput("\n".join(said), details)


FIND: Final = Tool(
    ToolSpec(
        name="find",
        title="Find files",
        description=(
            "Find files and directories by a glob. Returns paths relative to the workspace root, "
            "in byte order; directories end in / and are found only if a file is below them. "
            "Finds hidden files; skips .git, node_modules, symlinks and files that .gitignore "
            "excludes."
        ),
        toolset="search",
        arguments=FindArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "summary": fields.TEXT,
                "count": {"type": "integer", "description": "Entries shown."},
                "truncated": {"type": "boolean", "description": "True if there may be more."},
                "paths": fields.TEXTS,
            }
        ),
    ),
    Find(),
)
