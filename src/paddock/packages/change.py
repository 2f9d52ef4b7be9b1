"""Going on with a change of packages: completing it, or undoing it, whoever began it.

    record: begun → the swap, one set of the plane's journal → acceptance → record: decided
    → ledger entry → receipt → the record goes

Killed at any moment, the next command on the plane settles it, in this order:

  * the journal settles the swap: it happened as a whole, or not at all;
  * not happened: the change never was, and the record goes;
  * happened and to be tested: nobody knows what the tests would have said: it is undone;
  * happened and not to be tested, or decided: it is completed. The ledger is asked first
    whether the entry is there, so there is one whatever happens.

Undoing is one set too. It never takes away what somebody made since: such a path keeps its
newer content, and is named.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import HostError, IntegrityError, PathError, TextError, UsageError
from paddock.ledger.format.line import ID_BYTES, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, encode_body
from paddock.packages.installed import InstalledSet, read_installed
from paddock.packages.ledger import PackageLog, Record, find_deviations, replay
from paddock.packages.manifest import manifest_path, receipt_path
from paddock.packages.rows import GateRefusedError
from paddock.packages.swap import Swap
from paddock.packages.transaction import (
    Before,
    Depot,
    InstallPhase,
    PathChange,
    Transaction,
    TransactionKind,
    sweep_drafts,
)
from paddock.storage.atomic import FILE_MODE, read_file
from paddock.storage.disk import Disk
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.workspace import EntryPath, WorkspacePath
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    BytesContent,
    MakeDirectory,
    MakeLink,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StagedChange,
    WriteFile,
)
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import EntryKind
from paddock.workspace.recover import RecoveredSet, recover
from paddock.workspace.states import EntryState, entry_state


class Decided(Enum):
    COMPLETED = "completed"
    UNDONE = "undone"
    NEVER_BEGUN = "never begun"


class RecoveredChange(Struct, frozen=True):
    package_id: str
    outcome: Decided
    changed_since: tuple[str, ...] = ()
    """Paths that somebody changed meanwhile, and that keep what they have now."""


def settle(depot: Depot) -> RecoveredChange | None:
    """None where there was nothing. The lock is held.

    Raises: HostError: it cannot be settled now. IntegrityError: the plane has neither what was
    before nor what was to be. LedgerBusyError, LedgerFullError: all but the entry is there.
    """
    transaction = depot.attic.read()
    if transaction is None:
        return None
    _settle_swap(depot, transaction)
    if not has_happened(depot, transaction):
        end(depot)
        return RecoveredChange(transaction.package_id, Decided.NEVER_BEGUN)
    if transaction.phase is InstallPhase.BEGUN and transaction.is_tested:
        changed_since = undo(depot, transaction)
        return RecoveredChange(transaction.package_id, Decided.UNDONE, changed_since)
    complete(depot, transaction)
    return RecoveredChange(transaction.package_id, Decided.COMPLETED)


def has_happened(depot: Depot, transaction: Transaction) -> bool:
    """Told by the package's manifest; where a package is put right, by the changed paths.

    Raises: IntegrityError: the manifest is neither the old one nor the new one.
    """
    path = depot.layout.root / manifest_path(transaction.package_id)
    content = read_file(path, limits.manifest_bytes_max)
    found = None if content is None else digest_of(content)
    before, after = transaction.manifest_before, transaction.manifest_after
    if found in (before, after):
        return found == after if before != after else _stands(depot, transaction)
    raise IntegrityError(
        f"{transaction.package_id} was being changed, and its manifest is neither the old one"
        " nor the new one",
        where=str(path),
        hint="restore it from a backup",
    )


def _stands(depot: Depot, transaction: Transaction) -> bool:
    """Whether it was decided, or every path of it is as it was to be.

    Where somebody changed one since, a repair counts as none: the plane is as recorded anyway.
    """
    if transaction.phase is InstallPhase.DECIDED:
        return True
    return all(_is_done(depot, change) for change in transaction.changes)


def _is_done(depot: Depot, change: PathChange) -> bool:
    try:
        state = entry_state(depot.workspace, depot.workspace.resolve_entry(change.path))
    except PathError:
        return False  # it leads elsewhere by now
    return _is_after(change, state)


def decide(depot: Depot, transaction: Transaction) -> Transaction:
    """The swap was accepted: from here on it stands, whatever ends this process."""
    decided = replace(transaction, phase=InstallPhase.DECIDED)
    depot.attic.write(decided)
    return decided


def complete(depot: Depot, transaction: Transaction) -> str:
    """Ledger entry, receipt, and the record goes; the entry's id. Done twice, it is done once."""
    known = depot.ledger.read().find(transaction.id)
    entry_id = depot.ledger.append(transaction.entry) if known is None else known.id
    if transaction.receipt is not None:
        receipt = replace(transaction.receipt, ledger_entry=entry_id)
        _write_receipt(depot, transaction, receipt.to_bytes())
    end(depot)
    return entry_id


