"""Find and read a root with its plane, policy and agents; create nothing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.plane import discover
from paddock.plane.agents import AgentRecord, AgentSpec, AgentStore, is_agent_name
from paddock.plane.create import MAIN_AGENT
from paddock.plane.environment import (
    RISKY_TOOLS_VARIABLE,
    DualGate,
    Environment,
    real_directory,
    real_path,
)
from paddock.plane.layout import PlaneLayout
from paddock.plane.trust import PolicyFile, PolicyFiles, read_policy_files
from paddock.policy.decide import combine_policies
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.pathset import compile_permissions
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
from paddock.values.decisions import Agent, AgentChain, PlaneKind, client_kind

if TYPE_CHECKING:
    from paddock.plane.admin import AdminConfig
    from paddock.plane.records import WhereReport


# The admin agent's toolsets are decided here, when the plane is opened: `core` always,
# `development` if the dual gate is open, `package` if the configuration names tools of
# packages. No other agent can have these toolsets.

ADMIN_AGENT: Final = "admin"
ADMIN_PROFILE: Final = "admin"
CORE: Final = "core"
DEVELOPMENT: Final = "development"
PACKAGE: Final = "package"
"""The toolset of packages' tools; see `AdminConfig.package_tools`."""
SHELL: Final = "shell"
MCP: Final = "mcp"


def admin_record(config: "AdminConfig", gate: DualGate, layout: PlaneLayout) -> AgentRecord:
    development = (DEVELOPMENT,) if gate.is_open else ()
    agent = Agent(
        name=ADMIN_AGENT,
        profile=ADMIN_PROFILE,
        toolsets=(CORE, *development, *((PACKAGE,) if config.package_tools else ())),
        permissions=config.permissions,
        source=str(layout.admin_config),
        declaration=config.text,
    )
    compile_permissions(agent)
    return AgentRecord(agent, layout.root, False, layout.admin_config, config.digest)


class Project(Struct, frozen=True):
    root: discover.ProjectRoot
    layout: PlaneLayout
    files: PolicyFiles
    policy: Policy
    """The policy for an agent whose workspace is the root; see `policy_for`."""
    agents: AgentStore
    environment: Environment
    name: Path | None = None
    """The path by which the root was reached, if that is another one."""
    notices: tuple[str, ...] = ()
    """Notices to a person, shown once, such as which file is not trusted and does not count."""
    admin: "AdminConfig | None" = None
    gate: DualGate = field(default_factory=DualGate)
    """The state of the dual gate; for a project it is closed."""
    given: PolicyFile | None = None
    """The policy of the program that opened it: see `policy_of`."""

    def policy_for(self, record: AgentRecord) -> Policy:
        """Return the policy for an agent, with paths relative to its workspace.

        A workspace other than a bare plane's root has no `HOT/config` below it, so the plane's
        file applies there like a project's.
        """
        files = self.files
        if record.workspace != self.root.path:
            below = discover.bare_planes_below(real_path(record.workspace), self.environment)
            if self.layout.kind is not PlaneKind.PROJECT or below != files.planes_below:
                files = replace(files, kind=PlaneKind.PROJECT, planes_below=below)
        if self.given is not None:
            return policy_with(self.given, files, record.workspace)
        return self.policy if files is self.files else policy_of(files)

    def acting(self, name: str | None) -> tuple[AgentRecord, Policy, AgentChain]:
        """Return an agent, the policy for it, and its chain: itself, then its ancestors."""
        lineage = self.agents.lineage(self.agent_named(name))
        chain = tuple(record.agent for record in lineage)
        return lineage[0], self.policy_for(lineage[0]), chain

    def name_of(self, directory: Path) -> str:
        if self.name is None or not directory.is_relative_to(self.root.path):
            return str(directory)
        return str(self.name / directory.relative_to(self.root.path))

    @property
    def default_agent(self) -> str:
        return default_agent_of(self.layout.kind)

    def agent_named(self, name: str | None) -> str:
        """Return the agent that a caller means: the default if it gave no name.

        Threat: `--agent "$AGENT"` with the variable unset. An empty name is the name of no
        agent, and does not mean the default.
        """
        return self.default_agent if name is None else name


def default_agent_of(kind: PlaneKind) -> str:
    return MAIN_AGENT if kind is PlaneKind.PROJECT else ADMIN_AGENT


def find_project(start: Path, environment: Environment, override: Path | None) -> Project:
    root = discover.find_root(start, environment, override)
    name = discover.name_of_root(override or environment.plane or start, root.path)
    return read_project(root, environment, name)


