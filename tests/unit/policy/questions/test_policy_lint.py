"""Rules that do nothing and grants that give more than they seem to; examples as a report."""

import json

import pytest

from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.explain import run_examples
from paddock.policy.questions.lint import lint
from paddock.policy.rules import parse_action
from paddock.values.decisions import Agent


def policy(text: str) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode()))


def found(text: str) -> list[tuple[str, int]]:
    return [(finding.code, finding.place.line) for finding in lint(policy(text))]


@pytest.mark.parametrize(
    ("weak", "strong", "is_covered"),
    [
        ("tool:file:create docs/a", "tool:file:create docs/**", True),
        ("tool:file:create docs/**", "tool:file:* docs/**", True),
        ("tool:file:create docs/**", "tool:file:create", True),
        ("tool:file:create docs/**", "tool:file:create docs/a", False),
        ("tool:file:create docs/**", "tool:file:create docs/*.md", False),
        ("tool:file:create docs/*.md", "tool:file:create *.md", True),
        ("tool:file:create *.md", "tool:file:create docs/*.md", False),
        ("tool:file:create **/x", "tool:file:create /x", False),
        ("tool:file:create x", "tool:file:create **/x", True),
        # A star may stand for nothing, or for one character.
        ("tool:file:create v*", "tool:file:create v??*", False),
        ("tool:file:create v*", "tool:file:create v?*", False),
        ("tool:file:create v??*", "tool:file:create v*", True),
        ("tool:file:create v?*", "tool:file:create v?*", True),
        ("tool:file:view *.md", "tool:file:view ?*.md", False),
        ("tool:file:view ?*.md", "tool:file:view *.md", True),
        ("tool:file:view a/**", "tool:file:view a/??*", False),
        ("tool:file:view a/**", "tool:file:view a/?*", True),
        ("tool:file:view a/*", "tool:file:view a/??*", False),
        ("tool:file:view a*/b", "tool:file:view a?*/b", False),
        ("tool:file:view a*/b", "tool:file:view a*/", True),
        # Everything is the root, too.
        ("tool:search:ls **", "tool:search:ls ?*", False),
        ("tool:search:ls **", "tool:search:ls *", True),
        ("tool:file:* docs/a", "tool:file:create docs/a", False),
        ("tool:mcp:call mcp__a__*", "tool:mcp:call mcp__*", True),
        ("tool:mcp:call mcp__*", "tool:mcp:call mcp__a__*", False),
        ("tool:shell:run git push origin", "tool:shell:run git push *", True),
        ("tool:shell:run git *", "tool:shell:run git push *", False),
        ("tool:shell:run git push *", "tool:shell:run git *", True),
        ("tool:shell:run git push *", "tool:shell:run *", True),
        ("tool:file:view a", "tool:shell:run *", False),
    ],
)
def test_a_rule_that_a_stricter_one_covers_whole_is_found(
    weak: str, strong: str, is_covered: bool
) -> None:
    text = f'[profiles.p]\nallow = ["{weak}"]\ndeny = ["{strong}"]'
    assert (("lint.rule_covered", 2) in found(text)) == is_covered


@pytest.mark.parametrize(
    ("weak", "strong", "is_covered"),
    [
        ("docs/[ab].md", "docs/a.md", False),
        ("docs/[a-z].md", "docs/[az].md", False),
        ("docs/[a-z].md", "docs/[!m].md", False),
        ("docs/?.md", "docs/[!a].md", False),
        ("docs/[!a].md", "docs/[!b].md", False),
        ("docs/[ab].md", "docs/?.md", True),
        ("docs/[ab].md", "docs/**", True),
    ],
)
def test_brackets_are_covered_by_wildcards_alone(weak: str, strong: str, is_covered: bool) -> None:
    text = f'[profiles.p]\nask = ["tool:file:* {weak}"]\ndeny = ["tool:file:* {strong}"]'
    assert (("lint.rule_covered", 2) in found(text)) == is_covered


