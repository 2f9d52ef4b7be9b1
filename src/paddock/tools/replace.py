"""Exact replacement in a file's content: what every editing tool does.

A tool brings its own words, so that a message names the argument that the model
sent. Where the places are and what is spliced is `text`'s business.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    AmbiguousMatchError,
    InvalidArgumentsError,
    PathNotFoundError,
    StringNotFoundError,
    TextEncodingError,
    TextUnchangedError,
)
from paddock.text.edit import (
    NearLine,
    Span,
    Spliced,
    find_apart,
    find_nearest,
    find_spans,
    lines_of,
    require_apart,
    require_content,
    require_text,
    snippet_around,
    splice,
    splice_all,
)
from paddock.text.show import quote, show_line, show_name
from paddock.tools.arguments import (
    WORKSPACE_FAILURE,
    ArgumentType,
    flag,
    needed_integer,
    needed_text,
    optional_text,
    plain_text,
    result_schema,
    written_schema,
)
from paddock.tools.effects import IF_VERSION, change_of_doing, pinned_file, telling_what_changed
from paddock.tools.spec import (
    Effects,
    Ports,
    Tool,
    ToolOutput,
    ToolSpec,
    absolute,
    path_actions,
)
from paddock.values.decisions import Action
from paddock.workspace import WritePath
from paddock.workspace.read import Pieces
from paddock.workspace.single import SingleReceipt, edit_file

_WITHOUT_CR = (
    "it stands there with other line ends: write newlines without CR, which match any line end"
)
_COPY_EXACTLY = "view the file and copy the text exactly"


class Wording(Struct, frozen=True):
    """A tool's messages. `{name}` is the file, `{count}` how often, `{lines}` where."""

    not_found: str
    ambiguous: str
    ambiguous_hint: str


class _Edit(Struct):
    name: str
    old: bytes
    new: bytes
    wording: Wording
    may_view: bool

    def require_editable(self, content: bytes) -> None:
        """Raises: TextError unless it is UTF-8, or the edit leaves what is not as it is."""
        try:
            require_text(content, self.name)
        except TextEncodingError:
            if not (self.old.isascii() and self.new.isascii()):
                raise
            spans = find_apart(content, self.old)
            require_apart(content, (span.start for span in spans), self.name)


class Replacement(_Edit):
    """The only place. Afterwards `spliced` says where the new text stands."""

    spliced: Spliced | None = None

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError: no text, no place, several, or nothing would change."""
        self.require_editable(content)
        place = find_only(content, self.old, self.name, self.wording, with_hint=self.may_view)
        self.spliced = splice(content, place, self.old, self.new)
        if self.spliced.changes_nothing:
            raise _unchanged(self.name)
        return self.spliced.pieces


class ReplacementOfAll(_Edit):
    """Every place, from the front and none inside another; afterwards `count` says how many."""

    count: int = 0

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError: no text, no place, too large a result, or nothing would change."""
        self.require_editable(content)
        changed, self.count = splice_all(content, self.old, self.new, limits.edited_file_bytes_max)
        if not self.count:
            raise _not_found(content, self.old, self.name, self.wording, with_hint=self.may_view)
        if changed == content:
            raise _unchanged(self.name)
        return (changed,)


def _unchanged(name: str) -> TextUnchangedError:
    # Two texts that differ in their line ends alone may come to the same in a file of CRLF.
    return TextUnchangedError(
        f"the edit leaves {quote(name)} as it is: it differs in line ends alone, and the "
        "file has those that it asks for",
        where=name,
        hint="there is nothing to change",
    )


def require_change(old: str, new: str, names: tuple[str, str]) -> tuple[bytes, bytes]:
    """`names` are the tool's arguments that hold them. Raises: TextUnchangedError, TextError."""
    if old == new:
        raise TextUnchangedError(
            f"{names[0]} and {names[1]} are the same", hint="there is nothing to change"
        )
    return require_content(old, names[0]), require_content(new, names[1])


def find_only(
    content: bytes, sought: bytes, name: str, wording: Wording, *, with_hint: bool
) -> Span:
    """With `with_hint`, an error shows the nearest lines.

    Raises: StringNotFoundError; AmbiguousMatchError with the count, overlaps included.
    """
    spans = list(islice(find_spans(content, sought), limits.matches_counted_max + 1))
    if len(spans) == 1:
        return spans[0]
    if not spans:
        raise _not_found(content, sought, name, wording, with_hint=with_hint)
    listed = ", ".join(str(line) for line in lines_of(content, spans[: limits.matches_listed_max]))
    found, more = str(len(spans)), str(len(spans) - limits.matches_listed_max)
    if len(spans) > limits.matches_counted_max:
        found, more = f"over {limits.matches_counted_max}", "many"
    tail = f" and {more} more places" if len(spans) > limits.matches_listed_max else ""
    shown = {"name": quote(name), "count": found, "lines": f"{listed}{tail}"}
    raise AmbiguousMatchError(
        wording.ambiguous.format(**shown),
        where=name,
        hint=wording.ambiguous_hint.format(**shown),
    )


