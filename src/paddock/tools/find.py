"""`find`: files and directories by name or path."""

from dataclasses import dataclass
from typing import Final

from paddock.tools.arguments import ArgumentType, filled_text, needed_text, optional_integer
from paddock.tools.outputs import result_schema
from paddock.tools.search_rows import (
    NO_FILES,
    glob_notices,
    is_partial,
    limit_notice,
    path_text,
    refuse_cancelled,
    remark_notices,
    show_path,
)
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import ReadPath
from paddock.workspace.search.globs import SearchGlob, compile_glob
from paddock.workspace.search.until import Until

_DEFAULT_ENTRIES: Final = 1_000


@dataclass(frozen=True, slots=True)
class FindArguments(ArgumentType):
    """Arguments of `find`."""

    pattern: str = needed_text(
        "Glob: *.py by name at any depth; with a slash by path below the searched directory, "
        "such as src/**/*.ts; {a,b} for either."
    )
    path: str = filled_text("Directory to search.", ".")
    limit: int = optional_integer(
        "The most entries to show.",
        _DEFAULT_ENTRIES,
        minimum=1,
        limit="find_entries_max",
    )


@dataclass(frozen=True, slots=True)
class FindPlan:
    """What will be looked for, and where."""

    path: ReadPath
    glob: SearchGlob
    limit: int
    actions: tuple[Action, ...]


class Find:
    """The first entries by path; the same ones every time."""

    def resolve(self, arguments: FindArguments, ports: Ports) -> FindPlan:
        """Raises: ToolError for a path that leads out, or a glob that cannot be used."""
        path = ports.workspace.resolve_read(arguments.path)
        glob = compile_glob(arguments.pattern, ports.workspace.tree.root_names)
        return FindPlan(path, glob, arguments.limit, path_actions("search", "find", path))

    def run(self, plan: FindPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where there is no such directory."""
        from paddock.workspace.search.names import (  # noqa: PLC0415 - starting programs is costly to import
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


SPEC: Final = ToolSpec(
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
    """The tool, ready to register."""
    return Tool(SPEC, Find())
