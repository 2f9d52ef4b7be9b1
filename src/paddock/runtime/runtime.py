"""What an embedding program holds: one agent's tools on one workspace."""

import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError, ToolError, ToolFailedError, UsageError
from paddock.policy.rules import find_judged_as
from paddock.runtime.dispatch import NOBODY, CallWatcher, Dispatcher, Done, dispatch_all
from paddock.runtime.messages import Asked, Malformed, asked_call, dialect_of, text_of
from paddock.runtime.prepared import FREE, Bounds, Registry
from paddock.storage.locks import call_after_fork
from paddock.text.show import quote
from paddock.tools.spec import Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Cancel, Json, Refusal, ToolCall, ToolResult
from paddock.values.decisions import Action

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway
    from paddock.runtime.lasting import LastingShell

EmbeddedHandler = Callable[[Any], str | ToolOutput]
"""Takes the bound arguments; returns text for the model, or a whole output."""

_HINT: Final = (
    "it is a tool of the program that runs you, and may have done part of it: look before you "
    "call it again"
)


class EmbeddedPlan(Struct, frozen=True):
    arguments: Any
    actions: tuple[Action, ...]


class EmbeddedTool:
    def __init__(self, name: str, handler: EmbeddedHandler) -> None:
        self._actions = (Action("client", name),)
        self._handler = handler

    def resolve(self, arguments: Any, ports: Ports) -> EmbeddedPlan:
        del ports
        return EmbeddedPlan(arguments, self._actions)

    def run(self, plan: EmbeddedPlan, ports: Ports) -> ToolOutput:
        """Call the function. Raises: ToolError, ConfigError, HostError, ToolFailedError."""
        del ports
        try:
            said = cast("object", self._handler(plan.arguments))
        except (ToolError, ConfigError, HostError):
            raise
        except Exception as error:  # The embedding program's code: whatever it raises is its own.
            # Not its text, which may name what no model must see.
            raise self._failed(type(error).__name__) from error
        if isinstance(said, str):
            return ToolOutput(said, {})
        if isinstance(said, ToolOutput) and type(said.content) is str:
            return said
        returned = type(said).__name__
        if isinstance(said, Coroutine):
            said.close()
        raise self._failed(f"its handler returned {returned}, not text")

    def _failed(self, why: str) -> ToolFailedError:
        return ToolFailedError(f"{quote(self._actions[0].operation)} failed: {why}", hint=_HINT)


def embedded_tool(spec: ToolSpec[Any], handler: EmbeddedHandler) -> Tool[Any]:
    name = spec.name
    if not (
        0 < len(name) <= 64
        and name.isascii()
        and name.replace("_", "a").replace("-", "a").isalnum()
    ):
        raise ConfigError(
            f"{quote(name)} is no name for a tool",
            hint="1 to 64 letters, digits, underscores or hyphens",
        )
    if find_judged_as(name):
        # Threat: no rule can name `tool:client:Bash`, for that is not how a client's is judged.
        raise ConfigError(
            f"{quote(name)} is no name for a tool: a client's tool of that name is judged"
            f" as {find_judged_as(name)[0]}",
            hint="give it a name that policy can speak of",
        )
    if has_to_be_awaited(handler):
        raise ConfigError(
            f"the handler of {quote(name)} is async, and nobody awaits it",
            hint="give a plain function: it has the thread of its call, and may wait",
        )
    try:
        return Tool(spec, EmbeddedTool(name, handler))
    except TypeError:
        raise ConfigError(
            f"the argument type of {quote(name)} cannot be used",
            hint="a subclass of ArgumentType, its fields made with needed_text and its kin",
        ) from None


def has_to_be_awaited(function: Callable[..., object]) -> bool:
    """Whether a function of the program, or an object that is called as one, is async."""
    import inspect  # noqa: PLC0415 - for the functions of programs

    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


T = TypeVar("T")

OnText = Callable[[Literal["stdout", "stderr"], str], None]


