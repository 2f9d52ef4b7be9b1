"""The `Runtime` of an embedding program: one agent's tools on one workspace."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec.structs import replace

from paddock.errors import PaddockError, UsageError
from paddock.limits import program_bytes_max
from paddock.runtime.dispatch import NO_WATCHER, CallWatcher, Dispatcher, Done, dispatch_all
from paddock.runtime.messages import (
    NATIVE_NAMES,
    Asked,
    Malformed,
    asked_call,
    call_of,
    dialect_of,
    text_of,
)
from paddock.runtime.prepared import FREE, Bounds, Tools
from paddock.storage.locks import Late, call_after_fork
from paddock.values.calls import Cancel, Json, Refusal, ToolCall, ToolResult

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway
    from paddock.runtime.program import EntryList, Executed, LastingShell

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

OnText = Callable[[Literal["stdout", "stderr"], str], None]


class Notices:
    """Notices to a person about a runtime: read by the program, or else logged.

    Those about commands take a moment to compute, and wait for a reader or the first command.
    """

    def __init__(
        self, said: tuple[str, ...], command_notices: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """Without `command_notices` nothing is logged: the interface shows the notices itself."""
        self._said = said
        self._command_notices = Late(command_notices or tuple)
        self._is_read = command_notices is None
        self._is_logged = not said

    def read(self) -> tuple[str, ...]:
        self._is_read = True
        return (*self._said, *self._command_notices.get())

    def log(self) -> None:
        if not self._is_read and not self._is_logged:
            self._is_logged = True
            _log(self._said)

    def log_command_notices(self) -> None:
        if not self._is_read:
            # A notice that cannot be computed must not stop a command.
            with suppress(PaddockError):
                _log(self._command_notices.get())


def _log(said: tuple[str, ...]) -> None:
    if said:
        import logging  # noqa: PLC0415 - rarely needed

        for each in said:
            logging.getLogger("paddock").warning("%s", each)


def _no_servers() -> "McpGateway":
    raise UsageError("this runtime has no gateway to MCP servers")


class Runtime:
    """One agent on one workspace. A context manager; closing releases the workspace.

    `tools` are those of the agent: `tools.for_provider("anthropic")` returns their schemas to
    pass to a model. `call` and `acall` return error results, for a loop; the typed methods raise
    the matching class of `paddock.errors`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        tools: Tools,
        new_id: Callable[[], str],
        close: Callable[[], None],
        notices: Notices | None = None,
        end: Callable[[Callable[[str, Mapping[str, Json]], object]], None] | None = None,
        servers: "Callable[[], McpGateway]" = _no_servers,
        undo: Callable[[str], ToolResult] | None = None,
    ) -> None:
        """`end` stops, by calls, the processes that would outlive this runtime."""
        self.tools = tools
        self._notices = notices or Notices(())
        self.servers = servers
        """Opens the gateway to third-party MCP servers; it starts none."""
        self._dispatcher = dispatcher
        self._new_id = new_id
        self._close = close
        self._end = end
        self._undo = undo
        self._lock = threading.Lock()
        self._running: list[int] = []
        """The thread of each running call."""
        self._is_closed = False
        call_after_fork(self, Runtime._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._running = [thread for thread in self._running if thread == threading.get_ident()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the workspace and the ledgers. Closing twice is harmless.

        Background processes are ended, and their changes are committed. New calls are refused.
        Calls in other threads continue, and the last to end releases all: this does not wait.
        """
        if self._end is not None and not self._is_closed:
            self._end(self.call)
        with self._lock:
            is_last = not self._is_closed and not self._running
            self._is_closed = True
        if is_last:
            self._close()

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices to a person, such as an untrusted policy, a missing wall, or tracked secrets.

        Notices that are unread at the first call, or the first command, are logged as warnings of
        the logger `paddock`.
        """
        return self._notices.read()

    @property
    def is_closed(self) -> bool:
        """True if new calls are refused."""
        return self._is_closed

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        call_id: str | None = None,
        bounds: Bounds = FREE,
        on_output: OnText | None = None,
    ) -> ToolResult:
        """Run one governed call; a refusal is a result.

        `bounds` is for interfaces that can cancel a call, or that know it by another id.
        `on_output` is called with a command's output while it runs: `"stdout"` or `"stderr"`, and
        text as the command printed it, with its control characters. The command waits for it, and
        an exception from it ends the call.

        Raises: UsageError if the runtime is closed, or a name or id is not text;
            IntegrityError if the ledger is damaged. Nothing was changed or shown then.
        """
        identity = text_of("the id of a call", call_id or self._new_id())
        name = text_of("the name of a tool", tool)
        asked = asked_call(identity, name, arguments)
        if on_output is None:
            return self._dispatch(asked, bounds)
        from paddock.sandbox.streams import Decoding  # noqa: PLC0415 - only with `on_output`

        decoding = Decoding(on_output)
        result = self._dispatch(asked, replace(bounds, on_output=decoding))
        decoding.finish()
        return result

    def refuse(self, tool: str, refusal: Refusal, bounds: Bounds = FREE) -> ToolResult:
        """Record and answer a call that the interface could not parse; it does not run."""
        return self._dispatch(Malformed(ToolCall(self._new_id(), tool, {}), refusal), bounds)

    async def acall(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        call_id: str | None = None,
        on_output: OnText | None = None,
    ) -> ToolResult:
        """Run `call` and its `on_output` in a separate thread; cancelling this stops the call.

        CancelledError is raised once the thread has ended: the call has no later effect. What it
        had done by then remains, and is recorded; a command is killed, with every process that it
        started. An approver, or a tool of the embedding program, is waited for.
        """
        return await _awaited(
            lambda cancel: self.call(
                tool, arguments, call_id=call_id, bounds=Bounds(cancel=cancel), on_output=on_output
            )
        )

    def answer(self, provider: str, message: object) -> list[dict[str, Json]]:
        """Run the tool calls of a model's message; return the blocks to send back, in order.

        All are decided before any runs; those that only read run at once. If the message says
        that its turn was cut, refused, or ended for an unknown reason, none runs, and each is
        answered with `call.dropped`.

        Raises: UsageError if the provider is unknown, or the message is not one of its messages.
        """
        return self._answer(provider, message, FREE)

    async def aanswer(self, provider: str, message: object) -> list[dict[str, Json]]:
        """Run `answer` in a separate thread; cancelling this stops its calls, as with `acall`.

        Raises: as `answer`.
        """
        return await _awaited(lambda cancel: self._answer(provider, message, Bounds(cancel=cancel)))

    def _answer(self, provider: str, message: object, bounds: Bounds) -> list[dict[str, Json]]:
        dialect = dialect_of(provider)
        asked = dialect.read(message)
        native = NATIVE_NAMES.get(provider, frozenset())
        if native.isdisjoint(call_of(each).tool for each in asked):
            return dialect.write([each.result for each in self.call_all(asked, bounds)])
        from paddock.runtime.native import NativeTurn  # noqa: PLC0415 - only for native calls

        native = frozenset(name for name in native if not self.tools.has(name))
        turn = NativeTurn(native, asked, self._dispatcher.workspace.names)
        done = self.call_all(turn.asked, bounds)
        return turn.write([each.result for each in done], dialect.write)

    def call_all(
        self, asked: Sequence[Asked], bounds: Bounds = FREE, watcher: CallWatcher = NO_WATCHER
    ) -> list[Done]:
        """Run the calls of one turn: all are decided before any runs; results in order.

        `bounds` are those of the work order; `watcher` observes each call.

        Raises: as `call`.
        """
        with self._running_call():
            return dispatch_all(self._dispatcher, asked, bounds, watcher)

    def _dispatch(self, asked: Asked, bounds: Bounds = FREE) -> ToolResult:
        with self._running_call():
            if isinstance(asked, Malformed):
                return self._dispatcher.refuse(asked.call, asked.refusal, bounds)
            return self._dispatcher.dispatch(asked, bounds)

    # Threat: a file descriptor that is closed during a running call may be another file's when
    # it is used, so the last running call closes them.

    @contextmanager
    def _running_call(self) -> Generator[None]:
        with self._lock:
            if self._is_closed:
                raise UsageError("the runtime was closed", hint="open the workspace again")
            self._running.append(threading.get_ident())
        try:
            self._notices.log()
            yield
        finally:
            with self._lock:
                self._running.remove(threading.get_ident())
                is_last = self._is_closed and not self._running
            if is_last:
                self._close()

    # For the embedding program

    @property
    def root(self) -> str:
        """The directory of the workspace on the host."""
        return self._dispatcher.workspace.root

    def names(self, absolute: str) -> bool:
        """Return True if an absolute path begins with the root, as opened or without symlinks."""
        return self._dispatcher.workspace.names(absolute)

    def undo(self, call_id: str) -> ToolResult:
        """Restore what a call replaced: all of its paths, or none.

        It is the operator's act, as `paddock undo`, and no model can call it. `call_id` is the id
        of any call on the plane's record, or of its ledger entry. The undo has its own id, and can
        be undone.

        Raises: UsageError if no such call changed anything, or several have the id; ToolError, as
            FileChangedError if a file has changed since. Then nothing was changed.
        """
        if self._undo is None:
            raise UsageError("this runtime keeps no history")
        with self._running_call():
            return self._undo(text_of("the id of a call", call_id)).unwrap()

    def read_bytes(self, path: str, *, limit: int = program_bytes_max) -> bytes:
        """Return the whole content of a file.

        The path is relative to the root, or absolute: in the workspace, or where commands of
        the program can read, such as their private /tmp. A command reads the latter.

        Raises: ToolError, as TextTooLargeError if it has over `limit` bytes.
        """
        return self._program.read_bytes(self, path, limit)

    def write_bytes(self, path: str, content: bytes, *, is_new: bool = False) -> ToolResult:
        """Write a whole file, and create its directories; see `read_bytes`.

        Raises: ToolError, as FileChangedError if `is_new` and the path exists.
        """
        return self._program.write_bytes(self, path, content, is_new=is_new)

    def list_entries(self, path: str = ".", *, depth: int = 1) -> "EntryList":
        """List a directory of the workspace, hidden and ignored files too. Raises: ToolError.

        Entries that policy hides from the agent, and the contents of `.git`, are left out.
        """
        return self._program.list_entries(self, path, depth)

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: int | None = None,
        output_limit: int = program_bytes_max,
        on_output: OnText | None = None,
    ) -> "Executed":
        """Run a line of shell, or one literal command, in the program's session.

        Its commands share /tmp and a loopback; no state is kept, and none waits for another.
        `cwd` may be any directory that a command sees. Policy judges `env` with the line.
        Output of a stream beyond `output_limit` bytes is dropped; `on_output` gets all, as in
        `call`.

        Raises: ToolError if it did not run; any exit status is a result.
        """
        return self._program.execute(
            self,
            command,
            stdin=stdin,
            cwd=cwd,
            env=env,
            timeout=timeout,
            output_limit=output_limit,
            on_output=on_output,
        )

    async def aread_bytes(self, path: str, *, limit: int = program_bytes_max) -> bytes:
        """`read_bytes`, as `acall`."""
        return await _awaited(lambda cancel: self._program.read_bytes(self, path, limit, cancel))

    async def awrite_bytes(self, path: str, content: bytes, *, is_new: bool = False) -> ToolResult:
        """`write_bytes`, as `acall`."""
        return await _awaited(
            lambda cancel: self._program.write_bytes(
                self, path, content, is_new=is_new, cancel=cancel
            )
        )

    async def alist_entries(self, path: str = ".", *, depth: int = 1) -> "EntryList":
        """`list_entries`, as `acall`."""
        return await _awaited(lambda _: self._program.list_entries(self, path, depth))

    async def aexec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - the command's
        output_limit: int = program_bytes_max,
        on_output: OnText | None = None,
    ) -> "Executed":
        """`exec`, as `acall`: cancelling this ends the command."""
        return await _awaited(
            lambda cancel: self._program.execute(
                self,
                command,
                stdin=stdin,
                cwd=cwd,
                env=env,
                timeout=timeout,
                output_limit=output_limit,
                on_output=on_output,
                cancel=cancel,
            )
        )

    @property
    def _program(self) -> Any:
        from paddock.runtime import program  # noqa: PLC0415 - few programs need it

        return program

    @overload
    def tool(self, function: Function) -> Function: ...
    @overload
    def tool(
        self, *, permission: str = "", reads_only: bool = False, name: str = ""
    ) -> Callable[[Function], Function]: ...
    def tool(
        self,
        function: Function | None = None,
        *,
        permission: str = "",
        reads_only: bool = False,
        name: str = "",
    ) -> Function | Callable[[Function], Function]:
        """Make a function a tool of this runtime, as a decorator; the function is unchanged.

            @runtime.tool(permission="tool:own:weather", reads_only=True)
            async def weather(city: str, days: Annotated[int, Meta(ge=1, le=7)] = 1) -> Report: ...

        The schema that a model sees comes from the annotations and the docstring, whose section
        `Args:` describes each parameter. `permission` is the action that policy judges, by
        default `tool:own:<name>`. A tool that `reads_only` runs beside others. A first parameter
        of the type `paddock.Context` gets the call's context. The function returns text, a value
        that is written as JSON, or a ToolOutput; if it is async, it is cancelled with its call.

        Raises: ConfigError, which names the parameter that has no schema, and why.
        """

        def add(function: Function) -> Function:
            self.tools.add(function, permission=permission, reads_only=reads_only, name=name)
            return function

        return add if function is None else add(function)

    # Typed methods

    def create_file(self, path: str, content: str, *, if_version: str | None = None) -> ToolResult:
        """Write a whole file. Raises: ToolError."""
        return self._ask(
            "create_file", {"path": path, "content": content, "if_version": if_version}
        )

    def str_replace(
        self, path: str, old_str: str, new_str: str, *, if_version: str | None = None
    ) -> ToolResult:
        """Replace one exact text. Raises: ToolError."""
        return self._ask(
            "str_replace",
            {"path": path, "old_str": old_str, "new_str": new_str, "if_version": if_version},
        )

    def view(self, path: str, *, offset: int | None = None, limit: int | None = None) -> ToolResult:
        """Return numbered lines of a file, or a directory's listing. Raises: ToolError."""
        return self._ask("view", {"path": path, "offset": offset, "limit": limit})

    def ls(self, path: str = ".", *, limit: int | None = None) -> ToolResult:
        """List one directory. Raises: ToolError."""
        return self._ask("ls", {"path": path, "limit": limit})

    def find(self, pattern: str, path: str = ".", *, limit: int | None = None) -> ToolResult:
        """Find files by a glob. Raises: ToolError."""
        return self._ask("find", {"pattern": pattern, "path": path, "limit": limit})

    def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str | None = None,
        ignore_case: bool = False,
        literal: bool = False,
        context: int | None = None,
        limit: int | None = None,
    ) -> ToolResult:
        """Search contents by a regular expression, or a `literal` text. Raises: ToolError."""
        how = {"ignoreCase": ignore_case, "literal": literal, "context": context, "limit": limit}
        return self._ask("grep", {"pattern": pattern, "path": path, "glob": glob, **how})

    def write_output(self, name: str, content: str) -> ToolResult:
        """Write a new file of results, under a free name. Raises: ToolError."""
        return self._ask("write_output", {"name": name, "content": content})

    def move_file(self, path: str, to: str, *, if_version: str | None = None) -> ToolResult:
        """Rename or move a file. Raises: ToolError."""
        return self._ask("move_file", {"path": path, "to": to, "if_version": if_version})

    def delete_file(self, path: str, *, if_version: str | None = None) -> ToolResult:
        """Remove a file. Raises: ToolError."""
        return self._ask("delete_file", {"path": path, "if_version": if_version})

    def run_shell(
        self,
        command: str,
        *,
        cwd: str = ".",
        timeout: int | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        on_output: OnText | None = None,
    ) -> ToolResult:
        """Run one line of shell; `on_output` as in `call`. Raises: ToolError.

        Any exit status is a result: see `details`.
        """
        given = {"command": command, "cwd": cwd, "timeout": timeout, "stdin": stdin or None}
        variables = None if env is None else dict(env)
        return self._ask("run_shell", {**given, "env": variables}, on_output)

    def shell(self, session: str | None = None) -> "LastingShell":
        """Open a session of commands that keep their state; a context manager that ends it.

        Without a name it gets a unique one. Nothing runs yet.
        """
        from paddock.runtime.program import LastingShell  # noqa: PLC0415 - few programs have one

        return LastingShell(self, session or f"python-{self._new_id()}")

    def _ask(
        self, tool: str, arguments: Mapping[str, Json], on_output: OnText | None = None
    ) -> ToolResult:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self.call(tool, given, on_output=on_output).unwrap()


async def _awaited(work: Callable[[Cancel], T]) -> T:
    from paddock.runtime.program import await_thread  # noqa: PLC0415 - only for async programs

    return await await_thread(work)
