"""Explanations: the rule and its place, what nearly matched, what would change it."""

import json
import tomllib

import pytest
from msgspec.structs import replace

from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.explain import Explanation, explain, find_nearly
from paddock.policy.questions.flip import ProposedChange, exact_pattern
from paddock.policy.rules import parse_action
from paddock.values.decisions import Action, Agent, Outcome, Permissions

TEXT = """[paths]
protected = [".git/", "conf/"]
[profiles.p]
allow = ["tool:file:view Docs/*.md", "tool:file:create out/**", "tool:shell:run git status",
         "tool:shell:run git diff *", "tool:mcp:call mcp__toy__Add"]
ask = ["tool:file:create out/asked"]
deny = ["tool:file:create out/denied", "tool:shell:run git push *"]
"""


def policy(text: str = TEXT, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


POLICY = policy()


def explained(text: str, profile: str = "p", decided: Policy = POLICY) -> Explanation:
    return explain(decided, (Agent("main", profile),), parse_action(text))


def test_the_explanation_holds_the_decision_itself() -> None:
    chain = (Agent("main", "p"), Agent("boss", "open"))
    action = Action("file", "create", "out/denied")
    explanation = explain(POLICY, chain, action)
    assert explanation.decision == decide(POLICY, chain, (action,))
    assert (explanation.agents, explanation.profiles) == (("main", "boss"), ("p", "open"))


def test_a_denying_rule_is_proposed_for_removal_and_the_proposal_was_tried() -> None:
    assert explained("tool:file:create out/denied").changes == (
        ProposedChange(
            'remove "tool:file:create out/denied" from profiles.p.deny, paddock.toml:7',
            Outcome.ALLOW,
        ),
    )
    assert explained("tool:file:create out/asked").changes[0].outcome is Outcome.ALLOW


def test_an_exact_rule_is_proposed_where_none_matches() -> None:
    assert explained("tool:file:view README.md").changes == (
        ProposedChange(
            'add "tool:file:view /README.md" to the list allow of [profiles.p], paddock.toml:4',
            Outcome.ALLOW,
        ),
    )
    both = explained("tool:shell:run make && git push").changes
    assert both == (
        ProposedChange(
            'remove "tool:shell:run git push *" from profiles.p.deny, paddock.toml:7, '
            'add "tool:shell:run make", "tool:shell:run git push" to the list allow of '
            "[profiles.p], paddock.toml:4",
            Outcome.ALLOW,
        ),
    )


def written(text: str, change: ProposedChange) -> str:
    """The file with the change made, word for word as it is told."""
    lines = text.split("\n")
    number = int(change.text.rpartition(":")[2]) - 1
    if " to the list " in change.text:
        added = change.text.removeprefix("add ").partition(" to the list ")[0]
        lines[number] = lines[number].replace("[", f"[{added}, ", 1)
    else:
        lines.insert(number + 1, change.text.partition("`")[2].partition("`")[0])
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('allow = ["tool:file:view a"]', "to the list allow of [profiles.p], paddock.toml:2"),
        ("allow = []", "to the list allow of [profiles.p], paddock.toml:2"),
        ("# none yet\nallow = []", "to the list allow of [profiles.p], paddock.toml:3"),
        ('deny = ["tool:file:view a"]', "to [profiles.p], in paddock.toml:1"),
        ("", "to [profiles.p], in paddock.toml:1"),
    ],
)
def test_a_file_with_the_change_made_as_it_is_told_loads_and_decides_so(
    body: str, says: str
) -> None:
    text = f'[profiles.p]\n{body}\notherwise = {{ "tool:shell:*" = "ask" }}'
    for action in ("tool:file:view b", "tool:shell:run make"):
        (change,) = explained(action, "p", policy(text)).changes
        assert change.text.endswith(says)
        after = policy(written(text, change))
        assert decide(after, (Agent("main", "p"),), [parse_action(action)]).outcome is Outcome.ALLOW


@pytest.mark.parametrize("word", ["x" * 300, "'a\"b\\\\c'", "é"])
def test_the_change_shown_is_whole_and_the_one_that_was_tried(word: str) -> None:
    action = parse_action(f"tool:shell:run npm run {word}")
    (change,) = explain(load_policy(None), (Agent("main", "standard"),), action).changes
    shown = change.text.removeprefix("add `").partition("` to [profiles.standard], ")[0]
    assert tomllib.loads(shown) == {"allow": [str(action)]}
    text = f'[profiles.standard]\nextends = "standard"\n{shown}'
    tried = load_policy(PolicySource("paddock.toml", text.encode()))
    assert decide(tried, (Agent("main", "standard"),), [action]).outcome is change.outcome


