"""Editing tools: replace exact text, insert text, apply a diff.

Each tool has its own wording, so that messages name the argument that the model
sent. `text` finds the places and splices the content.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.text import edit
from paddock.text.show import quote, show_line, show_name
from paddock.tools import arguments as fields
from paddock.tools.effects import IF_VERSION, explaining_change, pinned_file, written_output
from paddock.tools.spec import (
    Effects,
    Ports,
    Tool,
    ToolOutput,
    ToolSpec,
    path_actions,
    workspace_details,
)
from paddock.values.decisions import Action
from paddock.workspace import WritePath
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import SingleReceipt, edit_file

_WITHOUT_CR = (
    "the file has it with other line ends: write newlines without CR, which match any line end"
)
_COPY_EXACTLY = "view the file and copy the text exactly"
# In a CRLF file, two texts that differ only in line ends may give the same bytes.
_IN_LINE_ENDS = ": the texts differ only in line ends, and the file has the new ones already"


class Wording(Struct, frozen=True):
    """A tool's messages. `{name}` is the file, `{count}` the matches, `{lines}` their lines."""

    not_found: str
    ambiguous: str
    ambiguous_hint: str


class _Edit(Struct, kw_only=True):
    """An edit of one file; it sets `spliced` to where the new text is."""

    name: str
    may_view: bool
    spliced: edit.Spliced | None = None

    def require_editable(self, content: bytes, *given: bytes, sought: bytes = b"") -> None:
        """Raises: TextError: it is not UTF-8, and the edit could touch other than ASCII text."""
        try:
            edit.require_text(content, self.name)
        except errors.TextEncodingError:
            if not all(map(bytes.isascii, given)):
                raise
            spans = edit.find_apart(content, sought) if sought else ()
            edit.require_apart(content, (span.start for span in spans), self.name)

    def unchanged(self, why: str = "") -> errors.TextUnchangedError:
        return errors.TextUnchangedError(
            f"the edit does not change {quote(self.name)}{why}",
            where=self.name,
            hint="there is nothing to change",
        )


class Replacement(_Edit):
    old: bytes
    new: bytes
    wording: Wording
    count: int = 1

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError: not text, no match, several matches, or no change."""
        self.require_editable(content, self.old, self.new, sought=self.old)
        self.spliced = edit.splice(content, self._only_place(content), self.old, self.new)
        if self.spliced.changes_nothing:
            raise self.unchanged(_IN_LINE_ENDS)
        return self.spliced.pieces

    def _only_place(self, content: bytes) -> edit.Span:
        counted, listed = limits.matches_counted_max, limits.matches_listed_max
        spans = list(islice(edit.find_spans(content, self.old), counted + 1))
        if len(spans) == 1:
            return spans[0]
        if not spans:
            raise self.not_found(content)
        lines = ", ".join(map(str, edit.lines_of(content, spans[:listed])))
        count, more = str(len(spans)), str(len(spans) - listed)
        if len(spans) > counted:
            count, more = f"over {counted}", "many"
        if len(spans) > listed:
            lines += f" and {more} more places"
        shown = {"name": quote(self.name), "count": count, "lines": lines}
        raise errors.AmbiguousMatchError(
            self.wording.ambiguous.format(**shown),
            where=self.name,
            hint=self.wording.ambiguous_hint.format(**shown),
        )

    def not_found(self, content: bytes) -> errors.StringNotFoundError:
        # Threat: an agent that may edit a file but not view it would read it in the hint.
        hint = _nearest_hint(content, self.old) if self.may_view else _COPY_EXACTLY
        message = self.wording.not_found.format(name=quote(self.name))
        return errors.StringNotFoundError(message, where=self.name, hint=hint)


class ReplacementOfAll(Replacement):
    """Replaces every match, from the front without overlaps; sets `count`."""

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError: not text, no match, too large a result, or no change."""
        self.require_editable(content, self.old, self.new, sought=self.old)
        changed, self.count = edit.splice_all(
            content, self.old, self.new, limits.edited_file_bytes_max
        )
        if not self.count:
            raise self.not_found(content)
        if changed == content:
            raise self.unchanged(_IN_LINE_ENDS)
        return (changed,)


def _nearest_hint(content: bytes, sought: bytes) -> str:
    bare = sought.replace(b"\r\n", b"\n")
    if bare != sought and next(edit.find_spans(content, bare), None) is not None:
        return _WITHOUT_CR
    nearest = edit.find_nearest(content, sought)
    if not nearest:
        return _COPY_EXACTLY
    rows = [_near_row(line) for line in nearest]
    return "copy the text exactly; the nearest lines are:\n" + "\n".join(rows)


def _near_row(line: edit.NearLine) -> str:
    text, _ = show_line(line.text[: limits.snippet_line_chars_max])
    cut = " [... cut]" if len(line.text) > limits.snippet_line_chars_max else ""
    end = " [... the file ends here]" if line.is_end else ""
    return f"line {line.number}: {text}{cut}{end}"


