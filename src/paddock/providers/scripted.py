"""A model that says what a script says: for tests, demonstrations and replays.

Strict: steps go out in order, a request beyond the last one is an error, and so
are steps left over. An expectation that does not hold fails its step, and is told
again at the end: whoever asks for turns may ask once more where one failed.
A step may be any turn that a real model could send: calls side by side, arguments
that were cut, a refusal, an unknown reason, no answer at all.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Self, TypeVar, cast

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.providers.failures import FailureKind, ProviderError, wait_or_cancel
from paddock.providers.gateway import cancelled_turn
from paddock.providers.ports import TextSink
from paddock.providers.reading import CallReader, Parts, finish
from paddock.providers.transcript import message_as_json
from paddock.text.show import quote
from paddock.values.calls import Cancel, Json
from paddock.values.models import ModelRequest, ModelTurn, Stop, Usage

USAGE: Final = Usage(10, 5)
"""What a step costs where it does not say."""
HOLD_S: Final = 600.0
"""How long a step that holds waits to be cancelled."""


class ScriptedCall(Struct, frozen=True):
    """A call that the script makes. `raw` stands for `arguments`: text, whole or cut."""

    name: str
    arguments: Mapping[str, Json]
    id: str = ""
    raw: str | None = None

    @property
    def text(self) -> str:
        return json.dumps(dict(self.arguments)) if self.raw is None else self.raw


class Say(Struct, frozen=True):
    """One turn. Without `stop` it ends as its calls suggest.

    `structured` is the answer as a provider's native form gives it: its text.
    `expects` must stand in the request's last message. With `holds`, nothing more
    comes after the text until the exchange is cancelled.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: Stop | None = None
    structured: Mapping[str, Json] | None = None
    usage: Usage | None = USAGE
    reason: str = ""
    stop_raw: str = ""
    expects: str = ""
    holds: bool = False


class ScriptedFailure(Struct, frozen=True):
    kind: FailureKind
    message: str = "the script says so"
    status: int = 0
    retry_after_s: float | None = None


Step = Say | ScriptedFailure


class ScriptedModel:
    """Plays a script, in order, to however many threads ask. A context manager.

    `requests` holds what was asked, in order.
    """

    name = "scripted"

    def __init__(self, steps: Iterable[Step], *, model: str = "script") -> None:
        self.model = model
        self.requests: list[ModelRequest] = []
        self._steps = tuple(steps)
        self._lock = threading.Lock()
        self._unmet: ProviderError | None = None

    @property
    def steps_left(self) -> int:
        with self._lock:
            return len(self._steps) - len(self.requests)

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        """The next step's turn.

        Raises: ProviderError as the step says, or of kind SCRIPT where there is none or
            the request is not what it expects.
        """
        number, step = self._next(request)
        if isinstance(step, ScriptedFailure):
            raise ProviderError(
                step.message,
                kind=step.kind,
                status=step.status,
                retry_after_s=step.retry_after_s,
            )
        self._require(step, request, number)
        text = step.text if step.structured is None else json.dumps(dict(step.structured))
        said = _stream(text, on_text, cancel)
        if step.holds:
            wait_or_cancel(HOLD_S, cancel)
        if cancel is not None and cancel.is_cancelled:
            return cancelled_turn(self.model, text=said)
        return self._turn(step, text, request, number)

    def close(self) -> None:
        """Nothing to let go of; `require_finished` is asked for by name."""

    def require_met(self) -> None:
        """Raises: ConfigError where a request was not what its step expects: of the first one."""
        with self._lock:
            unmet = self._unmet
        if unmet is not None:
            raise ConfigError(unmet.message, hint=unmet.hint)

    def require_finished(self) -> None:
        """Raises: ConfigError where an expectation did not hold, or steps are left over."""
        # First: a step that failed shifts those behind it, so that their number says little.
        self.require_met()
        left = self.steps_left
        if left:
            raise ConfigError(
                f"{left} of {len(self._steps)} steps of the script are left over",
                hint="take them out, or find out why they were not asked for",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # An error on its way out says more than the steps that it left over.
        if kind is None:
            self.require_finished()

    def _next(self, request: ModelRequest) -> tuple[int, Step]:
        with self._lock:
            number = len(self.requests) + 1
            if number > len(self._steps):
                raise ProviderError(
                    f"the script has {len(self._steps)} steps, and this is request {number}",
                    kind=FailureKind.SCRIPT,
                    hint="add a step, or find out why there is one more request",
                )
            self.requests.append(request)
            return number, self._steps[number - 1]

    def _require(self, step: Say, request: ModelRequest, number: int) -> None:
        last = _last_text(request)
        if not step.expects or step.expects in last:
            return
        unmet = ProviderError(
            f"step {number} of the script expects {quote(step.expects)} in the last message",
            kind=FailureKind.SCRIPT,
            hint=f"the last message is {quote(last)}",
        )
        with self._lock:
            self._unmet = self._unmet or unmet
        raise unmet

    def _turn(self, step: Say, text: str, request: ModelRequest, number: int) -> ModelTurn:
        reader = CallReader(request)
        for place, call in enumerate(step.calls, start=1):
            reader.read(call.id or f"call_{number}_{place}", call.name, call.text)
        implied = Stop.TOOL_USE if step.calls else Stop.END_TURN
        stop = step.stop or implied
        parts = Parts(
            text=text,
            stop=stop,
            model=self.model,
            usage=step.usage,
            stop_raw=step.stop_raw or stop.value,
            stop_reason=step.reason,
            raw_ref=f"script:{number}",
        )
        return finish(request, parts, reader)


def _last_text(request: ModelRequest) -> str:
    if not request.messages:
        return ""
    return json.dumps(message_as_json(request.messages[-1]), ensure_ascii=False)


def _stream(text: str, on_text: TextSink | None, cancel: Cancel | None) -> str:
    """Hand the text over word by word; what was handed over before a cancel."""
    if cancel is not None and cancel.is_cancelled:
        return ""
    pieces = text.splitlines(keepends=True) if on_text is None else _words(text)
    said: list[str] = []
    for piece in pieces:
        if cancel is not None and cancel.is_cancelled:
            break
        if on_text is not None:
            on_text.text(piece)
        said.append(piece)
    return "".join(said)


def _words(text: str) -> list[str]:
    pieces = [f"{word} " for word in text.split(" ")]
    pieces[-1] = pieces[-1][:-1]
    return [piece for piece in pieces if piece]


# A step is `{"text", "calls": [{"name", "arguments" | "raw", "id"}], "stop",
# "structured", "usage": [input, output, cache_read, cache_write] | null, "reason",
# "stop_raw", "expects", "holds"}`, every member optional, or `{"error": {"kind",
# "message", "status", "retry_after_s"}}`. An unknown member does not load. For users it
# stands in `docs/guides/embed.md`.

_SAY: Final = frozenset(
    {
        "text",
        "calls",
        "stop",
        "structured",
        "usage",
        "reason",
        "stop_raw",
        "expects",
        "holds",
        "error",
    }
)
_CALL: Final = frozenset({"name", "arguments", "id", "raw"})
_FAIL: Final = frozenset({"kind", "message", "status", "retry_after_s"})

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)


