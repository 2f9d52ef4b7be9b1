"""What an agent may never do, whatever the target: such a tool need not be shown to it."""

from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.values.decisions import PATH_CATEGORIES, Action, AgentChain


def may_ever(policy: Policy, chain: AgentChain, category: str, operation: str) -> bool:
    """Whether some target could be allowed or asked about.

    Errs on the side of yes: a tool that is shown is decided at each call all the same.
    """
    profiles = judge_for(policy, chain).profiles()
    if not profiles or any(profile.closes(category, operation) for profile in profiles):
        return False
    if category not in PATH_CATEGORIES:
        return True
    is_write = Action(category, operation, ".").is_write
    return all(agent.permissions.write if is_write else agent.permissions.read for agent in chain)
