"""One exchange with a model: tokens reserved before it, settled and recorded after it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.agent.records import Exchange, Scribe
from paddock.ledger.ports import Ledger
from paddock.providers.budgets import Budget, Reservation
from paddock.providers.estimate import estimate_input_tokens
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.ports import Router, TextSink
from paddock.providers.transcript import message_as_json, request_digest
from paddock.values.calls import Json
from paddock.values.cancelling import Cancel
from paddock.values.models import Message, ModelRequest, ModelTurn

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


@dataclass(frozen=True, slots=True)
class ModelDoor:
    """Where every request of one agent's orders goes through."""

    router: Router
    ledger: Ledger
    scribe: Scribe
    monotonic_ns: Callable[[], int]
    keeps_contents: bool = False

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

        Raises:
            BudgetExhaustedError: nothing was sent.
            ProviderError: there is no turn.
            PaddockError: it could not be recorded; what came back is not used.
        """
        reservation, request = _reserve(request, budget)
        started = self.monotonic_ns()
        with reservation:
            about = Exchange(
                wo_id,
                number,
                request_digest(request),
                self.router.name,
                self.router.model,
                0,
                reservation.shortage,
            )
            try:
                turn = self.router.route(request, on_text=on_text, cancel=cancel)
            except ProviderError as error:
                if error.kind in _NOTHING_CHARGED:
                    reservation.release()
                about = replace(about, latency_ms=self._since(started))
                contents = self._contents(request, number, new, None)
                self.ledger.append(
                    [self.scribe.unanswered(replace(about, contents=contents), error)]
                )
                raise
            if turn.usage_is_known:
                reservation.settle(turn.usage)
        about = replace(
            about,
            latency_ms=self._since(started),
            contents=self._contents(request, number, new, turn),
        )
        self.ledger.append([self.scribe.answered(about, turn)])
        return turn

    def _since(self, started_ns: int) -> int:
        return (self.monotonic_ns() - started_ns) // 1_000_000

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
