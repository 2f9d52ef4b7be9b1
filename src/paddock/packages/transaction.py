"""One change of the installed set on its way, on disk; and what an act on packages works with.

    objects/packages/transaction.json     the record; there is at most one

It holds what is still to be told when the files are in their places: the ledger entry, and
the receipt as it stands before it names that entry. See `change` for what is made of it.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import ConfigError, IntegrityError, SandboxUnavailableError
from paddock.packages.archive import PackedFile
from paddock.packages.installed import InstallReceipt
from paddock.packages.ledger import PackageLedger
from paddock.packages.manifest import PLANE_MARKER, Acceptance
from paddock.packages.rows import Failure
from paddock.pattern import lazy_pattern
from paddock.plane.admin import is_contract, parse_admin_config
from paddock.plane.json_files import parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.policy.engine import PolicySource, load_policy
from paddock.storage import atomic
from paddock.storage.journal import Journal
from paddock.storage.locks import SHARED, locked, try_locked
from paddock.storage.objects import ObjectStore
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import StagedChange

FORMAT: Final = 2
_ID: Final = lazy_pattern(r"TX-[0-9a-f]{32}", re.ASCII)


class _EntryRow(Strict, frozen=True):
    event_type: str
    submission_id: str
    decision: str
    reason: str
    call_id: str
    metadata: dict[str, Any]


class Transaction(Strict, frozen=True, kw_only=True):
    format: int = FORMAT
    id: str
    package_id: str
    row: _EntryRow
    receipt: InstallReceipt | None
    """None for an uninstall."""

    @property
    def entry(self) -> Entry:
        return Entry(**asdict(self.row))


def transaction_of(package_id: str, entry: Entry, receipt: InstallReceipt | None) -> Transaction:
    """The change that `entry` tells of; its id is the entry's call id."""
    row = _EntryRow(
        entry.event_type,
        entry.submission_id,
        entry.decision,
        entry.reason,
        entry.call_id,
        dict(entry.metadata),
    )
    return Transaction(id=entry.call_id, package_id=package_id, row=row, receipt=receipt)


def parse_transaction(content: bytes, file: str) -> Transaction:
    """Raises: ConfigError, IntegrityError: no crash makes one like this: it was written whole."""
    given = parse_file(content, file)
    if given.members.get("format") != FORMAT:
        raise IntegrityError(
            "a change of packages that another version of paddock began",
            where=file,
            hint="any command of that version ends it: paddock package list",
        )
    try:
        found = given.convert(Transaction)
    except ConfigError as error:
        said = "the record of a change of packages is damaged"
        raise IntegrityError(said, where=error.where) from error
    if _ID.fullmatch(found.id) is None:
        raise IntegrityError("the record of a change of packages has no id", where=file)
    return found


# It lies in the plane's own store, which no package brings files to and no agent writes to.
# It is small, written whole and synced before anything relies on it.


def new_transaction_id() -> str:
    return f"TX-{secrets.token_hex(16)}"


def sweep_drafts(directory: Path) -> None:
    """What killed writers left; whoever writes there holds our lock."""
    if not directory.is_dir():
        return
    with atomic.host_errors("tidying", directory):
        for name in os.listdir(directory):
            if atomic.is_temporary_name(name):
                os.unlink(directory / name)


class PendingChange(Struct, frozen=True):
    layout: PlaneLayout

    def locked(self) -> AbstractContextManager[None]:
        """One at a time, across processes."""
        return locked(self._directory())

    def try_locked(self) -> AbstractContextManager[bool]:
        return try_locked(self._directory())

    def at_rest(self) -> AbstractContextManager[None]:
        """No change of packages meanwhile; any number may look at once."""
        return locked(self._directory(), SHARED)

    def try_at_rest(self) -> AbstractContextManager[bool]:
        """The same without waiting: False where packages are being changed now.

        It is for looks that write nothing here, so it is not asked who else can.
        """
        directory = self.layout.package_changes
        if not directory.is_dir():
            atomic.make_directories(directory)
        return try_locked(directory, SHARED)

    def exists(self) -> bool:
        return os.path.lexists(self.layout.package_transaction)

    def read(self) -> Transaction | None:
        path = self.layout.package_transaction
        content = atomic.read_file(path, limits.receipt_bytes_max)
        return None if content is None else parse_transaction(content, str(path))

    def write(self, transaction: Transaction) -> None:
        atomic.replace_file(self.layout.package_transaction, write_object(transaction))

    def forget(self) -> None:
        directory = self.layout.package_changes
        with atomic.host_errors("ending a change of packages in", directory):
            self.layout.package_transaction.unlink(missing_ok=True)
            atomic.sync_directory(directory)

    def _directory(self) -> Path:
        atomic.make_directories(self.layout.package_changes)
        atomic.require_private(self.layout.package_changes)
        return self.layout.package_changes


