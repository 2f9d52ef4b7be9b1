"""Make tools of the embedding program's functions, dispatched like Paddock's own.

A function's signature and docstring become the tool's argument type, and with it the
schema that a model sees and the binder that checks its arguments. A parameter that a
schema cannot describe is an error at registration, not at the call.
"""

import contextlib
import contextvars
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec import inspect as kinds
from msgspec.json import decode, encode

from paddock.errors import ConfigError, HostError, ToolError, ToolFailedError, UsageError
from paddock.pattern import lazy_pattern
from paddock.policy.rules import find_judged_as, parse_action
from paddock.text.show import quote
from paddock.tools.arguments import Argument, ArgumentType, as_model, from_model, made_type
from paddock.tools.spec import (
    Effects,
    GivenPlan,
    Ports,
    StoppedCallError,
    Tool,
    ToolOutput,
    ToolSpec,
)
from paddock.values.calls import Cancel, LeftEffect
from paddock.values.decisions import Action

Handler = Callable[..., Any]
"""Returns text for the model, a value that is written as JSON, or a complete ToolOutput."""

TOOLSET: Final = "own"
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_HINT_TYPES: Final = (
    "text, numbers, bool, Literal, Enum, list, dict, dataclass, TypedDict, a model of msgspec or "
    "pydantic, or a union of these"
)
_PYDANTIC: Final = frozenset({"pydantic", "annotated_types"})
_HINT_FAILED: Final = (
    "it is a tool of the program that runs you, and may have done part of its work: check before "
    "you call it again"
)


class CallContext(Struct, frozen=True):
    """The call that a program's tool runs for: its first parameter, if it declares one."""

    agent: str
    call_id: str
    workspace: Path
    """The root of the agent's workspace."""
    _ports: Ports

    @property
    def is_cancelled(self) -> bool:
        """True once the caller no longer waits for the answer; an async function is cancelled."""
        return self._ports.cancel.is_cancelled

    def progress(self, said: str) -> None:
        """Send one line to `on_output`, or to an MCP client as progress."""
        if self._ports.on_output is not None:
            self._ports.on_output("stdout", f"{said}\n".encode("utf-8", "replace"))


class OwnTool:
    """One function. `call` passes it the context and the bound arguments as it expects them."""

    def __init__(
        self, name: str, action: Action, call: Callable[[CallContext, Any], Any], effect: LeftEffect
    ) -> None:
        self._name = name
        self._actions = (action,)
        self._call = call
        self._effect = effect
        """The effect to report for a call that was stopped half-way."""
        self.heads = ((action.category, action.operation),)

    def resolve(self, arguments: Any, ports: Ports) -> GivenPlan[Any]:
        del ports
        return GivenPlan(arguments, self._actions)

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Call the function. Raises: ToolError, ConfigError, HostError, ToolFailedError."""
        context = CallContext(ports.agent, ports.call_id, Path(ports.workspace.root), ports)
        try:
            said = self._call(context, plan.given)
            if isinstance(said, Coroutine):
                said = _run(cast("Coroutine[Any, Any, Any]", said), ports.cancel, self._effect)
        except (ToolError, ConfigError, HostError):
            raise
        except Exception as error:  # The embedding program's code may raise anything.
            # Not its text, which may hold what no model must see.
            raise self._failed(type(error).__name__) from error
        return self._output(said)

    def _output(self, said: object) -> ToolOutput:
        if isinstance(said, str):
            return ToolOutput(said, {})
        if isinstance(said, ToolOutput):
            if type(said.content) is str:
                return said
            raise self._failed("the content that its handler returned is not text")
        try:
            source = encode(said, enc_hook=as_model)
            return ToolOutput(source.decode(), {"value": decode(source)})
        except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
            returned = type(said).__name__
            why = f"its handler returned {returned}, which is neither text nor JSON"
            raise self._failed(why) from error

    def _failed(self, why: str) -> ToolFailedError:
        return ToolFailedError(f"{quote(self._name)} failed: {why}", hint=_HINT_FAILED)


def _run(work: Coroutine[Any, Any, Any], cancel: Cancel, effect: LeftEffect) -> Any:
    """Run the coroutine in the call's thread, in a new loop; it is cancelled with the call."""
    import asyncio  # noqa: PLC0415 - a program that has such a tool has loaded it

    async def watched() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)

        def stop() -> None:
            with contextlib.suppress(RuntimeError):  # The task and its loop have ended.
                loop.call_soon_threadsafe(task.cancel)

        forget = cancel.on_cancel(stop)
        try:
            return await task
        except asyncio.CancelledError as error:
            if cancel.is_cancelled:
                raise StoppedCallError(effect) from error
            outer = asyncio.current_task()
            if outer is not None and outer.cancelling():
                raise  # An interrupt.
            raise RuntimeError("it cancelled itself") from error
        finally:
            forget()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(watched())
    # The caller's loop waits here, and loops cannot nest.
    with ThreadPoolExecutor(1, thread_name_prefix="paddock-tool") as thread:
        context = contextvars.copy_context()
        return thread.submit(context.run, asyncio.run, watched()).result()


