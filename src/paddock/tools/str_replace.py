"""`str_replace`: change one exact text in a file, and no other byte."""

from dataclasses import dataclass, replace
from typing import Final

from paddock.text.edit import snippet_around
from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType, needed_text, optional_text, plain_text
from paddock.tools.editing import Replacement, Wording, require_change
from paddock.tools.outputs import WORKSPACE_FAILURE, written_schema
from paddock.tools.spec import Change, Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import absolute, path_actions
from paddock.tools.versions import IF_VERSION, pinned_file, telling_what_changed
from paddock.values.decisions import Action
from paddock.workspace import WritePath


@dataclass(frozen=True, slots=True)
class StrReplaceArguments(ArgumentType):
    """Arguments of `str_replace`."""

    path: str = needed_text("File to edit, relative to the workspace root.")
    old_str: str = needed_text(
        "The exact text to replace. It must stand in the file exactly once; "
        "a newline matches the file's own line end.",
        is_content=True,
    )
    new_str: str = plain_text("The text to put in its place; empty deletes.", is_content=True)
    if_version: str | None = optional_text(IF_VERSION)


@dataclass(frozen=True, slots=True)
class StrReplacePlan:
    path: WritePath
    old: bytes
    new: bytes
    if_version: str | None
    actions: tuple[Action, ...]


_WORDING: Final = Wording(
    not_found="old_str not found in {name}",
    ambiguous="old_str found {count} times in {name}, at lines {lines}",
    ambiguous_hint="include a neighbouring line, so that old_str stands there once",
)


class StrReplace:
    """Exactly one match or an error; every byte that is not named stays."""

    def resolve(self, arguments: StrReplaceArguments, ports: Ports) -> StrReplacePlan:
        """Raises: ToolError for equal texts, unusable texts or path."""
        old, new = require_change(arguments.old_str, arguments.new_str, ("old_str", "new_str"))
        path = ports.workspace.resolve_write(arguments.path)
        actions = path_actions("file", "str_replace", path)
        return StrReplacePlan(path, old, new, arguments.if_version, actions)

    def pin(self, plan: StrReplacePlan, ports: Ports) -> tuple[StrReplacePlan, str]:
        """Tied to the content that stands there now."""
        found = pinned_file(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: StrReplacePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then the file is as it was."""
        name = plan.path.asked.relative
        # Threat: an agent that may edit a file and not view it would read it in the answer.
        may_view = ports.shown.may_view(plan.path.real.relative)
        edit = Replacement(name, plan.old, plan.new, _WORDING, may_view=may_view)
        with telling_what_changed(plan.if_version, plan.path.real, ports):
            receipt = ports.workspace.edit_file(plan.path, edit, if_version=plan.if_version)
        spliced = edit.spliced
        snippet = "[its neighbourhood is not yours to view]"
        if may_view and spliced is not None:
            snippet = snippet_around(spliced)
        said = [f"edited {show_name(name)}", *(f"[{note}]" for note in receipt.notes), snippet]
        details = {
            "path": absolute(ports.workspace, plan.path.asked),
            "action": "edited",
            "content_snippet": snippet,
            "bytes_written": receipt.bytes_written,
            "version": receipt.version,
            "success": True,
            "error": None,
        }
        change = Change(plan.path.real.relative, "edited", receipt.version_before, receipt.version)
        return ToolOutput("\n".join(said), details, (change,), receipt.bytes_written)


SPEC: Final = ToolSpec(
    name="str_replace",
    title="Replace text",
    description=(
        "Replace one exact text in a UTF-8 file. old_str must occur exactly once, white space "
        "included. Every other byte of the file stays as it is, line ends included."
    ),
    toolset="workspace",
    arguments=StrReplaceArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=written_schema(["edited"]),
    failure_details=WORKSPACE_FAILURE,
)


def str_replace_tool() -> Tool[StrReplaceArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, StrReplace())
