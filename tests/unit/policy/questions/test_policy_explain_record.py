"""A recorded call as it is told: what came of it, and what would change the answer now."""

import pytest

from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.explain import CHANGED, SHOWN_MAX, Now, explain, explain_now
from paddock.policy.questions.record import (
    MEANINGS,
    KeptCall,
    Lost,
    PastDecision,
    Recorded,
    RecordedCall,
    RecordedDoor,
    Why,
    with_question,
)
from paddock.values.calls import Json
from paddock.values.decisions import Action, Agent, Outcome
from paddock.values.entries import Entry

INTENT = KeptCall(
    3, "2026-11-20T10:00:00Z", Entry("TOOL_INTENT", call_id="C", metadata={"tool": "t"})
)


def told(metadata: dict[str, Json]) -> RecordedCall:
    result = Entry("TOOL_RESULT", call_id="C", metadata={"status": "ok", **metadata})
    return RecordedCall(INTENT, KeptCall(4, "2026-11-20T10:00:01Z", result))


def test_what_a_command_was_refused_is_told_path_by_path() -> None:
    rows: list[Json] = [{"path": "a", "code": "policy.denied", "rule": "no a (x.toml:3)"}]
    call = told({"effects": [], "refused": rows, "refused_total": 3})

    assert call.render().splitlines()[-3:] == [
        "  result: ok, seq 4",
        "  refused: a: no a (x.toml:3)",
        "  refused: 2 more",
    ]
    assert call.as_json()["result"] == {
        "seq": 4,
        "time": "2026-11-20T10:00:01Z",
        "status": "ok",
        "exit": None,
        "timed_out": False,
        "code": "",
        "effects": [],
        "refused": rows,
    }


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"exit": 0}, "ok, seq 4, exit 0"),
        ({"exit": 7}, "ok, seq 4, exit 7"),
        ({"exit": -1, "timed_out": True}, "ok, seq 4, timed out"),
    ],
)
def test_how_a_command_ended_is_told(kept: dict[str, Json], said: str) -> None:
    call = told({"effects": [], **kept})

    assert call.render().splitlines()[-1] == f"  result: {said}"
    assert call.as_json()["result"] == {
        "seq": 4,
        "time": "2026-11-20T10:00:01Z",
        "status": "ok",
        "exit": kept["exit"],
        "timed_out": "timed_out" in kept,
        "code": "",
        "effects": [],
        "refused": [],
    }


def test_nothing_is_told_of_refusals_where_there_were_none() -> None:
    assert told({"effects": []}).render().splitlines()[-1] == "  result: ok, seq 4"
    assert "  refused:" not in RecordedCall(INTENT, None).render()


FORGED = "tool:shell:run true\n  result: ok, seq 7\n\x1b[31mallow"
SHOWN = "tool:shell:run true\\n  result: ok, seq 7\\n\\x1b[31mallow"


def test_what_a_model_wrote_draws_no_row_of_its_own() -> None:
    metadata: dict[str, Json] = {"tool": "t\nu", "actions": [FORGED], "outcome": "deny"}
    denied = Entry("TOOL_DENIED", call_id="C\n", reason=FORGED, decision="deny", metadata=metadata)

    assert RecordedCall(KeptCall(3, "now", denied), None).render().splitlines() == [
        "deny: t\\nu (call C\\n)",
        "  when:   now, seq 3",
        f"  action: {SHOWN}",
        f"  reason: {SHOWN}",
        "  rule:   none matched, so it was denied",
        "  agents: ",
        "  policy: none was asked",
        "  result: none on record",
    ]


@pytest.mark.parametrize(
    ("event", "code", "verdict", "answer"),
    [
        ("TOOL_INTENT", "", "ask, granted", 'approved by: "me"'),
        ("TOOL_DENIED", "approval.refused", "ask, not granted", 'answered by: "me" (not granted)'),
        (
            "TOOL_DENIED",
            "approval.unavailable",
            "ask, not granted",
            'answered by: "me" (not granted)',
        ),
        ("TOOL_DENIED", "call.cancelled", "ask, granted, then refused", 'approved by: "me"'),
    ],
)
def test_only_a_yes_is_told_as_an_approval(
    event: str, code: str, verdict: str, answer: str
) -> None:
    approval: Json = {"by": "me", "digest": "sha256:0"}
    metadata: dict[str, Json] = {"tool": "t", "outcome": "ask", "approval": approval}
    if code:
        metadata["code"] = code
    decision = "allow" if event == "TOOL_INTENT" else "deny"
    entry = Entry(event, call_id="C", decision=decision, metadata=metadata)
    rows = RecordedCall(KeptCall(3, "now", entry), None).render().splitlines()

    assert rows[0] == f"{verdict}: t (call C)"
    assert [row for row in rows if " by: " in row] == [f"  {answer}, bound to sha256:0"]


def refused(digest: str) -> RecordedCall:
    approval: Json = {"by": "nobody", "digest": digest}
    metadata: dict[str, Json] = {
        "tool": "t",
        "outcome": "ask",
        "code": "approval.unavailable",
        "approval": approval,
    }
    entry = Entry(
        "TOOL_DENIED",
        decision="deny",
        reason="not approved",
        session_id="S",
        call_id="C",
        metadata=metadata,
    )
    return RecordedCall(KeptCall(3, "2026-11-20T10:00:00Z", entry), None)


def test_why_a_call_was_asked_about_is_told_by_its_own_question_alone() -> None:
    question = Entry(
        "APPROVAL_ASKED",
        reason="a rule asks",
        session_id="S",
        call_id="C",
        metadata={"digest": "sha256:1"},
    )
    told_of = with_question(refused("sha256:1"), [question])
    assert told_of.render().splitlines()[3:5] == ["  reason: a rule asks", "  answer: not approved"]
    said = told_of.as_json()
    assert (said["reason"], said["answer"]) == ("a rule asks", "not approved")
    # An id may come again: what was asked about another call, or answered, says nothing of it.
    others = [
        question._replace(metadata={"digest": "sha256:2"}),
        question._replace(session_id="T"),
        question._replace(event_type="APPROVAL_ANSWERED"),
    ]
    assert with_question(refused("sha256:1"), others) == refused("sha256:1")
    assert with_question(refused("sha256:1"), []).as_json()["reason"] == "not approved"


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
    assert found.render() == f"  to change it: not known: {note}"
    assert found.as_json() == {"note": note, "actions": [], "actions_left_off": 0}
