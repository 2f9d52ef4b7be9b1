"""Looking at what a project or bare plane brings, and trusting exactly what was shown."""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.assembly.agents import AgentPlan, apply_agents, plan_agents
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.opening import open_root
from paddock.assembly.project import policy_of, read_agents
from paddock.errors import ConfigError
from paddock.plane import records
from paddock.plane.admin import AdminConfig, read_admin_config
from paddock.plane.discover import (
    ProjectRoot,
    find_root,
    is_bare_plane,
    is_registered_bare_plane,
    register_bare_plane,
)
from paddock.plane.environment import Environment, real_directory
from paddock.plane.grants import summarise
from paddock.plane.layout import PlaneLayout
from paddock.plane.trust import (
    PolicyFile,
    TrustRecord,
    plan_trust,
    read_policy_files,
    summarise_admin,
    write_trust,
)
from paddock.values.decisions import PlaneKind


class TrustReview(Struct, frozen=True):
    root: ProjectRoot
    file: PolicyFile | None
    """The policy; only a bare plane may have none."""
    summary: str
    is_trusted: bool
    admin: AdminConfig | None = None
    agents: AgentPlan = field(default_factory=AgentPlan)
    """Of a project: what its policy file declares, and is not so yet."""


def review_trust(
    start: Path, environment: Environment, override: Path | None = None
) -> TrustReview:
    directory = real_directory(override or environment.plane or start)
    if is_bare_plane(directory):
        return _review_plane(directory, environment)
    root = find_root(start, environment, override)
    if root.kind is PlaneKind.BARE:
        return _review_plane(root.path, environment)
    files = read_policy_files(root, environment)
    own = files.project
    if own is None:
        raise ConfigError(
            "there is no policy file to trust",
            where=str(root.path),
            hint="without one the defaults hold; paddock init writes one",
        )
    policy = policy_of(files).as_if_trusted()
    plan = plan_agents(policy, read_agents(root, environment), root.path, own.path.name)
    summary = "\n".join(filter(None, (summarise(own, files.user), str(plan))))
    return TrustReview(root, own, summary, own.trusted, agents=plan)


def _review_plane(path: Path, environment: Environment) -> TrustReview:
    from paddock.assembly.bootstrap_sources import require_registered  # noqa: PLC0415 - loads every tool

    root = ProjectRoot(path, PlaneKind.BARE, accepted=is_registered_bare_plane(path, environment))
    config = read_admin_config(PlaneLayout(path, PlaneKind.BARE))
    require_registered(config)
    files = read_policy_files(root, environment)
    policy_of(files)
    shown = [] if files.project is None else [summarise(files.project, files.user)]
    summary = "\n".join([*shown, summarise_admin(config)])
    return TrustReview(root, files.project, summary, root.accepted, config)


def trust_policy(review: TrustReview, environment: Environment, *, by: str) -> TrustRecord:
    """Trust exactly what was reviewed, and record who said so; then its agents are as it says.

    Of a bare plane it is the place that is trusted: from now on it counts whole without being
    named. Sequence: on record → trusted. Where the entry cannot be written nothing is trusted.
    """
    record = _plan(review, datetime.now(UTC))
    project = open_root(review.root, environment)
    record_in_governance(project, records.policy_trusted(record, by))
    if review.admin is not None:
        register_bare_plane(review.root.path, environment)
    else:
        write_trust(record, environment)
    # What came into force by that is put on record now, and not at the next call.
    project = open_root(replace(review.root, accepted=review.admin is not None), environment)
    apply_agents(project, review.agents)
    return record


def _plan(review: TrustReview, now: datetime) -> TrustRecord:
    file = review.file
    if review.admin is not None:
        return TrustRecord(review.admin.file, review.admin.digest, now.isoformat())
    if file is None:
        raise ConfigError("there is no policy file to trust", where=str(review.root.path))
    return plan_trust(file.path, file.content, now)
