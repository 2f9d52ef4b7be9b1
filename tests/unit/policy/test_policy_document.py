"""A policy file loads whole or not at all."""

import json
from pathlib import PurePosixPath

import pytest

from paddock import limits
from paddock.errors import ConfigError
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.settings import (
    AgentBinding,
    AnchorSettings,
    ConfineMax,
    HistorySettings,
    HookSettings,
    LedgerSettings,
    LoweredLimits,
    McpSettings,
    ProviderSettings,
    Settings,
    ShellChanges,
    ShellLimits,
    ShellSettings,
)
from paddock.values.decisions import PlaneKind
from tests.support.policies import EVERYTHING

LONG = '[[profiles.x.rules]]\noutcome = "ask"\n'


def load(text: str, name: str = "paddock.toml") -> Settings:
    return load_policy(PolicySource(name, text.encode())).settings


def refused(text: str, name: str = "paddock.toml") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_policy(PolicySource(name, text.encode()))
    assert type(caught.value) is ConfigError
    return caught.value


def test_every_table_is_read() -> None:
    policy = load_policy(PolicySource("paddock.toml", EVERYTHING.encode()))
    assert policy.settings == Settings(
        shell=ShellSettings(
            network="loopback",
            git="read-only",
            read=("/usr", "/lib", "/etc/ssl"),
            write=("~/cache",),
            enforcement="best-effort",
            approve="diff",
            commit="all",
            limits=ShellLimits(processes=16, memory_mb=64),
            confine_max=ConfineMax(files=7),
        ),
        hook=HookSettings(
            "approve",
            "all",
            ("~/.claude/plans/**",),
            shell="read",
            outside=("docker *",),
            paranoid=True,
            sandbox_ignored=False,
        ),
        agents=(AgentBinding("Explore", "locked"),),
        limits=LoweredLimits(shell_timeout_s=60, view_bytes_max=1000),
        history=HistorySettings(5),
        mcp=McpSettings(3),
        ledger=LedgerSettings(keep_model_contents=True),
    )
    standard = policy.find_profile("standard")
    assert standard is not None
    assert standard.shell == ShellChanges(commit="each")
    assert [(rule.pattern.text, str(rule.place)) for rule in standard.rules][4:] == [
        ("tool:mcp:call mcp__toy__*", "paddock.toml:11"),
        ("tool:file:delete docs/**", "paddock.toml:12"),
        ("tool:file:create migrations/**", "paddock.toml:16"),
        ("tool:shell:*", "paddock.toml:23"),
    ]
    names = ("open", "standard", "reviewer", "readonly-commands", "locked", "admin")
    assert policy.profiles == names


def test_what_is_absent_keeps_its_default() -> None:
    assert load("") == Settings()
    assert load('[shell]\ncommit = "all"\n') == Settings(shell=ShellSettings(commit="all"))
    assert load_policy(None).settings == Settings()


def test_json_with_the_same_keys_gives_the_same_settings() -> None:
    text = json.dumps({"shell": {"git": "none"}, "agents": {"X": {"profile": "locked"}}})
    assert load(text, "policy.json") == Settings(
        shell=ShellSettings(git="none"), agents=(AgentBinding("X", "locked"),)
    )