def read_project(
    root: discover.ProjectRoot, environment: Environment, name: Path | None = None
) -> Project:
    layout = discover.plane_for(root, environment)
    files = read_policy_files(root, environment)
    policy = policy_of(files)
    if root.kind is PlaneKind.PROJECT:
        agents = AgentStore(layout, environment)
        return Project(root, layout, files, policy, agents, environment, name)
    agents, config, gate = _bare_agents(root, layout, environment)
    return Project(root, layout, files, policy, agents, environment, name, admin=config, gate=gate)


def read_agents(root: discover.ProjectRoot, environment: Environment) -> AgentStore:
    layout = discover.plane_for(root, environment)
    if root.kind is PlaneKind.PROJECT:
        return AgentStore(layout, environment)
    return _bare_agents(root, layout, environment)[0]


def _bare_agents(
    root: discover.ProjectRoot, layout: PlaneLayout, environment: Environment
) -> "tuple[AgentStore, AdminConfig, DualGate]":
    from paddock.plane.admin import read_admin_config  # noqa: PLC0415 - bare planes only

    config = read_admin_config(layout)
    require_registered(config)
    config = config if root.accepted else config.tightened()
    gate = DualGate(config.tool_profile, environment.risky_tools, root.accepted)
    return AgentStore(layout, environment, admin_record(config, gate, layout)), config, gate


def require_registered(config: "AdminConfig") -> None:
    """Refuse entries of `tools` that are not core tools. Raises: ConfigError.

    Threat: a development tool in the list would be offered to the model even with a closed gate.
    """
    from paddock.tools.toolsets import TOOLS  # noqa: PLC0415 - bare planes only

    toolsets = {listed.name: listed.toolset for listed in TOOLS}
    seen: set[str] = set()
    for position, entry in enumerate(config.tools or ()):
        name, toolset = quote(entry.tool_id), toolsets.get(entry.tool_id)
        if toolset == DEVELOPMENT:
            why = f"the development tool {name} is listed in 'tools'"
            hint = (
                "remove it: tool_profile = development and"
                f" {RISKY_TOOLS_VARIABLE}=1 together enable it"
            )
        elif toolset != CORE:
            why = f"{name} is not a core tool"
            known = ", ".join(each for each, toolset in toolsets.items() if toolset == CORE)
            hint = f"the core tools are: {known}"
        elif entry.tool_id in seen:
            why, hint = f"{name} is listed twice", "keep one of them"
        else:
            seen.add(entry.tool_id)
            continue
        raise ConfigError(why, where=config.place(("tools", position, "tool_id")), hint=hint)


def policy_of(files: PolicyFiles) -> Policy:
    project, user = _source(files.project), _source(files.user)
    return load_policy(project, user, files.kind, files.planes_below, files.packages)


def policy_with(given: PolicyFile, files: PolicyFiles, workspace: Path) -> Policy:
    """Combine the policy with one that a program gives: the stricter answer counts.

    If neither project nor user has one, only the built-in policy is below it; a project's file
    that is not trusted also tightens it.
    """
    cloned = None if files.project is None or files.project.trusted else files.project
    policy = policy_of(replace(files, project=cloned, user=given))
    if files.user is not None or files.project is not cloned:
        policy = combine_policies(policy_of(files), policy)
    place = real_path(given.path)
    # A policy that was made from text has a name, and no path.
    if not given.path.is_absolute() or not place.is_relative_to(workspace):
        return policy
    # Threat: an agent rewrites the policy that governs it once the program is started again.
    return policy.with_own(place.relative_to(workspace).as_posix())


def with_given(
    project: Project,
    policy: str | os.PathLike[str] | Policy | None,
    agent: str | AgentSpec | None,
) -> tuple[Project, str | None]:
    if policy is not None:
        project = replace(project, given=_given_policy(policy))
    if not isinstance(agent, AgentSpec):
        return project, agent
    if agent.workspace is None and project.layout.kind is PlaneKind.PROJECT:
        agent = replace(agent, workspace=project.root.path)
    return replace(project, agents=project.agents.with_given(agent)), agent.name


def _given_policy(policy: str | os.PathLike[str] | Policy) -> PolicyFile:
    if isinstance(policy, Policy):
        (source,) = filter(None, policy.sources)
        return PolicyFile(Path(source.name), source.text, trusted=True)
    path = Path(policy).absolute()
    content = read_file_through_links(path, limits.policy_bytes_max)
    if content is None:
        raise UsageError(f"policy file {quote(str(policy))} not found", where=str(path))
    return PolicyFile(path, content, trusted=True)


