"""One exchange with a model: tokens reserved before each attempt, settled and recorded after."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from paddock import limits
from paddock.agent.events import Noticed, Silence, TurnListener
from paddock.agent.records import Exchange, Scribe, no_turn
from paddock.errors import ConfigError
from paddock.ledger.ports import Ledger
from paddock.providers.budgets import Budget, Reservation
from paddock.providers.estimate import estimate_input_tokens
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.gateway import Gateway
from paddock.providers.ports import TextSink
from paddock.providers.transcript import message_as_json, request_digest
from paddock.values.calls import Cancel, Json
from paddock.values.models import Message, ModelRequest, ModelTurn, Usage

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
"""Refused before a model saw it. Of every other failure nobody knows what it cost."""
_SILENCE: Final = Silence()


@dataclass(frozen=True, slots=True)
class ModelDoor:
    """Where every request of one agent's orders goes through."""

    router: Gateway
    ledger: Ledger
    scribe: Scribe
    monotonic_ns: Callable[[], int]
    keeps_contents: bool = False
    listener: TurnListener = _SILENCE
    """Who is told that a budget which only warns is short, once of each scope."""

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
        """The turn, paid for and on record. `new` are the messages since the last exchange.

        Its usage is known where that of every attempt is.

        Raises:
            BudgetExhaustedError: nothing was sent.
            ProviderError: there is no turn.
            PaddockError: it could not be recorded; what came back is not used.
        """
        reservation, request = _reserve(request, budget)
        started = self.monotonic_ns()
        about = Exchange(
            wo_id,
            number,
            request_digest(request),
            self.router.name,
            self.router.model,
            0,
        )
        with _Till(budget, reservation, self.listener) as till:
            try:
                turn = self.router.route(request, on_text=on_text, cancel=cancel, pay=till.pay)
            except BaseException as error:
                # Whatever became of the answer: what was sent is on record, and what it cost.
                if till.is_begun:
                    contents = self._contents(request, number, new, None)
                    about = self._settled(about, till, started, contents)
                    self.ledger.append([self.scribe.unanswered(about, no_turn(error))])
                raise
        turn = replace(turn, usage_is_known=turn.usage_is_known and till.is_known)
        about = self._settled(about, till, started, self._contents(request, number, new, turn))
        self.ledger.append([self.scribe.answered(about, turn)])
        return turn

    def _settled(
        self, about: Exchange, till: "_Till", started_ns: int, contents: str | None
    ) -> Exchange:
        return replace(
            about,
            latency_ms=(self.monotonic_ns() - started_ns) // 1_000_000,
            shortage=till.shortage,
            charged_tokens=till.charged,
            contents=contents,
        )

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
        # ASCII text in the entry: whatever a model wrote is fit for a line so.
        return json.dumps(kept, ensure_ascii=True)


class _Till:
    """Pays for the attempts of one exchange, each with a reservation as large as the first.

    A context manager. `is_begun` says whether anything was sent, `charged` what it came to,
    `is_known` whether all attempts said what they cost, `shortage` what a budget that only
    warns lacked first.
    """

    def __init__(self, budget: Budget, first: Reservation, listener: TurnListener) -> None:
        self._budget = budget
        self._first = first
        self._listener = listener
        self.is_begun = False
        self.charged = 0
        self.is_known = True
        self.shortage = first.shortage

    def pay(self, send: Callable[[], ModelTurn]) -> ModelTurn:
        """Make one attempt; see `Pay`."""
        reservation = self._budget.reserve(self._first.granted) if self.is_begun else self._first
        self.is_begun = True
        self.shortage = self.shortage or reservation.shortage
        # Whoever does not say what it cost may have cost all that it was granted.
        charged: int | None = None
        try:
            if reservation.is_news:
                # Before it is sent: whoever is told can still cancel.
                said = f"{reservation.shortage}; the budget only warns"
                self._listener.heard(Noticed(said))
            turn = send()
            if turn.usage_is_known:
                charged = max(0, turn.usage.total)
        except ProviderError as error:
            if error.kind in _NOTHING_CHARGED:
                charged = 0
            raise
        except ConfigError:
            # Found before anything is sent: a key, an SDK or a schema that cannot be used.
            charged = 0
            raise
        else:
            return turn
        finally:
            self.is_known = self.is_known and charged is not None
            tokens = reservation.granted if charged is None else charged
            self.charged += tokens
            reservation.settle(Usage(tokens))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Settled already, but where no attempt was begun.
        self._first.release()


def _reserve(request: ModelRequest, budget: Budget) -> tuple[Reservation, ModelRequest]:
    """Tokens for the request and its longest answer; a shorter one where not all is left."""
    estimate = estimate_input_tokens(request)
    wanted = estimate + request.max_output_tokens
    least = estimate + min(limits.output_tokens_min, request.max_output_tokens)
    reservation = budget.reserve(wanted, at_least=least)
    room = max(1, reservation.granted - estimate)
    if room >= request.max_output_tokens:
        return reservation, request
    return reservation, replace(request, max_output_tokens=room)
