"""What the gates look at: one plane, each part of it read once, when it is first asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, cast

from paddock.errors import PaddockError
from paddock.gates.witness import LedgerWitness
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, query_lines
from paddock.packages.installed import InstalledSet, Registries, read_installed, read_registries
from paddock.packages.ledger import PackageLedger, Record, find_deviations, replay
from paddock.packages.rows import Failure
from paddock.packages.signing import Approval, Keys, read_approvals, read_keys
from paddock.packages.transaction import AcceptanceRunner, Attic
from paddock.packages.vouching import Vouched, read_vouched
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.values.calls import Json
from paddock.values.events import CONFIG_CHANGED
from paddock.workspace import Workspace

MADE_WITH_DEV: Final = "this plane was made with --dev: nobody has to approve or sign anything"
NOTHING_INSTALLED: Final = "nothing is installed"
_LINE: Final = ", line "
"""Between a file and the place in it, as errors of our own readers say where."""


class Watcher(Protocol):
    """Hears how far a long look is."""

    def begins(self, gate: str, what: str) -> None:
        """Something that may take a while begins; `what` is empty for the gate as a whole."""
        ...


class _Nobody:
    def begins(self, gate: str, what: str) -> None:
        del gate, what


NOBODY: Final[Watcher] = _Nobody()


@dataclass(frozen=True, slots=True)
class Tools:
    """What the gates work with besides the plane itself."""

    workspace: Workspace
    ledger: PackageLedger
    acceptance: AcceptanceRunner
    witness: LedgerWitness
    now: float
    plane_is_dev: bool
    watcher: Watcher = NOBODY


class Ground:
    """One plane, as one run of gates sees it. Reading raises what stands in the way."""

    def __init__(self, layout: PlaneLayout, tools: Tools) -> None:
        self.layout = layout
        self.tools = tools

    @cached_property
    def installed(self) -> InstalledSet:
        return read_installed(self.layout)

    @cached_property
    def entries(self) -> Sequence[StoredEntry]:
        return self.tools.ledger.read().entries

    @cached_property
    def record(self) -> Record:
        return replay(self.entries)

    @cached_property
    def vouched(self) -> Vouched:
        return read_vouched(self.entries)

    @cached_property
    def deviations(self) -> tuple[Failure, ...]:
        """Where the plane is not what that ledger says. Raises: as `entries`."""
        found = find_deviations(self.record, self.installed)
        if Attic(self.layout).has_transaction():
            why = "a change of packages is on its way, or was cut short"
            return (*found, Failure("objects/packages/transaction.json", why))
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that packages could have to do with."""
        return not self.installed.packages and not self.record.packages and not self.deviations

    @cached_property
    def registries(self) -> Registries:
        return read_registries(self.layout)

    @cached_property
    def keys(self) -> Keys:
        return read_keys(self.layout)

    @cached_property
    def approvals(self) -> Mapping[str, Approval]:
        return {approval.wo_id: approval for approval in read_approvals(self.layout)}

    @cached_property
    def recorded_config(self) -> Mapping[str, Json]:
        """The digests of configuration that governance holds, by path. Raises: HostError.

        From the lines: a posting file that lacks the newest would have earlier ones told.
        """
        path = self.ledger_path(LedgerName.GOVERNANCE)
        if not path.exists():
            return {}
        rows = query_lines(str(path), Filter(CONFIG_CHANGED), last=1).entries
        files: Json = rows[-1].entry.metadata.get("files") if rows else None
        return cast("dict[str, Json]", files) if isinstance(files, dict) else {}

    def without_root(self, text: str) -> str:
        """What somebody said, without the place of the plane on this host."""
        return _relative(text, self.layout.root)

    def forget_config(self) -> None:
        """Governance was told of configuration: read again what it holds."""
        self.__dict__.pop("recorded_config", None)

    def ledger_path(self, name: LedgerName) -> Path:
        return self.layout.ledger_paths()[name]


def failure_of(error: PaddockError, root: Path) -> Failure:
    """What stood in the way of a gate, without the host's own paths.

    Threat: what a gate says is shown to models, and a message may quote a whole path.
    """
    file, _, line = _relative(error.where, root).partition(_LINE)
    reason = _relative(error.message, root)
    return Failure(file, f"line {line}: {reason}" if line else reason)


def _relative(text: str, root: Path) -> str:
    return text.replace(f"{root}/", "").replace(str(root), ".")
