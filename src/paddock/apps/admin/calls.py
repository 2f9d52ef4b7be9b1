"""The calls of a session, as lines and in full."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paddock.agent.events import CallDecided, CallFinished
from paddock.apps.admin.blocks import Block, Fitted, Look, Span, lines, pairs, row
from paddock.errors import CallCancelledError
from paddock.values.calls import Json, Refusal

KEPT_MAX: Final = 100
"""Calls that `/expand` can show; older ones stand in the ledger."""
_VALUE_CHARS_MAX: Final = 200
_MARKS: Final = {Look.GOOD: "ok", Look.WARN: "no", Look.BAD: "no"}


@dataclass(frozen=True, slots=True)
class ShownCall:
    """One call that is over. `decided` is None where it was refused before a decision."""

    number: int
    finished: CallFinished
    decided: CallDecided | None

    @property
    def decision(self) -> str:
        """What was decided, and by whom, in a few words."""
        refusal = self.finished.result.refusal
        if self.decided is not None:
            if self.decided.outcome == "ask":
                return f"ask: yes by {self.decided.by or 'nobody'}"
            if self.decided.outcome == "confine" and self.decided.by:
                return f"confine (here: ask): yes by {self.decided.by}"
            return self.decided.outcome
        code = "" if refusal is None else refusal.code
        if code.startswith("approval."):
            return "ask: no"
        return "deny" if code.startswith("policy.") else "not decided"

    @property
    def outcome(self) -> str:
        """What it came to: nothing to say, a code, or what a cancelled call left."""
        refusal = self.finished.result.refusal
        if refusal is None:
            return ""
        if refusal.code == CallCancelledError.code:
            return f"cancelled: {refusal.hint or 'it changed nothing'}"
        return refusal.code

    @property
    def duration(self) -> str:
        if not self.finished.ran:
            return "not run"
        milliseconds = self.finished.duration_us / 1000
        return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.0f} s"

    def as_line(self) -> Fitted:
        """`#1 ok list_files path=HOT/kernel · allow · 3 ms`."""
        look = self._look
        parts = [part for part in (self.decision, self.outcome, self.duration) if part]
        return Fitted(
            row(
                Span(f"  #{self.number} ", Look.DIM),
                Span(_MARKS[look], look),
                " ",
                Span(self.finished.tool, Look.STRONG),
            ),
            Span(arguments_text(self.finished.arguments)),
            row(Span(f" · {' · '.join(parts)}", Look.DIM)),
        )

    @property
    def _look(self) -> Look:
        refusal = self.finished.result.refusal
        if refusal is None:
            return Look.GOOD
        return Look.WARN if refusal.code == CallCancelledError.code else Look.BAD

    def in_full(self) -> tuple[Block, ...]:
        """Everything: arguments, decision and rule, and the result as the model reads it."""
        finished, decided = self.finished, self.decided
        facts: list[tuple[str, str | Span]] = [
            ("call", finished.call_id),
            ("tool", Span(finished.tool, Look.STRONG)),
            ("decision", self.decision),
        ]
        if decided is not None and decided.rule:
            facts.append(("rule", decided.rule))
        facts += _refusal_facts(finished.result.refusal)
        facts.append(("duration", self.duration))
        arguments = json.dumps(dict(finished.arguments), indent=2, ensure_ascii=False)
        return (
            pairs(facts),
            lines(arguments, gutter="  "),
            lines(finished.result.content, gutter="  │ "),
        )


def _refusal_facts(refusal: Refusal | None) -> list[tuple[str, str | Span]]:
    if refusal is None:
        return [("status", "ok")]
    found: list[tuple[str, str | Span]] = [
        ("status", "error"),
        ("code", Span(refusal.code, Look.BAD)),
        ("error", refusal.error),
    ]
    if refusal.hint:
        found.append(("hint", refusal.hint))
    if refusal.rule is not None:
        found.append(("rule", json.dumps(dict(refusal.rule), ensure_ascii=False)))
    return found


def arguments_text(arguments: Mapping[str, Json]) -> str:
    """` path=HOT/kernel depth=2`: a leading space, and a value in quotes where it has spaces."""
    return "".join(f" {name}={_value_text(value)}" for name, value in arguments.items())


def _value_text(value: Json) -> str:
    if isinstance(value, str):
        cut = value if len(value) <= _VALUE_CHARS_MAX else f"{value[:_VALUE_CHARS_MAX]}…"
        is_word = bool(cut) and not any(each.isspace() or each in "\"'=" for each in cut)
        return cut if is_word else json.dumps(cut, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)[:_VALUE_CHARS_MAX]


class Calls:
    """The last calls of a shell, by the numbers on their lines."""

    def __init__(self) -> None:
        self._decided: dict[str, CallDecided] = {}
        self._kept: OrderedDict[int, ShownCall] = OrderedDict()
        self._count = 0

    def decided(self, event: CallDecided) -> None:
        """It may run."""
        self._decided[event.call_id] = event

    def finished(self, event: CallFinished) -> ShownCall:
        self._count += 1
        shown = ShownCall(self._count, event, self._decided.pop(event.call_id, None))
        self._kept[self._count] = shown
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return shown

    @property
    def last(self) -> int:
        """The number of the newest one; 0 where there is none."""
        return self._count

    def find(self, number: int) -> ShownCall | None:
        return self._kept.get(number)
