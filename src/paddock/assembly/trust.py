"""Looking at what a project or bare plane brings, and trusting exactly what was shown.

A policy can be tried first: a file in place of the one in force, or beside another.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.agents import AgentPlan, apply_agents, plan_agents
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.opening import open_root
from paddock.assembly.project import Project, declared_for, policy_of, read_agents
from paddock.errors import ConfigError, UsageError
from paddock.plane import records
from paddock.plane.admin import AdminConfig, read_admin_config
from paddock.plane.agents import AgentStore
from paddock.plane.discover import (
    ProjectRoot,
    find_root,
    is_bare_plane,
    is_registered_bare_plane,
    plane_for,
    register_bare_plane,
)
from paddock.plane.environment import Environment, real_directory
from paddock.plane.grants import summarise
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.trust import (
    PolicyFile,
    PolicyFiles,
    TrustRecord,
    plan_trust,
    read_policy_files,
    summarise_admin,
    write_trust,
)
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.places import BUILT_IN
from paddock.policy.questions.record import PastDecision, RecordedDoor
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
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
    """Return what the project at `start`, or `override`, grants or wants. Raises: ConfigError."""
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


# Nothing is put in force, and nothing is recorded.

_Place = tuple[PlaneKind, tuple[str, ...]]
"""What a workspace is, and the planes below it: by that one file makes several policies."""


class Candidate(Struct, frozen=True):
    name: str
    content: bytes
    files: PolicyFiles

    def policy(self, kind: PlaneKind, planes_below: tuple[str, ...]) -> Policy:
        """The policy that it makes. Raises: ConfigError."""
        user = self.files.user
        below = None if user is None else PolicySource(user.path.name, user.content)
        return load_policy(PolicySource(self.name, self.content), below, kind, planes_below)


class PlanePolicies(Struct, frozen=True):
    project: Project
    candidate: Candidate | None = None
    _made: dict[_Place, Policy] = field(default_factory=dict[_Place, Policy])
    _met: dict[str, Policy | None] = field(default_factory=dict[str, Policy | None])
    _declared: dict[str, bool] = field(default_factory=dict[str, bool])

    def policy_for(self, agent: str) -> Policy | None:
        """The policy on the agent's workspace; None for nobody known. Raises: ConfigError."""
        if agent not in self._met:
            self._met[agent] = self._find(agent)
        return self._met[agent]

    def is_whole(self, past: PastDecision) -> bool:
        """Whether a client's kind of agent is on record with the default agent, its parent.

        Of older entries, what would be decided now cannot be told.
        """
        if past.door is not RecordedDoor.HOOK:
            return True
        first, *ancestors = (agent.name for agent in past.chain)
        if self.project.default_agent in ancestors:
            return True
        if first not in self._declared:
            self._declared[first] = declared_for(self.project.agents, first) == first
        return self._declared[first]

    def _find(self, agent: str) -> Policy | None:
        project = self.project
        if project.layout.kind is PlaneKind.PROJECT:
            return self._in_place_of(project.policy)
        try:
            own = project.policy_for(project.agents.read(agent))
        except UsageError:
            return None
        return self._in_place_of(own)

    def _in_place_of(self, in_force: Policy) -> Policy:
        if self.candidate is None:
            return in_force
        place = (in_force.plane_kind, in_force.planes_below)
        if place not in self._made:
            self._made[place] = self.candidate.policy(*place)
        return self._made[place]


def read_candidate(path: Path, name: str, files: PolicyFiles) -> Candidate:
    """Read the policy file at `path`, shown as `name`. Raises: UsageError, ConfigError."""
    content = read_file_through_links(path, limits.policy_bytes_max)
    if content is None:
        raise UsageError(f"there is no policy file {quote(name)}", where=str(path))
    return Candidate(name, content, files)


def own_candidate(files: PolicyFiles) -> Candidate:
    """The project's own policy file, as if it were trusted. Raises: UsageError: there is none."""
    own = files.project
    if own is None:
        raise UsageError(
            "the project has no policy file of its own",
            hint="name the file that is meant; or paddock init writes one",
        )
    return Candidate(own.path.name, own.content, files)


def built_in_candidate(files: PolicyFiles) -> Candidate:
    # A file that says nothing is no file, for all that decides.
    return Candidate(BUILT_IN, b"", files)


def find_policy_files(start: Path, environment: Environment, override: Path | None) -> PolicyFiles:
    """The files of the policy in force, read and not compiled: a broken one stops nobody here."""
    return read_policy_files(find_root(start, environment, override), environment)


def find_agents(start: Path, environment: Environment, override: Path | None) -> AgentStore:
    """The agents of the plane. No policy is read. Raises: UsageError, ConfigError."""
    return read_agents(find_root(start, environment, override), environment)


def find_ledger_paths(
    start: Path, environment: Environment, override: Path | None
) -> Mapping[LedgerName, Path]:
    """The plane's ledgers by name. No policy is read. Raises: UsageError, ConfigError."""
    return plane_for(find_root(start, environment, override), environment).ledger_paths()
