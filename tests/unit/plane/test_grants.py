import json
from pathlib import Path

import pytest
from msgspec.structs import fields

from paddock.errors import ConfigError
from paddock.plane.create import POLICY_TEMPLATE
from paddock.plane.grants import list_grants, list_restraints, summarise
from paddock.plane.trust import PolicyFile
from paddock.policy.presets import presets
from paddock.policy.settings import HookSettings, ShellSettings


def policy(text: str) -> PolicyFile:
    return PolicyFile(Path("/w/paddock.toml"), text.encode(), trusted=False, reason="never")


def grants(text: str) -> list[str]:
    return [str(grant) for grant in list_grants(policy(text))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        POLICY_TEMPLATE.decode(),
        '[paths]\nsafe = ["/docs/**"]',
        '[shell]\nnetwork = "none"\ngit = "read-only"\nread = ["/usr"]',
        "[shell]\nlimits = { processes = 8 }",
        "[limits]\nshell_timeout_s = 1",
        '[profiles.mine]\ndeny = ["tool:file:*"]',
        '[agents."Explore"]\nprofile = "locked"',
    ],
)
def test_what_only_tightens_or_repeats_grants_nothing(text):
    assert grants(text) == []
    assert summarise(policy(text)) == "/w/paddock.toml allows nothing beyond the defaults"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            """[paths]
protected = [".git/", ".env*", "*.key", "*.pem", "*.lock"]
secret = [".env*", "*.key", "/private/"]
""",
            [
                "[paths] .env* is protected (line 2)",
                "[paths] *.key is protected (line 2)",
                "[paths] *.lock is protected (line 2)",
                "[paths] .env* is secret (line 3)",
                "[paths] /private/ is secret (line 3)",
            ],
        ),
        (
            """[profiles.standard]
allow = ["tool:file:*", "tool:search:grep"]
ask = ["tool:file:delete **", "tool:shell:run make *"]
deny = ["tool:shell:run git push *"]
otherwise = { "tool:shell:*" = "ask", "tool:client:*" = "deny" }
""",
            [
                (
                    "profile standard replaces the built-in one: what it does not name is "
                    "denied (client), asked about (shell), else denied (line 1)"
                ),
                "profile standard allows tool:search:grep (line 2)",
                "profile standard asks about tool:file:delete ** (line 3)",
                "profile standard asks about tool:shell:run make * (line 3)",
                "profile standard denies tool:shell:run git push * (line 4)",
                "profile standard otherwise asks about tool:shell:* (line 5)",
                "profile standard otherwise denies tool:client:* (line 5)",
            ],
        ),
    ],
)
def test_what_is_as_strict_as_the_defaults_stands_apart_from_what_is_allowed(text, expected):
    assert grants(text) == []
    assert [str(each) for each in list_restraints(policy(text))] == expected
    assert summarise(policy(text)).splitlines() == [
        "/w/paddock.toml allows nothing beyond the defaults",
        "as strict as the defaults, or stricter:",
        *(f"  - {line}" for line in expected),
    ]


# Threat: what loosens one thing of several must not pass for strict.
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('ask = ["tool:file:*"]', "asks about tool:file:*"),
        ('ask = ["tool:mcp:call mcp__x"]', "asks about tool:mcp:call mcp__x"),
        ('allow = ["tool:*:view"]', "allows tool:*:view"),
        ('allow = ["tool:search:*"]', "allows tool:search:*"),
        ('otherwise = { "tool:*" = "ask" }', "otherwise asks about tool:*"),
    ],
)
def test_a_rule_that_is_stricter_in_a_part_alone_is_a_grant(rule, said):
    text = f"[profiles.locked]\n{rule}"
    assert grants(text) == [f"profile locked {said} (line 2)"]
    restraints = [str(each) for each in list_restraints(policy(text))]
    unnamed = "asked about" if rule.startswith("otherwise") else "denied"
    assert [each.split(" ", 2)[2] for each in restraints] == [
        f"replaces the built-in one: what it does not name is {unnamed} (line 1)"
    ]


