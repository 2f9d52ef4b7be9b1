"""Bytes and commands for the embedding program: the base of a framework's sandbox.

Like every call they go through policy, approvals, the ledger and undo, as the tools of a
model do. Bytes, which no model sends or sees, pass beside the arguments; the ledger has
their digest.
"""

import errno
import os
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from paddock import errors, limits
from paddock.sandbox.sessions.sessions import PROGRAM
from paddock.sandbox.values import ShellLine
from paddock.text.show import quote, show_name
from paddock.tools import arguments as fields
from paddock.tools.effects import IF_VERSION_OR_ABSENT, written_output
from paddock.tools.listing import ShownEntries, entry_details
from paddock.tools.shell import (
    LineRun,
    ShellPlan,
    require_runnable,
    resolve_directory,
    writes_from,
)
from paddock.tools.spec import (
    READS,
    Effects,
    Payload,
    Ports,
    ReadPlan,
    Tool,
    ToolOutput,
    ToolSpec,
    pinned,
    plan_read,
)
from paddock.tools.write import WholeFilePlan, WritesWholeFile
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import Workspace, WorkspacePath, version_of
from paddock.workspace.failures import converting
from paddock.workspace.listing import list_directory
from paddock.workspace.metadata import status_of
from paddock.workspace.workspace import PASS

_READ: Final = 4
_WRITE: Final = 2
_PASS: Final = 1
_DEPTH_MAX: Final = 1_000
_TOOLSET: Final = "program"


def _payload(ports: Ports) -> Payload:
    if ports.payload is None:
        raise errors.InvalidArgumentsError(
            "only a program can call this", hint="use the other tools"
        )
    return ports.payload


class ReadBytesArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to read.")
    limit: int | None = fields.optional_integer("Maximum size in bytes.", None, minimum=0)


_Reads: TypeAlias = ReadPlan[ReadBytesArguments]


class ReadBytes:
    arguments = ReadBytesArguments

    def resolve(self, arguments: ReadBytesArguments, ports: Ports) -> _Reads:
        _payload(ports)
        return plan_read("file", "view", arguments, ports)

    def pin(self, plan: _Reads, ports: Ports) -> tuple[_Reads, str]:
        found = ports.workspace.version(plan.path.real)
        return replace(plan, version=found), found

    def run(self, plan: _Reads, ports: Ports) -> ToolOutput:
        """Raises: PathError, TextTooLargeError."""
        _require_mode(ports.workspace, plan.path.real, _READ, "read")
        limit = plan.given.limit
        content = ports.workspace.read_all(
            plan.path, limits.program_bytes_max if limit is None else limit
        )
        version = pinned(plan.version, version_of(content), plan.path.real)
        _payload(ports).taken = content
        shown = show_name(plan.path.asked.relative)
        return ToolOutput(f"{len(content)} bytes of {shown}", {"version": version})


class WriteBytesArguments(fields.ArgumentType):
    path: str = fields.needed_text("File to write.")
    version: str = fields.needed_text("Digest of its content.")
    if_version: str | None = fields.optional_text(IF_VERSION_OR_ABSENT)


