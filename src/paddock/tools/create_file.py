"""`create_file`: write a whole file, new or in the place of an old one."""

from dataclasses import dataclass, replace
from typing import Final

from paddock.errors import ToolError
from paddock.text.changes import unified_diff
from paddock.text.edit import require_content, snippet_of_head
from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType, needed_text, optional_text, plain_text
from paddock.tools.effects import change_of_write
from paddock.tools.outputs import WORKSPACE_FAILURE, written_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import absolute, path_actions
from paddock.tools.versions import IF_VERSION_OR_ABSENT, pinned_version
from paddock.tools.writing import write_whole
from paddock.values.decisions import Action
from paddock.workspace import WritePath, WriteReceipt, version_of


@dataclass(frozen=True, slots=True)
class CreateFileArguments(ArgumentType):
    """Arguments of `create_file`."""

    path: str = needed_text("File to write, relative to the workspace root.")
    content: str = plain_text("The whole text of the file.", is_content=True)
    if_version: str | None = optional_text(IF_VERSION_OR_ABSENT)


@dataclass(frozen=True, slots=True)
class CreateFilePlan:
    path: WritePath
    content: bytes
    if_version: str | None
    actions: tuple[Action, ...]


class CreateFile:
    """Creates parents; an existing file is replaced whole, its mode and owner kept."""

    def resolve(self, arguments: CreateFileArguments, ports: Ports) -> CreateFilePlan:
        """Raises: ToolError for unusable content or path."""
        content = require_content(arguments.content, "content")
        path = ports.workspace.resolve_write(arguments.path)
        return CreateFilePlan(
            path, content, arguments.if_version, path_actions("file", "create", path)
        )

    def pin(self, plan: CreateFilePlan, ports: Ports) -> tuple[CreateFilePlan, str]:
        """Tied to the content that stands there now, or to its absence."""
        found = pinned_version(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: CreateFilePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then the old content stands."""
        before = _read_before(ports, plan)
        receipt = write_whole(ports, plan.path, plan.content, plan.if_version)
        return _output(plan, receipt, before, ports)


def _read_before(ports: Ports, plan: CreateFilePlan) -> bytes | None:
    """What stood there, for the diff that is shown; None where none can be shown."""
    # Threat: an agent that may write a file and not view it would read it in the diff.
    if not plan.path.exists or not ports.shown.may_view(plan.path.real.relative):
        return None
    try:
        return ports.workspace.read_all(plan.path.real, ports.limits.view_bytes_max).content
    except ToolError:
        return None


def _output(
    plan: CreateFilePlan, receipt: WriteReceipt, before: bytes | None, ports: Ports
) -> ToolOutput:
    name = plan.path.asked.relative
    action = "created" if receipt.created else "overwritten"
    snippet = _snippet(plan, receipt, before)
    said = [f"{action} {show_name(name)} ({len(plan.content)} bytes)"]
    said += [f"[{note}]" for note in receipt.notes]
    if snippet:
        said.append(snippet)
    details = {
        "path": absolute(ports.workspace, plan.path.asked),
        "action": action,
        "content_snippet": snippet,
        "bytes_written": receipt.bytes_written,
        "version": receipt.version,
        "success": True,
        "error": None,
    }
    changes = (change_of_write(receipt, action),)
    return ToolOutput("\n".join(said), details, changes, receipt.bytes_written)


def _snippet(plan: CreateFilePlan, receipt: WriteReceipt, before: bytes | None) -> str:
    if receipt.created:
        return snippet_of_head(plan.content)
    # Only a diff against what was really replaced is shown.
    if before is None or version_of(before) != receipt.version_before:
        return "[no diff: the replaced content is too large, no text, or not yours to view]"
    if before == plan.content:
        return "[the new content is the same as the old]"
    return unified_diff(before, plan.content, show_name(plan.path.asked.relative))


SPEC: Final = ToolSpec(
    name="create_file",
    title="Create file",
    description=(
        "Write a whole UTF-8 text file, creating its directories. An existing file is "
        "overwritten. The write is atomic: the old content stands or the new one."
    ),
    toolset="workspace",
    arguments=CreateFileArguments,
    effects=Effects(reads_only=False, is_destructive=True, is_idempotent=True),
    output_schema=written_schema(["created", "overwritten"]),
    failure_details=WORKSPACE_FAILURE,
)


def create_file_tool() -> Tool[CreateFileArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, CreateFile())
