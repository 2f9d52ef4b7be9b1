"""Recorded calls decided again: what changes, what cannot be told, and how it is grouped."""

from typing import Any

import pytest

from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.compare import (
    NO_PARENT,
    DifferenceKind,
    Policies,
    decide_each,
    replay,
)
from paddock.policy.questions.record import (
    Lost,
    PastDecision,
    Recorded,
    RecordedDoor,
    Why,
    read_recorded,
)
from paddock.values.decisions import Action, Agent, Outcome, Permissions, RuleMatch
from paddock.values.entries import Entry
from tests.support.policies import OnePolicy

TIME = "2026-01-31T00:00:00.000000Z"
MAIN = {"name": "main", "profile": "standard"}


def policy(text: str) -> Policy:
    return load_policy(PolicySource("new.toml", text.encode()))


NEW = policy("""[profiles.standard]
allow = ["tool:file:view", "tool:shell:run git status"]
ask = ["tool:file:create src/**"]
deny = ["tool:shell:run git push *"]
""")


def entry(
    *actions: str,
    event: str = "TOOL_INTENT",
    outcome: str | None = "allow",
    reason: str = "",
    **metadata: Any,
) -> Entry:
    known: dict[str, Any] = {
        "tool": "some_tool",
        "arguments": {},
        "actions": list(actions),
        "outcome": outcome,
        "rule": {"text": "tool:file:*", "file": "built-in", "line": 0},
        "source": "profiles.standard.allow",
        "policy_digest": "sha256:0",
        "agents": [MAIN],
    }
    kept = {name: value for name, value in (known | metadata).items() if value is not None}
    return Entry(
        event, reason=reason, session_id="SES-1", agent="main", call_id="CALL-1", metadata=kept
    )


def asked_by_hook(line: str, text: str, because: str = "{text}") -> Entry:
    """A question of the hook, as an entry has had it since the first version."""
    return entry(
        f"tool:shell:run {line}",
        event="HOOK_DECISION",
        outcome="ask",
        source="built-in",
        rule={"text": text, "file": "built-in", "line": 0},
        reason=because.format(text=text),
    )


BEFORE_NOVEMBER_30 = "a shell runs what stands on its input"
"""What is now said as `a shell runs its input`."""
SO = '{text}, so "tool:shell:run git push *" (paddock.toml:3) could match'


def read(found: Entry, seq: int = 1) -> PastDecision | Lost:
    past = read_recorded(seq, TIME, found)
    assert past is not None
    return past


def test_an_entry_is_read_as_it_was_decided() -> None:
    assert read(entry("tool:file:create docs/a b.md")) == PastDecision(
        where=Recorded(1, TIME, "SES-1", "CALL-1", "main", "some_tool"),
        door=RecordedDoor.TOOL,
        actions=(Action("file", "create", "docs/a b.md"),),
        chain=(Agent("main", "standard"),),
        outcome=Outcome.ALLOW,
        rule=RuleMatch(Outcome.ALLOW, "tool:file:*", "profiles.standard.allow", "built-in", 0),
        policy_digest="sha256:0",
    )


def test_the_agents_own_permissions_are_read_and_a_list_that_is_none_is_not_everything() -> None:
    lists = {"read": ["**"], "write": ["docs/**"], "forbidden": ["x"]}
    past = read(entry("tool:file:view a", agents=[{**MAIN, "permissions": lists}]))
    assert isinstance(past, PastDecision)
    assert past.chain[0].permissions == Permissions(("**",), ("docs/**",), ("x",))
    for broken in ({}, {"read": ["**"], "write": "x", "forbidden": []}, []):
        lost = read(entry("tool:file:view a", agents=[{**MAIN, "permissions": broken}]))
        assert isinstance(lost, Lost)
        assert lost.why is Why.INCOMPLETE


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (entry("tool:file:view a", event="TOOL_DENIED", outcome=None, code="args.x"), "undecided"),
        (entry(outcome="allow"), "incomplete"),
        (entry("tool:file:view a", outcome="maybe"), "incomplete"),
        (entry("tool:file:explode a"), "incomplete"),
        (entry("nonsense"), "incomplete"),
        (entry("tool:file:view ../a"), "incomplete"),
        (entry("tool:file:view a", agents=[]), "incomplete"),
        (entry("tool:file:view a", agents=None), "incomplete"),
        (entry("undo CALL-2", source="operator"), "person"),
        (entry("tool:file:view a", event="HOOK_DECISION", source="hook.paranoid"), "hook"),
        (entry("tool:file:view a", event="HOOK_DECISION", code="path.escapes_root"), "boundary"),
        (entry("tool:file:view /etc/passwd", event="HOOK_DECISION"), "outside"),
        (entry("tool:file:view a… (3 more characters)", event="HOOK_DECISION"), "cut"),
        (entry("tool:file:view a", "7 more actions", event="HOOK_DECISION"), "cut"),
        (entry("tool:file:view a", "7 more actions"), "cut"),
        (entry("tool:file:view a", "7 more actions", event="TOOL_DENIED", outcome="deny"), "cut"),
        (entry("tool:file:view a\\ud800", event="HOOK_DECISION"), "cut"),
        (
            entry(
                "tool:shell:run cd x",
                event="HOOK_DECISION",
                outcome="ask",
                source="built-in",
                rule={"text": "only the hook knows this", "file": "built-in", "line": 0},
            ),
            "hook",
        ),
    ],
)
def test_what_cannot_be_decided_again_says_why(found: Entry, why: str) -> None:
    lost = read(found)
    assert isinstance(lost, Lost)
    assert lost.why.value == why


