"""Witness calls: found where two policies differ, and honest where none was found."""

from functools import partial

import pytest

from paddock.errors import UsageError
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.presets import CLIENT_TOOLS
from paddock.policy.questions.compare import Diff, diff
from paddock.policy.rules import parse_action
from paddock.values.decisions import Action, Agent, AgentChain
from tests.support.policies import chain_below

BASE = """[profiles.standard]
allow = ["tool:file:*", "tool:shell:run git status", "tool:shell:run git diff *"]
deny = ["tool:shell:run git push *"]
otherwise = { "tool:shell:*" = "ask" }
"""


def policy(text: str, name: str = "paddock.toml", trusted: bool = True) -> Policy:
    return load_policy(PolicySource(name, text.encode(), trusted))


def told(old: Policy, new: Policy) -> Diff:
    """Of a project whose agent of the client's own thread is `standard`, and stands alone."""
    return diff(old, new, partial(chain_below, "standard"))


def compared(new: str, old: str = BASE) -> Diff:
    return told(policy(old, "old.toml"), policy(new, "new.toml"))


def found(report: Diff) -> set[tuple[str, str, str]]:
    return {
        (str(each.action), each.old.outcome.word, each.new.outcome.word)
        for each in report.witnesses
    }


@pytest.mark.parametrize(
    ("new", "witness"),
    [
        (
            BASE.replace('deny = ["tool:shell:run git push *"]', ""),
            ("tool:shell:run git push", "deny", "ask"),
        ),
        (
            BASE.replace("git push *", 'git push *", "tool:file:create db/**'),
            ("tool:file:create db/example", "allow", "deny"),
        ),
        (
            BASE.replace("git status", "git log"),
            ("tool:shell:run git log", "ask", "allow"),
        ),
        (
            BASE + '[paths]\ngenerated = ["built/"]\n',
            ("tool:file:create built", "allow", "deny"),
        ),
        (
            BASE.replace('"ask" }', '"ask", "tool:mcp:*" = "ask" }'),
            ("tool:mcp:call mcp__example", "deny", "ask"),
        ),
        (
            BASE + '[agents."Explore"]\nprofile = "locked"\n',
            ("tool:file:create example", "allow", "deny"),
        ),
    ],
)
def test_a_change_that_decides_has_its_witness(new: str, witness: tuple[str, str, str]) -> None:
    assert witness in found(compared(new))


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("make *", "make"),
        ("scripts/run.sh *", "scripts/run.sh"),
        ("./run.sh *", "./run.sh"),
        (".venv/bin/python -m pytest *", ".venv/bin/python -m pytest"),
        ("python -m pytest tests/*", "python -m pytest tests/"),
        ("echo 'two words' *", "echo 'two words'"),
        ("*", "example"),
    ],
)
def test_a_rule_for_a_command_has_an_example_however_it_is_written(rule: str, line: str) -> None:
    new = BASE.replace("git diff *", f'git diff *", "tool:shell:run {rule}')
    report = compared(new)
    assert (f"tool:shell:run {line}", "ask", "allow") in found(report)
    assert report.unseen == ()
    # A rule that allows nothing, since another one denies it, has none to show.
    denied = compared(new.replace("git push *", rule), BASE.replace("git push *", rule))
    assert (denied.witnesses, [item.says for item in denied.unseen]) == ([], ["allow"])


def test_a_witness_may_need_two_patterns_that_meet() -> None:
    old = '[profiles.p]\nallow = ["tool:file:view /src/**"]\ndeny = ["tool:file:view *.py"]\n'
    report = compared(old.replace('deny = ["tool:file:view *.py"]\n', ""), old)
    assert ("tool:file:view src/example.py", "deny", "allow") in found(report)