def _write_receipt(depot: Depot, transaction: Transaction, content: bytes) -> None:
    entry = depot.workspace.resolve_entry(receipt_path(transaction.package_id))
    state = entry_state(depot.workspace, entry)
    version = digest_of(content)
    if state is not None and state.version == version:
        return
    old = Absent() if state is None else AtVersion(state.version or "")
    write = WriteFile(entry.path, BytesContent(content), old, FILE_MODE, overrides_read_only=True)
    label = f"{transaction.id}-receipt"
    commit_changes(depot.workspace, [[write]], depot.objects, depot.journal, label=label)


def undo(depot: Depot, transaction: Transaction) -> tuple[str, ...]:
    """As it was before, in one set; the paths that somebody changed since."""
    undoing = _Undoing(depot)
    for change in transaction.changes:
        undoing.add(change)
    undoing.directories(transaction)
    commit_changes(
        depot.workspace,
        [undoing.changes],
        depot.objects,
        depot.journal,
        label=f"{transaction.id}-undo",
    )
    end(depot)
    return tuple(undoing.changed_since)


def end(depot: Depot) -> None:
    depot.attic.forget()
    tidy(depot)


def tidy(depot: Depot) -> None:
    """Remove drafts, and what was put aside; only where no change is on its way."""
    for name in ("keys", "approvals"):
        sweep_drafts(depot.layout.registries / name)
    depot.attic.sweep()


def _settle_swap(depot: Depot, transaction: Transaction) -> None:
    for found in recover(depot.journal, Disk(), depot.workspace.resolution):
        is_ours = not found.label or found.label.startswith(transaction.id)
        if found.settled is RecoveredSet.WAITING and is_ours:
            raise HostError(
                f"the change of {transaction.package_id} cannot be settled yet: {found.why}",
                hint="end other programs that work on the plane, then try again",
            )


class _Undoing:
    def __init__(self, depot: Depot) -> None:
        self._depot = depot
        self._workspace = depot.workspace
        self.changes: list[StagedChange] = []
        self.changed_since: list[str] = []

    def add(self, change: PathChange) -> None:
        """One path back, unless it is as before already, or somebody's by now."""
        entry = self._workspace.resolve_entry(change.path)
        state = entry_state(self._workspace, entry)
        before = change.before
        if _is_before(before, state):
            return
        if not _is_after(change, state):
            self.changed_since.append(change.path)
        elif before is not None:
            self.changes.append(self._back(entry, before, state))
        elif state is not None:
            self.changes.append(
                RemoveFile(entry.path, AtVersion(state.version or ""), overrides_read_only=True)
            )

    def directories(self, transaction: Transaction) -> None:
        """Those that the swap made go where nothing stays in them; those that it took come back."""
        for removed in reversed(transaction.removed):
            entry = self._workspace.resolve_entry(removed.path)
            if not entry.exists:
                self.changes.append(MakeDirectory(entry.path, Absent(), removed.mode))
        gone = {each.path.relative for each in self.changes if isinstance(each, RemoveFile)}
        for made in reversed(transaction.made):
            entry = self._workspace.resolve_entry(made)
            if entry.exists and all(name in gone for name in self._held(entry.path)):
                self.changes.append(RemoveDirectory(entry.path))
                gone.add(made)

    def _held(self, directory: WorkspacePath) -> Iterator[str]:
        listing = list_directory(self._workspace, directory, 1, limits.change_set_paths_max)
        return (each.path.relative for each in listing.entries)

    def _back(self, entry: EntryPath, before: Before, state: EntryState | None) -> StagedChange:
        old = Absent() if state is None else AtVersion(state.version or "")
        if before.kind is TransactionKind.LINK:
            return MakeLink(entry.path, before.link_text or "", old, overrides_read_only=True)
        if state is not None and state.version == before.version and isinstance(old, AtVersion):
            return SetMetadata(entry.path, old, before.mode)
        if before.backup is None:
            raise IntegrityError(f"nothing was put aside of {entry.path.relative}")
        content = self._depot.attic.read_aside(before.backup, before.version)
        return WriteFile(
            entry.path, BytesContent(content), old, before.mode, overrides_read_only=True
        )