def test_a_twin_with_brackets_is_found_too() -> None:
    text = '[profiles.p]\nask = ["tool:file:view [ab]",\n"tool:file:view [ab]"]'
    assert found(text) == [("lint.rule_covered", 3)]


def test_a_rule_that_gives_a_network_is_never_superfluous() -> None:
    rule = """[[profiles.p.rules]]
action = "tool:shell:run npm install"
outcome = "allow"
"""
    text = f'[profiles.p]\nask = ["tool:shell:run npm *"]\n{rule}'
    assert ("lint.rule_covered", 4) in found(text)
    assert "lint.rule_covered" not in [code for code, _ in found(text + 'network = "host"\n')]


@pytest.mark.parametrize(
    ("secret", "rule", "is_swallowed"),
    [
        ('".env*"', "[.x]env", False),
        ('"[!a]*.pem"', "?b.pem", False),
        ('"*.pem", "!test.pem"', "*.pem", False),
        ('"*.pem", "!test.pem"', "certs/[ab].pem", True),
        ('"*.pem"', "[ab].pem", True),
        ('"a??*"', "a*", False),
        ('"a*"', "a??*", True),
        ('"?*"', "**", False),
        ('"*"', "**", True),
    ],
)
def test_a_rule_is_swallowed_only_if_all_that_it_names_is(
    secret: str, rule: str, is_swallowed: bool
) -> None:
    text = f'[paths]\nsecret = [{secret}]\n[profiles.p]\nallow = ["tool:file:view {rule}"]'
    assert (("lint.rule_never", 4) in found(text)) == is_swallowed


@pytest.mark.parametrize(("ask", "deny", "path"), [("v*", "v??*", "v1"), ("*.md", "?*.md", ".md")])
def test_a_rule_is_not_said_to_be_idle_where_without_it_more_is_allowed(
    ask: str, deny: str, path: str
) -> None:
    allow = '[profiles.p]\nallow = ["tool:file:*"]\n'
    without = (
        f'{allow}deny = ["tool:file:create {deny}", "tool:file:delete", "tool:file:str_replace"]'
    )
    asked = f'{without}\nask = ["tool:file:create {ask}"]'

    assert found(asked) == []
    said = [
        decide(policy(text), (Agent("main", "p"),), [parse_action(f"tool:file:create {path}")])
        for text in (asked, without)
    ]
    assert [decision.outcome.word for decision in said] == ["ask", "allow"]


def test_a_twin_is_found_once() -> None:
    text = '[profiles.p]\nask = ["tool:file:view a",\n"tool:file:view a"]'
    assert found(text) == [("lint.rule_covered", 3)]


def test_a_rule_that_a_path_list_swallows_is_found() -> None:
    text = """[profiles.p]
allow = ["tool:file:create .git/**",
"tool:file:view .git/**",
"tool:file:view .env.local",
"tool:file:create yarn.lock",
"tool:file:* x.pem",
"tool:file:create *.py"]
ask = ["tool:file:create /paddock.toml"]
"""
    assert found(text) == [("lint.rule_never", line) for line in (2, 4, 5, 8)]


def test_dangerous_grants_are_found_with_their_places() -> None:
    text = """[paths]
protected = []
secret = []
[profiles.p]
allow = ["tool:shell:run ls *",
"tool:shell:run python *",
"tool:shell:run python -m pytest",
"tool:shell:run /bin/bash *"]
[[profiles.p.rules]]
action = "tool:shell:run npm install *"
outcome = "ask"
network = "host"
[profiles.wide]
allow = ["tool:*"]
[profiles.wide.shell]
network = "host"
[shell]
enforcement = "best-effort"
git = "none"
[ledger]
keep_model_contents = true
"""
    assert found(text) == [
        ("lint.nothing_protected", 2),
        ("lint.nothing_secret", 3),
        ("lint.interpreter", 6),
        ("lint.interpreter", 8),
        ("lint.network_host", 10),
        ("lint.any_command", 14),
        ("lint.network_host", 16),
        ("lint.best_effort", 18),
        ("lint.git_none", 19),
        ("lint.contents_kept", 21),
    ]


