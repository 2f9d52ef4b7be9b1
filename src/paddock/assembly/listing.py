"""Which tools a door shows for an agent."""

from paddock.assembly.project import Project
from paddock.assembly.runtimes import tools_allowed
from paddock.policy.openness import may_ever
from paddock.tools.operations import HEADS


def tools_shown(project: Project, agent: str | None) -> tuple[str, ...]:
    """The tools of this agent without those that its policy would deny at every call.

    Raises: UsageError where there is no such agent.
    """
    lineage = project.agents.lineage(project.agent_named(agent))
    chain = tuple(record.agent for record in lineage)
    policy = project.policy_for(lineage[0])
    return tuple(
        name
        for name in tools_allowed(project, agent)
        if all(may_ever(policy, chain, *head) for head in HEADS.get(name, ()))
    )