@pytest.mark.parametrize("because", [SO, "{text}"], ids=["with its rule", "alone, as at first"])
def test_a_question_of_policy_in_words_of_before_is_decided_again(because: str) -> None:
    past = read(asked_by_hook("cat build.sh | bash", BEFORE_NOVEMBER_30, because))
    guarded = '[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:shell:run git push *"]\n'
    report = replay([past], OnePolicy(policy(guarded)))
    assert (report.decided, report.unchanged, report.lost_calls) == (1, 1, 0)


def test_a_question_of_policy_is_known_by_no_words_at_all() -> None:
    past = read(asked_by_hook("./start git push", "words that nobody says now", SO))
    assert isinstance(past, PastDecision)


def test_a_question_of_the_hooks_own_is_not_decided_again_whatever_its_words() -> None:
    text = "a variable's value is only known at run time"
    said = entry(
        "tool:shell:run rm $x",
        "tool:file:delete $x",
        event="HOOK_DECISION",
        outcome="ask",
        source="hook.line",
        rule={"text": text, "file": "built-in", "line": 0},
        reason=text,
    )
    lost = read(said)
    assert isinstance(lost, Lost)
    assert lost.why is Why.HOOK


def test_an_entry_that_decides_about_no_call_is_none() -> None:
    assert read_recorded(1, TIME, Entry("TOOL_RESULT")) is None


def test_changes_are_grouped_by_agent_and_rules_with_the_newest_examples() -> None:
    calls = [read(entry(f"tool:file:create src/{n}.py"), n) for n in range(9, 4, -1)]
    report = replay([*calls, read(entry("tool:file:view README.md"))], OnePolicy(NEW))
    (group,) = report.groups
    assert (report.decided, report.unchanged, report.lost_calls) == (6, 1, 0)
    assert (group.kind, group.agent, group.calls) == (DifferenceKind.ASKED, "main", 5)
    assert [example.where.seq for example in group.examples] == [9, 8, 7]
    assert group.now_rule is not None
    assert (group.now_rule.text, group.now_rule.line) == ("tool:file:create src/**", 3)
    assert "newly asked: agent main, 5 calls" in report.render()
    assert "… and 2 more" in report.render()


@pytest.mark.parametrize(
    ("action", "outcome", "kind"),
    [
        ("tool:shell:run git push origin", "ask", DifferenceKind.DENIED),
        ("tool:shell:run git status", "ask", DifferenceKind.ALLOWED),
        ("tool:shell:run git status", "deny", DifferenceKind.ALLOWED),
        ("tool:file:create src/a.py", "deny", DifferenceKind.ASKED),
        ("tool:file:delete a", "allow", DifferenceKind.DENIED),
    ],
)
def test_each_way_in_which_an_answer_changes_is_a_group_of_its_own(
    action: str, outcome: str, kind: DifferenceKind
) -> None:
    report = replay([read(entry(action, outcome=outcome))], OnePolicy(NEW))
    assert [group.kind for group in report.groups] == [kind]
    assert report.as_json()[kind.value.replace(" ", "_")] == 1


def test_an_example_with_line_breaks_draws_no_group_of_its_own() -> None:
    forged = (
        "tool:shell:run git push\n\nnewly allowed: agent main, 500 calls\n  was: deny by forged"
    )
    report = replay([read(entry(forged, outcome="ask"))], OnePolicy(NEW))
    rows = report.render().splitlines()

    assert [row for row in rows if row.startswith("newly ")] == ["newly denied: agent main, 1 call"]
    shown = forged.replace("\n", "\\n")
    assert rows[-1] == f"  {TIME}  CALL-1 (seq 1)  {shown}"