@pytest.mark.parametrize(
    ("rule", "is_wide"),
    [
        ("connect *", True),
        ("connect *.org:443", True),
        ("connect *.example.org:443", False),
        ("connect 0.0.0.0/0:443", True),
        ("connect 10.0.0.0/8:443", False),
        ("connect example.org:22", True),
        ("connect example.org:443", False),
        ("request GET *.example.org/**", False),
    ],
)
def test_a_wide_allow_of_the_network_is_found_and_an_ask_is_none(rule: str, is_wide: bool) -> None:
    text = '[profiles.p]\n{} = ["tool:net:{}", "tool:file:*"]\n'
    expected = [("lint.network_wide", 2)] if is_wide else []

    assert found(text.format("allow", rule)) == expected
    assert found(text.format("ask", rule)) == []


def test_rules_of_one_name_that_lead_elsewhere_are_no_twins() -> None:
    rule = '[[profiles.p.rules]]\naction = "tool:net:connect a.test"\noutcome = "allow"\n'

    assert found(f'{rule}{rule}addresses = ["10.0.0.0/8"]\n') == []
    assert found(rule + rule) == [("lint.rule_covered", 5)]


@pytest.mark.parametrize("address", ["0.0.0.0/0", "::/0"])
def test_a_name_that_may_lead_everywhere_is_found(address: str) -> None:
    text = (
        '[[profiles.p.rules]]\naction = "tool:net:connect example.org"\noutcome = "allow"\n'
        f'addresses = ["{address}"]\n'
    )

    assert found(text) == [("lint.network_wide", 2)]
    assert found(text.replace(address, "10.0.0.0/8")) == []


@pytest.mark.parametrize(("value", "word"), [("true", "confine"), ("false", "read")])
def test_an_old_name_of_a_setting_is_named_with_what_is_written_today(value, word):
    (finding,) = lint(policy(f"[hook]\nsandbox_shell = {value}\n"))
    assert finding.render() == (
        "paddock.toml:2: lint.old_name: hook.sandbox_shell is an old name: it is read as"
        f' hook.shell = "{word}"\n  hint: write shell = "{word}" in its place'
    )


@pytest.mark.parametrize(
    "text",
    [
        '[hook]\nshell = "confine"\n',
        '[hook]\nshell = "read"\n',
        "[hook]\nscratch = false\n",
        "# sandbox_shell = true\n",
    ],
)
def test_what_is_written_as_today_is_no_old_name(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("command", "interpreter"),
    [
        ("python -m pytest *", ""),
        ("python -m pytest tests/*", ""),
        (".venv/bin/python -m pytest *", ""),
        ("/usr/bin/python3 -I -m unittest *", ""),
        ("python -m mypackage.tool *", ""),
        ("python -m http.server", ""),
        ("pytest *", ""),
        ("python *", "python"),
        (".venv/bin/python *", "python"),
        ("python -m *", "python"),
        ("python -m py*", "python"),
        ("python -c *", "python"),
        ("python -c x -m pytest *", "python"),
        ("python * -m pytest *", "python"),
        ("env python -m pytest *", "env"),
        ("python -m timeit *", "python -m timeit"),
        ("python -m pdb *", "python -m pdb"),
        ("python3 -m runpy *", "python3 -m runpy"),
        ("python -m cProfile *", "python -m cProfile"),
        ("python -m cProfile -o out *", "python -m cProfile"),
        ("python -m code *", "python -m code"),
        ("python -m trace --trace *", "python -m trace"),
        ("python -m torch.distributed.run *", "python -m torch.distributed.run"),
        ("python -m idlelib.idle *", "python -m idlelib.idle"),
        ("python -m pip *", "python -m pip"),
        ("make *", "make"),
        ("make test", ""),
    ],
)
def test_an_interpreter_is_found_where_a_star_says_what_it_runs(
    command: str, interpreter: str
) -> None:
    rule = f"tool:shell:run {command}"
    said = [each.render() for each in lint(policy(f'[profiles.p]\nallow = ["{rule}"]'))]
    assert said == [
        (
            f'paddock.toml:2: lint.interpreter: "{rule}" allows every command: '
            f"{interpreter} runs any code in its arguments\n"
            "  hint: name the code it runs, as in python -m pytest * or make test"
        )
    ] * bool(interpreter)


