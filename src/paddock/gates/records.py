"""What governance is told of a gate: one entry for each answer. Pure."""

from collections.abc import Mapping
from typing import Final, cast

from paddock.gates.results import GateResult, Status
from paddock.packages.rows import Failure
from paddock.values.calls import Json
from paddock.values.entries import Entry
from paddock.values.events import GATE_RESULT

GATE_KEY: Final = "gate"
_FAILURES_MAX: Final = 50
"""In one entry; how many there were stands beside them."""
_REASON_CHARS_MAX: Final = 1_000
_DECISIONS: Final[Mapping[Status, str]] = {Status.PASS: "allow", Status.FAIL: "deny"}


def gate_entry(result: GateResult, set_digest: str | None, by: str) -> Entry:
    """What one gate said, of which installed set, and who asked."""
    shown = result.failures[:_FAILURES_MAX]
    return Entry(
        event_type=GATE_RESULT,
        decision=_DECISIONS.get(result.status, ""),
        reason=f"{result.gate}: {result.status}" + (f": {result.note}" if result.note else ""),
        agent=by,
        metadata={
            GATE_KEY: result.gate,
            "status": result.status,
            "checks": result.checks,
            "failures": [
                {"file": each.file, "reason": each.reason[:_REASON_CHARS_MAX]} for each in shown
            ],
            "failures_total": len(result.failures),
            "set_digest": set_digest,
        },
    )


def read_failures(value: Json) -> tuple[Failure, ...]:
    """The failures of such an entry; what is none is left out."""
    rows = cast("list[Json]", value) if isinstance(value, list) else []
    found: list[Failure] = []
    for row in rows:
        if isinstance(row, dict):
            members = cast("dict[str, Json]", row)
            file, reason = members.get("file"), members.get("reason")
            if isinstance(file, str) and isinstance(reason, str):
                found.append(Failure(file, reason))
    return tuple(found)
