"""Decisions: path lists, permissions, profiles, ancestors, warnings."""

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.policy.decide import decide, shell_for
from paddock.policy.engine import Policy, PolicySource, Writer, load_policy
from paddock.policy.rules import parse_action
from paddock.values.decisions import (
    Action,
    Agent,
    Decision,
    Outcome,
    Permissions,
    PlaneKind,
    RuleMatch,
)

ALLOW, ASK, DENY = Outcome.ALLOW, Outcome.ASK, Outcome.DENY

DEFAULT = load_policy(None)


def policy(text: str, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


def agent(profile: str = "standard", name: str = "main", **lists: tuple[str, ...]) -> Agent:
    return Agent(name, profile, permissions=Permissions(**lists), source="agents/main/agent.json")


def outcomes(decided: Policy, who: Agent, *actions: Action) -> dict[str, tuple[Outcome, str]]:
    decisions = {str(action): decide(decided, (who,), (action,)) for action in actions}
    return {text: (decision.outcome, decision.code) for text, decision in decisions.items()}


def create(path: str) -> Action:
    return Action("file", "create", path)


def view(path: str) -> Action:
    return Action("file", "view", path)


@pytest.mark.parametrize(
    ("deny", "target"),
    [
        ("tool:client:webfetch", "tool:client:WebFetch"),
        ("tool:shell:run psql -c *DROP*", "tool:shell:run psql -c 'drop table t'"),
        ("tool:file:create [А-Я]*.txt", "tool:file:create яд.txt"),
    ],
)
def test_a_deny_holds_whatever_the_letter_case_and_an_allow_does_not(
    deny: str, target: str
) -> None:
    action = parse_action(target)
    for text, outcome in (
        (f'allow = ["tool:*"]\ndeny = ["{deny}"]', Outcome.DENY),
        ('allow = ["tool:*"]', Outcome.ALLOW),
        (f'allow = ["{deny}"]', Outcome.DENY),
        (f'allow = ["tool:*"]\nask = ["{deny}"]', Outcome.ASK),
    ):
        decided = policy(f"[profiles.p]\n{text}")
        assert decide(decided, (agent("p"),), (action,)).outcome is outcome


def test_the_default_path_lists_deny_with_their_codes_and_nothing_else() -> None:
    assert outcomes(
        DEFAULT,
        agent("open"),
        create(".git/config"),
        view(".git/config"),
        create("sub/.GIT"),
        create(".env.local"),
        view(".env"),
        view("a/x.KEY"),
        view("a/x.pem"),
        create("a/x.pem"),
        create("package-lock.json"),
        view("package-lock.json"),
        create("node_modules/a.js"),
        create("paddock.toml"),
        create("sub/Paddock.toml"),
        view("paddock.toml"),
        create("src/a.py"),
        Action("search", "ls", "."),
        Action("search", "grep", ".env"),
    ) == {
        "tool:file:create .git/config": (DENY, "policy.protected"),
        "tool:file:view .git/config": (ALLOW, ""),
        "tool:file:create sub/.GIT": (DENY, "policy.protected"),
        "tool:file:create .env.local": (DENY, "policy.secret"),
        "tool:file:view .env": (DENY, "policy.secret"),
        "tool:file:view a/x.KEY": (DENY, "policy.secret"),
        "tool:file:view a/x.pem": (ALLOW, ""),
        "tool:file:create a/x.pem": (DENY, "policy.protected"),
        "tool:file:create package-lock.json": (DENY, "policy.generated"),
        "tool:file:view package-lock.json": (ALLOW, ""),
        "tool:file:create node_modules/a.js": (DENY, "policy.generated"),
        "tool:file:create paddock.toml": (DENY, "policy.protected"),
        "tool:file:create sub/Paddock.toml": (DENY, "policy.protected"),
        "tool:file:view paddock.toml": (ALLOW, ""),
        "tool:file:create src/a.py": (ALLOW, ""),
        "tool:search:ls .": (ALLOW, ""),
        "tool:search:grep .env": (DENY, "policy.secret"),
    }


def test_every_writing_operation_is_held_off_protected_paths() -> None:
    for operation in ("create", "str_replace", "delete", "link", "mode"):
        action = Action("file", operation, ".git/x")
        assert decide(DEFAULT, (agent("open"),), (action,)).code == "policy.protected"
        beside = Action("file", operation, "git/x")
        assert decide(DEFAULT, (agent("open"),), (beside,)).outcome is ALLOW


def test_only_commands_write_what_is_generated() -> None:
    action = create("yarn.lock")
    by_tool = decide(DEFAULT, (agent(),), (action,), Writer.FILE_TOOL)
    by_command = decide(DEFAULT, (agent(),), (action,), Writer.COMMAND)
    assert (by_tool.code, by_command.outcome) == ("policy.generated", ALLOW)
    assert decide(DEFAULT, (agent(),), (create(".git"),), Writer.COMMAND).outcome is DENY


def test_a_bare_planes_own_files_are_protected_and_a_projects_are_not_confused() -> None:
    bare = load_policy(None, None, PlaneKind.BARE)
    own = [
        "HOT/config/policy.toml", "HOT/ledger/governance.jsonl", "HO1/ledger/ho1m.jsonl",
        "HOT/registries/keys/a", "HOT/registries/approvals/w.json", "HOT/installed/PKG-A/x",
        "agents/a/agent.json", "objects/aa/bb", "paddock.toml", "hot/Config/policy.toml",
    ]  # fmt: skip
    free = ["HO2/scratch/a", "HOT/kernel/a.py", "agents/a/workspace/agent.json", "x/HOT/config/a"]
    for path in own:
        assert decide(bare, (agent("admin"),), (create(path),)).code == "policy.protected", path
    for path in free:
        assert decide(bare, (agent("admin"),), (create(path),)).outcome is ALLOW, path
    assert decide(DEFAULT, (agent("admin"),), (create("HOT/config/policy.toml"),)).outcome is ALLOW


def test_the_whole_decision_is_a_value() -> None:
    decided = policy(
        '[profiles.p]\nallow = ["tool:file:*"]\n'
        '[[profiles.p.rules]]\naction = "tool:file:create src/**"\noutcome = "ask"\n'
        'reason = "by hand"\n'
    )
    ask = RuleMatch(
        ASK, "tool:file:create src/**", "profiles.p.rules", "paddock.toml", 4, "by hand"
    )
    allow = RuleMatch(ALLOW, "tool:file:*", "profiles.p.allow", "paddock.toml", 2)
    assert decide(decided, (agent("p"),), (create("src/a"),)) == Decision(
        outcome=ASK,
        action="tool:file:create src/a",
        reason="by hand",
        rule=ask,
        code="",
        policy_digest=decided.digest,
        matched=(ask, allow),
        warnings=(
            "Writing to production path: src/a. Ensure this is intentional implementation work.",
        ),
    )


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("open", "AAAAAAAAAA"),
        ("standard", "AAAACDDD??"),
        ("locked", "ADADDDDDDD"),
        ("admin", "AAAAAAAADD"),
        ("nobody knows", "ADADDDDDDD"),
    ],
)
def test_each_built_in_profile_answers_as_it_is_described(profile: str, expected: str) -> None:
    actions = [
        view("a"),
        create("a"),
        Action("search", "find", "."),
        Action("output", "write", "outputs/a.md"),
        Action("shell", "run", "make all"),
        Action("ledger", "query", "governance"),
        Action("package", "list"),
        Action("gate", "check", "all"),
        Action("mcp", "call", "mcp__x__y"),
        Action("client", "WebFetch"),
    ]
    decisions = [decide(DEFAULT, (agent(profile),), (action,)) for action in actions]
    letters = {ALLOW: "A", Outcome.CONFINE: "C", ASK: "?", DENY: "D"}
    assert "".join(letters[decision.outcome] for decision in decisions) == expected


