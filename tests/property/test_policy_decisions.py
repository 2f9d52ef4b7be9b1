"""Laws of a decision, over generated policies, chains and actions."""

import json
from itertools import product

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.policy.decide import decide, shell_for
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.positions import PatternError
from paddock.policy.profiles import rule_matches
from paddock.policy.questions.explain import explain
from paddock.policy.questions.flip import exact_pattern
from paddock.policy.questions.lint import lint
from paddock.policy.rules import compile_rule, parse_concrete
from paddock.policy.settings import NETWORKS
from paddock.values.decisions import OPERATIONS, Action, Agent, Outcome, Permissions, PlaneKind

# --- what there is to choose from: few names, so that things meet -------------------

names = st.sampled_from(
    ["a", "b", "A", "docs", ".git", ".env", "x.key", "src", "yarn.lock", "a.md"]
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
path_patterns = st.one_of(
    paths,
    paths.map(lambda path: f"/{path}"),
    paths.map(lambda path: f"{path}/**"),
    paths.map(lambda path: f"**/{path}"),
    st.sampled_from(["*.md", "**", "docs/", ".git/", ".ENV*", "[ab]", "d?cs", "*.KEY"]),
)
lists = st.lists(
    st.one_of(path_patterns, path_patterns.map(lambda text: f"!{text}")), max_size=4
).filter(lambda texts: not texts or not all(text.startswith("!") for text in texts))
lines = st.sampled_from(
    [
        "ls", "ls a", "git status", "git push", "git push -f; ls", "env git push", "eval x",
        "ls > a", "ls > .git/a", "ls > ../a", "sh -c 'git push'", "ls $(git push)", "git 'x", "",
    ]
)  # fmt: skip
path_heads = [
    (category, operation)
    for category in ("file", "search", "output")
    for operation in sorted(OPERATIONS[category])
]
actions = st.one_of(
    st.builds(lambda head, path: Action(*head, path), st.sampled_from(path_heads), paths),
    lines.map(lambda line: Action("shell", "run", line)),
    st.sampled_from(
        [
            Action("mcp", "call", "mcp__a__b"),
            Action("client", "Agent"),
            Action("client", "Other"),
            Action("gate", "check", "all"),
            Action("ledger", "query", "ho1m"),
            Action("search", "ls", "."),
        ]
    ),
)
path_rules = st.builds(
    lambda head, target: f"tool:{head} {target}".strip(),
    st.sampled_from(["file:*", "file:create", "file:view", "search:*", "output:write"]),
    st.one_of(st.just(""), path_patterns),
)
rule_texts = st.one_of(
    path_rules,
    st.sampled_from(
        [
            "tool:*", "tool:shell:*", "tool:shell:run git *", "tool:shell:run git push *",
            "tool:shell:run ls *", "tool:shell:run *", "tool:mcp:call mcp__a__*", "tool:client:*",
            "tool:gate:*", "tool:*:view",
        ]
    ),
)  # fmt: skip
heads = st.sampled_from(["tool:*", "tool:shell:*", "tool:file:*", "tool:file:view", "tool:mcp:*"])
words = st.sampled_from(["allow", "ask", "deny"])
long_rules = st.fixed_dictionaries({"action": rule_texts, "outcome": words})
profiles = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(rule_texts, max_size=3),
        "ask": st.lists(rule_texts, max_size=3),
        "deny": st.lists(rule_texts, max_size=3),
        "otherwise": st.dictionaries(heads, words, max_size=2),
        "rules": st.lists(long_rules, max_size=2),
        "shell": st.fixed_dictionaries(
            {}, optional={"network": st.sampled_from(NETWORKS), "commit": st.just("all")}
        ),
    },
)
profile_names = st.sampled_from(["open", "standard", "locked", "own", "other"])
documents = st.fixed_dictionaries(
    {},
    optional={
        "paths": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("protected", "generated", "warned", "safe", "secret"), lists),
        ),
        "profiles": st.dictionaries(profile_names, profiles, max_size=3),
        "agents": st.dictionaries(
            st.sampled_from(["child", "parent"]),
            st.fixed_dictionaries({"profile": st.sampled_from(["open", "standard", "locked"])}),
            max_size=2,
        ),
        "shell": st.fixed_dictionaries({}, optional={"network": st.sampled_from(NETWORKS)}),
    },
)
permissions = st.builds(
    Permissions,
    read=st.one_of(st.just(("**",)), lists.map(tuple)),
    write=st.one_of(st.just(("**",)), lists.map(tuple)),
    forbidden=lists.map(tuple),
)
agents = st.builds(
    Agent,
    name=st.sampled_from(["child", "parent", "main"]),
    profile=profile_names,
    permissions=permissions,
)
chains = st.lists(agents, min_size=1, max_size=4).map(tuple)


def loaded(document: object, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("policy.json", json.dumps(document).encode(), trusted))


# --- laws ---------------------------------------------------------------------------


