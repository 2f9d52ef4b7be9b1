"""Carry out one change of packages as one set, and complete an interrupted one.

    the swap, one set of the plane's journal: files, manifest, a draft of the receipt and,
    last of all, the record of the ledger entries to append
    → ledger entries → final receipts, and the record is removed

    objects/packages/transaction.json     the record; there is at most one

If it is killed at any moment, the next command on the plane recovers it: the journal completes or
undoes the swap. If the record exists, the swap happened. An entry is appended only if the ledger
does not have it yet, so there is exactly one.
"""

import os
import re
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import errors, limits
from paddock.ledger.format.line import ID_BYTES, format_id, format_timestamp
from paddock.ledger.format.lines import EntryRefusedError, encode_body
from paddock.packages.archive import PackedFile
from paddock.packages.installed import (
    Act,
    InstalledSet,
    InstallReceipt,
    Load,
    Put,
    load_alone,
    read_installed,
)
from paddock.packages.ledger import PackageLedger, Record, find_deviations
from paddock.packages.manifest import PLANE_MARKER, Acceptance, receipt_path
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.pattern import lazy_pattern
from paddock.plane.json_files import load_file, write_object
from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.storage import atomic
from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.storage.locks import SHARED, locked, try_locked
from paddock.storage.objects import ObjectStore
from paddock.text.json import Strict
from paddock.text.show import quote, show_name
from paddock.values.calls import Json
from paddock.values.entries import Entry, digest_of
from paddock.workspace import EntryPath, Workspace
from paddock.workspace.apply import RecoveredSet, commit_changes, recover
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


class PathChange(Struct, frozen=True):
    path: str
    before: str | None
    """The version of the previous file; None: there was none."""
    after: PackedFile | None

    @property
    def word(self) -> str:
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "replaced"


# Acceptance commands run before the change, on the plane as it is going to be, in the sandbox of
# the shell tools. They change nothing: their writes are discarded.


class AcceptanceResult(Struct, frozen=True):
    command: str
    passed: bool
    """It exited on its own, with status 0."""
    exit_code: int
    output: str
    """The end of its output, at most `limits.acceptance_output_chars_max`; a cut is marked."""
    duration_s: float

    def __str__(self) -> str:
        said = f": {show_name(self.output)}" if self.output else ""
        return f"{quote(self.command)} ended with {self.exit_code}{said}"

    def as_json(self) -> dict[str, Json]:
        return {
            "command": self.command,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "duration_ms": round(self.duration_s * 1000),
        }


class AcceptanceRunner(Protocol):
    # Run it on the plane with these changes applied.
    # Raises: SandboxUnavailableError: this host cannot confine it, so it does not run.
    def run(self, acceptance: Acceptance, changes: Sequence[PathChange]) -> AcceptanceResult: ...


class NoAcceptance:
    def run(self, acceptance: Acceptance, changes: Sequence[PathChange]) -> AcceptanceResult:
        raise errors.SandboxUnavailableError(
            f"the acceptance command {quote(acceptance.command)} cannot run without a sandbox",
            hint="paddock doctor says what this host lacks",
        )


FORMAT: Final = 3
TRANSACTION: Final = "objects/packages/transaction.json"
_ID: Final = lazy_pattern(r"TX-[0-9a-f]{32}", re.ASCII)


class ToldChange(Strict, frozen=True):
    row: dict[str, Any]
    """The fields of its ledger entry; `call_id` is the id of this change."""
    receipt: InstallReceipt | None
    """A draft, without that entry's id; None for an uninstall."""

    @property
    def entry(self) -> Entry:
        return Entry(**self.row)


class Transaction(Strict, frozen=True, kw_only=True):
    """The ledger entries and receipts still to write for files that are already in place."""

    format: int = FORMAT
    id: str
    package_id: str
    changes: tuple[ToldChange, ...]


def transaction_of(package_id: str, *changes: tuple[Entry, InstallReceipt | None]) -> Transaction:
    rows = ({**entry._asdict(), "metadata": dict(entry.metadata)} for entry, _ in changes)
    told = tuple(ToldChange(row, receipt) for row, (_, receipt) in zip(rows, changes, strict=True))
    return Transaction(id=changes[0][0].call_id, package_id=package_id, changes=told)