def test_a_clients_own_tools_are_allowed_by_name_and_others_asked_about() -> None:
    for name in ("Agent", "Skill", "TodoWrite", "ToolSearch", "Glob", "Grep", "ExitPlanMode"):
        assert decide(DEFAULT, (agent(),), (Action("client", name),)).outcome is ALLOW
    unknown = decide(DEFAULT, (agent(),), (Action("client", "agent"),))
    assert (unknown.outcome, unknown.rule and unknown.rule.source) == (
        ASK,
        "profiles.standard.otherwise",
    )


def test_an_unknown_profile_is_locked_and_says_so() -> None:
    decision = decide(DEFAULT, (agent("nope"),), (create("a"),))
    assert decision.outcome is DENY
    assert "the profile 'nope' is unknown, so locked applies" in decision.reason


def test_the_strictest_of_all_matching_rules_wins_whatever_the_order() -> None:
    lists = [
        'allow = ["tool:file:create a/**", "tool:file:*"]',
        'ask = ["tool:file:create a/b/**"]',
        'deny = ["tool:file:create **/c"]',
    ]
    for order in (lists, lists[::-1]):
        decided = policy("[profiles.p]\n" + "\n".join(order))
        assert outcomes(
            decided, agent("p"), create("a/x"), create("a/b/x"), create("a/b/c"), create("A/B/x")
        ) == {
            "tool:file:create a/x": (ALLOW, ""),
            "tool:file:create a/b/x": (ASK, ""),
            "tool:file:create a/b/c": (DENY, "policy.denied"),
            # Asking does not see case, and the allow of everything does not care.
            "tool:file:create A/B/x": (ASK, ""),
        }


