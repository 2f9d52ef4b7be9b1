"""Choose the step after a model's turn (`next_step`, pure), and ask the model (`ModelDoor`).

Every `Stop` has exactly one next step; an unknown one fails the order. `ModelDoor.ask` reserves
tokens before it sends anything, and records the exchange before its turn is used.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.agent.events import Noticed, SilentListener, TurnListener
from paddock.agent.records import RecordedExchange, Scribe
from paddock.errors import ConfigError
from paddock.ledger.append import Ledger
from paddock.providers.budgets import Budget, TokenReservation, estimate_input_tokens
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.gateway import Gateway, TextSink, message_as_json, request_digest
from paddock.text.show import cut, quote, show_name
from paddock.values.calls import Cancel, Json
from paddock.values.models import Message, ModelRequest, ModelTurn, Shortage, Stop, ToolUse
from paddock.values.orders import OrderError, OrderFailure

_SAID_CHARS_MAX: Final = 1_000  # of a provider's reason for a refusal

RESPONSE_TEXT: Final = "response_text"  # the one field of an answer whose contract has no schema


class RunCalls(Struct, frozen=True):
    """Pass all calls of the turn to the runtime, which answers each; then ask the model again.

    The runtime decides which of them run, within the order's tools.
    """


class Answer(Struct, frozen=True):
    """The order's result. `not_allowed`: calls of the turn, refused and recorded, never run."""

    result: Mapping[str, Json]
    not_allowed: tuple[ToolUse, ...] = ()


class AskAgain(Struct, frozen=True):
    """The turn was cut, perhaps within a call: run none of its calls, and ask again once."""


class Resend(Struct, frozen=True):
    """The provider paused: send the conversation again, with this turn added.

    `not_run` are calls in the paused turn: refused and recorded, never run.
    """

    not_run: tuple[ToolUse, ...] = ()


class Fail(Struct, frozen=True):
    """Fail the order; `partial` is what it has so far. No call of the turn runs."""

    error: OrderError
    partial: Mapping[str, Json] | None = None


Step = RunCalls | Answer | AskAgain | Resend | Fail


class OrderProgress(Struct, frozen=True):
    turns: int = 0  # of the model so far, except paused ones
    pauses: int = 0
    was_truncated: bool = False
    last_call: str = ""  # name and arguments of the newest call, as text to compare
    repeats: int = 0  # of that call in a row, or of any that reached the limit
    refusals: int = 0  # calls refused in a row, for any reason

    def after_results(self, refused: tuple[bool, ...]) -> "OrderProgress":
        """Count one turn's results, in order: True for a refused call.

        Once a row has reached the limit, a later success in the same turn does not reset it.
        """
        count, longest = self.refusals, 0
        for was_refused in refused:
            count = count + 1 if was_refused else 0
            longest = max(longest, count)
        return replace(self, refusals=longest if longest >= limits.refusals_max else count)


class Allowed(Struct, frozen=True):
    tools: frozenset[str]
    turn_limit: int
    has_schema: bool = False


def next_step(
    turn: ModelTurn, progress: OrderProgress, allowed: Allowed
) -> tuple[Step, OrderProgress]:
    """Return the next step, and the progress to pass in next time. Pure and total."""

    def failed(code: OrderFailure, said: str) -> tuple[Step, OrderProgress]:
        return _fail(code, said, turn, allowed), progress

    match turn.stop:
        case Stop.TOOL_USE | Stop.END_TURN | Stop.STOP_SEQUENCE:
            progress = replace(progress, turns=progress.turns + 1)
            if turn.tool_calls:
                return _after_calls(turn, progress, allowed)
            return _answer(turn, allowed), progress
        case Stop.MAX_TOKENS:
            # Ask again once, even past the turn limit: an order without tools has only one turn,
            # and could not get an answer that fits otherwise.
            progress = replace(progress, turns=progress.turns + 1)
            if progress.was_truncated:
                return failed(OrderFailure.TRUNCATED, "the answer was cut at the output limit")
            return AskAgain(), replace(progress, was_truncated=True)
        case Stop.PAUSE:
            if progress.pauses >= limits.model_pauses_max:
                said = f"the provider paused more than {limits.model_pauses_max} times"
                return failed(OrderFailure.GATEWAY_ERROR, said)
            return Resend(turn.tool_calls), replace(progress, pauses=progress.pauses + 1)
        case Stop.REFUSAL | Stop.CONTENT_FILTER:
            said = show_name(cut(turn.stop_reason, _SAID_CHARS_MAX))
            return failed(OrderFailure.REFUSED, said or "the model declined to answer")
        case Stop.CONTEXT_WINDOW:
            said = "the conversation no longer fits the model's context window"
            return failed(OrderFailure.TRUNCATED, said)
        case Stop.CANCELLED:
            return failed(OrderFailure.CANCELLED, "cancelled")
        case Stop.UNKNOWN:
            said = f"the turn ended for an unknown reason {quote(turn.stop_raw)}"
            return failed(OrderFailure.GATEWAY_ERROR, said)


def _after_calls(
    turn: ModelTurn, progress: OrderProgress, allowed: Allowed
) -> tuple[Step, OrderProgress]:
    if not allowed.tools:
        # No call can run: use the rest of the turn as the answer.
        if turn.structured is None and not turn.text.strip():
            said = "the model called tools, but none are allowed"
            return Fail(OrderError(OrderFailure.EXECUTION_ERROR, said)), progress
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


def _count_repeats(progress: OrderProgress, calls: tuple[ToolUse, ...]) -> OrderProgress:
    last, repeats, longest = progress.last_call, progress.repeats, 0
    for call in calls:
        arguments = call.raw if call.problem else json.dumps(call.arguments, sort_keys=True)
        text = f"{call.name} {arguments}"
        last, repeats = text, repeats + 1 if text == last else 1
        longest = max(longest, repeats)
    repeats = longest if longest >= limits.same_call_max else repeats
    return replace(progress, last_call=last, repeats=repeats)


