"""`grep` and `grep_dev`: search lines in a tree or a file; `grep_dev` also counts skipped files.

Also the rows and notices that `find` and the listings share with them.
"""

from typing import Any, Final, Self, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from paddock import limits
from paddock.errors import PathNotFoundError
from paddock.pattern import lazy_pattern
from paddock.text.show import name_some, quote, show_line, show_name
from paddock.tools import arguments as fields
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
    Regex,
    Remarks,
    Skipped,
    Until,
    Wanted,
)

A = TypeVar("A")

NO_MATCHES: Final = "No matches found."
NO_FILES: Final = "No files found."
EMPTY_DIRECTORY: Final = "Directory is empty."
_NOTICES: Final = frozenset({NO_MATCHES, NO_FILES, EMPTY_DIRECTORY})
_LIKE_A_ROW: Final = lazy_pattern(r":(?=\d+(?:[:-]|$))")
_LIKE_A_MATCH: Final = lazy_pattern(r":(?=\d+:)")


def show_path(path: str) -> str:
    """Return a path as rows begin with it.

    Threat: a file named like a Paddock notice would pass for one in a list of names.
    With `./` in front it is the same path, but not a notice.
    """
    shown = show_name(path)
    return f"./{shown}" if shown.startswith("[") or shown in _NOTICES else shown


def show_row_path(path: str) -> str:
    """Return a path as rows of a content search begin with it.

    Threat: a file called `a.py:3:x` would fake a row of line 3 of `a.py`.
    """
    return _LIKE_A_ROW.sub(r"\\x3a", show_path(path))


def path_text(path: str) -> str:
    """Return a path for the host; escaped if its bytes are not UTF-8, which JSON cannot hold."""
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
    cut_bytes: int  # minimum length of the line if it was cut; else 0
    escaped: int
    is_not_utf8: bool

    @classmethod
    def of(cls, line: bytes) -> Self:
        most = limits.search_row_bytes_max
        kept = line[:most].removesuffix(b"\r")
        text = kept.decode("utf-8", "surrogateescape")
        missing = len(text) - limits.search_line_chars_max
        is_cut = missing > 0 or len(line) > most
        if is_cut:
            text = text[: limits.search_line_chars_max]
        shown, escaped = show_line(text)
        strange = sum("\udc80" <= character <= "\udcff" for character in text) if escaped else 0
        cut_bytes = 0
        if is_cut:
            cut_bytes = most + 1 if len(line) > most else len(kept)
            more = "more than " if len(line) > most else ""
            shown += f" [... {more}{missing} more characters]"
        return cls(shown, cut_bytes, escaped - strange, strange > 0)