def test_allow_compares_exactly_and_deny_does_not() -> None:
    decided = policy(
        '[profiles.p]\nallow = ["tool:file:view Docs/**"]\ndeny = ["tool:file:view *.X"]'
    )
    assert outcomes(
        decided, agent("p"), view("Docs/a"), view("docs/a"), view("Docs/a.x"), view("Docs/a.X")
    ) == {
        "tool:file:view Docs/a": (ALLOW, ""),
        "tool:file:view docs/a": (DENY, "policy.denied"),
        "tool:file:view Docs/a.x": (DENY, "policy.denied"),
        "tool:file:view Docs/a.X": (DENY, "policy.denied"),
    }


def test_otherwise_speaks_where_no_rule_does_and_the_strictest_key_counts() -> None:
    decided = policy(
        '[profiles.p]\nallow = ["tool:file:view"]\n'
        'otherwise = { "tool:*" = "allow", "tool:file:*" = "ask", "tool:file:delete" = "deny" }'
    )
    assert outcomes(
        decided,
        agent("p"),
        view("a"),
        create("a"),
        Action("file", "delete", "a"),
        Action("gate", "check"),
    ) == {
        "tool:file:view a": (ALLOW, ""),
        "tool:file:create a": (ASK, ""),
        "tool:file:delete a": (DENY, "policy.denied"),
        "tool:gate:check": (ALLOW, ""),
    }


def test_what_no_rule_matches_is_denied_with_what_to_do() -> None:
    decision = decide(policy("[profiles.p]\n"), (agent("p"),), (view("a"),))
    assert (decision.outcome, decision.rule, decision.code) == (DENY, None, "policy.denied")
    assert "so it is denied" in decision.reason
    assert "[profiles.p]" in decision.reason


def test_a_directory_named_by_a_search_rule_can_be_searched() -> None:
    decided = policy('[profiles.p]\nallow = ["tool:search:* docs/", "tool:file:view docs/"]')
    assert outcomes(
        decided, agent("p"), Action("search", "grep", "docs"), view("docs"), view("docs/a")
    ) == {
        "tool:search:grep docs": (ALLOW, ""),
        "tool:file:view docs": (DENY, "policy.denied"),
        "tool:file:view docs/a": (ALLOW, ""),
    }


