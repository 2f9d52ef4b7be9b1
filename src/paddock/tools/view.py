"""`view` and `read_file`: show the lines of a file, or list a directory."""

import re
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.pattern import lazy_pattern
from paddock.text.show import escape_notices, number_line, quote, text_of
from paddock.tools import arguments as fields
from paddock.tools.spec import (
    READS,
    Ports,
    ReadPlan,
    Shown,
    Tool,
    ToolOutput,
    ToolSpec,
    path_actions,
    pinned,
    plan_read,
    workspace_details,
)
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import OpenFile, ReadPath, Window
from paddock.workspace.read import whole_characters

ALL_LINES: Final = 2**62  # as a limit: no limit


def _require_text_start(file: OpenFile, name: str) -> None:
    """Raises: BinaryFileError: a NUL byte among the first `limits.binary_probe_bytes`."""
    probe = file.read_start(limits.binary_probe_bytes)
    if b"\0" in probe:
        raise errors.BinaryFileError(
            f"{quote(name)} is a binary file: it has a NUL byte at offset {probe.index(0)}",
            hint="only UTF-8 text can be viewed",
        )


def _decode(window: Window, name: str) -> str:
    """Raises: TextEncodingError: with the byte, its place and its line."""
    text = b"\n".join([line.content for line in window.lines])
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        from paddock.text.edit import KEEP_ENCODING  # noqa: PLC0415 - for this error alone

        *above, before = text[: error.start].split(b"\n")
        raise errors.TextEncodingError(
            f"{quote(name)} is not UTF-8: byte 0x{text[error.start]:02x} "
            f"at byte {len(before) + 1} of line {window.first_line + len(above)}",
            hint=KEEP_ENCODING,
        ) from None


def _window_notices(window: Window, bytes_max: int) -> list[str]:
    offset, total = window.first_line, window.lines_total
    said: list[str] = []
    if total == 0:
        said.append("the file is empty")
    elif offset > total:
        said.append(f"offset {text_of(offset)} is past the end: the file has {total} lines")
    elif window.next_line is not None:
        count = window.next_line - offset
        why = f"cut at {bytes_max} bytes" if window.cut_by_bytes else f"limit={count} reached"
        said.append(
            f"lines {offset}-{window.next_line - 1} of {total} shown, {why}; "
            f"use offset={window.next_line} to continue"
        )
    if window.cut_lines:
        said.append(f"a line is cut at {bytes_max} bytes; no file tool shows more of it")
    if window.changed_while_reading:
        said.append("the file changed while it was read; view it again")
    return said


DIRECTORY: Final = "directory"  # in place of a version, which directories do not have
_NUMBER_BYTES: Final = 8


class ViewArguments(fields.ArgumentType):
    path: str = fields.needed_text("File or directory to show, relative to the workspace root.")
    offset: int | None = fields.optional_integer(
        "First line (or directory entry) to show, counted from 1.", None, minimum=1
    )
    limit: int | None = fields.optional_integer(
        "Maximum number of lines (or directory entries) to show.", None, minimum=1
    )


Plan: TypeAlias = ReadPlan["ViewArguments | ReadFileArguments"]


class _Viewing:
    """Streams the file: line 900,000 of a million costs one pass and little memory."""

    def resolve(self, arguments: "ViewArguments | ReadFileArguments", ports: Ports) -> Plan:
        return plan_read("file", "view", arguments, ports)

    def pin(self, plan: Plan, ports: Ports) -> tuple[Plan, str]:
        found = ports.workspace.version(plan.path.real)
        return replace(plan, version=found), found

    def window(self, plan: Plan, file: OpenFile, ports: Ports) -> tuple[Window, str]:
        name, most = plan.path.asked.relative, ports.limits.view_bytes_max
        _require_text_start(file, name)
        offset, limit = plan.given.offset or 1, plan.given.limit or ALL_LINES
        # One line may use the whole budget.
        window = file.window(offset, limit, most)
        if plan.version is not None:
            pinned(plan.version, str(window.version), plan.path.asked)
        return window, _decode(window, name)


class View(_Viewing):
    def pin(self, plan: Plan, ports: Ports) -> tuple[Plan, str]:
        try:
            return super().pin(plan, ports)
        except errors.PathNotAFileError:
            return replace(plan, version=DIRECTORY), DIRECTORY

    def run(self, plan: Plan, ports: Ports) -> ToolOutput:
        try:
            file = ports.workspace.open_file(plan.path)
        except errors.PathNotAFileError:
            from paddock.tools.listing import view_directory  # noqa: PLC0415 - directories only

            if plan.version is not None:
                pinned(plan.version, DIRECTORY, plan.path.asked)
            text, more = view_directory(plan.path, plan.given.offset or 1, plan.given.limit, ports)
            return ToolOutput(text, _viewed(plan, ports, text) | more)
        with file:
            window, text = self.window(plan, file, ports)
        bytes_max = ports.limits.view_bytes_max
        window, rows, escaped = _number(window, text, bytes_max)
        said = (*_window_notices(window, bytes_max), *escape_notices(escaped))
        details = {
            **_viewed(plan, ports, "\n".join(rows)),
            "lines_total": window.lines_total,
            "truncated": window.truncated,
            "version": window.version,
        }
        return ToolOutput("\n".join([*rows, *(f"[{notice}]" for notice in said)]), details)


def _viewed(plan: Plan, ports: Ports, snippet: str) -> dict[str, Json]:
    return workspace_details(ports, plan.path.asked, "viewed", content_snippet=snippet)