def test_a_change_of_a_preset_says_that_a_profile_in_a_file_extends_it() -> None:
    (change,) = explained("tool:mcp:call mcp__x", "standard").changes
    assert change.outcome is Outcome.ALLOW
    assert change.text == (
        'add `allow = ["tool:mcp:call mcp__x"]` to [profiles.standard], in paddock.toml, with '
        '`extends = "standard"`: without it a profile in a file replaces the built-in one completely'
    )
    (denied,) = explained("tool:file:view a", "standard").changes
    assert denied.text.startswith(
        'add `deny = ["tool:file:view /a"]` to [profiles.standard], in paddock.toml, with `ext'
    )


PATHS = "no rule can lift it, since {} overrides every profile: "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "tool:file:create conf/a",
            PATHS.format("protected") + 'remove "conf/" from [paths] protected, paddock.toml:2',
        ),
        (
            "tool:file:create yarn.lock",
            PATHS.format("generated")
            + 'give generated under [paths] in paddock.toml, without "yarn.lock"',
        ),
        (
            "tool:file:view .env",
            PATHS.format("secret") + 'give secret under [paths] in paddock.toml, without ".env"',
        ),
    ],
)
def test_what_no_rule_lifts_is_said_to_be_so_with_what_does(text: str, says: str) -> None:
    assert explained(text, "open").changes == (ProposedChange(says, Outcome.ALLOW),)


def test_what_nothing_lifts_is_said_to_be_so() -> None:
    assert explained("tool:file:create paddock.toml", "open").changes == (
        ProposedChange(
            'cannot be lifted: "paddock.toml" is one of Paddock\'s own files; '
            "only operators change them"
        ),
    )


def test_every_pattern_of_every_list_that_closes_the_path_is_named() -> None:
    text = "tool:file:create .env.key"
    given = "give {} under [paths] in paddock.toml, without {}"
    assert explained(text, "standard", load_policy(None)).changes == (
        ProposedChange(
            PATHS.format("secret") + given.format("secret", '".env.*", "*.key"'), Outcome.ALLOW
        ),
    )
    # Of two lists each is told.
    both = '[paths]\nprotected = [".env.*"]\nsecret = ["*.key"]'
    first, second = (PATHS.format(name) for name in ("protected", "secret"))
    assert explained(text, "standard", policy(both)).changes == (
        ProposedChange(f'{first}remove ".env.*" from [paths] protected, paddock.toml:2'),
        ProposedChange(
            f'and besides: {second}remove "*.key" from [paths] secret, paddock.toml:3',
            Outcome.ALLOW,
        ),
    )
    lists = 'secret = []\nprotected = [".env*", "!.env.key",\n"*.key",\n".ENV.key"]'
    assert explained(text, "standard", policy(f"[paths]\n{lists}")).changes == (
        ProposedChange(
            PATHS.format("protected") + 'remove "*.key", ".ENV.key" from [paths] protected, '
            "paddock.toml:4, paddock.toml:5",
            Outcome.ALLOW,
        ),
    )


def test_no_list_is_left_that_only_takes_out_since_it_would_not_load() -> None:
    own = policy('[paths]\nsecret = ["*.pem", "!a.pem"]')
    assert explained("tool:file:view b.pem", "standard", own).changes == (
        ProposedChange(
            PATHS.format("secret") + 'remove "*.pem", "!a.pem" from [paths] secret, paddock.toml:2',
            Outcome.ALLOW,
        ),
    )


def test_what_stands_above_and_in_the_profile_are_both_named_and_tried_together() -> None:
    first, second = explained("tool:file:create conf/a").changes
    assert first.text.startswith("no rule can lift it, since protected ")
    assert second.text.startswith('and besides: add "tool:file:create conf/a" to the list allow ')
    assert (first.outcome, second.outcome) == (None, Outcome.ALLOW)


def test_what_is_to_be_changed_beside_what_no_file_lifts_claims_nothing() -> None:
    who = Agent("main", "p", permissions=Permissions(forbidden=("conf/",)), source="agent.json")
    changes = explain(POLICY, (who,), Action("file", "create", "conf/a")).changes
    assert [change.text.partition(":")[0] for change in changes] == [
        "no profile lifts it",
        "and besides",
        "and besides",
    ]
    assert all(not change.was_tried for change in changes)


