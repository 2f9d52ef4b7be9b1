"""The packages ledger: what was installed when, and which approvals were used.

The ledger, not files that could be restored, decides everything that may happen only once or never
again: whether an approval was used, which version was the last one.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import ConfigError, LedgerDamagedError
from paddock.ledger.append import Ledger
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.verify import Verification, verify
from paddock.packages.installed import (
    InstalledPackage,
    InstalledSet,
    InstallReceipt,
    SetRow,
    digest_of_rows,
    row_of,
)
from paddock.packages.manifest import Manifest, manifest_path, receipt_path
from paddock.packages.rows import Failure
from paddock.packages.signing import PackageApproval, PublicKey
from paddock.plane.json_files import JsonFile
from paddock.plane.layout import LedgerName
from paddock.values import entries as events
from paddock.values.calls import Json

LEDGER: Final = LedgerName.PACKAGES


def verify_alone(path: Path) -> Verification | None:
    if path.exists():
        return verify(str(path))
    if path.with_suffix(".d").exists():
        # Threat: without its ledger a plane has used no approval and seen no version.
        raise ledger_gone(path, "a file beside it")
    return None


def ledger_gone(path: Path, witness: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"the packages ledger is gone: {witness} shows that it existed",
        where=str(path),
        hint="restore it from a backup",
    )


class PackageLedger(Struct, frozen=True):
    path: Path
    open: Callable[[], Ledger]
    """Open it to append, or create it; the caller closes it."""
    verify: Callable[[Path], Verification | None] = verify_alone
    """Verify it, in assembly also against heads kept elsewhere; None: it never existed.

    Threat: a restored earlier copy, with all files beside it, verifies, and has no used approval.
    """

    def read(self) -> "Record":
        report = self.verify(self.path)
        if report is None:
            return Record()
        rows = query_lines(str(self.path), Filter())
        if not report.is_whole or rows.bad:
            raise LedgerDamagedError(
                "the packages ledger does not verify",
                where=str(self.path),
                hint="paddock ledger verify --ledger packages",
            )
        return replay(rows.entries)

    def append(self, entry: events.Entry) -> str:
        return self.append_all([entry])[0]

    def append_all(self, entries: Sequence[events.Entry]) -> tuple[str, ...]:
        ledger = self.open()
        try:
            return tuple(ledger.append(list(entries)).ids)
        finally:
            ledger.close()


def installed_entry(
    manifest: Manifest,
    receipt: InstallReceipt,
    approval: PackageApproval | None,
    *,
    previous: SetRow | None,
    set_digest: str,
    is_upgrade: bool,
) -> events.Entry:
    """`receipt` is a draft; `previous` and `set_digest` are from the ledger."""
    return events.Entry(
        event_type=events.PACKAGE_INSTALLED,
        submission_id=receipt.wo_id or "",
        decision="allow",
        reason=f"{manifest.package_id} was {'upgraded' if is_upgrade else 'installed'}",
        call_id=receipt.transaction,
        metadata={
            **about(row_of(manifest)),
            "archive": receipt.archive,
            # The time when the approval was checked: the entry is later by the duration of the
            # tests.
            "installed_at": receipt.installed_at,
            "receipt": events.digest_of(receipt.to_bytes()),
            "previous": None if previous is None else about(previous),
            "dependencies": list(manifest.dependencies),
            "wo_id": receipt.wo_id,
            "key_id": None if approval is None else approval.key_id,
            "signed_by": None if receipt.signature is None else receipt.signature.key_id,
            "dev": receipt.dev,
            "files": len(manifest.assets),
            "handed_over": [],
            "set_digest": set_digest,
        },
    )


def about(row: SetRow) -> dict[str, Json]:
    package_id, version, digest = row
    return {"package_id": package_id, "version": version, "digest": digest}


def uninstalled_entry(transaction_id: str, manifest: Manifest, set_digest: str) -> events.Entry:
    files = len(manifest.assets)
    return events.Entry(
        event_type=events.PACKAGE_UNINSTALLED,
        decision="allow",
        reason=f"{manifest.package_id} was uninstalled",
        call_id=transaction_id,
        metadata={**about(row_of(manifest)), "files": files, "set_digest": set_digest},
    )


def approved_entry(package_id: str, version: str, approval: PackageApproval) -> events.Entry:
    return events.Entry(
        event_type=events.PACKAGE_APPROVED,
        submission_id=approval.wo_id,
        decision="allow",
        reason=f"{package_id} was approved after it was installed",
        metadata={
            **about((package_id, version, approval.digest)),
            "wo_id": approval.wo_id,
            "key_id": approval.key_id,
        },
    )


def enrolled_entry(key: PublicKey) -> events.Entry:
    return events.Entry(
        event_type=events.OPERATOR_KEY_ENROLLED,
        decision="allow",
        reason="the plane had no key, and got its operator's key",
        metadata={"key_id": key.key_id},
    )


# Pure from here on: entries in, values out.
#
# Entries are replayed from the first one. Each change names the digest of the whole set after it,
# so a missing, moved or altered entry is detected there, even if the chain was recomputed.

LEDGER_FILE: Final = "HOT/ledger/packages.jsonl"


class RecordedPackage(Struct, frozen=True, kw_only=True):
    """From its entry; a later approval replaces `wo_id` and `key_id`."""

    package_id: str
    version: str
    digest: str
    archive: str
    receipt: str
    """The digest of its receipt as drafted, with an empty `ledger_entry`."""
    installed_at: str
    set_digest: str
    dependencies: tuple[str, ...] = ()
    dev: bool = False
    wo_id: str | None = None
    key_id: str | None = None
    previous: "_Previous | None" = None
    entry_id: str = ""
    transaction: str = ""

    @property
    def row(self) -> SetRow:
        return self.package_id, self.version, self.digest


class _Previous(Struct, frozen=True):
    digest: str


class ApprovalUse(Struct, frozen=True):
    wo_id: str
    package_id: str
    digest: str
    key_id: str | None
    at: str
    """The time of its use: when the install was judged, or else the time of the entry."""
    seq: int


class _Uninstalled(Struct, frozen=True):
    package_id: str
    digest: str
    set_digest: str


class _Approved(Struct, frozen=True):
    package_id: str
    digest: str
    wo_id: str
    key_id: str


class Record(Struct):
    entries: Sequence[StoredEntry] = ()
    packages: dict[str, RecordedPackage] = field(default_factory=dict[str, RecordedPackage])
    uses: list[ApprovalUse] = field(default_factory=list[ApprovalUse])
    problems: list[Failure] = field(default_factory=list[Failure])
    """Entries that contradict those before them."""
    last_versions: dict[str, str] = field(default_factory=dict[str, str])
    """Also of packages that were uninstalled since."""

    @property
    def used_approvals(self) -> frozenset[str]:
        return frozenset(use.wo_id for use in self.uses)

    def holds(self, event_type: str) -> bool:
        return any(stored.entry.event_type == event_type for stored in self.entries)

    @property
    def ids(self) -> dict[str, str]:
        """Map the id of each change to the id of its entry."""
        return {each.entry.call_id: each.id for each in self.entries if each.entry.call_id}

    @property
    def set_digest(self) -> str:
        return digest_of_rows(package.row for package in self.packages.values())

    def approval_of(self, package_id: str, digest: str) -> str | None:
        """Find the approval of a package at this digest, used by its install or given later."""
        told = self.packages.get(package_id)
        return told.wo_id if told is not None and told.digest == digest else None

    def take(self, stored: StoredEntry) -> None:
        event, metadata = stored.entry.event_type, stored.entry.metadata
        told = JsonFile(LEDGER_FILE, metadata)
        try:
            if event == events.PACKAGE_INSTALLED:
                self._install(stored, told.convert(RecordedPackage))
            elif event == events.PACKAGE_UNINSTALLED:
                self._uninstall(stored, told.convert(_Uninstalled))
            elif event == events.PACKAGE_APPROVED:
                self._approve(stored, told.convert(_Approved))
        except ConfigError as error:
            self._note(stored, error.message)

    def _install(self, stored: StoredEntry, told: RecordedPackage) -> None:
        package = replace(told, entry_id=stored.id, transaction=stored.entry.call_id)
        before = self.packages.get(told.package_id)
        said = None if told.previous is None else told.previous.digest
        if said != (None if before is None else before.digest):
            why = f"{told.package_id} replaced {said}, which was not installed"
            self._note(stored, why)
        self.packages[told.package_id] = package
        self.last_versions[told.package_id] = told.version
        if told.wo_id is not None:
            self._use(stored, package, told.installed_at)
        self._compare_set(stored, told.set_digest)

    def _uninstall(self, stored: StoredEntry, told: _Uninstalled) -> None:
        before = self.packages.pop(told.package_id, None)
        if before is None or before.digest != told.digest:
            self._note(stored, f"{told.package_id} was uninstalled, but was not installed")
        self._compare_set(stored, told.set_digest)

    def _approve(self, stored: StoredEntry, told: _Approved) -> None:
        package = self.packages.get(told.package_id)
        if package is None or package.digest != told.digest:
            self._note(stored, f"{told.package_id} was approved, but was not installed")
            return
        approved = replace(package, wo_id=told.wo_id, key_id=told.key_id)
        self.packages[told.package_id] = approved
        self._use(stored, approved, stored.timestamp)

    def _use(self, stored: StoredEntry, package: RecordedPackage, at: str) -> None:
        wo_id, name, digest = package.wo_id or "", package.package_id, package.digest
        self.uses.append(ApprovalUse(wo_id, name, digest, package.key_id, at, stored.seq))

    def _compare_set(self, stored: StoredEntry, said: str) -> None:
        if said != self.set_digest:
            self._note(stored, "its set digest contradicts the entries before it")

    def _note(self, stored: StoredEntry, why: str) -> None:
        self.problems.append(Failure(LEDGER_FILE, f"entry {stored.seq}: {why}"))


def replay(entries: Sequence[StoredEntry]) -> Record:
    """Replay entries, oldest first; faults are in `problems`, not raised."""
    record = Record(entries)
    for stored in entries:
        record.take(stored)
    record.packages = dict(sorted(record.packages.items()))
    return record


def find_deviations(record: Record, installed: InstalledSet) -> tuple[Failure, ...]:
    """Compare manifests and receipts with the ledger; G0B checks the files that they list."""
    names = sorted(record.packages.keys() | installed.packages.keys())
    found = (each for name in names for each in find_deviations_of(name, record, installed))
    return (*record.problems, *installed.problems, *found)


def find_deviations_of(
    package_id: str, record: Record, installed: InstalledSet
) -> tuple[Failure, ...]:
    told, found = record.packages.get(package_id), installed.packages.get(package_id)
    if found is not None and told is not None:
        return tuple(_differences(told, found))
    if told is not None:
        why = f"the packages ledger says that {told.version} is installed, but it is not"
        return (Failure(manifest_path(package_id), why),)
    if found is not None:
        why = "it exists, but the packages ledger does not say that it is installed"
        return (Failure(manifest_path(package_id), why),)
    return ()


def _differences(told: RecordedPackage, found: InstalledPackage) -> Iterator[Failure]:
    if found.manifest.digest != told.digest or found.manifest.version != told.version:
        why = f"it differs from the installed one: {told.version} {told.digest}"
        yield Failure(manifest_path(told.package_id), why)
    receipt = found.receipt
    bare = replace(receipt, ledger_entry="")
    if receipt.ledger_entry != told.entry_id or receipt.transaction != told.transaction:
        why = f"it is not the receipt of entry {told.entry_id}"
        yield Failure(receipt_path(told.package_id), why)
    elif events.digest_of(bare.to_bytes()) != told.receipt:
        yield Failure(receipt_path(told.package_id), "it has changed since it was written")
