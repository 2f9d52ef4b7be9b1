"""`write_file_dev`: write a whole file, behind the dual gate."""

from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.errors import PathNotFoundError, TextTooLargeError
from paddock.text.edit import require_content
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, flag, needed_text, optional_text, plain_text
from paddock.tools.effects import change_of_write
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.tools.versions import IF_VERSION_OR_ABSENT, pinned_version
from paddock.tools.writing import write_whole
from paddock.values.decisions import Action
from paddock.workspace import WritePath, WriteReceipt


@dataclass(frozen=True, slots=True)
class WriteFileDevArguments(ArgumentType):
    """Arguments of `write_file_dev`."""

    path: str = needed_text("File to write, relative to the workspace root.")
    content: str = plain_text("The whole text of the file.", is_content=True)
    create_dirs: bool = flag("Make missing directories on the way.", default=False)
    if_version: str | None = optional_text(IF_VERSION_OR_ABSENT)


@dataclass(frozen=True, slots=True)
class WriteFileDevPlan:
    """What will be written where; `given` is the path as it was asked for."""

    given: str
    path: WritePath
    content: bytes
    create_dirs: bool
    if_version: str | None
    actions: tuple[Action, ...]


class WriteFileDev:
    """An existing file is replaced whole, its mode and owner kept."""

    def resolve(self, arguments: WriteFileDevArguments, ports: Ports) -> WriteFileDevPlan:
        """Raises: ToolError for unusable content or path."""
        content = require_content(arguments.content, "content")
        if len(content) > limits.dev_content_bytes_max:
            raise TextTooLargeError(
                "content exceeds 1MB limit",
                hint=f"it has {len(content)} bytes, {limits.dev_content_bytes_max} are allowed",
            )
        path = ports.workspace.resolve_write(arguments.path)
        return WriteFileDevPlan(
            arguments.path,
            path,
            content,
            arguments.create_dirs,
            arguments.if_version,
            path_actions("file", "create", path),
        )

    def pin(self, plan: WriteFileDevPlan, ports: Ports) -> tuple[WriteFileDevPlan, str]:
        """Tied to the content that stands there now, or to its absence."""
        found = pinned_version(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: WriteFileDevPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then the old content stands."""
        try:
            receipt = write_whole(
                ports, plan.path, plan.content, plan.if_version, create_parents=plan.create_dirs
            )
        except PathNotFoundError:
            raise PathNotFoundError(
                f"the directory of {quote(plan.path.asked.relative)} does not exist",
                hint="use create_dirs=true, or another path",
            ) from None
        return _output(plan, receipt)


def _output(plan: WriteFileDevPlan, receipt: WriteReceipt) -> ToolOutput:
    action = "created" if receipt.created else "overwritten"
    name = show_name(plan.path.asked.relative)
    said = [f"{action} {name} ({receipt.bytes_written} bytes)"]
    said += [f"[{note}]" for note in receipt.notes]
    details = {
        "path": plan.given,
        "bytes_written": receipt.bytes_written,
        "created_dirs": bool(receipt.created_directories),
        "version": receipt.version,
    }
    changes = (change_of_write(receipt, action),)
    return ToolOutput("\n".join(said), details, changes, receipt.bytes_written)


SPEC: Final = ToolSpec(
    name="write_file_dev",
    title="Write file (development)",
    description=(
        "Write a whole UTF-8 text file of at most 1 MB. An existing file is overwritten. "
        "The write is atomic: the old content stands or the new one."
    ),
    toolset="development",
    arguments=WriteFileDevArguments,
    effects=Effects(reads_only=False, is_destructive=True, is_idempotent=True),
    output_schema=result_schema(
        {
            "path": {"type": "string", "description": "The path as it was given."},
            "bytes_written": {"type": "integer", "description": "UTF-8 bytes."},
            "created_dirs": {"type": "boolean", "description": "Directories were made."},
            "version": {"type": "string", "description": "sha256 of the bytes written."},
        }
    ),
)


def write_file_dev_tool() -> Tool[WriteFileDevArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, WriteFileDev())
