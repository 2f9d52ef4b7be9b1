"""`grep_dev`: `grep` with an account of what was searched, for the development toolset."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from paddock import limits
from paddock.errors import PathNotFoundError
from paddock.policy.settings import LoweredLimits
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, clamped_integer, filled_text, needed_text
from paddock.tools.grep import PATTERN, GrepPlan
from paddock.tools.outputs import result_schema
from paddock.tools.search_rows import (
    LineRows,
    is_partial,
    limit_notice,
    none_shown,
    path_text,
    refuse_cancelled,
    remark_notices,
    show_row_path,
    size_notice,
)
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.tools.viewing import shown_for, viewing_actions
from paddock.values.calls import Json
from paddock.workspace.search.asked import FileLines, Regex, Wanted
from paddock.workspace.search.globs import compile_glob
from paddock.workspace.search.until import Until

if TYPE_CHECKING:
    from paddock.workspace.search.counted import CountedFound, Skipped

_DEFAULT_RESULTS: Final = 50


@dataclass(frozen=True, slots=True)
class GrepDevArguments(ArgumentType):
    """Arguments of `grep_dev`."""

    pattern: str = needed_text(PATTERN)
    path: str = filled_text("Directory or file to search.", ".")
    glob: str = filled_text("Only files that match, such as *.py.", "*")
    max_results: int = clamped_integer(
        "The most matches to return.",
        _DEFAULT_RESULTS,
        minimum=1,
        limit="dev_matches_max",
    )
    context_lines: int = clamped_integer(
        "Lines to return before and after a match.",
        0,
        minimum=0,
        limit="dev_context_max",
    )


class GrepDev:
    """The first matches by path and line; every file that was passed by is counted."""

    def resolve(self, arguments: GrepDevArguments, ports: Ports) -> GrepPlan:
        """Raises: ToolError for a path that leads out, or a glob that cannot be used."""
        path = ports.workspace.resolve_read(arguments.path)
        wanted = Wanted(Regex(arguments.pattern), arguments.context_lines, arguments.max_results)
        actions = (*path_actions("search", "grep", path), *viewing_actions(path, ports))
        return GrepPlan(
            path, compile_glob(arguments.glob, ports.workspace.tree.root_names), wanted, actions
        )

    def run(self, plan: GrepPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where nothing can be searched, or not for this pattern."""
        from paddock.workspace.search.counted import (  # noqa: PLC0415 - starting programs is costly to import
            search_counted,
        )

        try:
            until = Until(ports.cancel)
            shown = shown_for(plan.actions, plan.path, ports)
            counted = search_counted(
                ports.workspace, shown, plan.path.real, plan.wanted, plan.glob, until
            )
        except PathNotFoundError:
            raise PathNotFoundError(
                f"path not found: {quote(plan.path.asked.relative)}",
                hint="list_files shows what is there",
            ) from None
        refuse_cancelled(ports)
        return _output(plan, counted, ports.limits)


def _output(plan: GrepPlan, counted: "CountedFound", lowered: LoweredLimits) -> ToolOutput:
    found = counted.found
    lines = LineRows()
    rows: list[str] = []
    results: list[Json] = []
    size = 0
    is_full = False
    for file in found.files:
        for match in _matches(file, lines, plan.wanted.context):
            text = _rows_of(file, match, lines)
            size += len(text.encode("utf-8", "surrogatepass")) + 1
            is_full = is_full or size > lowered.search_output_bytes_max
            if not is_full:
                rows.append(text)
                results.append(match)
    said = rows or [none_shown(found.matches)]
    if is_full:
        said.append(
            size_notice(
                len(results), found.matches, "context_lines", lowered.search_output_bytes_max
            )
        )
    elif found.has_more:
        shown, most = plan.wanted.matches_max, lowered.dev_matches_max
        said.append(limit_notice("matches", shown, most, "refine pattern", "max_results"))
    said += [*lines.notices(lowered.view_bytes_max, "read_file"), *remark_notices(found.remarks)]
    said.append(_account(counted.files_searched, counted.skipped))
    details: dict[str, Json] = {
        "pattern": plan.wanted.regex.pattern,
        "match_count": len(results),
        "files_searched": counted.files_searched,
        "results": results,
        "truncated": found.has_more or is_full or is_partial(found.remarks),
        "skipped": asdict(counted.skipped),
    }
    return ToolOutput("\n".join(said), details)


def _matches(file: FileLines, lines: LineRows, context: int) -> list[dict[str, Json]]:
    """Each match of a file with what stands around it."""
    texts = {line.number: lines.text(line) for line in file.lines}
    return [
        {
            "file": path_text(file.path),
            "line_number": line.number,
            "line": texts[line.number],
            "context_before": _known(texts, range(line.number - context, line.number)),
            "context_after": _known(texts, range(line.number + 1, line.number + 1 + context)),
        }
        for line in file.lines
        if line.is_match
    ]


def _known(texts: dict[int, str], numbers: range) -> list[str]:
    return [texts[number] for number in numbers if number in texts]


def _rows_of(file: FileLines, match: dict[str, Json], lines: LineRows) -> str:
    path, number = show_row_path(file.path), match["line_number"]
    first = number - len(match["context_before"])
    before = [
        lines.context_row(path, first + at, text) for at, text in enumerate(match["context_before"])
    ]
    after = [
        lines.context_row(path, number + 1 + at, text)
        for at, text in enumerate(match["context_after"])
    ]
    return "\n".join([*before, f"{path}:{number}:{match['line']}", *after])


def _account(searched: int, skipped: "Skipped") -> str:
    counts = {
        "under a skipped name": skipped.by_name,
        "forbidden": skipped.forbidden,
        f"over {limits.dev_searched_file_bytes_max} bytes": skipped.too_large,
        "binary": skipped.binary,
        "not readable": skipped.unreadable,
    }
    said = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)
    files = "1 file" if searched == 1 else f"{searched} files"
    return f"[{files} searched{'; passed by: ' + said if said else ''}.]"


SPEC: Final = ToolSpec(
    name="grep_dev",
    title="Search contents",
    description=(
        "Search the lines of files for a regular expression (ripgrep's syntax: linear time, "
        "no look-around). Hidden files and those that .gitignore names are searched; .git, "
        "__pycache__, node_modules, .DS_Store, binary files and files over 1 MB are not, "
        "and are counted."
    ),
    toolset="development",
    arguments=GrepDevArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "pattern": {"type": "string"},
            "match_count": {"type": "integer", "description": "Rows returned."},
            "files_searched": {"type": "integer"},
            "truncated": {"type": "boolean", "description": "Whether there are more."},
            "skipped": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "What was passed by, counted by reason.",
            },
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string"},
                        "line_number": {"type": "integer"},
                        "line": {"type": "string"},
                        "context_before": {"type": "array", "items": {"type": "string"}},
                        "context_after": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": [
                        "file",
                        "line_number",
                        "line",
                        "context_before",
                        "context_after",
                    ],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def grep_dev_tool() -> Tool[GrepDevArguments]:
    """The tool, ready to register where the development toolset is open."""
    return Tool(SPEC, GrepDev())
