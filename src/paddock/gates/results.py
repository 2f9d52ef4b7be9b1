"""Results of gates. Imports no gate: every runtime loads this module, few run a gate."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from paddock.packages.rows import Failure
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import GATE_RESULT, Entry


class Status(StrEnum):
    PASS = "pass"  # noqa: S105 - a status, not a secret
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"


class GateResult(Struct, frozen=True):
    gate: str
    status: Status
    checks: int
    failures: tuple[Failure, ...] = ()
    note: str = ""
    """Why it is not applicable, when it ran, or what it could not check; may be empty."""

    def as_json(self) -> dict[str, Json]:
        return {**asdict(self), "failures": [asdict(each) for each in self.failures]}


def not_applicable(gate: str, why: str) -> GateResult:
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


G0A: Final = "G0A"
"""Checks an archive before its install; the others check a plane."""
G0B: Final = "G0B"
G1: Final = "G1"
G1_COMPLETE: Final = "G1-COMPLETE"
G2: Final = "G2"
G3: Final = "G3"
G4: Final = "G4"
G5: Final = "G5"
G6: Final = "G6"

PLANE_GATES: Final = (G0B, G1, G1_COMPLETE, G2, G3, G4, G5, G6)
"""The gates that `--all` runs, in this order."""
ALL_GATES: Final = (G0A, *PLANE_GATES)


class Tally:
    def __init__(self, gate: str) -> None:
        self._gate = gate
        self._checks = 0
        self._failures: list[Failure] = []

    def look(self, file: str, problem: str) -> None:
        self._checks += 1
        if problem:
            self._add(Failure(file, problem))

    def count(self, looks: int) -> None:
        self._checks += looks

    def discount(self) -> None:
        """Of all checks so far, count only the failures."""
        self._checks = len(self._failures)

    def fail(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self._checks += 1
            self._add(failure)

    def result(self, nothing: str) -> GateResult:
        """`nothing` is the note if nothing was checked."""
        if not self._checks:
            return not_applicable(self._gate, nothing)
        status = Status.FAIL if self._failures else Status.PASS
        return GateResult(self._gate, status, self._checks, tuple(self._failures))

    def _add(self, failure: Failure) -> None:
        # Threat: a file's name may hold control characters, or bytes that are not UTF-8.
        shown = Failure(show_name(failure.file), failure.reason)
        if shown not in self._failures:
            self._failures.append(shown)


GATE_KEY: Final = "gate"
_FAILURES_MAX: Final = 50
"""In one entry; `failures_total` has the full number."""
_REASON_CHARS_MAX: Final = 1_000
_DECISIONS: Final[Mapping[Status, str]] = {Status.PASS: "allow", Status.FAIL: "deny"}


def gate_entry(result: GateResult, set_digest: str | None, by: str) -> Entry:
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


def read_result(entry: Entry) -> GateResult | None:
    try:
        return convert(entry.metadata, GateResult)
    except ValidationError:
        return None
