"""One change of the installed set, as it is told on the disk while it is on its way.

    objects/packages/transaction.json     this record; there is at most one
    objects/packages/<id>/<number>        what was replaced, where it may have to come back

    begun     everything is prepared; the swap may have happened or not, as a whole
    decided   the swap happened and was accepted: it stands

The record holds all that is needed to go on from it: which paths change from what to what,
the ledger entry and the receipt. See `change` for what is made of it.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import ConfigError, IntegrityError, SandboxUnavailableError
from paddock.packages.installed import InstallReceipt, receipt_of
from paddock.packages.ledger import PackageLedger
from paddock.packages.manifest import PLANE_MARKER, Acceptance
from paddock.packages.rows import Failure
from paddock.pattern import lazy_pattern
from paddock.plane.admin import is_contract, parse_admin_config
from paddock.plane.json_files import JsonFile, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.policy.engine import PolicySource, load_policy
from paddock.storage.atomic import (
    FILE_MODE,
    create_file,
    host_errors,
    is_temporary_name,
    make_directories,
    read_file,
    replace_file,
    require_private,
    sync_directory,
)
from paddock.storage.journal import Journal
from paddock.storage.locks import locked, shared, try_locked, try_shared
from paddock.storage.objects import ObjectStore
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry, digest_of
from paddock.workspace import Workspace

FORMAT: Final = 1


class InstallPhase(StrEnum):
    BEGUN = "begun"
    DECIDED = "decided"


class TransactionKind(StrEnum):
    FILE = "file"
    LINK = "link"


class Before(Struct, frozen=True):
    kind: TransactionKind
    version: str
    mode: int
    link_text: str | None = None
    backup: str | None = None
    """The name under which a file's content was put aside, where it may have to come back."""


class After(Struct, frozen=True):
    version: str
    mode: int


class PathChange(Struct, frozen=True):
    """One path of the swap; not both are None."""

    path: str
    before: Before | None = None
    after: After | None = None


class RemovedDirectory(Struct, frozen=True):
    """A directory that the swap leaves empty, and takes away."""

    path: str
    mode: int


class Transaction(Struct, frozen=True):
    id: str
    package_id: str
    phase: InstallPhase
    is_tested: bool
    """Whether acceptance commands stand between the swap and the decision."""
    manifest_before: str | None
    """Digest of the manifest that stood in the plane; None where the package was not there."""
    manifest_after: str | None
    changes: tuple[PathChange, ...]
    made: tuple[str, ...]
    """Directories that the swap makes, parents first."""
    removed: tuple[RemovedDirectory, ...]
    """Parents last."""
    entry: Entry
    receipt: InstallReceipt | None
    """Without its ledger entry; None for an uninstall."""

    def to_bytes(self) -> bytes:
        return write_object(
            {
                "format": FORMAT,
                **{
                    name: to_builtins(getattr(self, name))
                    for name in self.__struct_fields__
                    if name not in ("entry", "receipt")
                },
                "entry": {
                    **{name: getattr(self.entry, name) for name in _EntryRow.__struct_fields__},
                    "metadata": dict(self.entry.metadata),
                },
                "receipt": None if self.receipt is None else self.receipt.as_json(),
            }
        )


class _EntryRow(Struct, frozen=True):
    event_type: str
    submission_id: str
    decision: str
    reason: str
    call_id: str
    metadata: dict[str, Any]


class _TransactionFile(Struct, frozen=True):
    format: int
    id: str
    package_id: str
    phase: InstallPhase
    changes: tuple[PathChange, ...]
    entry: _EntryRow
    is_tested: bool = False
    manifest_before: str | None = None
    manifest_after: str | None = None
    made: tuple[str, ...] = ()
    removed: tuple[RemovedDirectory, ...] = ()
    receipt: dict[str, Any] | None = None


def parse_transaction(content: bytes, file: str) -> Transaction:
    """Raises: ConfigError, IntegrityError: no crash makes one like this: it was written whole."""
    given = parse_file(content, file)
    if given.members.get("format") != FORMAT:
        raise IntegrityError("a change of packages by another version of paddock", where=file)
    try:
        read = given.convert(_TransactionFile)
    except ConfigError as error:
        said = "the record of a change of packages is damaged"
        raise IntegrityError(said, where=error.where) from error
    fields: dict[str, Any] = asdict(read) | {
        "entry": Entry(**asdict(read.entry)),
        "receipt": None if read.receipt is None else receipt_of(JsonFile(file, read.receipt)),
    }
    del fields["format"]
    return Transaction(**fields)


