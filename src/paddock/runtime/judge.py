"""The policy as one agent meets it."""

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from paddock.ledger.append import Ledger
from paddock.policy.decide import decide, judge_for, writer_of
from paddock.policy.engine import Policy
from paddock.runtime.approvals import Approver, NoApprover
from paddock.runtime.prepared import Registry
from paddock.runtime.records import Caller, Contents
from paddock.storage.history import History
from paddock.tools.spec import Ports
from paddock.values.decisions import (
    OPERATOR,
    Action,
    Agent,
    AgentChain,
    Decision,
    Outcome,
    RuleMatch,
)
from paddock.values.entries import Entry


class PolicyJudge:
    __slots__ = ("_judge", "chain", "policy")

    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self.policy = policy
        self.chain = chain
        self._judge = judge_for(policy, chain)

    @property
    def policy_digest(self) -> str:
        return self.policy.digest

    def decide(self, actions: Sequence[Action]) -> Decision:
        if len(actions) == 1:
            # Nearly every call: the compiled judge, without the general case round it.
            return self._judge.decide(actions[0])
        return decide(self.policy, self.chain, actions, writer_of(actions))

    def is_shown(self, relative: str) -> bool:
        return self.policy.guards.find_secret(relative) is None

    def may_view(self, relative: str) -> bool:
        return self.allows(Action("file", "view", relative))

    def allows(self, action: Action) -> bool:
        return self._judge.decide(action).outcome is Outcome.ALLOW


class OperatorJudge(PolicyJudge):
    """A person at the command line decides by asking; the record names `tool` as the rule.

    They are shown no more than the agent whose workspace it is.
    """

    __slots__ = ("_tool",)

    def __init__(self, tool: str, shown: PolicyJudge) -> None:
        super().__init__(shown.policy, shown.chain)
        self.chain = (Agent(OPERATOR, "operator"),)
        self._tool = tool

    def decide(self, actions: Sequence[Action]) -> Decision:
        """Yes: whoever can start this program as the plane's owner can change every file."""
        rule = RuleMatch(Outcome.ALLOW, self._tool, "operator", "built-in", 0)
        action = str(actions[0]) if actions else self._tool
        return Decision(
            Outcome.ALLOW, action, "a person asked for it", rule, "", self.policy_digest, (rule,)
        )


class Context(Struct, frozen=True):
    """What a dispatcher works with; all of it given by the host.

    `randomness(n)` returns n unpredictable bytes; `monotonic_ns` measures durations.
    """

    registry: Registry
    judge: PolicyJudge
    ports: Ports
    ledger: Ledger
    approver: Approver
    record_approval: Callable[[Entry], None]
    """Puts a question or its answer on record. Raises: PaddockError; then it does not count."""
    caller: Caller
    randomness: Callable[[int], bytes]
    keeper: Approver = NoApprover()
    """Keeps what nobody is asked about now, so that it can be answered."""
    history: History | None = None
    contents: Contents | None = None
    """Where contents of arguments are kept; None: their digests alone are."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    after_write: Callable[[Sequence[str], str], None] = lambda _paths, _toolset: None
    """Called when a call that may write is over and on record, with the paths that it changed.

    And with the toolset that changed them: `shell` for whatever ran a command."""