def test_json_with_path_lists_alone_is_a_paths_table() -> None:
    text = '{\n "protected": ["a"],\n "safe": ["b"]\n}'
    policy = load_policy(PolicySource("paths.json", text.encode()))
    pattern = policy.guards.find_protected("a")
    assert pattern is not None
    assert str(pattern.place) == "paths.json"
    assert policy.guards.find_protected(".git") is None
    assert refused('{\n "protected": ["a"],\n "saef": []\n}', "p.json").where == "p.json"
    assert refused('protected = ["a"]').where == "paddock.toml:1"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[paths]\nprotectd = []", 2, "protectd"),
        ("[path]\n", 1, "path"),
        ("x = 1", 1, "x"),
        ('[paths]\nsafe = [\n"a",\n"[b"]', 4, "[b"),
        ('[paths]\nsafe = ["!a"]', 2, "safe"),
        ('[paths]\nsafe = "a"', 2, "safe"),
        ("[paths]\nsafe = [1]", 2, "safe"),
        ('paths = "a"', 1, "paths"),
        ('[profiles.x]\nallow = ["tool:fil:create"]', 2, "fil"),
        ('[profiles.x]\nallow = ["tool:file:create ../a"]', 2, "../a"),
        ('[profiles.x]\nalow = ["tool:file:create"]', 2, "alow"),
        ('[profiles.x]\notherwise = { "tool:file:* x" = "ask" }', 2, "tool:file:* x"),
        ('[profiles.x]\notherwise = { "tool:file:*" = "maybe" }', 2, "maybe"),
        ('[[profiles.x.rules]]\noutcome = "ask"', 1, "action"),
        ('[[profiles.x.rules]]\naction = "tool:file:view"', 1, "outcome"),
        ('[[profiles.x.rules]]\naction = "tool:file:view"\noutcome = "yes"', 3, "yes"),
        (
            f'{LONG}action = "tool:file:view a"\nmatch = ["tool:file:view a",\n"tool:file:view b"]',
            5,
            "tool:file:view b",
        ),
        (
            f'{LONG}action = "tool:file:view a/"\nnot_match = ["tool:file:view A"]',
            4,
            "tool:file:view A",
        ),
        (
            f'{LONG}action = "tool:file:view a"\nmatch = ["view a"]',
            4,
            "view",
        ),
        (
            '[[profiles.x.rules]]\naction = "tool:file:view"\noutcome = "ask"\nnetwork = "host"',
            4,
            "network",
        ),
        (
            '[[profiles.x.rules]]\naction = "tool:shell:run"\noutcome = "deny"\nnetwork = "host"',
            4,
            "network",
        ),
        ('[shell]\nnetwork = "wide"', 2, "wide"),
        ('[shell]\nread = ["usr"]', 2, "usr"),
        ('[shell]\nwrite = ["/a/../b"]', 2, "/a/../b"),
        ("[shell]\nlimits = { processes = 0 }", 2, "processes"),
        ("[shell]\nlimits = { processes = true }", 2, "processes"),
        ("[shell]\nlimits = { process = 1 }", 2, "process"),
        ('[hook]\nsandbox_shell = true\nshell = "read"', 2, "sandbox_shell"),
        ('[hook]\nshell = "wrap"', 2, "wrap"),
        ('[hook]\noutside = [\n"docker *",\n"*"]', 4, "any command"),
        ('[hook]\noutside = [\n"a && b"]', 3, "a && b"),
        ("[shell]\nconfine_max = { files = -1 }", 2, "files"),
        ("[shell]\nconfine_max = { file = 1 }", 2, "file"),
        ('[profiles.x]\nconfine = [\n"tool:shell:run make *",\n"tool:file:create"]', 4, "confine"),
        ('[profiles.x]\nconfine = ["tool:*"]', 2, "only commands are confined"),
        ('[profiles.x]\notherwise = { "tool:mcp:*" = "confine" }', 2, "only commands"),
        ('[[profiles.x.rules]]\naction = "tool:*:run"\noutcome = "confine"', 2, "only commands"),
        ('[hook]\nparanoid = "false"', 2, "paranoid"),
        ('[hook]\nalso_write = ["a/**"]', 2, "a/**"),
        ('[profiles.x]\ndeny = [\n"tool:client:Bash"]', 3, "no call is judged as"),
        ('[profiles.x]\notherwise = { "tool:client:Read" = "deny" }', 2, "no call is judged as"),
        ('[profiles.x]\ndeny = ["tool:ledger:query ho3"]', 2, "no call is judged as"),
        (
            '[[profiles.x.rules]]\naction = "tool:*"\noutcome = "deny"\nmatch = ["tool:client:Write"]',
            4,
            "no call is judged as",
        ),
        ('[hook]\nalso_write = ["~/[a"]', 2, "[a"),
        ('[agents."X"]\nprofile = "standrd"', 2, "standrd"),
        ('[agents."X"]\n', 1, "profile"),
        ('[agents."X"]\nprofile = "open"\nx = 1', 3, "x"),
        ("[limits]\nview_bytes_max = 100_001", 2, "view_bytes_max"),
        ("[limits]\nview_bytes_max = 0", 2, "view_bytes_max"),
        ("[limits]\nview_bytes_max = 1.5", 2, "view_bytes_max"),
        ("[limits]\nshell_timeout_s = nan", 2, "shell_timeout_s"),
        ("[limits]\nshell_timeout_s = 86401", 2, "shell_timeout_s"),
        ("[limits]\nentry_bytes_max = 10", 2, 'the limit "entry_bytes_max" is fixed'),
        ("[limits]\nview_bytes = 1", 2, "view_bytes"),
        ("[history]\nbytes_max = -1", 2, "bytes_max"),
        ("[mcp]\ncalls_max = 0", 2, "calls_max"),
        ('[ledger]\nanchor = "/x"', 2, "anchor"),
        ('[providers.x]\nmodel = "m"', 1, "providers"),
        ('[paths]\nsafe = []\n\n[providers.y]\nmodel = "m"\n[providers.x]', 4, "providers"),
        ('[paths]\nsafe = []\n[providers]\n[providers.y]\nmodel = "m"', 3, "providers"),
        ("a = = 1", 1, "not TOML"),
        ("\n" + "a." * 32 + "b = 1", 2, "too many parts"),
        ("[" + "a . " * 32 + "b]", 1, "too many parts"),
        ("x = { " + '"a\\".".' * 100_000 + "b = 1 }", 1, "too many parts"),
        ("[history]\nbytes_max = 0x" + "f" * 5000, 2, "an integer too long to print"),
    ],
)
def test_a_mistake_stops_the_load_with_its_line(text: str, line: int, words: str) -> None:
    error = refused(text)
    assert error.where == f"paddock.toml:{line}"
    assert words in error.message


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (
            '[profiles.p]\nallow = [\n"tool:file:view"\n]\nallow = ["tool:file:create"]\n',
            5,
            'the key "profiles.p.allow" is given twice, first in line 2',
        ),
        (
            "[profiles.p]\nallow = []\n[paths]\n[profiles.p]\ndeny = []\n",
            4,
            'the key "profiles.p" is given twice, first in line 1',
        ),
        (
            "[shell]\nlimits = { processes = 1, processes = 2 }\n",
            2,
            'the key "shell.limits.processes" is given twice, first in line 2',
        ),
        (
            '[profiles.p]\nshell = { git = "none" }\n[profiles.p.shell]\n',
            3,
            'the key "profiles.p.shell" is given twice, first in line 2',
        ),
        (
            (
                '[[profiles.p.rules]]\naction = "tool:*"\n[[profiles.p.rules]]\n'
                'action = "tool:*"\n"action" = "tool:*"\n'
            ),
            5,
            'the key "profiles.p.rules.action" is given twice, first in line 4',
        ),
    ],
)
def test_a_key_that_is_given_twice_is_named_with_both_lines(
    text: str, line: int, says: str
) -> None:
    error = refused(text)
    assert (error.message, error.where) == (says, f"paddock.toml:{line}")
    assert error.hint == "merge both into one"


