"""Founding a plane: all packages of the bootstrap at once, where no plane was yet.

    approvals and the operator's public key   one set of the journal
    the packages ledger: key enrolled, every package installed, each under its approval
    files, manifests, receipts                 one set of the journal
    the packages ledger: the set is signed
    the admin's configuration                  by whoever called: from then on it is a plane

Killed anywhere, what stands there is no plane, and founding it again goes on: an approval that
holds is taken up, an entry that was recorded is not recorded twice, and a set is completed or
undone by the journal. Once the set is signed nothing is left to put; and where the packages
ledger tells of more than such a beginning, a plane stood there that lost its configuration:
nothing is installed on it under approvals that it used.

The same questions are asked as by any install (G0A when the archives were read, G3, ownership,
places), and the same traces are left; acceptance commands are run by the gate G4, on the plane
that is there then.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.signing import SigningKey
from paddock.packages.archive import Archive
from paddock.packages.install import (
    draft_receipt,
)
from paddock.packages.installed import InstallReceipt, Put, digest_of_set, row_of
from paddock.packages.ledger import LEDGER_FILE, PackageLog, enrolled_entry, installed_entry
from paddock.packages.manifest import (
    FILE_MODE,
    PLANE_MARKER,
    Manifest,
    approval_file,
    find_collision,
    install_order,
    key_file,
    manifest_path,
    place_problem,
)
from paddock.packages.rows import Failure, GateRefusedError
from paddock.packages.signing import (
    ApprovalClaim,
    Keys,
    PackageApproval,
    approval_problem,
    exact_scope,
    key_bytes,
    make_approval,
    public_half,
    read_approvals,
    read_keys,
    sign_digest,
    signature_problem,
    timestamp_of,
)
from paddock.packages.swap import Swap
from paddock.packages.transaction import Depot, new_transaction_id
from paddock.packages.vouching import (
    ABOUT_PACKAGES,
    read_vouched,
    sign_now,
)
from paddock.plane.json_files import write_object
from paddock.storage.atomic import FILE_MODE as OWN_MODE
from paddock.text.show import quote, show_name
from paddock.values.entries import (
    OPERATOR_KEY_ENROLLED,
    PACKAGE_INSTALLED,
    PACKAGE_SET_SIGNED,
    Entry,
)
from paddock.workspace.apply import commit_changes

#     OPERATOR_KEY_ENROLLED, PACKAGE_INSTALLED of each package, PACKAGE_SET_SIGNED
#
# Only the beginning of that, by the same word, is gone on with. On record for good is only what
# happened once: whoever lost the plane's configuration does not get its packages anew.


def require_beginning(
    log: PackageLog, manifests: Sequence[Manifest], ledger: Path, *, is_dev: bool
) -> None:
    """Refuse a log that tells of more than a founding of these packages. Raises: ConfigError.

    Threat: packages that were taken out or changed since come back under the approvals of
    Raises: ConfigError; `ledger` is where the log stands.
    """
    digests = {manifest.digest for manifest in manifests}
    for stored in log.entries:
        entry = stored.entry
        if entry.event_type not in ABOUT_PACKAGES:
            continue
        if not _begins(entry, digests):
            raise was_a_plane(f"its packages ledger says: {show_name(entry.reason)}", ledger)
        if (entry.metadata.get("dev") is True) is not is_dev:
            how = "without" if is_dev else "with"
            raise ConfigError(
                f"an init {how} --dev was stopped here",
                where=str(ledger),
                hint=f"go on {how} --dev, or name another directory; nothing was changed",
            )


def _begins(entry: Entry, digests: set[str]) -> bool:
    if entry.event_type == PACKAGE_INSTALLED:
        return entry.metadata.get("previous") is None and entry.metadata.get("digest") in digests
    return entry.event_type in (OPERATOR_KEY_ENROLLED, PACKAGE_SET_SIGNED)


def was_a_plane(why: str, ledger: Path) -> ConfigError:
    return ConfigError(
        f"a plane stood here that lost its {PLANE_MARKER}: {why}",
        where=str(ledger),
        hint="put that file back from a backup, or name another directory; nothing was changed",
    )


def find_install(log: PackageLog, manifest: Manifest) -> StoredEntry | None:
    for stored in log.entries:
        entry = stored.entry
        if (
            entry.event_type == PACKAGE_INSTALLED
            and entry.metadata.get("digest") == manifest.digest
        ):
            return stored
    return None


def recorded_approval(
    known: StoredEntry, standing: Sequence[PackageApproval], keys: Keys
) -> PackageApproval:
    """Its time may be over by now. Raises: ConfigError: it is gone, or is another one."""
    metadata = known.entry.metadata
    for approval in standing:
        told = (metadata.get("wo_id"), metadata.get("digest"))
        if (approval.wo_id, approval.digest) == told and not signature_problem(approval, keys):
            return approval
    raise ConfigError(
        f"the approval {quote(str(metadata.get('wo_id')))} that a stopped init used is gone, or"
        " is another one",
        where=LEDGER_FILE,
        hint="name an empty directory or a new one; nothing was changed",
    )


class Founding(Struct, frozen=True):
    archives: tuple[Archive, ...]
    key: SigningKey | None
    """The operator's; None for a plane that asks nobody (`--dev`)."""
    later: frozenset[str]
    """Files that whoever founds the plane puts there last, and this does not."""

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(archive.manifest for archive in self.archives)