# --- an agent's permissions -----------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "outcome", "below"),
    [("*/*", DENY, ALLOW), ("*/**", DENY, ALLOW), ("**", ALLOW, ALLOW), ("**/*", ALLOW, ALLOW)],
)
def test_what_allows_only_below_a_directory_does_not_open_the_root(
    pattern: str, outcome: Outcome, below: Outcome
) -> None:
    decided = policy(f'[profiles.p]\nallow = ["tool:search:* {pattern}", "tool:file:* {pattern}"]')
    for path, expected in ((".", outcome), ("x", outcome), ("x/y", below)):
        for action in (Action("search", "find", path), view(path)):
            assert decide(decided, (agent("p"),), (action,)).outcome is expected


@pytest.mark.parametrize(("pattern", "outcome"), [("*/**", ALLOW), ("**", DENY)])
def test_the_root_is_secret_only_where_all_below_it_is(pattern: str, outcome: Outcome) -> None:
    decided = policy(f'[paths]\nsecret = ["{pattern}"]')
    for action in (Action("search", "ls", "."), view("README.md")):
        assert decide(decided, (agent("open"),), (action,)).outcome is outcome
    assert decide(decided, (agent("open"),), (view("x/y"),)).outcome is DENY


def test_permissions_stand_above_the_profile() -> None:
    who = agent("open", read=("docs/**", "*.md"), write=("docs/out/**",), forbidden=("*secret*",))
    assert outcomes(
        DEFAULT,
        who,
        view("docs/a"),
        view("src/a"),
        view("x/a.md"),
        create("docs/out/a"),
        create("docs/a"),
        view("docs/SECRETs"),
        create("docs/out/my-secret"),
        Action("search", "grep", "docs"),
        Action("search", "grep", "docs/secret"),
        Action("search", "ls", "docs/secret"),
    ) == {
        "tool:file:view docs/a": (ALLOW, ""),
        "tool:file:view src/a": (DENY, "policy.forbidden"),
        "tool:file:view x/a.md": (ALLOW, ""),
        "tool:file:create docs/out/a": (ALLOW, ""),
        "tool:file:create docs/a": (DENY, "policy.forbidden"),
        "tool:file:view docs/SECRETs": (DENY, "policy.forbidden"),
        "tool:file:create docs/out/my-secret": (DENY, "policy.forbidden"),
        "tool:search:grep docs": (ALLOW, ""),
        "tool:search:grep docs/secret": (DENY, "policy.forbidden"),
        # Contents are closed, names are not.
        "tool:search:ls docs/secret": (ALLOW, ""),
    }
    decision = decide(DEFAULT, (who,), (view("docs/secret"),))
    assert decision.rule is not None
    assert (decision.rule.source, decision.rule.file) == (
        "agents.main.permissions.forbidden",
        "agents/main/agent.json",
    )


DECLARATION = b"""{
  "permissions": {
    "read": [
      "docs/**"],
    "forbidden": [
      "keys/*",
      "*secret*"
    ]
  }
}
"""


def test_what_permissions_refuse_names_the_line_of_the_agents_file() -> None:
    who = replace(
        agent("open", read=("docs/**",), write=("x",), forbidden=("built-in", "*secret*")),
        declaration=DECLARATION,
    )
    found = {
        str(action): rule.place
        for action in (view("docs/secret"), view("src/a"), create("docs/a"), view("built-in"))
        if (rule := decide(DEFAULT, (who,), (action,)).rule) is not None
    }
    assert found == {
        "tool:file:view docs/secret": "agents/main/agent.json:7",
        "tool:file:view src/a": "agents/main/agent.json:3",
        # What the file does not say stands in no line of it.
        "tool:file:create docs/a": "agents/main/agent.json",
        "tool:file:view built-in": "agents/main/agent.json",
    }
    # One whose text is no JSON of ours, or is not known, is refused all the same.
    for text in (b"", b"[", b'{"permissions": [1]}', b'{"permissions": {"forbidden": 1}}'):
        rule = decide(DEFAULT, (replace(who, declaration=text),), (view("docs/secret"),)).rule
        assert rule is not None
        assert rule.place == "agents/main/agent.json"