def test_keys_of_one_name_in_tables_of_their_own_are_not_given_twice() -> None:
    rule = '[[profiles.p.rules]]\naction = "tool:file:view"\noutcome = "allow"\n'
    load(f'{rule}{rule}[profiles.q]\nallow = []\nshell.git = "none"\nshell.commit = "all"\n')
    # What is no key given twice is told in the parser's own words.
    assert refused("shell = 1\n[shell.limits]\n").message.startswith("not TOML: cannot ")


def test_all_mistakes_are_counted_and_the_first_is_named_with_a_hint() -> None:
    error = refused('[paths]\nprotectd = []\nsafe = ["", "ok"]\n[hook]\nx = 1\n')
    assert error.message == 'unknown key "protectd" in [paths] (and 2 more)'
    assert error.where == "paddock.toml:2"
    assert error.hint.startswith('did you mean "protected"?; also paddock.toml:3: ')


def test_more_rules_than_the_cap_do_not_load() -> None:
    rules = ", ".join(['"tool:file:view"'] * (limits.policy_rules_max + 1))
    assert str(limits.policy_rules_max) in refused(f"[profiles.x]\nallow = [{rules}]").message


def test_what_only_the_user_may_configure_is_read_from_the_user() -> None:
    text = """
[ledger]
anchor = { command = ["push", "it"] }
[providers.local]
provider = "openai"
base_url = "http://127.0.0.1:1"
api = "chat"
[agents."Plan"]
profile = "mine"
[profiles.mine]
allow = ["tool:file:view"]
"""
    policy = load_policy(None, PolicySource("config.toml", text.encode()))
    assert policy.settings.ledger == LedgerSettings(anchor=AnchorSettings(command=("push", "it")))
    assert policy.settings.providers == (
        ProviderSettings("local", "openai", base_url="http://127.0.0.1:1", api="chat"),
    )
    assert policy.profiles[-1] == "mine"