STANDARD = (
    """[profiles.standard]
allow = [RULES]
otherwise = { "tool:mcp:*" = "ask", "tool:shell:*" = "confine", "tool:client:*" = "ask", "tool:own:*" = "ask" }
"""
).replace("RULES", ", ".join(f'"{rule.pattern.text}"' for rule in presets()[1].rules))


@pytest.mark.parametrize(
    ("otherwise", "unnamed"),
    [
        ("", "denied"),
        ('"tool:*" = "deny"', "denied"),
        ('"tool:mcp:*" = "deny"', "denied"),
        (
            '"tool:shell:*" = "ask", "tool:mcp:*" = "ask", "tool:client:*" = "ask"',
            "asked about (shell, mcp, client), else denied",
        ),
        ('"tool:client:WebFetch" = "ask"', "asked about (client:WebFetch), else denied"),
        ('"tool:*" = "ask"', "asked about"),
        ('"tool:mcp:*" = "deny", "tool:*" = "ask"', "denied (mcp), else asked about"),
        # Of two that overlap the strictest holds.
        ('"tool:search:*" = "allow", "tool:*" = "ask"', "asked about"),
        (
            '"tool:search:*" = "allow", "tool:shell:*" = "ask"',
            "asked about (shell), allowed (search), else denied",
        ),
    ],
)
def test_what_a_profile_does_not_name_is_told_as_it_is_answered(otherwise, unnamed):
    text = f'[profiles.standard]\nallow = ["tool:file:*"]\notherwise = {{ {otherwise} }}'
    (replaced,) = (str(each) for each in list_restraints(policy(text)) if "replaces" in str(each))
    assert replaced == (
        f"profile standard replaces the built-in one: what it does not name is {unnamed} (line 1)"
    )


def test_a_profile_that_repeats_the_built_in_one_takes_nothing_away():
    assert list_restraints(policy(STANDARD)) == ()
    more = STANDARD.replace("allow = [", 'allow = ["tool:shell:run make *", ')
    assert list_restraints(policy(more)) == ()
    assert grants(more) == ["profile standard allows tool:shell:run make * (line 2)"]
    for less in (
        STANDARD.replace('"tool:search:*", ', ""),
        STANDARD.replace('"ask" }', '"deny" }'),
    ):
        assert less != STANDARD
        assert "replaces the built-in one: " in str(list_restraints(policy(less))[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[paths]\nprotected = [".git/", "!my.pem", "*.pem"]',
            [
                "[paths] !my.pem is excluded from protected (line 2)",
            ],
        ),
        (
            '[paths]\nsecret = []\nsafe = ["/src/**"]',
            [
                "[paths] .env is no longer secret",
                "[paths] .env.* is no longer secret",
                "[paths] .envrc is no longer secret",
                "[paths] *.key is no longer secret",
                "[paths] /src/** is safe: no warning (line 3)",
            ],
        ),
        (
            """[profiles.mine]
allow = ["tool:file:view"]
ask = ["tool:mcp:call"]
otherwise = { "tool:search:*" = "allow", "tool:client:*" = "deny" }
""",
            [
                "profile mine allows tool:file:view (line 2)",
                "profile mine asks about tool:mcp:call (line 3)",
                "profile mine otherwise allows tool:search:* (line 4)",
            ],
        ),
        (
            '[profiles.mine]\nallow = ["tool:file:view", "tool:file:create"]',
            [
                "profile mine allows tool:file:view (line 2)",
                "profile mine allows tool:file:create (line 2)",
            ],
        ),
        (
            """[shell]
network = "host"
git = "none"
read = ["/usr", "/srv"]
write = ["/var"]
enforcement = "best-effort"
approve = "diff"
limits = { processes = 9999 }
""",
            [
                "[shell] network is 'host'",
                "[shell] git is 'none'",
                "[shell] commands may read /srv",
                "[shell] commands may write /var",
                "[shell] enforcement is 'best-effort'",
                "[shell] approve is 'diff'",
                "[shell] limit processes is 9999",
            ],
        ),
        (
            '[profiles.mine.shell]\nnetwork = "host"',
            ["profile mine, shell network is 'host'"],
        ),
        (
            """[hook]
on_allow = "approve"
warnings = "off"
also_write = ["~/notes/**"]
[agents."Explore"]
profile = "open"
[history]
bytes_max = 1
[mcp]
calls_max = 64
[ledger]
keep_model_contents = true
""",
            [
                "[hook] an allow skips the client's own question",
                "[hook] warnings are off",
                "[hook] the client may also write ~/notes/**",
                "[agents] Explore has the profile open",
                "[history] only 1 bytes are kept for undo",
                "[mcp] 64 calls run at once",
                "[ledger] messages to and from models are kept",
            ],
        ),
    ],
)
def test_everything_that_loosens_is_named(text, expected):
    assert grants(text) == expected
    assert summarise(policy(text)).splitlines() == [
        "/w/paddock.toml allows, beyond the defaults:",
        *(f"  - {line}" for line in expected),
    ]