# It lies in the plane's own store, which no package brings files to and no agent writes to.
# Everything here is small, written whole and synced before anything relies on it.

_ID: Final = lazy_pattern(r"TX-[0-9a-f]{32}", re.ASCII)


def new_transaction_id() -> str:
    return f"TX-{secrets.token_hex(16)}"


def sweep_drafts(directory: Path) -> None:
    """What killed writers left; whoever writes there holds our lock. Raises: HostError."""
    if not directory.is_dir():
        return
    with host_errors("tidying", directory):
        for name in os.listdir(directory):
            if is_temporary_name(name):
                os.unlink(directory / name)


class Attic:
    """One plane's. Whoever changes anything here holds the lock."""

    __slots__ = ("_directory", "_transaction")

    def __init__(self, layout: PlaneLayout) -> None:
        self._directory = layout.package_changes
        self._transaction = layout.package_transaction

    @contextmanager
    def locked(self) -> Generator[None]:
        """One at a time, across processes. Raises: ConfigError, HostError."""
        make_directories(self._directory)
        require_private(self._directory)
        with locked(self._directory):
            yield

    @contextmanager
    def try_locked(self) -> Generator[bool]:
        """The same without waiting: whether nobody else is changing packages now."""
        if not self._directory.is_dir():
            make_directories(self._directory)
        require_private(self._directory)
        with try_locked(self._directory) as is_ours:
            yield is_ours

    @contextmanager
    def at_rest(self) -> Generator[None]:
        """No change of packages meanwhile; any number may look at once. Raises: as `locked`."""
        make_directories(self._directory)
        require_private(self._directory)
        with shared(self._directory):
            yield

    @contextmanager
    def try_at_rest(self) -> Generator[bool]:
        """The same without waiting: False where packages are being changed now. Raises: HostError.

        It is for looks that write nothing here, so it is not asked who else can.
        """
        if not self._directory.is_dir():
            make_directories(self._directory)
        with try_shared(self._directory) as is_at_rest:
            yield is_at_rest

    def has_transaction(self) -> bool:
        return os.path.lexists(self._transaction)

    def read(self) -> Transaction | None:
        """The change that is on its way, if there is one. Raises: ConfigError, IntegrityError."""
        path = self._transaction
        content = read_file(path, limits.receipt_bytes_max)
        if content is None:
            return None
        found = parse_transaction(content, str(path))
        if _ID.fullmatch(found.id) is None:
            raise IntegrityError("the record of a change of packages has no id", where=str(path))
        return found

    def write(self, transaction: Transaction) -> None:
        replace_file(self._transaction, transaction.to_bytes())

    def forget(self) -> None:
        with host_errors("ending a change of packages in", self._directory):
            self._transaction.unlink(missing_ok=True)
            sync_directory(self._directory)

    def put_aside(self, transaction_id: str, number: int, content: bytes) -> str:
        directory = self._directory / transaction_id
        make_directories(directory)
        create_file(directory / str(number), content, FILE_MODE)
        return self.name_aside(transaction_id, number)

    def name_aside(self, transaction_id: str, number: int) -> str:
        return f"{transaction_id}/{number}"

    def read_aside(self, name: str, version: str) -> bytes:
        """What was put aside under that name. Raises: IntegrityError: it is not that content."""
        transaction_id, _, number = name.partition("/")
        if _ID.fullmatch(transaction_id) is None or not number.isdigit():
            raise IntegrityError("the record of a change of packages names no place here")
        return self._read(self._directory / transaction_id / number, version)

    def sweep(self) -> None:
        sweep_drafts(self._directory)
        with host_errors("tidying", self._directory):
            for entry in list(os.scandir(self._directory)):
                if _ID.fullmatch(entry.name) is not None:
                    shutil.rmtree(entry.path)

    def _read(self, path: Path, version: str) -> bytes:
        content = read_file(path, limits.package_bytes_max)
        if content is None or digest_of(content) != version:
            raise IntegrityError(
                "what a package replaced was kept, and is damaged", where=str(path)
            )
        return content


# They run after the swap, in the plane's root, in the sandbox of the shell tools, and change
# nothing: what such a command writes is thrown away.


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
    def run(self, acceptance: Acceptance) -> AcceptanceResult:
        """Raises: SandboxUnavailableError: this host cannot confine it, so it does not run."""
        ...


class NoAcceptance:
    def run(self, acceptance: Acceptance) -> AcceptanceResult:
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
    """Loads each by itself, whatever the user's own configuration and the known tools are."""

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
    def attic(self) -> Attic:
        return Attic(self.layout)