# Edits that only the providers' tools use; see `runtime.native`.


class Insertion(_Edit):
    """Inserts whole lines after line `after`, with the file's line ends."""

    given: bytes
    after: int

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError, InvalidArgumentsError: the file has fewer lines."""
        self.require_editable(content, self.given)
        total = content.count(b"\n") + (content[-1:] not in (b"", b"\n"))
        if not 0 <= self.after <= total:
            raise errors.InvalidArgumentsError(
                f"Invalid `insert_line` parameter: {self.after}. It should be within the range of "
                f"lines of the file: [0, {total}]",
                where="insert_line",
                hint="0 is the beginning of the file; nothing was changed",
            )
        at, text = 0, self.given
        for _ in range(self.after):
            at = content.find(b"\n", at) + 1 or len(content)
        if at and content[at - 1] != ord("\n"):
            text = b"\n" + text
        elif at < len(content) and not text.endswith(b"\n"):
            text += b"\n"
        self.spliced = edit.splice(content, edit.Span(at, at), b"", text)
        return self.spliced.pieces


class Patch(_Edit):
    given: bytes

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError, InvalidArgumentsError: not a diff, no match, or no change."""
        from paddock.text.v4a import patched_content  # noqa: PLC0415 - only patches need it

        self.require_editable(content, self.given)
        changed = patched_content(content, self.given)
        if changed == content:
            raise self.unchanged()
        self.spliced = edit.splice(content, edit.Span(0, len(content)), content, changed)
        return self.spliced.pieces


class StrReplaceArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to edit, relative to the workspace root.")
    old_str: str = fields.needed_text(
        "The exact text to replace. It must occur exactly once in the file; "
        "a newline matches the file's line ends.",
        is_content=True,
    )
    new_str: str = fields.plain_text("The replacement text; empty to delete.", is_content=True)
    if_version: str | None = fields.optional_text(IF_VERSION)


class EditPlan(Struct, frozen=True):
    given: "StrReplaceArguments | EditFileDevArguments | InsertArguments | PatchArguments"
    path: WritePath
    make: Callable[..., Replacement | Insertion | Patch]
    """Creates the edit from the file's `name` and whether the agent `may_view` it."""
    actions: tuple[Action, ...]
    if_version: str | None


class _EditsOneFile:
    def plan(self, given: Any, ports: Ports, make: Callable[..., Any]) -> EditPlan:
        path = ports.workspace.resolve_write(given.path)
        actions = path_actions("file", "str_replace", path)
        return EditPlan(given, path, make, actions, given.if_version)

    def pin(self, plan: EditPlan, ports: Ports) -> tuple[EditPlan, str]:
        found = pinned_file(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: EditPlan, ports: Ports) -> ToolOutput:
        # Threat: an agent that may edit a file but not view it would read it in the answer.
        may_view = ports.shown.may_view(plan.path.real.relative)
        change = plan.make(name=plan.path.asked.relative, may_view=may_view)
        with explaining_change(plan.if_version, plan.path.real, ports):
            receipt = edit_file(ports.workspace, plan.path, change, if_version=plan.if_version)
        return self.output(plan, change, receipt, ports)

    def output(
        self, plan: EditPlan, change: _Edit, receipt: SingleReceipt, ports: Ports
    ) -> ToolOutput:
        snippet = "[no snippet: you may not view this file]"
        if change.may_view and change.spliced is not None:
            snippet = edit.snippet_around(change.spliced)
        details = workspace_details(
            ports,
            plan.path.asked,
            "edited",
            content_snippet=snippet,
            bytes_written=receipt.bytes_written,
            version=receipt.doing.after,
        )
        said = f"edited {show_name(plan.path.asked.relative)}"
        return written_output(receipt, said, details, snippet)


def _required_change(old: str, new: str, names: tuple[str, str]) -> dict[str, bytes]:
    """`names` are the names of both arguments. Raises: TextUnchangedError, TextError."""
    if old == new:
        raise errors.TextUnchangedError(
            f"{names[0]} and {names[1]} are the same", hint="there is nothing to change"
        )
    return {"old": edit.require_content(old, names[0]), "new": edit.require_content(new, names[1])}


_WORDING: Final = Wording(
    not_found="old_str not found in {name}",
    ambiguous="old_str found {count} times in {name}, at lines {lines}",
    ambiguous_hint="add neighbouring lines to old_str until it occurs only once",
)


class StrReplace(_EditsOneFile):
    def resolve(self, arguments: StrReplaceArguments, ports: Ports) -> EditPlan:
        change = _required_change(arguments.old_str, arguments.new_str, ("old_str", "new_str"))
        return self.plan(arguments, ports, partial(Replacement, wording=_WORDING, **change))