def test_a_profile_that_extends_the_one_of_its_name_does_not_replace_it():
    text = '[profiles.standard]\nextends = "standard"\notherwise = { "tool:shell:*" = "ask" }'
    assert list(map(str, list_restraints(policy(text)))) == [
        "profile standard otherwise asks about tool:shell:* (line 3)"
    ]


def test_what_loosens_and_what_does_not_stand_under_headings_of_their_own():
    text = (
        '[profiles.locked]\nallow = ["tool:file:view", "tool:file:create"]\ndeny = ["tool:mcp:*"]'
    )
    assert summarise(policy(text)).splitlines() == [
        "/w/paddock.toml allows, beyond the defaults:",
        "  - profile locked allows tool:file:create (line 2)",
        "as strict as the defaults, or stricter:",
        ("  - profile locked replaces the built-in one: what it does not name is denied (line 1)"),
        "  - profile locked denies tool:mcp:* (line 3)",
    ]


def test_a_rule_that_gives_a_command_the_network_says_so():
    rule = (
        '[[profiles.mine.rules]]\naction = "tool:shell:run npm install *"\n'
        'outcome = "ask"\nnetwork = "host"'
    )
    assert grants(rule) == [
        "profile mine asks about tool:shell:run npm install * (line 2)",
        "profile mine gives tool:shell:run npm install * the network 'host' (line 2)",
    ]


def test_a_text_that_would_rewrite_the_screen_is_escaped():
    text = '[profiles."a\\u001b[2K\\u202e"]\nallow = ["tool:file:view"]'
    assert grants(text) == ["profile a\\x1b[2K\\u202e allows tool:file:view (line 2)"]


def test_a_file_that_does_not_load_has_no_summary():
    with pytest.raises(ConfigError):
        list_grants(policy("[pahts]"))


# --- under a user's own configuration --------------------------------------------------

USERS = """
[paths]
protected = [".git/", "/prod/"]
secret = ["/customers/"]
[shell]
network = "none"
[limits]
view_bytes_max = 100
[profiles.standard]
allow = ["tool:file:view"]
deny = ["tool:file:view drafts/**"]
"""


def configuration(text: str) -> PolicyFile:
    return PolicyFile(Path("/h/config.toml"), text.encode(), trusted=True, reason="yours")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (POLICY_TEMPLATE.decode(), []),
        (USERS.replace("100", "99"), []),
        (
            '[paths]\nprotected = [".git/"]\nsecret = [".env*"]',
            ["[paths] /prod/ is no longer protected", "[paths] /customers/ is no longer secret"],
        ),
        ('[shell]\nnetwork = "loopback"', ["[shell] network is 'loopback'"]),
        ("[limits]\nview_bytes_max = 1000", ["[limits] view_bytes_max is 1000"]),
        (
            '[profiles.standard]\nallow = ["tool:file:*"]',
            [
                "profile standard allows tool:file:* (line 2)",
                "profile standard no longer denies tool:file:view drafts/**",
            ],
        ),
    ],
)
def test_what_the_user_restricted_is_held_against_and_not_what_is_built_in(text, expected):
    found = list_grants(policy(text), configuration(USERS))
    assert [str(grant) for grant in found] == expected
    said = summarise(policy(text), configuration(USERS)).splitlines()[0]
    end = "allows, beyond" if expected else "allows nothing beyond"
    assert said.rstrip(":") == f"/w/paddock.toml {end} the policy in /h/config.toml"