def _source(file: PolicyFile | None) -> PolicySource | None:
    # Only the name: a decision shows it to a model, which must see no host path.
    return None if file is None else PolicySource(file.path.name, file.content, file.trusted)


# An auditor needs the ledgers most when a policy file or the admin configuration does not load;
# so a site is found without reading either.


class PlaneSite(Struct, frozen=True):
    root: discover.ProjectRoot
    layout: PlaneLayout
    environment: Environment
    is_copy: bool = False

    def report(self) -> "WhereReport":
        from paddock.plane.records import WhereReport  # noqa: PLC0415 - few commands ask

        return WhereReport(self.root, self.layout, None, self.environment)


def find_site(start: Path, environment: Environment, override: Path | None) -> PlaneSite:
    named = override or environment.plane
    recorded = discover.root_on_record(named or start, environment)
    if recorded is None and named is not None:
        directory = real_directory(named)
        if (copied := discover.root_of_copy(directory)) is not None:
            layout = PlaneLayout(directory, PlaneKind.PROJECT)
            return PlaneSite(copied, layout, environment, is_copy=True)
    root = recorded or discover.find_root(start, environment, override)
    return PlaneSite(root, discover.plane_for(root, environment), environment)


def settle_left_packages(project: Project) -> str | None:
    layout, journal = project.layout, project.layout.objects / "journal"
    is_left = layout.package_transaction.exists() or (journal.is_dir() and any(journal.iterdir()))
    if layout.kind is PlaneKind.PROJECT or not is_left:
        return None
    from paddock.assembly.packages import settle_packages  # noqa: PLC0415 - after a crash only

    return settle_packages(project)


def is_made_with_dev(project: Project) -> bool:
    if project.layout.kind is not PlaneKind.BARE:
        return False
    from paddock.assembly.packages import is_development_plane  # noqa: PLC0415 - bare planes only

    return is_development_plane(project)


def report_of(project: Project) -> "WhereReport":
    from paddock.plane.records import WhereReport  # noqa: PLC0415 - as above

    return WhereReport(
        project.root,
        project.layout,
        project.files,
        project.environment,
        None if project.admin is None else project.gate,
        is_made_with_dev(project),
    )


def new_session_id() -> str:
    return f"SES-{os.urandom(8).hex()}"


def new_call_id() -> str:
    return f"CALL-{os.urandom(8).hex()}"


# Chains are made without a policy: a chain is what the plane declares, the same under every
# policy, and the policy that judges applies what `[agents]` gives to a name. So the hook and a
# person's questions judge such an agent by the same chain.


def chain_of(lineage: Sequence[AgentRecord], layout: PlaneLayout) -> AgentChain:
    return tuple(
        # Only the relative path: a decision shows it to a model, which must see no host path.
        replace(record.agent, source=record.file.relative_to(layout.root).as_posix())
        for record in lineage
    )


def default_chain(agents: AgentStore) -> AgentChain:
    return chain_of(agents.lineage(default_agent_of(agents.layout.kind)), agents.layout)


def planned_default_chain(agents: AgentStore) -> AgentChain:
    if is_not_created_yet(agents):
        return (Agent(default_agent_of(agents.layout.kind), "standard"),)
    return default_chain(agents)


def planned_lineage(project: Project, name: str | None) -> tuple[AgentRecord, ...]:
    """Return an agent's records; the default one's also before the first use creates it."""
    named = project.agent_named(name)
    if named == project.default_agent and is_not_created_yet(project.agents):
        (agent,) = planned_default_chain(project.agents)
        file = project.layout.agent_file(named)
        return (AgentRecord(agent, project.root.path, False, file, ""),)
    return project.agents.lineage(named)


def is_not_created_yet(agents: AgentStore) -> bool:
    layout = agents.layout
    name = default_agent_of(layout.kind)
    return layout.kind is PlaneKind.PROJECT and not layout.agent_file(name).exists()


def declared_for(agents: AgentStore, name: str) -> str:
    is_ours = is_agent_name(name) and name in agents.names()
    return name if is_ours else default_agent_of(agents.layout.kind)


def chain_of_type(agents: AgentStore, default: AgentChain, name: str) -> AgentChain:
    """Return the chain of a client's agent of type `name`; `default` is its main thread's.

    A type that this plane does not declare is a child of the default agent, and never exceeds
    it, whatever profile `[agents]` gives to its name. Raises: UsageError, ConfigError.
    """
    if name == default[0].name:
        return default
    if declared_for(agents, name) == name:
        return agents.chain(name)
    return client_kind(default, name)


def is_bound(project: Project, name: str) -> bool:
    return any(
        binding.name == name
        for document in project.policy.documents
        for binding in document.settings.agents
    )
