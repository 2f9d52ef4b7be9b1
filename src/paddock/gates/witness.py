"""The port by which gates ask what is known of a ledger from outside it.

A ledger by itself cannot tell that it was replaced as a whole, put back to an earlier copy,
or cut off at its end together with everything beside it.
"""

from pathlib import Path
from typing import Protocol

from paddock.ledger.verify.verifying import Verification
from paddock.plane.layout import LedgerName


class LedgerWitness(Protocol):
    """Knows ledgers of a plane from outside the plane: their keys, signed heads kept elsewhere."""

    def expects(self, name: LedgerName) -> bool:
        """Whether there has to be a ledger of that name, whatever stands in the plane.

        Raises: HostError: what tells of it cannot be read.
        """
        ...

    def verify(self, name: LedgerName, path: Path) -> Verification:
        """Verify the whole ledger, and compare it with every head of it that is held elsewhere.

        Raises:
            HostError, LedgerDamagedError: the ledger cannot be read.
            ConfigError: what is held elsewhere does not load.
        """
        ...

    def knows_plane(self) -> bool:
        """Whether it knows anything at all of this plane's ledgers.

        Raises: HostError, ConfigError: what is held elsewhere cannot be read.
        """
        ...

    def problem(self, name: LedgerName, found: Verification) -> str:
        """What is wrong with a ledger as a whole: it is another one. Empty where nothing is.

        Raises: ConfigError: what is known of it cannot be read.
        """
        ...
