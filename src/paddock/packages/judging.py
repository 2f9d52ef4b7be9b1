"""The gates before an install that look at who vouches for it: G5 and G2.

    G5  no version below the one that was installed last; a signature that comes along holds
    G2  an approval for exactly this digest: signed by a key of the plane, unused, in time,
        and covering every path

A plane that was made with `--dev` asks for none of it but the version, and neither does
`--dev` on another plane; there, G2 and G5 say so afterwards.
"""

from dataclasses import dataclass

from paddock.errors import IntegrityError
from paddock.packages.approvals import Approval, Claim, approval_problem, read_approvals
from paddock.packages.installed import InstalledPackage, InstalledSet
from paddock.packages.keys import Keys
from paddock.packages.log import PackageLog
from paddock.packages.manifest import Manifest
from paddock.packages.names import approval_file
from paddock.packages.refusals import Failure, GateRefusedError
from paddock.packages.signatures import Signature, verify_signature
from paddock.plane.layout import PlaneLayout


@dataclass(frozen=True, slots=True)
class Bench:
    """What is known of a plane when an install is judged."""

    layout: PlaneLayout
    installed: InstalledSet
    log: PackageLog
    keys: Keys
    now: float
    """Seconds since 1970."""


def require_no_rollback(manifest: Manifest, old: InstalledPackage | None, log: PackageLog) -> None:
    """Refuse a version below the last one, whether that is installed now or not.

    Threat: an old version with a known hole, signed and approved when it was new.

    Raises: GateRefusedError: G5.
    """
    problem = rollback_problem(manifest, old, log)
    if problem:
        raise GateRefusedError(
            "G5",
            [Failure(manifest.package_id, problem)],
            hint="nothing was changed; to go back, pack the old content under a higher version",
        )


def rollback_problem(manifest: Manifest, old: InstalledPackage | None, log: PackageLog) -> str:
    """Why a version is none to install; "" where it is not below the last one."""
    known = [log.last_version(manifest.package_id)]
    if old is not None:
        known.append(old.manifest.version)
    for last in known:
        if last is not None and manifest.version.is_below(last):
            return f"{manifest.version.text} is below {last.text}, which was installed before"
    return ""


def require_signature(manifest: Manifest, signature: Signature | None, keys: Keys) -> None:
    """Refuse a signature that is there and does not hold. Raises: GateRefusedError: G5."""
    if signature is None:
        return
    try:
        verify_signature(signature, manifest.digest, keys)
    except IntegrityError as error:
        raise GateRefusedError(
            "G5", [Failure(manifest.package_id, error.message)], hint=error.hint
        ) from error


def require_approval(manifest: Manifest, paths: tuple[str, ...], bench: Bench) -> Approval:
    """The approval that an install uses: of those that hold, the one that expires first.

    Raises:
        GateRefusedError: G2: there is none; why, for each that speaks of this package.
        ConfigError: an approval does not load.
    """
    claim = Claim(manifest.digest, paths, bench.now)
    used = bench.log.used_approvals | _named_by_receipts(bench.installed)
    refused: list[Failure] = []
    holding: list[Approval] = []
    for approval in read_approvals(bench.layout):
        problem = approval_problem(approval, claim, bench.keys, used)
        if not problem:
            holding.append(approval)
        elif approval.digest == claim.digest:
            refused.append(Failure(approval_file(approval.wo_id), problem))
    if holding:
        return min(holding, key=_expiry)
    nobody = "nobody has approved this digest on this plane"
    raise GateRefusedError(
        "G2",
        refused or [Failure(manifest.package_id, nobody)],
        hint="paddock package approve ARCHIVE",
    )


def _named_by_receipts(installed: InstalledSet) -> frozenset[str]:
    found = (each.receipt.wo_id for each in installed.packages.values())
    return frozenset(wo_id for wo_id in found if wo_id is not None)


def _expiry(approval: Approval) -> tuple[str, str]:
    return approval.expires, approval.wo_id