def test_examples_of_rules_and_recorded_calls_are_tried_too() -> None:
    odd = "git fetch --all --prune"
    rule = f'[[profiles.standard.rules]]\naction = "tool:shell:run git fetch *"\noutcome = "deny"\nmatch = ["tool:shell:run {odd}"]\n'
    example = compared(BASE + rule)
    assert f"tool:shell:run {odd}" in {str(c) for each in example.witnesses for c in each.calls}
    call = Action("file", "create", "a/b/c.md")
    old, new = (
        policy(BASE),
        policy(BASE.replace("git push *", 'git push *", "tool:file:create a/*/c.md')),
    )
    chain_of = partial(chain_below, "standard")
    tried = diff(old, new, chain_of, [call, Action("file", "view", "x")])
    assert any(call in each.calls for each in tried.witnesses)


def test_a_list_in_which_order_counts_is_looked_at_whole() -> None:
    old = BASE + '[paths]\nprotected = ["conf/*", "!conf/open"]\n'
    new = BASE + '[paths]\nprotected = ["!conf/open", "conf/*"]\n'
    assert ("tool:file:create conf/open", "allow", "deny") in found(compared(new, old))


def test_policies_with_the_same_items_are_said_to_be_alike_and_nothing_is_tried() -> None:
    report = compared(f"# a comment\n{BASE}")
    assert (report.tried, report.witnesses) == (0, [])
    assert "every call has the same answer" in report.conclusion


def test_a_change_without_effect_finds_none_and_says_what_that_does_not_prove() -> None:
    new = BASE.replace("git push *", 'git push *", "tool:shell:run git push origin')
    report = compared(new)
    assert report.witnesses == []
    assert [item.text for item in report.unseen] == ["tool:shell:run git push origin"]
    assert report.render().split("\n")[:2] == [
        "differs, and no example was found for it:",
        "  deny tool:shell:run git push origin (new.toml:3)",
    ]
    assert report.conclusion.startswith("no example was found: ")
    assert "This is not a proof" in report.conclusion
    assert report.tried > 0


def test_settings_that_no_decision_shows_are_listed() -> None:
    report = compared(BASE + '[shell]\nnetwork = "host"\n[hook]\nparanoid = true\n')
    shown = [(change.key, change.old, change.new) for change in report.differences.settings]
    assert shown == [("shell.network", "policy", "host"), ("hook.paranoid", "False", "True")]


NET = '[profiles.p]\nallow = ["tool:net:connect {}"]\n'


@pytest.mark.parametrize(
    ("old", "new", "witness"),
    [
        ("example.org", "example.org:22", ("tool:net:connect example.org:22", "deny", "allow")),
        ("*.test:443", "a.test:443", ("tool:net:connect a.example.test:443", "allow", "deny")),
        ("10.0.0.0/8:1", "11.0.0.0/8:1", ("tool:net:connect 11.0.0.0:1", "deny", "allow")),
        ("*", "example.org", ("tool:net:connect a.example:80", "allow", "deny")),
    ],
)
def test_a_rule_for_the_network_that_changes_has_its_connection(old, new, witness) -> None:
    assert witness in found(compared(NET.format(new), NET.format(old)))


def test_a_rule_for_requests_that_changes_has_its_request() -> None:
    old, new = (
        f'[profiles.p]\nallow = ["tool:net:request GET api.test/{path}"]\n' for path in ("a", "b/*")
    )

    assert found(compared(new, old)) == {
        ("tool:net:request GET api.test:443/a", "allow", "deny"),
        ("tool:net:request GET api.test:443/b/x", "deny", "allow"),
    }


def test_where_a_name_may_lead_is_a_difference_without_a_call() -> None:
    rule = '[[profiles.p.rules]]\naction = "tool:net:connect a.test"\noutcome = "allow"\n'

    report = compared(f'{rule}addresses = ["10.0.0.0/8"]\n', rule)

    assert [item.says for item in report.unseen] == ["allow", "allow+10.0.0.0/8"]
    assert not report.as_json()["alike"]


PROTECTED = '[paths]\nprotected = [".git/", "*.pem", "/db/"]\n'