def test_what_the_user_opened_already_is_no_grant_of_the_file():
    text = '[shell]\nnetwork = "host"\n[hook]\non_allow = "approve"\n[mcp]\ncalls_max = 999'
    assert list_grants(policy(text), configuration(text)) == ()
    assert len(list_grants(policy(text))) == 3


# Threat: a clone that turns off what its user turned on. Strict, loose, and what is said.
LOOSENED_HOOK = {
    "on_allow": ('"silent"', '"approve"', "[hook] an allow skips the client's own question"),
    "warnings": ('"once"', '"off"', "[hook] warnings are off"),
    "also_write": ("[]", '["~/notes/"]', "[hook] the client may also write ~/notes/"),
    "shell": (
        '"confine"',
        '"read"',
        "[hook] the client's own commands no longer run in the sandbox",
    ),
    "outside": ("[]", '["docker *"]', "[hook] commands like docker * run outside the sandbox"),
    "paranoid": ("true", "false", "[hook] writing outside what is safe is no longer denied"),
}
ALLOWS_NOTHING = {"sandbox_ignored", "scratch"}
"""What git sees of scratch work, and whether it is advised: neither of its values lets anybody do anything."""

LOOSENED_SHELL = {
    "network": ('"loopback"', '"host"', "network is 'host'"),
    "git": ('"read-only"', '"safe"', "git is 'safe'"),
    "read": ('["/usr"]', '["/usr", "/srv"]', "commands may read /srv"),
    "write": ("[]", '["/srv"]', "commands may write /srv"),
    "enforcement": ('"required"', '"best-effort"', "enforcement is 'best-effort'"),
    "approve": ('"command"', '"diff"', "approve is 'diff'"),
    "commit": (
        '"all"',
        '"each"',
        "commit is 'each': what is allowed lands where the rest is refused",
    ),
    "limits": ("{ cpu_s = 5 }", "{ cpu_s = 6 }", "limit cpu_s is 6"),
    "env": ('["CI"]', '["CI", "PYTEST_*"]', "a call may set the variable PYTEST_*"),
    "caches": (
        "false",
        "true",
        "caches is true: commands share their tools' downloads",
    ),
    "confine_max": (
        "{ files = 5 }",
        "{ files = 6 }",
        "confine_max files is 6: up to this, changes land unasked",
    ),
}
NEITHER_STRICTER = {"approve"}


def under(users: str, projects: str) -> list[str]:
    return [str(each) for each in list_grants(policy(projects), configuration(users))]


def test_no_key_of_hook_and_shell_is_forgotten():
    assert {each.name for each in fields(HookSettings)} == {*LOOSENED_HOOK, *ALLOWS_NOTHING}
    assert {each.name for each in fields(ShellSettings)} == set(LOOSENED_SHELL)


@pytest.mark.parametrize("key", LOOSENED_HOOK)
def test_every_key_of_the_hook_that_loosens_is_named_and_its_opposite_is_not(key):
    strict, loose, said = LOOSENED_HOOK[key]
    users, projects = (f"[hook]\n{key} = {value}" for value in (strict, loose))

    assert under(users, projects) == [said]
    assert under(projects, users) == []
    assert under(users, "") == []


@pytest.mark.parametrize("title", ["[shell]", "[profiles.standard.shell]"])
@pytest.mark.parametrize("key", LOOSENED_SHELL)
def test_every_key_of_the_shell_that_loosens_is_named_and_its_opposite_is_not(title, key):
    strict, loose, said = LOOSENED_SHELL[key]
    name = "[shell]" if title == "[shell]" else "profile standard, shell"
    users, projects = (f"{title}\n{key} = {value}" for value in (strict, loose))

    assert under(users, projects) == [f"{name} {said}"]
    opposite = [f"{name} {key} is {strict}".replace('"', "'")] if key in NEITHER_STRICTER else []
    assert under(projects, users) == opposite
    assert under(users, "") == []


@pytest.mark.parametrize("key", ["cpu_s", "memory_mb"])
def test_a_limit_that_is_taken_away_is_named(key):
    users, projects = (f"[shell]\nlimits = {{ {key} = {value} }}" for value in (50, 0))

    assert under(users, projects) == [f"[shell] limit {key} is 0"]
    assert under(projects, users) == []