def new_transaction_id() -> str:
    return f"TX-{secrets.token_hex(16)}"


class PendingChange(Struct, frozen=True):
    """An unfinished change: its lock and its record, in the plane's own store.

    Packages contain no files there, and agents cannot write there.
    """

    layout: PlaneLayout

    def locked(self) -> AbstractContextManager[None]:
        """Exclusive, across processes."""
        return locked(self._directory())

    def try_locked(self) -> AbstractContextManager[bool]:
        return try_locked(self._directory())

    def at_rest(self) -> AbstractContextManager[None]:
        """Shared: any number of readers, but no change of packages meanwhile."""
        return locked(self._directory(), SHARED)

    def try_at_rest(self) -> AbstractContextManager[bool]:
        """Like `at_rest` without waiting; False during a change. Other writers are not checked."""
        if not self._lock.is_dir():
            atomic.make_directories(self._lock)
        return try_locked(self._lock, SHARED)

    def exists(self) -> bool:
        return os.path.lexists(self.layout.package_transaction)

    def read(self) -> Transaction | None:
        """Raises: ConfigError, IntegrityError: damaged, or of another version; never by a crash."""
        path = self.layout.package_transaction
        given = load_file(path, limits.receipt_bytes_max)
        if given is None:
            return None
        if given.members.get("format") != FORMAT:
            raise errors.IntegrityError(
                "another version of paddock began a change of packages",
                where=str(path),
                hint="complete it with any command of that version: paddock package list",
            )
        try:
            found = given.convert(Transaction)
        except errors.ConfigError as error:
            said = "the record of a change of packages is damaged"
            raise errors.IntegrityError(said, where=error.where) from error
        if _ID.fullmatch(found.id) is None:
            raise errors.IntegrityError(
                "the record of a change of packages has no id", where=str(path)
            )
        return found

    @property
    def _lock(self) -> Path:
        # Not the record's directory: the set that writes the record locks that one itself.
        return self.layout.package_changes / "lock"

    def _directory(self) -> Path:
        atomic.make_directories(self._lock)
        atomic.require_private(self.layout.package_changes)
        return self._lock


class Depot(Struct, frozen=True):
    layout: PlaneLayout
    workspace: Workspace
    """On the plane's root: an install writes through the same fence as a tool."""
    objects: ObjectStore
    journal: Journal
    ledger: PackageLedger
    clock: Callable[[], float]
    acceptance: AcceptanceRunner = field(default_factory=NoAcceptance)
    load: Load = load_alone

    @property
    def pending(self) -> PendingChange:
        return PendingChange(self.layout)

    def commit(self, *phases: Sequence[StagedChange], label: str) -> None:
        commit_changes(self.workspace, phases, self.objects, self.journal, label=label)


# Plans one set of changes, and writes nothing. The file at a path decides whether it is created,
# replaced, kept or refused; if that file has changed when the set is committed, the set fails.

DIRECTORY_MODE: Final = 0o700
_ENTRIES_MAX: Final = limits.change_set_paths_max


