"""What the packages ledger says is installed, and where the plane says something else. Pure.

The entries are replayed from the first one on. Each change names the digest of the whole
set after it, so an entry that is missing, moved or another one shows at the next change,
even where somebody chained the ledger anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paddock.errors import ConfigError
from paddock.ledger.format.lines import StoredEntry
from paddock.packages.installed import (
    InstalledPackage,
    InstalledSet,
    SetRow,
    digest_of_rows,
)
from paddock.packages.names import manifest_path, receipt_path
from paddock.packages.refusals import Failure
from paddock.plane.strict_json import Fields
from paddock.values.digests import digest_of
from paddock.values.events import (
    PACKAGE_APPROVED,
    PACKAGE_INSTALLED,
    PACKAGE_UNINSTALLED,
)

LEDGER_FILE: Final = "HOT/ledger/packages.jsonl"


@dataclass(frozen=True, slots=True)
class RecordedPackage:
    """One package as the entry of its install tells it."""

    package_id: str
    version: str
    digest: str
    archive: str
    receipt: str
    """The digest of its receipt, as that was before it named its entry."""
    dependencies: tuple[str, ...]
    dev: bool
    wo_id: str | None
    """The approval that the install used, or one that was given afterwards."""
    key_id: str | None
    """Whose approval `wo_id` is."""
    entry_id: str
    transaction: str

    @property
    def row(self) -> SetRow:
        """What of it stands in the digest of the set."""
        return self.package_id, self.version, self.digest


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """One use of a package's approval, as an entry tells it."""

    wo_id: str
    package_id: str
    digest: str
    key_id: str | None
    at: str
    """When it was used: as the install was judged, or else the time of the entry."""
    seq: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the entries come to."""

    packages: Mapping[str, RecordedPackage]
    uses: tuple[ApprovalUse, ...] = ()
    """Every use of an approval there ever was, oldest first."""
    problems: tuple[Failure, ...] = ()
    """Entries that do not follow from those before them."""

    @property
    def set_digest(self) -> str:
        """The digest of the set that should be installed."""
        return digest_of_rows(package.row for package in self.packages.values())


def replay(entries: Sequence[StoredEntry]) -> Record:
    """Follow the entries of a packages ledger, oldest first. Raises nothing for what they say."""
    replaying = _Replaying()
    for stored in entries:
        replaying.take(stored)
    return Record(
        dict(sorted(replaying.packages.items())),
        tuple(replaying.uses),
        tuple(replaying.problems),
    )


def find_deviations(record: Record, installed: InstalledSet) -> tuple[Failure, ...]:
    """Where the plane and its packages ledger do not agree; empty where they do."""
    names = sorted(record.packages.keys() | installed.packages.keys())
    found = (each for name in names for each in find_deviations_of(name, record, installed))
    return (*record.problems, *installed.problems, *found)


def find_deviations_of(
    package_id: str, record: Record, installed: InstalledSet
) -> tuple[Failure, ...]:
    """The same for one package alone."""
    told, found = record.packages.get(package_id), installed.packages.get(package_id)
    if found is not None and told is not None:
        return tuple(_differences(told, found))
    if told is not None:
        why = f"the packages ledger says that {told.version} is installed, and it is not"
        return (Failure(manifest_path(package_id), why),)
    if found is not None:
        why = "it stands there, and the packages ledger does not say that it is installed"
        return (Failure(manifest_path(package_id), why),)
    return ()


def _differences(told: RecordedPackage, found: InstalledPackage) -> Iterator[Failure]:
    if found.manifest.digest != told.digest or found.manifest.version.text != told.version:
        why = f"it is not what was installed: {told.version} {told.digest}"
        yield Failure(manifest_path(told.package_id), why)
    receipt = found.receipt
    bare = replace(receipt, ledger_entry="")
    if receipt.ledger_entry != told.entry_id or receipt.transaction != told.transaction:
        why = f"it is not the receipt of the entry {told.entry_id}"
        yield Failure(receipt_path(told.package_id), why)
    elif digest_of(bare.to_bytes()) != told.receipt:
        yield Failure(receipt_path(told.package_id), "it is not the receipt that was written")


class _Replaying:
    """The state of one pass."""

    def __init__(self) -> None:
        self.packages: dict[str, RecordedPackage] = {}
        self.uses: list[ApprovalUse] = []
        self.problems: list[Failure] = []

    def take(self, stored: StoredEntry) -> None:
        """The next entry."""
        event, metadata = stored.entry.event_type, stored.entry.metadata
        fields = Fields(LEDGER_FILE, metadata)
        try:
            if event == PACKAGE_INSTALLED:
                self._install(stored, fields)
            elif event == PACKAGE_UNINSTALLED:
                self._uninstall(stored, fields)
            elif event == PACKAGE_APPROVED:
                self._approve(stored, fields)
        except ConfigError as error:
            self._note(stored, error.message)

    def _install(self, stored: StoredEntry, fields: Fields) -> None:
        package_id, wo_id = fields.text("package_id"), fields.text_or_null("wo_id")
        package = RecordedPackage(
            package_id=package_id,
            version=fields.text("version"),
            digest=fields.text("digest"),
            archive=fields.text("archive"),
            receipt=fields.text("receipt"),
            dependencies=fields.texts("dependencies", ()),
            dev=fields.flag("dev", default=False),
            wo_id=wo_id,
            key_id=fields.text_or_null("key_id"),
            entry_id=stored.id,
            transaction=stored.entry.call_id,
        )
        before = self.packages.get(package_id)
        previous = fields.members.get("previous")
        said = None if previous is None else fields.table("previous").text("digest")
        if said != (None if before is None else before.digest):
            self._note(stored, f"{package_id} took the place of {said}, which was not installed")
        self.packages[package_id] = package
        if wo_id is not None:
            self._use(stored, package, fields.text("installed_at"))
        self._compare_set(stored, fields)

    def _uninstall(self, stored: StoredEntry, fields: Fields) -> None:
        package_id = fields.text("package_id")
        before = self.packages.pop(package_id, None)
        if before is None or before.digest != fields.text("digest"):
            self._note(stored, f"{package_id} was uninstalled, and it was not installed")
        self._compare_set(stored, fields)

    def _approve(self, stored: StoredEntry, fields: Fields) -> None:
        package_id = fields.text("package_id")
        package = self.packages.get(package_id)
        if package is None or package.digest != fields.text("digest"):
            self._note(stored, f"{package_id} was approved, and it was not installed")
            return
        approved = replace(package, wo_id=fields.text("wo_id"), key_id=fields.text("key_id"))
        self.packages[package_id] = approved
        self._use(stored, approved, stored.timestamp)

    def _use(self, stored: StoredEntry, package: RecordedPackage, at: str) -> None:
        self.uses.append(
            ApprovalUse(
                package.wo_id or "",
                package.package_id,
                package.digest,
                package.key_id,
                at,
                stored.seq,
            )
        )

    def _compare_set(self, stored: StoredEntry, fields: Fields) -> None:
        said = fields.text("set_digest")
        if said != digest_of_rows(package.row for package in self.packages.values()):
            self._note(stored, "after it another set was installed than the entries before it tell")

    def _note(self, stored: StoredEntry, why: str) -> None:
        self.problems.append(Failure(LEDGER_FILE, f"entry {stored.seq}: {why}"))