def test_what_the_star_of_a_named_module_covers_is_judged_as_of_the_program_alone() -> None:
    for program in ("pytest", "python -m pytest"):
        text = f"""[profiles.p]
allow = ["tool:shell:run {program} *"]
otherwise = {{ "tool:shell:*" = "ask" }}
"""
        for words, outcome in (("tests -k fast", "allow"), ("-p evil", "ask"), ("-c x", "ask")):
            action = parse_action(f"tool:shell:run {program} {words}")
            assert decide(policy(text), (Agent("main", "p"),), [action]).outcome.word == outcome


def test_the_defaults_and_an_ordinary_policy_give_no_findings() -> None:
    assert lint(load_policy(None)) == ()
    text = """[profiles.p]
allow = ["tool:file:*", "tool:shell:run git status"]
deny = ["tool:file:delete migrations/**"]
"""
    assert found(text) == []


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        ('deny = ["tool:file:create db/**"]', True),
        ('ask = ["tool:file:create db/**"]', True),
        ('deny = ["tool:file:create db/**", "tool:file:str_replace db/**"]', True),
        ('deny = ["tool:file:create db/**"]\nask = ["tool:file:delete **"]', True),
        (
            'deny = ["tool:file:create db/**"]\nask = ["tool:file:str_replace db/**", "tool:file:delete"]',
            False,
        ),
        (
            'deny = ["tool:file:create db/*", "tool:file:str_replace db/*", "tool:file:delete db/*"]',
            False,
        ),
        ('deny = ["tool:file:create db/**", "tool:file:* /db/"]', False),
        ('deny = ["tool:file:* db/**"]', False),
        ('deny = ["tool:file:delete db/**"]', False),
        ('deny = ["tool:file:create"]', False),
        ('deny = ["tool:file:create .git/hooks/**"]', False),
        ('allow = ["tool:file:create db/**"]', False),
    ],
)
def test_a_place_that_is_closed_to_create_alone_is_found(rules: str, is_found: bool) -> None:
    allow = "" if rules.startswith("allow") else 'allow = ["tool:file:*"]\n'
    codes = [code for code, _ in found(f"[profiles.p]\n{allow}{rules}")]
    assert ("lint.half_denied" in codes) == is_found


def test_where_edits_are_not_allowed_anyway_a_closed_create_is_no_finding() -> None:
    text = '[profiles.p]\nallow = ["tool:file:create"]\ndeny = ["tool:file:create db/**"]\n'
    assert found(text) == []
    closed = '[paths]\nprotected = [".git/", "*.pem", "/db/"]\n' + text.replace("create", "*", 1)
    assert found(closed) == []
    assert found(closed.replace("/db/", "/other/")) == [("lint.half_denied", 5)]


def test_a_half_closed_place_names_what_stays_allowed_and_what_to_do() -> None:
    text = """[profiles.p]
allow = ["tool:file:*"]
ask = ["tool:file:delete **"]
deny = ["tool:file:create db/**"]
"""
    (finding,) = lint(policy(text))
    assert finding.render() == (
        'paddock.toml:4: lint.half_denied: "tool:file:create db/**" is denied, '
        "but str_replace, link and mode stay allowed on the same paths\n"
        "  hint: to stop all writing there, put the path into [paths] protected; "
        "or deny these, too"
    )


def test_a_finding_is_one_text_with_place_code_and_hint() -> None:
    (finding,) = lint(policy('[profiles.p]\nallow = ["tool:shell:*"]'))
    assert finding.render() == (
        'paddock.toml:2: lint.any_command: "tool:shell:*" allows every command\n'
        "  hint: name the programs, and leave the rest to otherwise"
    )


