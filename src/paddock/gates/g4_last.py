"""G4 as a model gets it: no command runs; the last recorded run is told, with its age.

A run counts for the packages that were installed when it ran, and for no others.
"""

from datetime import datetime
from typing import Final, cast

from paddock.errors import LedgerDamagedError
from paddock.gates.ground import Ground
from paddock.gates.names import G4
from paddock.gates.records import GATE_KEY, read_failures
from paddock.gates.results import GateResult, Status, not_applicable
from paddock.ledger.decided import find_decided
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow, Filter
from paddock.packages.rows import Failure
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json
from paddock.values.events import GATE_RESULT

NOT_RUN: Final = "not run yet"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def report(ground: Ground) -> GateResult:
    """The last run of G4 on what is installed now. Raises: IntegrityError, HostError."""
    if ground.deviations:
        return GateResult(G4, Status.FAIL, len(ground.deviations), ground.deviations)
    stored = _last_run(ground)
    if stored is None:
        return not_applicable(G4, NOT_RUN)
    metadata = stored.entry.metadata
    said = f"run {_age(stored.timestamp, ground.tools.now)} ago"
    if metadata.get("set_digest") != ground.installed.digest:
        return not_applicable(G4, f"{NOT_RUN} on what is installed now; the last was {said}")
    status, checks = _status(metadata.get("status")), metadata.get("checks")
    if status is None or not isinstance(checks, int):
        return not_applicable(G4, NOT_RUN)
    failures: tuple[Failure, ...] = read_failures(cast("Json", metadata.get("failures")))
    return GateResult(G4, status, checks, failures, said)


def _last_run(ground: Ground) -> StoredEntry | None:
    path = ground.ledger_path(LedgerName.GOVERNANCE)
    if not path.exists():
        return None
    # Threat: a posting file that lacks the last run would have an earlier one told for it.
    for row in find_decided(str(path), (GATE_RESULT,), Filter()):
        if isinstance(row, BadRow):
            raise LedgerDamagedError(
                "a line of the governance ledger holds no entry", where=f"byte {row.offset_bytes}"
            )
        metadata = row.entry.metadata
        is_run = metadata.get("status") in {Status.PASS, Status.FAIL}
        if metadata.get(GATE_KEY) == G4 and is_run:
            return row
    return None


def _status(value: Json) -> Status | None:
    return next((each for each in Status if each.value == value), None)


def _age(timestamp: str, now: float) -> str:
    passed_s = max(0, int(now - datetime.fromisoformat(timestamp).timestamp()))
    for size_s, unit in _UNITS:
        if passed_s >= size_s:
            return f"{passed_s // size_s} {unit}"
    return "0 s"
