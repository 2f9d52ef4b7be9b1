"""Install, upgrade, remove and list packages: every check first, then one set of changes.

Nothing of the package is written before these have passed, in this order:

    G0A  the archive is exactly what its manifest declares      (`read_archive`)
    G6   `HOT/installed` agrees with the packages ledger
    G3   its dependencies are installed, without a cycle
    ownership: each path is valid (G0B) and belongs to no other package
    G5   the version is not below the last one; a signature, if there is one, is valid
    G2   an approval for exactly this digest, unused, in time, within its scope
    ownership: the existing file at each path
    G0B  configuration, policy and contracts load; room: the ledger entry is not too long
    G4   its acceptance commands pass, on the plane with its files on top

Then the swap, the ledger entry, the receipt; `change` describes crashes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from paddock.errors import UsageError
from paddock.packages import signing, statements
from paddock.packages.archive import Archive
from paddock.packages.change import (
    AcceptanceResult,
    Depot,
    PackagesState,
    PathChange,
    PendingChange,
    Swap,
    Transaction,
    carry_out,
    changing,
    new_transaction_id,
    require_as_recorded,
    require_repairable,
    require_room,
    transaction_of,
)
from paddock.packages.installed import (
    POLICIES,
    Act,
    InstalledFile,
    InstalledPackage,
    InstalledSet,
    InstallReceipt,
    check_package,
    digest_of_rows,
    digest_of_set,
    file_problem,
    find_loading_problems,
    plan_ownership,
    read_installed,
    row_of,
)
from paddock.packages.ledger import (
    PackageLedger,
    find_deviations_of,
    installed_entry,
    uninstalled_entry,
)
from paddock.packages.manifest import (
    FILE_MODE,
    TIERS_OF,
    Manifest,
    find_graph_problems,
    install_order,
    manifest_path,
    receipt_path,
)
from paddock.packages.rows import Failure, GateRefusedError, PackageRow, State
from paddock.plane.layout import PlaneLayout
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import Entry, digest_of
from paddock.workspace import Workspace


class InstallReport(Struct, frozen=True):
    status: str
    """`installed`, `upgraded`, `repaired`, `uninstalled`, `unchanged` or `planned`."""
    package_id: str
    version: str
    digest: str
    previous: str | None = None
    wo_id: str | None = None
    changes: tuple[PathChange, ...] = ()
    notes: tuple[str, ...] = ()
    acceptance: tuple[AcceptanceResult, ...] = ()
    ledger_entry: str | None = None

    def as_json(self) -> dict[str, Json]:
        return {
            **asdict(self),
            "changes": [{"path": change.path, "change": change.word} for change in self.changes],
            "handed_over": [],
            "notes": list(self.notes),
            "acceptance": [result.as_json() for result in self.acceptance],
        }


_CHANGED: Final = (
    "it is installed, but its files were changed; to put them back: paddock package approve"
    " ARCHIVE, then install it again"
)
_LONGEST_S: Final = 1e9
"""A duration for `require_room`: longer than any acceptance command takes."""


class InstallWish(Struct, frozen=True):
    is_dry_run: bool = False
    """Check everything but G4, and install nothing."""
    dev: bool = False
    """Install without an approval: the gates G2 and G5 fail until it has one."""
    plane_is_dev: bool = False
    """The plane was made with `--dev`: it needs no approval and no signature."""
    signature: signing.Signature | None = None
    repairs: bool = False
    """Install also where `HOT/installed` does not agree with the packages ledger."""

    @property
    def asks_nothing(self) -> bool:
        return self.dev or self.plane_is_dev


def install(depot: Depot, archive: Archive, wish: InstallWish) -> InstallReport:
    """Install a package, replace another version of it, or put changed files of this one back.

    Raises:
        GateRefusedError: a gate says no; nothing changed.
        OwnershipRefusedError: a file belongs to somebody else; nothing changed.
        SandboxUnavailableError: its acceptance commands cannot run here; nothing changed.
        HostError, StorageFullError, LedgerBusyError, LedgerFullError: the host failed:
            nothing changed, or the next command on the plane completes it.
        UsageError: its ledger entry, or its record, would be too large.
        IntegrityError: the plane or its packages ledger is damaged.
    """
    with changing(depot):
        state = require_repairable(depot) if wish.repairs else require_as_recorded(depot)
        old = state.installed.packages.get(archive.manifest.package_id)
        installing = _Installing(depot, archive, wish, state, old)
        if old is not None and installing.is_in_place(old):
            version = old.manifest.version
            return InstallReport("unchanged", old.package_id, version, old.manifest.digest)
        judged = installing.judge()
        if wish.is_dry_run:
            return installing.planned(judged)
        return installing.run(judged)


class _Judged(Struct, frozen=True):
    approval: signing.PackageApproval | None
    swap: Swap
    receipt: InstallReceipt
    entry: Entry

    def transaction(self, results: Iterable[AcceptanceResult]) -> Transaction:
        rows: list[Json] = [result.as_json() for result in results]
        entry = self.entry._replace(metadata={**self.entry.metadata, "acceptance": rows})
        return transaction_of(self.receipt.package_id, (entry, self.receipt))


class _Installing(Struct, frozen=True):
    depot: Depot
    archive: Archive
    wish: InstallWish
    state: PackagesState
    old: InstalledPackage | None

    @property
    def manifest(self) -> Manifest:
        return self.archive.manifest

    def is_in_place(self, old: InstalledPackage) -> bool:
        if old.manifest.digest != self.manifest.digest:
            return False
        deviations = find_deviations_of(old.package_id, self.state.record, self.state.installed)
        return not deviations and not check_package(old, self.depot.workspace)

    def judge(self) -> _Judged:
        manifest, installed = self.manifest, self.state.installed
        before = {name: package.manifest for name, package in installed.packages.items()}
        problems = find_graph_problems({**before, manifest.package_id: manifest})
        if problems:
            raise GateRefusedError("G3", problems)
        acts = plan_ownership(manifest, self.old, installed)
        statements.require_no_rollback(manifest, self.old, self.state.record)
        is_free = self.wish.asks_nothing
        approval = None if is_free else self._approval(acts)
        signature = None if is_free else self.wish.signature
        receipt = draft_receipt(self.depot, self.archive, approval, signature, dev=is_free)
        swap = self._swap(acts, receipt)
        self._require_loading(swap)
        judged = _Judged(approval, swap, receipt, self._entry(receipt, approval))
        tests = (each.command for each in manifest.acceptance)
        require_room(
            judged.transaction(AcceptanceResult(test, True, 0, "", _LONGEST_S) for test in tests)
        )
        return judged

    def _approval(self, acts: tuple[Act, ...]) -> signing.PackageApproval:
        depot, manifest = self.depot, self.manifest
        statements.require_signature(manifest, self.wish.signature, signing.read_keys(depot.layout))
        receipts = (each.receipt.wo_id for each in self.state.installed.packages.values())
        used = self.state.record.used_approvals.union(wo_id for wo_id in receipts if wo_id)
        claim = signing.ApprovalClaim(
            manifest.digest, tuple(act.path for act in acts), depot.clock()
        )
        try:
            return statements.require_approval(depot, manifest.package_id, claim, used)
        except GateRefusedError as refusal:
            if self.old is None or self.old.manifest.digest != manifest.digest:
                raise
            changed = check_package(self.old, depot.workspace)
            raise GateRefusedError("G2", (*changed, *refusal.failures), hint=_CHANGED) from refusal

    def _require_loading(self, swap: Swap) -> None:
        after = {change.path: change.after for change in swap.paths}
        brought = self.manifest.by_path.keys()
        put = {path: each.content for path, each in after.items() if each and path in brought}
        resolve = self.depot.workspace.resolve_entry
        policies = frozenset(
            path
            for path in POLICIES
            if (after[path] is not None if path in after else resolve(path).exists)
        )
        problems = tuple(find_loading_problems(put, policies, self.depot.load))
        if problems:
            raise GateRefusedError(
                "G0B",
                problems,
                hint="nothing was changed: with it, no command would work on the plane",
            )

    def planned(self, judged: _Judged) -> InstallReport:
        report, tests = self.report(judged), len(self.manifest.acceptance)
        left = f"not run: {tests} acceptance command{'' if tests == 1 else 's'}"
        notes = (*report.notes, left) if tests else report.notes
        return replace(report, status="planned", notes=notes)

    def run(self, judged: _Judged) -> InstallReport:
        results = self._test(judged.swap)
        entry_id = carry_out(self.depot, judged.transaction(results), judged.swap)
        return replace(self.report(judged), acceptance=results, ledger_entry=entry_id)

    def _test(self, swap: Swap) -> tuple[AcceptanceResult, ...]:
        results: list[AcceptanceResult] = []
        for acceptance in self.manifest.acceptance:
            result = self.depot.acceptance.run(acceptance, swap.paths)
            if not result.passed:
                failure = Failure("", str(result))
                raise GateRefusedError("G4", [failure], hint="nothing was changed")
            results.append(result)
        return tuple(results)

    def _swap(self, acts: tuple[Act, ...], receipt: InstallReceipt) -> Swap:
        files = {packed.path: packed for packed in self.archive.files}
        swap = Swap(self.depot.workspace)
        for act in acts:
            swap.add(act, files)
        swap.write(manifest_path(self.manifest.package_id), self.manifest.canonical, FILE_MODE)
        swap.write_receipt(receipt)
        swap.finish()
        return swap

    def _entry(self, receipt: InstallReceipt, approval: signing.PackageApproval | None) -> Entry:
        manifest = self.manifest
        recorded = self.state.record.packages
        told = recorded.get(manifest.package_id)
        after = {name: package.row for name, package in recorded.items()}
        after[manifest.package_id] = row_of(manifest)
        return installed_entry(
            manifest,
            receipt,
            approval,
            # From the ledger, since entries have to be consistent: in a repair the package may be
            # missing on the plane, or have another version there.
            previous=None if told is None else told.row,
            set_digest=digest_of_rows(after.values()),
            is_upgrade=self.old is not None,
        )

    def report(self, judged: _Judged) -> InstallReport:
        manifest, old = self.manifest, self.old
        is_same = old is not None and old.manifest.digest == manifest.digest
        return InstallReport(
            status="installed" if old is None else "repaired" if is_same else "upgraded",
            package_id=manifest.package_id,
            version=manifest.version,
            digest=manifest.digest,
            previous=None if old is None or is_same else old.manifest.version,
            wo_id=None if judged.approval is None else judged.approval.wo_id,
            changes=tuple(judged.swap.paths),
            notes=tuple(judged.swap.notes),
        )


def draft_receipt(
    depot: Depot,
    archive: Archive,
    approval: signing.PackageApproval | None,
    signature: signing.Signature | None,
    *,
    dev: bool,
) -> InstallReceipt:
    manifest = archive.manifest
    return InstallReceipt(
        package_id=manifest.package_id,
        version=manifest.version,
        digest=manifest.digest,
        archive=archive.sha256,
        transaction=new_transaction_id(),
        installed_at=signing.timestamp_of(depot.clock()),
        wo_id=None if approval is None else approval.wo_id,
        dev=dev,
        signature=signature,
        files=tuple(
            InstalledFile(each.path, digest_of(each.content), "755" if each.mode & 0o100 else "644")
            for each in archive.files
        ),
    )


def uninstall(depot: Depot, package_id: str) -> InstallReport:
    """Remove a package. Needs no approval.

    Raises: UsageError: it is not installed. GateRefusedError: another package or the plane needs
    it. Otherwise as `install`.
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


