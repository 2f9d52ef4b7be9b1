"""`grep`: lines that match, over a tree or in one file; `grep_dev` accounts for the search."""

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import asdict, replace

from paddock import limits
from paddock.errors import PathNotFoundError
from paddock.text.show import quote
from paddock.tools.arguments import (
    INTEGER,
    TEXT,
    TEXTS,
    ArgumentType,
    clamped_integer,
    filled_text,
    flag,
    needed_text,
    optional_integer,
    optional_text,
    result_schema,
    rows_schema,
)
from paddock.tools.search_rows import (
    LineText,
    Rows,
    SearchPlan,
    context_row,
    glob_notices,
    is_partial,
    limit_notice,
    match_row,
    none_shown,
    path_text,
    plan_search,
    refuse_cancelled,
    remark_notices,
    show_row_path,
    size_notice,
    summary,
)
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.view import shown_for, viewing_actions
from paddock.values.calls import Json
from paddock.workspace.search.asked import ContentFound, FileLines, Regex, Until, Wanted

if TYPE_CHECKING:
    from paddock.workspace.search.grep import Skipped

_DEFAULT_MATCHES: Final = 100
_PATTERN: Final = (
    "Regular expression, matched against single lines: ripgrep's syntax, which takes "
    "linear time and has no look-around and no backreferences."
)


class GrepArguments(ArgumentType):
    pattern: str = needed_text(_PATTERN)
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


_Given: TypeAlias = "GrepArguments | GrepDevArguments"
_Plan: TypeAlias = SearchPlan[_Given]


class _Searching:
    """The first matches by path and line; the same ones every time."""

    reader: str
    """The tool that shows more of a line."""
    limit_name: str
    context_name: str

    def resolve(self, arguments: _Given, ports: Ports) -> _Plan:
        plan = plan_search("grep", arguments, arguments.glob, ports)
        return replace(plan, actions=(*plan.actions, *viewing_actions(plan.path, ports)))

    def notices(self, plan: _Plan, rows: Rows, found: ContentFound, ports: Ports) -> list[str]:
        lowered, asked = ports.limits, plan.given
        said: list[str] = []
        if rows.is_full:
            context = self.context_name if getattr(asked, self.context_name) else None
            shown, most = len(rows.matches), lowered.search_output_bytes_max
            said.append(size_notice(shown, found, most, context))
        elif found.has_more:
            name = self.limit_name
            limit, most = (
                getattr(asked, name),
                getattr(lowered, type(asked).declared_arguments[name].limit),
            )
            said.append(limit_notice("matches", limit, most, "refine pattern", name))
        said += rows.notices(lowered.view_bytes_max, self.reader)
        if not found.matches:
            said += glob_notices(plan.glob, plan.path)
        return [*said, *remark_notices(found.remarks)]


class Grep(_Searching):
    reader, limit_name, context_name = "view", "limit", "context"

    def run(self, plan: SearchPlan[GrepArguments], ports: Ports) -> ToolOutput:
        from paddock.workspace.search.grep import (  # noqa: PLC0415 - starting programs is costly to import
            search_content,
        )

        given, path = plan.given, plan.path
        wanted = Wanted(
            Regex(given.pattern, given.ignoreCase, given.literal),
            given.context,
            given.limit,
            "literal",
        )
        shown, until = shown_for(plan.actions, path, ports), Until(ports.cancel)
        found = search_content(ports.workspace, shown, path.real, wanted, plan.glob, until)
        refuse_cancelled(ports)
        rows = Rows(ports.limits.search_output_bytes_max)
        for file in found.files:
            _add(rows, file)
            if rows.is_full:
                break
        said = rows.rows or [none_shown(found)]
        truncated = found.has_more or rows.is_full or is_partial(found.remarks)
        details: dict[str, Json] = {
            "summary": summary(rows, found, more=truncated),
            "count": len(rows.matches),
            "truncated": truncated,
            "matches": rows.matches,
        }
        return ToolOutput("\n".join([*said, *self.notices(plan, rows, found, ports)]), details)


def _add(rows: Rows, file: FileLines) -> None:
    path = show_row_path(file.path)
    for line in file.lines:
        text = LineText.of(line)
        make_row = match_row if line.is_match else context_row
        if not rows.add(make_row(path, line.number, text)):
            return
        rows.count(text)
        if line.is_match:
            match = {"path": path_text(file.path), "line": line.number, "text": text.shown}
            rows.add_match(file.path, match)
        else:
            rows.count_beside(text)