def registered_tool(spec: ToolSpec[Any], handler: Handler) -> Tool[Any]:
    """Return the tool of a spec that the program wrote. Raises: ConfigError."""
    name = _checked_name(spec.name)
    if find_judged_as(name):
        # Threat: no rule could name `tool:client:Bash`, as a client's Bash is judged differently.
        raise ConfigError(
            f"invalid tool name {quote(name)}: a client's tool of that name is judged"
            f" as {find_judged_as(name)[0]}",
            hint="give it a name that policy can refer to",
        )
    return _make_tool(spec, Action("client", name), lambda _, arguments: handler(arguments))


def _make_tool(
    spec: ToolSpec[Any], action: Action, call: Callable[[CallContext, Any], Any]
) -> Tool[Any]:
    effect = LeftEffect.NONE if spec.effects.reads_only else LeftEffect.UNKNOWN
    try:
        return Tool(spec, OwnTool(spec.name, action, call, effect))
    except TypeError:
        raise ConfigError(
            f"the argument type of {quote(spec.name)} cannot be used",
            hint="a subclass of ArgumentType, its fields made with needed_text and similar",
        ) from None


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        hint = "1 to 64 letters, digits, underscores or hyphens"
        raise ConfigError(f"invalid tool name {quote(name)}", hint=hint)
    return name