def _remove(depot: Depot, installed: InstalledSet, old: InstalledPackage) -> InstallReport:
    acts = plan_ownership(None, old, installed)
    swap = Swap(depot.workspace)
    for act in acts:
        swap.add(act, {})
    swap.remove(receipt_path(old.package_id))
    swap.remove(manifest_path(old.package_id))
    swap.finish()
    left = (each.manifest for name, each in installed.packages.items() if name != old.package_id)
    entry = uninstalled_entry(new_transaction_id(), old.manifest, digest_of_set(left))
    transaction = transaction_of(old.package_id, (entry, None))
    require_room(transaction)
    entry_id = carry_out(depot, transaction, swap)
    return InstallReport(
        status="uninstalled",
        package_id=old.package_id,
        version=old.manifest.version,
        digest=old.manifest.digest,
        changes=tuple(swap.paths),
        notes=tuple(swap.notes),
        ledger_entry=entry_id,
    )


# The rows of a plane's packages, with each file checked now; the owner of a file.


class PlanePackages(Struct, frozen=True):
    layout: PlaneLayout
    ledger: PackageLedger
    open_workspace: Callable[[], AbstractContextManager[Workspace]]

    def list_all(self) -> tuple[PackageRow, ...]:
        installed = read_installed(self.layout)
        record = self.ledger.read()
        rows: list[PackageRow] = []
        with self.open_workspace() as workspace:
            for package in installed.packages.values():
                wo_id = record.approval_of(package.package_id, package.manifest.digest)
                rows.append(_row(package, workspace, wo_id))
        places = _places(installed)
        rows.sort(key=lambda row: (places.get(row.package_id, 0), row.layer, row.package_id))
        return (*rows, *self._unread(installed))

    def _unread(self, installed: InstalledSet) -> Iterator[PackageRow]:
        if not installed.problems:
            return
        pending = PendingChange(self.layout)
        with pending.try_at_rest() as is_at_rest:
            on_its_way = pending.read()
        for failure in installed.problems:
            name = failure.file.rpartition("/")[2]
            if not is_at_rest or (on_its_way is not None and name == on_its_way.package_id):
                yield PackageRow(package_id=name, state=State.CHANGING)
            else:
                yield PackageRow(package_id=name, state=State.DAMAGED, failures=(failure,))


