"""`read_file`: the text of a file as it stands there, or some lines of it."""

import re
from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.errors import PathNotAFileError, PathNotFoundError
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, needed_text, optional_integer
from paddock.tools.outputs import result_schema
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.tools.versions import pinned
from paddock.tools.windows import (
    ALL_LINES,
    require_text_start,
    require_utf8,
    window_limits,
    window_notices,
)
from paddock.values.decisions import Action
from paddock.workspace import OpenFile, ReadPath, Window

NOTICE: Final = "[paddock: "
_LOOKS_LIKE_NOTICE: Final = re.compile(r"\[(?=paddock:)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReadFileArguments(ArgumentType):
    """Arguments of `read_file`."""

    path: str = needed_text("File to read, relative to the workspace root.")
    offset: int | None = optional_integer("First line to return, from 1.", None, minimum=1)
    limit: int | None = optional_integer("How many lines to return.", None, minimum=1)


@dataclass(frozen=True, slots=True)
class ReadFilePlan:
    """What will be read; `given` is the path as it was asked for."""

    given: str
    path: ReadPath
    offset: int
    limit: int
    actions: tuple[Action, ...]
    version: str | None = None
    """What was approved; another content is not released."""


class ReadFile:
    """The file's own characters: nothing is numbered, and line ends stay as they are."""

    def resolve(self, arguments: ReadFileArguments, ports: Ports) -> ReadFilePlan:
        """Raises: ToolError for a path that leads out."""
        path = ports.workspace.resolve_read(arguments.path)
        return ReadFilePlan(
            arguments.path,
            path,
            arguments.offset or 1,
            arguments.limit or ALL_LINES,
            path_actions("file", "view", path),
        )

    def pin(self, plan: ReadFilePlan, ports: Ports) -> tuple[ReadFilePlan, str]:
        """Tied to the content that stands there now."""
        found = ports.workspace.version(plan.path.real)
        return replace(plan, version=found), found

    def run(self, plan: ReadFilePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError where there is nothing to read."""
        name = plan.path.asked.relative
        try:
            file = ports.workspace.open_file(plan.path)
        except PathNotFoundError:
            raise PathNotFoundError(
                f"file not found: {quote(name)}", hint="list_files shows what is there"
            ) from None
        except PathNotAFileError:
            raise PathNotAFileError(
                f"{quote(name)} is a directory", hint="list_files shows what is in it"
            ) from None
        with file:
            require_text_start(file, name)
            window = file.window_with_version(plan.offset, plan.limit, window_limits(ports.limits))
            if plan.version is not None:
                pinned(plan.version, str(window.version), plan.path.asked)
            require_utf8(window, name)
            return _output(plan, window, file, ports.limits.view_bytes_max)


def _output(plan: ReadFilePlan, window: Window, file: OpenFile, bytes_max: int) -> ToolOutput:
    text = b"\n".join(line.content for line in window.lines).decode("utf-8")
    if window.lines and (window.next_line is not None or file.ends_with_newline()):
        text += "\n"
    # Threat: a file that holds a notice of ours would speak for us to the model.
    text, escaped = _LOOKS_LIKE_NOTICE.subn(r"\\[", text)
    said = _notices(plan, window, escaped, bytes_max)
    rows = "\n".join(f"{NOTICE}{notice}]" for notice in said)
    if rows and text and not text.endswith("\n"):
        text += "\n"
    details = {
        "path": plan.given,
        "lines_total": window.lines_total,
        "truncated": window.truncated,
        "version": window.version,
    }
    return ToolOutput(text + rows, details)


def _notices(plan: ReadFilePlan, window: Window, escaped: int, bytes_max: int) -> list[str]:
    said = window_notices(window, plan.offset, plan.limit, bytes_max)
    said += [
        f"line {line.number} goes on for {line.length_bytes - len(line.content)} more bytes"
        for line in window.lines
        if line.is_cut
    ]
    if escaped:
        said.append(
            f"{escaped} places that look like a notice of this kind got a backslash;"
            " the file has none there"
        )
    return said


SPEC: Final = ToolSpec(
    name="read_file",
    title="Read file",
    description=(
        "Return the text of a UTF-8 file as it stands, or some of its lines. Over "
        f"{limits.view_bytes_max} bytes the text is cut, and the last line says how to go on."
    ),
    toolset="core",
    arguments=ReadFileArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "path": {"type": "string", "description": "The path as it was given."},
            "lines_total": {"type": "integer"},
            "truncated": {"type": "boolean", "description": "The file goes on."},
            "version": {"type": "string", "description": "sha256 of all bytes of the file."},
        }
    ),
)


def read_file_tool() -> Tool[ReadFileArguments]:
    return Tool(SPEC, ReadFile())