def test_a_longer_time_for_commands_is_named():
    assert grants("[limits]\nshell_timeout_s = 3600") == ["[limits] shell_timeout_s is 3600"]
    assert grants("[limits]\nshell_timeout_s = 599") == []


def test_fewer_warnings_are_named():
    every, once = '[hook]\nwarnings = "all"', '[hook]\nwarnings = "once"'

    assert under(every, once) == ["[hook] a warning is given once in a session"]
    assert under(once, every) == []


def test_a_sandbox_that_goes_with_the_approval_is_named_and_the_approval_is_not():
    users = '[hook]\non_allow = "approve"\nsandbox_shell = true'
    projects = '[hook]\non_allow = "silent"\nshell = "read"'

    assert under(users, projects) == [
        "[hook] the client's own commands no longer run in the sandbox"
    ]


def narrow(outcome: str, network: str) -> str:
    given = f'network = "{network}"\n' if network else ""
    return (
        '[[profiles.standard.rules]]\naction = "tool:shell:run cat *"\n'
        f'outcome = "{outcome}"\n{given}'
    )


COMMANDS = '[profiles.standard]\nallow = ["tool:shell:*"]\n'
NO_LONGER_NARROW = ["profile standard no longer limits tool:shell:run cat * to the network 'none'"]


@pytest.mark.parametrize("outcome", ["allow", "ask"])
@pytest.mark.parametrize("kept", [None, "", "loopback"])
def test_a_rule_that_closed_the_network_and_is_not_repeated_is_named(outcome, kept):
    users = f'[shell]\nnetwork = "host"\n{COMMANDS}{narrow(outcome, "none")}'
    rule = "" if kept is None else narrow(outcome, kept)

    found = under(users, COMMANDS + rule)

    assert set(found) >= set(NO_LONGER_NARROW)
    assert under(users, COMMANDS + narrow(outcome, "none")) == []


def test_a_network_that_the_file_itself_opens_counts():
    users = f'[shell]\nnetwork = "loopback"\n{COMMANDS}{narrow("allow", "loopback")}'
    again = COMMANDS.replace("allow", "allow ")

    assert under(users, again) == []
    assert under(users, f'[shell]\nnetwork = "host"\n{again}') == [
        "profile standard no longer limits tool:shell:run cat * to the network 'loopback'",
        "[shell] network is 'host'",
    ]


def test_a_network_that_another_rule_opens_counts():
    opened = narrow("allow", "host").replace("cat *", "*")
    closed = narrow("allow", "none")

    assert under(f"{COMMANDS}{opened}{closed}", COMMANDS + opened) == NO_LONGER_NARROW
    assert under(f"{COMMANDS}{opened}{closed}", COMMANDS + opened + closed) == []


def test_a_command_that_was_closed_and_is_denied_now_is_no_grant():
    users = f'[shell]\nnetwork = "host"\n{COMMANDS}{narrow("allow", "none")}'

    assert under(users, COMMANDS + narrow("deny", "")) == []


def test_an_exception_that_opens_nothing_is_not_called_one_that_opens():
    text = '[paths]\nprotected = [".git/", ".env*", "*.key", "*.pem", "%s", "!/m/README.md"]'
    assert grants(text % "/m/") == []
    assert grants(text % "/m/**") == ["[paths] !/m/README.md is excluded from protected (line 2)"]


# --- what a user restricted with an exception, an entry or a binding ---------------------

NO_SHELL = '{ "tool:*" = "ask", "tool:shell:*" = "deny" }'


def otherwise(entries: str) -> str:
    return f"[profiles.standard]\notherwise = {entries}\n"