def rows(report: Diff) -> list[list[str]]:
    """The rows of the text without its conclusion."""
    return [row.split("\n") for row in report.render().split("\n\n")[:-1]]


def test_what_differs_in_the_profile_alone_is_one_row_that_names_the_profiles() -> None:
    report = compared(PROTECTED, "")
    said = [row[0].partition(",")[0] for row in rows(report)]
    assert said == [
        "newly denied (allow → deny): tool:file:create db",
        "newly denied (allow → deny): tool:output:write db",
        "newly denied (allow → deny): tool:shell:run echo x > db",
        "newly denied (confine → deny): tool:shell:run echo x > db",
    ]
    assert rows(report)[0][1:] == [
        "  old: tool:* (profiles.open.allow, built-in), and 2 other rules",
        "  new: /db/ (paths.protected, new.toml:2)",
        "  for: profile open, profile standard, profile admin",
    ]
    # JSON keeps a witness for each rule that decided before.
    assert len(report.witnesses) == 10
    back = [row[0].partition(",")[0] for row in rows(compared("", PROTECTED))]
    assert back == [
        "newly confined (deny → confine): tool:shell:run echo x > db",
        "newly allowed (deny → allow): tool:file:create db",
        "newly allowed (deny → allow): tool:output:write db",
        "newly allowed (deny → allow): tool:shell:run echo x > db",
    ]


NOTHING = '[profiles.nothing]\ndeny = ["tool:*"]\n'
DOCS = '[profiles.docs-only]\nallow = ["tool:file:view docs/**"]\n'
NAMES = '[profiles.names]\nallow = ["tool:file:view *.md"]\n'


def bound(**profiles: str) -> str:
    given = (f'[agents."{name}"]\nprofile = "{profile}"\n' for name, profile in profiles.items())
    return NOTHING + DOCS + NAMES + "".join(given)


@pytest.mark.parametrize(
    ("old", "new", "witness"),
    [
        (bound(), bound(Explore="locked"), ("tool:mcp:call mcp__example", "ask", "deny")),
        (bound(Explore="locked"), bound(), ("tool:file:create example", "deny", "allow")),
        (
            bound(Explore="nothing"),
            bound(Explore="locked"),
            ("tool:file:view example", "deny", "allow"),
        ),
        (
            bound(main="docs-only", Explore="nothing"),
            bound(main="docs-only", Explore="names"),
            ("tool:file:view docs/example.md", "deny", "allow"),
        ),
    ],
)
def test_a_binding_is_tried_for_the_agent_with_its_parent(
    old: str, new: str, witness: tuple[str, str, str]
) -> None:
    report = compared(new, old)
    assert witness in found(report)
    for each in report.witnesses:
        assert each.agents == ["agent Explore"]
        chain = chain_below("standard", "Explore")
        pair = (policy(old, "old.toml"), policy(new, "new.toml"))
        assert tuple(decide(side, chain, [each.action]) for side in pair) == (each.old, each.new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (bound(), bound(Explore="open")),
        (bound(main="docs-only"), bound(main="docs-only", Explore="locked")),
        (bound(main="nothing", Explore="open"), bound(main="nothing")),
    ],
)
def test_what_a_parent_denies_no_binding_of_its_child_is_an_example_of(old: str, new: str) -> None:
    report = compared(new, old)
    assert report.witnesses == []
    assert report.tried > 0
    assert report.conclusion.startswith("no example was found")


def test_what_the_parent_may_not_be_found_out_of_stops_the_question() -> None:
    def nobody(name: str) -> AgentChain:
        raise UsageError(f"there is no agent {name}")

    changed = policy(bound(Explore="locked"))
    with pytest.raises(UsageError, match="there is no agent Explore"):
        diff(policy(""), changed, nobody)
    # It is asked for nobody where no binding differs.
    assert diff(changed, changed, nobody).conclusion.startswith("the policies decide alike")