def _not_found(
    content: bytes, sought: bytes, name: str, wording: Wording, *, with_hint: bool
) -> StringNotFoundError:
    # Threat: an agent that may edit a file and not view it would read it in the hint.
    hint = _nearest_hint(content, sought) if with_hint else _COPY_EXACTLY
    message = wording.not_found.format(name=quote(name))
    return StringNotFoundError(message, where=name, hint=hint)


def _nearest_hint(content: bytes, sought: bytes) -> str:
    bare = sought.replace(b"\r\n", b"\n")
    if bare != sought and next(find_spans(content, bare), None) is not None:
        return _WITHOUT_CR
    nearest = find_nearest(content, sought)
    if not nearest:
        return _COPY_EXACTLY
    rows = [_near_row(line) for line in nearest]
    return "copy the text exactly; the nearest lines are:\n" + "\n".join(rows)


def _near_row(line: NearLine) -> str:
    text, _ = show_line(line.text[: limits.snippet_line_chars_max])
    cut = " [... cut]" if len(line.text) > limits.snippet_line_chars_max else ""
    end = " [... the file ends here]" if line.is_end else ""
    return f"line {line.number}: {text}{cut}{end}"


class StrReplaceArguments(ArgumentType):
    path: str = needed_text("File to edit, relative to the workspace root.")
    old_str: str = needed_text(
        "The exact text to replace. It must stand in the file exactly once; "
        "a newline matches the file's own line end.",
        is_content=True,
    )
    new_str: str = plain_text("The text to put in its place; empty deletes.", is_content=True)
    if_version: str | None = optional_text(IF_VERSION)


_Make: TypeAlias = Callable[[str, bool], "Replacement | Insertion | Patch"]
"""By the file's name, and whether its content may be shown."""


class EditPlan(Struct, frozen=True):
    path: WritePath
    edit: _Make
    if_version: str | None
    actions: tuple[Action, ...]


_WORDING: Final = Wording(
    not_found="old_str not found in {name}",
    ambiguous="old_str found {count} times in {name}, at lines {lines}",
    ambiguous_hint="include a neighbouring line, so that old_str stands there once",
)


class _EditsOneFile:
    def plan(
        self,
        given: "StrReplaceArguments | InsertArguments | PatchArguments",
        ports: Ports,
        edit: _Make,
    ) -> EditPlan:
        path = ports.workspace.resolve_write(given.path)
        return EditPlan(path, edit, given.if_version, path_actions("file", "str_replace", path))

    def pin(self, plan: EditPlan, ports: Ports) -> tuple[EditPlan, str]:
        found = pinned_file(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: EditPlan, ports: Ports) -> ToolOutput:
        name = plan.path.asked.relative
        # Threat: an agent that may edit a file and not view it would read it in the answer.
        may_view = ports.shown.may_view(plan.path.real.relative)
        edit = plan.edit(name, may_view)
        with telling_what_changed(plan.if_version, plan.path.real, ports):
            receipt = edit_file(ports.workspace, plan.path, edit, if_version=plan.if_version)
        snippet = "[its neighbourhood is not yours to view]"
        if may_view and edit.spliced is not None:
            snippet = snippet_around(edit.spliced)
        said = [f"edited {show_name(name)}", *(f"[{note}]" for note in receipt.notes), snippet]
        details = {
            "path": absolute(ports.workspace, plan.path.asked),
            "action": "edited",
            "content_snippet": snippet,
            "bytes_written": receipt.bytes_written,
            "version": receipt.doing.after,
            "success": True,
            "error": None,
        }
        return ToolOutput(
            "\n".join(said), details, (change_of_doing(receipt.doing),), receipt.bytes_written
        )


class StrReplace(_EditsOneFile):
    """Exactly one match or an error; every byte that is not named stays."""

    def resolve(self, arguments: StrReplaceArguments, ports: Ports) -> EditPlan:
        old, new = require_change(arguments.old_str, arguments.new_str, ("old_str", "new_str"))
        make = partial(Replacement, old=old, new=new, wording=_WORDING)
        return self.plan(arguments, ports, lambda name, may_view: make(name, may_view=may_view))


