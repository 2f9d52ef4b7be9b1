"""One set of changes of packages: made, and gone on with where it was stopped.

    record → the swap, one set of the plane's journal, with a draft of the receipt
    → ledger entry → receipt → the record goes

Killed at any moment, the next command on the plane settles it, in this order:

  * the journal settles the swap: it happened as a whole, or not at all;
  * not happened, as the receipt tells: the change never was, and the record goes;
  * happened: it is completed. The ledger is asked first whether the entry is there, so there
    is one whatever happens.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    InternalError,
    PathError,
    SpecialFileError,
    TextError,
    UsageError,
)
from paddock.ledger.format.line import ID_BYTES, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, encode_body
from paddock.packages.archive import PackedFile
from paddock.packages.installed import (
    Act,
    InstalledSet,
    InstallReceipt,
    Put,
    parse_receipt,
    read_installed,
)
from paddock.packages.ledger import PackageLog, Record, find_deviations, replay
from paddock.packages.manifest import PLANE_MARKER, manifest_path, receipt_path
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.packages.transaction import Depot, StagedFiles, Transaction, sweep_drafts
from paddock.plane.create import BARE_DIRECTORIES
from paddock.plane.json_files import write_object
from paddock.storage.atomic import FILE_MODE as OWN_MODE
from paddock.storage.atomic import read_file
from paddock.storage.disk import Disk
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.workspace import EntryPath, Workspace
from paddock.workspace.apply import RecoveredSet, recover
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    EntryState,
    MakeDirectory,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StagedChange,
    WriteFile,
    entry_state,
)
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import EntryKind

# From what is to happen to a plane's files to one set of changes. Every path is looked at once;
# what stands there decides whether the file is put, replaced, left as it is, or refused. The set
# then expects exactly what was seen: whoever comes between the look and the swap makes the swap
# fail as a whole.

DIRECTORY_MODE: Final = 0o700
_ENTRIES_MAX: Final = limits.change_set_paths_max


class PathChange(Struct, frozen=True):
    path: str
    before: str | None
    """The version of what stood there."""
    after: PackedFile | None

    @property
    def word(self) -> str:
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "replaced"


class Swap(Struct):
    workspace: Workspace
    changes: list[StagedChange] = field(default_factory=list[StagedChange])
    paths: list[PathChange] = field(default_factory=list[PathChange])
    notes: list[str] = field(default_factory=list[str])

    @property
    def staged(self) -> StagedFiles:
        return StagedFiles(
            tuple(change.after for change in self.paths if change.after is not None),
            tuple(change.path for change in self.paths if change.after is None),
        )

    def add(self, act: Act, files: Mapping[str, PackedFile]) -> None:
        if isinstance(act, Put):
            self._put(act, files[act.path])
        else:
            self.remove(act.path, act.before.sha256)

    def write(self, path: str, content: bytes, mode: int) -> None:
        """A file of ours is to stand at `path`, whatever of ours stands there now."""
        entry, state = self._look(path)
        self._write(entry, state, content, mode)

    def write_receipt(self, receipt: InstallReceipt) -> None:
        self.write(receipt_path(receipt.package_id), receipt.to_bytes(), OWN_MODE)

    def remove(self, path: str, brought: str | None = None) -> None:
        """With a note where it is not what was `brought`.

        Raises: GateRefusedError for what makes this a plane.
        """
        if path == PLANE_MARKER:
            raise GateRefusedError(
                "G0B", [Failure(path, "without it this is no plane: it cannot be taken away")]
            )
        entry, state = self._look(path)
        if state is None:
            self.notes.append(f"{path} was missing")
            return
        old = _version(state)
        if brought is not None and old != brought:
            self._note_changed(path, state)
        self.changes.append(RemoveFile(entry.path, AtVersion(old), overrides_read_only=True))
        self.paths.append(PathChange(path, old, None))

    def finish(self) -> None:
        self._make_parents()
        self._remove_empty()

    # One file

    def _put(self, act: Put, packed: PackedFile) -> None:
        entry, state = self._look(act.path)
        if state is None:
            if act.before is not None:
                self.notes.append(f"{act.path} was missing, and is there again")
        elif self._stays(act, state):
            return
        self._write(entry, state, packed.content, packed.mode)

    def _stays(self, act: Put, state: EntryState) -> bool:
        """Whether what stands there is an operator's; refuses what is nobody's."""
        asset, version = act.asset, state.version
        shipped = None if act.before is None else act.before.sha256
        if asset.is_config and state.kind is EntryKind.FILE and version != shipped:
            if version != asset.sha256:
                self.notes.append(f"{act.path} is configuration and stays as it is")
            return True
        if shipped is None and (version != asset.sha256 or state.kind is not EntryKind.FILE):
            raise OwnershipRefusedError(
                [Failure(act.path, "something stands there that no package brought")]
            )
        if shipped is not None and version not in (shipped, asset.sha256):
            self._note_changed(act.path, state)
        return False

    def _note_changed(self, path: str, state: EntryState) -> None:
        if state.kind is EntryKind.LINK:
            target = quote(state.link_text or "")
            self.notes.append(f"{path} had been replaced by a link to {target}, which is gone")
            return
        self.notes.append(
            f"{path} had been changed; what stood there is kept in objects as {_version(state)},"
            " until the history needs the room"
        )

    def _write(self, entry: EntryPath, state: EntryState | None, content: bytes, mode: int) -> None:
        path, version = entry.path, digest_of(content)
        after = PackedFile(path.relative, content, mode)
        if state is None:
            self.changes.append(WriteFile(path, content, Absent(), mode))
            self.paths.append(PathChange(path.relative, None, after))
            return
        is_same = state.kind is EntryKind.FILE and state.version == version
        if is_same and state.mode == mode:
            return
        old = AtVersion(_version(state))
        self.paths.append(PathChange(path.relative, old.version, after))
        if is_same:
            self.changes.append(SetMetadata(path, old, mode))
        else:
            self.changes.append(WriteFile(path, content, old, mode, overrides_read_only=True))

    def _look(self, path: str) -> tuple[EntryPath, EntryState | None]:
        try:
            entry = self.workspace.resolve_entry(path)
            state = entry_state(self.workspace, entry)
        except SpecialFileError as error:
            raise OwnershipRefusedError([Failure(path, error.message)]) from error
        except PathError as error:
            # Threat: a directory of the plane that was replaced by a link leads our files
            # elsewhere.
            raise GateRefusedError("G0B", [Failure(path, error.message)]) from error
        if state is not None and state.kind is EntryKind.DIRECTORY:
            raise OwnershipRefusedError([Failure(path, "a directory stands there")])
        return entry, state

    # Directories

    def _make_parents(self) -> None:
        known: set[str] = set()
        gone = {change.path for change in self.paths if change.after is None}
        for change in self.paths:
            if change.after is None:
                continue
            above = change.path.rpartition("/")[0]
            while above and above not in known:
                known.add(above)
                entry = self.workspace.resolve_entry(above)
                if entry.exists and above not in gone:
                    break
                self.changes.append(MakeDirectory(entry.path, Absent(), DIRECTORY_MODE))
                above = above.rpartition("/")[0]

    def _remove_empty(self) -> None:
        gone = {change.path for change in self.paths if change.after is None}
        kept = {change.path for change in self.paths if change.after is not None}
        waiting = sorted({path.rpartition("/")[0] for path in gone}, key=_depth, reverse=True)
        while waiting:
            directory = waiting.pop(0)
            if directory in BARE_DIRECTORIES or not directory or directory in gone:
                continue
            if any(path.startswith(f"{directory}/") for path in kept):
                continue
            entry = self.workspace.resolve_entry(directory)
            listing = list_directory(self.workspace, entry.path, 1, _ENTRIES_MAX)
            if any(each.path.relative not in gone for each in listing.entries):
                continue
            self.changes.append(RemoveDirectory(entry.path))
            gone.add(directory)
            above = directory.rpartition("/")[0]
            if above not in waiting:
                waiting.append(above)
                waiting.sort(key=_depth, reverse=True)


def _depth(path: str) -> int:
    return path.count("/")


def _version(state: EntryState) -> str:
    if state.version is None:
        raise InternalError("a file without a version")
    return state.version


class Decided(Enum):
    COMPLETED = "completed"
    NEVER_BEGUN = "never begun"


class RecoveredChange(Struct, frozen=True):
    package_id: str
    outcome: Decided


def settle(depot: Depot) -> RecoveredChange | None:
    """None where there was nothing. The lock is held.

    Raises: HostError: it cannot be settled now. IntegrityError: nobody can tell whether it
    happened. LedgerBusyError, LedgerFullError: all but the entry is there.
    """
    transaction = depot.pending.read()
    if transaction is None:
        return None
    _settle_swap(depot, transaction)
    if has_happened(depot, transaction):
        complete(depot, transaction)
        return RecoveredChange(transaction.package_id, Decided.COMPLETED)
    end(depot)
    return RecoveredChange(transaction.package_id, Decided.NEVER_BEGUN)


def has_happened(depot: Depot, transaction: Transaction) -> bool:
    """Told by the receipt that the swap brings; of an uninstall, by the manifest that it takes.

    Raises: IntegrityError: what stands in the receipt's place is none.
    """
    package_id = transaction.package_id
    path = depot.layout.root / receipt_path(package_id)
    try:
        if transaction.receipt is None:
            manifest = depot.layout.root / manifest_path(package_id)
            return read_file(manifest, limits.manifest_bytes_max) is None
        content = read_file(path, limits.receipt_bytes_max)
        if content is None:
            return False
        return parse_receipt(content, str(path)).transaction == transaction.id
    except ConfigError as error:
        raise IntegrityError(
            f"{package_id} was being changed, and its receipt does not tell how far that came:"
            f" {error.message}",
            where=str(path),
            hint="restore it from a backup",
        ) from error


def complete(depot: Depot, transaction: Transaction) -> str:
    """Ledger entry, receipt, and the record goes; the entry's id. Done twice, it is done once."""
    known = depot.ledger.read().find(transaction.id)
    entry_id = depot.ledger.append(transaction.entry) if known is None else known.id
    if transaction.receipt is not None:
        swap = Swap(depot.workspace)
        swap.write_receipt(replace(transaction.receipt, ledger_entry=entry_id))
        depot.commit(swap.changes, f"{transaction.id}-receipt")
    end(depot)
    return entry_id


