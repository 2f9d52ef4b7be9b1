"""Uninstalling a package: one swap."""

from paddock.errors import UsageError
from paddock.packages.attic import new_transaction_id
from paddock.packages.changing import carry_out, changing, require_as_recorded, require_room
from paddock.packages.depot import Depot
from paddock.packages.finishing import complete, decide
from paddock.packages.installed import InstalledPackage, InstalledSet, digest_of_set, row_of
from paddock.packages.log import about, uninstalled_entry
from paddock.packages.names import manifest_path, receipt_path
from paddock.packages.ownership import plan_ownership
from paddock.packages.refusals import Failure, GateRefusedError
from paddock.packages.reports import Report
from paddock.packages.swapping import Swap
from paddock.packages.transaction import Phase, Transaction
from paddock.text.show import quote
from paddock.values.calls import Json


def uninstall(depot: Depot, package_id: str) -> Report:
    """Remove a package. Needs no approval.

    Raises:
        UsageError: it is not installed.
        GateRefusedError: another package needs it, it holds what a plane cannot be without, or
            the plane is not as its packages ledger says.
        Otherwise as `install`.
    """
    with changing(depot):
        installed = require_as_recorded(depot).installed
        old = installed.packages.get(package_id)
        if old is None:
            raise UsageError(
                f"{quote(package_id)} is not installed", hint="see: paddock package list"
            )
        needed_by = installed.dependents_of(package_id)
        if needed_by:
            failures = [Failure(name, f"it depends on {package_id}") for name in needed_by]
            raise GateRefusedError("G3", failures, hint="uninstall these first")
        return _remove(depot, installed, old)


def _remove(depot: Depot, installed: InstalledSet, old: InstalledPackage) -> Report:
    acts = plan_ownership(None, old, installed)
    swap = Swap(depot.workspace, depot.attic, new_transaction_id())
    for act in acts:
        swap.add(act, {})
    swap.remove(receipt_path(old.package_id))
    swap.remove(manifest_path(old.package_id))
    swap.finish()
    transaction = _transaction(installed, old, swap)
    require_room(transaction)
    carry_out(depot, transaction, swap)
    entry_id = complete(depot, decide(depot, transaction))
    return Report(
        status="uninstalled",
        package_id=old.package_id,
        version=old.manifest.version.text,
        digest=old.manifest.digest,
        changes=tuple(swap.paths),
        notes=tuple(swap.notes),
        ledger_entry=entry_id,
    )


def _transaction(installed: InstalledSet, old: InstalledPackage, swap: Swap) -> Transaction:
    left = (
        package.manifest for name, package in installed.packages.items() if name != old.package_id
    )
    metadata: dict[str, Json] = {
        **about(row_of(old.manifest)),
        "files": len(old.manifest.assets),
        "set_digest": digest_of_set(left),
    }
    return Transaction(
        id=swap.transaction_id,
        package_id=old.package_id,
        phase=Phase.BEGUN,
        is_tested=False,
        manifest_before=old.manifest.digest,
        manifest_after=None,
        changes=tuple(swap.paths),
        made=tuple(swap.made),
        removed=tuple(swap.removed),
        entry=uninstalled_entry(swap.transaction_id, old.package_id, metadata),
        receipt=None,
    )