def test_permissions_are_named_with_their_file() -> None:
    who = Agent("main", "open", permissions=Permissions(forbidden=("x",)), source="agent.json")
    changes = explain(POLICY, (who,), Action("file", "view", "x")).changes
    assert changes == (
        ProposedChange(
            "no profile lifts it: remove what names the path from "
            "permissions.forbidden in agent.json"
        ),
    )


def test_an_allow_is_flipped_by_a_deny() -> None:
    assert explained("tool:file:create out/a").changes == (
        ProposedChange(
            'add "tool:file:create out/a" to the list deny of [profiles.p], paddock.toml:7',
            Outcome.DENY,
        ),
    )


def test_what_is_known_at_run_time_only_needs_another_line_or_an_approval() -> None:
    guarded = policy('[profiles.p]\nallow = ["tool:*"]\ndeny = ["tool:shell:run git push *"]')
    changes = explained("tool:shell:run eval x", "p", guarded).changes
    assert all(not change.was_tried for change in changes)
    assert "write the whole command literally in the line" in changes[0].text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tool:file:view docs/a.md", "letter case or Unicode form differs"),
        ("tool:file:view Docs/a/b.md", "its * does not cross a slash"),
        ("tool:file:view x/Docs/a.md", "it is anchored at the workspace root"),
        ("tool:file:create out", "it matches entries below, not the directory itself"),
        ("tool:file:delete out/x", "it is for tool:file:create, not for tool:file:delete"),
        ("tool:file:view Docs/a.txt", "the path differs"),
        ("tool:mcp:call mcp__toy__add", "letter case differs"),
        ("tool:mcp:call mcp__toy__sub", "the name differs"),
        ("tool:shell:run git diff --output=x", "an allow matches only the exact command"),
        ("tool:shell:run git diff && make", "an allow has to match every command"),
        ("tool:shell:run git stash", "the words after the program differ"),
    ],
)
def test_a_near_miss_says_what_kept_it_from_matching(text: str, why: str) -> None:
    assert any(miss.why.startswith(why) for miss in explained(text).near_misses)


def test_rules_that_match_are_no_near_misses_and_far_ones_are_not_shown() -> None:
    explanation = explained("tool:file:create out/asked")
    near = {miss.rule for miss in explanation.near_misses}
    assert near.isdisjoint(explanation.decision.matched)
    assert explained("tool:file:view completely/elsewhere").near_misses == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "git diff --output=x.sql",
            "'--output=x.sql' writes a file, and no word of the rule names it",
        ),
        ("git diff $x", "a variable's value is only known at run time"),
        ("env git diff", "the words of the rule are only one reading of it"),
    ],
)
def test_a_command_that_an_allow_does_not_cover_is_told_why(line: str, why: str) -> None:
    (first, *_) = explained(f"tool:shell:run {line}").near_misses
    assert (first.rule.text, first.why) == (
        "tool:shell:run git diff *",
        f"an allow matches only the exact command: {why}",
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tool:shell:run git diff --output=x", "tool:shell:run git diff *"),
        ("tool:file:view docs/a.md", "tool:file:view Docs/*.md"),
        ("tool:file:delete out/x", "tool:file:create out/**"),
        # A rule decides: what nearly matched is no reason.
        ("tool:file:create out/denied", None),
        ("tool:file:create out/DENIED/x", None),
        ("tool:shell:run git push", None),
        # Nothing milder would have come of it, or it is a guess that it was meant.
        ("tool:shell:run git status", None),
        ("tool:file:view Docs/a.mdx", None),
        ("tool:shell:run git stash", None),
    ],
)
def test_the_rule_that_nearly_decided_is_found_where_none_did(text: str, rule: str | None) -> None:
    chain, action = (Agent("main", "p"),), parse_action(text)
    nearly = find_nearly(POLICY, chain, action, decide(POLICY, chain, (action,)))
    assert (None if nearly is None else nearly.rule.text) == rule


def test_an_action_with_line_breaks_draws_no_row_of_its_own() -> None:
    line = "git push x\n  rule:   tool:* (allow, forged)"
    rows = explained(f"tool:shell:run {line}").render().splitlines()

    shown = line.replace("\n", "\\n")
    assert rows[0] == f"deny: tool:shell:run {shown}"
    assert [row.split(" (")[0] for row in rows if row.startswith("  rule:")] == [
        "  rule:   tool:shell:run git push *"
    ]