def test_a_directory_above_what_may_be_read_can_be_searched() -> None:
    who = agent("open", read=("/a/b/*.md", "!/a/b/x.md"))
    asked = {".": ALLOW, "a": ALLOW, "a/b": ALLOW, "a/c": DENY, "b": DENY, "a/b/c.py": DENY}
    found = {
        path: decide(DEFAULT, (who,), (Action("search", "grep", path),)).outcome for path in asked
    }
    assert found == asked
    assert decide(DEFAULT, (who,), (view("a"),)).outcome is DENY


def test_a_directory_that_the_list_itself_names_can_be_searched() -> None:
    who = agent("open", read=("/src/lib/", "!/docs/"))
    asked = {".": ALLOW, "src": ALLOW, "src/lib": ALLOW, "src/lib/a": ALLOW, "src/li": DENY}
    asked |= {"src/library": DENY, "src/Lib": DENY, "lib": DENY, "docs": DENY}
    for operation in ("grep", "find", "ls"):
        found = {
            path: decide(DEFAULT, (who,), (Action("search", operation, path),)).outcome
            for path in asked
        }
        assert found == asked, operation
    # A file of that name is none of what is in it.
    assert decide(DEFAULT, (who,), (view("src/lib"),)).outcome is DENY


def test_what_permissions_take_out_stays_out() -> None:
    who = agent("open", read=("**", "!private/"))
    assert decide(DEFAULT, (who,), (view("private/a"),)).code == "policy.forbidden"
    assert decide(DEFAULT, (who,), (view("public/a"),)).outcome is ALLOW


def test_empty_permissions_permit_nothing() -> None:
    who = agent("open", read=(), write=())
    for action in (view("a"), create("a"), Action("search", "ls", ".")):
        assert decide(DEFAULT, (who,), (action,)).code == "policy.forbidden"
    assert decide(DEFAULT, (who,), (Action("gate", "check"),)).outcome is ALLOW


def test_a_permission_that_can_match_nothing_is_a_config_error() -> None:
    with pytest.raises(ConfigError) as caught:
        decide(DEFAULT, (agent("open", read=("../x",)),), (view("a"),))
    assert caught.value.where == "agents/main/agent.json"


# --- agents by name, ancestors ---------------------------------------------------


def test_an_agent_named_twice_gets_the_stricter_profile() -> None:
    decided = policy(
        '[agents.main]\nprofile = "locked"\n[agents.writer]\nprofile = "open"\n'
        '[agents.Explore]\nprofile = "locked"'
    )
    locked = agent("locked", "writer")
    assert decide(decided, (agent("open"),), (create("a"),)).outcome is DENY
    assert decide(decided, (locked,), (create("a"),)).outcome is DENY
    assert decide(decided, (agent("open", "other"),), (create("a"),)).outcome is ALLOW


def test_a_child_never_exceeds_its_parent() -> None:
    child, parent = agent("open", "child"), agent("locked", "parent")
    assert decide(DEFAULT, (child,), (create("a"),)).outcome is ALLOW
    decision = decide(DEFAULT, (child, parent), (create("a"),))
    assert decision.outcome is DENY
    assert decision.reason.startswith('the parent agent "parent": ')
    assert decide(DEFAULT, (parent, child), (create("a"),)).outcome is DENY
    forbidding = agent("open", "parent", forbidden=("x",))
    assert decide(DEFAULT, (child, forbidding), (view("x"),)).code == "policy.forbidden"


