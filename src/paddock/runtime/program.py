"""Bytes, commands and shells for an embedding program, dispatched like calls.

`Runtime.read_bytes`, `exec` and `shell`; and awaiting work that runs in a thread.
"""

import contextlib
import contextvars
import posixpath
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    FileChangedError,
    InvalidArgumentsError,
    PathError,
    PathNotAFileError,
    PathNotFoundError,
    TextTooLargeError,
    UsageError,
)
from paddock.providers.failures import CancelToken
from paddock.runtime.messages import text_of
from paddock.runtime.prepared import FREE, Bounds, ForProgram
from paddock.sandbox.streams import Decoding
from paddock.text.show import quote
from paddock.tools.effects import ABSENT
from paddock.tools.outcome import last_words
from paddock.tools.program import EXEC, LIST_ENTRIES, READ_BYTES, WRITE_BYTES, literal_line
from paddock.tools.shell import require_variables
from paddock.tools.spec import Payload, Tool
from paddock.values.calls import NEVER, Cancel, Json, ToolResult
from paddock.values.entries import digest_of

if TYPE_CHECKING:
    from paddock.runtime.runtime import OnText, Runtime

T = TypeVar("T")

_EXIT_DIRECTORY: Final = 91
_EXIT_MISSING: Final = 92
_EXIT_NOT_STARTED: Final = 127
_READ_SCRIPT: Final = f"""if [ -d "$1" ]; then exit {_EXIT_DIRECTORY}; fi
if [ ! -e "$1" ]; then exit {_EXIT_MISSING}; fi
exec head -c "$2" -- "$1"
"""
_EXIT_PRESENT: Final = 93
_WRITE_SCRIPT: Final = f"""if [ -d "$1" ]; then exit {_EXIT_DIRECTORY}; fi
if [ "$3" ] && [ -e "$1" ]; then exit {_EXIT_PRESENT}; fi
mkdir -p -- "$2" && exec cat >"$1"
"""


class Executed(Struct, frozen=True):
    """The exit and the output of a command: what `Runtime.exec` returns."""

    exit_code: int
    """-1 after a timeout, 128 + N for signal N."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    is_cut: bool
    """True if a stream exceeded `output_limit`: only its first bytes are here."""
    result: ToolResult
    """The result as a model would get it: changed files, refusals, notes."""

    @property
    def exit_status(self) -> int:
        """The exit code, or 1 if it is 0 but the command's changes were not committed."""
        return self.exit_code or int(not {"conflict", "pending"}.isdisjoint(self.result.details))

    @property
    def notice(self) -> str:
        """Lines to append to `stderr`: what policy denied the command; usually empty."""
        said = last_words(self.result.details)
        return "".join(f"{line}\n" for line in said if line.encode() != self.stderr)


class ListedEntry(Struct, frozen=True):
    """An entry of a directory: a file, a directory, or a symlink to one in the workspace."""

    path: str
    """Relative to the root."""
    is_directory: bool
    size_bytes: int
    """Size of a file."""


class EntryList(Struct, frozen=True):
    """The entries of a directory: what `Runtime.list_entries` returns."""

    path: str
    """Path of the directory, relative to the root and with symlinks resolved."""
    entries: tuple[ListedEntry, ...]
    """In byte order of their paths."""
    is_cut: bool
    """True if there are more than `limits.program_entries_max`."""


