"""How far this host would hold a command, for questions about a policy. Nothing of it is run."""

from paddock.assembly.project import Project
from paddock.assembly.shell import STAGING
from paddock.errors import SandboxUnavailableError
from paddock.policy.decide import names_line, shell_for
from paddock.policy.engine import Policy
from paddock.sandbox.backends import choose_backend, examine_host
from paddock.values.decisions import Action, AgentChain, Held


def held_here(project: Project, policy: Policy, chain: AgentChain, action: Action) -> Held:
    """How far a line would be held here, as `PreparedLine.held` says it of one that runs."""
    shell = shell_for(policy, chain, action)
    verdicts = examine_host(project.environment.paddock_home / STAGING)
    try:
        word = choose_backend(verdicts, shell.enforcement).enforcement.value
    except SandboxUnavailableError:
        return "none"
    is_open = shell.network == "host" and not names_line(policy, chain, action)
    return "partial" if word == "full" and is_open else word
