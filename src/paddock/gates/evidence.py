"""The evidence that gates check: one plane, each part read once, at its first use."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, cast

from msgspec import Struct

from paddock.errors import PaddockError
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.verify import Verification
from paddock.packages import signing
from paddock.packages.change import TRANSACTION, AcceptanceRunner, PendingChange
from paddock.packages.installed import (
    InstalledSet,
    Registries,
    read_installed,
    read_registries,
)
from paddock.packages.ledger import (
    ApprovalUse,
    PackageLedger,
    Record,
    RecordedPackage,
    find_deviations,
)
from paddock.packages.rows import Failure
from paddock.packages.statements import Vouched, read_vouched
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.values.calls import Json
from paddock.values.entries import CONFIG_CHANGED
from paddock.workspace import Workspace


class LedgerWitness(Protocol):
    """Knowledge of a plane's ledgers outside the plane: keys, signed heads kept elsewhere.

    Threat: a ledger that was replaced, restored or cut off, with all files beside it, verifies.
    """

    # Return True if a ledger of that name is required. Raises: HostError.
    def expects(self, name: LedgerName) -> bool: ...

    # Verify a ledger, also against heads kept elsewhere. Raises: HostError, IntegrityError.
    def verify(self, name: LedgerName, path: Path) -> Verification: ...

    # Return True if any ledger of this plane is known. Raises: HostError, ConfigError.
    def knows_plane(self) -> bool: ...

    # Say why this is a different ledger; empty if it is not. Raises: ConfigError.
    def problem(self, name: LedgerName, found: Verification) -> str: ...


MADE_WITH_DEV: Final = "this plane was made with --dev: it needs no approvals and no signatures"
NOTHING_INSTALLED: Final = "nothing is installed"
_LINE: Final = ", line "
"""Separates file and line in the `where` of a reader's error."""


Watcher = Callable[[str, str], object]
"""Called when a gate begins, with an empty text, and when a slow step of it begins."""


def unwatched(gate: str, step: str) -> None:
    del gate, step


class GateEvidence(Struct, frozen=True, dict=True, kw_only=True):
    """One plane, as one run of gates sees it. Each property raises what its reader raises."""

    layout: PlaneLayout
    workspace: Workspace
    ledger: PackageLedger
    acceptance: AcceptanceRunner
    witness: LedgerWitness
    now: float
    plane_is_dev: bool
    watcher: Watcher = unwatched

    @cached_property
    def installed(self) -> InstalledSet:
        return read_installed(self.layout)

    @cached_property
    def record(self) -> Record:
        return self.ledger.read()

    @cached_property
    def vouched(self) -> Vouched:
        return read_vouched(self.record.entries)

    @cached_property
    def deviations(self) -> tuple[Failure, ...]:
        found = find_deviations(self.record, self.installed)
        if PendingChange(self.layout).exists():
            why = "a change of packages is in progress, or was interrupted"
            return (*found, Failure(TRANSACTION, why))
        return found

    @property
    def is_empty(self) -> bool:
        return not self.installed.packages and not self.record.packages and not self.deviations

    @cached_property
    def registries(self) -> Registries:
        return read_registries(self.layout)

    @cached_property
    def keys(self) -> signing.Keys:
        return signing.read_keys(self.layout)

    @cached_property
    def approvals(self) -> Mapping[str, signing.PackageApproval]:
        return {approval.wo_id: approval for approval in signing.read_approvals(self.layout)}

    @cached_property
    def recorded_config(self) -> Mapping[str, Json]:
        """Map paths to digests recorded in governance; from the lines: an index may hide some."""
        path = self.ledger_path(LedgerName.GOVERNANCE)
        if not path.exists():
            return {}
        rows = query_lines(str(path), Filter(CONFIG_CHANGED), last=1).entries
        files: Json = rows[-1].entry.metadata.get("files") if rows else None
        return cast("dict[str, Json]", files) if isinstance(files, dict) else {}

    def without_root(self, text: str) -> str:
        return _relative(text, self.layout.root)

    def forget_config(self) -> None:
        vars(self).pop("recorded_config", None)

    def ledger_path(self, name: LedgerName) -> Path:
        return self.layout.ledger_paths()[name]


def failure_of(error: PaddockError, root: Path) -> Failure:
    """Threat: models read a gate's failures, and an error may quote a path of the host."""
    file, _, line = _relative(error.where, root).partition(_LINE)
    reason = _relative(error.message, root)
    return Failure(file, f"line {line}: {reason}" if line else reason)


def _relative(text: str, root: Path) -> str:
    return text.replace(f"{root}/", "").replace(str(root), ".")


UNAPPROVED = "it was installed without an approval: paddock package approve ARCHIVE, or uninstall"


def use_problem(use: ApprovalUse, approval: signing.PackageApproval, keys: signing.Keys) -> str:
    problem = signing.signature_problem(approval, keys)
    if problem:
        return problem
    if approval.digest != use.digest:
        return f"it is for {approval.digest}, and {use.digest} was installed with it"
    if approval.key_id != use.key_id:
        return f"it is by {approval.key_id}, and the one that was used was by {use.key_id}"
    if _moment(use.at) >= approval.expires_at:
        return f"it expired at {approval.expires}, and was used at {use.at}"
    return ""


def keys_at(seq: int, told: RecordedPackage, evidence: GateEvidence) -> signing.Keys:
    """Return the keys that are valid for the entry `seq` about an installed package.

    These are the plane's keys. If a current operator has vouched for the package since, also those
    that were valid when the entry was written: a former operator approved it while in office.

    Threat: a former operator's key may be in other hands. It is not valid for a package that came
    after he left, no matter who signs the set later.
    """
    vouched = evidence.vouched
    # The newest statement lists the key of its author.
    is_by_operators = vouched.keys.keys() <= evidence.keys.keys()
    if is_by_operators and seq < vouched.newest_seq and told.row in vouched.rows:
        return {**vouched.counting_at(seq), **evidence.keys}
    return evidence.keys


def approval_problem(told: RecordedPackage, evidence: GateEvidence) -> str:
    """Say why an installed package has no valid approval; empty if it has one."""
    if told.wo_id is None:
        return UNAPPROVED
    approval = evidence.approvals.get(told.wo_id)
    if approval is None:
        return f"its approval {told.wo_id} is missing"
    package = evidence.installed.packages.get(told.package_id)
    problems = (
        use_problem(use, approval, keys_at(use.seq, told, evidence))
        for use in evidence.record.uses
        if use.wo_id == told.wo_id
    )
    found = next((problem for problem in problems if problem), "")
    if not found and package is not None:
        found = signing.scope_problem(approval, package.manifest.by_path)
        found = found and f"{found} of {package.package_id}"
    return f"its approval {told.wo_id}: {found}" if found else ""


def _moment(timestamp: str) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return float("inf")  # Threat: an unreadable time must count as after any expiry.