class StagedFiles(Struct, frozen=True):
    put: tuple[PackedFile, ...] = ()
    removed: tuple[str, ...] = ()


# Acceptance commands run before the change, over the plane as it is going to be, in the
# sandbox of the shell tools. They change nothing: what such a command writes is thrown away.


class AcceptanceResult(Struct, frozen=True):
    command: str
    passed: bool
    """It exited by itself, with 0."""
    exit_code: int
    output: str
    """The end of what it printed, within `limits.acceptance_output_chars_max`; a cut is said."""
    duration_s: float

    def as_json(self) -> dict[str, Json]:
        """Without its output, which may hold anything."""
        return {
            "command": self.command,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "duration_ms": round(self.duration_s * 1000),
        }


class AcceptanceRunner(Protocol):
    # Run it on the plane with these files in place.
    # Raises: SandboxUnavailableError: this host cannot confine it, so it does not run.
    def run(self, acceptance: Acceptance, staged: StagedFiles) -> AcceptanceResult: ...


class NoAcceptance:
    def run(self, acceptance: Acceptance, staged: StagedFiles) -> AcceptanceResult:
        raise SandboxUnavailableError(
            f"the acceptance command {quote(acceptance.command)} cannot run without a sandbox",
            hint="paddock doctor says what this host lacks for one",
        )


# No command works then, and none that takes the package out again. So it is loaded before the
# package is installed, as whoever opens the plane would.

POLICIES: Final = ("HOT/config/policy.toml", "HOT/config/policy.json")
"""A plane has one of them, or none."""
_CONTRACTS: Final = "HO1/contracts/"


class Loading(Protocol):
    def load_admin(self, content: bytes) -> None: ...

    def load_policy(self, name: str, content: bytes) -> None: ...


class LoadsAlone:
    def load_admin(self, content: bytes) -> None:
        parse_admin_config(content, Path(PLANE_MARKER))

    def load_policy(self, name: str, content: bytes) -> None:
        load_policy(PolicySource(name, content, True), None, PlaneKind.BARE)


def find_loading_problems(
    put: Mapping[str, bytes], standing: frozenset[str], loading: Loading
) -> Iterator[Failure]:
    """`put` is what a change writes; `standing` are the policies that are there afterwards."""
    for path, content in put.items():
        try:
            _load(path, content, loading)
        except ConfigError as error:
            yield Failure(path, f"it does not load: {error.message}")
    if len(standing) > 1 and not standing.isdisjoint(put):
        yield Failure(POLICIES[1], "the plane would have two policies")


def _load(path: str, content: bytes, loading: Loading) -> None:
    if path == PLANE_MARKER:
        _require_size(content, limits.admin_config_bytes_max)
        loading.load_admin(content)
    elif path in POLICIES:
        _require_size(content, limits.policy_bytes_max)
        loading.load_policy(path.rpartition("/")[2], content)
    elif path.startswith(_CONTRACTS):
        name, below, _ = path.removeprefix(_CONTRACTS).partition("/")
        if not is_contract(name):
            return
        if below:
            raise ConfigError("a directory stands in the place of a prompt contract")
        _require_size(content, limits.prompt_contract_bytes_max)


def _require_size(content: bytes, bytes_max: int) -> None:
    if len(content) > bytes_max:
        raise ConfigError(f"it has {len(content)} bytes, over {bytes_max}")


class Depot(Struct, frozen=True):
    layout: PlaneLayout
    workspace: Workspace
    """On the plane's root: what is installed goes through the same fence as any write."""
    objects: ObjectStore
    journal: Journal
    ledger: PackageLedger
    clock: Callable[[], float]
    acceptance: AcceptanceRunner = field(default_factory=NoAcceptance)
    loading: Loading = field(default_factory=LoadsAlone)

    @property
    def pending(self) -> PendingChange:
        return PendingChange(self.layout)

    def commit(self, set_: Sequence[StagedChange], label: str) -> None:
        commit_changes(self.workspace, [set_], self.objects, self.journal, label=label)