def has_to_be_awaited(function: Callable[..., object]) -> bool:
    """Return True if a function of the program, or a callable object, is async."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def function_tool(
    function: Handler, *, name: str = "", permission: str = "", reads_only: bool = False
) -> Tool[Any]:
    """Return the tool of a function, by its signature and docstring. Raises: ConfigError."""
    inner = getattr(function, "func", function)
    name = _checked_name(name or getattr(inner, "__name__", type(inner).__name__))
    try:
        action = parse_action(permission or f"tool:own:{name}")
    except UsageError as error:
        raise ConfigError(error.message, where=f"permission of {name}", hint=error.hint) from error
    reader = _Reader(function, name)
    takes_context, arguments = reader.arguments()

    def call(context: CallContext, bound: Any) -> Any:
        given = {each: getattr(bound, each) for each in arguments}
        return function(context, **given) if takes_context else function(**given)

    spec = ToolSpec(
        name=name,
        title=name.replace("_", " ").replace("-", " ").strip().capitalize() or name,
        description=reader.text,
        toolset=TOOLSET,
        arguments=reader.argument_type(arguments),
        # Nothing more is known about it; these are also MCP's defaults.
        effects=Effects(reads_only, is_destructive=not reads_only, is_open_world=True),
    )
    return _make_tool(spec, action, call)


class _Reader:
    """Reads one function. Raises ConfigError, which names the parameter it cannot use."""

    def __init__(self, function: Handler, name: str) -> None:
        self._function = function
        self._inner = inspect.unwrap(getattr(function, "func", function))
        self._name = name
        self.text, self._described = read_docstring(inspect.getdoc(self._inner) or "")
        if not self.text:
            raise self._problem("", "it has no docstring", "describe in one what the tool does")
        if inspect.isgeneratorfunction(self._inner) or inspect.isasyncgenfunction(self._inner):
            raise self._problem("", "it yields", "return a list")

    def arguments(self) -> tuple[bool, dict[str, Argument]]:
        """Return True if it takes a context, and its arguments by name."""
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except ValueError as error:
            raise self._problem("", f"it has no signature: {error}") from None
        hints = [self._hint(each) for each in parameters]
        takes_context = hints[:1] == [CallContext]
        own = list(zip(parameters, hints, strict=True))[takes_context:]
        names = [parameter.name for parameter, _ in own]
        for name in self._described:
            if name not in names:
                why = "its docstring describes it, but the function does not have it"
                raise self._problem(name, why, f"the parameters: {', '.join(names) or 'none'}")
        return takes_context, {each.name: self._argument(each, hint) for each, hint in own}

    def argument_type(self, arguments: dict[str, Argument]) -> type[ArgumentType]:
        title = "".join(part.capitalize() for part in self._name.split("_"))
        try:
            return made_type(f"{title}Arguments", arguments)
        except TypeError as error:  # Each argument is valid, and all together are not.
            raise self._problem("", str(error)) from None

    def _hint(self, parameter: inspect.Parameter) -> Any:
        name, raw = parameter.name, parameter.annotation
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise self._problem(name, "it takes any number of arguments", "name each one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise self._problem(name, "it is positional-only", "remove the /")
        if raw is parameter.empty:
            raise self._problem(name, "it has no annotation", f"annotate it, as in {name}: str")
        call = self._inner if hasattr(self._inner, "__globals__") else type(self._inner).__call__
        stub = SimpleNamespace(__annotations__={name: raw})
        try:
            known = getattr(call, "__globals__", {})
            return typing.get_type_hints(stub, known, include_extras=True)[name]
        except Exception as error:  # The program's expression may raise anything.
            why = f"its annotation {quote(str(raw))} cannot be read: {error}"
            raise self._problem(name, why, "name a type that its module has") from error

    def _argument(self, parameter: inspect.Parameter, hint: Any) -> Argument:
        name = parameter.name
        if hint is CallContext:
            raise self._problem(name, "a Context has to be the first parameter", "move it")
        if hasattr(ArgumentType, name):
            raise self._problem(name, "its name is reserved", "give it another")
        default = ... if parameter.default is parameter.empty else parameter.default
        argument = Argument(hint, self._described.get(name, ""), default)
        for each in _unused_constraints(hint):
            why = f"{quote(str(each))} would not be applied to its values"
            raise self._problem(name, why, "give a limit or a description with msgspec.Meta")
        try:
            for why in _schema_gaps(kinds.type_info(hint), set()):
                raise self._problem(name, why)
            if not argument.is_required:
                self._check_default(name, argument)
            made_type("Probe", {name: argument})
        except (AttributeError, NameError, NotImplementedError, TypeError, ValueError) as error:
            # The last line names the type; those before it are for library authors. A framework's
            # class may name what only its type checker knows.
            said = str(error).strip().splitlines()[-1]
            raise self._problem(name, f"its type has no schema: {said}") from None
        return argument

    def _check_default(self, name: str, argument: Argument) -> None:
        said = quote(str(argument.default))
        try:
            given = to_builtins(argument.default, enc_hook=as_model)
            convert(given, argument.kind, dec_hook=from_model)
        except (ValidationError, TypeError, NotImplementedError) as error:
            why = f"its default {said} does not match its annotation: {error}"
            raise self._problem(name, why, "annotate it with both, as in int | None") from None

    def _problem(self, parameter: str, why: str, hint: str = _HINT_TYPES) -> ConfigError:
        of = f"parameter {quote(parameter)} of " if parameter else ""
        said = f"{of}the tool {quote(self._name)} cannot be used: {why}"
        return ConfigError(said, where=parameter or self._name, hint=hint)


def _unused_constraints(hint: object) -> Iterator[object]:
    """Yield what pydantic would apply to a value of this annotation, and msgspec ignores."""
    for each in getattr(hint, "__metadata__", ()):
        if type(each).__module__.partition(".")[0] in _PYDANTIC:
            yield each
    for each in typing.get_args(hint):
        yield from _unused_constraints(each)


def _schema_gaps(kind: object, seen: set[int]) -> Iterator[str]:
    """Yield why schema and binder would disagree on a type, or on one within it."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    if isinstance(kind, kinds.SetType | kinds.FrozenSetType):
        yield "its schema is an array, in which a model may repeat a value, and a set cannot"
    if isinstance(kind, kinds.DictType) and not isinstance(
        kind.key_type, kinds.StrType | kinds.AnyType
    ):
        yield "the keys of a JSON object are text, and the keys of this type are not"
    if isinstance(kind, kinds.Type | kinds.Field):
        for each in kind.__struct_fields__:
            yield from _schema_gaps(getattr(kind, each), seen)
    elif isinstance(kind, tuple):
        for each in cast("tuple[object, ...]", kind):
            yield from _schema_gaps(each, seen)


_SECTION: Final = lazy_pattern(
    r"(Args|Arguments|Parameters|Returns?|Yields|Raises|Examples?|Notes?|Warnings?):"
)
_DESCRIBED: Final = ("Args:", "Arguments:", "Parameters:")
_PARAMETER: Final = lazy_pattern(r"(\w+)(?: *\([^)]*\))?: *(.*)")


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Split a docstring in Google's style: the text before its sections, and its arguments."""
    text: list[str] = []
    described: dict[str, str] = {}
    section = name = ""
    margin = 0
    for line in doc.splitlines():
        said, depth = line.strip(), len(line) - len(line.lstrip())
        if depth == 0 and said:
            section = said if _SECTION.fullmatch(said) else ""
            margin = 0
        if not section:
            text.append(line)
        elif section in _DESCRIBED and depth and said:
            margin = margin or depth
            found = _PARAMETER.fullmatch(said) if depth == margin else None
            if found is not None:
                name, said = found[1], found[2]
            described[name] = f"{described.get(name, '')} {said}".strip()
    return "\n".join(text).strip(), described
