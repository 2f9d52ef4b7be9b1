"""A root with what governs it: found, read, and nothing made."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.assembly.admin import ADMIN_AGENT
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import AgentStore
from paddock.plane.create import MAIN_AGENT
from paddock.plane.discover import (
    ProjectRoot,
    bare_planes_below,
    find_root,
    name_of_root,
    plane_for,
)
from paddock.plane.dual_gate import DualGate
from paddock.plane.environment import Environment, real_path
from paddock.plane.layout import PlaneLayout
from paddock.plane.report import WhereReport, where_report
from paddock.plane.trust import PolicyFile, PolicyFiles, read_policy_files
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.values.decisions import PlaneKind

if TYPE_CHECKING:
    from paddock.plane.admin import AdminConfig


class Project(Struct, frozen=True):
    """A root with the policy in force, its plane and its agents."""

    root: ProjectRoot
    layout: PlaneLayout
    files: PolicyFiles
    policy: Policy
    """For an agent whose workspace is the root; see `policy_for`."""
    agents: AgentStore
    environment: Environment
    name: Path | None = None
    """The root by the name that it was reached by, where that is another one."""
    notices: tuple[str, ...] = ()
    """What a person should be told, once: what an untrusted policy did not get."""
    admin: "AdminConfig | None" = None
    """Of a bare plane: its admin agent's configuration."""
    gate: DualGate = field(default_factory=DualGate)
    """What the dual gate found; on a project it is closed."""

    def report(self) -> WhereReport:
        """Where everything is."""
        gate = None if self.admin is None else self.gate
        return where_report(self.root, self.layout, self.files, self.environment, gate)

    def policy_for(self, record: AgentRecord) -> Policy:
        """The policy as an agent meets it: paths are relative to its own workspace.

        On a bare plane an agent that works elsewhere than on the plane's root has no
        `HOT/config` below it: for it the same file holds as a project's would. What stands
        below a workspace is looked up for each.
        """
        if record.workspace == self.root.path:
            return self.policy
        below = bare_planes_below(real_path(record.workspace), self.environment)
        if self.layout.kind is PlaneKind.PROJECT and below == self.files.planes_below:
            return self.policy
        return policy_of(replace(self.files, kind=PlaneKind.PROJECT, planes_below=below))

    def name_of(self, directory: Path) -> str:
        """A directory by the name that its user has for it, where it is the root or below."""
        if self.name is None or not directory.is_relative_to(self.root.path):
            return str(directory)
        return str(self.name / directory.relative_to(self.root.path))

    @property
    def default_agent(self) -> str:
        return default_agent_of(self.layout.kind)

    def agent_named(self, name: str | None) -> str:
        """The agent that a caller means: the default where it named none.

        Threat: `--agent "$AGENT"` where the variable is not set. An empty name is one that
        no agent has, and not none.
        """
        return self.default_agent if name is None else name


def default_agent_of(kind: PlaneKind) -> str:
    return MAIN_AGENT if kind is PlaneKind.PROJECT else ADMIN_AGENT


def find_project(start: Path, environment: Environment, override: Path | None) -> Project:
    """The project for someone who stands at `start`. Makes nothing.

    Raises:
        UsageError: `start` is no directory.
        ConfigError: a policy file or the admin's configuration does not load, or root
            and plane overlap.
    """
    root = find_root(start, environment, override)
    name = name_of_root(override or environment.plane or start, root.path)
    return read_project(root, environment, name)


def read_project(root: ProjectRoot, environment: Environment, name: Path | None = None) -> Project:
    """The project at exactly this root, wherever the user stands. Makes nothing.

    `name` is the root by the name that it was reached by. Raises: ConfigError, as `find_project`.
    """
    layout = plane_for(root, environment)
    files = read_policy_files(root, environment)
    policy = policy_of(files)
    if root.kind is PlaneKind.PROJECT:
        agents = AgentStore(layout, environment)
        return Project(root, layout, files, policy, agents, environment, name)
    agents, config, gate = _bare_agents(root, layout, environment)
    return Project(root, layout, files, policy, agents, environment, name, admin=config, gate=gate)


def read_agents(root: ProjectRoot, environment: Environment) -> AgentStore:
    """The agents of the plane of this root. No policy is read. Raises: ConfigError."""
    layout = plane_for(root, environment)
    if root.kind is PlaneKind.PROJECT:
        return AgentStore(layout, environment)
    return _bare_agents(root, layout, environment)[0]


def _bare_agents(
    root: ProjectRoot, layout: PlaneLayout, environment: Environment
) -> "tuple[AgentStore, AdminConfig, DualGate]":
    from paddock.assembly.admin import admin_record, find_gate  # noqa: PLC0415 - bare planes only
    from paddock.assembly.bootstrap_sources import load_admin_config  # noqa: PLC0415 - loads every tool

    config = load_admin_config(root, layout)
    gate = find_gate(root, config, environment)
    return AgentStore(layout, environment, admin_record(config, gate, layout)), config, gate


def policy_of(files: PolicyFiles) -> Policy:
    """The policy that these files make. Raises: ConfigError."""
    project, user = _source(files.project), _source(files.user)
    return load_policy(project, user, files.kind, files.planes_below)


def _source(file: PolicyFile | None) -> PolicySource | None:
    # The name alone: a decision shows it to a model, which must see no host path.
    return None if file is None else PolicySource(file.path.name, file.content, file.trusted)
