"""What a model's turn leads to: one total function, pure.

Every `Stop` maps to exactly one step here, and what is not known is never a reason
to go on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.text.show import cut, quote, show_name
from paddock.values.calls import Json
from paddock.values.models import ModelTurn, Stop, ToolUse
from paddock.values.orders import OrderError, OrderFailure

_SAID_CHARS_MAX: Final = 1_000
"""Of a provider's reason for a refusal."""

RESPONSE_TEXT: Final = "response_text"
"""The one field of an answer whose contract has no schema."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """All calls of the turn go to the door, which answers each; then ask the model again.

    Which of them run is the door's to say: the order's tools are its bounds there.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """The order's result. `not_allowed` are calls that were asked for and are only recorded."""

    result: Mapping[str, Json]
    not_allowed: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The turn was cut, perhaps inside a call: nothing of it runs, and the model is told, once."""


@dataclass(frozen=True, slots=True)
class Resend:
    """The provider paused: the same conversation again, with this turn.

    `not_run` are calls that stand beside the pause: they are answered, and do not run.
    """

    not_run: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The order failed; `partial` is what there was. Every call of the turn is only recorded."""

    error: OrderError
    partial: Mapping[str, Json] | None = None


Step = RunCalls | Answer | AskAgain | Resend | Fail


@dataclass(frozen=True, slots=True)
class Progress:
    """What has happened in this order so far, as far as the next step depends on it."""

    turns: int = 0
    """Turns that came back, this one included; pauses do not count."""
    pauses: int = 0
    was_truncated: bool = False
    last_call: str = ""
    """The last call, as text that is equal exactly for equal calls."""
    repeats: int = 0
    """How often that call came in a row."""
    refusals: int = 0
    """Calls refused in a row, for any reason."""

    def after_results(self, refused: tuple[bool, ...]) -> "Progress":
        """With the results of one turn's calls, in order: true where one was refused.

        A row that was too long stays so, whatever came behind it in the same turn.
        """
        count, longest = self.refusals, 0
        for was_refused in refused:
            count = count + 1 if was_refused else 0
            longest = max(longest, count)
        return replace(self, refusals=longest if longest >= limits.refusals_max else count)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an order allows: its tools, its turns, and whether its answer has a schema."""

    tools: frozenset[str]
    turn_limit: int
    has_schema: bool = False


def next_step(turn: ModelTurn, progress: Progress, allowed: Allowed) -> tuple[Step, Progress]:
    """What to do now, and what to remember. Pure and total."""
    match turn.stop:
        case Stop.TOOL_USE | Stop.END_TURN | Stop.STOP_SEQUENCE:
            progress = replace(progress, turns=progress.turns + 1)
            if turn.tool_calls:
                return _after_calls(turn, progress, allowed)
            return _answer(turn, allowed), progress
        case Stop.MAX_TOKENS:
            progress = replace(progress, turns=progress.turns + 1)
            return _after_cut(turn, progress, allowed)
        case Stop.PAUSE:
            if progress.pauses >= limits.model_pauses_max:
                said = f"the provider paused more than {limits.model_pauses_max} times"
                return _fail(OrderFailure.GATEWAY_ERROR, said, turn, allowed), progress
            return Resend(turn.tool_calls), replace(progress, pauses=progress.pauses + 1)
        case Stop.REFUSAL | Stop.CONTENT_FILTER:
            said = _one_line(turn.stop_reason) or "the model declined to answer"
            return _fail(OrderFailure.REFUSED, said, turn, allowed), progress
        case Stop.CONTEXT_WINDOW:
            said = "the conversation no longer fits the model's context window"
            return _fail(OrderFailure.TRUNCATED, said, turn, allowed), progress
        case Stop.CANCELLED:
            return _fail(OrderFailure.CANCELLED, "cancelled", turn, allowed), progress
        case Stop.UNKNOWN:
            said = f"the turn ended for an unknown reason {quote(turn.stop_raw)}"
            return _fail(OrderFailure.GATEWAY_ERROR, said, turn, allowed), progress


def _after_calls(turn: ModelTurn, progress: Progress, allowed: Allowed) -> tuple[Step, Progress]:
    if not allowed.tools:
        # Nothing that was asked for can run: it is recorded, and the rest is the answer.
        if turn.structured is None and not turn.text.strip():
            error = OrderError(
                OrderFailure.EXECUTION_ERROR, "the model called tools and none is allowed"
            )
            return Fail(error), progress
        answer = _answer(turn, allowed)
        if isinstance(answer, Answer):
            answer = replace(answer, not_allowed=turn.tool_calls)
        return answer, progress
    progress = _count_repeats(progress, turn.tool_calls)
    if progress.repeats >= limits.same_call_max:
        name = quote(turn.tool_calls[-1].name)
        said = f"the same call came {progress.repeats} times in a row: {name}"
        return _fail(OrderFailure.STUCK, said, turn, allowed), progress
    if progress.turns >= allowed.turn_limit:
        spent = "1 turn is" if allowed.turn_limit == 1 else f"{allowed.turn_limit} turns are"
        said = f"{spent} used up and calls are pending"
        return _fail(OrderFailure.TURN_LIMIT_EXCEEDED, said, turn, allowed), progress
    return RunCalls(), progress


def _count_repeats(progress: Progress, calls: tuple[ToolUse, ...]) -> Progress:
    """The longest run of one and the same call up to now; it ends with the turn's calls."""
    last, repeats, longest = progress.last_call, progress.repeats, 0
    for call in calls:
        text = _text_of(call)
        repeats = repeats + 1 if text == last else 1
        last = text
        longest = max(longest, repeats)
    if longest >= limits.same_call_max:
        repeats = longest
    return replace(progress, last_call=last, repeats=repeats)


def _text_of(call: ToolUse) -> str:
    arguments = call.raw if call.problem else json.dumps(call.arguments, sort_keys=True)
    return f"{call.name} {arguments}"


def _after_cut(turn: ModelTurn, progress: Progress, allowed: Allowed) -> tuple[Step, Progress]:
    """Cut by the output limit: asked again once, also where it was the order's only turn.

    An order without tools has one turn and no other way to an answer that fits.
    """
    if progress.was_truncated:
        said = "the answer was cut at the output limit"
        return _fail(OrderFailure.TRUNCATED, said, turn, allowed), progress
    return AskAgain(), replace(progress, was_truncated=True)


def _answer(turn: ModelTurn, allowed: Allowed) -> Answer | Fail:
    if turn.structured is not None:
        return Answer(turn.structured)
    if allowed.has_schema:
        said = turn.structured_problem or "the answer is not the object that was asked for"
        return _fail(OrderFailure.OUTPUT_SCHEMA_INVALID, said, turn, allowed)
    return Answer({RESPONSE_TEXT: turn.text})


def _one_line(text: str) -> str:
    """What a provider says about a refusal, for people: it may repeat the model's own words."""
    return show_name(cut(text, _SAID_CHARS_MAX))


def _fail(code: OrderFailure, said: str, turn: ModelTurn, allowed: Allowed) -> Fail:
    return Fail(OrderError(code, said), _partial(turn, allowed))


def _partial(turn: ModelTurn, allowed: Allowed) -> Mapping[str, Json] | None:
    """What there was, marked as no answer by standing in a failed order."""
    if turn.text.strip():
        return {RESPONSE_TEXT: turn.text}
    return turn.structured if allowed.has_schema else None