@given(document=documents, chain=chains, action=actions)
def test_a_chain_is_never_softer_than_any_of_its_members(
    document: object, chain: tuple[Agent, ...], action: Action
) -> None:
    policy = loaded(document)
    whole = decide(policy, chain, (action,)).outcome
    assert whole == max(decide(policy, (member,), (action,)).outcome for member in chain)


@given(document=documents, chain=chains, several=st.lists(actions, min_size=1, max_size=4))
def test_a_call_is_as_strict_as_its_strictest_action(
    document: object, chain: tuple[Agent, ...], several: list[Action]
) -> None:
    policy = loaded(document)
    each = [decide(policy, chain, (action,)).outcome for action in several]
    assert decide(policy, chain, several).outcome == max(each)


@given(document=documents, chain=chains, action=actions, data=st.data())
def test_the_order_of_rules_does_not_matter(
    document: dict[str, dict[str, dict[str, list[object]]]],
    chain: tuple[Agent, ...],
    action: Action,
    data: st.DataObject,
) -> None:
    shuffled = json.loads(json.dumps(document))
    for profile in shuffled.get("profiles", {}).values():
        for name in ("allow", "ask", "deny", "rules"):
            if name in profile:
                profile[name] = data.draw(st.permutations(profile[name]))
    before = decide(loaded(document), chain, (action,))
    after = decide(loaded(shuffled), chain, (action,))
    assert (after.outcome, after.code, after.warnings) == (
        before.outcome,
        before.code,
        before.warnings,
    )
    assert sorted(rule.text for rule in after.matched) == sorted(
        rule.text for rule in before.matched
    )


@given(
    profile=profiles,
    text=rule_texts,
    lists=permissions,
    action=actions,
    word=st.sampled_from(["deny", "ask"]),
)
def test_another_deny_never_loosens(
    profile: dict[str, list[str]], text: str, lists: Permissions, action: Action, word: str
) -> None:
    stricter = {**profile, word: [*profile.get(word, []), text]}
    chain = (Agent("main", "own", permissions=lists),)
    before = decide(loaded({"profiles": {"own": profile}}), chain, (action,))
    after = decide(loaded({"profiles": {"own": stricter}}), chain, (action,))
    # An ask may soften what nothing else allowed; a deny never softens anything.
    if word == "deny" or before.outcome is Outcome.ALLOW:
        assert after.outcome >= before.outcome


@given(document=documents, user=documents, chain=chains, action=actions)
def test_an_untrusted_file_never_loosens(
    document: object, user: object, chain: tuple[Agent, ...], action: Action
) -> None:
    text, mine = json.dumps(document).encode(), PolicySource("c.json", json.dumps(user).encode())
    try:
        policy = load_policy(PolicySource("p.json", text, trusted=False), mine)
    except ConfigError:
        assume(False)
        return
    default = load_policy(None, mine)
    before, after = decide(default, chain, (action,)), decide(policy, chain, (action,))
    assert after.outcome >= before.outcome
    if after.outcome is not Outcome.DENY:
        assert set(after.warnings) >= set(before.warnings)
    assert policy.settings == default.settings
    if action.is_path:
        was_safe = default.guards.is_safe(action.target)
        assert was_safe or not policy.guards.is_safe(action.target)


@given(profile=profiles, user=documents, action=actions)
def test_an_untrusted_profile_and_the_one_below_it_are_decided_under_both(
    profile: object, user: object, action: Action
) -> None:
    text = json.dumps({"profiles": {"standard": profile}}).encode()
    mine = PolicySource("c.json", json.dumps(user).encode())
    try:
        untrusted = load_policy(PolicySource("p.json", text, trusted=False), mine)
    except ConfigError:
        assume(False)
        return
    chain = (Agent("main", "standard"),)
    without = decide(load_policy(None, mine), chain, (action,))
    trusted = decide(load_policy(PolicySource("p.json", text), mine), chain, (action,))
    both = decide(untrusted, chain, (action,))
    assert both.outcome is max(without.outcome, trusted.outcome)


@given(document=documents, chain=chains, action=actions)
def test_the_network_of_a_chain_is_never_wider_than_a_members(
    document: object, chain: tuple[Agent, ...], action: Action
) -> None:
    policy = loaded(document)
    shell = action if action.category == "shell" else None
    whole = NETWORKS.index(shell_for(policy, chain, shell).network)
    assert all(
        whole <= NETWORKS.index(shell_for(policy, (member,), shell).network) for member in chain
    )


@given(document=documents, chain=chains, action=actions)
def test_explaining_and_linting_change_nothing_and_proposals_hold(
    document: object, chain: tuple[Agent, ...], action: Action
) -> None:
    policy = loaded(document)
    before = decide(policy, chain, (action,))
    explanation = explain(policy, chain, action)
    assert explanation.decision == before
    assert json.loads(json.dumps(explanation.as_json()))["outcome"] == before.outcome.word
    assert explanation.render()
    for change in explanation.changes:
        assert change.outcome != before.outcome
    for finding in lint(policy):
        assert finding.render()
    assert decide(loaded(document), chain, (action,)) == before


short_globs = st.lists(
    st.one_of(st.just("**"), st.text(st.sampled_from("a*?"), min_size=1, max_size=4)),
    min_size=1,
    max_size=3,
).map("/".join)