def test_every_example_is_reported_with_its_place() -> None:
    text = """[[profiles.p.rules]]
action = "tool:file:create m/**"
outcome = "ask"
match = ["tool:file:create m/1"]
not_match = ["tool:file:create x/m/1",
"tool:file:create m"]
"""
    assert [(each.render(), each.wanted, each.holds) for each in run_examples(policy(text))] == [
        (
            "ok: 'tool:file:create m/1' matches 'tool:file:create m/**' (paddock.toml:4)",
            True,
            True,
        ),
        (
            "ok: 'tool:file:create x/m/1' does not match 'tool:file:create m/**' (paddock.toml:5)",
            False,
            True,
        ),
        (
            "ok: 'tool:file:create m' does not match 'tool:file:create m/**' (paddock.toml:6)",
            False,
            True,
        ),
    ]
    assert run_examples(load_policy(None)) == ()


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ('deny = ["tool:file:create migrations/**"]', True),
        ('deny = ["tool:file:delete"]\notherwise = { "tool:shell:*" = "deny" }', True),
        ('shell = { network = "none" }', True),
        ('deny = ["tool:file:delete"]\notherwise = { "tool:shell:*" = "ask" }', False),
        ('ask = ["tool:file:delete"]', False),
        ('allow = ["tool:file:view"]', False),
        ('deny = ["tool:*"]', False),
    ],
)
def test_a_profile_that_allows_nothing_without_saying_so_is_found(
    body: str, is_found: bool
) -> None:
    findings = found(f"[profiles.standard]\n{body}")
    assert (("lint.allows_nothing", 1) in findings) == is_found


@pytest.mark.parametrize(
    ("patterns", "hint"),
    [
        (["/migrations/", "!/migrations/README.md"], '"/migrations/**" in place of "/migrations/"'),
        (["/Migrations", "!/migrations/*.md"], '"/Migrations/**" in place of "/Migrations"'),
        (["docs/", "!/docs/a.md"], '"**/docs/**" in place of "docs/"'),
        (["/docs/", "!/docs/a/b.md"], 'make "/docs/" narrower'),
        (["!/docs/a.md", "/docs/"], 'make "/docs/" narrower'),
        (["**", "!/docs/a.md"], 'make "**" narrower'),
    ],
)
def test_an_exception_below_a_directory_that_is_closed_is_found(
    patterns: list[str], hint: str
) -> None:
    (finding,) = lint(policy(f"[paths]\nprotected = {json.dumps(['.git/', '*.pem', *patterns])}"))
    assert (finding.code, finding.place.line) == ("lint.takes_back_nothing", 2)
    assert hint in finding.hint


def test_an_exception_that_takes_back_something_is_no_finding() -> None:
    for patterns in (
        ["/migrations/**", "!/migrations/README.md"],
        ["**/docs/**", "!/docs/a.md"],
        ["/docs/", "!/docs/"],
        ["/docs/", "!/docs/", "!/docs/a.md"],
        ["*.pem", "!/certs/my.pem"],
    ):
        text = f"[paths]\nsecret = {json.dumps(['.env*', '*.key', *patterns])}"
        assert found(text) == []


def test_what_the_lint_says_of_an_exception_names_its_list_and_what_stands_above() -> None:
    built_in = '"node_modules/", "package-lock.json", "yarn.lock"'
    (finding,) = lint(policy(f'[paths]\ngenerated = [{built_in}, "/gen/", "!/gen/a.md"]'))
    assert finding.render() == (
        'paddock.toml:2: lint.takes_back_nothing: "!/gen/a.md" excludes nothing from generated: '
        'it is below "/gen/"\n  hint: write "/gen/**" in place of "/gen/"'
    )


