"""Write whole files; `move_file` and `delete_file` for files, empty directories and links."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.text.changes import unified_diff
from paddock.text.edit import require_content, snippet_of_head
from paddock.text.show import name_notices, quote, show_name
from paddock.tools import arguments as fields
from paddock.tools.effects import (
    ABSENT,
    IF_VERSION,
    IF_VERSION_OR_ABSENT,
    change_of_doing,
    explaining_change,
    pinned_version,
    plain_version,
    refusal_of_presence,
    written_output,
)
from paddock.tools.spec import (
    Effects,
    Ports,
    Tool,
    ToolOutput,
    ToolSpec,
    absolute,
    path_actions,
    pinned,
    workspace_details,
)
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, EntryVersion, Workspace, WritePath, version_of
from paddock.workspace.changes import Absent, AtVersion
from paddock.workspace.single_change import (
    SingleReceipt,
    delete_entry,
    entry_version,
    move_entry,
    write_file,
)


class WholeFilePlan(Struct, frozen=True):
    given: Any
    path: WritePath
    content: bytes
    if_version: str | None
    actions: tuple[Action, ...]


class WritesWholeFile:
    """Writes a whole file; a replaced file's mode and owner are kept."""

    def plan(self, given: Any, content: bytes, ports: Ports) -> WholeFilePlan:
        path = ports.workspace.resolve_write(given.path)
        actions = path_actions("file", "create", path)
        return WholeFilePlan(given, path, content, given.if_version, actions)

    def pin(self, plan: WholeFilePlan, ports: Ports) -> tuple[WholeFilePlan, str]:
        found = pinned_version(plan.if_version, plan.path, ports)
        return replace(plan, if_version=found), found

    def write(
        self, plan: WholeFilePlan, ports: Ports, *, create_parents: bool = True
    ) -> SingleReceipt:
        """Raises: ToolError: the old content is unchanged. FileChangedError has a diff."""
        version = plan.if_version
        # None: two concurrent writers of one path both succeed, one after the other.
        old = None if version is None else Absent() if version == ABSENT else AtVersion(version)
        workspace, path, content = ports.workspace, plan.path, plan.content
        with explaining_change(version, path.real, ports):
            try:
                return write_file(workspace, path, content, old=old, create_parents=create_parents)
            except errors.PathExistsError:
                if version != ABSENT:
                    raise
                raise refusal_of_presence(path, ports) from None


class CreateFileArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to write, relative to the workspace root.")
    content: str = fields.plain_text("The whole text of the file.", is_content=True)
    if_version: str | None = fields.optional_text(IF_VERSION_OR_ABSENT)


class CreateFile(WritesWholeFile):
    def resolve(self, arguments: CreateFileArguments, ports: Ports) -> WholeFilePlan:
        return self.plan(arguments, require_content(arguments.content, "content"), ports)

    def run(self, plan: WholeFilePlan, ports: Ports) -> ToolOutput:
        before = _read_before(ports, plan)
        receipt = self.write(plan, ports)
        snippet, action = _snippet(plan, receipt, before), receipt.doing.kind
        details = workspace_details(
            ports,
            plan.path.asked,
            action,
            content_snippet=snippet,
            bytes_written=receipt.bytes_written,
            version=receipt.doing.after,
        )
        said = f"{action} {show_name(plan.path.asked.relative)} ({len(plan.content)} bytes)"
        return written_output(receipt, said, details, *filter(None, [snippet]))


def _read_before(ports: Ports, plan: WholeFilePlan) -> bytes | None:
    """Return the old content for the diff; None if no diff can be shown."""
    # Threat: an agent that may write a file but not view it would read it in the diff.
    if not plan.path.exists or not ports.shown.may_view(plan.path.real.relative):
        return None
    try:
        return ports.workspace.read_all(plan.path.real, ports.limits.view_bytes_max)
    except errors.ToolError:
        return None