def end(depot: Depot) -> None:
    depot.pending.forget()
    tidy(depot)


def tidy(depot: Depot) -> None:
    registries = depot.layout.registries
    for place in (registries / "keys", registries / "approvals", depot.layout.package_changes):
        sweep_drafts(place)


def _settle_swap(depot: Depot, transaction: Transaction) -> None:
    for found in recover(depot.journal, Disk(), depot.workspace.resolution):
        is_ours = not found.label or found.label.startswith(transaction.id)
        if found.settled is RecoveredSet.WAITING and is_ours:
            raise HostError(
                f"the change of {transaction.package_id} cannot be settled yet: {found.why}",
                hint="end other programs that work on the plane, then try again",
            )


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
    with depot.pending.locked():
        recovered = settle(depot)
        tidy(depot)
        yield recovered


def recover_packages(depot: Depot) -> RecoveredChange | None:
    if not depot.pending.exists():
        return None
    with depot.pending.try_locked() as is_ours:
        return settle(depot) if is_ours else None


def require_installed(depot: Depot) -> InstalledSet:
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
        lists = (("acceptance", "acceptance commands"), ("dependencies", "dependencies"))
        counts = ", ".join(f"{_count(entry.metadata.get(key))} {what}" for key, what in lists)
        raise UsageError(
            f"the packages ledger cannot tell of this change of {package_id}: {refused.message};"
            f" it has {counts}",
            hint="nothing was changed; make it several packages, or its commands shorter",
        ) from refused
    size = len(write_object(transaction))
    if size > limits.receipt_bytes_max:
        raise UsageError(
            f"the record of this change of {package_id} would have {size} bytes, over"
            f" {limits.receipt_bytes_max}",
            hint="nothing was changed; make it several packages, or its paths shorter",
        )


def _count(listed: Json) -> int:
    return len(cast("list[Json]", listed)) if isinstance(listed, list) else 0


def carry_out(depot: Depot, transaction: Transaction, swap: Swap) -> None:
    """Tell of the change, then make it, as one set. Raised: it did not happen, or is settled."""
    depot.pending.write(transaction)
    try:
        depot.commit(swap.changes, transaction.id)
    except (TextError, PathError) as failure:
        settle(depot)
        raise HostError(
            f"the plane was changed by somebody else meanwhile: {failure.message}",
            hint="nothing was changed; try again",
        ) from failure
    except BaseException:
        settle(depot)
        raise