def _number(window: Window, text: str, bytes_max: int) -> tuple[Window, list[str], int]:
    """Return the lines that fit, at least one; their rows; the number of escaped characters."""
    rows, lines, escaped = list[str](), window.lines, 0
    room = most = bytes_max + _NUMBER_BYTES  # so one line may use the whole budget
    for number, content in enumerate(text.split("\n")[: len(lines)], window.first_line):
        row, changed = number_line(number, content)
        # Numbers and escapes count: even an empty line costs eight bytes.
        if (size := len(row.encode())) > room and rows:
            window = replace(window, lines=lines[: len(rows)], cut_by_bytes=True)
            break
        if size > room:
            shorter = lines[0].content[: len(lines[0].content) * most // size]
            first = replace(lines[0], content=whole_characters(shorter))
            is_cut = window.cut_by_bytes or len(lines) > 1
            window = replace(window, lines=(first,), cut_by_bytes=is_cut)
            return _number(window, first.content.decode(), bytes_max)
        rows.append(row)
        escaped += changed
        room -= size + 1
    for line in window.cut_lines:
        rows[0] += f" [... {line.length_bytes - len(line.content)} more bytes of this line]"
    return window, rows, escaped


VIEW: Final = Tool(
    ToolSpec(
        name="view",
        title="View",
        description=(
            "Show a UTF-8 text file with line numbers, at most 100 kB at once; use offset and "
            "limit to show part of it. A directory is listed two levels deep."
        ),
        toolset="workspace",
        arguments=ViewArguments,
        effects=READS,
        output_schema=fields.workspace_schema(
            ["viewed"],
            {
                "content_snippet": {"type": "string", "description": "The numbered lines."},
                "lines_total": fields.INTEGER,
                "entries_total": fields.INTEGER,
                "truncated": fields.BOOLEAN,
                "version": {"type": "string", "description": "sha256 of the whole file's bytes."},
            },
        ),
        failure_details=fields.WORKSPACE_FAILURE,
    ),
    View(),
)


def viewing_actions(path: ReadPath, ports: Ports) -> tuple[Action, ...]:
    """Return the actions of viewing a file that is not freely viewable; none for a directory.

    In a directory, each file is judged separately; files that may not be viewed have no rows.
    """
    if ports.shown.may_view(path.real.relative):
        return ()
    try:
        with ports.workspace.open_file(path):
            return path_actions("file", "view", path)
    except errors.ToolError:
        return ()  # not a file, or not readable: the search reports which


class ShownWith(Struct, frozen=True):
    """The agent's view plus one file that this call may view."""

    shown: Shown
    path: str

    def is_shown(self, relative: str) -> bool:
        return self.shown.is_shown(relative)

    def may_view(self, relative: str) -> bool:
        return relative == self.path or self.shown.may_view(relative)

    def allows(self, action: Action) -> bool:
        return self.shown.allows(action)


def shown_for(actions: tuple[Action, ...], path: ReadPath, ports: Ports) -> Shown:
    """Return the view of this call: with its file, if `viewing_actions` were decided."""
    if any(action.category == "file" for action in actions):
        return ShownWith(ports.shown, path.real.relative)
    return ports.shown


NOTICE: Final = "[paddock: "
_LOOKS_LIKE_NOTICE: Final = lazy_pattern(r"\[(?=paddock:)", re.IGNORECASE)


class ReadFileArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to read, relative to the workspace root.")
    offset: int | None = fields.optional_integer(
        "First line to return, counted from 1.", None, minimum=1
    )
    limit: int | None = fields.optional_integer(
        "Maximum number of lines to return.", None, minimum=1
    )


class ReadFile(_Viewing):
    """Returns the file's characters unchanged: no line numbers, original line ends."""

    def run(self, plan: Plan, ports: Ports) -> ToolOutput:
        name = quote(plan.path.asked.relative)
        try:
            file = ports.workspace.open_file(plan.path)
        except errors.PathNotFoundError:
            raise errors.PathNotFoundError(
                f"file not found: {name}", hint="use list_files to find the path"
            ) from None
        except errors.PathNotAFileError:
            raise errors.PathNotAFileError(
                f"{name} is a directory", hint="use list_files to list it"
            ) from None
        with file:
            window, text = self.window(plan, file, ports)
            ends_with_newline = file.ends_with_newline()
        if window.lines and (window.next_line is not None or ends_with_newline):
            text += "\n"
        # Threat: the model would take a notice in a file for one of Paddock's.
        text, escaped = _LOOKS_LIKE_NOTICE.subn(r"\\[", text)
        said = _notices(window, escaped, ports.limits.view_bytes_max)
        rows = "\n".join(f"{NOTICE}{notice}]" for notice in said)
        if rows and text and not text.endswith("\n"):
            text += "\n"
        details = {
            "path": plan.given.path,
            "lines_total": window.lines_total,
            "truncated": window.truncated,
            "version": window.version,
        }
        return ToolOutput(text + rows, details)


def _notices(window: Window, escaped: int, bytes_max: int) -> list[str]:
    said = _window_notices(window, bytes_max)
    said += [
        f"line {line.number} has {line.length_bytes - len(line.content)} more bytes"
        for line in window.cut_lines
    ]
    if escaped:
        said.append(
            f"a backslash was added in {escaped} places that look like such a notice;"
            " the file does not have it"
        )
    return said


READ_FILE: Final = Tool(
    ToolSpec(
        name="read_file",
        title="Read file",
        description=(
            "Return the exact text of a UTF-8 file, or some of its lines. Text over "
            f"{limits.view_bytes_max} bytes is cut; the last line says how to read the rest."
        ),
        toolset="core",
        arguments=ReadFileArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "path": {"type": "string", "description": "The path as it was given."},
                "lines_total": fields.INTEGER,
                "truncated": {"type": "boolean", "description": "True if the file has more lines."},
                "version": {"type": "string", "description": "sha256 of all bytes of the file."},
            }
        ),
    ),
    ReadFile(),
)
