"""Create a bare plane from the bootstrap's packages, or repair an existing one."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.assembly.audit import ORDER, accept_rollback, find_rolled_back
from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.packages import is_development_plane, open_depot
from paddock.assembly.project import Project, find_project
from paddock.assembly.project_open import open_project, record_news
from paddock.errors import ConfigError, LedgerDamagedError, UsageError
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.read import stands
from paddock.ledger.signing import SigningKey
from paddock.packages.archive import Archive
from paddock.packages.bootstrap import NAME, Founding, Unpacked, found, load_packages
from paddock.packages.change import Depot
from paddock.packages.install import InstallReport, InstallWish, install
from paddock.packages.installed import read_installed, row_of
from paddock.packages.ledger import LEDGER, PackageLedger
from paddock.packages.manifest import INSTALLED, PLANE_MARKER, manifest_path
from paddock.packages.signing import make_operator_key
from paddock.packages.statements import approve, read_vouched, sign_installed_set
from paddock.plane.create import Blueprint, MadePlane, make_bare_plane
from paddock.plane.discover import is_bare_plane
from paddock.plane.environment import Environment, ToolProfile, real_path
from paddock.plane.json_files import parse_file, write_object
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.policy.settings import HistorySettings
from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.journal import Journal
from paddock.text.show import quote
from paddock.values.entries import PLANE_CREATED
from paddock.workspace import Workspace
from paddock.workspace.apply import recover


def init_bare_plane(
    directory: Path,
    environment: Environment,
    tool_profile: ToolProfile,
    unpacked: Unpacked | None = None,
) -> tuple[MadePlane, Project]:
    """Make `directory` a bare plane, from the `unpacked` packages or else from Paddock's.

    The operator's key, created on first use, signs each package; a development plane has none.
    """
    archives = load_packages() if unpacked is None else unpacked.archives
    beside: frozenset[str] = frozenset()
    if unpacked is not None and real_path(directory) == real_path(unpacked.directory):
        beside = unpacked.names | {NAME}
    blueprint = bare_plane_blueprint(tool_profile, archives, beside)
    # If a plane exists there, nothing is created, and no key either.
    asks = tool_profile == "production" and not is_bare_plane(directory)
    key = make_operator_key(environment) if asks else None
    build = partial(_install_founding, archives, key, environment)
    made = make_bare_plane(directory, blueprint, environment, build)
    root = made.layout.root
    project = find_project(root, environment, root)
    record_news(project)
    return made, project


_LEFTOVERS: Final = (
    "HOT/ledger/",
    "HO2/ledger/",
    "HO1/ledger/",
    f"{INSTALLED}/",
    "HOT/registries/approvals/",
    "HOT/registries/keys/",
    "objects/",
)
"""Paths that differ between foundings, so a killed one may have left them; see `Blueprint`."""


def bare_plane_blueprint(
    tool_profile: ToolProfile,
    archives: tuple[Archive, ...] | None = None,
    beside: frozenset[str] = frozenset(),
) -> Blueprint:
    packages = load_packages() if archives is None else archives
    files = {file.path: file.content for each in packages for file in each.files}
    config = files.pop(PLANE_MARKER, None)
    if config is None:
        raise ConfigError(f"no package contains {PLANE_MARKER}, which every plane needs")
    for archive in packages:
        files[manifest_path(archive.manifest.package_id)] = archive.manifest.canonical
    return Blueprint(
        config=_with_profile(config, tool_profile), files=files, leftovers=_LEFTOVERS, beside=beside
    )


def _with_profile(content: bytes, tool_profile: ToolProfile) -> bytes:
    members = parse_file(content, PLANE_MARKER).members
    if members.get("tool_profile") == tool_profile:
        return content
    return write_object({**members, "tool_profile": tool_profile})


def _install_founding(
    archives: tuple[Archive, ...],
    key: SigningKey | None,
    environment: Environment,
    layout: PlaneLayout,
    blueprint: Blueprint,
) -> tuple[Path, ...]:
    """Install the packages where another plane may have been; see `Build`.

    Sequence: packages → rollback of the earlier plane's ledgers accepted → by the caller, the
    configuration, which makes it a plane. If it is killed before that, the next `init` continues,
    and a plane whose keys signed another history never exists.
    """
    del blueprint  # It was made from the packages.
    _require_no_plane(layout)
    with ExitStack() as held:
        store = str(layout.objects)
        history = History(store, bytes_max=HistorySettings().bytes_max)
        held.callback(history.close)
        journal = held.enter_context(Journal(f"{store}/journal", Disk()))
        workspace = held.enter_context(Workspace.open(str(layout.root)))
        recover(journal, Disk(), workspace.resolution)
        open_packages = PlaneLedger(layout, environment, LEDGER).open
        depot = Depot(
            layout=layout,
            workspace=workspace,
            objects=history.store,
            journal=journal,
            ledger=PackageLedger(layout.ledger_paths()[LEDGER], open_packages),
            clock=time.time,
        )
        made = found(depot, Founding(archives, key, frozenset({PLANE_MARKER})))
    _accept_missing_ledgers(layout, environment)
    return made


def _require_no_plane(layout: PlaneLayout) -> None:
    """Refuse a complete plane that lost its configuration.

    Threat: the default one grants what its operator had denied. (An operator who removes the whole
    directory gets a new plane, with a new governance ledger.) Raises: ConfigError, HostError.
    """
    governance = layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not stands(governance):
        return
    if query_lines(str(governance), Filter(PLANE_CREATED)).entries:
        raise ConfigError(
            f"the plane {quote(str(layout.root))} lost its {PLANE_MARKER}",
            where=str(governance),
            hint="restore that file from a backup, or name another directory; nothing was changed",
        )


def _accept_missing_ledgers(layout: PlaneLayout, environment: Environment) -> None:
    """Accept that an earlier plane's ledgers are missing here, recorded like any other rollback.

    If one is damaged nothing is accepted: it still fails its verification.
    """
    try:
        for gone in find_rolled_back(layout, environment, ORDER):
            accept_rollback(PlaneLedger(layout, environment, gone.name), gone, "init")
    except LedgerDamagedError:
        return


class Repaired(Struct, frozen=True):
    project: Project
    reports: tuple[InstallReport, ...]


def repair_bare_plane(
    directory: Path, environment: Environment, archives: tuple[Archive, ...], *, dev: bool
) -> Repaired:
    """Install these packages on the existing plane, also where their files differ.

    Each that changes anything is first approved with the operator's key.
    """
    project = open_project(directory, environment, directory)
    if is_development_plane(project) is not dev:
        made = "without" if dev else "with"
        raise UsageError(
            f"the plane {quote(str(project.layout.root))} was made {made} --dev",
            hint="that cannot be changed: create another plane instead",
        )
    with open_depot(project) as depot:
        was_signed = _is_signed(depot)
        reports = tuple(_repair(project, depot, archive, dev=dev) for archive in archives)
        # Threat: third-party packages without approval would be signed along with Paddock's.
        if was_signed and not _is_signed(depot):
            sign_installed_set(depot, make_operator_key(environment))
    return Repaired(project, reports)


def _is_signed(depot: Depot) -> bool:
    packages = read_installed(depot.layout).packages.values()
    rows = frozenset(row_of(each.manifest) for each in packages)
    vouched = read_vouched(depot.ledger.read().entries)
    return vouched.statements > 0 and rows == vouched.rows


def _repair(project: Project, depot: Depot, archive: Archive, *, dev: bool) -> InstallReport:
    dry_run = InstallWish(is_dry_run=True, dev=True, repairs=True)
    found = install(depot, archive, dry_run)
    if found.status == "unchanged":
        return found
    if not dev:
        key = make_operator_key(project.environment)
        approve(depot, archive.manifest, key, (), limits.plane_approval_expires_s)
    return install(depot, archive, InstallWish(plane_is_dev=dev, repairs=True))
