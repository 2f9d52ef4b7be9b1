"""Play a script as a model: for tests, demonstrations and replays.

Steps are played in order; a request beyond the last step is an error, and so are steps left over. A
failed expectation fails its step, and is raised again at the end, because the caller may have
retried the step. A step can be any turn of a real model: parallel calls, cut arguments, a refusal,
an unknown reason, no answer.
"""

import json
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Final, Self, cast

from paddock.errors import ConfigError
from paddock.plane.json_files import JsonFile
from paddock.providers.failures import FailureKind, ProviderError, wait_or_cancel
from paddock.providers.gateway import TextSink, cancelled_turn, message_as_json
from paddock.providers.structured import TurnBuilder, as_map, as_maps
from paddock.text.json import BrokenJsonError, Strict, read_json
from paddock.text.show import quote
from paddock.values.calls import Cancel, Json
from paddock.values.models import ModelRequest, ModelTurn, Stop, Usage

USAGE: Final = Usage(10, 5)
"""The default usage of a step."""
HOLD_S: Final = 600.0
"""The time that a step with `holds` waits for a cancellation."""


class ScriptedCall(Strict, frozen=True):
    name: str = ""
    arguments: Mapping[str, Json] = {}
    id: str = ""
    raw: str | None = None

    @property
    def text(self) -> str:
        return json.dumps(dict(self.arguments)) if self.raw is None else self.raw


class Say(Strict, frozen=True):
    """One turn. Without `stop` it ends as its calls suggest.

    `structured` is sent as the turn's text, as in a provider's native form. The request's last
    message must contain `expects`. With `holds`, the turn does not end until it is cancelled.
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


class ScriptedFailure(Strict, frozen=True):
    kind: FailureKind
    message: str = "the script says so"
    status: int = 0
    retry_after_s: float | None = None


Step = Say | ScriptedFailure


class ScriptedModel:
    """Plays a script in order, to any number of threads. A context manager.

    `requests` holds the requests, in order.
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
        """Do nothing: call `require_finished` to check for steps left over."""

    def require_met(self) -> None:
        with self._lock:
            unmet = self._unmet
        if unmet is not None:
            raise ConfigError(unmet.message, hint=unmet.hint)

    def require_finished(self) -> None:
        # First, because after a failed step the number of steps left over is not informative.
        self.require_met()
        left = self.steps_left
        if left:
            raise ConfigError(
                f"{left} of {len(self._steps)} steps of the script are left over",
                hint="remove them, or find out why they were not requested",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # An exception explains more than the steps that it left over.
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
        last = ""
        if request.messages:
            last = json.dumps(message_as_json(request.messages[-1]), ensure_ascii=False)
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
        builder = TurnBuilder(request)
        for place, call in enumerate(step.calls, start=1):
            builder.read(call.id or f"call_{number}_{place}", call.name, call.text)
        implied = Stop.TOOL_USE if step.calls else Stop.END_TURN
        stop = step.stop or implied
        return builder.turn(
            text,
            stop,
            step.usage,
            model=self.model,
            stop_raw=step.stop_raw or stop.value,
            stop_reason=step.reason,
            raw_ref=f"script:{number}",
        )


def _stream(text: str, on_text: TextSink | None, cancel: Cancel | None) -> str:
    said = ""
    for piece in re.findall(r"[^ ]+ ?| ", text):
        if cancel is not None and cancel.is_cancelled:
            break
        if on_text is not None:
            on_text.text(piece)
        said += piece
    return said


def parse_script(content: str, file: str) -> tuple[Step, ...]:
    """Read the steps of an array, or one per line. Documented in `docs/guides/embed.md`.

    A step is a `Say`, every member optional, or `{"error": ScriptedFailure}`.
    """
    if content.lstrip().startswith("["):
        rows = enumerate(cast("list[Json]", _json(content, file)), start=1)
        return tuple(_step(row, f"{file}, step {number}") for number, row in rows)
    places = ((f"{file}, line {n}", line) for n, line in enumerate(content.split("\n"), start=1))
    return tuple(_step(_json(line, where), where) for where, line in places if line.strip())


def _json(text: str, where: str) -> Json:
    try:
        return read_json(text)
    except BrokenJsonError as error:
        is_twice = error.kind == "twice"
        said = f"{quote(error.what)} is given twice" if is_twice else f"this is not JSON: {error}"
        raise _wrong(said, where) from None


def _wrong(what: str, where: str, hint: str = "correct the script") -> ConfigError:
    return ConfigError(f"the script does not load: {what}", where=where, hint=hint)


class _Failing(Strict, frozen=True):
    error: ScriptedFailure


def _step(row: Json, where: str) -> Step:
    if not isinstance(row, dict):
        raise _wrong(f"expected an object, not {quote(row)}", where)
    members = JsonFile(where, as_map(row))
    try:
        if "error" in members.members:
            return members.convert(_Failing).error
        step = members.convert(Say)
    except ConfigError as error:
        raise _wrong(error.message, where, error.hint) from None
    if any({"raw", "arguments"} <= call.keys() for call in as_maps(members.members.get("calls"))):
        raise _wrong("a call has 'arguments' or 'raw', not both", where)
    if min(step.usage or USAGE) < 0:
        raise _wrong("'usage' has a negative number of tokens", where)
    return step