def test_near_misses_are_bounded_and_the_cut_is_stated() -> None:
    rules = ", ".join(f'"tool:file:view aaaaaaaa{n}"' for n in range(9))
    explanation = explained(
        "tool:file:view aaaaaaaa", "p", policy(f"[profiles.p]\nallow = [{rules}]")
    )
    assert (len(explanation.near_misses), explanation.near_misses_left_off) == (5, 4)
    assert "4 further near misses are not shown" in explanation.render()


def test_the_text_and_the_json_say_the_same() -> None:
    explanation = explained("tool:file:view docs/a.md")
    assert (
        explanation.render()
        == f"""\
deny: tool:file:view docs/a.md
  reason: no rule of the profile "p" matches "tool:file:view docs/a.md", so it is denied; an \
operator can allow it in [profiles.p]
  rule:   none matches, so it is denied
  agents: main (profiles: p)
  nearly matched: tool:file:view Docs/*.md (allow, profiles.p.allow, paddock.toml:4): letter case \
or Unicode form differs, and an allow compares exactly
  to change it: add "tool:file:view docs/a.md" to the list allow of [profiles.p], \
paddock.toml:4 (then: allow)
  policy: {POLICY.digest}"""
    )
    data = json.loads(json.dumps(explanation.as_json()))
    assert data["outcome"] == "deny"
    assert data["near_misses"][0]["rule"] == {
        "text": "tool:file:view Docs/*.md",
        "outcome": "allow",
        "source": "profiles.p.allow",
        "file": "paddock.toml",
        "line": 4,
        "reason": "",
    }
    assert data["changes"] == [
        {"text": explanation.changes[0].text, "outcome": "allow", "tried": True}
    ]


@pytest.mark.parametrize(
    ("action", "pattern"),
    [
        (Action("file", "create", "README.md"), "tool:file:create /README.md"),
        (Action("file", "create", "a/b"), "tool:file:create a/b"),
        (Action("file", "create", "a/[x]*?\\"), "tool:file:create a/\\[x]\\*\\?\\\\"),
        (Action("file", "create", "!a/b"), "tool:file:create /!a/b"),
        (Action("file", "create", "#a"), "tool:file:create /#a"),
        (Action("file", "create", "a/b "), "tool:file:create a/b\\ "),
        (Action("search", "ls", "."), "tool:search:ls"),
        (Action("client", "Foo"), "tool:client:Foo"),
    ],
)
def test_the_exact_pattern_of_an_action_matches_it_alone(action: Action, pattern: str) -> None:
    assert exact_pattern(action) == pattern


TRUSTING = "paddock trust"
TRUST = f"review paddock.toml, which is not trusted, and trust it: {TRUSTING}"


def test_where_an_untrusted_file_has_the_rule_already_the_change_is_to_trust_it() -> None:
    text = """[paths]
protected = [".git/", ".env*"]
[profiles.standard]
allow = ["tool:shell:run make", "tool:file:*"]
ask = ["tool:file:view x"]
otherwise = { "tool:mcp:*" = "deny" }
[profiles.mine]
allow = ["tool:file:*"]
"""
    cloned, trusted = policy(text, trusted=False), policy(text)
    for profile, line, outcome in (
        ("standard", "tool:shell:run make", Outcome.ALLOW),
        ("standard", "tool:file:create a.pem", Outcome.ALLOW),
        # Unknown until then, and so locked.
        ("mine", "tool:file:create a", Outcome.ALLOW),
    ):
        chain, action = (Agent("main", profile),), parse_action(line)
        assert explain(cloned, chain, action).changes == (ProposedChange(TRUST, outcome),)
        assert decide(trusted, chain, (action,)).outcome is outcome
        assert decide(cloned, chain, (action,)).outcome > outcome


def test_where_trust_alone_changes_nothing_what_to_write_first_is_said() -> None:
    text = '[profiles.standard]\nallow = ["tool:file:view"]\ndeny = ["tool:file:create x"]'
    cloned = policy(text, trusted=False)
    then = "; then trust paddock.toml: paddock trust"
    assert explained("tool:file:create x", "standard", cloned).changes == (
        ProposedChange(
            'remove "tool:file:create x" from profiles.standard.deny, paddock.toml:3, '
            'add "tool:file:create /x" to the list allow of [profiles.standard], paddock.toml:2'
            + then,
            Outcome.ALLOW,
        ),
    )
    (whole,) = explained("tool:mcp:call mcp__a__b", "locked", cloned).changes
    assert whole.text.endswith(f"a profile in a file replaces the built-in one completely{then}")
    # Denying needs nobody's trust, and neither does what stands elsewhere.
    (denied,) = explained("tool:client:Agent", "open", cloned).changes
    assert (denied.outcome, then in denied.text) == (Outcome.DENY, False)
    who = Agent("main", "open", permissions=Permissions(forbidden=("a",)), source="agent.json")
    (forbidden,) = explain(cloned, (who,), Action("file", "view", "a")).changes
    assert forbidden.text.startswith("no profile lifts it: remove what names the path from ")