@pytest.mark.parametrize(
    ("users", "projects", "expected"),
    [
        (NO_SHELL, '{ "tool:*" = "ask" }', ["tool:*"]),
        (NO_SHELL, '{ "tool:shell:*" = "ask" }', ["tool:shell:*"]),
        (NO_SHELL, '{ "tool:shell:run" = "ask" }', ["tool:shell:run"]),
        # It might be all that there is to `tool:shell:*`: nothing relies on that.
        (NO_SHELL, '{ "tool:*" = "ask", "tool:shell:run" = "deny" }', ["tool:*"]),
        (NO_SHELL, '{ "tool:*" = "ask", "tool:shell:*" = "deny", "tool:mcp:*" = "ask" }', []),
        (NO_SHELL, NO_SHELL, []),
        (NO_SHELL, '{ "tool:mcp:*" = "ask" }', []),
        (NO_SHELL, '{ "tool:file:*" = "deny" }', []),
        ('{ "tool:shell:*" = "ask" }', '{ "tool:*" = "ask" }', ["tool:*"]),
        (
            '{ "tool:*" = "ask", "tool:client:Task" = "deny" }',
            '{ "tool:client:task" = "ask" }',
            ["tool:client:task"],
        ),
    ],
)
def test_an_entry_that_covers_a_stricter_one_of_the_users_is_named(users, projects, expected):
    assert under(otherwise(users), otherwise(projects)) == [
        f"profile standard otherwise asks about {head} (line 2)" for head in expected
    ]


def test_what_the_user_lets_pass_otherwise_is_no_grant_and_its_exception_is():
    users = '{ "tool:*" = "allow", "tool:shell:*" = "ask" }'

    assert under(otherwise(users), otherwise(users)) == []
    assert under(otherwise(users), otherwise('{ "tool:*" = "allow" }')) == [
        "profile standard otherwise allows tool:* (line 2)"
    ]


def test_a_rule_that_asks_where_the_users_entry_denies_is_named():
    def asking(action: str) -> str:
        return f'{otherwise(NO_SHELL)}ask = ["{action}"]\n'

    assert under(otherwise(NO_SHELL), asking("tool:shell:run make")) == [
        "profile standard asks about tool:shell:run make (line 3)"
    ]
    assert under(otherwise(NO_SHELL), asking("tool:mcp:call mcp__a__b")) == []


def bound(profile: str) -> str:
    return f'[profiles.nothing]\ndeny = ["tool:*"]\n[agents."Explore"]\nprofile = "{profile}"\n'


@pytest.mark.parametrize(
    ("users", "projects", "expected"),
    [
        ("nothing", "locked", ["[agents] Explore has the profile locked"]),
        ("nothing", "open", ["[agents] Explore has the profile open"]),
        ("standard", "nothing", ["[agents] Explore has the profile nothing"]),
        ("nothing", "nothing", []),
        ("locked", "locked", []),
    ],
)
def test_a_binding_in_the_place_of_the_users_is_named(users, projects, expected):
    assert under(bound(users), bound(projects)) == expected


def test_a_binding_to_locked_in_the_place_of_none_is_not_named():
    others = bound("nothing").replace("Explore", "Other")

    assert under(others, '[agents."Explore"]\nprofile = "locked"\n') == []


@pytest.mark.parametrize(
    ("users", "projects", "expected"),
    [
        (["/docs/**", "!/docs/prod/**"], ["/docs/**"], ["!/docs/prod/**"]),
        (["/docs/**", "!/docs/prod/**"], ["!/docs/prod/**", "/docs/**"], ["!/docs/prod/**"]),
        (
            ["/docs/**", "!/docs/prod/**"],
            ["/docs/**", "!/docs/prod/**", "/docs/**"],
            ["!/docs/prod/**"],
        ),
        (["/docs/**", "!/docs/a", "!/docs/b"], ["/docs/**", "!/docs/b"], ["!/docs/a"]),
        (["/docs/**", "!/docs/prod/**"], ["/docs/**", "!/docs/prod/**"], []),
        (["/docs/**", "!/docs/prod/**"], ["/docs/**", "!/docs/prod/**", "!/docs/x"], []),
        (["/docs/**", "!/docs/prod/**", "/lib/**"], ["/lib/**"], []),
        (["/docs/**", "!/docs/prod/**"], [], []),
    ],
)
def test_an_exception_that_no_longer_takes_anything_out_of_safe_is_named(users, projects, expected):
    users_own, projects_own = (
        f"[paths]\nsafe = {json.dumps(each)}\n" for each in (users, projects)
    )

    assert under(users_own, projects_own) == [
        f"[paths] {text} is no longer excluded from safe" for text in expected
    ]
    assert under(users_own, "[paths]\n") == []


