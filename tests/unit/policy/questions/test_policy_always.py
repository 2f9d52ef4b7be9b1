"""A rule for good allows the very call that was approved, and nothing else."""

import tomllib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.questions.flip import plan_always
from paddock.policy.rules import parse_action
from paddock.values.decisions import Action, Agent, Outcome

MAIN = (Agent("main", "standard"),)
CHILD = (Agent("child", "mine"), Agent("main", "standard"))
CAREFUL = """\
# mine
[profiles.standard]
allow = ["tool:file:view"]
otherwise = { "tool:file:*" = "ask", "tool:shell:*" = "ask", "tool:mcp:*" = "ask" }
[[profiles.standard.rules]]
action = "tool:shell:run rm *"
outcome = "ask"
"""


def plan(actions, text=CAREFUL, chain=MAIN, *, user=None, trusted=True, name="paddock.toml"):
    own = PolicySource(name, text.encode(), trusted)
    theirs = None if user is None else PolicySource("config.toml", user.encode())
    policy = load_policy(own if text else None, theirs)
    return policy, plan_always(policy, chain, actions, own, theirs, "because")


def outcome(content: bytes, action: Action, chain=MAIN) -> Outcome:
    policy = load_policy(PolicySource("paddock.toml", content))
    return decide(policy, chain, [action]).outcome


@pytest.mark.parametrize(
    "action",
    [
        Action("file", "create", "docs/a.md"),
        Action("file", "create", "we ird/[x]*?\\ #!"),
        Action("file", "create", "!x"),
        Action("file", "create", "é/ü"),
        Action("shell", "run", "npm test"),
        Action("shell", "run", "npm run 'a b' && pytest -q"),
        Action("shell", "run", "echo \"it's\" '*' '\"'"),
        Action("mcp", "call", "mcp__toy__add"),
    ],
    ids=str,
)
def test_exactly_what_was_asked_about_is_allowed_from_then_on(action):
    _, always = plan([str(action)])
    assert always.content.startswith(CAREFUL.encode())
    assert always.content.endswith(always.addition.encode())
    assert b"\n\n\n" not in always.content
    assert not always.addition.endswith("\n\n")
    assert outcome(CAREFUL.encode(), action) is Outcome.ASK
    assert outcome(always.content, action) is Outcome.ALLOW
    wider = " x" if action.category == "shell" else "x"
    other = action._replace(target=action.target + wider)
    assert outcome(always.content, other) is Outcome.ASK


@pytest.mark.parametrize(
    ("action", "others"),
    [
        (
            Action("net", "connect", "example.org:443"),
            ("connect a.example.org:443", "connect example.org:80", "request GET other.test/"),
        ),
        (
            Action("net", "request", "GET example.org:443/a/b"),
            ("request PUT example.org/a/b", "request GET example.org/a", "connect example.org:80"),
        ),
    ],
    ids=str,
)
def test_exactly_the_connection_or_request_is_allowed_from_then_on(action, others):
    asking = CAREFUL.replace("otherwise = {", 'otherwise = { "tool:net:*" = "ask",')
    _, always = plan([str(action)], asking)

    assert outcome(asking.encode(), action) is Outcome.ASK
    assert outcome(always.content, action) is Outcome.ALLOW
    for other in others:
        assert outcome(always.content, parse_action(f"tool:net:{other}")) is Outcome.ASK


def test_a_path_that_becomes_a_directory_is_not_covered_below():
    _, always = plan(["tool:file:create a"])
    assert outcome(always.content, Action("file", "create", "a")) is Outcome.ALLOW
    assert outcome(always.content, Action("file", "create", "a/b")) is Outcome.ASK
    assert outcome(always.content, Action("file", "create", "b/a")) is Outcome.ASK


def test_a_built_in_profile_is_said_aloud_and_stays_what_it_was():
    _, always = plan(["tool:shell:run npm test"], text="")
    after = load_policy(PolicySource("paddock.toml", always.content))
    before = load_policy(None)
    for action in (
        Action("file", "create", "a"),
        Action("client", "Agent"),
        Action("shell", "run", "ls"),
        Action("ledger", "query", "ho1m"),
    ):
        assert decide(after, MAIN, [action]).outcome is decide(before, MAIN, [action]).outcome
    assert decide(after, MAIN, [Action("shell", "run", "npm test")]).outcome is Outcome.ALLOW


def test_every_profile_of_the_chain_that_asks_gets_the_rule():
    text = CAREFUL + '[profiles.mine]\notherwise = { "tool:shell:*" = "ask" }\n'
    _, always = plan(["tool:shell:run npm test"], text=text, chain=CHILD)
    assert outcome(always.content, Action("shell", "run", "npm test"), CHILD) is Outcome.ALLOW
    rules = tomllib.loads(always.addition)["profiles"]
    assert sorted(rules) == ["mine", "standard"]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("tool:shell:run rm -r build", "still asks"),
        ("tool:shell:run npm test $(id)", "not certain"),
        ("tool:shell:run eval x", "not certain"),
        ("tool:shell:run npm test > out", "still asks"),
        ("tool:shell:run A=1 npm test", "is not matched"),
        ("tool:mcp:call mcp__*", "is a wildcard in a rule"),
        ("tool:file:view a", "does not ask"),
        ("tool:file:create  a", "cannot be written"),
        ("tool:file:create ../a", "not a resolved path"),
        ("tool:file:create .", "root"),
        ("nonsense", "tool:"),
    ],
)
def test_what_cannot_be_proved_makes_no_rule(action, why):
    with pytest.raises(ConfigError, match=why):
        plan([action])


def test_a_file_that_is_not_trusted_or_not_toml_gets_no_rule():
    for changed in ({"trusted": False}, {"name": "paddock.json", "text": "{}"}):
        with pytest.raises(ConfigError, match="no rule was made"):
            plan(["tool:shell:run npm test"], **changed)


def test_a_profile_of_the_users_own_configuration_is_left_to_the_user():
    with pytest.raises(ConfigError, match=r"config\.toml"):
        plan(["tool:shell:run npm test"], text="", user=CAREFUL)


def test_a_denied_action_is_not_made_allowed():
    with pytest.raises(ConfigError):
        plan(["tool:shell:run npm test", "tool:file:create .git/x"])


def test_no_rule_is_made_for_a_plane_below_the_workspace():
    own = PolicySource("paddock.toml", CAREFUL.encode())
    policy = load_policy(own, planes_below=("sub",))
    with pytest.raises(ConfigError, match="/sub/"):
        plan_always(policy, MAIN, ["tool:file:create sub/a"], own, None, "because")
    always = plan_always(policy, MAIN, ["tool:file:create a"], own, None, "because")
    assert outcome(always.content, Action("file", "create", "a")) is Outcome.ALLOW


PATHS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc")) | st.sampled_from("*?[]!#\\ /."),
    min_size=1,
    max_size=12,
)


@given(PATHS)
def test_whatever_the_path_the_rule_covers_it_alone_or_is_not_made(path):
    action = Action("file", "create", path)
    try:
        _, always = plan([str(action)])
    except ConfigError:
        assume(False)
        return
    assert outcome(always.content, action) is Outcome.ALLOW
    for other in (f"{path}x", f"x{path}", f"{path}/x", f"x/{path}"):
        assert outcome(always.content, Action("file", "create", other)) is not Outcome.ALLOW
