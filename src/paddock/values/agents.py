"""Who acts: an agent with its profile and the lists that stand above it."""

from dataclasses import dataclass, field, replace

from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class Permissions:
    """An agent's own path lists, judged above any profile.

    Patterns as in a policy's path lists. `forbidden` beats both others. An
    empty `read` or `write` permits nothing.
    """

    read: tuple[str, ...] = ("**",)
    write: tuple[str, ...] = ("**",)
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """A model's identity as the host knows it; never taken from arguments."""

    name: str
    profile: str
    toolsets: tuple[str, ...] = ("workspace", "search", "output", "shell")
    permissions: Permissions = field(default_factory=Permissions)
    parent: str | None = None
    source: str = ""
    """The file that declares it, for messages and for the rules made from it."""
    declaration: bytes = field(default=b"", repr=False)
    """That file's text: where a rule stands is looked up when there is something to say."""

    def as_json(self) -> dict[str, Json]:
        """The agent as entries of the ledger keep it: enough to decide again."""
        kept: dict[str, Json] = {"name": self.name, "profile": self.profile}
        if self.permissions != Permissions():
            kept["permissions"] = {
                "read": list(self.permissions.read),
                "write": list(self.permissions.write),
                "forbidden": list(self.permissions.forbidden),
            }
        return kept


AgentChain = tuple[Agent, ...]
"""The acting agent first, then its parent, up to the eldest ancestor."""


def client_kind(default: AgentChain, name: str) -> AgentChain:
    """The chain of a client's kind of agent `name`: a child of the agent at the head of `default`.

    It is declared nowhere, so it has all that its parent has. What `[agents]` gives to its
    name is the policy's, which holds it besides: the chain is the same under every policy.
    """
    parent = default[0]
    return (replace(parent, name=name, parent=parent.name), *default)