def net_rule(more: str = "", outcome: str = "allow") -> str:
    return (
        '[profiles.standard]\nextends = "standard"\n[[profiles.standard.rules]]\n'
        f'action = "tool:net:connect db.example.org:5432"\noutcome = "{outcome}"\n{more}\n'
    )


def test_what_opens_the_network_is_named_with_all_that_it_says():
    assert grants(net_rule()) == [
        "profile standard allows tool:net:connect db.example.org:5432 (line 4)"
    ]
    assert grants(net_rule('addresses = ["10.0.0.0/8"]\ncommands = ["psql *", "pg_dump *"]')) == [
        (
            "profile standard allows tool:net:connect db.example.org:5432, for commands like"
            " psql *, pg_dump *, also at addresses in 10.0.0.0/8 (line 4)"
        )
    ]
    assert grants(net_rule(outcome="deny")) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [("", 'addresses = ["10.0.0.0/8"]'), ('commands = ["psql *"]', ""), ("", None)],
)
def test_a_rule_for_the_network_that_says_more_than_yours_is_named(before, after):
    users = net_rule(before)

    assert under(users, users) == []
    assert (under(users, "" if after is None else net_rule(after)) != []) is (after is not None)


def test_what_allows_everything_else_hides_no_grant_of_the_network():
    opening = '[profiles.open]\nextends = "open"\nallow = ["tool:net:connect example.org"]\n'

    assert grants(opening) == ["profile open allows tool:net:connect example.org (line 3)"]
    asking = '[profiles.open]\nextends = "open"\notherwise = { "tool:net:*" = "ask" }\n'
    assert grants(asking) == ["profile open otherwise asks about tool:net:* (line 3)"]


def test_a_network_that_rules_open_is_more_than_a_loopback():
    loopback, ruled = (f'[shell]\nnetwork = "{word}"\n' for word in ("loopback", "policy"))

    assert under(loopback, ruled) == ["[shell] network is 'policy'"]
    assert under(ruled, loopback) == []


def test_a_server_of_a_project_is_shown_whole_and_what_changed_of_it_again():
    own = '[mcp.servers.issues]\ncommand = ["npx", "-y", "x\\u001b[2K"]\nnetwork = ["a.example"]\n'
    text = f'{own}env = {{ T = "credential:t" }}\nfiles = "write"\nredact = ["/key"]\n'
    shown = [
        (
            "the MCP server issues runs npx -y 'x\\x1b[2K'; reaches a.example; has T=credential:t; "
            "reads and writes the workspace; /key of arguments is not recorded (line 1)"
        )
    ]
    assert grants(text) == shown

    user = PolicyFile(Path("/u/config.toml"), text.encode(), trusted=True)
    assert list_grants(policy(text), user) == ()
    changed = text.replace('"a.example"', '"b.example"')
    assert ["reaches b.example" in str(each) for each in list_grants(policy(changed), user)] == [
        True
    ]
    assert grants('[mcp.servers.far]\nurl = "https://a.example/mcp"\n') == [
        "the MCP server far is reached at https://a.example/mcp (line 1)"
    ]


CONDITION = 'when = { "/a" = { max = 1 } }\n'


def test_what_was_denied_and_is_denied_only_on_a_condition_is_told():
    rule = '[[profiles.mine.rules]]\naction = "tool:mcp:*"\noutcome = "deny"\n'
    user = PolicyFile(Path("/u/config.toml"), rule.encode(), trusted=True)

    assert [str(each) for each in list_grants(policy(rule + CONDITION), user)] == [
        "profile mine no longer denies tool:mcp:*"
    ]
    assert list_grants(policy(rule), user) == ()


def test_an_allow_with_a_condition_is_shown_with_it_and_is_no_allow_of_all():
    rule = '[[profiles.mine.rules]]\naction = "tool:mcp:*"\noutcome = "allow"\n'
    said = 'profile mine allows tool:mcp:*, when = { "/a" = { max = 1 } } (line 2)'
    assert grants(rule + CONDITION) == [said]

    user = PolicyFile(Path("/u/config.toml"), (rule + CONDITION).encode(), trusted=True)
    assert [str(each) for each in list_grants(policy(rule), user)] == [
        "profile mine allows tool:mcp:* (line 2)"
    ]