@pytest.mark.parametrize(
    ("anchor", "loads"),
    [
        ('"/dir"', True),
        ('{ directory = "/dir" }', True),
        ('{ git = "/repo" }', True),
        ('{ git = "/repo", directory = "/dir" }', False),
        ("{ }", False),
        ("{ command = [] }", False),
        ("3", False),
        ('{ comand = ["x"] }', False),
    ],
)
def test_an_anchor_names_exactly_one_place(anchor: str, loads: bool) -> None:
    source = PolicySource("config.toml", f"[ledger]\nanchor = {anchor}\n".encode())
    if loads:
        assert load_policy(None, source).settings.ledger.anchor != AnchorSettings()
    else:
        with pytest.raises(ConfigError):
            load_policy(None, source)


def test_the_projects_keys_replace_the_users_whole_and_leave_the_others() -> None:
    user = PolicySource(
        "config.toml",
        b'[paths]\nprotected = ["mine"]\n[shell]\ncommit = "all"\nlimits = { cpu_s = 5 }\n'
        b'[hook]\non_allow = "approve"\n[agents.A]\nprofile = "open"\n[agents.B]\nprofile = "open"',
    )
    project = PolicySource(
        "paddock.toml",
        b'[paths]\nsecret = ["s"]\n[shell]\nlimits = { memory_mb = 7 }\n'
        b'[hook]\nsandbox_shell = false\n[agents.A]\nprofile = "locked"',
    )
    policy = load_policy(project, user)
    assert policy.settings.shell == ShellSettings(commit="all", limits=ShellLimits(memory_mb=7))
    assert policy.settings.hook == HookSettings(on_allow="approve", shell="read")
    assert {binding.name: binding.profile for binding in policy.settings.agents} == {
        "A": "locked",
        "B": "open",
    }
    found = {path: policy.guards.find_protected(path) is not None for path in ("mine", ".git")}
    assert found == {"mine": True, ".git": False}
    assert policy.guards.find_secret("s") is not None


def test_what_is_not_lowered_stays_as_paddock_has_it() -> None:
    lowered = load("[limits]\nview_bytes_max = 10\n").limits
    assert lowered == LoweredLimits(view_bytes_max=10)
    assert lowered.lowered() == {"view_bytes_max": 10}
    assert LoweredLimits().ls_entries_max == limits.ls_entries_max


def test_the_digest_tells_texts_trust_and_kind_apart() -> None:
    text = b"[mcp]\ncalls_max = 3\n"
    policies = [
        load_policy(None),
        load_policy(None, None, PlaneKind.BARE),
        load_policy(PolicySource("paddock.toml", text)),
        load_policy(PolicySource("paddock.toml", text, trusted=False)),
        load_policy(None, PolicySource("config.toml", text)),
        load_policy(PolicySource("paddock.toml", text + b"\n")),
    ]
    assert len({policy.digest for policy in policies}) == len(policies)
    same = load_policy(PolicySource(str(PurePosixPath("x/paddock.toml")), text))
    assert same.digest == policies[2].digest
    assert same.digest.startswith("sha256:")
    assert len(same.digest) == 71


@pytest.mark.parametrize("name", ["paddock.toml", "policy.json"])
def test_a_byte_order_mark_in_front_is_no_part_of_a_policy(name):
    text = (
        '[shell]\nnetwork = "none"\n' if name.endswith("toml") else '{"shell": {"network": "none"}}'
    )
    assert load(f"\ufeff{text}", name) == load(text, name)


@pytest.mark.parametrize(
    "text", ["\ufeff\ufeff[shell]", "[shell]\n\ufeffnetwork = 1", "\ufeff[shell"]
)
def test_a_mark_elsewhere_or_before_what_is_broken_is_refused(text):
    assert refused(text).where.startswith("paddock.toml")


def test_a_policy_in_utf_16_says_that_it_is_not_utf_8():
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        load_policy(PolicySource("paddock.toml", "[shell]".encode("utf-16")))