def test_every_call_and_agent_of_a_row_is_really_answered_so() -> None:
    new = (
        PROTECTED + '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete **"]\n'
    )
    before, after = policy("", "old.toml"), policy(new, "new.toml")
    differing = rows(told(before, after))
    assert differing != []
    for row in differing:
        said, _, calls = row[0].partition(": ")
        said = said.partition("(")[2].rstrip(")") or said
        words = [word.removesuffix(", warned") for word in said.split(" → ")]
        for call in calls.split(", and ")[0].split(", "):
            for title in row[-1].removeprefix("  for: ").split(", "):
                agent = (Agent("somebody", title.removeprefix("profile ")),)
                action = parse_action(call)
                found = [decide(each, agent, [action]).outcome.word for each in (before, after)]
                assert found == words, row


def test_rules_of_a_persons_own_are_a_row_each_and_those_built_in_are_one() -> None:
    new = BASE.replace("git push *", 'git push *",\n"tool:file:view a",\n"tool:file:view b')
    assert [row[2] for row in rows(compared(new))] == [
        "  new: tool:file:view a (profiles.standard.deny, new.toml:4)",
        "  new: tool:file:view b (profiles.standard.deny, new.toml:5)",
    ]
    (row,) = (row for row in rows(compared(BASE, "")) if "tool:client:Agent" in row[0])
    assert row[0].startswith(
        "newly denied (allow → deny): tool:client:Agent, tool:memory:create /memories/example, "
        "tool:output:write example, tool:search:find example, and "
    )
    assert all(f"tool:client:{name}" in row[1] for name in CLIENT_TOOLS)
    assert row[2:] == ["  new: no rule (denied by default)", "  for: profile standard"]


def test_a_warning_alone_is_a_witness_of_its_own_kind_and_no_rule_is_named() -> None:
    report = compared('[paths]\nwarned = ["/lib/**"]\n', "")
    kinds = {(each.what, str(each.action)) for each in report.witnesses}
    assert ("warning", "tool:file:create lib/example") in kinds
    assert all(what == "warning" for what, _ in kinds)
    (row,) = (row for row in rows(report) if "tool:file:create lib/example" in row[0])
    assert row[0].startswith("allow → allow, warned: ")
    assert row[1:] == ["  for: profile open, profile standard, profile admin"]


def test_an_untrusted_file_is_compared_as_far_as_it_holds() -> None:
    text = BASE.replace("git push *", 'git push *", "tool:file:view x/**')
    report = told(policy(text, trusted=False), policy(text))
    # What an untrusted file allows and asks otherwise is not in force; what it denies is.
    assert ("tool:file:view x/example", "deny", "deny") not in found(report)
    assert ("tool:shell:run git status", "confine", "allow") in found(report)


def test_what_an_untrusted_file_does_not_name_differs_from_what_holds_without_it() -> None:
    report = told(
        policy(""), policy('[profiles.standard]\nallow = ["tool:search:*"]', trusted=False)
    )
    seen = found(report)
    assert ("tool:file:create example", "allow", "deny") in seen
    assert not any(old == new == "allow" for _, old, new in seen)
    assert [item.says for item in report.differences.added] == [
        "untrusted allow",
        "untrusted deny of all else",
    ]
    assert [item.says for item in report.unseen] == ["untrusted allow"]


def test_a_profile_without_rules_differs_from_none() -> None:
    report = compared("[profiles.reviewer]\n", "")
    assert ("tool:file:view example", "allow", "deny") in found(report)
    assert {name for each in report.witnesses for name in each.agents} == {"profile reviewer"}
    back = compared("", "[profiles.reviewer]\n")
    assert ("tool:file:view example", "deny", "allow") in found(back)
    assert compared("[profiles.reviewer]\n", "[profiles.reviewer]\n").witnesses == []


def test_patterns_of_any_length_are_compared() -> None:
    long = "a" * 3000
    report = compared(BASE.replace("git push *", f'git push *", "tool:file:create {long}*b'))
    assert [each.old.outcome.word for each in report.witnesses][:1] == ["allow"]
