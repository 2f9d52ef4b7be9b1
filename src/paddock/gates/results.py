"""What a gate comes to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddock.packages.rows import Failure
from paddock.values.calls import Json


class Status(StrEnum):
    """Three answers; the third is no pass."""

    PASS = "pass"  # noqa: S105 - an answer, no secret
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's answer. Make it with `judged` or `not_applicable`."""

    gate: str
    status: Status
    checks: int
    failures: tuple[Failure, ...] = ()
    note: str = ""
    """Why it is not applicable, when it was run or what it could not see; may be empty."""

    def as_json(self) -> dict[str, Json]:
        return {
            "gate": self.gate,
            "status": self.status,
            "checks": self.checks,
            "failures": [{"file": each.file, "reason": each.reason} for each in self.failures],
            "note": self.note,
        }


def judged(gate: str, checks: int, failures: Sequence[Failure], nothing: str) -> GateResult:
    """Fail where there are failures; `nothing` says why where nothing was looked at."""
    if failures:
        return GateResult(gate, Status.FAIL, max(checks, len(failures)), tuple(failures))
    if checks == 0:
        return not_applicable(gate, nothing)
    return GateResult(gate, Status.PASS, checks)


def not_applicable(gate: str, why: str) -> GateResult:
    """There was nothing to look at, for this reason."""
    return GateResult(gate, Status.NOT_APPLICABLE, 0, note=why)


def results_json(results: Sequence[GateResult]) -> dict[str, Json]:
    return {
        "gates": [result.as_json() for result in results],
        "passed": count_of(results, Status.PASS),
        "failed": count_of(results, Status.FAIL),
        "not_applicable": count_of(results, Status.NOT_APPLICABLE),
    }


def count_of(results: Sequence[GateResult], status: Status) -> int:
    return sum(1 for result in results if result.status is status)