def _snippet(plan: WholeFilePlan, receipt: SingleReceipt, before: bytes | None) -> str:
    if receipt.doing.before is None:
        return snippet_of_head(plan.content)
    # Show only a diff against the content that was really replaced.
    if before is None or version_of(before) != receipt.doing.before:
        return "[no diff: the replaced content is too large or not text, or you may not view it]"
    if before == plan.content:
        return "[the new content is the same as the old]"
    return unified_diff(before, plan.content, show_name(plan.path.asked.relative))


CREATE_FILE: Final = Tool(
    ToolSpec(
        name="create_file",
        title="Create file",
        description=(
            "Write a whole UTF-8 text file and create missing parent directories. An existing "
            "file is overwritten. The write is atomic: on failure the old content remains."
        ),
        toolset="workspace",
        arguments=CreateFileArguments,
        effects=Effects(reads_only=False, is_destructive=True, is_idempotent=True),
        output_schema=fields.written_schema(["created", "overwritten"]),
        failure_details=fields.WORKSPACE_FAILURE,
    ),
    CreateFile(),
)


class WriteFileDevArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to write, relative to the workspace root.")
    content: str = fields.plain_text("The whole text of the file.", is_content=True)
    create_dirs: bool = fields.flag("Create missing parent directories.", default=False)
    if_version: str | None = fields.optional_text(IF_VERSION_OR_ABSENT)


class WriteFileDev(WritesWholeFile):
    def resolve(self, arguments: WriteFileDevArguments, ports: Ports) -> WholeFilePlan:
        content = require_content(arguments.content, "content")
        if len(content) > limits.dev_content_bytes_max:
            raise errors.TextTooLargeError(
                "content exceeds 1MB limit",
                hint=f"it has {len(content)} bytes, {limits.dev_content_bytes_max} are allowed",
            )
        return self.plan(arguments, content, ports)

    def run(self, plan: WholeFilePlan, ports: Ports) -> ToolOutput:
        name = plan.path.asked.relative
        try:
            receipt = self.write(plan, ports, create_parents=plan.given.create_dirs)
        except errors.PathNotFoundError:
            raise errors.PathNotFoundError(
                f"the directory of {quote(name)} does not exist",
                hint="use create_dirs=true, or another path",
            ) from None
        details = {
            "path": plan.given.path,
            "bytes_written": receipt.bytes_written,
            "created_dirs": bool(receipt.doing.made),
            "version": receipt.doing.after,
        }
        said = f"{receipt.doing.kind} {show_name(name)} ({receipt.bytes_written} bytes)"
        return written_output(receipt, said, details)


WRITE_FILE_DEV: Final = Tool(
    ToolSpec(
        name="write_file_dev",
        title="Write file (development)",
        description=(
            "Write a whole UTF-8 text file of at most 1 MB. An existing file is overwritten. "
            "The write is atomic: on failure the old content remains."
        ),
        toolset="development",
        arguments=WriteFileDevArguments,
        effects=Effects(reads_only=False, is_destructive=True, is_idempotent=True),
        output_schema=fields.result_schema(
            {
                "path": {"type": "string", "description": "The path as it was given."},
                "bytes_written": {"type": "integer", "description": "UTF-8 bytes."},
                "created_dirs": {"type": "boolean", "description": "Directories were created."},
                "version": {"type": "string", "description": "sha256 of the bytes written."},
            }
        ),
    ),
    WriteFileDev(),
)


_FOLDER: Final = "outputs"
_SUFFIX: Final = ".md"
# So that the last number fits too.
_NAME_BYTES_MAX: Final = (
    limits.name_bytes_max - len(f" ({limits.outputs_numbered_max})") - len(_SUFFIX)
)


class WriteOutputArguments(fields.ArgumentType):
    name: str = fields.needed_text(
        "File name without directory and without .md; if it is taken, a number is added."
    )
    content: str = fields.plain_text("The whole text of the file.", is_content=True)


class WriteOutputPlan(Struct, frozen=True):
    name: str
    number: int
    content: bytes
    actions: tuple[Action, ...]


