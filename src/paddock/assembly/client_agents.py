"""Who acts for a client: the agent of its own thread, or one of its own kinds of agent.

Nothing here asks a policy. A chain is what the plane declares, the same under every policy;
what `[agents]` gives to a name the policy that judges holds besides. So every question about
such an agent, of the hook or of a person, is put for one and the same chain.
"""

from msgspec.structs import replace

from paddock.assembly.project import Project, default_agent_of
from paddock.plane.agent_files import is_agent_name
from paddock.plane.agents import AgentStore
from paddock.values.decisions import Agent, AgentChain, PlaneKind, client_kind


def default_chain(agents: AgentStore) -> AgentChain:
    """The agent of a client's own thread, with its ancestors. Raises: UsageError, ConfigError."""
    root = agents.layout.root
    return tuple(
        # The place alone: a decision shows it to a model, which must see no host path.
        replace(record.agent, source=record.file.relative_to(root).as_posix())
        for record in agents.lineage(default_agent_of(agents.layout.kind))
    )


def planned_default_chain(agents: AgentStore) -> AgentChain:
    """As `default_chain`; before the plane is made, the one it would be made with."""
    if is_yet_to_be_made(agents):
        return (Agent(default_agent_of(agents.layout.kind), "standard"),)
    return default_chain(agents)


def is_yet_to_be_made(agents: AgentStore) -> bool:
    """Whether the default agent is declared only when the plane is made, and it is not."""
    layout = agents.layout
    name = default_agent_of(layout.kind)
    return layout.kind is PlaneKind.PROJECT and not layout.agent_file(name).exists()


def declared_for(agents: AgentStore, name: str) -> str:
    """The agent of this plane whose declaration counts for a client's agent of type `name`."""
    is_ours = is_agent_name(name) and name in agents.names()
    return name if is_ours else default_agent_of(agents.layout.kind)


def chain_of_type(agents: AgentStore, default: AgentChain, name: str) -> AgentChain:
    """The chain of a client's agent of type `name`; `default` is that of its own thread.

    One that this plane does not declare is a child of the default agent, and never
    exceeds it, whatever profile `[agents]` gives to its name.

    Raises: UsageError, ConfigError where the agents do not load.
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