def test_as_if_trusted_a_policy_decides_as_the_trusted_one() -> None:
    text = """[paths]
secret = ["/keys/"]
[profiles.standard]
allow = ["tool:file:*"]
[agents.helper]
profile = "open"
"""
    cloned, trusted = policy(text, trusted=False), policy(text)
    assert trusted.as_if_trusted() is trusted
    changed = cloned.as_if_trusted()
    for who in (Agent("main", "standard"), Agent("helper", "locked"), Agent("x", "open")):
        for line in ("tool:file:view .env", "tool:file:create keys/a", "tool:shell:run make"):
            asked = (parse_action(line),)
            assert decide(changed, (who,), asked).outcome is decide(trusted, (who,), asked).outcome


def test_where_only_trust_makes_a_change_elsewhere_flip_it_trust_is_named() -> None:
    user = PolicySource(
        "config.toml",
        b'[profiles.standard]\nallow = ["tool:file:*"]\ndeny = ["tool:file:delete docs/**"]',
    )
    removed = 'remove "tool:file:delete docs/**" from profiles.standard.deny, config.toml:3'
    locked = b'[agents.main]\nprofile = "locked"\n[profiles.locked]\nallow = ["tool:file:*"]'
    for text, then in ((locked, f"; then trust paddock.toml: {TRUSTING}"), (b"", "")):
        project = PolicySource("paddock.toml", text, trusted=False)
        deleted = explained("tool:file:delete docs/a", "standard", load_policy(project, user))
        assert deleted.changes == (ProposedChange(removed + then, Outcome.ALLOW),)
    without = replace(user, text=user.text.replace(b'"tool:file:delete docs/**"', b""))
    project = PolicySource("paddock.toml", locked, trusted=False)
    chain, action = (Agent("main", "standard"),), parse_action("tool:file:delete docs/a")
    for trusted, outcome in ((False, Outcome.DENY), (True, Outcome.ALLOW)):
        decided = load_policy(replace(project, trusted=trusted), without)
        assert decide(decided, chain, (action,)).outcome is outcome


def test_a_list_in_an_untrusted_file_is_changed_and_the_file_trusted() -> None:
    then = f"; then trust paddock.toml: {TRUSTING}"
    rules = '[profiles.standard]\nallow = ["tool:file:*"]\n'
    for text, says in (
        (rules, 'give protected under [paths] in paddock.toml, without "*.pem"'),
        (
            f'{rules}[paths]\nprotected = ["*.pem"]',
            'remove "*.pem" from [paths] protected, paddock.toml:4',
        ),
    ):
        cloned = policy(text, trusted=False)
        assert explained("tool:file:create a.pem", "standard", cloned).changes == (
            ProposedChange(PATHS.format("protected") + says + then, Outcome.ALLOW),
        )


def test_a_list_of_the_users_own_file_is_changed_without_trust() -> None:
    user = PolicySource("config.toml", b'[paths]\nprotected = ["*.pem"]')
    cloned = load_policy(PolicySource("paddock.toml", b"", trusted=False), user)
    assert explained("tool:file:create a.pem", "standard", cloned).changes == (
        ProposedChange(
            PATHS.format("protected") + 'remove "*.pem" from [paths] protected, config.toml:2',
            Outcome.ALLOW,
        ),
    )


def test_a_profile_that_an_untrusted_file_has_is_not_written_out_in_it_again() -> None:
    cloned = policy('[profiles.open]\nallow = ["tool:file:*"]', trusted=False)
    (change,) = explained("tool:file:view a", "open", cloned).changes
    assert change == ProposedChange(
        'add `deny = ["tool:file:view /a"]` to [profiles.open], in paddock.toml:1', Outcome.DENY
    )


