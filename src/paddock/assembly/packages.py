"""The packages of a bare plane, opened to be changed, and told to whoever asks.

Gates look at them again: for an operator, and for a model that asks by a tool.
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
from paddock.assembly.auditing import PlaneWitness
from paddock.assembly.history import open_history, open_journal, settle_sets
from paddock.assembly.ledgers import open_ledger, record_in_governance
from paddock.assembly.project import (
    ADMIN_AGENT,
    ADMIN_PROFILE,
    Project,
    policy_of,
    require_registered,
)
from paddock.assembly.shells import LazyShell, ShellGround
from paddock.gates.checks import CHECKS, CHECKS_FOR_MODELS, run_gates
from paddock.gates.ground import NOBODY, GatesGround, Watcher
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
from paddock.sandbox.values import UNWATCHED, Ending, LaidFile, ShellLine, ShellOutcome, Stream
from paddock.storage.atomic import make_directories, read_file
from paddock.storage.history import History
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import Agent, PlaneKind
from paddock.values.entries import PACKAGE_INSTALLED, Entry, digest_of
from paddock.workspace import Workspace

ACCEPTANCE_AGENT: Final = "acceptance"
"""Whose commands these are: one that may read what the plane's policy shows to anybody."""


class ShellAcceptance:
    """See `AcceptanceRunner`. Nothing of the sandbox is loaded before a command comes."""

    def __init__(self, project: Project, workspace: Workspace, history: History) -> None:
        chain = (Agent(ACCEPTANCE_AGENT, ADMIN_PROFILE),)
        self._shell = LazyShell(
            ShellGround(project, ADMIN_AGENT, chain, project.policy, workspace, history)
        )

    def run(
        self, acceptance: Acceptance, changes: Sequence[change.PathChange]
    ) -> change.AcceptanceResult:
        put = ((each.path, each.after) for each in changes)
        laid = {path: after and LaidFile(after.content, after.mode) for path, after in put}
        line = ShellLine(
            acceptance.command,
            ".",
            acceptance.timeout_s,
            is_dry_run=True,
            laid=laid,
        )
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
    """The plane, opened for a change of its packages, or for a look at what stands there.

    What a killed step left is removed first. Raises: UsageError, ConfigError, HostError.
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
            load=partial(_load, project),
        )


def settle_packages(project: Project) -> str | None:
    if not project.root.accepted:
        return None  # nobody has said that this plane's records are to be acted on
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
    """Whether the plane was made with `--dev`: how its first package was installed, on record.

    Threat: whoever may edit the configuration would switch off approvals with it, and before
    it is first put on record too, where `init` was killed. The packages ledger tells of the
    founding before there is a configuration, and is chained; so that no later entry passes
    for the first, no index is asked.
    """
    path = project.layout.ledger_paths()[LEDGER]
    if not path.exists():
        return False
    try:
        rows = query_lines(str(path), Filter(PACKAGE_INSTALLED))
    except errors.HostError:
        return False  # Nobody can tell: then approvals are asked for, and G6 says why.
    first = None if rows.bad or not rows.entries else rows.entries[0].entry
    return first is not None and first.metadata.get("dev") is True


def _verify_ledger(project: Project, path: Path) -> Verification | None:
    """With its key's last checkpoint, and those that governance holds."""
    witness = PlaneWitness(project)
    if path.exists():
        return witness.verify(LEDGER, path)
    if witness.expects(LEDGER):
        raise ledger_gone(path, LedgerName.GOVERNANCE)
    return verify_alone(path)


def _load(project: Project, path: str, content: bytes) -> None:
    file = project.layout.root / path
    if file == project.layout.admin_config:
        require_registered(parse_admin_config(content, file))
        return
    policy_of(replace(project.files, project=PolicyFile(file, content, trusted=True)))


def require_bare(project: Project, what: str = "packages", command: str = "package") -> None:
    if project.layout.kind is not PlaneKind.BARE:
        raise errors.UsageError(
            f"{quote(str(project.root.path))} is no bare plane, and {what} belong to one",
            hint=f"paddock --plane DIR {command} …, or: paddock init --bare DIR",
        )


def _require_own_plane(project: Project) -> None:
    require_bare(project)
    # Threat: keys and approvals that came with a plane speak for whoever packed it.
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


# What they said goes to governance, an entry each. Where governance itself is what is wrong,
# the answer is given all the same; only a pass that cannot be recorded is none.

OPERATOR: Final = "operator"
"""Who asked, in a record, where it was no agent."""


class GateRun(Struct, frozen=True):
    results: tuple[GateResult, ...]
    unrecorded: errors.PaddockError | None = None

    @property
    def has_failed(self) -> bool:
        return any(result.status is Status.FAIL for result in self.results)


def check_gates(project: Project, names: Sequence[str], watcher: Watcher = NOBODY) -> GateRun:
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
        ground = _ground(project, workspace, change.NoAcceptance(), NOBODY)
        with change.PendingChange(project.layout).try_at_rest() as is_at_rest:
            if not is_at_rest:
                # Half of a change is no plane that a gate could say anything true of.
                raise errors.LedgerBusyError(
                    "packages of this plane are being changed right now; no gate looked",
                    hint="ask again when that is over",
                )
            _record_config(project, ground)
            results = run_gates(names, CHECKS_FOR_MODELS, ground)
        # What G4 tells is on record already: it is how that run was found.
        return _recorded(project, results, ground, agent)


def _ground(
    project: Project, workspace: Workspace, acceptance: change.AcceptanceRunner, watcher: Watcher
) -> GatesGround:
    return GatesGround(
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
    project: Project, results: tuple[GateResult, ...], ground: GatesGround, by: str
) -> GateRun:
    """Raises: HostError, IntegrityError, LedgerBusyError, LedgerFullError: all passed in vain."""
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
    except errors.IntegrityError:
        return  # a damaged ledger: G6 says which, and G0B finds no digest there


def _package_config(ground: GatesGround) -> Mapping[str, Json]:
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