STR_REPLACE: Final = ToolSpec(
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
    return Tool(STR_REPLACE, StrReplace())


_WORDING_EDIT_FILE_DEV: Final = Wording(
    not_found="old_string not found in file",
    ambiguous=("old_string found {count} times; use replace_all=true or provide more context"),
    ambiguous_hint="it stands in {name} at lines {lines}",
)


class EditFileDevArguments(ArgumentType):
    path: str = needed_text("File to edit, relative to the workspace root.")
    old_string: str = needed_text(
        "The exact text to replace, no pattern; a newline matches the file's own line end.",
        is_content=True,
    )
    new_string: str = plain_text("The text to put in its place; empty deletes.", is_content=True)
    replace_all: bool = flag("Replace every place instead of the only one.", default=False)
    if_version: str | None = optional_text(IF_VERSION)


class EditFileDevPlan(Struct, frozen=True):
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
        found = pinned_file(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def run(self, plan: EditFileDevPlan, ports: Ports) -> ToolOutput:
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
            "version": receipt.doing.after,
        }
        changes = (change_of_doing(receipt.doing),)
        return ToolOutput("\n".join(said), details, changes, receipt.bytes_written)


def _replace(plan: EditFileDevPlan, ports: Ports) -> tuple[SingleReceipt, int]:
    name = plan.path.asked.relative
    # Threat: an agent that may edit a file and not view it would read it in the answer.
    may_view = ports.shown.may_view(plan.path.real.relative)
    workspace, path, version = ports.workspace, plan.path, plan.if_version
    if plan.replace_all:
        everywhere = ReplacementOfAll(
            name, plan.old, plan.new, _WORDING_EDIT_FILE_DEV, may_view=may_view
        )
        receipt = edit_file(workspace, path, everywhere, if_version=version)
        return receipt, everywhere.count
    once = Replacement(name, plan.old, plan.new, _WORDING_EDIT_FILE_DEV, may_view=may_view)
    return edit_file(workspace, path, once, if_version=version), 1


EDIT_FILE_DEV: Final = ToolSpec(
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
    return Tool(EDIT_FILE_DEV, EditFileDev())


# What the tools of providers do besides; see `runtime.native`.


class _BetweenLines(Struct):
    name: str
    given: bytes
    spliced: Spliced | None = None

    def require_editable(self, content: bytes) -> None:
        """Raises: TextError unless it is UTF-8, or what is given is ASCII."""
        try:
            require_text(content, self.name)
        except TextEncodingError:
            if not self.given.isascii():
                raise
            require_apart(content, (), self.name)


class Insertion(_BetweenLines, kw_only=True):
    """What is given, on lines of its own behind line `after`; its newlines become the file's."""

    after: int

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError, InvalidArgumentsError: there are not so many lines."""
        self.require_editable(content)
        total = content.count(b"\n") + (content[-1:] not in (b"", b"\n"))
        if not 0 <= self.after <= total:
            raise InvalidArgumentsError(
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
        self.spliced = splice(content, Span(at, at), b"", text)
        return self.spliced.pieces


class Patch(_BetweenLines):
    """All hunks of a V4A diff, or none."""

    def apply(self, content: bytes) -> Pieces:
        """Raises: TextError, InvalidArgumentsError: no diff, no place, or nothing would change."""
        from paddock.text.v4a import patched_content  # noqa: PLC0415 - for who patches

        self.require_editable(content)
        changed = patched_content(content, self.given)
        if changed == content:
            raise _unchanged(self.name)
        self.spliced = splice(content, Span(0, len(content)), content, changed)
        return self.spliced.pieces


class InsertArguments(ArgumentType):
    path: str = needed_text("File to edit, relative to the workspace root.")
    insert_line: int = needed_integer("The line behind which to insert; 0 is the beginning.")
    insert_text: str = needed_text("The text to insert, on lines of its own.", is_content=True)
    if_version: str | None = optional_text(IF_VERSION)


class PatchArguments(ArgumentType):
    path: str = needed_text("File to edit, relative to the workspace root.")
    diff: str = needed_text("Its hunks, as a V4A diff.", is_content=True)
    if_version: str | None = optional_text(IF_VERSION)


class InsertText(_EditsOneFile):
    def resolve(self, arguments: InsertArguments, ports: Ports) -> EditPlan:
        text, after = require_content(arguments.insert_text, "insert_text"), arguments.insert_line
        return self.plan(arguments, ports, lambda name, _: Insertion(name, text, after=after))


class PatchFile(_EditsOneFile):
    def resolve(self, arguments: PatchArguments, ports: Ports) -> EditPlan:
        diff = require_content(arguments.diff, "diff")
        return self.plan(arguments, ports, lambda name, _: Patch(name, diff))


def _between_lines(base: ToolSpec[Any], arguments: type[Any], **said: str) -> ToolSpec[Any]:
    return replace(base, arguments=arguments, **said)


def insert_text_tool() -> Tool[InsertArguments]:
    said = "Insert text behind a line of a UTF-8 file. Every byte of the file stays."
    told = {"name": "insert_text", "title": "Insert text", "description": said}
    return Tool(_between_lines(STR_REPLACE, InsertArguments, **told), InsertText())


def patch_file_tool() -> Tool[PatchArguments]:
    said = "Apply the hunks of a V4A diff to a UTF-8 file: all of them, or none."
    told = {"name": "patch_file", "title": "Patch file", "description": said}
    return Tool(_between_lines(STR_REPLACE, PatchArguments, **told), PatchFile())