@pytest.mark.parametrize(
    ("lists", "lost"),
    [
        ('secret = ["x"]', '".env", ".env.*", ".envrc", "*.key"'),
        ('secret = ["x", "!.env"]', '".env.*", ".envrc", "*.key"'),
        ('secret = [".env?*", "*.key", "!/config/.env"]', '".env"'),
        ('protected = ["/db/"]', '".git/", "*.pem"'),
        ('generated = ["/out/"]', '"node_modules/", "package-lock.json", "yarn.lock"'),
        # All of them are there, in other words; or it says that they are not meant to be.
        ('secret = [".env*", "*.key"]', ""),
        ('secret = [".ENV", ".env.*", ".envrc", "*.key", "/private/"]', ""),
        ('secret = ["x", "!.env*", "!*.key"]', ""),
        ('generated = ["/out/", "!node_modules/", "!*.lock", "!package-lock.json"]', ""),
        ('protected = [".git/"]\nsecret = [".env*", "*.key", "*.pem"]', ""),
        ("generated = []", ""),
        ('warned = ["/lib/**"]\nsafe = []', ""),
    ],
)
def test_what_a_list_loses_of_the_built_in_one_is_told_once(lists: str, lost: str) -> None:
    text = f"[paths]\n{lists}\n".encode()
    for is_trusted in (True, False):
        said = lint(load_policy(PolicySource("paddock.toml", text, is_trusted)))
        name = lists.partition(" ")[0]
        wanted = (
            f"paddock.toml:2: lint.names_lost: paths.{name} replaces the built-in list and loses"
            f" {lost}\n  hint: add them, with a ! before each that is left out on purpose"
        )
        assert [each.render() for each in said] == ([wanted] if lost else [])


def test_what_a_list_loses_is_told_of_the_file_that_decides() -> None:
    users = PolicySource("config.toml", b'[paths]\nsecret = ["x", ".envrc"]\n')
    for projects, lost in (
        (None, ["config.toml"]),
        ('secret = [".env*", "*.key"]', []),
        ('secret = ["y"]', ["paddock.toml"]),
    ):
        source = projects and PolicySource("paddock.toml", f"[paths]\n{projects}\n".encode())
        found = lint(load_policy(source or None, users))
        assert [each.place.file for each in found if each.code == "lint.names_lost"] == lost


def test_secret_names_that_git_tracks_are_found_by_the_pattern_that_closes_them():
    text = '[paths]\nsecret = [\n  "*.key",\n  ".env*",\n  "!.env.example",\n]\n'
    names = [".env.example", "a.txt", "b/.env", *(f"k{number}.key" for number in range(7))]
    tracked = [each for each in lint(policy(text), names) if each.code == "lint.secret_tracked"]
    assert [each.place.line for each in tracked] == [3, 4]
    assert tracked[0].message.startswith(
        "7 tracked files are secret: 'k0.key', 'k1.key', 'k2.key', 'k3.key', 'k4.key' and 2 more;"
    )
    assert tracked[1].message.startswith("1 tracked file is secret: 'b/.env';")
    assert "lint.secret_tracked" not in [each.code for each in lint(policy(text), ["a.txt"])]


ASKS = """allow = ["{}", "tool:search:*", "tool:output:*", "tool:memory:*", "tool:client:*"]
otherwise = {{ {} }}"""


@pytest.mark.parametrize(
    ("profile", "lost"),
    [
        ('extends = "standard"\ndeny = ["tool:file:delete"]', None),
        ('allow = ["tool:*"]', None),
        (
            ASKS.format("tool:file:*", '"tool:shell:*" = "ask", "tool:own:*" = "ask"'),
            "'otherwise ask tool:mcp:*'",
        ),
        (
            ASKS.format(
                "tool:file:view",
                '"tool:shell:*" = "ask", "tool:mcp:*" = "ask", "tool:own:*" = "ask"',
            ),
            "'tool:file:*'",
        ),
    ],
)
def test_what_a_replaced_built_in_profile_said_is_told(profile: str, lost: str | None) -> None:
    def said(name: str) -> list[str]:
        findings = lint(policy(f"[profiles.{name}]\n{profile}"))
        return [each.message for each in findings if each.code == "lint.profile_replaced"]

    wanted = f'the profile "standard" replaces the built-in one and loses {lost}'
    assert said("standard") == ([] if lost is None else [wanted])
    assert said("mine") == []