# --- calls, warnings, mistakes ----------------------------------------------------


def test_the_strictest_action_decides_a_call() -> None:
    move = (Action("file", "delete", ".git/a"), create("b"))
    decision = decide(DEFAULT, (agent(),), move)
    assert (decision.outcome, decision.action) == (DENY, "tool:file:delete .git/a")
    both = decide(DEFAULT, (agent(),), (Action("mcp", "call", "x"), create("b")))
    assert (both.outcome, both.action) == (ASK, "tool:mcp:call x")
    assert [rule.text for rule in both.matched] == ["tool:mcp:*", "tool:file:*"]


def test_a_warning_goes_with_an_allow_or_an_ask_and_never_changes_it() -> None:
    text = "Writing to production path: {}. Ensure this is intentional implementation work."
    decided = policy(
        '[paths]\nwarned = ["/src/**", "*.cfg"]\nsafe = ["/src/docs/**"]\n'
        '[profiles.p]\nallow = ["tool:file:*"]\nask = ["tool:file:create src/b"]\n'
        'deny = ["tool:file:create src/c"]'
    )
    expected = {
        "src/a": (ALLOW, (text.format("src/a"),)),
        "src/b": (ASK, (text.format("src/b"),)),
        "src/c": (DENY, ()),
        "src/docs/a.cfg": (ALLOW, ()),
        "x.cfg": (ALLOW, (text.format("x.cfg"),)),
        "x": (ALLOW, ()),
    }
    decisions = {path: decide(decided, (agent("p"),), (create(path),)) for path in expected}
    assert {path: (each.outcome, each.warnings) for path, each in decisions.items()} == expected
    assert decide(decided, (agent("p"),), (view("src/a"),)).warnings == ()
    both = decide(decided, (agent("p"),), (create("src/a"), create("x.cfg"), create("src/a")))
    assert both.warnings == (text.format("src/a"), text.format("x.cfg"))


@pytest.mark.parametrize(
    "action",
    [
        Action("file", "frobnicate", "a"),
        Action("nothing", "run", "a"),
        view("../a"),
        view("/etc/passwd"),
        view("a/../.env"),
        view("a//b"),
        view("a\0"),
    ],
)
def test_a_caller_that_asks_about_nonsense_is_refused_even_under_open(action: Action) -> None:
    decision = decide(DEFAULT, (agent("open"),), (action,))
    assert (decision.outcome, decision.code) == (DENY, "policy.denied")


def test_no_action_and_no_agent_are_refused() -> None:
    assert decide(DEFAULT, (agent("open"),), ()).outcome is DENY
    assert decide(DEFAULT, (), (view("a"),)).outcome is DENY
    assert decide(DEFAULT, (agent("open"),) * 33, (view("a"),)).outcome is DENY
    assert decide(DEFAULT, (agent("open"),) * 32, (view("a"),)).outcome is ALLOW


# --- an untrusted project ----------------------------------------------------------


UNTRUSTED = """
[paths]
protected = ["!.git/", "conf/"]
generated = ["gen/"]
secret = ["!.env", "hidden"]
warned = ["/lib/**"]
safe = ["/src/**", "/docs/a"]
[profiles.standard]
allow = ["tool:*"]
ask = ["tool:file:create asked", "tool:gate:check"]
deny = ["tool:file:create denied"]
otherwise = { "tool:*" = "allow" }
[profiles.own]
allow = ["tool:*"]
[agents.bound]
profile = "own"
[agents.main]
profile = "open"
[shell]
network = "host"
[hook]
paranoid = true
"""


