"""Running gates on a bare plane: for an operator, and for a model that asks by a tool.

What they said goes to governance, an entry each. Where governance itself is what is wrong,
the answer is given all the same; only a pass that cannot be recorded is none.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.assembly.auditing import PlaneWitness
from paddock.assembly.history import settle_sets
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.packages import is_development_plane, open_depot, package_ledger, require_bare
from paddock.assembly.project import Project
from paddock.errors import IntegrityError, LedgerBusyError, PaddockError
from paddock.gates.checks import CHECKS, CHECKS_FOR_MODELS, run_gates
from paddock.gates.ground import NOBODY, GatesGround, GateTools, Watcher
from paddock.gates.results import G4, GateResult, Status, gate_entry
from paddock.ledger.read import gone_error
from paddock.packages.transaction import AcceptanceRunner, Attic, NoAcceptance
from paddock.plane import records
from paddock.plane.layout import LedgerName
from paddock.storage.atomic import read_file
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry, digest_of
from paddock.workspace import Workspace

OPERATOR: Final = "operator"
"""Who asked, in a record, where it was no agent."""


class GateRun(Struct, frozen=True):
    results: tuple[GateResult, ...]
    unrecorded: PaddockError | None = None

    @property
    def has_failed(self) -> bool:
        return any(result.status is Status.FAIL for result in self.results)


def check_gates(project: Project, names: Sequence[str], watcher: Watcher = NOBODY) -> GateRun:
    """Run these gates for an operator; acceptance commands run in the sandbox, after the others.

    Raises: UsageError, ConfigError, HostError.
    """
    require_bare(project, "gates", "gate")
    with open_depot(project) as depot:
        ground = _ground(project, depot.workspace, depot.acceptance, watcher)
        with depot.attic.at_rest():
            _record_config(project, ground)
            looked = run_gates([name for name in names if name != G4], CHECKS, ground)
        ran = run_gates([name for name in names if name == G4], CHECKS, ground)
        return _recorded(project, _in_order(names, (*looked, *ran)), ground, OPERATOR)


def check_gates_for_model(project: Project, names: Sequence[str], agent: str) -> GateRun:
    """Run these gates for a model: no acceptance command runs.

    Raises: LedgerBusyError: packages are being changed right now; nothing was looked at; HostError:
    the plane cannot be opened, or what the gates said cannot be recorded; IntegrityError,
    LedgerBusyError, LedgerFullError: it cannot be recorded either.
    """
    settle_sets(project)
    with Workspace.open(str(project.layout.root)) as workspace:
        ground = _ground(project, workspace, NoAcceptance(), NOBODY)
        with Attic(project.layout).try_at_rest() as is_at_rest:
            if not is_at_rest:
                # Half of a change is no plane that a gate could say anything true of.
                raise LedgerBusyError(
                    "packages of this plane are being changed right now; no gate looked",
                    hint="ask again when that is over",
                )
            _record_config(project, ground)
            results = run_gates(names, CHECKS_FOR_MODELS, ground)
        # What G4 tells is on record already: it is how that run was found.
        return _recorded(project, results, ground, agent)


def _ground(
    project: Project, workspace: Workspace, acceptance: AcceptanceRunner, watcher: Watcher
) -> GatesGround:
    return GatesGround(
        project.layout,
        GateTools(
            workspace=workspace,
            ledger=package_ledger(project),
            acceptance=acceptance,
            witness=PlaneWitness(project),
            now=time.time(),
            plane_is_dev=is_development_plane(project),
            watcher=watcher,
        ),
    )


def _in_order(names: Sequence[str], results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    by_name = {result.gate: result for result in results}
    return tuple(by_name[name] for name in names)


def _recorded(
    project: Project, results: tuple[GateResult, ...], ground: GatesGround, by: str
) -> GateRun:
    """Raises: HostError, IntegrityError, LedgerBusyError, LedgerFullError: all passed in vain."""
    run = GateRun(results)
    kept = results if by == OPERATOR else [each for each in results if each.gate != G4]
    try:
        set_digest = _set_digest(ground)
        _record(project, *(gate_entry(result, set_digest, by) for result in kept))
    except PaddockError as error:
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


def _set_digest(ground: GatesGround) -> str | None:
    installed = ground.installed
    return None if installed.problems else installed.digest


def _record_config(project: Project, ground: GatesGround) -> None:
    config = project.admin
    if config is None:
        return
    try:
        before = ground.recorded_config
        files = {**before, **_package_config(ground)}
        if files != dict(before):
            _record(project, records.config_changed(before, files, config))
            ground.forget_config()
    except IntegrityError:
        return  # a damaged ledger: G6 says which, and G0B finds no digest there


def _package_config(ground: GatesGround) -> Mapping[str, Json]:
    """The digests of all configuration that packages brought, as it stands there."""
    found: dict[str, Json] = {}
    for package in ground.installed.packages.values():
        for asset in package.manifest.assets:
            if not asset.is_config:
                continue
            content = _content(ground, asset.path)
            if content is not None:
                found[asset.path] = digest_of(content)
    return found


def _content(ground: GatesGround, path: str) -> bytes | None:
    try:
        return read_file(ground.layout.root / path, limits.admin_config_bytes_max)
    except PaddockError:
        return None