STR_REPLACE: Final = Tool(
    ToolSpec(
        name="str_replace",
        title="Replace text",
        description=(
            "Replace one exact text in a UTF-8 file. old_str must occur exactly once and match "
            "exactly, white space included. The rest of the file stays byte for byte the same."
        ),
        toolset="workspace",
        arguments=StrReplaceArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=fields.written_schema(["edited"]),
        failure_details=fields.WORKSPACE_FAILURE,
    ),
    StrReplace(),
)


_WORDING_EDIT_FILE_DEV: Final = Wording(
    not_found="old_string not found in file",
    ambiguous=("old_string found {count} times; use replace_all=true or provide more context"),
    ambiguous_hint="it is in {name} at lines {lines}",
)


class EditFileDevArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to edit, relative to the workspace root.")
    old_string: str = fields.needed_text(
        "The exact text to replace, not a pattern; a newline matches the file's line ends.",
        is_content=True,
    )
    new_string: str = fields.plain_text("The replacement text; empty to delete.", is_content=True)
    replace_all: bool = fields.flag(
        "Replace every occurrence; otherwise there must be exactly one.", default=False
    )
    if_version: str | None = fields.optional_text(IF_VERSION)


class EditFileDev(_EditsOneFile):
    def resolve(self, arguments: EditFileDevArguments, ports: Ports) -> EditPlan:
        names = ("old_string", "new_string")
        change = _required_change(arguments.old_string, arguments.new_string, names)
        kind = ReplacementOfAll if arguments.replace_all else Replacement
        return self.plan(arguments, ports, partial(kind, wording=_WORDING_EDIT_FILE_DEV, **change))

    def run(self, plan: EditPlan, ports: Ports) -> ToolOutput:
        try:
            return super().run(plan, ports)
        except errors.PathNotFoundError:
            hint = f"{quote(plan.path.asked.relative)} does not exist"
            raise errors.PathNotFoundError("file not found", hint=hint) from None

    def output(
        self, plan: EditPlan, change: _Edit, receipt: SingleReceipt, ports: Ports
    ) -> ToolOutput:
        count = change.count if isinstance(change, Replacement) else 1
        times = "1 replacement" if count == 1 else f"{count} replacements"
        details = {
            "path": plan.given.path,
            "replacements": count,
            "bytes_before": receipt.bytes_before,
            "bytes_after": receipt.bytes_written,
            "version": receipt.doing.after,
        }
        said = f"edited {show_name(plan.path.asked.relative)} ({times})"
        return written_output(receipt, said, details)


EDIT_FILE_DEV: Final = Tool(
    ToolSpec(
        name="edit_file_dev",
        title="Edit file (development)",
        description=(
            "Replace one exact text in a UTF-8 file, or every occurrence with replace_all. White "
            "space must match. The rest of the file stays byte for byte the same."
        ),
        toolset="development",
        arguments=EditFileDevArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=fields.result_schema(
            {
                "path": {"type": "string", "description": "The path as it was given."},
                "replacements": fields.INTEGER,
                "bytes_before": fields.INTEGER,
                "bytes_after": fields.INTEGER,
                "version": {"type": "string", "description": "sha256 of the bytes written."},
            }
        ),
    ),
    EditFileDev(),
)


class InsertArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to edit, relative to the workspace root.")
    insert_line: int = fields.needed_integer(
        "Insert after this line; 0 is the beginning of the file."
    )
    insert_text: str = fields.needed_text("The text to insert, as whole lines.", is_content=True)
    if_version: str | None = fields.optional_text(IF_VERSION)


class PatchArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to edit, relative to the workspace root.")
    diff: str = fields.needed_text("The hunks for this file, as a V4A diff.", is_content=True)
    if_version: str | None = fields.optional_text(IF_VERSION)


class InsertText(_EditsOneFile):
    def resolve(self, arguments: InsertArguments, ports: Ports) -> EditPlan:
        text = edit.require_content(arguments.insert_text, "insert_text")
        make = partial(Insertion, given=text, after=arguments.insert_line)
        return self.plan(arguments, ports, make)


class PatchFile(_EditsOneFile):
    def resolve(self, arguments: PatchArguments, ports: Ports) -> EditPlan:
        diff = edit.require_content(arguments.diff, "diff")
        return self.plan(arguments, ports, partial(Patch, given=diff))


INSERT_TEXT: Final = Tool[Any](
    replace(
        STR_REPLACE.spec,
        name="insert_text",
        title="Insert text",
        description="Insert text after a line of a UTF-8 file. No existing byte changes.",
        arguments=InsertArguments,
    ),
    InsertText(),
)
PATCH_FILE: Final = Tool[Any](
    replace(
        STR_REPLACE.spec,
        name="patch_file",
        title="Patch file",
        description="Apply the hunks of a V4A diff to a UTF-8 file: all of them or none.",
        arguments=PatchArguments,
    ),
    PatchFile(),
)
