"""Build the ledger entries of a session from orders, exchanges and turns. Pure.

`ho1m` has the executors' entries (LLM_CALL, WO_COMPLETED, WO_FAILED; the runtime records tool
calls), `ho2m` the supervisor's. An LLM_CALL always has the request's digest, and the contents only
if the configuration keeps them. Text of a model or user is escaped for a line; if it is cut, the
entry says by how much, or the text ends with a mark.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, to_builtins

from paddock import limits
from paddock.agent.events import TurnEnd
from paddock.errors import PaddockError
from paddock.ledger.format.line import encode_text
from paddock.providers.failures import ProviderError
from paddock.text.show import cut
from paddock.values import entries
from paddock.values.calls import Json
from paddock.values.entries import Entry, clean, digest_of_json
from paddock.values.models import ModelTurn
from paddock.values.orders import OrderCost, OrderState, WorkOrder

_REASON_CHARS_MAX: Final = 4_000
_NAME_CHARS_MAX: Final = 200
_NO_COST: Final = OrderCost()


class RecordedExchange(Struct, frozen=True, omit_defaults=True):
    wo_id: str
    number: int  # of the order's exchanges, from 1
    request_digest: str
    provider: str
    model: str
    latency_ms: int
    charged_tokens: int
    """The budget spent by its attempts; one of unknown cost spent all that it was granted."""
    over_budget: str = ""
    contents: str | None = None  # JSON text, if the configuration keeps contents


class Scribe(Struct, frozen=True):
    session_id: str
    agent: str

    # ho1m

    def answered(self, exchange: RecordedExchange, turn: ModelTurn) -> Entry:
        metadata = {
            **_exchange_json(exchange),
            "status": "ok",
            "answered_by": _name(turn.model),
            "stop": turn.stop.value,
            "stop_raw": _name(turn.stop_raw),
            "usage": {
                name: min(count, limits.json_integer_max)
                for name, count in turn.usage._asdict().items()
            },
            "usage_is_known": turn.usage_is_known,
            "attempts": turn.attempts,
            "calls": [_name(call.name) for call in turn.tool_calls],
            "raw_ref": _name(turn.raw_ref),
        }
        return self._entry(entries.LLM_CALL, exchange.wo_id, metadata, _short(turn.stop_reason))

    def unanswered(self, exchange: RecordedExchange, error: BaseException) -> Entry:
        kind, said, status = "defect", type(error).__name__, 0
        if isinstance(error, PaddockError):
            kind, said = error.code, error.message
        if isinstance(error, ProviderError):
            kind, status = error.kind.value, error.status
        metadata = {
            **_exchange_json(exchange),
            "status": "error",
            "kind": kind,
            "http_status": status,
        }
        return self._entry(entries.LLM_CALL, exchange.wo_id, metadata, _short(said))

    def ended(self, order: WorkOrder) -> Entry:
        metadata: dict[str, Json] = {
            "wo_id": order.wo_id,
            "wo_type": order.wo_type.value,
            "cost": order.cost.as_json(),
        }
        if order.output_result is not None:
            metadata["result_digest"] = digest_of_json(dict(order.output_result))
        if order.state is OrderState.COMPLETED:
            return self._entry(entries.WO_COMPLETED, order.wo_id, metadata)
        error = order.error
        reason = ""
        if error is not None:
            metadata["code"] = error.code.value
            reason = _short(error.message)
        return self._entry(entries.WO_FAILED, order.wo_id, metadata, reason)

    # ho2m

    def session_started(self, facts: Mapping[str, Json]) -> Entry:
        return self._entry(entries.SESSION_START, "", facts)

    def session_ended(self, turns: int, cost: OrderCost) -> Entry:
        return self._entry(entries.SESSION_END, "", {"turns": turns, "cost": cost.as_json()})

    def planned(
        self, order: WorkOrder, turn: int, contract_digest: str, executor: str, message: str
    ) -> Entry:
        bounds = order.constraints
        metadata: dict[str, Json] = {
            "wo_id": order.wo_id,
            "wo_type": order.wo_type.value,
            "turn": turn,
            "executor": executor,
            "prompt_contract_id": bounds.prompt_contract_id,
            "contract_digest": contract_digest,
            "tools_allowed": list(bounds.tools_allowed),
            "turn_limit": bounds.turn_limit,
            "token_budget": bounds.token_budget,
            "timeout_seconds": None if bounds.timeout_s is None else round(bounds.timeout_s, 3),
            "input_digest": digest_of_json(dict(order.input_context)),
        }
        if message:
            metadata |= _said("user_message", message)
        return self._entry(entries.WO_PLANNED, order.wo_id, metadata)

    def dispatched(self, order: WorkOrder, turn: int) -> Entry:
        metadata = {"wo_id": order.wo_id, "wo_type": order.wo_type.value, "turn": turn}
        return self._entry(entries.WO_DISPATCHED, order.wo_id, metadata)

    def judged(self, order: WorkOrder, turn: int, attempt: int, problem: str) -> Entry:
        metadata = {"wo_id": order.wo_id, "turn": turn, "attempt": attempt, "passed": not problem}
        decision = "deny" if problem else "allow"
        return self._entry(entries.QUALITY_GATE, order.wo_id, metadata, _short(problem), decision)

    def chain_complete(self, turn: int, orders: Sequence[WorkOrder], cost: OrderCost) -> Entry:
        metadata = {
            "turn": turn,
            "work_orders": [{"wo_id": o.wo_id, "state": o.state.value} for o in orders],
            "cost": cost.as_json(),
        }
        return self._entry(entries.WO_CHAIN_COMPLETE, "", metadata)

    def escalated(self, turn: int, order: WorkOrder, attempts: int, problem: str) -> Entry:
        metadata = {"turn": turn, "wo_id": order.wo_id, "attempts": attempts}
        return self._entry(entries.ESCALATION, order.wo_id, metadata, _short(problem))

    def degraded(self, turn: int, what: str, reason: str) -> Entry:
        return self._entry(entries.DEGRADATION, "", {"turn": turn, "what": what}, _short(reason))

    def turn_recorded(
        self,
        turn: int,
        user_message: str,
        ended: TurnEnd,
        orders: Sequence[WorkOrder] = (),
        cost: OrderCost = _NO_COST,
    ) -> Entry:
        metadata: dict[str, Json] = {
            "turn": turn,
            "outcome": ended.outcome.value,
            **_said("user_message", user_message),
            **_said("response", ended.response),
            "quality_gate_passed": ended.passed,
            "work_orders": [order.wo_id for order in orders],
            "answered_by": ended.answered_by,
            "cost": cost.as_json(),
        }
        return self._entry(entries.TURN_RECORDED, "", metadata, _short(ended.reason))

    def _entry(
        self,
        event: str,
        wo_id: str,
        metadata: Mapping[str, Json],
        reason: str = "",
        decision: str = "",
    ) -> Entry:
        return Entry(
            event_type=event,
            submission_id=wo_id,
            decision=decision,
            reason=reason,
            session_id=self.session_id,
            agent=self.agent,
            metadata=metadata,
        )


def _exchange_json(exchange: RecordedExchange) -> dict[str, Json]:
    kept: dict[str, Json] = to_builtins(exchange)
    kept |= {name: clean(kept[name]) for name in ("provider", "model")}
    kept["charged_tokens"] = min(exchange.charged_tokens, limits.json_integer_max)
    size = _size(exchange.contents or "")
    if size > limits.kept_contents_bytes_max:
        del kept["contents"]
        kept["contents_left_out_bytes"] = size
    return kept


def _said(name: str, text: str) -> dict[str, Json]:
    kept = clean(text)
    if _size(kept) <= limits.turn_text_bytes_max:
        return {name: kept}
    # Bisect for the longest prefix that fits: an escaped character takes up to six bytes.
    lengths = range(1, len(kept))
    fits = bisect_right(lengths, limits.turn_text_bytes_max, key=lambda n: _size(kept[:n]))
    return {name: kept[:fits], f"{name}_cut_chars": len(kept) - fits}


def _size(text: str) -> int:
    return len(encode_text(text))


def _short(text: str, chars_max: int = _REASON_CHARS_MAX) -> str:
    return clean(cut(text, chars_max))


def _name(text: str) -> str:
    return _short(text, _NAME_CHARS_MAX)
