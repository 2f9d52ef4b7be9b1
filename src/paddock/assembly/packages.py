"""Open the packages of a bare plane to change or list them, and run gates on the plane.

Gates run for an operator, and for a model that calls a tool.
"""

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.agent.contracts import parse_contract_file
from paddock.assembly.audit import PlaneWitness
from paddock.assembly.history import open_history, open_journal, settle_sets
from paddock.assembly.ledgers import open_ledger, record_in_governance
from paddock.assembly.project import (
    ADMIN_AGENT,
    ADMIN_PROFILE,
    Project,
    policy_of,
    require_registered,
)
from paddock.assembly.shells import LazyShell, ShellSetup
from paddock.gates.checks import CHECKS, CHECKS_FOR_MODELS, run_gates
from paddock.gates.evidence import GateEvidence, Watcher, unwatched
from paddock.gates.results import G4, GateResult, Status, gate_entry
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.read import gone_error
from paddock.ledger.verify import Verification
from paddock.packages import change
from paddock.packages.archive import Archive
from paddock.packages.install import PlanePackages
from paddock.packages.installed import FRAMEWORKS, SPECS, read_installed, read_registries
from paddock.packages.ledger import LEDGER, PackageLedger, ledger_gone, verify_alone
from paddock.packages.manifest import Acceptance
from paddock.plane import records
from paddock.plane.admin import is_contract, parse_admin_config
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFile
from paddock.sandbox.values import UNWATCHED, Ending, ShellLine, ShellOutcome, ShownFile, Stream
from paddock.storage.atomic import make_directories, read_file
from paddock.storage.history import History
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import Agent, PlaneKind
from paddock.values.entries import PACKAGE_INSTALLED, Entry, digest_of
from paddock.workspace import Workspace

ACCEPTANCE_AGENT: Final = "acceptance"
"""The agent of acceptance commands: it has the admin's profile, without its permissions."""


class ShellAcceptance:
    """See `AcceptanceRunner`. The sandbox is loaded with the first command."""

    def __init__(self, project: Project, workspace: Workspace, history: History) -> None:
        chain = (Agent(ACCEPTANCE_AGENT, ADMIN_PROFILE),)
        self._shell = LazyShell(
            ShellSetup(project, ADMIN_AGENT, chain, project.policy, workspace, history)
        )

    def run(
        self, acceptance: Acceptance, changes: Sequence[change.PathChange]
    ) -> change.AcceptanceResult:
        put, now = ((each.path, each.after) for each in changes), time.time_ns()
        laid = {
            path: after and ShownFile(path, after.mode, after.content, now, is_faithful=True)
            for path, after in put
        }
        line = ShellLine(acceptance.command, ".", acceptance.timeout_s, is_dry_run=True, laid=laid)
        shell = self._shell.open()
        outcome = shell.run(shell.prepare(line), UNWATCHED)
        return change.AcceptanceResult(
            command=acceptance.command,
            passed=outcome.ending is Ending.EXITED and outcome.exit_code == 0,
            exit_code=outcome.exit_code,
            output=_output_of(outcome),
            duration_s=outcome.duration_s,
        )

    def close(self) -> None:
        self._shell.close()


def _output_of(outcome: ShellOutcome) -> str:
    streams = (outcome.stderr, outcome.stdout)
    said = next((end for stream in streams if (end := _end_of(stream))), "")
    if outcome.ending is Ending.EXITED:
        return said
    return f"{outcome.ending.value}: {said}" if said else outcome.ending.value


def _end_of(stream: Stream) -> str:
    said = stream.text.strip()
    missing = len(said) - limits.acceptance_output_chars_max
    if missing <= 0:
        return said
    least = "at least " if stream.kept is not None else ""
    return f"[{least}{missing} characters before this are not shown] {said[missing:]}"


@contextmanager
def open_depot(project: Project) -> Generator[change.Depot]:
    """Open the plane to change or read its packages.

    Sets of changes that a killed process left are completed or undone first; an interrupted
    change of packages is for `settle_packages`. Raises: UsageError, ConfigError, HostError.
    """
    _require_own_plane(project)
    settle_sets(project)
    with ExitStack() as held:
        history = open_history(project)
        held.callback(history.close)
        make_directories(project.layout.objects)
        workspace = held.enter_context(Workspace.open(str(project.layout.root)))
        runner = ShellAcceptance(project, workspace, history)
        held.callback(runner.close)
        yield change.Depot(
            layout=project.layout,
            workspace=workspace,
            objects=history.store,
            journal=held.enter_context(open_journal(project)),
            ledger=replace(package_ledger(project), verify=partial(_verify_ledger, project)),
            clock=time.time,
            acceptance=runner,
            load=partial(_require_loadable, project),
        )