class Tools:
    __slots__ = ("_registry",)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> Tool[Any]:
        return self._registry.get(name)

    def list_all(self) -> list[Tool[Any]]:
        return self._registry.list_all()

    def for_provider(self, provider: str) -> list[dict[str, Json]]:
        """Schemas for anthropic, openai, openai-responses or mcp. Raises: UsageError."""
        return self._registry.for_provider(provider)

    def register(self, spec: ToolSpec[Any], handler: EmbeddedHandler) -> None:
        """Add a tool of the embedding program; judged as `tool:client:<name>`.

        Raises: ConfigError where the name is taken or unusable.
        """
        self._registry.add(embedded_tool(spec, handler))


def _no_servers() -> "McpGateway":
    raise UsageError("this runtime has no gateway to MCP servers")


class Runtime:
    """One agent on one workspace. A context manager; closing lets go of the workspace.

    `tools` are those of the agent: `tools.for_provider("anthropic")` gives their schemas to
    hand to a model. `call` and `acall` return error results, for a loop; the typed methods raise
    the matching class of `paddock.errors`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: Registry,
        new_id: Callable[[], str],
        close: Callable[[], None],
        notices: tuple[str, ...] = (),
        end: Callable[[Callable[[str, Mapping[str, Json]], object]], None] | None = None,
        servers: "Callable[[], McpGateway]" = _no_servers,
    ) -> None:
        """`end` ends, by calls, what would go on running when this is closed."""
        self.tools = Tools(registry)
        self.servers = servers
        """Opens the gateway to other people's MCP servers; nothing is started."""
        self.notices = notices
        """What a person should be told once, such as what an untrusted policy did not get."""
        self._dispatcher = dispatcher
        self._new_id = new_id
        self._close = close
        self._end = end
        self._lock = threading.Lock()
        self._running: list[int] = []
        """The threads in which a call runs, once for each."""
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
        """Let go of the workspace and the ledgers. Twice is harmless.

        Calls that run in other threads come to their end first; new ones are refused. What runs
        in the background is ended, and what it changed is brought in.
        """
        if self._end is not None and not self._is_closed:
            self._end(self.call)
        with self._lock:
            is_last = not self._is_closed and not self._running
            self._is_closed = True
        if is_last:
            self._close()

    @property
    def is_closed(self) -> bool:
        """Whether new calls are refused."""
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

        `bounds` is for doors that can stop a call, or that know it by another id. `on_output`
        is called with what a command prints while it runs: `"stdout"` or `"stderr"`, and text
        as the command printed it, control characters and all. The command waits for it, and
        what it raises ends the call.

        Raises: UsageError where the runtime is closed, or a name or id is no text;
            IntegrityError where the ledger is damaged. Nothing ran then.
        """
        identity = text_of("the id of a call", call_id or self._new_id())
        name = text_of("the name of a tool", tool)
        asked = asked_call(identity, name, arguments)
        if on_output is None:
            return self._dispatch(asked, bounds)
        from paddock.sandbox.streams import Decoding  # noqa: PLC0415 - for who listens

        decoding = Decoding(on_output)
        result = self._dispatch(asked, replace(bounds, on_output=decoding))
        decoding.finish()
        return result

    def refuse(self, tool: str, refusal: Refusal, bounds: Bounds = FREE) -> ToolResult:
        """Record and answer a call that the door could not even read; it does not run."""
        return self._dispatch(Malformed(ToolCall(self._new_id(), tool, {}), refusal), bounds)

    async def acall(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        call_id: str | None = None,
        on_output: OnText | None = None,
    ) -> ToolResult:
        """`call`, in a thread of its own, and so is `on_output`; who cancels it stops the call.

        The cancellation comes through once the thread has ended: nothing of the call lands
        later. What it had done by then stands, and is on record; a command is killed, with all
        that it started. An approver, or a tool of the embedding program, is waited for.
        """
        return await _awaited(
            lambda cancel: self.call(
                tool, arguments, call_id=call_id, bounds=Bounds(cancel=cancel), on_output=on_output
            )
        )

    def answer(self, provider: str, message: object) -> list[dict[str, Json]]:
        """Run the tool calls of a model's message; the blocks to send back, in order.

        All are decided before any runs; those that only read run at once. Where the message
        says that its turn was cut, refused, or did not end for a known reason, none runs, and
        each is answered with `call.dropped`.

        Raises: UsageError for a provider that is not known, or what is no message of it.
        """
        return self._answer(provider, message, FREE)

    async def aanswer(self, provider: str, message: object) -> list[dict[str, Json]]:
        """`answer`, in a thread of its own; who cancels it stops its calls, as of `acall`.

        Raises: as `answer`.
        """
        return await _awaited(lambda cancel: self._answer(provider, message, Bounds(cancel=cancel)))

    def _answer(self, provider: str, message: object, bounds: Bounds) -> list[dict[str, Json]]:
        dialect = dialect_of(provider)
        done = self.call_all(dialect.read(message), bounds)
        return dialect.write([each.result for each in done])

    def call_all(
        self, asked: Sequence[Asked], bounds: Bounds = FREE, watcher: CallWatcher = NOBODY
    ) -> list[Done]:
        """Run the calls of one turn: all are decided before any runs; results in order.

        `bounds` are those of the work order that asks, `watcher` hears what becomes of
        each call.

        Raises: as `call`.
        """
        self._enter()
        try:
            return dispatch_all(self._dispatcher, asked, bounds, watcher)
        finally:
            self._leave()

    def _dispatch(self, asked: Asked, bounds: Bounds = FREE) -> ToolResult:
        self._enter()
        try:
            if isinstance(asked, Malformed):
                return self._dispatcher.refuse(asked.call, asked.refusal, bounds)
            return self._dispatcher.dispatch(asked, bounds)
        finally:
            self._leave()

    # Threat: descriptors let go under a running call may be another file's before it
    # uses them, so the last call that runs lets go of them.

    def _enter(self) -> None:
        with self._lock:
            if self._is_closed:
                raise UsageError("the runtime was closed", hint="open the workspace anew")
            self._running.append(threading.get_ident())

    def _leave(self) -> None:
        with self._lock:
            self._running.remove(threading.get_ident())
            is_last = self._is_closed and not self._running
        if is_last:
            self._close()

    # Typed methods

    def create_file(self, path: str, content: str, *, if_version: str | None = None) -> ToolResult:
        """Write a whole file. Raises: ToolError."""
        return self._do("create_file", if_version, path=path, content=content)

    def str_replace(
        self, path: str, old_str: str, new_str: str, *, if_version: str | None = None
    ) -> ToolResult:
        """Change one exact text. Raises: ToolError."""
        return self._do("str_replace", if_version, path=path, old_str=old_str, new_str=new_str)

    def view(self, path: str, *, offset: int | None = None, limit: int | None = None) -> ToolResult:
        """Numbered lines of a file, or a directory's listing. Raises: ToolError."""
        window = {"offset": offset, "limit": limit}
        given = {name: value for name, value in window.items() if value is not None}
        return self.call("view", {"path": path, **given}).unwrap()

    def move_file(self, path: str, to: str, *, if_version: str | None = None) -> ToolResult:
        """Give a file another name. Raises: ToolError."""
        return self._do("move_file", if_version, path=path, to=to)

    def delete_file(self, path: str, *, if_version: str | None = None) -> ToolResult:
        """Remove a file. Raises: ToolError."""
        return self._do("delete_file", if_version, path=path)

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
        """Run one line of shell; `on_output` as of `call`. Raises: ToolError.

        Whatever it exits with is a result: see `details`.
        """
        given: dict[str, Json] = {"command": command, "cwd": cwd}
        if stdin:
            given["stdin"] = stdin
        if env is not None:
            given["env"] = dict(env)
        if timeout is not None:
            given["timeout"] = timeout
        return self.call("run_shell", given, on_output=on_output).unwrap()

    def shell(self, session: str | None = None) -> "LastingShell":
        """Open a session of commands that keep their state; a context manager that ends it.

        Without a name it gets one of its own. Nothing runs yet.
        """
        from paddock.runtime.lasting import LastingShell  # noqa: PLC0415 - few programs have one

        return LastingShell(self, session or f"python-{self._new_id()}")

    def _do(self, tool: str, if_version: str | None, **arguments: str) -> ToolResult:
        given = arguments if if_version is None else {**arguments, "if_version": if_version}
        return self.call(tool, given).unwrap()


async def _awaited(work: Callable[[Cancel], T]) -> T:
    # It needs asyncio, which only they have loaded who await.
    from paddock.runtime.awaiting import await_thread  # noqa: PLC0415 - for them alone

    return await await_thread(work)
