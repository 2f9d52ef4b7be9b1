import pytest

from paddock.policy.engine import PolicySource, load_policy
from paddock.runtime.prepared import OperatorJudge, PolicyJudge
from paddock.values.decisions import Action, Agent, Decision, Outcome, RuleMatch

DENYING = b'[profiles.standard]\ndeny = ["tool:file:* **"]\n'


@pytest.fixture
def shown():
    policy = load_policy(PolicySource("paddock.toml", DENYING))
    return PolicyJudge(policy, (Agent("main", "standard"),))


@pytest.mark.parametrize("tool", ["undo", "commit_parked"])
def test_the_rule_that_allows_a_persons_call_is_what_the_person_asked_for(shown, tool):
    rule = RuleMatch(Outcome.ALLOW, tool, "operator", "built-in", 0)
    assert OperatorJudge(tool, shown).decide([Action("file", "delete", "a")]) == Decision(
        Outcome.ALLOW,
        "tool:file:delete a",
        "a person asked for it",
        rule,
        "",
        shown.policy_digest,
        (rule,),
    )


def test_policy_binds_the_agent_and_says_what_the_operator_is_shown(shown):
    operator, deletes = OperatorJudge("undo", shown), Action("file", "delete", "a")
    assert shown.decide([deletes]).outcome is Outcome.DENY
    assert operator.chain == (Agent("(operator)", "operator"),)
    assert (operator.allows(deletes), operator.may_view("a")) == (False, False)
    assert (operator.is_shown("a"), operator.is_shown(".env")) == (True, False)