class WriteOutput:
    """Writes a new file; concurrent writers of one name, in any process, get different files."""

    def resolve(self, arguments: WriteOutputArguments, ports: Ports) -> WriteOutputPlan:
        name = arguments.name
        _require_name(name)
        content = require_content(arguments.content, "content")
        number = _first_free(ports.workspace, name, 0)
        # If no name is free, the last one is judged: a policy refusal comes first.
        numbers_last = limits.outputs_numbered_max
        action = _action(name, min(number, numbers_last))
        return WriteOutputPlan(name, number, content, (action,))

    def run(self, plan: WriteOutputPlan, ports: Ports) -> ToolOutput:
        number = plan.number
        while number <= limits.outputs_numbered_max:
            # Threat: another writer takes the judged name, and policy has not judged
            # the next one.
            if number != plan.number and not ports.shown.allows(_action(plan.name, number)):
                raise errors.PathExistsError(
                    f"another writer took {quote(_path(plan.name, plan.number))} meanwhile, and "
                    "the next free name needs a separate decision",
                    hint="call again",
                )
            receipt = _write_new(ports.workspace, _path(plan.name, number), plan.content)
            if receipt is not None:
                return _written(receipt)
            number = _first_free(ports.workspace, plan.name, number + 1)
        raise errors.PathExistsError(
            f"{quote(_path(plan.name, 0))} exists, and so do its "
            f"{limits.outputs_numbered_max} numbered names",
            hint="choose another name",
        )


def _require_name(name: str) -> None:
    """Refuse a name of several path components, or one that would end in .md twice."""
    problem = ""
    if "/" in name or "\\" in name:
        problem = "has a slash or a backslash"
    elif name in {".", ".."}:
        problem = "names a directory"
    elif name.lower().endswith(_SUFFIX):
        problem = "ends in .md, which is added"
    elif len(name.encode()) > _NAME_BYTES_MAX:
        problem = f"is over {_NAME_BYTES_MAX} bytes"
    if problem:
        raise errors.InvalidArgumentsError(
            f"name {quote(name)} {problem}", where="name", hint="give a plain name, such as report"
        )


def _path(name: str, number: int) -> str:
    numbered = f"{name} ({number})" if number else name
    return f"{_FOLDER}/{numbered}{_SUFFIX}"


def _action(name: str, number: int) -> Action:
    return Action("output", "write", _path(name, number))


def _first_free(workspace: Workspace, name: str, number: int) -> int:
    """Return the first number from `number` with a free name; one over the last if none is."""
    while number <= limits.outputs_numbered_max:
        # The entry itself: a dangling symlink also takes the name.
        if not workspace.resolve_entry(_path(name, number)).exists:
            break
        number += 1
    return number


def _write_new(workspace: Workspace, path: str, content: bytes) -> SingleReceipt | None:
    """Create a file; return None if the name was taken meanwhile."""
    entry = workspace.resolve_entry(path)
    if entry.exists:
        return None
    # Not resolve_write, which would follow a symlink created meanwhile.
    place = WritePath(entry.path, entry.path, exists=False)
    try:
        return write_file(workspace, place, content, old=Absent())
    except errors.PathExistsError:
        return None


def _written(receipt: SingleReceipt) -> ToolOutput:
    path, size = receipt.doing.path, receipt.bytes_written
    shown = show_name(path)
    rows = [f"Wrote {shown} ({size} bytes). Use the path {shown} to read it back."]
    rows += [f"[{note}]" for note in name_notices([path])]
    details = {"path": path, "bytes_written": size, "version": receipt.doing.after}
    return written_output(receipt, "\n".join(rows), details)


WRITE_OUTPUT: Final = Tool(
    ToolSpec(
        name="write_output",
        title="Write output",
        description=(
            f"Write a result for people to {_FOLDER}/NAME.md. Nothing is ever overwritten: if the "
            "name is taken, a number is added. The result has the path for reading it back."
        ),
        toolset="output",
        arguments=WriteOutputArguments,
        effects=Effects(reads_only=False),
        output_schema=fields.result_schema(
            {
                "path": {"type": "string", "description": "Relative to the workspace root."},
                "bytes_written": fields.INTEGER,
                "version": {"type": "string", "description": "sha256 of the bytes written."},
            }
        ),
    ),
    WriteOutput(),
)


