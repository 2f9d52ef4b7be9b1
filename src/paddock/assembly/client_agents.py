"""Who acts for a client: the agent of its own thread, or one of its own kinds of agent."""

from dataclasses import replace

from paddock.assembly.project import Project
from paddock.plane.agent_files import is_agent_name
from paddock.values.agents import AgentChain, client_kind


def default_chain(project: Project) -> AgentChain:
    """The agent of a client's own thread, with its ancestors. Raises: UsageError, ConfigError."""
    root = project.layout.root
    return tuple(
        # The place alone: a decision shows it to a model, which must see no host path.
        replace(record.agent, source=record.file.relative_to(root).as_posix())
        for record in project.agents.lineage(project.default_agent)
    )


def declared_for(project: Project, name: str) -> str:
    """The agent of this plane whose declaration counts for a client's agent of type `name`."""
    is_ours = is_agent_name(name) and name in project.agents.names()
    return name if is_ours else project.default_agent


def chain_of_type(project: Project, default: AgentChain, name: str) -> AgentChain:
    """The chain of a client's agent of type `name`; `default` is that of its own thread.

    One that this plane does not declare is a child of the default agent, and never
    exceeds it, whatever profile `[agents]` gives to its name.
    """
    if declared_for(project, name) == name:
        return project.agents.chain(name)
    return client_kind(default, name)


def is_bound(project: Project, name: str) -> bool:
    """Whether `[agents]` of a policy file names it, trusted or not."""
    return any(
        binding.name == name
        for document in project.policy.documents
        for binding in document.settings.agents
    )
