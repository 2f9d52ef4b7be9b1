"""Opening a project, and making one; what is new is put on record in governance."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from paddock.assembly.lazy_packages import settle_left_packages
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project import Project, find_project
from paddock.ledger.format_events import CONFIG_CHANGED, POLICY_LOADED
from paddock.ledger.query import Filter, query
from paddock.plane import records
from paddock.plane.contracts import contract_digests, is_contract
from paddock.plane.creation import MAIN_AGENT, open_plane
from paddock.plane.environment import Environment
from paddock.plane.init import InitResult
from paddock.plane.init import init_project as make_project
from paddock.values.calls import Json
from paddock.values.entries import Entry

_LOADED: Final = frozenset(
    {"HOT/config/admin_config.json", "HOT/config/policy.toml", "HOT/config/policy.json"}
)
"""The configuration that is read when a bare plane is opened."""


def open_project(start: Path, environment: Environment, override: Path | None = None) -> Project:
    """As `find_project`, with the plane made on first use.

    What a killed install or uninstall left half done is settled first.

    Raises: also HostError where the plane or a ledger cannot be made.
    """
    found = find_project(start, environment, override)
    open_plane(found.root, environment)
    settle_left_packages(found)
    entries = _news(found)
    if not entries:
        return found
    _record(found, entries)
    # A policy that has just come into force: this is the one time to say it.
    return replace(found, notices=_notices(found))


def init_project(directory: Path, environment: Environment) -> InitResult:
    """Make `directory` a governed project; see `paddock.plane.init`."""
    result = make_project(directory, environment, datetime.now(UTC))
    project = find_project(result.root.path, environment, None)
    entries = _news(project)
    if result.trust is not None:
        entries.append(records.policy_trusted(result.trust, "init"))
    _record(project, entries)
    return result


def record_news(project: Project) -> None:
    """Put on record what governance does not know yet. Raises: as `open_ledger`."""
    _record(project, _news(project))


def _record(project: Project, entries: list[Entry]) -> None:
    if entries:
        with closing(open_ledger(project, "governance")) as ledger:
            ledger.append(entries)


def _notices(project: Project) -> tuple[str, ...]:
    said: list[str] = []
    config, own = project.admin, project.files.project
    if config is not None and not project.root.accepted:
        said.append(
            f"{config.file.name} counts only where it narrows: this plane was neither named"
            " nor registered; paddock trust"
        )
    if own is not None and not own.trusted:
        said.append(
            f"{own.path.name} is not trusted ({own.reason}); it can only tighten: paddock trust"
        )
        said += project.policy.ignored
    return tuple(said)


def _news(project: Project) -> list[Entry]:
    """What governance does not know yet: a new plane, a policy that has come into force."""
    path = project.layout.ledger_paths()["governance"]
    known = query(str(path), Filter(POLICY_LOADED), last=1).entries if path.exists() else ()
    entries: list[Entry] = []
    # Not where this call made the plane: whoever made it may have been killed right after.
    # These entries and the first policy's are written together.
    if not known:
        entries.append(records.plane_created(project.layout, project.root.path))
        if project.layout.kind == "project":
            entries.append(records.agent_created(project.agents.read(MAIN_AGENT)))
    digest = project.policy.digest
    if not known or known[-1].entry.metadata.get("policy_digest") != digest:
        entries.append(records.policy_loaded(project.files, digest))
    entries += _config_news(project, path)
    return entries


def _config_news(project: Project, governance: Path) -> list[Entry]:
    """A bare plane's configuration, where it is another than the one recorded last."""
    config = project.admin
    if config is None:
        return []
    root = project.layout.root
    files: dict[str, Json] = {config.file.relative_to(root).as_posix(): config.digest}
    own = project.files.project
    if own is not None:
        files[own.path.relative_to(root).as_posix()] = own.digest
    before = _recorded_files(governance)
    read = _LOADED
    if project.root.accepted:
        files |= contract_digests(project.layout.ho1 / "contracts", root)
        read = _LOADED | {name for name in before if is_contract(name)}
    # What packages brought besides is told when a gate first looks at it; and the prompt
    # contracts of a plane that nobody has accepted are not read.
    files = {**{name: each for name, each in before.items() if name not in read}, **files}
    return [] if before == files else [records.config_changed(before, files, config)]


def _recorded_files(governance: Path) -> dict[str, Json]:
    """The digests of the newest CONFIG_CHANGED; none where there is no such entry."""
    if not governance.exists():
        return {}
    rows = query(str(governance), Filter(CONFIG_CHANGED), last=1).entries
    files: Json = rows[-1].entry.metadata.get("files") if rows else None
    return cast("dict[str, Json]", files) if isinstance(files, dict) else {}