class EntryPlan(Struct, frozen=True):
    entry: EntryPath
    if_version: str | EntryVersion | None
    actions: tuple[Action, ...]
    to: WritePath | None = None  # the new path; None: delete


class _ChangesEntry:
    """Changes the entry itself, never a symlink's target."""

    def pin(self, plan: EntryPlan, ports: Ports) -> tuple[EntryPlan, str]:
        with explaining_change(plan.if_version, plan.entry.path, ports):
            found = entry_version(ports.workspace, plan.entry)
            pinned(plain_version(plan.if_version), found.version, plan.entry.path)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: EntryPlan, ports: Ports) -> ToolOutput:
        entry, to, version = plan.entry, plan.to, plan.if_version
        with explaining_change(version, entry.path, ports):
            if to is None:
                receipt = delete_entry(ports.workspace, entry, if_version=version)
            else:
                receipt = move_entry(ports.workspace, entry, to, if_version=version)
        action, name = receipt.doing.kind, show_name(entry.path.relative)
        said, own = f"{action} {name}", {}
        if to is not None:
            said = f"{said} to {show_name(to.real.relative)}"
            own = {"to": absolute(ports.workspace, to.real)}
        details = workspace_details(ports, entry.path, action, **own)
        return ToolOutput(said, details, (change_of_doing(receipt.doing),))


class MoveFileArguments(fields.ArgumentType):
    path: str = fields.needed_text("Path to move, relative to the workspace root.")
    to: str = fields.needed_text("New path, relative to the workspace root; it must not exist.")
    if_version: str | None = fields.optional_text(IF_VERSION)


def _disclosing_actions(entry: EntryPath, to: WritePath, ports: Ports) -> tuple[Action, ...]:
    """Return the action of viewing the file, if moving it makes it viewable.

    Threat: an agent that may delete and create but not view would read by moving.
    """
    source, target = entry.path.relative, to.real.relative
    if not ports.shown.may_view(source) and ports.shown.may_view(target):
        return (Action("file", "view", source),)
    return ()


class MoveFile(_ChangesEntry):
    def resolve(self, arguments: MoveFileArguments, ports: Ports) -> EntryPlan:
        entry = ports.workspace.resolve_entry(arguments.path)
        to = ports.workspace.resolve_write(arguments.to)
        actions = (
            Action("file", "delete", entry.path.relative),
            *path_actions("file", "create", to),
            *_disclosing_actions(entry, to, ports),
        )
        return EntryPlan(entry, arguments.if_version, actions, to)


MOVE_FILE: Final = Tool(
    ToolSpec(
        name="move_file",
        title="Move file",
        description=(
            "Move or rename a file, an empty directory or a symlink (the link itself). Missing "
            "parent directories are created. Nothing is ever overwritten."
        ),
        toolset="workspace",
        arguments=MoveFileArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=fields.workspace_schema(["moved"], {"to": {"type": "string"}}),
        failure_details=fields.WORKSPACE_FAILURE,
    ),
    MoveFile(),
)


class DeleteFileArguments(fields.ArgumentType):
    path: str = fields.needed_text("Path to delete, relative to the workspace root.")
    if_version: str | None = fields.optional_text(IF_VERSION)


class DeleteFile(_ChangesEntry):
    def resolve(self, arguments: DeleteFileArguments, ports: Ports) -> EntryPlan:
        entry = ports.workspace.resolve_entry(arguments.path)
        actions = (Action("file", "delete", entry.path.relative),)
        return EntryPlan(entry, arguments.if_version, actions)


DELETE_FILE: Final = Tool(
    ToolSpec(
        name="delete_file",
        title="Delete file",
        description=(
            "Delete a file, an empty directory or a symlink (the link itself, not its target)."
        ),
        toolset="workspace",
        arguments=DeleteFileArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=fields.workspace_schema(["deleted"], {}),
        failure_details=fields.WORKSPACE_FAILURE,
    ),
    DeleteFile(),
)