def settle_packages(project: Project) -> str | None:
    if not project.root.accepted:
        return None  # no operator has accepted this plane's records
    with open_depot(project) as depot:
        return change.recover_packages(depot)


def plane_packages(project: Project) -> PlanePackages:
    require_bare(project)
    return PlanePackages(
        project.layout,
        package_ledger(project),
        partial(Workspace.open, os.fspath(project.layout.root)),
    )


def package_ledger(project: Project) -> PackageLedger:
    return PackageLedger(
        project.layout.ledger_paths()[LEDGER], partial(open_ledger, project, LEDGER)
    )


def is_development_plane(project: Project) -> bool:
    """Return True if the plane was made with `--dev`, by the record of its first package.

    Threat: a user who may edit the configuration could switch approvals off with it, even before
    it is first recorded, if `init` was killed. The packages ledger records the founding earlier.
    Its lines are read, not the index, so that no later entry passes for the first.
    """
    path = project.layout.ledger_paths()[LEDGER]
    if not path.exists():
        return False
    try:
        rows = query_lines(str(path), Filter(PACKAGE_INSTALLED))
    except errors.HostError:
        return False  # Unknown: then approvals are asked for, and the gate G6 reports why.
    first = None if rows.bad or not rows.entries else rows.entries[0].entry
    return first is not None and first.metadata.get("dev") is True


def _verify_ledger(project: Project, path: Path) -> Verification | None:
    """Verify the packages ledger against its key's last checkpoint and those in governance."""
    witness = PlaneWitness(project)
    if path.exists():
        return witness.verify(LEDGER, path)
    if witness.expects(LEDGER):
        raise ledger_gone(path, LedgerName.GOVERNANCE)
    return verify_alone(path)


def _require_loadable(project: Project, path: str, content: bytes) -> None:
    file = project.layout.root / path
    if file == project.layout.admin_config:
        require_registered(parse_admin_config(content, file))
        return
    policy_of(replace(project.files, project=PolicyFile(file, content, trusted=True)))


def require_bare(project: Project, what: str = "packages", command: str = "package") -> None:
    if project.layout.kind is not PlaneKind.BARE:
        raise errors.UsageError(
            f"{quote(str(project.root.path))} is not a bare plane, and {what} belong to one",
            hint=f"paddock --plane DIR {command} …, or: paddock init --bare DIR",
        )


def _require_own_plane(project: Project) -> None:
    require_bare(project)
    # Threat: keys and approvals that came with a plane speak for the party that packed it.
    if not project.root.accepted:
        raise errors.ConfigError(
            f"the plane {quote(str(project.layout.root))} was neither named nor registered",
            where=str(project.layout.root),
            hint="paddock trust DIR",
        )


_CONTRACTS: Final = "HO1/contracts"


def archive_notes(project: Project, archive: Archive) -> tuple[str, ...]:
    return (*_registry_notes(project, archive), *_contract_notes(archive))


def _registry_notes(project: Project, archive: Archive) -> Iterator[str]:
    manifest, registries = archive.manifest, read_registries(project.layout)
    old = read_installed(project.layout).packages.get(manifest.package_id)
    for kind, folder, name, known in (
        ("spec", SPECS, manifest.spec_id, registries.specs),
        ("framework", FRAMEWORKS, manifest.framework_id, registries.frameworks),
    ):
        row = f"{folder}/{name}.json"
        goes = old is not None and row in old.manifest.by_path
        if row not in manifest.by_path and (goes or name not in known):
            yield f"its {kind} {quote(name)} is in no registry: G1 fails until a package brings it"
    spec, own = registries.specs.get(manifest.spec_id), manifest.framework_id
    is_brought = f"{SPECS}/{manifest.spec_id}.json" in manifest.by_path
    if spec is not None and not is_brought and spec.framework_id != own:
        named, other = quote(manifest.spec_id), quote(spec.framework_id)
        yield f"its spec {named} names the framework {other}, not {quote(own)}: G1 fails"


def _contract_notes(archive: Archive) -> Iterator[str]:
    for packed in archive.files:
        file = PurePath(packed.path)
        if str(file.parent) != _CONTRACTS or not is_contract(packed.path):
            continue
        try:
            parse_contract_file(packed.content, file)
        except errors.ConfigError as error:
            yield (
                f"the prompt contract {packed.path} does not load, and no session opens with it:"
                f" {error.message}"
            )


