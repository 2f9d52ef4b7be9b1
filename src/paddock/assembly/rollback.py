"""Accepting that a ledger went back, as after a restore from a backup: by a person, on record.

What was signed before is kept under other names. The acceptance is an entry of the
ledger itself and of the one above, and goes to the anchor; an auditor who kept a
checkpoint of what is gone sees it still.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Final

from paddock.assembly.anchoring import LEDGER_ABOVE, find_anchor
from paddock.assembly.auditing import Audit, audit_ledger
from paddock.assembly.ledgers import above_of, checkpointer_of, open_plane_ledger, signer_of
from paddock.errors import LedgerDamagedError
from paddock.ledger.checkpoints import checkpoints_folder, set_aside_notes
from paddock.ledger.verify.verifying import ChainFault, Problem, Verification
from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.values.entries import ROLLBACK_ACCEPTED, Entry

_ACCEPTABLE: Final = frozenset({ChainFault.ROLLED_BACK, ChainFault.REWRITTEN, ChainFault.ANCHOR})
ORDER: Final = (
    LedgerName.GOVERNANCE,
    LedgerName.PACKAGES,
    LedgerName.HO2M,
    LedgerName.HO1M,
)
"""From the top: what is accepted below is recorded above."""


@dataclass(frozen=True, slots=True)
class WentBack:
    """A ledger that is not what was signed, and how that shows."""

    name: LedgerName
    entries: int
    problems: tuple[Problem, ...]


def find_gone_back(
    layout: PlaneLayout, environment: Environment, names: tuple[LedgerName, ...]
) -> list[WentBack]:
    """Those of the ledgers that went back, from the top.

    Raises:
        LedgerDamagedError: one has another fault as well; that nobody can accept.
    """
    found: list[WentBack] = []
    for name in ORDER:
        if name not in names or not layout.ledger_paths()[name].exists():
            continue
        report = audit_ledger(layout, environment, name, Audit(full=True))
        if report.problems:
            _require_acceptable(name, report)
            found.append(WentBack(name, report.entries, report.problems))
    return found


def accept_rollback(layout: PlaneLayout, environment: Environment, gone: WentBack, by: str) -> None:
    """Let the ledger go on from what is here.

    Raises: LedgerDamagedError, LedgerBusyError, LedgerFullError, ConfigError, HostError.
    """
    name = gone.name
    path = layout.ledger_paths()[name]
    entry = Entry(
        ROLLBACK_ACCEPTED,
        reason="the ledger went back, and a person accepts that",
        metadata={
            "ledger": name,
            "entries": gone.entries,
            "by": by,
            "found": [each.detail for each in gone.problems],
        },
    )
    # The anchor must not hold what contradicts before the record of why is durable:
    # a kill at any point leaves a ledger that still fails, and can be accepted again.
    signer = signer_of(layout, environment, name)
    above = LEDGER_ABOVE.get(name)
    if above is not None:
        with closing(open_plane_ledger(layout, environment, above)) as upper:
            upper.append([entry])
    with closing(open_plane_ledger(layout, environment, name)) as ledger:
        signer.forget()
        set_aside_notes(checkpoints_folder(str(path)), 0)
        ledger.append([entry])
    signed = checkpointer_of(layout, environment, name).make()
    if above is None:
        find_anchor(layout, environment, signed.checkpoint.origin).accept_rollback(signed)
    else:
        above_of(layout, environment, name).take(signed)


def _require_acceptable(name: LedgerName, report: Verification) -> None:
    other = [each for each in report.problems if each.kind not in _ACCEPTABLE]
    if other:
        raise LedgerDamagedError(
            f"the ledger {name} has another fault: {other[0].detail}",
            where=f"line {other[0].line}",
            hint=f"paddock ledger verify --ledger {name}",
        )
