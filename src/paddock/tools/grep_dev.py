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
    LineText,
    context_row,
    glob_notices,
    is_partial,
    limit_notice,
    line_text,
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
    glob: str = filled_text(
        "Only files that match: *.py by name, src/**/*.ts by path below the searched directory.",
        "*",
    )
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


class _Rows:
    """Matches with what stands around them, up to the output limit."""

    __slots__ = ("_bytes", "_bytes_max", "_context", "is_full", "lines", "results", "rows")

    def __init__(self, context: int, bytes_max: int) -> None:
        self._bytes = 0
        self._bytes_max = bytes_max
        self._context = context
        self.rows: list[str] = []
        self.results: list[Json] = []
        self.lines = LineRows()
        self.is_full = False

    def add(self, file: FileLines) -> None:
        """Take in a file's matches until there is no more room."""
        path = show_row_path(file.path)
        texts = {line.number: line_text(line) for line in file.lines}
        counted = set[int]()
        for number in file.matching:
            before = _known(texts, range(number - self._context, number))
            after = _known(texts, range(number + 1, number + 1 + self._context))
            row = "\n".join(
                [
                    *(context_row(path, at, texts[at]) for at in before),
                    f"{path}:{number}:{texts[number].shown}",
                    *(context_row(path, at, texts[at]) for at in after),
                ]
            )
            self._bytes += len(row.encode("utf-8", "surrogatepass")) + 1
            if self._bytes > self._bytes_max:
                self.is_full = True
                return
            self.rows.append(row)
            for at in (*before, *after):
                self.lines.count_beside(texts[at])
            # A line may stand beside more than one match.
            for at in {number, *before, *after} - counted:
                self.lines.count(texts[at])
                counted.add(at)
            self.results.append(
                {
                    "file": path_text(file.path),
                    "line_number": number,
                    "line": texts[number].shown,
                    "context_before": [texts[at].shown for at in before],
                    "context_after": [texts[at].shown for at in after],
                }
            )


def _known(texts: dict[int, LineText], numbers: range) -> list[int]:
    return [number for number in numbers if number in texts]


def _output(plan: GrepPlan, counted: "CountedFound", lowered: LoweredLimits) -> ToolOutput:
    found, wanted = counted.found, plan.wanted
    rows = _Rows(wanted.context, lowered.search_output_bytes_max)
    for file in found.files:
        rows.add(file)
        if rows.is_full:
            break
    said = rows.rows or [none_shown(found)]
    if rows.is_full:
        context = "context_lines" if wanted.context else None
        shown = len(rows.results)
        said.append(size_notice(shown, found, lowered.search_output_bytes_max, context))
    elif found.has_more:
        shown, most = wanted.matches_max, lowered.dev_matches_max
        said.append(limit_notice("matches", shown, most, "refine pattern", "max_results"))
    said += rows.lines.notices(lowered.view_bytes_max, "read_file")
    if not found.matches:
        said += glob_notices(plan.glob, plan.path)
    said += remark_notices(found.remarks)
    said.append(_account(counted.files_searched, counted.skipped))
    details: dict[str, Json] = {
        "pattern": wanted.regex.pattern,
        "match_count": len(rows.results),
        "files_searched": counted.files_searched,
        "results": rows.results,
        "truncated": found.has_more or rows.is_full or is_partial(found.remarks),
        "skipped": asdict(counted.skipped),
    }
    return ToolOutput("\n".join(said), details)


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
