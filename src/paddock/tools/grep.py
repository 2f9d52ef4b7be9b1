"""`grep`: lines that match, over a tree or in one file; `grep_dev` accounts for the search.

Behind them what `find` and listings share with them: how rows look, and what is said beside.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from paddock import limits
from paddock.errors import PathNotFoundError
from paddock.pattern import lazy_pattern
from paddock.text.show import quote, show_line, show_name
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
from paddock.tools.spec import (
    READS,
    Ports,
    ReadPlan,
    StoppedCallError,
    Tool,
    ToolOutput,
    ToolSpec,
    plan_read,
)
from paddock.tools.view import shown_for, viewing_actions
from paddock.values.calls import Json, LeftEffect
from paddock.workspace import ReadPath
from paddock.workspace.search.globs import EVERYTHING, SearchGlob, compile_glob
from paddock.workspace.search.request import (
    ContentFound,
    FileLines,
    Line,
    Regex,
    Remarks,
    Until,
    Wanted,
)

if TYPE_CHECKING:
    from paddock.workspace.search.grep import Skipped

A = TypeVar("A")

NO_MATCHES: Final = "No matches found."
NO_FILES: Final = "No files found."
EMPTY_DIRECTORY: Final = "Directory is empty."
_OURS: Final = frozenset({NO_MATCHES, NO_FILES, EMPTY_DIRECTORY})
_LIKE_A_ROW: Final = lazy_pattern(r":(?=\d+(?:[:-]|$))")
_LIKE_A_MATCH: Final = lazy_pattern(r":(?=\d+:)")
_NAMED_MAX: Final = 5  # paths that one remark names; the rest is counted


def show_path(path: str) -> str:
    """A path as a row begins with it.

    Threat: a file that is called like a notice of ours would pass for one where names
    stand alone. With `./` in front it is the same path, and no notice.
    """
    shown = show_name(path)
    return f"./{shown}" if shown.startswith("[") or shown in _OURS else shown


def show_row_path(path: str) -> str:
    """A path as a row of a content search begins with it.

    Threat: a file called `a.py:3:x` would make a row of line 3 of `a.py`.
    """
    return _LIKE_A_ROW.sub(r"\\x3a", show_path(path))


def path_text(path: str) -> str:
    """A path for the host; escaped where its bytes are not UTF-8, as no JSON could hold it."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return show_name(path)
    return path


class SearchPlan(ReadPlan[A], frozen=True):
    glob: SearchGlob = EVERYTHING


def plan_search(operation: str, arguments: A, glob: str | None, ports: Ports) -> SearchPlan[A]:
    """Resolve `arguments.path`, and compile the glob. Raises: PathError, InvalidPatternError."""
    plan = plan_read("search", operation, arguments, ports)
    compiled = EVERYTHING if glob is None else compile_glob(glob, ports.workspace.root_names)
    return SearchPlan(arguments, plan.path, plan.actions, glob=compiled)


class LineText(Struct, frozen=True):
    """A line, cut at `limits.search_line_chars_max`, dangerous characters escaped."""

    shown: str
    cut_bytes: int  # at least so long is the line where it was cut; else 0
    escaped: int
    is_not_utf8: bool

    @classmethod
    def of(cls, line: Line) -> Self:
        text = line.text.decode("utf-8", "surrogateescape")
        missing = len(text) - limits.search_line_chars_max
        is_cut = missing > 0 or line.is_cut
        if is_cut:
            text = text[: limits.search_line_chars_max]
        shown, escaped = show_line(text)
        strange = sum("\udc80" <= character <= "\udcff" for character in text) if escaped else 0
        cut_bytes = 0
        if is_cut:
            cut_bytes = limits.search_row_bytes_max + 1 if line.is_cut else len(line.text)
            more = "more than " if line.is_cut else ""
            shown += f" [... {more}{missing} more characters]"
        return cls(shown, cut_bytes, escaped - strange, strange > 0)