class Swap(Struct):
    workspace: Workspace
    keeps_old: bool = True
    """Keep replaced content in the history; not needed for short-lived drafts."""
    changes: list[StagedChange] = field(default_factory=list[StagedChange])
    paths: list[PathChange] = field(default_factory=list[PathChange])
    notes: list[str] = field(default_factory=list[str])

    def add(self, act: Act, files: Mapping[str, PackedFile]) -> None:
        if isinstance(act, Put):
            self._put(act, files[act.path])
        else:
            self.remove(act.path, act.before.sha256)

    def write(self, path: str, content: bytes, mode: int) -> None:
        """Write one of the plane's own files at `path`, replacing any file or link there."""
        entry, state = self._look(path)
        self._write(entry, state, content, mode)

    def write_receipt(self, receipt: InstallReceipt) -> None:
        self.write(receipt_path(receipt.package_id), receipt.to_bytes(), atomic.FILE_MODE)

    def remove(self, path: str, brought: str | None = None) -> None:
        """Remove a file; note it if its digest is not `brought`.

        Raises: GateRefusedError for a file that makes this a plane.
        """
        if path == PLANE_MARKER:
            raise GateRefusedError("G0B", [Failure(path, "a plane needs it: it cannot be removed")])
        entry, state = self._look(path)
        if state is None:
            self.notes.append(f"{path} was missing")
            return
        old = _version(state)
        if brought is not None and old != brought:
            self._note_changed(path, state)
        self.changes.append(
            RemoveFile(
                entry.path, AtVersion(old), keeps_old=self.keeps_old, overrides_read_only=True
            )
        )
        self.paths.append(PathChange(path, old, None))

    def finish(self) -> None:
        self._make_parents()
        self._remove_empty()

    # One file

    def _put(self, act: Put, packed: PackedFile) -> None:
        entry, state = self._look(act.path)
        if state is None:
            if act.before is not None:
                self.notes.append(f"{act.path} was missing, and has been restored")
        elif self._stays(act, state):
            return
        self._write(entry, state, packed.content, packed.mode)

    def _stays(self, act: Put, state: EntryState) -> bool:
        """Return True for an operator's configuration; refuse a file that belongs to no package."""
        asset, version = act.asset, state.version
        shipped = None if act.before is None else act.before.sha256
        if asset.is_config and state.kind is EntryKind.FILE and version != shipped:
            if version != asset.sha256:
                self.notes.append(f"{act.path} is configuration, and was kept")
            return True
        if shipped is None and (version != asset.sha256 or state.kind is not EntryKind.FILE):
            raise OwnershipRefusedError(
                [Failure(act.path, "the existing file belongs to no package")]
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
            f"{path} had been changed; its content is kept in objects as {_version(state)},"
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
            self.changes.append(
                WriteFile(
                    path,
                    content,
                    old,
                    mode,
                    keeps_old=self.keeps_old,
                    overrides_read_only=True,
                )
            )

    def _look(self, path: str) -> tuple[EntryPath, EntryState | None]:
        try:
            entry = self.workspace.resolve_entry(path)
            state = entry_state(self.workspace, entry)
        except errors.SpecialFileError as error:
            raise OwnershipRefusedError([Failure(path, error.message)]) from error
        except errors.PathError as error:
            # Threat: a directory of the plane that was replaced by a link leads our files
            # elsewhere.
            raise GateRefusedError("G0B", [Failure(path, error.message)]) from error
        if state is not None and state.kind is EntryKind.DIRECTORY:
            raise OwnershipRefusedError([Failure(path, "a directory is there")])
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
        raise errors.InternalError("a file without a version")
    return state.version


def settle(depot: Depot) -> str | None:
    """Complete a killed command's change; return its package. The caller holds the lock.

    Raises: HostError: it cannot be completed now. LedgerBusyError, LedgerFullError: the files are
    in place, but the entry is still missing.
    """
    for found in recover(depot.journal, Disk(), depot.workspace.resolution):
        is_ours = not found.label or found.label.startswith("TX-")
        if found.settled is RecoveredSet.WAITING and is_ours:
            raise errors.HostError(
                f"a change of packages cannot be completed yet: {found.why}",
                hint="stop other programs that use the plane, then try again",
            )
    transaction = depot.pending.read()
    if transaction is None:
        return None
    complete(depot, transaction)
    return transaction.package_id


def complete(depot: Depot, transaction: Transaction) -> str:
    """Append entries, write receipts, remove the record: idempotent. Return the first entry id."""
    known = depot.ledger.read().ids
    missing = [each.entry for each in transaction.changes if each.entry.call_id not in known]
    made = depot.ledger.append_all(missing) if missing else ()
    ids = known | {entry.call_id: made_id for entry, made_id in zip(missing, made, strict=True)}
    told, record = (Swap(depot.workspace, keeps_old=False) for _ in range(2))
    for each in transaction.changes:
        if each.receipt is not None:
            told.write_receipt(replace(each.receipt, ledger_entry=ids[each.entry.call_id]))
    record.remove(TRANSACTION)
    depot.commit(told.changes, record.changes, label=transaction.id)
    return ids[transaction.id]


def tidy(depot: Depot) -> None:
    """Remove temporary files of killed writers; a living one would hold the caller's lock."""
    for name in ("keys", "approvals"):
        directory = depot.layout.registries / name
        if directory.is_dir():
            with atomic.host_errors("tidying", directory):
                for each in filter(atomic.is_temporary_name, os.listdir(directory)):
                    os.unlink(directory / each)


_AS_RECORDED: Final = (
    "nothing was changed; restore HOT/installed to what the packages ledger says (see: paddock gate"
    " --gate G6); for packages of the bootstrap: paddock bootstrap install --root PLANE --force"
)


class PackagesState(Struct, frozen=True):
    installed: InstalledSet
    record: Record


@contextmanager
def changing(depot: Depot) -> Generator[str | None]:
    """Hold the lock of packages, after completing a killed command's change."""
    with depot.pending.locked():
        recovered = settle(depot)
        tidy(depot)
        yield recovered


def recover_packages(depot: Depot) -> str | None:
    with depot.pending.try_locked() as is_ours:
        return settle(depot) if is_ours else None


def require_installed(depot: Depot) -> InstalledSet:
    installed = read_installed(depot.layout)
    if installed.problems:
        raise GateRefusedError("G0B", installed.problems, hint="repair HOT/installed first")
    return installed


def require_as_recorded(depot: Depot) -> PackagesState:
    """Return the installed set, if `HOT/installed` and the packages ledger agree.

    Threat: an entry that is appended while they differ names a set that does not follow from the
    entries before it, so G6 fails forever, even after the files are repaired.

    Raises: GateRefusedError: G0B or G6. LedgerDamagedError.
    """
    state = _read_state(depot)
    deviations = find_deviations(state.record, state.installed)
    if deviations:
        raise GateRefusedError("G6", deviations, hint=_AS_RECORDED)
    return state


def require_repairable(depot: Depot) -> PackagesState:
    """Like `require_as_recorded`, for a repair: only the entries have to be consistent."""
    state = _read_state(depot)
    if state.record.problems:
        raise GateRefusedError("G6", state.record.problems, hint=_AS_RECORDED)
    return state


def _read_state(depot: Depot) -> PackagesState:
    return PackagesState(require_installed(depot), depot.ledger.read())


def require_room(transaction: Transaction) -> None:
    """Refuse a change whose entry or record would be too large. Raises: UsageError.

    Threat: a swap that cannot be recorded is never completed, and blocks every later command.
    """
    package_id = transaction.package_id
    for entry in (each.entry for each in transaction.changes):
        try:
            encode_body(entry, format_id(bytes(ID_BYTES)), format_timestamp(0))
        except EntryRefusedError as refused:
            lists = (("acceptance", "acceptance commands"), ("dependencies", "dependencies"))
            counts = ", ".join(f"{_count(entry.metadata.get(key))} {what}" for key, what in lists)
            raise errors.UsageError(
                f"the packages ledger cannot record this change of {package_id}:"
                f" {refused.message}; it has {counts}",
                hint="nothing was changed; split the package, or shorten its commands",
            ) from refused
    size = len(write_object(transaction))
    if size > limits.receipt_bytes_max:
        raise errors.UsageError(
            f"the record of this change of {package_id} would have {size} bytes, over"
            f" {limits.receipt_bytes_max}",
            hint="nothing was changed; split the package, or shorten its paths",
        )


def _count(listed: Json) -> int:
    return len(cast("list[Json]", listed)) if isinstance(listed, list) else 0


def carry_out(depot: Depot, transaction: Transaction, swap: Swap) -> str:
    """Commit the changes as one set, then record them; return the first entry's id."""
    record = Swap(depot.workspace)
    record.write(TRANSACTION, write_object(transaction), atomic.FILE_MODE)
    try:
        depot.commit(swap.changes, record.changes, label=transaction.id)
    except (errors.TextError, errors.PathError) as failure:
        raise errors.HostError(
            f"another process changed the plane meanwhile: {failure.message}",
            hint="nothing was changed; try again",
        ) from failure
    return complete(depot, transaction)
