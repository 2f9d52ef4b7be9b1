"""Review a project, a bare plane or an MCP server, and trust exactly what was shown."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.assembly.agents import AgentPlan, apply_agents, plan_agents
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project, policy_of, read_agents, require_registered
from paddock.assembly.project_open import open_root
from paddock.errors import ConfigError, UsageError
from paddock.gateway.definitions import Pinned, Pins, Redefinition, compare, configured
from paddock.plane import discover, records, trust
from paddock.plane.admin import AdminConfig, read_admin_config
from paddock.plane.environment import Environment, real_directory
from paddock.plane.grants import summarise
from paddock.plane.layout import PlaneLayout
from paddock.runtime.approvals import NoApprover
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind


class TrustReview(Struct, frozen=True):
    root: discover.ProjectRoot
    file: trust.PolicyFile | None
    """The policy; only a bare plane may have none."""
    summary: str
    is_trusted: bool
    admin: AdminConfig | None = None
    agents: AgentPlan = field(default_factory=AgentPlan)
    """Agents that the policy file declares and the plane does not have in this form yet."""


def review_trust(
    start: Path, environment: Environment, override: Path | None = None
) -> TrustReview:
    directory = real_directory(override or environment.plane or start)
    if discover.is_bare_plane(directory):
        return _review_plane(directory, environment)
    root = discover.find_root(start, environment, override)
    if root.kind is PlaneKind.BARE:
        return _review_plane(root.path, environment)
    files = trust.read_policy_files(root, environment)
    own = files.project
    if own is None:
        raise ConfigError(
            "no policy file to trust",
            where=str(root.path),
            hint="without one the defaults apply; paddock init writes one",
        )
    policy = policy_of(files).as_if_trusted()
    plan = plan_agents(policy, read_agents(root, environment), root.path, own.path.name)
    summary = "\n".join(filter(None, (summarise(own, files.user), str(plan))))
    return TrustReview(root, own, summary, own.trusted, agents=plan)


def _review_plane(path: Path, environment: Environment) -> TrustReview:
    root = discover.ProjectRoot(
        path, PlaneKind.BARE, accepted=discover.is_registered_bare_plane(path, environment)
    )
    config = read_admin_config(PlaneLayout(path, PlaneKind.BARE))
    require_registered(config)
    files = trust.read_policy_files(root, environment)
    policy_of(files)
    shown = [] if files.project is None else [summarise(files.project, files.user)]
    summary = "\n".join([*shown, trust.summarise_admin(config)])
    return TrustReview(root, files.project, summary, root.accepted, config)


def trust_policy(review: TrustReview, environment: Environment, *, by: str) -> trust.TrustRecord:
    """Trust exactly what was reviewed, record who did, then create the agents that it declares.

    A bare plane is trusted by its path: from now on it counts fully without being named.
    Sequence: recorded → trusted → agents. If the entry cannot be written nothing is trusted.
    """
    record = _plan(review, datetime.now(UTC))
    project = open_root(review.root, environment)
    record_in_governance(project, records.policy_trusted(record, by))
    if review.admin is not None:
        discover.register_bare_plane(review.root.path, environment)
    else:
        trust.write_trust(record, environment)
    # Open it again, which records what came into force, rather than leave that to the next call.
    project = open_root(replace(review.root, accepted=review.admin is not None), environment)
    apply_agents(project, review.agents)
    return record


def _plan(review: TrustReview, now: datetime) -> trust.TrustRecord:
    file = review.file
    if review.admin is not None:
        return trust.TrustRecord(str(review.admin.file), review.admin.digest, now.isoformat())
    if file is None:
        raise ConfigError("no policy file to trust", where=str(review.root.path))
    return trust.plan_trust(file.path, file.content, now)


class ServerReview(Struct, frozen=True):
    """The current description of an MCP server, and the one that was reviewed before."""

    project: Project
    name: str
    before: Pinned | None
    now: Pinned

    @property
    def differences(self) -> tuple[Redefinition, ...]:
        before = () if self.before is None else self.before.definitions
        return compare(before, self.now.definitions)

    @property
    def is_new(self) -> bool:
        before = self.before
        return before is None or replace(before, reviewed_at=self.now.reviewed_at) != self.now

    def accept(self, *, by: str) -> None:
        """Offer exactly this from now on. Sequence: recorded → offered."""
        digests = {each.key: each.digest for each in self.now.definitions}
        record = records.server_reviewed(self.name, self.now.version, digests, by)
        record_in_governance(self.project, record)
        Pins(self.project.root, self.project.environment).put(self.name, self.now)


def review_servers(
    project: Project, agent: str | None, names: Sequence[str]
) -> tuple[ServerReview, ...]:
    """Start these servers in their sandboxes, and return their descriptions to review.

    Raises: UsageError if policy names no such server; SandboxUnavailableError if it is silent.
    """
    from paddock.assembly.runtimes import open_runtime  # noqa: PLC0415 - it loads all tools

    known = {each.name: each for each in project.policy.settings.mcp.servers}
    for name in names:
        if name not in known:
            raise UsageError(
                f"policy names no MCP server {quote(name)}",
                hint=f"it names: {', '.join(known) or 'none'}; what is not trusted does not count",
            )
    pins = Pins(project.root, project.environment).read()
    now = datetime.now(UTC).isoformat()
    with open_runtime(project, agent=agent, approver=NoApprover()) as runtime:
        servers = runtime.servers()
        found: list[ServerReview] = []
        for name in names:
            version, definitions = servers.look(name)
            pinned = Pinned(configured(known[name]), version, now, definitions)
            found.append(ServerReview(project, name, pins.get(name), pinned))
    return tuple(found)
