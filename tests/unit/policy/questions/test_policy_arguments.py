"""Rules about arguments as people ask about them: explained, linted, replayed, compared."""

from typing import Any

import pytest

from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.compare import Diff, diff, replay
from paddock.policy.questions.explain import explain, explain_now
from paddock.policy.questions.lint import lint
from paddock.policy.questions.record import MEANINGS, PastDecision, Why, read_recorded
from paddock.policy.rules import parse_action
from paddock.values.decisions import Agent
from paddock.values.entries import Entry
from tests.support.policies import OnePolicy, chain_below

SERVER = '[mcp.servers.issues]\ncommand = ["issues"]\n'
RULE = """[profiles.p]
otherwise = { "tool:mcp:*" = "ask" }
[[profiles.p.rules]]
action = "tool:mcp:call issues/list"
outcome = "allow"
"""
LIMITED = f'{RULE}when = {{ "/limit" = {{ max = 100 }} }}\nonly = true\n'
MAIN = (Agent("main", "p"),)


def policy(text: str) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode()))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"limit": 500}', 'its "/limit" = { max = 100 } does not hold: it is 500'),
        (
            '{"limit": "5"}',
            'its "/limit" = { max = 100 } does not hold: it is "5"',
        ),
        (
            "{}",
            'its "/limit" = { max = 100 } does not hold: it is missing, or of another type',
        ),
        ('{"limit": 5, "x": 1}', "it allows no further arguments"),
    ],
)
def test_explain_tells_which_argument_keeps_a_rule_from_matching(given: str, why: str):
    found = explain(policy(LIMITED), MAIN, parse_action(f"tool:mcp:call issues/list {given}"))

    assert found.decision.outcome.word == "ask"
    assert [(each.rule.line, each.why) for each in found.near_misses] == [(4, why)]


def test_explain_of_what_is_allowed_names_the_rule():
    action = parse_action('tool:mcp:call issues/list {"limit": 5}')
    found = explain(policy(LIMITED), MAIN, action)

    assert found.decision.rule is not None
    assert (found.decision.rule.place, found.near_misses) == ("paddock.toml:4", ())


def entry(arguments: dict[str, Any], outcome: str = "allow") -> Entry:
    metadata = {
        "tool": "issues__list",
        "arguments": arguments,
        "actions": ["tool:mcp:call issues/list"],
        "outcome": outcome,
        "rule": None,
        "source": "no rule",
        "policy_digest": "sha256:0",
        "agents": [{"name": "main", "profile": "p"}],
    }
    return Entry("TOOL_INTENT", session_id="S", agent="main", call_id="C", metadata=metadata)


def past(arguments: dict[str, Any]) -> PastDecision:
    found = read_recorded(1, "2026-01-31T00:00:00.000000Z", entry(arguments))
    assert isinstance(found, PastDecision)
    return found


def test_replay_decides_by_the_arguments_of_the_record():
    calls = [past({"limit": 5}), past({"limit": 500}), past({})]

    report = replay(calls, OnePolicy(policy(LIMITED)))
    assert (report.decided, report.unchanged, report.lost) == (3, 1, [])
    assert [(group.kind.value, group.calls) for group in report.groups] == [("newly asked", 2)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": {"redacted": True}},
        {"list": [{"a": {"salted_sha256": "0", "salt": "0", "bytes": 1}}]},
        {"…": {"salted_sha256": "0", "bytes": 1}},
    ],
)
def test_a_call_whose_arguments_are_not_kept_whole_is_not_replayed_where_a_rule_looks_at_them(
    arguments: dict[str, Any],
):
    report = replay([past(arguments)], OnePolicy(policy(LIMITED)))
    assert [(each.why, each.detail) for each in report.lost] == [
        (Why.CUT, "the record does not keep its arguments completely")
    ]
    now = explain_now(past(arguments), policy(LIMITED))
    assert now.note != ""

    assert replay([past(arguments)], OnePolicy(policy(RULE))).unchanged == 1


def test_what_the_record_lacks_is_said_of_the_policy_that_decided():
    given = past({"limit": {"redacted": True}})
    decided = policy(LIMITED)
    same = PastDecision(
        given.where, given.door, given.actions, given.chain, given.outcome, None, decided.digest
    )

    assert explain_now(same, decided).note == MEANINGS[Why.CUT]