class _Printed:
    def __init__(self, most: int, on_output: "OnText | None") -> None:
        self.decoding = None if on_output is None else Decoding(on_output)
        self.streams = {"stdout": bytearray(), "stderr": bytearray()}
        self.is_cut = False
        self._most = most

    def __call__(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        kept = self.streams[name]
        if self.decoding is not None:
            self.decoding(name, chunk)
        room = self._most - len(kept)
        self.is_cut |= len(chunk) > room
        kept += chunk[:room]


def read_bytes(runtime: "Runtime", path: str, limit: int, cancel: Cancel = NEVER) -> bytes:
    if not _is_outside(runtime, path):
        payload = Payload()
        call_tool(
            runtime, READ_BYTES, {"path": path, "limit": limit}, payload, Bounds(cancel=cancel)
        )
        return payload.taken
    # One byte over the limit, so that an endless file is reported as too large.
    argv = ["sh", "-c", _READ_SCRIPT, "sh", path, str(limit + 1)]
    done = execute(runtime, argv, output_limit=limit, cancel=cancel)
    _require_done(done, path, "read")
    if done.is_cut:
        raise TextTooLargeError(f"{quote(path)} has over {limit} bytes", hint="raise the limit")
    return done.stdout


def write_bytes(
    runtime: "Runtime", path: str, content: bytes, *, is_new: bool = False, cancel: Cancel = NEVER
) -> ToolResult:
    content = _bytes_of("the content", content)
    if not _is_outside(runtime, path):
        given: dict[str, Json] = {"path": path, "version": digest_of(content)}
        if is_new:
            given["if_version"] = ABSENT
        return call_tool(runtime, WRITE_BYTES, given, Payload(content), Bounds(cancel=cancel))
    argv = ["sh", "-c", _WRITE_SCRIPT, "sh", path, posixpath.dirname(path), "new" if is_new else ""]
    done = execute(runtime, argv, stdin=content, cancel=cancel)
    _require_done(done, path, "write")
    return done.result


def list_entries(runtime: "Runtime", path: str, depth: int) -> EntryList:
    given: dict[str, Json] = {"path": path, "depth": depth}
    details = call_tool(runtime, LIST_ENTRIES, given).details
    entries = [
        ListedEntry(each["path"].rstrip("/"), each["type"] == "dir", each.get("size", 0))
        for each in details["entries"]
    ]
    return EntryList(details["path"], tuple(entries), is_cut=bool(details["truncated"]))


def call_tool(
    runtime: "Runtime",
    tool: Tool[Any],
    given: Mapping[str, Json],
    payload: Payload | None = None,
    bounds: Bounds = FREE,
) -> ToolResult:
    """Call a tool for the program, even one that no model has. Raises: ToolError."""
    bounds = replace(bounds, program=ForProgram(tool, payload or Payload()))
    return runtime.call(tool.name, given, bounds=bounds).unwrap()


def execute(
    runtime: "Runtime",
    command: str | Sequence[str],
    *,
    stdin: bytes = b"",
    cwd: str = ".",
    env: Mapping[str, str] | None = None,
    timeout: int | None = None,
    output_limit: int = limits.program_bytes_max,
    on_output: "OnText | None" = None,
    cancel: Cancel = NEVER,
) -> Executed:
    """Run one line, or one literal command. Raises: ToolError."""
    if output_limit < 0:
        raise InvalidArgumentsError(
            f"output_limit is {output_limit}", where="output_limit", hint="give 0 or more bytes"
        )
    env = {name: text_of(f"the variable {name}", value) for name, value in (env or {}).items()}
    require_variables(env)
    line = command if isinstance(command, str) else _literal(command)
    stdin = _bytes_of("stdin", stdin)
    given: dict[str, Json] = {"command": line, "cwd": cwd}
    if env:
        given["env"] = " ".join(env)
    if timeout is not None:
        given["timeout"] = timeout
    if stdin:
        given["stdin"] = digest_of(stdin)
    printed = _Printed(output_limit, on_output)
    bounds = Bounds(cancel=cancel, on_output=printed)
    result = call_tool(runtime, EXEC, given, Payload(stdin, env=tuple(env.items())), bounds)
    if printed.decoding is not None:
        printed.decoding.finish()
    exit_code = int(str(result.details["exit_code"]))
    stderr = bytes(printed.streams["stderr"])
    if exit_code == _EXIT_NOT_STARTED and not stderr:
        # The command printed nothing: the sandbox reports why it did not start.
        stderr = str(result.details["stderr"]).encode()
    return Executed(
        exit_code,
        bytes(printed.streams["stdout"]),
        stderr,
        bool(result.details["timed_out"]),
        printed.is_cut,
        result,
    )


def _is_outside(runtime: "Runtime", path: str) -> bool:
    """Return True if a path is outside the workspace: only a command can reach it."""
    return text_of("the path", path).startswith("/") and not runtime.names(path)


def _bytes_of(what: str, given: object) -> bytes:
    """Return immutable bytes, which no other thread can change. Raises: UsageError."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(cast("bytes", given))
    raise UsageError(f"{what} is {type(given).__name__}, and has to be bytes")


def _literal(argv: Sequence[str]) -> str:
    words = tuple(text_of("a word of the command", word) for word in argv)
    return literal_line(words) if words else ""


def _require_done(done: Executed, path: str, act: str) -> None:
    if done.exit_code == 0:
        return
    if done.exit_code == _EXIT_DIRECTORY:
        raise PathNotAFileError(f"{quote(path)} is a directory", hint="name a file in it")
    if done.exit_code == _EXIT_PRESENT:
        raise FileChangedError(f"{quote(path)} exists now", hint="read it, or use another path")
    if done.exit_code == _EXIT_MISSING:
        raise PathNotFoundError(f"{quote(path)}: no such file", hint="write it first")
    why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise PathError(
        f"cannot {act} {quote(path)}: {why or f'exit code {done.exit_code}'}",
        hint="a command cannot either: use a path of the workspace, or one below /tmp",
    )


class LastingShell(Struct, frozen=True):
    """A shell that keeps its state between commands; leaving it stops what still runs."""

    runtime: "Runtime"
    name: str

    def run(self, command: str, *, on_output: "OnText | None" = None, **more: Json) -> ToolResult:
        """Run one line, as `Runtime.run_shell`. Raises: ToolError."""
        given = {**more, "command": command, "session": self.name}
        return self.runtime.call("run_shell", given, on_output=on_output).unwrap()

    def start(self, command: str, **more: Json) -> "LastingProcess":
        """Start a line in the background (`tty`, `columns`, `rows`). Raises: ToolError."""
        given = {**more, "command": command, "session": self.name, "background": True}
        result = self.runtime.call("run_shell", given).unwrap()
        return LastingProcess(self.runtime, str(result.details["process"]))

    def close(self) -> None:
        """End the shell and commit what its processes changed. Raises: ToolError."""
        try:
            self.runtime.call("shell_stop", {"session": self.name}).unwrap()
        except InvalidArgumentsError:
            # Nothing ever ran in it, or it was not used for an hour.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LastingProcess(Struct, frozen=True):
    """A command in the background: what `LastingShell.start` returns.

    Each method returns a result as a model would get it. Raises: ToolError.
    """

    runtime: "Runtime"
    id: str
    """The name that tools take as `process`."""

    def read(self, *, wait_s: int = 0, offset: int | None = None) -> ToolResult:
        """Return its output since the last read, or from the byte `offset`.

        Without output yet, it waits up to `wait_s` seconds. `details["output"]` is the text.
        """
        more: dict[str, Json] = {} if offset is None else {"offset": offset}
        return self._call("shell_output", wait_s=wait_s, **more)

    def write(self, text: str) -> ToolResult:
        """Send it input."""
        return self._call("shell_input", text=text)

    def sync(self) -> ToolResult:
        """Commit what it has changed so far."""
        return self._call("shell_sync")

    def stop(self) -> ToolResult:
        """End it, and commit what it changed."""
        return self._call("shell_stop")

    def _call(self, tool: str, **more: Json) -> ToolResult:
        return self.runtime.call(tool, {"process": self.id, **more}).unwrap()


async def await_thread(work: Callable[[Cancel], T]) -> T:
    """Run `work` in a separate thread; cancelling this stops it, and waits for its end.

    Then CancelledError is raised, with the failure of `work` as cause.
    """
    import asyncio  # noqa: PLC0415 - only for async programs

    # The loop's threads are few and shared: calls that wait for a person would take them all,
    # also those needed by other calls and by the code that delivers the answer.
    token = CancelToken()
    context = contextvars.copy_context()
    thread = ThreadPoolExecutor(1, thread_name_prefix="paddock-call")
    # No task around it: a loop that ends would cancel it while the thread continues.
    call = partial(context.run, partial(work, token))
    running = asyncio.get_running_loop().run_in_executor(thread, call)
    # The executor accepts no more work, and ends with this call.
    thread.shutdown(wait=False)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        token.cancel()
        # Threat: an abandoned thread would change files after its caller has continued.
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise cancelled from running.exception()