def test_an_untrusted_file_tightens_and_does_nothing_else() -> None:
    decided = policy(UNTRUSTED, trusted=False)
    assert outcomes(
        decided,
        agent(),
        create(".git/x"),
        create("conf/x"),
        create("gen/x"),
        view(".env"),
        view("hidden"),
        create("asked"),
        create("denied"),
        create("other"),
        Action("gate", "check"),
        Action("mcp", "call", "x"),
    ) == {
        "tool:file:create .git/x": (DENY, "policy.protected"),
        "tool:file:create conf/x": (DENY, "policy.protected"),
        "tool:file:create gen/x": (DENY, "policy.generated"),
        "tool:file:view .env": (DENY, "policy.secret"),
        "tool:file:view hidden": (DENY, "policy.secret"),
        "tool:file:create asked": (ASK, ""),
        "tool:file:create denied": (DENY, "policy.denied"),
        "tool:file:create other": (ALLOW, ""),
        # Its ask does not soften what the preset denies.
        "tool:gate:check": (DENY, "policy.denied"),
        "tool:mcp:call x": (ASK, ""),
    }
    assert decided.settings == DEFAULT.settings
    assert decided.profiles == DEFAULT.profiles
    warned = {
        p: bool(decide(decided, (agent(),), (create(p),)).warnings) for p in ("lib/a", "src/a")
    }
    assert warned == {"lib/a": True, "src/a": True}
    assert [decided.guards.is_safe(path) for path in ("docs/a", "docs/b", "src/a")] == [
        True,
        False,
        False,
    ]


NARROW = """
[profiles.standard]
allow = ["tool:file:view", "tool:file:create docs/**", "tool:search:*", "tool:shell:run git *"]
otherwise = { "tool:shell:*" = "deny", "tool:mcp:*" = "allow" }
"""


def test_what_an_untrusted_file_says_and_what_holds_without_it_are_decided_under_both() -> None:
    decided = policy(NARROW, trusted=False)
    found = outcomes(
        decided,
        agent(),
        view("a"),
        create("docs/a"),
        create("x"),
        Action("file", "delete", "docs/a"),
        Action("shell", "run", "make"),
        Action("shell", "run", "git status"),
        Action("mcp", "call", "x"),
        Action("gate", "check"),
    )
    assert {action: outcome for action, (outcome, _) in found.items()} == {
        "tool:file:view a": ALLOW,
        "tool:file:create docs/a": ALLOW,
        # What it does not name it denies, and what it denies is denied.
        "tool:file:create x": DENY,
        "tool:file:delete docs/a": DENY,
        "tool:shell:run make": DENY,
        # What it allows is confined, asked about or denied all the same, where it was.
        "tool:shell:run git status": Outcome.CONFINE,
        "tool:mcp:call x": ASK,
        "tool:gate:check": DENY,
    }
    # An agent whose profile it does not give is none of its business.
    assert decide(decided, (agent("open"),), (create("x"),)).outcome is ALLOW
    assert decide(policy(NARROW), (agent(),), (Action("mcp", "call", "x"),)).outcome is ALLOW


def test_the_answer_of_an_untrusted_file_names_its_rule_and_that_it_is_untrusted() -> None:
    decided = policy(NARROW, trusted=False)
    said = decide(decided, (agent(),), (Action("shell", "run", "make"),))
    assert said.rule is not None
    assert (said.rule.text, said.rule.source, said.rule.place) == (
        "tool:shell:*",
        "profiles.standard.otherwise",
        "paddock.toml:4",
    )
    assert said.reason == (
        'no rule matches "tool:shell:run make", and "tool:shell:*" in profiles.standard.otherwise '
        "says deny (paddock.toml is not trusted, so it can only tighten)"
    )
    unnamed = decide(decided, (agent(),), (create("x"),))
    assert (unnamed.rule, unnamed.code) == (None, "policy.denied")
    assert unnamed.reason.endswith("(paddock.toml is not trusted, so it can only tighten)")


