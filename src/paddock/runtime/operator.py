"""The judge of what a person at the command line asks for: an undo, a commit of kept changes."""

from collections.abc import Sequence

from paddock.runtime.judge import Judge
from paddock.runtime.past import OPERATOR
from paddock.values.decisions import Action, Agent, AgentChain, Decision, Outcome, RuleMatch


class OperatorJudge:
    """A person at the command line decides by asking; policy binds agents.

    `tool` is what the person asked for: the record names it as the rule.
    """

    __slots__ = ("_chain", "_policy_digest", "_shown", "_tool")

    def __init__(self, tool: str, shown: Judge) -> None:
        self._chain = (Agent(OPERATOR, "operator"),)
        self._policy_digest = shown.policy_digest
        self._shown = shown
        self._tool = tool

    @property
    def chain(self) -> AgentChain:
        return self._chain

    @property
    def policy_digest(self) -> str:
        return self._policy_digest

    def decide(self, actions: Sequence[Action]) -> Decision:
        """Yes: whoever can start this program as the plane's owner can change every file."""
        rule = RuleMatch(Outcome.ALLOW, self._tool, "operator", "built-in", 0)
        action = str(actions[0]) if actions else self._tool
        return Decision(
            Outcome.ALLOW, action, "a person asked for it", rule, "", self._policy_digest, (rule,)
        )

    def is_shown(self, relative: str) -> bool:
        """As to the agent."""
        return self._shown.is_shown(relative)

    def may_view(self, relative: str) -> bool:
        """As to the agent."""
        return self._shown.may_view(relative)

    def allows(self, action: Action) -> bool:
        """As the agent."""
        return self._shown.allows(action)
