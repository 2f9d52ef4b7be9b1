"""One change of a plane's packages at a time, and making it as one set."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

from paddock import limits
from paddock.errors import HostError, PathError, TextError, UsageError
from paddock.ledger.format.encoding import (
    ID_BYTES,
    EntryRefusedError,
    encode_body,
    format_id,
    format_timestamp,
)
from paddock.packages.depot import Depot
from paddock.packages.finishing import Recovered, settle, tidy
from paddock.packages.installed import InstalledSet, read_installed
from paddock.packages.log import PackageLog
from paddock.packages.recorded import Record, find_deviations, replay
from paddock.packages.refusals import GateRefusedError
from paddock.packages.swapping import Swap
from paddock.packages.transaction import Phase, Transaction
from paddock.values.calls import Json

_AS_RECORDED: Final = (
    "nothing was changed; put HOT/installed back as the packages ledger says (see: paddock gate"
    " --gate G6), packages of the bootstrap by: paddock bootstrap install --root PLANE --force"
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is installed on a plane: by its files, and by its packages ledger."""

    installed: InstalledSet
    log: PackageLog
    record: Record
    """What that ledger comes to."""


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


def require_as_recorded(depot: Depot) -> Standing:
    """What is installed, where files and packages ledger agree on it.

    Threat: an entry that tells of a set which follows from no entries before it makes the
    gates fail for good, also when what was amiss is put right.

    Raises:
        GateRefusedError: G0B: as `require_installed`; G6: they do not agree.
        LedgerDamagedError: as `PackageLedger.read`.
    """
    standing = _read_standing(depot)
    deviations = find_deviations(standing.record, standing.installed)
    if deviations:
        raise GateRefusedError("G6", deviations, hint=_AS_RECORDED)
    return standing


def require_repairable(depot: Depot) -> Standing:
    """The same where one package is to be put right: packages may be missing, or not as recorded.

    Raises: as `require_as_recorded`.
    """
    standing = _read_standing(depot)
    if standing.record.problems:
        raise GateRefusedError("G6", standing.record.problems, hint=_AS_RECORDED)
    return standing


def _read_standing(depot: Depot) -> Standing:
    installed = require_installed(depot)
    log = depot.ledger.read()
    return Standing(installed, log, replay(log.entries))


def require_room(transaction: Transaction) -> None:
    """Refuse a change of which too much would have to be told, before anything of it happens.

    Threat: a swap that took place and cannot be recorded leaves a plane on which no command
    works any more.

    Raises: UsageError: its ledger entry, or the record of it on its way, would be too long.
    """
    entry, package_id = transaction.entry, transaction.package_id
    try:
        encode_body(entry, format_id(bytes(ID_BYTES)), format_timestamp(0))
    except EntryRefusedError as refused:
        counts = ", ".join(f"{_count(entry.metadata.get(key))} {what}" for key, what in _LISTS)
        raise UsageError(
            f"the packages ledger cannot tell of this change of {package_id}: {refused.message};"
            f" it has {counts}",
            hint="nothing was changed; make it several packages, or its commands shorter",
        ) from refused
    size = len(replace(transaction, phase=Phase.DECIDED).to_bytes())
    if size > limits.receipt_bytes_max:
        raise UsageError(
            f"the record of this change of {package_id} would have {size} bytes, over"
            f" {limits.receipt_bytes_max}: it changes {len(transaction.changes)} paths",
            hint="nothing was changed; make it several packages, or its paths shorter",
        )


_LISTS: Final = (
    ("acceptance", "acceptance commands"),
    ("dependencies", "dependencies"),
)
"""What of an entry may be long, and what to call it."""


def _count(listed: Json) -> int:
    return len(cast("list[Json]", listed)) if isinstance(listed, list) else 0


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
