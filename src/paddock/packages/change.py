"""Making a change of packages, and going on with one that was stopped, whoever began it.

    record → the swap, one set of the plane's journal, with a draft of the receipt
    → ledger entry → receipt → the record goes

Killed at any moment, the next command on the plane settles it, in this order:

  * the journal settles the swap: it happened as a whole, or not at all;
  * not happened, as the receipt tells: the change never was, and the record goes;
  * happened: it is completed. The ledger is asked first whether the entry is there, so there
    is one whatever happens.
"""

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    PathError,
    TextError,
    UsageError,
)
from paddock.ledger.format.line import ID_BYTES, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, encode_body
from paddock.packages.installed import InstalledSet, parse_receipt, read_installed
from paddock.packages.ledger import PackageLog, Record, find_deviations, replay
from paddock.packages.manifest import manifest_path, receipt_path
from paddock.packages.rows import GateRefusedError
from paddock.packages.swap import Swap
from paddock.packages.transaction import Depot, Transaction, sweep_drafts
from paddock.plane.json_files import write_object
from paddock.storage.atomic import read_file
from paddock.storage.disk import Disk
from paddock.values.calls import Json
from paddock.workspace.apply import RecoveredSet, commit_changes, recover


class Decided(Enum):
    COMPLETED = "completed"
    NEVER_BEGUN = "never begun"


class RecoveredChange(Struct, frozen=True):
    package_id: str
    outcome: Decided


def settle(depot: Depot) -> RecoveredChange | None:
    """None where there was nothing. The lock is held.

    Raises: HostError: it cannot be settled now. IntegrityError: nobody can tell whether it
    happened. LedgerBusyError, LedgerFullError: all but the entry is there.
    """
    transaction = depot.pending.read()
    if transaction is None:
        return None
    _settle_swap(depot, transaction)
    if has_happened(depot, transaction):
        complete(depot, transaction)
        return RecoveredChange(transaction.package_id, Decided.COMPLETED)
    end(depot)
    return RecoveredChange(transaction.package_id, Decided.NEVER_BEGUN)


def has_happened(depot: Depot, transaction: Transaction) -> bool:
    """Told by the receipt that the swap brings; of an uninstall, by the manifest that it takes.

    Raises: IntegrityError: what stands in the receipt's place is none.
    """
    package_id = transaction.package_id
    path = depot.layout.root / receipt_path(package_id)
    try:
        if transaction.receipt is None:
            manifest = depot.layout.root / manifest_path(package_id)
            return read_file(manifest, limits.manifest_bytes_max) is None
        content = read_file(path, limits.receipt_bytes_max)
        if content is None:
            return False
        return parse_receipt(content, str(path)).transaction == transaction.id
    except ConfigError as error:
        raise IntegrityError(
            f"{package_id} was being changed, and its receipt does not tell how far that came:"
            f" {error.message}",
            where=str(path),
            hint="restore it from a backup",
        ) from error


def complete(depot: Depot, transaction: Transaction) -> str:
    """Ledger entry, receipt, and the record goes; the entry's id. Done twice, it is done once."""
    known = depot.ledger.read().find(transaction.id)
    entry_id = depot.ledger.append(transaction.entry) if known is None else known.id
    if transaction.receipt is not None:
        receipt = replace(transaction.receipt, ledger_entry=entry_id)
        swap = Swap(depot.workspace)
        swap.write_receipt(receipt)
        commit_changes(
            depot.workspace,
            [swap.changes],
            depot.objects,
            depot.journal,
            label=f"{transaction.id}-receipt",
        )
    end(depot)
    return entry_id


def end(depot: Depot) -> None:
    depot.pending.forget()
    tidy(depot)


def tidy(depot: Depot) -> None:
    """Remove drafts that killed writers left."""
    registries = depot.layout.registries
    for place in (registries / "keys", registries / "approvals", depot.layout.package_changes):
        sweep_drafts(place)


