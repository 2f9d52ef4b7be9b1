"""What operators do besides installing: approving a package on a plane."""

import secrets
from dataclasses import dataclass

from paddock.ledger.keys import SigningKey
from paddock.packages.approvals import (
    Approval,
    Claim,
    approval_problem,
    exact_scope,
    make_approval,
    write_approval,
)
from paddock.packages.changing import changing, require_installed
from paddock.packages.depot import Depot
from paddock.packages.installed import InstalledSet
from paddock.packages.judging import rollback_problem
from paddock.packages.keys import read_keys
from paddock.packages.log import approved_entry
from paddock.packages.manifest import Manifest
from paddock.packages.recorded import find_deviations_of, replay
from paddock.packages.vouching import enrol_first, read_vouched, require_known, sign_now


@dataclass(frozen=True, slots=True)
class Approved:
    """An approval that was made."""

    approval: Approval
    enrolled: bool
    """The plane had no key, and has this one now."""
    settles_install: bool
    """The package was installed without one: the approval is used by that install."""
    rollback: str
    """Why no install will take the package, where its version is below the last one."""


def approve(
    depot: Depot, manifest: Manifest, key: SigningKey, scope: tuple[str, ...], expires_s: float
) -> Approved:
    """Approve one package on one plane. Without `scope` it is exactly what an install touches.

    A plane that has no key gets this one as its first; where nothing is installed yet,
    the empty set is signed with it.

    Raises:
        ConfigError: the plane has keys, and this is none of them.
        UsageError: a pattern that can match nothing, or a time out of range.
        HostError, LedgerBusyError, LedgerFullError, IntegrityError.
    """
    with changing(depot):
        installed = require_installed(depot)
        require_known(depot, key)
        old = installed.packages.get(manifest.package_id)
        # An upgrade takes away what the version before it brought alone.
        had = () if old is None else tuple(old.manifest.by_path)
        paths = tuple(dict.fromkeys((*manifest.by_path, *had)))
        now = depot.clock()
        approval = make_approval(
            key,
            f"WO-{secrets.token_hex(16)}",
            manifest.digest,
            scope or exact_scope(paths),
            now + expires_s,
        )
        enrolled = enrol_first(depot, key)
        if not installed.packages and not read_vouched(depot.ledger.read().entries).statements:
            # With nothing installed there is nothing to look at first.
            sign_now(depot, key)
        write_approval(depot.layout, approval)
        settles = False
        if old is not None and old.manifest.digest == manifest.digest:
            settles = _settle_install(depot, manifest, approval, installed)
        rollback = rollback_problem(manifest, old, depot.ledger.read())
        return Approved(approval, enrolled, settles, rollback)


def _settle_install(
    depot: Depot, manifest: Manifest, approval: Approval, installed: InstalledSet
) -> bool:
    """Use the approval for the package as it stands there, if that has none."""
    log = depot.ledger.read()
    if log.approval_of(manifest.package_id, manifest.digest) is not None:
        return False
    if find_deviations_of(manifest.package_id, replay(log.entries), installed):
        return False  # what stands there is not what the record says: an entry would not heal it
    claim = Claim(manifest.digest, tuple(manifest.by_path), depot.clock())
    if approval_problem(approval, claim, read_keys(depot.layout), log.used_approvals):
        return False  # its scope is narrower than what was installed
    depot.ledger.append(approved_entry(manifest.package_id, manifest.version.text, approval))
    return True