def test_a_difference_under_the_very_same_policy_is_no_change_but_lost() -> None:
    found = entry("tool:file:delete a", policy_digest=NEW.digest)
    report = replay([read(found)], OnePolicy(NEW))
    assert (report.decided, report.groups) == (0, [])
    assert [lost.why for lost in report.lost] == [Why.OTHERWISE]


class Nobody(Policies):
    def policy_for(self, agent: str) -> Policy | None:
        del agent
        return None

    def is_whole(self, past: PastDecision) -> bool:
        raise AssertionError(past)


class WithoutParents(OnePolicy, frozen=True):
    """Of a record in which an agent stands without its parent."""

    def is_whole(self, past: PastDecision) -> bool:
        return len(past.chain) > 1


def test_a_call_of_an_agent_that_is_gone_is_lost_not_guessed() -> None:
    report = replay([read(entry("tool:file:view a"))], Nobody())
    assert (report.decided, [lost.why for lost in report.lost]) == (0, [Why.WORKSPACE])


EXPLORE = {"name": "Explore", "profile": "standard"}


@pytest.mark.parametrize(
    ("agents", "now"),
    [
        ("", Outcome.ALLOW),
        ('[agents."Explore"]\nprofile = "open"', Outcome.ALLOW),
        ('[agents."Explore"]\nprofile = "locked"', Outcome.DENY),
        ('[agents."Other"]\nprofile = "locked"', Outcome.ALLOW),
        ('[agents."main"]\nprofile = "locked"', Outcome.DENY),
    ],
)
def test_a_kind_of_agent_is_held_to_what_the_policy_that_is_asked_gives_it(
    agents: str, now: Outcome
) -> None:
    found = read(entry("tool:file:create a", event="HOOK_DECISION", agents=[EXPLORE, MAIN]))
    assert isinstance(found, PastDecision)
    assert found.chain == (Agent("Explore", "standard"), Agent("main", "standard"))
    report = replay([found], OnePolicy(policy(agents)))
    assert report.decided == 1
    assert [group.now for group in report.groups] == [now] * (now is not found.outcome)


def test_a_call_of_an_agent_whose_parent_is_not_on_record_is_lost_not_guessed() -> None:
    calls = [
        read(entry("tool:file:create a", event="HOOK_DECISION", agents=agents))
        for agents in ([EXPLORE], [EXPLORE, MAIN])
    ]
    report = replay(calls, WithoutParents(policy("")))
    assert (report.decided, report.unchanged) == (1, 1)
    assert [(lost.why, lost.detail, lost.calls) for lost in report.lost] == [
        (Why.INCOMPLETE, NO_PARENT, 1)
    ]


def test_what_a_command_writes_is_judged_as_a_commands_write() -> None:
    found = entry("tool:shell:run npm install", "tool:file:create yarn.lock", outcome="ask")
    allowing = policy('[profiles.standard]\nallow = ["tool:shell:*", "tool:file:*"]')
    assert [g.kind for g in replay([read(found)], OnePolicy(allowing)).groups] == [
        DifferenceKind.ALLOWED
    ]
    by_tool = entry("tool:file:create yarn.lock", outcome="allow")
    assert [g.kind for g in replay([read(by_tool)], OnePolicy(allowing)).groups] == [
        DifferenceKind.DENIED
    ]


def test_a_line_that_ran_elsewhere_is_decided_again_from_there() -> None:
    line, write = "tool:shell:run echo x > ../src/a", "tool:file:create src/a"
    allowing = policy('[profiles.standard]\nallow = ["tool:shell:*", "tool:file:*"]\n')
    found = read(entry(line, write, policy_digest=allowing.digest))
    assert replay([found], OnePolicy(allowing)).unchanged == 1
    assert isinstance(found, PastDecision)
    assert [each.outcome for each in decide_each(allowing, found)] == [Outcome.ALLOW] * 2
    at_root = read(entry(line, policy_digest=allowing.digest))
    assert isinstance(at_root, PastDecision)
    assert [each.outcome for each in decide_each(allowing, at_root)] == [Outcome.DENY]


def test_the_hooks_lines_are_judged_without_the_writes_that_it_names_itself() -> None:
    allowing = policy('[profiles.standard]\nallow = ["tool:shell:*", "tool:file:*"]')
    line = "tool:shell:run pushd docs && echo x > ../a.md"
    found = entry(line, "tool:file:create a.md", event="HOOK_DECISION")
    assert replay([read(found)], OnePolicy(allowing)).unchanged == 1
    # From the root the same redirection would leave the workspace.
    denied = replay([read(entry(line))], OnePolicy(allowing))
    assert [group.kind for group in denied.groups] == [DifferenceKind.DENIED]