def _settle_swap(depot: Depot, transaction: Transaction) -> None:
    for found in recover(depot.journal, Disk(), depot.workspace.resolution):
        is_ours = not found.label or found.label.startswith(transaction.id)
        if found.settled is RecoveredSet.WAITING and is_ours:
            raise HostError(
                f"the change of {transaction.package_id} cannot be settled yet: {found.why}",
                hint="end other programs that work on the plane, then try again",
            )


_AS_RECORDED: Final = (
    "nothing was changed; put HOT/installed back as the packages ledger says (see: paddock gate"
    " --gate G6), packages of the bootstrap by: paddock bootstrap install --root PLANE --force"
)


class PackagesState(Struct, frozen=True):
    installed: InstalledSet
    log: PackageLog
    record: Record


@contextmanager
def changing(depot: Depot) -> Generator[RecoveredChange | None]:
    """One change at a time; what was left half done is settled first. Raises: as `settle`."""
    with depot.pending.locked():
        recovered = settle(depot)
        tidy(depot)
        yield recovered


def recover_packages(depot: Depot) -> RecoveredChange | None:
    """Unless somebody is changing packages right now. Raises: as `settle`."""
    if not depot.pending.exists():
        return None
    with depot.pending.try_locked() as is_ours:
        return settle(depot) if is_ours else None


def require_installed(depot: Depot) -> InstalledSet:
    """What is installed. Raises: GateRefusedError: G0B: something there is no whole package."""
    installed = read_installed(depot.layout)
    if installed.problems:
        raise GateRefusedError("G0B", installed.problems, hint="put HOT/installed in order first")
    return installed


def require_as_recorded(depot: Depot) -> PackagesState:
    """What is installed, where files and packages ledger agree on it.

    Threat: an entry that tells of a set which follows from no entries before it makes the
    gates fail for good, also when what was amiss is put right.

    Raises: GateRefusedError: G0B or G6. LedgerDamagedError.
    """
    standing = _read_standing(depot)
    deviations = find_deviations(standing.record, standing.installed)
    if deviations:
        raise GateRefusedError("G6", deviations, hint=_AS_RECORDED)
    return standing


def require_repairable(depot: Depot) -> PackagesState:
    """As `require_as_recorded`, for a repair: packages may be missing, or not as recorded."""
    standing = _read_standing(depot)
    if standing.record.problems:
        raise GateRefusedError("G6", standing.record.problems, hint=_AS_RECORDED)
    return standing


def _read_standing(depot: Depot) -> PackagesState:
    installed = require_installed(depot)
    log = depot.ledger.read()
    return PackagesState(installed, log, replay(log.entries))


def require_room(transaction: Transaction) -> None:
    """Refuse a change of which too much would have to be told. Raises: UsageError.

    Threat: a swap that took place and cannot be recorded leaves a plane on which no command
    works any more.
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
    size = len(write_object(transaction))
    if size > limits.receipt_bytes_max:
        raise UsageError(
            f"the record of this change of {package_id} would have {size} bytes, over"
            f" {limits.receipt_bytes_max}",
            hint="nothing was changed; make it several packages, or its paths shorter",
        )


_LISTS: Final = (
    ("acceptance", "acceptance commands"),
    ("dependencies", "dependencies"),
)


def _count(listed: Json) -> int:
    return len(cast("list[Json]", listed)) if isinstance(listed, list) else 0


def carry_out(depot: Depot, transaction: Transaction, swap: Swap) -> None:
    """Tell of the change, then make it, as one set. Raised: it did not happen, or is settled."""
    depot.pending.write(transaction)
    try:
        commit_changes(
            depot.workspace, [swap.changes], depot.objects, depot.journal, label=transaction.id
        )
    except (TextError, PathError) as failure:
        settle(depot)
        raise HostError(
            f"the plane was changed by somebody else meanwhile: {failure.message}",
            hint="nothing was changed; try again",
        ) from failure
    except BaseException:
        settle(depot)
        raise