def test_any_command_is_allowed_only_where_an_untrusted_file_allows_any_too() -> None:
    mine = '[profiles.standard]\nallow = ["tool:shell:*"]\n'
    doubtful = Action("shell", "run", "git $given")

    def decided(text: str) -> Outcome:
        under = load_policy(
            PolicySource("paddock.toml", text.encode(), trusted=False),
            PolicySource("config.toml", mine.encode()),
        )
        return decide(under, (agent(),), (doubtful,)).outcome

    assert decided('[profiles.standard]\nallow = ["tool:shell:run git *"]\n') is DENY
    assert decided('[profiles.standard]\nask = ["tool:shell:run git *"]\n') is ASK
    assert decided(mine) is ALLOW


def test_an_untrusted_profile_sets_neither_network_nor_limits_of_commands() -> None:
    mine = """
[profiles.standard.shell]
network = "host"
[[profiles.standard.rules]]
action = "tool:shell:run npm *"
outcome = "allow"
network = "none"
"""
    theirs = """
[profiles.standard]
allow = ["tool:*"]
[profiles.standard.shell]
network = "none"
[[profiles.standard.rules]]
action = "tool:shell:run *"
outcome = "allow"
network = "host"
"""
    user = PolicySource("config.toml", mine.encode())
    under = load_policy(PolicySource("paddock.toml", theirs.encode(), trusted=False), user)
    for line in ("npm test", "make"):
        asked = (agent(),), Action("shell", "run", line)
        assert shell_for(under, *asked) == shell_for(load_policy(None, user), *asked)
    assert under.ignored == (
        "paddock.toml:3: allow of [profiles.standard] only tightens",
        "paddock.toml:4: shell of [profiles.standard] is not in force",
        "paddock.toml:7: the rule that allows 'tool:shell:run *' only tightens",
    )


def test_an_agent_whose_profile_stands_in_the_untrusted_file_alone_is_locked() -> None:
    decided = policy(UNTRUSTED, trusted=False)
    for who in (agent("own"), agent("open", "bound")):
        assert decide(decided, (who,), (create("a"),)).outcome is DENY
        assert decide(decided, (who,), (view("a"),)).outcome is ALLOW
    trusted = policy(UNTRUSTED)
    assert decide(trusted, (agent("own", "x"),), (create("a"),)).outcome is ALLOW


@pytest.mark.parametrize("given", ["locked", "open"])
def test_a_profile_that_an_untrusted_file_gives_holds_besides_the_usual_one(given: str) -> None:
    text = f'[agents.Explore]\nprofile = "{given}"'
    asked = [
        Action("file", "create", "a"), Action("file", "delete", "a"), Action("mcp", "call", "x"),
    ]  # fmt: skip

    def outcome(text: str, who: Agent, action: Action, *, trusted: bool) -> Outcome:
        return decide(policy(text, trusted=trusted), (who,), (action,)).outcome

    for action in asked:
        usual = outcome("", agent("standard", "Explore"), action, trusted=True)
        theirs = outcome("", agent(given, "Explore"), action, trusted=True)
        found = outcome(text, agent("standard", "Explore"), action, trusted=False)
        assert found == max(usual, theirs, key=[ALLOW, ASK, DENY].index)
        assert outcome(text, agent("standard", "other"), action, trusted=False) == usual


def test_what_an_untrusted_file_did_not_get_is_listed_with_its_place() -> None:
    assert policy(UNTRUSTED, trusted=False).ignored == (
        "paddock.toml:19: [shell] is not in force",
        "paddock.toml:21: [hook] is not in force",
        "paddock.toml:9: allow of [profiles.standard] only tightens",
        "paddock.toml:12: otherwise of [profiles.standard] only tightens",
        "paddock.toml:13: the profile 'own' is not in force; an agent that has it is locked",
        "paddock.toml:15: [agents.'bound'] only tightens",
        "paddock.toml:17: [agents.'main'] only tightens",
    )
    assert policy(UNTRUSTED).ignored == ()


def test_an_untrusted_file_with_a_mistake_stops_as_well() -> None:
    with pytest.raises(ConfigError):
        policy("[path]\n", trusted=False)
