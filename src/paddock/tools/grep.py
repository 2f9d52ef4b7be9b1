"""`grep`: lines that match, over a tree or in one file; `grep_dev` accounts for the search."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import PathNotFoundError
from paddock.policy.settings import LoweredLimits
from paddock.text.show import quote
from paddock.tools.arguments import (
    ArgumentType,
    clamped_integer,
    filled_text,
    flag,
    needed_text,
    optional_integer,
    optional_text,
    result_schema,
)
from paddock.tools.search_rows import (
    LineRows,
    LineText,
    context_row,
    count_found,
    count_matches,
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
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec, path_actions
from paddock.tools.view import shown_for, viewing_actions
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import ReadPath
from paddock.workspace.search.asked import ContentFound, FileLines, Regex, Until, Wanted
from paddock.workspace.search.globs import EVERYTHING, SearchGlob, compile_glob

if TYPE_CHECKING:
    from paddock.workspace.search.grep import CountedFound, Skipped


_DEFAULT_MATCHES: Final = 100
PATTERN: Final = (
    "Regular expression, matched against single lines: ripgrep's syntax, which takes "
    "linear time and has no look-around and no backreferences."
)


class GrepArguments(ArgumentType):
    pattern: str = needed_text(PATTERN)
    path: str = filled_text("Directory or file to search.", ".")
    glob: str | None = optional_text(
        "Only files that match: *.py by name, src/**/*.ts by path below the searched directory, "
        "{a,b} for either, !x for not x."
    )
    ignoreCase: bool = flag("Match without regard to case.", default=False)  # noqa: N815 - the name that models know
    literal: bool = flag("Take the pattern as plain text.", default=False)
    context: int = optional_integer(
        "Lines to show before and after a match.", 0, minimum=0, limit="search_context_max"
    )
    limit: int = optional_integer(
        "The most matches to show, over the whole search.",
        _DEFAULT_MATCHES,
        minimum=1,
        limit="grep_matches_max",
    )


class GrepPlan(Struct, frozen=True):
    path: ReadPath
    glob: SearchGlob
    wanted: Wanted
    actions: tuple[Action, ...]


class Grep:
    """The first matches by path and line; the same ones every time."""

    def resolve(self, arguments: GrepArguments, ports: Ports) -> GrepPlan:
        path = ports.workspace.resolve_read(arguments.path)
        regex = Regex(arguments.pattern, arguments.ignoreCase, arguments.literal)
        return GrepPlan(
            path,
            EVERYTHING
            if arguments.glob is None
            else compile_glob(arguments.glob, ports.workspace.root_names),
            Wanted(regex, arguments.context, arguments.limit, "literal"),
            (*path_actions("search", "grep", path), *viewing_actions(path, ports)),
        )

    def run(self, plan: GrepPlan, ports: Ports) -> ToolOutput:
        from paddock.workspace.search.grep import (  # noqa: PLC0415 - starting programs is costly to import
            search_content,
        )

        until = Until(ports.cancel)
        shown = shown_for(plan.actions, plan.path, ports)
        found = search_content(
            ports.workspace, shown, plan.path.real, plan.wanted, plan.glob, until
        )
        refuse_cancelled(ports)
        return _output(plan, found, ports.limits)


class _Rows:
    __slots__ = ("_bytes", "_bytes_max", "files", "is_full", "lines", "matches", "rows")

    def __init__(self, bytes_max: int) -> None:
        self._bytes = 0
        self._bytes_max = bytes_max
        self.rows: list[str] = []
        self.matches: list[Json] = []
        self.files: set[str] = set()
        self.lines = LineRows()
        self.is_full = False

    def add(self, file: FileLines) -> None:
        path = show_row_path(file.path)
        for line in file.lines:
            text = line_text(line)
            if line.is_match:
                row = f"{path}:{line.number}:{text.shown}"
            else:
                row = context_row(path, line.number, text)
            self._bytes += len(row.encode("utf-8", "surrogatepass")) + 1
            if self._bytes > self._bytes_max:
                self.is_full = True
                return
            self.rows.append(row)
            self.lines.count(text)
            if line.is_match:
                match = {"path": path_text(file.path), "line": line.number, "text": text.shown}
                self.matches.append(match)
                self.files.add(file.path)
            else:
                self.lines.count_beside(text)


def _output(plan: GrepPlan, found: ContentFound, lowered: LoweredLimits) -> ToolOutput:
    wanted = plan.wanted
    rows = _Rows(lowered.search_output_bytes_max)
    for file in found.files:
        rows.add(file)
        if rows.is_full:
            break
    count = len(rows.matches)
    said = rows.rows or [none_shown(found)]
    if rows.is_full:
        context = "context" if wanted.context else None
        said.append(size_notice(count, found, lowered.search_output_bytes_max, context))
    elif found.has_more:
        limit, most = wanted.matches_max, lowered.grep_matches_max
        said.append(limit_notice("matches", limit, most, "refine pattern"))
    said += rows.lines.notices(lowered.view_bytes_max)
    if not found.matches:
        said += glob_notices(plan.glob, plan.path)
    said += remark_notices(found.remarks)
    truncated = found.has_more or rows.is_full or is_partial(found.remarks)
    details: dict[str, Json] = {
        "summary": _summary(rows, found, more=truncated),
        "count": count,
        "truncated": truncated,
        "matches": rows.matches,
    }
    return ToolOutput("\n".join(said), details)


def _summary(rows: _Rows, found: ContentFound, *, more: bool) -> str:
    count, files = len(rows.matches), len(rows.files)
    if not count:
        return f"{count_found(found)}, none shown" if found.matches else "no matches"
    where = "1 file" if files == 1 else f"{files} files"
    return f"{count_matches(count)} in {where}{', and there are more' if more else ''}"


GREP: Final = ToolSpec(
    name="grep",
    title="Search contents",
    description=(
        "Search the lines of files for a regular expression (ripgrep's syntax: linear time, "
        "no look-around). Rows are path:line:text, context rows path-line-text, by path and "
        "line. Hidden files are searched; what .gitignore leaves out, .git, node_modules, links "
        "and files with NUL bytes are not; UTF-16 is read by its byte-order mark. limit counts "
        "matches over the whole search."
    ),
    toolset="search",
    arguments=GrepArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "summary": {"type": "string"},
            "count": {"type": "integer", "description": "Matches shown."},
            "truncated": {"type": "boolean", "description": "Whether there are more."},
            "matches": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "line": {"type": "integer"},
                        "text": {"type": "string"},
                    },
                    "required": ["path", "line", "text"],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def grep_tool() -> Tool[GrepArguments]:
    return Tool(GREP, Grep())


_DEFAULT_RESULTS: Final = 50


class GrepDevArguments(ArgumentType):
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
        path = ports.workspace.resolve_read(arguments.path)
        wanted = Wanted(Regex(arguments.pattern), arguments.context_lines, arguments.max_results)
        actions = (*path_actions("search", "grep", path), *viewing_actions(path, ports))
        return GrepPlan(
            path, compile_glob(arguments.glob, ports.workspace.root_names), wanted, actions
        )

    def run(self, plan: GrepPlan, ports: Ports) -> ToolOutput:
        from paddock.workspace.search.grep import (  # noqa: PLC0415 - starting programs is costly to import
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
        return _output_grep_dev(plan, counted, ports.limits)


class _GrepDevRows:
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


def _output_grep_dev(plan: GrepPlan, counted: "CountedFound", lowered: LoweredLimits) -> ToolOutput:
    found, wanted = counted.found, plan.wanted
    rows = _GrepDevRows(wanted.context, lowered.search_output_bytes_max)
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


GREP_DEV: Final = ToolSpec(
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
    return Tool(GREP_DEV, GrepDev())