def _answer(turn: ModelTurn, allowed: Allowed) -> Answer | Fail:
    if turn.structured is not None:
        return Answer(turn.structured)
    if allowed.has_schema:
        said = turn.structured_problem or "the answer is not the requested object"
        return _fail(OrderFailure.OUTPUT_SCHEMA_INVALID, said, turn, allowed)
    return Answer({RESPONSE_TEXT: turn.text})


def _fail(code: OrderFailure, said: str, turn: ModelTurn, allowed: Allowed) -> Fail:
    partial = turn.structured if allowed.has_schema else None
    if turn.text.strip():
        partial = {RESPONSE_TEXT: turn.text}
    return Fail(OrderError(code, said), partial)


_NOTHING_CHARGED: Final = frozenset(
    {
        FailureKind.KEY,
        FailureKind.PERMISSION,
        FailureKind.QUOTA,
        FailureKind.RATE_LIMITED,
        FailureKind.REQUEST,
        FailureKind.NOT_FOUND,
        FailureKind.SCRIPT,
    }
)
"""Failures before a model got the request. The cost of any other failure is unknown."""
_SILENCE: Final = SilentListener()


class ModelDoor(Struct, frozen=True):
    router: Gateway
    ledger: Ledger
    scribe: Scribe
    monotonic_ns: Callable[[], int]
    keeps_contents: bool = False
    listener: TurnListener = _SILENCE
    """Notified once for each scope that runs short under a budget that only warns."""

    def ask(
        self,
        request: ModelRequest,
        number: int,
        wo_id: str,
        budget: Budget,
        on_text: TextSink | None,
        cancel: Cancel,
        new: tuple[Message, ...],
    ) -> ModelTurn:
        """Return the turn, paid for and recorded. `new`: the messages since the last exchange.

        Its usage is known only if every attempt's is.

        Raises: BudgetExhaustedError: nothing was sent. ProviderError. PaddockError: recording
        failed, and the turn is dropped.
        """
        reservation, request = _reserve(request, budget)
        started = self.monotonic_ns()
        payment = _Payment(budget, reservation, self.listener, reservation.shortage)

        def exchange(turn: ModelTurn | None) -> RecordedExchange:
            return RecordedExchange(
                wo_id,
                number,
                request_digest(request),
                self.router.name,
                self.router.model,
                latency_ms=(self.monotonic_ns() - started) // 1_000_000,
                charged_tokens=payment.charged,
                over_budget="" if payment.shortage is None else str(payment.shortage),
                contents=self._contents(request, number, new, turn),
            )

        try:
            turn = self.router.route(request, on_text=on_text, cancel=cancel, pay=payment.pay)
        except BaseException as error:
            # Record every request that may have been sent, and its cost.
            if payment.is_begun:
                self.ledger.append([self.scribe.unanswered(exchange(None), error)])
            raise
        finally:
            if not payment.is_begun:
                reservation.settle(0)
        turn = replace(turn, usage_is_known=turn.usage_is_known and payment.is_known)
        self.ledger.append([self.scribe.answered(exchange(turn), turn)])
        return turn

    def _contents(
        self, request: ModelRequest, number: int, new: tuple[Message, ...], turn: ModelTurn | None
    ) -> str | None:
        if not self.keeps_contents:
            return None
        kept: dict[str, Json] = {"messages": [message_as_json(message) for message in new]}
        if number == 1:
            kept["system"] = request.system
        if turn is not None:
            kept["turn"] = message_as_json(turn.message)
        # ASCII, so that any text of a model fits a ledger line.
        return json.dumps(kept, ensure_ascii=True)


class _Payment(Struct):
    """Pay for each attempt of one exchange, with a reservation as large as the first."""

    budget: Budget
    first: TokenReservation
    listener: TurnListener
    shortage: Shortage | None
    """The first one of a budget that only warns."""
    is_begun: bool = False
    charged: int = 0
    is_known: bool = True
    """False after an attempt that did not report its cost."""

    def pay(self, send: Callable[[], ModelTurn]) -> ModelTurn:
        reservation = self.budget.reserve(self.first.granted) if self.is_begun else self.first
        self.is_begun = True
        self.shortage = self.shortage or reservation.shortage
        # An attempt whose cost is unknown is charged all that it was granted.
        charged: int | None = None
        try:
            if reservation.is_news:
                # Before it is sent, so that the listener can still cancel.
                said = f"{reservation.shortage}; the budget only warns"
                self.listener.heard(Noticed(said))
            turn = send()
            if turn.usage_is_known:
                charged = max(0, turn.usage.total)
        except ProviderError as error:
            if error.kind in _NOTHING_CHARGED:
                charged = 0
            raise
        except ConfigError:
            # Raised before anything is sent: an unusable key, SDK or schema.
            charged = 0
            raise
        else:
            return turn
        finally:
            self.is_known = self.is_known and charged is not None
            tokens = reservation.granted if charged is None else charged
            self.charged += tokens
            reservation.settle(tokens)


def _reserve(request: ModelRequest, budget: Budget) -> tuple[TokenReservation, ModelRequest]:
    estimate = estimate_input_tokens(request)
    wanted = estimate + request.max_output_tokens
    least = estimate + min(limits.output_tokens_min, request.max_output_tokens)
    reservation = budget.reserve(wanted, at_least=least)
    room = max(1, reservation.granted - estimate)
    if room >= request.max_output_tokens:
        return reservation, request
    return reservation, replace(request, max_output_tokens=room)
