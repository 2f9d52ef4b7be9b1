"""The ledgers of a plane by their names, for those who only read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from paddock.ledger.presence import stands
from paddock.ledger.query import Filter, Rows, query
from paddock.plane.layout import LedgerName

_NOTHING: Final = Rows((), (), 0, 0)


class Ledgers(Protocol):
    def query(self, name: LedgerName, wanted: Filter, last: int | None) -> Rows:
        """The `last` entries that match (None: all), newest last.

        A ledger that was not made yet has none.

        Raises: HostError where it cannot be read; LedgerDamagedError where it is gone.
        """
        ...


class PlaneLedgers:
    """The ledgers of one plane. A ledger that was not made yet has no entries."""

    def __init__(self, paths: Mapping[LedgerName, Path]) -> None:
        self._paths = paths

    def query(self, name: LedgerName, wanted: Filter, last: int | None) -> Rows:
        path = self._paths[name]
        return query(str(path), wanted, last=last) if stands(path) else _NOTHING
