"""Open or create a project, and record in governance what changed since it was last opened."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project, find_project, read_project, settle_left_packages
from paddock.ledger.query import Filter, query
from paddock.ledger.read import stands
from paddock.plane import records
from paddock.plane.create import MAIN_AGENT, POLICY_TEMPLATE, InitResult, open_plane
from paddock.plane.create import init_project as make_project
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName
from paddock.plane.trust import TrustRecord, find_trust_record
from paddock.storage.locks import locked
from paddock.text.show import quote
from paddock.values import entries as events
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind

_LOADED: Final = frozenset(
    {"HOT/config/admin_config.json", "HOT/config/policy.toml", "HOT/config/policy.json"}
)
"""The configuration that is read when a bare plane is opened."""


def open_project(start: Path, environment: Environment, override: Path | None = None) -> Project:
    return _opened(find_project(start, environment, override))


def open_root(root: ProjectRoot, environment: Environment) -> Project:
    """Open exactly this root, like `open_project`: no search upwards, no `PADDOCK_PLANE`."""
    return _opened(read_project(root, environment))


def open_given(path: str | os.PathLike[str] | None, environment: Environment) -> Project:
    """Open a project for a program that imports Paddock: at `path`, if it gives one."""
    return open_project(*start_of(path, environment))


def start_of(
    path: str | os.PathLike[str] | None, environment: Environment
) -> tuple[Path, Environment]:
    """Return the directory where the search for a program's project begins.

    Threat: `PADDOCK_PLANE` replaces only the current directory, never a directory that the
    program names.
    """
    if path is None:
        return Path().absolute(), environment
    return Path(path).absolute(), replace(environment, plane=None)


def record_given(project: Project, policy_digest: str) -> None:
    """Record the policy of a program if it differs from the one recorded last."""
    if project.given is None:
        return
    known = _newest(project, events.POLICY_GIVEN) or {}
    if known.get("policy_digest") != policy_digest:
        record_in_governance(project, records.policy_given(project.given, policy_digest))


def _opened(found: Project) -> Project:
    open_plane(found.root, found.environment)
    settle_left_packages(found)
    if not record_news(found):
        return replace(found, notices=_gate_notices(found))
    # Only after new entries were recorded, and not at every opening.
    return replace(found, notices=policy_notices(found))


def init_project(
    directory: Path, environment: Environment, policy: bytes = POLICY_TEMPLATE
) -> InitResult:
    def record(root: ProjectRoot, trust: TrustRecord) -> None:
        project = read_project(root, environment)
        record_in_governance(project, *_plane_news(project), records.policy_trusted(trust, "init"))

    result = make_project(directory, environment, datetime.now(UTC), record, policy)
    record_news(read_project(result.root, environment))
    return result


def record_news(project: Project) -> bool:
    """Record plane, policy, configuration and trust if governance lacks their current state.

    Return True if anything was. Of processes that open a project at once, one records it.
    """
    if not _news(project):
        return False
    with locked(project.layout.hot):
        record_in_governance(project, *_news(project))
    return True


def policy_notices(project: Project) -> tuple[str, ...]:
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


def profile_notices(project: Project, name: str | None) -> tuple[str, ...]:
    """Return notices of profiles that a policy does not have, for an agent and its ancestors."""
    _, policy, chain = project.acting(name)
    said: list[str] = []
    for each in chain:
        agent, profile = quote(each.name), quote(each.profile)
        is_here = policy.find_profile(each.profile) is not None
        given = policy.given or policy
        is_given = given.find_profile(each.profile) is not None
        if not is_here and not is_given:
            said.append(f"no policy has a profile {profile}, so 'locked' judges the agent {agent}")
        elif not is_here or not is_given:
            lacking = "given by the program" if is_here else _owners(project)
            said.append(
                f"the policy {lacking} has no profile {profile}, so its 'standard' also judges"
                f" the agent {agent}, and the stricter answer counts"
            )
    return tuple(said)


def _owners(project: Project) -> str:
    files = {"project": project.files.project, "user": project.files.user}
    owners = [owner for owner, file in files.items() if file is not None and file.trusted]
    return f"of the {' and the '.join(owners)}"


def _gate_notices(project: Project) -> tuple[str, ...]:
    gate = project.gate
    if gate.is_open or not gate.variable or gate.tool_profile != "development":
        return ()
    return (f"there are no development tools: {', '.join(gate.missing)}; paddock trust",)


def _news(project: Project) -> list[events.Entry]:
    known = _newest(project, events.POLICY_LOADED)
    entries = _plane_news(project) if known is None else []
    digest = project.policy.digest
    if known is None or known.get("policy_digest") != digest:
        entries.append(records.policy_loaded(project.files, digest))
    entries += _config_news(project)
    entries += _trust_news(project)
    return entries


def _plane_news(project: Project) -> list[events.Entry]:
    """Return entries for plane and first agent if they are missing, as after a killed `init`."""
    if _newest(project, events.PLANE_CREATED) is not None:
        return []
    entries = [records.plane_created(project.layout, project.root.path)]
    if project.layout.kind is PlaneKind.PROJECT:
        entries.append(records.agent_created(project.agents.read(MAIN_AGENT)))
    return entries


def _trust_news(project: Project) -> list[events.Entry]:
    """Return an entry for the trust in a project's policy if it is in force but not recorded."""
    own = project.files.project
    if own is None or not own.trusted or project.layout.kind is PlaneKind.BARE:
        return []
    known = _newest(project, events.POLICY_TRUSTED) or {}
    if (known.get("path"), known.get("digest")) == (str(own.path), own.digest):
        return []
    record = find_trust_record(own.path, own.content, project.environment)
    return [] if record is None else [records.policy_trusted(record)]


def _config_news(project: Project) -> list[events.Entry]:
    config = project.admin
    if config is None:
        return []
    from paddock.plane.admin import contract_digests, is_contract  # noqa: PLC0415 - bare planes only

    root = project.layout.root
    files: dict[str, Json] = {config.file.relative_to(root).as_posix(): config.digest}
    own = project.files.project
    if own is not None:
        files[own.path.relative_to(root).as_posix()] = own.digest
    recorded = (_newest(project, events.CONFIG_CHANGED) or {}).get("files")
    before = cast("dict[str, Json]", recorded) if isinstance(recorded, dict) else {}
    read = _LOADED
    if project.root.accepted:
        files |= contract_digests(project.layout.ho1 / "contracts", root)
        read = _LOADED | {name for name in before if is_contract(name)}
    # Keep the rest as recorded: a gate records other packages' configuration when it runs, and
    # the prompt contracts of a plane that is not accepted are not read.
    files = {**{name: each for name, each in before.items() if name not in read}, **files}
    return [] if before == files else [records.config_changed(before, files, config)]


def _newest(project: Project, event: str) -> Mapping[str, Json] | None:
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    rows = query(str(path), Filter(event), last=1).entries if stands(path) else ()
    return rows[-1].entry.metadata if rows else None
