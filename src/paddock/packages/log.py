"""What the packages ledger says: what was installed when, and which approvals were used.

Everything that may happen once, or never again, is decided by the ledger and not by files
that could be put back: whether an approval was used, which version was the last one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from paddock.errors import LedgerDamagedError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.ports import Ledger
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.verify.verifying import Verification, verify
from paddock.packages.approvals import Approval
from paddock.packages.installed import SetRow, row_of
from paddock.packages.keys import PublicKey
from paddock.packages.manifest import Manifest
from paddock.packages.receipts import Receipt
from paddock.packages.versions import Version, parse_version
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json
from paddock.values.digests import digest_of
from paddock.values.entries import Entry
from paddock.values.events import (
    OPERATOR_KEY_ENROLLED,
    PACKAGE_APPROVED,
    PACKAGE_INSTALLED,
    PACKAGE_UNINSTALLED,
)

LEDGER: Final = LedgerName.PACKAGES
_USING: Final = frozenset({PACKAGE_INSTALLED, PACKAGE_APPROVED})


@dataclass(frozen=True, slots=True)
class PackageLog:
    """The entries of one packages ledger, oldest first."""

    entries: tuple[StoredEntry, ...]

    @property
    def used_approvals(self) -> frozenset[str]:
        """The ids of the approvals that were used."""
        return frozenset(
            wo_id
            for stored in self.entries
            if stored.entry.event_type in _USING
            and isinstance(wo_id := stored.entry.metadata.get("wo_id"), str)
        )

    def last_version(self, package_id: str) -> Version | None:
        """The version of a package that was installed last, whether it is there now or not."""
        for stored in self._of(PACKAGE_INSTALLED, package_id):
            version = stored.entry.metadata.get("version")
            if isinstance(version, str):
                return parse_version(version)
        return None

    def approval_of(self, package_id: str, digest: str) -> str | None:
        """The approval of the package as it was installed last, given then or later."""
        for stored in reversed(self.entries):
            metadata = stored.entry.metadata
            if metadata.get("package_id") != package_id or metadata.get("digest") != digest:
                continue
            if stored.entry.event_type in _USING and isinstance(metadata.get("wo_id"), str):
                return cast("str", metadata["wo_id"])
            if stored.entry.event_type == PACKAGE_INSTALLED:
                return None
        return None

    def holds(self, event_type: str) -> bool:
        """Whether it has an entry of this type."""
        return any(stored.entry.event_type == event_type for stored in self.entries)

    def find(self, transaction_id: str) -> StoredEntry | None:
        """The entry of a change of packages, if it was recorded."""
        for stored in reversed(self.entries):
            if stored.entry.call_id == transaction_id:
                return stored
        return None

    def _of(self, event_type: str, package_id: str) -> Iterator[StoredEntry]:
        for stored in reversed(self.entries):
            entry = stored.entry
            if entry.event_type == event_type and entry.metadata.get("package_id") == package_id:
                yield stored


def verify_alone(path: Path) -> Verification | None:
    """Verify a packages ledger of which nothing is known elsewhere; None: there never was one.

    Raises: as `PackageLedger.read`.
    """
    if path.exists():
        return verify(str(path))
    if path.with_suffix(".d").exists():
        # Threat: without its ledger a plane has used no approval and seen no version.
        raise ledger_gone(path, "what is kept beside it")
    return None


def ledger_gone(path: Path, witness: str) -> LedgerDamagedError:
    """What to say of a packages ledger that was there."""
    return LedgerDamagedError(
        f"the packages ledger is gone: {witness} says that there was one",
        where=str(path),
        hint="restore it from a backup",
    )


@dataclass(frozen=True, slots=True)
class PackageLedger:
    """The packages ledger of one plane."""

    path: Path
    open: Callable[[], Ledger]
    """Opens it to append, made on first use; the caller closes it."""
    verify: Callable[[Path], Verification | None] = verify_alone
    """Verifies it, with what is held of it elsewhere; None: there never was one.

    Threat: an earlier copy, put back with all beside it, is whole, and has used nothing yet.
    """

    def read(self) -> PackageLog:
        """All of it, after it was verified.

        Raises:
            LedgerDamagedError: what may not happen twice cannot be told any more.
            HostError, ConfigError: it, or what is held of it elsewhere, cannot be read.
        """
        report = self.verify(self.path)
        if report is None:
            return PackageLog(())
        rows = query_lines(str(self.path), Filter())
        if not report.is_whole or rows.bad:
            raise LedgerDamagedError(
                "the packages ledger does not verify",
                where=str(self.path),
                hint="paddock ledger verify --ledger packages",
            )
        return PackageLog(rows.entries)

    def append(self, entry: Entry) -> str:
        """Record it durably; its id. Raises as `Ledger.append`."""
        return self.append_all([entry])[0]

    def append_all(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Record them durably, in one commit; their ids in order. Raises as `Ledger.append`."""
        ledger = self.open()
        try:
            return tuple(ledger.append(list(entries)).ids)
        finally:
            ledger.close()


def installed_entry(
    manifest: Manifest,
    receipt: Receipt,
    approval: Approval | None,
    *,
    previous: SetRow | None,
    set_digest: str,
    is_upgrade: bool,
) -> Entry:
    """A package was installed, or took the place of another version of itself.

    `receipt` is the one before it names this entry, `previous` what was installed of the
    package as the entries before tell it, `set_digest` that of all packages after it.
    """
    return Entry(
        event_type=PACKAGE_INSTALLED,
        submission_id=receipt.wo_id or "",
        decision="allow",
        reason=f"{manifest.package_id} was {'upgraded' if is_upgrade else 'installed'}",
        call_id=receipt.transaction,
        metadata={
            **about(row_of(manifest)),
            "archive": receipt.archive,
            # When the approval was judged: the tests that come between may take long.
            "installed_at": receipt.installed_at,
            "receipt": digest_of(receipt.to_bytes()),
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
    """What of a package names it in an entry."""
    package_id, version, digest = row
    return {"package_id": package_id, "version": version, "digest": digest}


def uninstalled_entry(transaction_id: str, package_id: str, metadata: Mapping[str, Json]) -> Entry:
    """A package was removed."""
    return Entry(
        event_type=PACKAGE_UNINSTALLED,
        decision="allow",
        reason=f"{package_id} was uninstalled",
        call_id=transaction_id,
        metadata=dict(metadata),
    )


def approved_entry(package_id: str, version: str, approval: Approval) -> Entry:
    """An installed package that had no approval has one now."""
    return Entry(
        event_type=PACKAGE_APPROVED,
        submission_id=approval.wo_id,
        decision="allow",
        reason=f"{package_id} was approved after it was installed",
        metadata={
            "package_id": package_id,
            "version": version,
            "digest": approval.digest,
            "wo_id": approval.wo_id,
            "key_id": approval.key_id,
        },
    )


def enrolled_entry(key: PublicKey) -> Entry:
    """A key may approve changes of the plane from now on."""
    return Entry(
        event_type=OPERATOR_KEY_ENROLLED,
        decision="allow",
        reason="the plane had no key, and got its operator's",
        metadata={"key_id": key.key_id},
    )