def _is_before(before: Before | None, state: EntryState | None) -> bool:
    if before is None or state is None:
        return before is None and state is None
    kind = EntryKind.LINK if before.kind is TransactionKind.LINK else EntryKind.FILE
    is_same = state.kind is kind and state.version == before.version
    return is_same and (before.kind is TransactionKind.LINK or state.mode == before.mode)


def _is_after(change: PathChange, state: EntryState | None) -> bool:
    after = change.after
    if after is None or state is None:
        return after is None and state is None
    is_same = (state.version, state.mode) == (after.version, after.mode)
    return is_same and state.kind is EntryKind.FILE


_AS_RECORDED: Final = (
    "nothing was changed; put HOT/installed back as the packages ledger says (see: paddock gate"
    " --gate G6), packages of the bootstrap by: paddock bootstrap install --root PLANE --force"
)


class PackagesState(Struct, frozen=True):
    installed: InstalledSet
    log: PackageLog
    record: Record


@contextmanager
def changing(depot: Depot) -> Generator[RecoveredChange | None]:
    """One change at a time; what was left half done is settled first. Raises: as `settle`."""
    with depot.attic.locked():
        recovered = settle(depot)
        tidy(depot)
        yield recovered


def recover_packages(depot: Depot) -> RecoveredChange | None:
    """Unless somebody is changing packages right now. Raises: as `settle`."""
    if not depot.attic.has_transaction():
        return None
    with depot.attic.try_locked() as is_ours:
        return settle(depot) if is_ours else None


def require_installed(depot: Depot) -> InstalledSet:
    """What is installed. Raises: GateRefusedError: G0B: something there is no whole package."""
    installed = read_installed(depot.layout)
    if installed.problems:
        raise GateRefusedError("G0B", installed.problems, hint="put HOT/installed in order first")
    return installed


def require_as_recorded(depot: Depot) -> PackagesState:
    """What is installed, where files and packages ledger agree on it.

    Threat: an entry that tells of a set which follows from no entries before it makes the
    gates fail for good, also when what was amiss is put right.

    Raises: GateRefusedError: G0B or G6. LedgerDamagedError.
    """
    standing = _read_standing(depot)
    deviations = find_deviations(standing.record, standing.installed)
    if deviations:
        raise GateRefusedError("G6", deviations, hint=_AS_RECORDED)
    return standing


def require_repairable(depot: Depot) -> PackagesState:
    """As `require_as_recorded`, for a repair: packages may be missing, or not as recorded."""
    standing = _read_standing(depot)
    if standing.record.problems:
        raise GateRefusedError("G6", standing.record.problems, hint=_AS_RECORDED)
    return standing


def _read_standing(depot: Depot) -> PackagesState:
    installed = require_installed(depot)
    log = depot.ledger.read()
    return PackagesState(installed, log, replay(log.entries))


def require_room(transaction: Transaction) -> None:
    """Refuse a change of which too much would have to be told. Raises: UsageError.

    Threat: a swap that took place and cannot be recorded leaves a plane on which no command
    works any more.
    """
    entry, package_id = transaction.entry, transaction.package_id
    try:
        encode_body(entry, format_id(bytes(ID_BYTES)), format_timestamp(0))
    except EntryRefusedError as refused:
        counts = ", ".join(f"{_count(entry.metadata.get(key))} {what}" for key, what in _LISTS)
        raise UsageError(
            f"the packages ledger cannot tell of this change of {package_id}: {refused.message};"
            f" it has {counts}",
            hint="nothing was changed; make it several packages, or its commands shorter",
        ) from refused
    size = len(replace(transaction, phase=InstallPhase.DECIDED).to_bytes())
    if size > limits.receipt_bytes_max:
        raise UsageError(
            f"the record of this change of {package_id} would have {size} bytes, over"
            f" {limits.receipt_bytes_max}: it changes {len(transaction.changes)} paths",
            hint="nothing was changed; make it several packages, or its paths shorter",
        )


_LISTS: Final = (
    ("acceptance", "acceptance commands"),
    ("dependencies", "dependencies"),
)


def _count(listed: Json) -> int:
    return len(cast("list[Json]", listed)) if isinstance(listed, list) else 0


def carry_out(depot: Depot, transaction: Transaction, swap: Swap) -> None:
    """Tell of the change, then make it, as one set. Raised: it did not happen, or is settled."""
    depot.attic.write(transaction)
    try:
        commit_changes(
            depot.workspace, [swap.changes], depot.objects, depot.journal, label=transaction.id
        )
    except (TextError, PathError) as failure:
        settle(depot)
        raise HostError(
            f"the plane was changed by somebody else meanwhile: {failure.message}",
            hint="nothing was changed; try again",
        ) from failure
    except BaseException:
        settle(depot)
        raise