@given(weak=short_globs, strong=short_globs, is_list=st.booleans())
@example(weak="a*", strong="a??*", is_list=False)
@example(weak="*a", strong="?*a", is_list=True)
@example(weak="a/**", strong="a/??*", is_list=False)
def test_without_a_rule_that_lint_calls_idle_all_is_decided_as_before(
    weak: str, strong: str, is_list: bool
) -> None:
    rule, other = f"tool:file:create {weak}", f"tool:file:create {strong}"
    paths_table = {"protected": [strong] if is_list else []}

    def of(**profile: list[str]) -> Policy:
        return loaded({"paths": paths_table, "profiles": {"own": profile}})

    if is_list:
        with_it, without = of(allow=[rule]), of(allow=[])
    else:
        rest = {"allow": ["tool:file:*"], "deny": [other]}
        with_it, without = of(ask=[rule], **rest), of(**rest)
    if not {each.code for each in lint(with_it)} & {"lint.rule_covered", "lint.rule_never"}:
        return
    parts = ["a", "b", "aa", "ab", "ba", "bb", "aba", "bbb", "abba", "bbbbb"]
    every = [*parts, *map("/".join, product(parts, parts)), "a/b/a", "b/a/b", "b/b/b", "a/a/a"]
    asked = [(Action("file", "create", path),) for path in every]
    before, after = (
        [decide(each, (Agent("main", "own"),), action).outcome for action in asked]
        for each in (with_it, without)
    )
    assert before == after


@given(path=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12))
def test_the_exact_pattern_of_a_path_matches_that_path(path: str) -> None:
    try:
        action = parse_concrete(f"tool:file:create {path}")
    except PatternError:
        assume(False)
        return
    text = exact_pattern(action)
    rule = compile_rule(text, Outcome.ALLOW, "test")
    assert rule_matches(rule, action)
    if rule.pattern.kind is not None:
        # A pattern covers what is below it, too: x/x is below x.
        elsewhere = "y" if action.target[0] in "xX" else "x"
        assert not rule_matches(rule, Action("file", "create", f"{elsewhere}/{action.target}"))


# --- loading ------------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from(["ask", "open", "tool:file:*", "tool:shell:run a *", "[", "!a", "../x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.text(max_size=5),
                st.sampled_from(
                    [
                        "paths", "profiles", "shell", "hook", "agents", "limits", "history", "mcp",
                        "ledger", "providers", "protected", "safe", "allow", "ask", "deny", "rules",
                        "otherwise", "action", "outcome", "match", "not_match", "network", "read",
                        "anchor", "command", "profile", "on_allow", "also_write", "view_bytes_max",
                    ]
                ),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip

toml_lines = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "[paths]", "[profiles.p]", "[[profiles.p.rules]]", "[shell]", "[hook]", "[limits]",
                '[agents."X"]', "[ledger]", "[profiles.p.shell]", "[", "]", "[[paths]]",
                'protected = ["a", "!b"]', "protected = [", 'allow = ["tool:file:*"]',
                'otherwise = { "tool:*" = "ask" }', 'action = "tool:shell:run git *"',
                'outcome = "deny"', 'match = ["tool:shell:run git x"]', "x = 1979-05-27",
                "paths.safe = ['a']", "a.b.c = 1", 'network = "host"', "limits = { cpu_s = 1 }",
                'profile = "p"', "view_bytes_max = 10", "# comment", '"q k" = """', "'''", "\t\\u",
            ]
        ),
        st.text(max_size=10),
    ),
    max_size=10,
).map("\n".join)  # fmt: skip


def refusal_of(source: PolicySource) -> ConfigError | None:
    """The error, where the source does not load; what loads is used as well."""
    try:
        policy = load_policy(source, None, PlaneKind.BARE)
    except ConfigError as error:
        return error
    lint(policy)
    decide(policy, (Agent("X", "p"),), (Action("file", "create", "a"),))
    return None


def load_any(name: str, text: bytes) -> None:
    for source in (PolicySource(name, text), PolicySource(name, text, trusted=False)):
        error = refusal_of(source)
        if error is not None:
            assert type(error) is ConfigError
            assert error.where.startswith(name)
            assert error.message


@given(text=st.binary(max_size=60), name=st.sampled_from(["p.toml", "p.json"]))
def test_any_bytes_load_or_are_a_config_error(text: bytes, name: str) -> None:
    load_any(name, text)


@given(text=toml_lines)
def test_any_toml_loads_or_is_a_config_error(text: str) -> None:
    load_any("p.toml", text.encode("utf-8", "replace"))


@given(value=json_values)
def test_any_json_loads_or_is_a_config_error(value: object) -> None:
    load_any("p.json", json.dumps(value).encode())


def test_the_strategies_reach_what_they_are_for() -> None:
    # A generator that only ever makes files that do not load proves nothing.
    load_any("p.json", json.dumps({"paths": {"safe": ["a"]}}).encode())
    with pytest.raises(ConfigError):
        loaded({"paths": {"safe": ["["]}})