GREP: Final = Tool(
    ToolSpec(
        name="grep",
        title="Search contents",
        description=(
            "Search the lines of files for a regular expression (ripgrep's syntax: linear time, "
            "no look-around). Rows are path:line:text, context rows path-line-text, by path and "
            "line. Hidden files are searched; what .gitignore leaves out, .git, node_modules, "
            "links and files with NUL bytes are not; UTF-16 is read by its byte-order mark. limit counts "
            "matches over the whole search."
        ),
        toolset="search",
        arguments=GrepArguments,
        effects=READS,
        output_schema=result_schema(
            {
                "summary": TEXT,
                "count": {"type": "integer", "description": "Matches shown."},
                "truncated": {"type": "boolean", "description": "Whether there are more."},
                "matches": rows_schema({"path": TEXT, "line": INTEGER, "text": TEXT}),
            }
        ),
    ),
    Grep(),
)


_DEFAULT_RESULTS: Final = 50


class GrepDevArguments(ArgumentType):
    pattern: str = needed_text(_PATTERN)
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


class GrepDev(_Searching):
    """Every file that was passed by is counted."""

    reader, limit_name, context_name = "read_file", "max_results", "context_lines"

    def run(self, plan: SearchPlan[GrepDevArguments], ports: Ports) -> ToolOutput:
        from paddock.workspace.search.grep import (  # noqa: PLC0415 - starting programs is costly to import
            search_counted,
        )

        given, path = plan.given, plan.path
        wanted = Wanted(Regex(given.pattern), given.context_lines, given.max_results)
        shown, until = shown_for(plan.actions, path, ports), Until(ports.cancel)
        try:
            counted = search_counted(ports.workspace, shown, path.real, wanted, plan.glob, until)
        except PathNotFoundError:
            raise PathNotFoundError(
                f"path not found: {quote(path.asked.relative)}",
                hint="list_files shows what is there",
            ) from None
        refuse_cancelled(ports)
        found, rows = counted.found, Rows(ports.limits.search_output_bytes_max)
        for file in found.files:
            _add_with_context(rows, file, given.context_lines)
            if rows.is_full:
                break
        said = [*(rows.rows or [none_shown(found)]), *self.notices(plan, rows, found, ports)]
        said.append(_account(counted.files_searched, counted.skipped))
        details: dict[str, Json] = {
            "pattern": given.pattern,
            "match_count": len(rows.matches),
            "files_searched": counted.files_searched,
            "results": rows.matches,
            "truncated": found.has_more or rows.is_full or is_partial(found.remarks),
            "skipped": asdict(counted.skipped),
        }
        return ToolOutput("\n".join(said), details)


def _add_with_context(rows: Rows, file: FileLines, context: int) -> None:
    path = show_row_path(file.path)
    texts = {line.number: LineText.of(line) for line in file.lines}
    counted = set[int]()
    for number in file.matching:
        before = [at for at in range(number - context, number) if at in texts]
        after = [at for at in range(number + 1, number + 1 + context) if at in texts]
        row = [
            *(context_row(path, at, texts[at]) for at in before),
            match_row(path, number, texts[number]),
            *(context_row(path, at, texts[at]) for at in after),
        ]
        if not rows.add("\n".join(row)):
            return
        for at in (*before, *after):
            rows.count_beside(texts[at])
        # A line may stand beside more than one match.
        for at in {number, *before, *after} - counted:
            rows.count(texts[at])
            counted.add(at)
        match = {
            "file": path_text(file.path),
            "line_number": number,
            "line": texts[number].shown,
            "context_before": [texts[at].shown for at in before],
            "context_after": [texts[at].shown for at in after],
        }
        rows.add_match(file.path, match)


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


GREP_DEV: Final = Tool(
    ToolSpec(
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
                "pattern": TEXT,
                "match_count": {"type": "integer", "description": "Rows returned."},
                "files_searched": INTEGER,
                "truncated": {"type": "boolean", "description": "Whether there are more."},
                "skipped": {
                    "type": "object",
                    "additionalProperties": {"type": "integer"},
                    "description": "What was passed by, counted by reason.",
                },
                "results": rows_schema(
                    {
                        "file": TEXT,
                        "line_number": INTEGER,
                        "line": TEXT,
                        "context_before": TEXTS,
                        "context_after": TEXTS,
                    }
                ),
            }
        ),
    ),
    GrepDev(),
)
