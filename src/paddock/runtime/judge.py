"""The policy as one agent meets it."""

from collections.abc import Sequence
from typing import Protocol

from paddock.policy.decide import decide, judge_for, writer_of
from paddock.policy.engine import Policy
from paddock.values.decisions import Action, AgentChain, Decision, Outcome


class Judge(Protocol):
    """Decides for one agent; also says what may be shown to it."""

    @property
    def chain(self) -> AgentChain: ...

    @property
    def policy_digest(self) -> str: ...

    def decide(self, actions: Sequence[Action]) -> Decision:
        """The strictest decision over all actions."""
        ...

    def is_shown(self, relative: str) -> bool:
        """Whether a path may appear in a listing, search or diff."""
        ...

    def may_view(self, relative: str) -> bool:
        """Whether this agent could view the file without being asked."""
        ...

    def allows(self, action: Action) -> bool:
        """Whether this agent could do this without being asked."""
        ...


class PolicyJudge:
    """One policy for one agent and its ancestors."""

    __slots__ = ("_chain", "_judge", "_policy")

    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self._policy = policy
        self._chain = chain
        self._judge = judge_for(policy, chain)

    @property
    def chain(self) -> AgentChain:
        return self._chain

    @property
    def policy_digest(self) -> str:
        return self._policy.digest

    def decide(self, actions: Sequence[Action]) -> Decision:
        """The strictest decision over all actions."""
        if len(actions) == 1:
            # Nearly every call: the compiled judge, without the general case round it.
            return self._judge.decide(actions[0])
        return decide(self._policy, self._chain, actions, writer_of(actions))

    def is_shown(self, relative: str) -> bool:
        """Not what is secret; Paddock's own state is."""
        return self._policy.guards.find_secret(relative) is None

    def may_view(self, relative: str) -> bool:
        return self.allows(Action("file", "view", relative))

    def allows(self, action: Action) -> bool:
        return self._judge.decide(action).outcome is Outcome.ALLOW
