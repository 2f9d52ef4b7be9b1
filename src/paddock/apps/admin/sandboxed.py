"""What this host can enforce on commands, tried once when the shell starts."""

from paddock.apps.admin.show import Sandboxed
from paddock.assembly.project import Project
from paddock.assembly.shell import STAGING
from paddock.errors import SandboxUnavailableError
from paddock.policy.decide import shell_for
from paddock.sandbox.backends import choose_backend, examine_host
from paddock.sandbox.values import BackendVerdict, Enforcement


def examine(project: Project) -> tuple[BackendVerdict, ...]:
    """Every backend, each tried by running a command in it."""
    return examine_host(project.environment.paddock_home / STAGING)


def find_sandbox(project: Project, agent: str | None) -> Sandboxed:
    """What commands of this agent would be held by. Raises: UsageError for an unknown agent."""
    name = project.agent_named(agent)
    policy = project.policy_for(project.agents.read(name))
    enforcement = shell_for(policy, project.agents.chain(name)).enforcement
    try:
        chosen = choose_backend(examine(project), enforcement)
    except SandboxUnavailableError:
        return Sandboxed(Enforcement.NONE, refused=True)
    return Sandboxed(chosen.enforcement, chosen.backend)
