"""`edit_file_dev`: replace exact text in a file, once or everywhere, behind the dual gate."""

from dataclasses import dataclass, replace
from typing import Final

from paddock.errors import PathNotFoundError
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, flag, needed_text, optional_text, plain_text
from paddock.tools.editing import Replacement, ReplacementOfAll, Wording, require_change
from paddock.tools.effects import change_of_write
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import path_actions
from paddock.tools.versions import IF_VERSION, pinned_file, telling_what_changed
from paddock.values.decisions import Action
from paddock.workspace import WritePath, WriteReceipt

_WORDING: Final = Wording(
    not_found="old_string not found in file",
    ambiguous=("old_string found {count} times; use replace_all=true or provide more context"),
    ambiguous_hint="it stands in {name} at lines {lines}",
)


@dataclass(frozen=True, slots=True)
class EditFileDevArguments(ArgumentType):
    """Arguments of `edit_file_dev`."""

    path: str = needed_text("File to edit, relative to the workspace root.")
    old_string: str = needed_text(
        "The exact text to replace, no pattern; a newline matches the file's own line end.",
        is_content=True,
    )
    new_string: str = plain_text("The text to put in its place; empty deletes.", is_content=True)
    replace_all: bool = flag("Replace every place instead of the only one.", default=False)
    if_version: str | None = optional_text(IF_VERSION)


@dataclass(frozen=True, slots=True)
class EditFileDevPlan:
    """What will be replaced where; `given` is the path as it was asked for."""

    given: str
    path: WritePath
    old: bytes
    new: bytes
    replace_all: bool
    if_version: str | None
    actions: tuple[Action, ...]


class EditFileDev:
    """Every byte that is not named stays."""

    def resolve(self, arguments: EditFileDevArguments, ports: Ports) -> EditFileDevPlan:
        """Raises: ToolError for equal texts, unusable texts or path."""
        names = ("old_string", "new_string")
        old, new = require_change(arguments.old_string, arguments.new_string, names)
        path = ports.workspace.resolve_write(arguments.path)
        return EditFileDevPlan(
            arguments.path,
            path,
            old,
            new,
            arguments.replace_all,
            arguments.if_version,
            path_actions("file", "str_replace", path),
        )

    def pin(self, plan: EditFileDevPlan, ports: Ports) -> tuple[EditFileDevPlan, str]:
        """Tied to the content that stands there now."""
        found = pinned_file(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: EditFileDevPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then the file is as it was."""
        try:
            with telling_what_changed(plan.if_version, plan.path.real, ports):
                receipt, replacements = _replace(plan, ports)
        except PathNotFoundError:
            raise PathNotFoundError(
                "file not found", hint=f"there is no {quote(plan.path.asked.relative)}"
            ) from None
        name = show_name(plan.path.asked.relative)
        times = "1 replacement" if replacements == 1 else f"{replacements} replacements"
        said = [f"edited {name} ({times})", *(f"[{note}]" for note in receipt.notes)]
        details = {
            "path": plan.given,
            "replacements": replacements,
            "bytes_before": receipt.bytes_before,
            "bytes_after": receipt.bytes_written,
            "version": receipt.version,
        }
        changes = (change_of_write(receipt, "edited"),)
        return ToolOutput("\n".join(said), details, changes, receipt.bytes_written)


def _replace(plan: EditFileDevPlan, ports: Ports) -> tuple[WriteReceipt, int]:
    name = plan.path.asked.relative
    # Threat: an agent that may edit a file and not view it would read it in the answer.
    may_view = ports.shown.may_view(plan.path.real.relative)
    workspace, path, version = ports.workspace, plan.path, plan.if_version
    if plan.replace_all:
        everywhere = ReplacementOfAll(name, plan.old, plan.new, _WORDING, may_view=may_view)
        receipt = workspace.edit_file(path, everywhere, if_version=version)
        return receipt, everywhere.count
    once = Replacement(name, plan.old, plan.new, _WORDING, may_view=may_view)
    return workspace.edit_file(path, once, if_version=version), 1


SPEC: Final = ToolSpec(
    name="edit_file_dev",
    title="Edit file (development)",
    description=(
        "Replace one exact text in a UTF-8 file, or with replace_all every place of it. "
        "White space counts. Every other byte of the file stays as it is, line ends included."
    ),
    toolset="development",
    arguments=EditFileDevArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=result_schema(
        {
            "path": {"type": "string", "description": "The path as it was given."},
            "replacements": {"type": "integer"},
            "bytes_before": {"type": "integer"},
            "bytes_after": {"type": "integer"},
            "version": {"type": "string", "description": "sha256 of the bytes written."},
        }
    ),
)


def edit_file_dev_tool() -> Tool[EditFileDevArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, EditFileDev())