def compared(old: str, new: str) -> Diff:
    return diff(policy(old), policy(new), lambda name: chain_below("p", name))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"/limit" = { max = 100 }', '"/limit" = { max = 101 }'),
        ('"/limit" = { max = 100 }', '"/limit" = { min = 1, max = 100 }'),
        ('"/state" = { in = ["open"] }', '"/state" = { in = ["open", "closed"] }'),
        ('"/path" = { path = "docs/**" }', '"/path" = { path = "docs/*.md" }'),
        ('"/title" = { glob = "a*" }', '"/title" = { glob = "a?" }'),
        ('"/a/b" = { max = 1 }', '"/a/c" = { max = 1 }'),
    ],
)
def test_diff_finds_a_call_for_a_condition_that_differs(old: str, new: str):
    report = compared(f"{RULE}when = {{ {old} }}\n", f"{RULE}when = {{ {new} }}\n")

    assert report.witnesses != []
    for each in report.witnesses:
        assert each.action.arguments != ""
        assert each.old.outcome is not each.new.outcome
    assert str(report.witnesses[0].action.arguments) in report.render()


def test_diff_finds_that_further_arguments_are_allowed():
    free = f'{RULE}when = {{ "/limit" = {{ max = 100 }} }}\n'
    (witness,) = compared(LIMITED, free).witnesses

    assert (witness.old.outcome.word, witness.new.outcome.word) == ("ask", "allow")
    assert '"example"' in witness.action.arguments


def test_diff_tells_of_a_server_and_never_of_what_its_variables_hold():
    new = '[mcp.servers.issues]\ncommand = ["other"]\nenv = { TOKEN = "hunter2" }\n'
    (change,) = compared(SERVER, new).differences.settings

    assert (change.key, change.old, change.new) == (
        "mcp.servers.issues",
        "runs issues; reaches nothing; sees no file of the workspace",
        "runs other; reaches nothing; sees no file of the workspace",
    )


def test_policies_alike_in_their_conditions_are_alike():
    assert not compared(LIMITED, LIMITED).differences.can_decide


def codes(text: str) -> list[tuple[str, int]]:
    return [(each.code, each.place.line) for each in lint(policy(text))]


def test_lint_finds_a_rule_for_a_server_that_policy_does_not_have():
    assert codes(LIMITED) == [("lint.mcp_server", 4)]
    assert codes(LIMITED + SERVER) == []
    assert codes(LIMITED.replace("issues/list", "iss*/list")) == []
    assert codes(LIMITED.replace("issues/list", "mcp__issues__list")) == []


def test_lint_knows_the_servers_of_a_file_that_is_not_trusted_yet():
    rule = '[profiles.standard]\nextends = "standard"\nask = ["tool:mcp:call issues/*"]\n'

    def found(text: str) -> list[str]:
        untrusted = load_policy(PolicySource("p.toml", text.encode(), trusted=False))
        return [each.code for each in lint(untrusted)]

    assert found(rule + SERVER) == []
    assert found(rule) == ["lint.mcp_server"]


def test_lint_finds_a_credential_that_the_user_does_not_have():
    given = f'{SERVER}env = {{ A = "credential:issues", B = "plain" }}\n'
    assert codes(given) == [("lint.mcp_credential", 3)]

    user = '[credentials.issues]\nfrom = { env = "I" }\nvariable = "I"\nhosts = ["a.example"]\n'
    both = load_policy(
        PolicySource("paddock.toml", given.encode()), PolicySource("config.toml", user.encode())
    )
    assert lint(both) == ()


def test_a_rule_with_a_condition_covers_no_rule_and_an_unconditional_one_does():
    weak = '[profiles.p]\nallow = ["tool:mcp:call issues/list"]\n[[profiles.p.rules]]\n'
    rule = 'action = "tool:mcp:call issues/*"\noutcome = "deny"\n'

    assert codes(SERVER + weak + rule) == [("lint.rule_covered", 4)]
    assert codes(f"{SERVER}{weak}{rule}when = {{ a = {{ max = 1 }} }}\n") == []


def test_what_is_proposed_for_a_condition_that_denies_is_tried():
    text = RULE + '[[profiles.p.rules]]\naction = "tool:mcp:call issues/*"\noutcome = "deny"\n'
    given = policy(text + 'when = { "/repo" = { in = ["private"] } }\n')
    action = parse_action('tool:mcp:call issues/list {"repo": "private"}')
    assert decide(given, MAIN, [action]).outcome.word == "deny"

    (change,) = explain(given, MAIN, action).changes
    assert change.outcome is not None
    assert change.word == "allow"