# Each gate's result is an entry in governance. A failure that cannot be recorded is still
# returned, as governance itself may be damaged; a pass that cannot be recorded does not count.

OPERATOR: Final = "operator"
"""The recorded requester of gates, if not an agent."""


class GateRun(Struct, frozen=True):
    results: tuple[GateResult, ...]
    unrecorded: errors.PaddockError | None = None

    @property
    def has_failed(self) -> bool:
        return any(result.status is Status.FAIL for result in self.results)


def check_gates(project: Project, names: Sequence[str], watcher: Watcher = unwatched) -> GateRun:
    """Run these gates for an operator; acceptance commands run in the sandbox, after the others."""
    require_bare(project, "gates", "gate")
    with open_depot(project) as depot:
        ground = _ground(project, depot.workspace, depot.acceptance, watcher)
        with depot.pending.at_rest():
            _record_config(project, ground)
            looked = run_gates([name for name in names if name != G4], CHECKS, ground)
        ran = run_gates([name for name in names if name == G4], CHECKS, ground)
        by_name = {result.gate: result for result in (*looked, *ran)}
        return _recorded(project, tuple(by_name[name] for name in names), ground, OPERATOR)


def check_gates_for_model(project: Project, names: Sequence[str], agent: str) -> GateRun:
    """Run these gates for a model: no acceptance command runs."""
    settle_sets(project)
    with Workspace.open(str(project.layout.root)) as workspace:
        ground = _ground(project, workspace, change.NoAcceptance(), unwatched)
        with change.PendingChange(project.layout).try_at_rest() as is_at_rest:
            if not is_at_rest:
                # A result about an incomplete change would be wrong.
                raise errors.LedgerBusyError(
                    "packages of this plane are being changed right now; no gate ran",
                    hint="try again when that is done",
                )
            _record_config(project, ground)
            results = run_gates(names, CHECKS_FOR_MODELS, ground)
        # `_recorded` leaves the gate G4 out for a model: it only repeats a recorded run.
        return _recorded(project, results, ground, agent)


def _ground(
    project: Project, workspace: Workspace, acceptance: change.AcceptanceRunner, watcher: Watcher
) -> GateEvidence:
    return GateEvidence(
        layout=project.layout,
        workspace=workspace,
        ledger=package_ledger(project),
        acceptance=acceptance,
        witness=PlaneWitness(project),
        now=time.time(),
        plane_is_dev=is_development_plane(project),
        watcher=watcher,
    )


def _recorded(
    project: Project, results: tuple[GateResult, ...], ground: GateEvidence, by: str
) -> GateRun:
    """Raises: HostError, IntegrityError, LedgerBusyError, LedgerFullError if a pass is lost."""
    run = GateRun(results)
    kept = results if by == OPERATOR else [each for each in results if each.gate != G4]
    try:
        installed = ground.installed
        set_digest = None if installed.problems else installed.digest
        _record(project, *(gate_entry(result, set_digest, by) for result in kept))
    except errors.PaddockError as error:
        if not run.has_failed:
            raise
        return GateRun(results, error)
    return run


def _record(project: Project, *entries: Entry) -> None:
    """Record these in governance; never in a new ledger. Raises: LedgerDamagedError."""
    if is_governance_gone(project):
        name = LedgerName.GOVERNANCE
        raise gone_error(project.layout.ledger_paths()[name], name)
    record_in_governance(project, *entries)


def is_governance_gone(project: Project) -> bool:
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    return project.layout.kind is PlaneKind.BARE and not path.exists()


def _record_config(project: Project, ground: GateEvidence) -> None:
    config = project.admin
    if config is None:
        return
    try:
        before = ground.recorded_config
        files = {**before, **_package_config(ground)}
        if files != dict(before):
            _record(project, records.config_changed(before, files, config))
            ground.forget_config()
    except errors.IntegrityError:
        return  # a damaged ledger: the gate G6 says which, and G0B finds no digest there


def _package_config(ground: GateEvidence) -> Mapping[str, Json]:
    found: dict[str, Json] = {}
    for package in ground.installed.packages.values():
        for asset in package.manifest.assets:
            if not asset.is_config:
                continue
            with suppress(errors.PaddockError):
                path = ground.layout.root / asset.path
                content = read_file(path, limits.admin_config_bytes_max)
                if content is not None:
                    found[asset.path] = digest_of(content)
    return found
