"""`ls`: the entries of one directory."""

from dataclasses import dataclass
from typing import Final

from paddock.errors import PathNotADirectoryError
from paddock.text.show import name_notices, quote
from paddock.tools.arguments import ArgumentType, filled_text, optional_integer
from paddock.tools.listed_names import (
    SPECIAL,
    TO_HIDDEN,
    TO_NOTHING,
    TO_OUTSIDE,
    ShownEntries,
    without_remark,
)
from paddock.tools.outputs import result_schema
from paddock.tools.search_rows import EMPTY_DIRECTORY, limit_notice, path_text, show_path
from paddock.tools.spec import READS, Ports, Shown, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import DirectoryEntry, EntryKind, ReadPath, first_entries

_DEFAULT_ENTRIES: Final = 500
_OTHERWISE: Final = "use find with a pattern, or view with an offset"


@dataclass(frozen=True, slots=True)
class LsArguments(ArgumentType):
    """Arguments of `ls`."""

    path: str = filled_text("Directory to list.", ".")
    limit: int = optional_integer(
        "The most entries to show.", _DEFAULT_ENTRIES, minimum=1, limit="ls_entries_max"
    )


@dataclass(frozen=True, slots=True)
class LsPlan:
    """What will be listed."""

    path: ReadPath
    limit: int
    actions: tuple[Action, ...]


class Ls:
    """Names alone; only what is shown is looked at closely."""

    def resolve(self, arguments: LsArguments, ports: Ports) -> LsPlan:
        """Raises: ToolError for a path that leads out."""
        path = ports.workspace.resolve_read(arguments.path)
        return LsPlan(path, arguments.limit, path_actions("search", "ls", path))

    def run(self, plan: LsPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where there is no such directory."""
        try:
            page = first_entries(
                ports.workspace.tree, plan.path, plan.limit, ShownEntries(ports.shown)
            )
        except PathNotADirectoryError:
            raise PathNotADirectoryError(
                f"Not a directory: {quote(plan.path.asked.relative)}", hint="use view for a file"
            ) from None
        rows = [_row(entry, ports.shown) for entry in page.entries]
        said = [_shown(name, remark) for name, remark in rows] or [EMPTY_DIRECTORY]
        if page.has_more:
            said.append(
                limit_notice("entries", plan.limit, ports.limits.ls_entries_max, _OTHERWISE)
            )
        said += [f"[{notice}]" for notice in name_notices(name for name, _ in rows)]
        details: dict[str, Json] = {
            "count": len(rows),
            "truncated": page.has_more,
            "entries": [path_text(name) for name, _ in rows],
        }
        return ToolOutput("\n".join(said), details)


def _shown(name: str, remark: str) -> str:
    shown = without_remark(show_path(name))
    return f"{shown} {remark}" if remark else shown


def _row(entry: DirectoryEntry, shown: Shown) -> tuple[str, str]:
    """The name, a directory's with a slash behind, and what has to be said of it."""
    name = entry.path.name
    match entry.kind:
        case EntryKind.DIRECTORY:
            return f"{name}/", ""
        case EntryKind.FILE:
            return name, ""
        case EntryKind.LINK:
            # Threat: what is not shown would be, as what a link leads to.
            if entry.target is None or not shown.is_shown(entry.target.relative):
                return name, TO_HIDDEN
            return f"{name}/" if entry.target_kind is EntryKind.DIRECTORY else name, ""
        case EntryKind.DANGLING_LINK:
            return name, TO_NOTHING
        case EntryKind.LINK_OUT:
            return name, TO_OUTSIDE
        case EntryKind.SPECIAL:
            return name, SPECIAL


SPEC: Final = ToolSpec(
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
    """The tool, ready to register."""
    return Tool(SPEC, Ls())
