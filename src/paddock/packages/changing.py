"""One change of a plane's packages at a time, and making it as one set."""

from collections.abc import Generator
from contextlib import contextmanager

from paddock.errors import HostError, PathError, TextError
from paddock.packages.depot import Depot
from paddock.packages.finishing import Recovered, settle, tidy
from paddock.packages.installed import InstalledSet, read_installed
from paddock.packages.refusals import GateRefusedError
from paddock.packages.swapping import Swap
from paddock.packages.transaction import Transaction


@contextmanager
def changing(depot: Depot) -> Generator[Recovered | None]:
    """The plane's packages, for one change; what was left half done is settled first.

    Raises: as `settle`; HostError: somebody else is changing them for long.
    """
    with depot.attic.locked():
        recovered = settle(depot)
        tidy(depot)
        yield recovered


def recover_packages(depot: Depot) -> Recovered | None:
    """Settle what a killed process left, unless somebody is changing packages right now.

    Raises: as `settle`.
    """
    if not depot.attic.has_transaction():
        return None
    with depot.attic.try_locked() as is_ours:
        return settle(depot) if is_ours else None


def require_installed(depot: Depot) -> InstalledSet:
    """What is installed. Raises: GateRefusedError: G0B: something there is no whole package."""
    installed = read_installed(depot.layout)
    if installed.problems:
        raise GateRefusedError("G0B", installed.problems, hint="put HOT/installed in order first")
    return installed


def carry_out(depot: Depot, transaction: Transaction, swap: Swap) -> None:
    """Tell of the change, then make it, as one set. Raised: it did not happen, or is settled.

    Raises: HostError: somebody changed the plane meanwhile, or the disk failed.
    """
    depot.attic.write(transaction)
    try:
        depot.workspace.commit([swap.changes], depot.objects, depot.journal, label=transaction.id)
    except (TextError, PathError) as failure:
        settle(depot)
        raise HostError(
            f"the plane was changed by somebody else meanwhile: {failure.message}",
            hint="nothing was changed; try again",
        ) from failure
    except BaseException:
        settle(depot)
        raise