class ShownRows:
    """The rows that fit. Counts the cuts and escapes in the lines shown."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self.rows: list[str] = []
        self.matches: list[Json] = []
        self.files: set[str] = set()
        self.is_full = False
        self._cut: list[int] = []  # minimum length of each line that was cut
        self._escaped = self._like_matches = self._not_utf8 = 0

    def add(self, row: str) -> bool:
        """Return False if the row does not fit."""
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
        """Return notices about the lines shown; `reader` is the tool that shows more of a line."""
        said: list[str] = []
        if self._cut:
            advice = f"Use {reader} to see all of a line."
            # The length of a line that was cut when it was read is not known.
            if max(self._cut) > min(read_bytes_max, limits.search_row_bytes_max):
                most = f"{read_bytes_max / 1000:g} kB"
                advice = f"Use {reader} to see up to {most} of a line; file tools show no more."
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
    """Build the row of a match; `path` comes from `show_row_path`."""
    return f"{path}:{number}:{text.shown}"


def context_row(path: str, number: int, text: LineText) -> str:
    """Build the row of a line beside a match.

    Threat: after `a-1-`, the text `b.py:7:x` would fake a row of line 7 of `a-1-b.py`.
    """
    shown = _LIKE_A_MATCH.sub(r"\\x3a", text.shown)
    return f"{path}-{number}-{shown}"


def none_shown(found: ContentFound) -> str:
    counted = count_found(found)
    return f"{counted[0].upper()}{counted[1:]}, none shown." if found.matches else NO_MATCHES


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
    """`context` names the argument that asked for context lines, if any."""
    more = "more than " if found.has_more else ""
    lower = "" if context is None else f", or lower {context}"
    return (
        f"[{bytes_max / 1000:g} kB limit reached: {shown} of {more}{found.matches} matches "
        f"shown. Refine pattern or path{lower}.]"
    )


def glob_notices(glob: SearchGlob, path: ReadPath) -> list[str]:
    for directory in (path.asked.relative, path.real.relative):
        if rest := glob.below(directory):
            return [f"[The glob is relative to {quote(directory)}: write {quote(rest)}.]"]
    return []


def remark_notices(remarks: Remarks) -> list[str]:
    said: list[str] = []
    if remarks.binary is not None:
        said.append(f"[The file {remarks.binary.value}.]")
    if remarks.large_utf16:
        said.append(f"[Not searched (UTF-16 over 8 MB): {name_some(sorted(remarks.large_utf16))}.]")
    if remarks.unreadable:
        said.append(f"[Not readable by this user: {name_some(sorted(remarks.unreadable))}.]")
    if remarks.too_deep:
        said.append(
            f"[Not searched ({limits.path_depth_max} directories deep): "
            f"{name_some(sorted(remarks.too_deep))}.]"
        )
    if remarks.changed:
        said.append(
            "[Changed during the search, so rows may be missing: "
            f"{name_some(sorted(remarks.changed))}. Search again.]"
        )
    if remarks.is_broken:
        said.append("[The search ended early, so rows may be missing. Narrow path or pattern.]")
    if remarks.is_late:
        said.append(
            f"[Stopped after {limits.search_timeout_s:g} seconds: rows may be missing, and another "
            "search may return other rows. Narrow path or pattern.]"
        )
    return said


def refuse_cancelled(ports: Ports) -> None:
    """Raises: StoppedCallError if the call was cancelled."""
    if ports.cancel.is_cancelled:
        raise StoppedCallError(LeftEffect.NONE)


def is_partial(remarks: Remarks) -> bool:
    """Return True if rows may be missing for another reason than a limit of the call."""
    return remarks.is_late or remarks.is_broken


def _count(number: int, thing: str, things: str = "") -> str:
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


_DEFAULT_MATCHES: Final = 100
_PATTERN: Final = (
    "Regular expression in ripgrep's syntax (no look-around, no backreferences), matched against "
    "one line at a time."
)


class GrepArguments(fields.ArgumentType):
    pattern: str = fields.needed_text(_PATTERN)
    path: str = fields.filled_text("Directory or file to search.", ".")
    glob: str | None = fields.optional_text(
        "Search only files that match: *.py by name, src/**/*.ts by path relative to the searched "
        "directory; {a,b} matches either, !x excludes x."
    )
    ignoreCase: bool = fields.flag("Ignore case.", default=False)  # noqa: N815 - the name that models know
    literal: bool = fields.flag(
        "Treat the pattern as plain text, not a regular expression.", default=False
    )
    context: int = fields.optional_integer(
        "Lines to show before and after each match.", 0, minimum=0, limit="search_context_max"
    )
    limit: int = fields.optional_integer(
        "Maximum number of matches to show in the whole search.",
        _DEFAULT_MATCHES,
        minimum=1,
        limit="grep_matches_max",
    )


_Given: TypeAlias = "GrepArguments | GrepDevArguments"
_Plan: TypeAlias = SearchPlan[Any]


class _Searching:
    """A search that shows the first matches by path and line; repeating it gives the same."""

    reader: str  # the tool that shows more of a line
    limit_name: str
    most_name: str  # name of the limit of argument `limit_name`
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
    matching = frozenset(file.matching)
    for number, line in zip(file.numbers, file.texts, strict=True):
        text, is_match = LineText.of(line), number in matching
        make_row = match_row if is_match else context_row
        if not rows.add(make_row(path, number, text)):
            return
        rows.count(text)
        if is_match:
            match = {"path": path_text(file.path), "line": number, "text": text.shown}
            rows.add_match(file.path, match)
        else:
            rows.count_beside(text)


GREP: Final = Tool(
    ToolSpec(
        name="grep",
        title="Search contents",
        description=(
            "Search file contents line by line for a regular expression (ripgrep syntax, no "
            "look-around). Returns rows path:line:text, and path-line-text for context lines, "
            "ordered by path and line. Searches hidden files, and UTF-16 with a byte-order mark; "
            "skips .git, node_modules, symlinks, files that .gitignore excludes and files with "
            "NUL bytes."
        ),
        toolset="search",
        arguments=GrepArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "summary": fields.TEXT,
                "count": {"type": "integer", "description": "Matches shown."},
                "truncated": {"type": "boolean", "description": "True if there may be more."},
                "matches": fields.rows_schema(
                    {"path": fields.TEXT, "line": fields.INTEGER, "text": fields.TEXT}
                ),
            }
        ),
    ),
    Grep(),
)


_DEFAULT_RESULTS: Final = 50


class GrepDevArguments(fields.ArgumentType):
    pattern: str = fields.needed_text(_PATTERN)
    path: str = fields.filled_text("Directory or file to search.", ".")
    glob: str = fields.filled_text(
        "Search only files that match: *.py by name, src/**/*.ts by path relative to the searched "
        "directory.",
        "*",
    )
    max_results: int = fields.clamped_integer(
        "Maximum number of matches to return.",
        _DEFAULT_RESULTS,
        minimum=1,
        limit="dev_matches_max",
    )
    context_lines: int = fields.clamped_integer(
        "Lines to return before and after each match.",
        0,
        minimum=0,
        limit="dev_context_max",
    )


class GrepDev(_Searching):
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
            found = search_counted(ports.workspace, shown, path.real, wanted, plan.glob, until)
        except PathNotFoundError:
            raise PathNotFoundError(
                f"path not found: {quote(path.asked.relative)}",
                hint="use list_files to find the path",
            ) from None
        refuse_cancelled(ports)
        rows = ShownRows(ports.limits.search_output_bytes_max)
        for file in found.files:
            _add_with_context(rows, file, given.context_lines)
            if rows.is_full:
                break
        said = [
            *(rows.rows or [none_shown(found)]),
            *self.notices(plan, wanted, rows, found, ports),
        ]
        said.append(_account(found.files_searched, found.skipped))
        details: dict[str, Json] = {
            "pattern": given.pattern,
            "match_count": len(rows.matches),
            "files_searched": found.files_searched,
            "results": rows.matches,
            "truncated": found.has_more or rows.is_full or is_partial(found.remarks),
            "skipped": asdict(found.skipped),
        }
        return ToolOutput("\n".join(said), details)


def _add_with_context(rows: ShownRows, file: FileLines, context: int) -> None:
    path = show_row_path(file.path)
    texts = dict(zip(file.numbers, map(LineText.of, file.texts), strict=True))
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
        # A line may be context of more than one match.
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


def _account(searched: int, skipped: Skipped) -> str:
    counts = {
        "under a skipped name": skipped.by_name,
        "forbidden": skipped.forbidden,
        f"over {limits.dev_searched_file_bytes_max} bytes": skipped.too_large,
        "binary": skipped.binary,
        "not readable": skipped.unreadable,
    }
    said = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)
    files = "1 file" if searched == 1 else f"{searched} files"
    return f"[{files} searched{'; skipped: ' + said if said else ''}.]"


GREP_DEV: Final = Tool(
    ToolSpec(
        name="grep_dev",
        title="Search contents",
        description=(
            "Search file contents line by line for a regular expression (ripgrep syntax, no "
            "look-around). Searches hidden files and files that .gitignore excludes; skips and "
            "counts .git, __pycache__, node_modules, .DS_Store, binary files and files over 1 MB."
        ),
        toolset="development",
        arguments=GrepDevArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "pattern": fields.TEXT,
                "match_count": {"type": "integer", "description": "Rows returned."},
                "files_searched": fields.INTEGER,
                "truncated": {"type": "boolean", "description": "True if there may be more."},
                "skipped": {
                    "type": "object",
                    "additionalProperties": {"type": "integer"},
                    "description": "Number of skipped files by reason.",
                },
                "results": fields.rows_schema(
                    {
                        "file": fields.TEXT,
                        "line_number": fields.INTEGER,
                        "line": fields.TEXT,
                        "context_before": fields.TEXTS,
                        "context_after": fields.TEXTS,
                    }
                ),
            }
        ),
    ),
    GrepDev(),
)