class ShownRows:
    """The rows that have room. Keeps count of what was changed in lines that are shown."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self.rows: list[str] = []
        self.matches: list[Json] = []
        self.files: set[str] = set()
        self.is_full = False
        self._cut: list[int] = []  # at least so long is each line that was cut
        self._escaped = self._like_matches = self._not_utf8 = 0

    def add(self, row: str) -> bool:
        """Say whether it still had room."""
        self._left -= len(row.encode("utf-8", "surrogatepass")) + 1
        self.is_full = self._left < 0
        if not self.is_full:
            self.rows.append(row)
        return not self.is_full

    def add_match(self, path: str, match: Json) -> None:
        self.matches.append(match)
        self.files.add(path)

    def count(self, text: LineText) -> None:
        self._cut += [text.cut_bytes] if text.cut_bytes else []
        self._escaped += text.escaped
        self._not_utf8 += text.is_not_utf8

    def count_beside(self, text: LineText) -> None:
        self._like_matches += _LIKE_A_MATCH.search(text.shown) is not None

    def notices(self, read_bytes_max: int, reader: str) -> list[str]:
        """What has to be said of the lines that were shown; `reader` shows so much of one."""
        said: list[str] = []
        if self._cut:
            advice = f"Use {reader} to see all of a line."
            # Of a line that was cut when it was read it is not known how long it is.
            if max(self._cut) > min(read_bytes_max, limits.search_row_bytes_max):
                most = f"{read_bytes_max / 1000:g} kB"
                advice = f"Use {reader} to see up to {most} of a line; no file tool shows more."
            cut = _count(len(self._cut), "line")
            said.append(f"[{cut} cut at {limits.search_line_chars_max} characters. {advice}]")
        if self._not_utf8:
            verb = "holds" if self._not_utf8 == 1 else "hold"
            lines = _count(self._not_utf8, "line")
            said.append(f"[{lines} {verb} bytes that are not UTF-8, shown as \\xNN.]")
        if self._escaped:
            characters = _count(self._escaped, "control or direction character")
            said.append(f"[{characters} shown as \\xNN or \\uNNNN.]")
        if self._like_matches:
            verb = "looks" if self._like_matches == 1 else "look"
            rows = _count(self._like_matches, "context row")
            said.append(f"[{rows} {verb} like a match: colons before numbers shown as \\x3a.]")
        return said


def match_row(path: str, number: int, text: LineText) -> str:
    """The row of a match; `path` as `show_row_path` gives it."""
    return f"{path}:{number}:{text.shown}"


def context_row(path: str, number: int, text: LineText) -> str:
    """The row of a line beside a match.

    Threat: behind `a-1-`, the text `b.py:7:x` would make a row of line 7 of `a-1-b.py`.
    """
    shown = _LIKE_A_MATCH.sub(r"\\x3a", text.shown)
    return f"{path}-{number}-{shown}"


def none_shown(found: ContentFound) -> str:
    told = count_found(found)
    return f"{told[0].upper()}{told[1:]}, none shown." if found.matches else NO_MATCHES


def count_found(found: ContentFound) -> str:
    more = "more than " if found.has_more else ""
    return f"{more}{_count(found.matches, 'match', 'matches')}"


def summary(rows: ShownRows, found: ContentFound, *, more: bool) -> str:
    if not rows.matches:
        return f"{count_found(found)}, none shown" if found.matches else "no matches"
    where = f"{_count(len(rows.matches), 'match', 'matches')} in {_count(len(rows.files), 'file')}"
    return f"{where}{', and there are more' if more else ''}"


def limit_notice(
    what: str, limit: int, maximum: int, otherwise: str, argument: str = "limit"
) -> str:
    more = min(2 * limit, maximum)
    advice = (
        f"Use {argument}={more} for more, or {otherwise}"
        if more > limit
        else otherwise.capitalize()
    )
    return f"[{limit} {what} limit reached. {advice}.]"


def size_notice(shown: int, found: ContentFound, bytes_max: int, context: str | None) -> str:
    """`context` is the argument by which lines beside the matches were asked for, if they were."""
    more = "more than " if found.has_more else ""
    lower = "" if context is None else f", or lower {context}"
    return (
        f"[{bytes_max / 1000:g} kB limit reached: {shown} of {more}{found.matches} matches "
        f"shown. Refine pattern or path{lower}.]"
    )


def glob_notices(glob: SearchGlob, path: ReadPath) -> list[str]:
    for directory in (path.asked.relative, path.real.relative):
        if rest := glob.below(directory):
            return [f"[The glob is taken from {quote(directory)}: write {quote(rest)}.]"]
    return []


def remark_notices(remarks: Remarks) -> list[str]:
    said: list[str] = []
    if remarks.binary is not None:
        said.append(f"[The file {remarks.binary.value}.]")
    if remarks.large_utf16:
        said.append(f"[Not searched, being UTF-16 and over 8 MB: {_named(remarks.large_utf16)}.]")
    if remarks.unreadable:
        said.append(f"[Not readable by this user: {_named(remarks.unreadable)}.]")
    if remarks.too_deep:
        said.append(
            f"[Not looked into, being {limits.path_depth_max} directories deep: "
            f"{_named(remarks.too_deep)}.]"
        )
    if remarks.changed:
        said.append(
            f"[Changed while they were searched, so rows may be missing: "
            f"{_named(remarks.changed)}. Search again.]"
        )
    if remarks.is_broken:
        said.append("[The search ended early, and rows may be missing. Narrow path or pattern.]")
    if remarks.is_late:
        said.append(
            f"[Stopped after {limits.search_timeout_s:g} seconds: these are not all rows, and "
            "another time they may be others. Narrow path or pattern.]"
        )
    return said


def refuse_cancelled(ports: Ports) -> None:
    """Raises: StoppedCallError where nobody waits for the answer any more."""
    if ports.cancel.is_cancelled:
        raise StoppedCallError(LeftEffect.NONE)


def is_partial(remarks: Remarks) -> bool:
    """Whether rows may be missing for another reason than a limit of the call."""
    return remarks.is_late or remarks.is_broken


def _named(paths: Iterable[str]) -> str:
    ordered = sorted(paths)
    named = ", ".join(quote(path) for path in ordered[:_NAMED_MAX])
    more = len(ordered) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named


def _count(number: int, thing: str, things: str = "") -> str:
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


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
_Plan: TypeAlias = SearchPlan[Any]


class _Searching:
    """The first matches by path and line; the same ones every time."""

    reader: str  # the tool that shows more of a line
    limit_name: str
    most_name: str  # of the limit that this has
    context_name: str

    def resolve(self, arguments: _Given, ports: Ports) -> _Plan:
        plan = plan_search("grep", arguments, arguments.glob, ports)
        return replace(plan, actions=(*plan.actions, *viewing_actions(plan.path, ports)))

    def notices(
        self, plan: _Plan, wanted: Wanted, rows: ShownRows, found: ContentFound, ports: Ports
    ) -> list[str]:
        lowered = ports.limits
        said: list[str] = []
        if rows.is_full:
            context = self.context_name if wanted.context else None
            shown, most = len(rows.matches), lowered.search_output_bytes_max
            said.append(size_notice(shown, found, most, context))
        elif found.has_more:
            limit, most = wanted.matches_max, getattr(lowered, self.most_name)
            said.append(limit_notice("matches", limit, most, "refine pattern", self.limit_name))
        said += rows.notices(lowered.view_bytes_max, self.reader)
        if not found.matches:
            said += glob_notices(plan.glob, plan.path)
        return [*said, *remark_notices(found.remarks)]


class Grep(_Searching):
    reader, context_name = "view", "context"
    limit_name, most_name = "limit", "grep_matches_max"

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
        rows = ShownRows(ports.limits.search_output_bytes_max)
        for file in found.files:
            _add(rows, file)
            if rows.is_full:
                break
        said = [*rows.rows] or [none_shown(found)]
        truncated = found.has_more or rows.is_full or is_partial(found.remarks)
        details: dict[str, Json] = {
            "summary": summary(rows, found, more=truncated),
            "count": len(rows.matches),
            "truncated": truncated,
            "matches": rows.matches,
        }
        said += self.notices(plan, wanted, rows, found, ports)
        return ToolOutput("\n".join(said), details)


def _add(rows: ShownRows, file: FileLines) -> None:
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
            "links and files with NUL bytes are not; UTF-16 is read by its byte-order mark. limit "
            "counts matches over the whole search."
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

    reader, context_name = "read_file", "context_lines"
    limit_name, most_name = "max_results", "dev_matches_max"

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
        found, rows = counted.found, ShownRows(ports.limits.search_output_bytes_max)
        for file in found.files:
            _add_with_context(rows, file, given.context_lines)
            if rows.is_full:
                break
        said = [
            *(rows.rows or [none_shown(found)]),
            *self.notices(plan, wanted, rows, found, ports),
        ]
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


def _add_with_context(rows: ShownRows, file: FileLines, context: int) -> None:
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
