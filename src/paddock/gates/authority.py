"""Whether an approval carries what it was used for: what G2, G3 and G5 ask of it."""

from collections.abc import Iterable
from datetime import datetime

from paddock.gates.ground import Ground
from paddock.packages.installed import InstalledPackage
from paddock.packages.ledger import ApprovalUse, RecordedPackage
from paddock.packages.signing import Approval, Keys, paths_outside, signature_problem
from paddock.text.show import quote

UNAPPROVED = "it was installed without an approval: paddock package approve ARCHIVE, or uninstall"


def use_problem(use: ApprovalUse, approval: Approval, keys: Keys) -> str:
    """Why an approval does not carry one use of it, as the ledger tells that use."""
    problem = signature_problem(approval, keys)
    if problem:
        return problem
    if approval.digest != use.digest:
        return f"it is for {approval.digest}, and {use.digest} was installed with it"
    if approval.key_id != use.key_id:
        return f"it is by {approval.key_id}, and the one that was used was by {use.key_id}"
    if _moment(use.at) >= approval.expires_at:
        return f"it expired at {approval.expires}, and was used at {use.at}"
    return ""


def scope_problem(approval: Approval, package: InstalledPackage) -> str:
    """Which files of the package its approval does not cover; empty where it covers all."""
    outside = paths_outside(approval, package.manifest.by_path)
    if not outside:
        return ""
    first, *others = outside
    more = f" (and {len(others)} more)" if others else ""
    return f"its scope does not cover {quote(first)}{more} of {package.package_id}"


def keys_at(seq: int, told: RecordedPackage, ground: Ground) -> Keys:
    """The keys whose word counts for what the entry `seq` tells of an installed package.

    Those of the plane; and where an operator who is one now vouched for the package since,
    those that counted when the entry was written: who left approved it while he was one.

    Threat: the key of somebody who left may be in other hands. What it says of a package
    that came after he left is worth nothing, whoever signs the set later.

    Raises: ConfigError, HostError.
    """
    vouched = ground.vouched
    # Whoever made the newest statement is among the keys that it lists.
    is_by_operators = vouched.keys.keys() <= ground.keys.keys()
    if is_by_operators and seq < vouched.newest_seq and told.row in vouched.rows:
        return {**vouched.counting_at(seq), **ground.keys}
    return ground.keys


def standing_problem(told: RecordedPackage, ground: Ground) -> str:
    """Why an installed package does not stand on an approval; empty where it does.

    Raises: ConfigError, HostError.
    """
    if told.wo_id is None:
        return UNAPPROVED
    approval = ground.approvals.get(told.wo_id)
    if approval is None:
        return f"its approval {told.wo_id} is not there"
    package = ground.installed.packages.get(told.package_id)
    problems = (
        use_problem(use, approval, keys_at(use.seq, told, ground))
        for use in _uses_for(told, ground.record.uses)
    )
    found = next((problem for problem in problems if problem), "")
    if not found and package is not None:
        found = scope_problem(approval, package)
    return f"its approval {told.wo_id}: {found}" if found else ""


def _uses_for(told: RecordedPackage, uses: Iterable[ApprovalUse]) -> Iterable[ApprovalUse]:
    return (each for each in uses if each.wo_id == told.wo_id)


def _moment(timestamp: str) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return float("inf")  # A time that cannot be read is after everything.