def found(depot: Depot, founding: Founding) -> tuple[Path, ...]:
    """Put everything in its place; the files that were made. The plane's lock is held.

    Raises: GateRefusedError, OwnershipRefusedError, HostError, StorageFullError, IntegrityError,
    LedgerBusyError, LedgerFullError; ConfigError: a key, an approval or a record is not ours.
    """
    return _Founder(depot, founding).run()


class _Recorded(Struct, frozen=True):
    entry_id: str
    receipt: InstallReceipt
    """As it was before it named its entry."""


class _Founder:
    def __init__(self, depot: Depot, founding: Founding) -> None:
        self._depot = depot
        self._founding = founding

    def run(self) -> tuple[Path, ...]:
        founding, depot = self._founding, self._depot
        _require_sound(founding)
        log = _read(depot)
        require_beginning(log, founding.manifests, depot.ledger.path, is_dev=founding.key is None)
        self._require_free(log)
        approvals = self._approvals(log)
        recorded = self._record(log, approvals)
        swap = Swap(self._depot.workspace)
        for archive in founding.archives:
            self._add(swap, archive, recorded[archive.manifest.package_id])
        self._commit(swap, "packages")
        self._sign()
        return tuple(
            depot.layout.root / change.path for change in swap.paths if change.before is None
        )

    def _require_free(self, log: PackageLog) -> None:
        """Look at every place before anything is recorded: it is ours, or nothing stands there."""
        swap = Swap(self._depot.workspace)
        for archive in self._founding.archives:
            self._put(swap, archive)
        if swap.paths and log.holds(PACKAGE_SET_SIGNED):
            why = f"{quote(swap.paths[0].path)} is not as in the set that was signed"
            raise was_a_plane(why, self._depot.ledger.path)

    def _sign(self) -> None:
        key = self._founding.key
        if key is None:
            return
        rows = frozenset(map(row_of, self._founding.manifests))
        # A founding that was killed right after it is not signed twice.
        if read_vouched(self._depot.ledger.read().entries).rows != rows:
            sign_now(self._depot, key)

    # Who vouches for it

    def _approvals(self, log: PackageLog) -> Mapping[str, PackageApproval]:
        """One for each package, by its id; those that a killed founding made are taken up."""
        key, layout = self._founding.key, self._depot.layout
        if key is None:
            self._require_nobody()
            return {}
        public = public_half(key)
        known = read_keys(layout)
        if known.keys() - {public.key_id}:
            raise ConfigError(
                "a key of somebody else stands in the plane that is to be made",
                where=str(layout.registries / "keys"),
                hint="name an empty directory or a new one; nothing was changed",
            )
        swap = Swap(self._depot.workspace)
        if not known:
            swap.write(key_file(public.key_id), key_bytes(public), OWN_MODE)
        found: dict[str, PackageApproval] = {}
        standing = read_approvals(layout)
        for manifest in self._founding.manifests:
            known = find_install(log, manifest)
            if known is None:
                approval = self._unused(log, key, manifest, standing)
            else:
                approval = recorded_approval(known, standing, {public.key_id: public})
            found[manifest.package_id] = approval
            path = approval_file(approval.wo_id)
            swap.write(path, write_object(approval), OWN_MODE)
        self._commit(swap, "approvals")
        return found

    def _unused(
        self,
        log: PackageLog,
        key: SigningKey,
        manifest: Manifest,
        standing: Sequence[PackageApproval],
    ) -> PackageApproval:
        public = public_half(key)
        claim = ApprovalClaim(manifest.digest, tuple(manifest.by_path), self._depot.clock())
        used, keys = log.used_approvals, {public.key_id: public}
        for approval in standing:
            if not approval_problem(approval, claim, keys, used):
                return approval
        return make_approval(
            key,
            f"WO-{secrets.token_hex(16)}",
            manifest.digest,
            exact_scope(manifest.by_path),
            self._depot.clock() + limits.plane_approval_expires_s,
        )

    def _require_nobody(self) -> None:
        if read_keys(self._depot.layout) or read_approvals(self._depot.layout):
            raise ConfigError(
                "the plane that is to be made with --dev has a key or an approval already",
                where=str(self._depot.layout.registries),
                hint="make it without --dev, or name another directory; nothing was changed",
            )

    # On record

    def _record(
        self, log: PackageLog, approvals: Mapping[str, PackageApproval]
    ) -> dict[str, _Recorded]:
        found: dict[str, _Recorded] = {}
        entries: list[Entry] = []
        key = self._founding.key
        if key is not None and not log.holds(OPERATOR_KEY_ENROLLED):
            entries.append(enrolled_entry(public_half(key)))
        drafts: list[InstallReceipt] = []
        for count, archive in enumerate(self._founding.archives, start=1):
            package_id = archive.manifest.package_id
            approval = approvals.get(package_id)
            known = find_install(log, archive.manifest)
            receipt = self._draft(archive, approval, known)
            if known is not None:
                found[package_id] = _Recorded(known.id, receipt)
                continue
            drafts.append(receipt)
            entries.append(
                installed_entry(
                    archive.manifest,
                    receipt,
                    approval,
                    previous=None,
                    set_digest=digest_of_set(self._founding.manifests[:count]),
                    is_upgrade=False,
                )
            )
        if entries:
            ids = self._depot.ledger.append_all(entries)[len(entries) - len(drafts) :]
            for receipt, entry_id in zip(drafts, ids, strict=True):
                found[receipt.package_id] = _Recorded(entry_id, receipt)
        return found

    def _draft(
        self, archive: Archive, approval: PackageApproval | None, known: StoredEntry | None
    ) -> InstallReceipt:
        """The receipt before it names its entry: one that is on record is made once more."""
        key = self._founding.key
        at = None if known is None else known.entry.metadata.get("installed_at")
        return draft_receipt(
            archive,
            new_transaction_id() if known is None else known.entry.call_id,
            at if isinstance(at, str) else timestamp_of(self._depot.clock()),
            approval,
            None if key is None else sign_digest(key, archive.manifest.digest),
            dev=key is None,
        )

    # In their places

    def _add(self, swap: Swap, archive: Archive, recorded: _Recorded) -> None:
        manifest = archive.manifest
        self._put(swap, archive)
        swap.write(manifest_path(manifest.package_id), manifest.canonical, FILE_MODE)
        swap.write_receipt(replace(recorded.receipt, ledger_entry=recorded.entry_id))

    def _put(self, swap: Swap, archive: Archive) -> None:
        files = {packed.path: packed for packed in archive.files}
        for asset in archive.manifest.assets:
            if asset.path not in self._founding.later:
                swap.add(Put(asset, None), files)

    def _commit(self, swap: Swap, what: str) -> None:
        swap.finish()
        if swap.changes:
            label = f"founding-{what}"
            depot = self._depot
            commit_changes(
                depot.workspace, [swap.changes], depot.objects, depot.journal, label=label
            )


def _require_sound(founding: Founding) -> None:
    manifests = founding.manifests
    if install_order(manifests) != manifests:
        raise GateRefusedError("G3", [Failure("", "the packages are not in their order")])
    failures = [
        Failure(asset.path, problem)
        for manifest in manifests
        for asset in manifest.assets
        if (problem := place_problem(asset.path, manifest.plane_id))
    ]
    paths = [asset.path for manifest in manifests for asset in manifest.assets]
    twice = {path for path in paths if paths.count(path) > 1}
    failures += [Failure(path, "two packages bring it") for path in sorted(twice)]
    collision = find_collision(dict.fromkeys(paths))
    if collision is not None:
        failures.append(Failure(collision[1], f"it is {collision[0]} on some file systems"))
    if failures:
        raise GateRefusedError("G0B", failures)


def _read(depot: Depot) -> PackageLog:
    """The packages ledger; where there is none, what stands beside it is of one in the making."""
    return depot.ledger.read() if depot.ledger.path.exists() else PackageLog(())