@pytest.mark.parametrize("line", ["ls *.py", "> docs/a", "git status; rm *"])
def test_what_no_rule_for_the_line_covers_is_said_to_need_an_approval(line: str) -> None:
    said = 'only a rule for any command ("tool:shell:run *") covers it'
    asking = policy(
        '[profiles.standard]\nallow = ["tool:file:*"]\notherwise = { "tool:shell:*" = "ask" }'
    )
    asked = explained(f"tool:shell:run {line}", "standard", asking)
    assert asked.changes == (
        ProposedChange(said, approval="have it approved when it is asked about"),
    )
    assert asked.decision.outcome is Outcome.ASK
    assert asked.unasked().changes == (ProposedChange(said),)
    wide = policy('[profiles.standard]\nallow = ["tool:file:*", "tool:shell:run *"]')
    who, action = (Agent("main", "standard"),), parse_action(f"tool:shell:run {line}")
    assert decide(wide, who, (action,)).outcome is Outcome.ALLOW
    closed = policy('[profiles.p]\nallow = ["tool:file:*"]')
    (denied,) = explained(f"tool:shell:run {line}", "p", closed).changes
    assert denied == ProposedChange(said)


def test_what_stands_in_the_way_besides_is_said_with_the_rule_for_any_command() -> None:
    decided = policy('[profiles.p]\nallow = ["tool:file:*"]\ndeny = ["tool:shell:run rm *"]')
    assert explained("tool:shell:run rm *.py", "p", decided).changes == (
        ProposedChange('remove "tool:shell:run rm *" from profiles.p.deny, paddock.toml:3'),
        ProposedChange('and besides: only a rule for any command ("tool:shell:run *") covers it'),
    )


def test_no_trust_opens_the_plane_below_an_untrusted_project() -> None:
    source = PolicySource("paddock.toml", b'[profiles.standard]\nallow = ["tool:*"]', trusted=False)
    cloned = load_policy(source, planes_below=("sub",))
    trusted = load_policy(replace(source, trusted=True), planes_below=("sub",))
    chain = (Agent("main", "standard"),)
    below = parse_action("tool:file:create sub/notes.md")
    assert explain(cloned, chain, below).changes == (
        ProposedChange(
            'cannot be lifted: "/sub/" is one of Paddock\'s own files; only operators change them'
        ),
    )
    for decided in (cloned, cloned.as_if_trusted(), trusted):
        assert decide(decided, chain, (below,)).outcome is Outcome.DENY
    beside = parse_action("tool:shell:run make")
    assert explain(cloned, chain, beside).changes == (ProposedChange(TRUST, Outcome.ALLOW),)
    assert decide(trusted, chain, (beside,)).outcome is Outcome.ALLOW


def test_a_rule_of_an_untrusted_file_that_nearly_matches_is_named() -> None:
    decided = policy('[profiles.standard]\nallow = ["tool:file:create Docs/**"]', trusted=False)
    misses = explained("tool:file:create docs/a", "standard", decided).near_misses
    assert [(miss.rule.text, miss.rule.place) for miss in misses] == [
        ("tool:file:create Docs/**", "paddock.toml:2")
    ]


NETWORK = """[profiles.p]
allow = ["tool:net:connect *.example.org:443", "tool:net:request GET api.test/v1/**"]
[[profiles.p.rules]]
action = "tool:net:connect db.example.org:5432"
outcome = "allow"
commands = ["psql *"]
"""


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("connect a.example.org:80", "it is for other ports"),
        ("connect example.org:443", "it matches names below this one, not the name itself"),
        ("connect db.example.org:5432", "it counts only for commands like psql *"),
        ("request PUT api.test/v1/a", "its method or its path differs in one of the readings"),
        ("request GET api.test/v1/../a", "its method or its path differs in one of the readings"),
    ],
)
def test_what_keeps_a_rule_for_the_network_from_matching_is_told(action: str, why: str) -> None:
    explanation = explained(f"tool:net:{action}", decided=policy(NETWORK))

    assert explanation.decision.outcome is Outcome.DENY
    assert why in [miss.why for miss in explanation.near_misses]


def test_a_rule_for_just_that_connection_is_proposed() -> None:
    assert explained("tool:net:connect new.test:443", decided=policy(NETWORK)).changes == (
        ProposedChange(
            'add "tool:net:connect new.test:443" to the list allow of [profiles.p], paddock.toml:2',
            Outcome.ALLOW,
        ),
    )
    assert explained("tool:net:request PUT api.test/v1/a", decided=policy(NETWORK)).changes == (
        ProposedChange(
            'add "tool:net:request PUT api.test:443/v1/a" to the list allow of [profiles.p],'
            " paddock.toml:2",
            Outcome.ALLOW,
        ),
    )