class WriteBytes(WritesWholeFile):
    arguments = WriteBytesArguments

    def resolve(self, arguments: WriteBytesArguments, ports: Ports) -> WholeFilePlan:
        content = _payload(ports).given
        if version_of(content) != arguments.version:
            raise errors.InvalidArgumentsError(
                "version does not match the content",
                where="version",
                hint="give the digest of the bytes",
            )
        if len(content) > limits.program_bytes_max:
            raise errors.TextTooLargeError(
                f"content has {len(content)} bytes, {limits.program_bytes_max} are allowed",
                hint="write it with a command",
            )
        return self.plan(arguments, content, ports)

    def run(self, plan: WholeFilePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError: the old content is unchanged."""
        _require_mode(ports.workspace, plan.path.real, _WRITE, "write")
        receipt = self.write(plan, ports)
        doing = receipt.doing
        said = f"{doing.kind} {show_name(plan.path.asked.relative)} ({len(plan.content)} bytes)"
        return written_output(receipt, said, {"action": doing.kind, "version": doing.after})


def _require_mode(workspace: Workspace, path: WorkspacePath, bits: int, act: str) -> None:
    """Apply mode bits as for a command's user, even if Paddock runs as root.

    A missing file needs a directory in which it may be created. Raises: PathError.
    """
    for above in path.ancestors:
        if not _has_mode(workspace, above, _PASS, act):
            return
    exists = _has_mode(workspace, path, bits, act)
    if not exists and bits == _WRITE:
        _has_mode(workspace, path.parent, _WRITE | _PASS, act)


def _has_mode(workspace: Workspace, path: WorkspacePath, bits: int, act: str) -> bool:
    """Return True if it exists. Raises: PathError: it does, but its mode forbids the act."""
    try:
        with converting(path, act):
            fd = workspace.open_at(path, PASS)
    except errors.PathNotFoundError:
        return False
    try:
        status = status_of(fd)
    finally:
        os.close(fd)
    is_ours, is_of_group = status.uid == os.geteuid(), status.gid in (os.getegid(), *os.getgroups())
    mode = status.permissions >> (6 if is_ours else 3 if is_of_group else 0)
    with converting(path, act):
        if mode & bits != bits:
            raise OSError(errno.EACCES, "")
    return True


class ListEntriesArguments(fields.ArgumentType):
    path: str = fields.filled_text("Directory to list.", ".")
    depth: int = fields.clamped_integer(
        "How many directory levels to list.", 1, minimum=1, maximum=_DEPTH_MAX
    )


_Lists: TypeAlias = ReadPlan[ListEntriesArguments]


class ListEntries:
    """Lists every visible entry, hidden and ignored ones included; nothing below `.git`."""

    arguments = ListEntriesArguments

    def resolve(self, arguments: ListEntriesArguments, ports: Ports) -> _Lists:
        return plan_read("search", "ls", arguments, ports)

    def run(self, plan: _Lists, ports: Ports) -> ToolOutput:
        """Raises: PathError."""
        most, about = limits.program_entries_max, ShownEntries(ports.shown)
        listing = list_directory(ports.workspace, plan.path, plan.given.depth, most, about)
        found = [entry_details(entry, ports.shown) for entry in listing.entries]
        entries = [entry for entry in found if entry is not None]
        details: dict[str, Json] = {
            "path": plan.path.real.relative,
            "entries": entries,
            "truncated": listing.total > len(listing.entries),
        }
        return ToolOutput(f"{len(entries)} entries", details)


class ExecArguments(fields.ArgumentType):
    command: str = fields.needed_text("The shell line, or one literal command quoted as a line.")
    timeout: int = fields.clamped_integer(
        "Seconds.", limits.shell_timeout_default_s, minimum=1, limit="shell_timeout_s"
    )
    cwd: str = fields.filled_text("Directory of the workspace, or of the sandbox.", ".")
    stdin: str = fields.filled_text("Digest of its standard input.", "none")
    env: str = fields.filled_text("Names of its additional variables.", "none")


class Exec(LineRun):
    """Runs a command in the program's session, which keeps no state but /tmp."""

    arguments = ExecArguments

    def resolve(self, arguments: ExecArguments, ports: Ports) -> ShellPlan:
        """Raises: InvalidArgumentsError, PathError (the directory)."""
        require_runnable(arguments.command, limits.program_command_bytes_max)
        cwd = _directory(arguments.cwd, ports)
        payload = _payload(ports)
        line = ShellLine(
            arguments.command,
            cwd,
            arguments.timeout,
            stdin=payload.given,
            env=payload.env,
            session=PROGRAM,
        )
        writes = () if cwd.startswith("/") else writes_from(line)
        # Policy judges the names of the variables. Threat: the ledger would hold their values.
        names = "".join(f"export {name}='(not shown)'\n" for name, _ in payload.env)
        return ShellPlan(line, (Action("shell", "run", names + line.text), *writes))


def _directory(cwd: str, ports: Ports) -> str:
    if not cwd.startswith("/") or ports.workspace.names(cwd):
        return resolve_directory(cwd, ports)
    if "\0" in cwd:
        raise errors.PathNotADirectoryError(
            f"cwd is not a directory: {quote(cwd)}", where="cwd", hint="paths cannot hold NUL"
        )
    # Outside the workspace, the sandbox decides which paths of the host exist.
    return os.path.normpath(cwd)


def literal_line(argv: "tuple[str, ...]") -> str:
    """Return the line that runs this program with exactly these words, all quoted."""
    return "exec -- " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


_WRITES: Final = Effects(reads_only=False, is_destructive=True)


def _tool(name: str, title: str, does: str, effects: Effects, handler: Any) -> Tool[Any]:
    arguments = handler.arguments
    return Tool(
        ToolSpec(name, title, f"{does}, for a program.", _TOOLSET, arguments, effects), handler
    )


READ_BYTES: Final = _tool("read_bytes", "Read bytes", "Read a whole file", READS, ReadBytes())
WRITE_BYTES: Final = _tool(
    "write_bytes",
    "Write bytes",
    "Write a whole file",
    replace(_WRITES, is_idempotent=True),
    WriteBytes(),
)
LIST_ENTRIES: Final = _tool(
    "list_entries", "List entries", "List a directory", READS, ListEntries()
)
EXEC: Final = _tool("exec", "Run command", "Run one command", _WRITES, Exec())
