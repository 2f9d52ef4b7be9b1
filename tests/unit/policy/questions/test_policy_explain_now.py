"""What would change the answer to a recorded call, told by the policy that gave it alone."""

import pytest

from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.explain import CHANGED, SHOWN_MAX, Now, explain, explain_now
from paddock.policy.questions.record import (
    MEANINGS,
    Lost,
    PastDecision,
    Recorded,
    RecordedDoor,
    Why,
)
from paddock.values.decisions import Action, Agent, Outcome

CHAIN = (Agent("main", "standard"),)
WHERE = Recorded(3, "2026-11-20T10:00:00Z", "SES-1", "CALL-1", "main", "move_file")


def policy(text: str) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode()))


POLICY = policy(
    """
[paths]
generated = ["gen/**"]
[profiles.standard]
allow = ["tool:file:view", "tool:file:create docs/**", "tool:file:create gen/**", "tool:shell:*"]
ask = ["tool:file:delete"]
"""
)


def past(
    *actions: Action, outcome: Outcome, door: RecordedDoor = RecordedDoor.TOOL
) -> PastDecision:
    return PastDecision(WHERE, door, actions, CHAIN, outcome, None, POLICY.digest)


def create(path: str) -> Action:
    return Action("file", "create", path)


def test_every_action_that_decided_is_explained_and_no_other() -> None:
    one, two = create("src/a"), create("src/b")
    call = past(one, create("docs/a"), two, Action("file", "delete", "x"), outcome=Outcome.DENY)
    found = explain_now(call, POLICY)
    assert found == Now("", (explain(POLICY, CHAIN, one), explain(POLICY, CHAIN, two)), 0)
    # What is told of both stands there once.
    rows = found.render().splitlines()
    assert len(rows) == len(set(rows))
    assert [each["action"] for each in found.as_json()["actions"]] == [str(one), str(two)]


def test_of_a_call_that_was_allowed_one_action_is_enough() -> None:
    call = past(create("docs/a"), create("docs/b"), outcome=Outcome.ALLOW)
    assert explain_now(call, POLICY) == Now("", (explain(POLICY, CHAIN, create("docs/a")),), 0)


def test_of_many_actions_the_first_are_explained_and_the_others_counted() -> None:
    actions = [create(f"src/{number}") for number in range(SHOWN_MAX + 2)]
    found = explain_now(past(*actions, outcome=Outcome.DENY), POLICY)
    assert (len(found.explanations), found.left_off) == (SHOWN_MAX, 2)
    assert found.render().splitlines()[-1] == "  2 further actions are not explained"


def test_what_only_its_door_knows_is_counted_and_not_told_otherwise_than_it_was() -> None:
    # A command writes what is generated, and no file tool does.
    actions = (Action("shell", "run", "make"), create("gen/x"))
    found = explain_now(past(*actions, outcome=Outcome.ALLOW), POLICY)
    assert [str(each.decision.action) for each in found.explanations] == ["tool:shell:run make"]
    again = explain_now(
        past(create("docs/a"), outcome=Outcome.ALLOW, door=RecordedDoor.HOOK), POLICY
    )
    assert len(again.explanations) == 1


@pytest.mark.parametrize(
    ("call", "now", "note"),
    [
        (past(create("src/a"), outcome=Outcome.DENY), policy("# more\n"), CHANGED),
        (past(create("src/a"), outcome=Outcome.ALLOW), POLICY, MEANINGS[Why.OTHERWISE]),
        (past(create("src/a"), outcome=Outcome.DENY), None, MEANINGS[Why.WORKSPACE]),
        (Lost(WHERE, Why.CUT), POLICY, MEANINGS[Why.CUT]),
    ],
    ids=["changed", "otherwise", "agent gone", "cut"],
)
def test_where_it_cannot_be_told_it_says_why(
    call: PastDecision | Lost, now: Policy | None, note: str
) -> None:
    found = explain_now(call, now)
    assert found == Now(note)
    assert found.render() == f"  to change it: not told: {note}"
    assert found.as_json() == {"note": note, "actions": [], "actions_left_off": 0}