def test_a_replaced_reviewer_keeps_what_its_commands_change_and_that_is_told() -> None:
    text = '[profiles.reviewer]\nallow = ["tool:*"]'
    assert [each.message for each in lint(policy(text))] == [
        "the profile \"reviewer\" replaces the built-in one and loses '[shell]'",
        '"tool:*" allows every command',
    ]


def test_what_a_profile_has_from_another_one_is_found_once_where_it_stands() -> None:
    text = '[profiles.a]\nallow = ["tool:file:view x"]\ndeny = ["tool:file:view"]\n'
    assert found(f'{text}[profiles.b]\nextends = "a"') == [("lint.rule_covered", 2)]
    rule = '[[profiles.a.rules]]\naction = "tool:file:view a"\noutcome = "ask"\n'
    examples = f'{rule}match = ["tool:file:view a"]\n[profiles.b]\nextends = "a"'
    assert len(run_examples(policy(examples))) == 1


@pytest.mark.parametrize(
    ("weak", "strong", "is_covered"),
    [
        (("allow", "git status"), ("confine", "git *"), True),
        (("allow", "git status"), ("confine", "*"), True),
        (("confine", "git push"), ("ask", "git *"), True),
        (("confine", "git push"), ("deny", "git *"), True),
        (("ask", "git push"), ("confine", "git *"), False),
        (("deny", "git push"), ("confine", "git *"), False),
        # Of `nohup make`, `make *` is one reading: the allow says that it is meant.
        (("allow", "nohup make *"), ("confine", "make *"), False),
        (("allow", "nohup make *"), ("ask", "make *"), True),
    ],
)
def test_confine_is_stricter_than_allow_and_milder_than_ask(
    weak: tuple[str, str], strong: tuple[str, str], is_covered: bool
) -> None:
    rows = [f'{outcome} = ["tool:shell:run {line}"]' for outcome, line in (weak, strong)]
    assert (("lint.rule_covered", 2) in found("\n".join(["[profiles.p]", *rows]))) == is_covered


def test_a_rule_that_another_one_confines_by_a_reading_alone_decides_something() -> None:
    base = '[profiles.p]\nconfine = ["tool:shell:run make *"]\notherwise = {"tool:shell:*" = "ask"}'
    action = parse_action("tool:shell:run nohup make all")
    with_allow = base + '\nallow = ["tool:shell:run nohup make *"]'
    decided = [decide(policy(t), (Agent("m", "p"),), [action]) for t in (base, with_allow)]
    assert [each.outcome.word for each in decided] == ["ask", "confine"]


@pytest.mark.parametrize(
    ("rule", "hook", "program"),
    [
        ('allow = ["tool:shell:run docker compose *"]', "", "docker"),
        ('allow = ["tool:shell:run gh pr list"]', "", "gh"),
        ('allow = ["tool:shell:run /usr/bin/systemctl status *"]', "", "systemctl"),
        ('allow = ["tool:shell:run gh pr list"]', '[hook]\nshell = "read"', ""),
        ('allow = ["tool:shell:run gh pr list"]', '[hook]\noutside = ["gh *"]', ""),
        ('ask = ["tool:shell:run gh pr list"]', "", ""),
        ('allow = ["tool:shell:run make *"]', "", ""),
        ('allow = ["tool:file:view ssh"]', "", ""),
    ],
)
def test_an_allow_for_what_rarely_works_confined_is_found(
    rule: str, hook: str, program: str
) -> None:
    found_here = lint(policy(f"{hook}\n[profiles.p]\n{rule}"))
    said = [each.message for each in found_here if each.code == "lint.rarely_confined"]
    assert [f" {program} rarely works so" in each for each in said] == [True] * bool(program)