def parse_script(content: str, file: str) -> tuple[Step, ...]:
    """Raises: ConfigError with file and place where it is no script."""
    if content.lstrip().startswith("["):
        rows = cast("list[Json]", _json(content, file))
        return tuple(_step(row, f"{file}, step {n}") for n, row in enumerate(rows, start=1))
    places = ((f"{file}, line {n}", line) for n, line in enumerate(content.split("\n"), start=1))
    return tuple(_step(_json(line, where), where) for where, line in places if line.strip())


def _json(text: str, where: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"this is not JSON: {error}", where) from None


def _wrong(what: str, where: str) -> ConfigError:
    return ConfigError(f"the script does not load: {what}", where=where, hint="correct the script")


def _step(row: Json, where: str) -> Step:
    members = _members(row, _SAY, where)
    if "error" in members:
        if len(members) > 1:
            raise _wrong("a step that fails says nothing else", where)
        return _fail(_members(members["error"], _FAIL, where), where)
    stop = members.get("stop")
    calls: list[Json] = _get(members, "calls", list, [], where)
    structured: Mapping[str, Json] = _get(members, "structured", dict, {}, where)
    return Say(
        text=_get(members, "text", str, "", where),
        calls=tuple(_call(_members(call, _CALL, where), where) for call in calls),
        stop=None if stop is None else _word(Stop, stop, where),
        structured=structured if "structured" in members else None,
        usage=_usage(members["usage"], where) if "usage" in members else USAGE,
        reason=_get(members, "reason", str, "", where),
        stop_raw=_get(members, "stop_raw", str, "", where),
        expects=_get(members, "expects", str, "", where),
        holds=_get(members, "holds", bool, False, where),
    )


def _call(members: Mapping[str, Json], where: str) -> ScriptedCall:
    if "raw" in members and "arguments" in members:
        raise _wrong("a call has 'arguments' or 'raw', not both", where)
    raw = _get(members, "raw", str, "", where)
    return ScriptedCall(
        _get(members, "name", str, "", where),
        _get(members, "arguments", dict, {}, where),
        _get(members, "id", str, "", where),
        raw if "raw" in members else None,
    )


def _fail(members: Mapping[str, Json], where: str) -> ScriptedFailure:
    retry_after_s: Json = members.get("retry_after_s")
    if retry_after_s is not None and type(retry_after_s) not in {int, float}:
        raise _wrong(f"'retry_after_s' is {quote(retry_after_s)}, not a number", where)
    return ScriptedFailure(
        _word(FailureKind, members.get("kind"), where),
        _get(members, "message", str, "the script says so", where),
        _get(members, "status", int, 0, where),
        retry_after_s,
    )


def _usage(value: Json, where: str) -> Usage | None:
    if value is None:
        return None
    counts = list(cast("list[Json]", value)) if type(value) is list else []
    if not 1 <= len(counts) <= 4 or any(type(count) is not int or count < 0 for count in counts):
        raise _wrong("'usage' is not a list of one to four numbers of tokens", where)
    return Usage(*counts)


def _members(value: Json, known: frozenset[str], where: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise _wrong(f"{quote(value)} is no object", where)
    members = cast("dict[str, Json]", value)
    for name in members:
        if name not in known:
            raise _wrong(f"unknown member {quote(name)}; known: {', '.join(sorted(known))}", where)
    return members


def _get(members: Mapping[str, Json], name: str, kind: type[T], default: T, where: str) -> T:
    value: Json = members.get(name, default)
    if type(value) is not kind:
        raise _wrong(f"{quote(name)} is {quote(value)}", where)
    return value


def _word(kind: type[W], value: Json, where: str) -> W:
    for word in kind:
        if value == word.value:
            return word
    raise _wrong(f"{quote(value)} is none of {', '.join(kind)}", where)
