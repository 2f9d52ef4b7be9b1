"""The port by which tools ask for gates. Loads no gate: every runtime has it, and few ask."""

from collections.abc import Sequence
from typing import Final, Protocol

from paddock.gates.results import GateResult, not_applicable


class Gates(Protocol):
    """Runs gates for a model: no acceptance command runs; G4 is told from its last run."""

    def check(self, names: Sequence[str]) -> tuple[GateResult, ...]:
        """These gates of the plane, in this order; what they said is recorded.

        Raises:
            LedgerBusyError: packages are being changed right now: ask again.
            HostError, LedgerBusyError, LedgerFullError: it cannot be recorded.
        """
        ...


class _NoGates:
    def check(self, names: Sequence[str]) -> tuple[GateResult, ...]:
        return tuple(not_applicable(name, "this is no bare plane") for name in names)


NO_GATES: Final[Gates] = _NoGates()