def _row(package: InstalledPackage, workspace: Workspace, wo_id: str | None) -> PackageRow:
    failures = check_package(package, workspace)
    manifest, receipt = package.manifest, package.receipt
    return PackageRow(
        package_id=manifest.package_id,
        state=State.CHANGED if failures else State.INSTALLED,
        version=manifest.version,
        tier=TIERS_OF[manifest.plane_id][0],
        layer=manifest.layer,
        framework_id=manifest.framework_id,
        spec_id=manifest.spec_id,
        title=manifest.title,
        digest=manifest.digest,
        installed_at=receipt.installed_at,
        wo_id=wo_id,
        dev=receipt.dev,
        failures=failures,
    )


def _places(installed: InstalledSet) -> dict[str, int]:
    try:
        ordered = install_order(package.manifest for package in installed.packages.values())
    except GateRefusedError:
        return {}  # G3 reports faults of the graph; the list is sorted by layer.
    return {manifest.package_id: place for place, manifest in enumerate(ordered)}


class Ownership(Struct, frozen=True):
    path: str
    owner: PackageRow | None
    classification: str = ""
    problem: str = ""

    def as_json(self) -> dict[str, Json]:
        owner = self.owner
        return {
            "path": self.path,
            "owner": None if owner is None else owner.package_id,
            "version": None if owner is None else owner.version,
            "digest": None if owner is None else owner.digest,
            "wo_id": None if owner is None else owner.wo_id,
            "classification": self.classification,
            "problem": self.problem,
            "handed_over_by": [],
        }


def find_owner(packages: PlanePackages, path: str) -> Ownership:
    installed = read_installed(packages.layout)
    owner = installed.owner_of(path)
    if owner is None:
        return Ownership(path, None)
    record = packages.ledger.read()
    with packages.open_workspace() as workspace:
        wo_id = record.approval_of(owner.package_id, owner.manifest.digest)
        row = _row(owner, workspace, wo_id)
        problem = file_problem(owner, path, workspace)
    classification = owner.manifest.by_path[path].classification
    return Ownership(path, row, classification, problem)
