"""The admin agent of a bare plane: from its configuration and the dual gate to an agent.

Which tools it has is decided here, once, when the plane is opened: `core` always,
`development` where the gate is open, `package` where the configuration names tools of
packages. Nothing else gives these toolsets to anybody.
"""

from typing import TYPE_CHECKING, Final

from paddock.plane.agent_files import AgentRecord
from paddock.plane.discover import ProjectRoot
from paddock.plane.dual_gate import DualGate
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.policy.matching import compile_permissions
from paddock.values.decisions import Agent

if TYPE_CHECKING:
    from paddock.plane.admin import AdminConfig

ADMIN_AGENT: Final = "admin"
"""The agent that works on a bare plane."""
ADMIN_PROFILE: Final = "admin"
CORE: Final = "core"
DEVELOPMENT: Final = "development"
PACKAGE: Final = "package"
SHELL: Final = "shell"
"""Of tools that packages bring; see `package_tools`."""


def find_gate(root: ProjectRoot, config: "AdminConfig", environment: Environment) -> DualGate:
    """What the dual gate of a bare plane finds, now and for as long as the plane is open."""
    return DualGate(config.tool_profile, environment.risky_tools, root.accepted)


def admin_record(config: "AdminConfig", gate: DualGate, layout: PlaneLayout) -> AgentRecord:
    """The admin agent, as the configuration declares it and the gate lets it be.

    Raises: ConfigError: a pattern of its permissions can match nothing.
    """
    agent = Agent(
        name=ADMIN_AGENT,
        profile=ADMIN_PROFILE,
        toolsets=_toolsets(config, gate),
        permissions=config.permissions,
        source=str(layout.admin_config),
        declaration=config.text,
    )
    compile_permissions(agent)
    return AgentRecord(agent, layout.root, False, layout.admin_config, config.digest)


def _toolsets(config: "AdminConfig", gate: DualGate) -> tuple[str, ...]:
    development = (DEVELOPMENT,) if gate.is_open else ()
    return (CORE, *development, *((PACKAGE,) if config.package_tools else ()))
