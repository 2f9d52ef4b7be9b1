"""Decisions about command lines: every simple command, what is unknown, every redirection."""

import subprocess
import sys

import pytest

from paddock.policy import Policy, PolicySource, decide, load_policy, shell_for
from paddock.policy.settings import SYSTEM_READ, ShellLimits, ShellSettings
from paddock.values.actions import Action
from paddock.values.agents import Agent
from paddock.values.decisions import Outcome

TEXT = """
[profiles.p]
allow = ["tool:shell:run git status", "tool:shell:run git diff *", "tool:shell:run ls *",
         "tool:file:create out/**"]
ask = ["tool:shell:run git commit *"]
deny = ["tool:shell:run git push *"]
[profiles.any]
allow = ["tool:shell:*", "tool:file:*"]
[profiles.star]
allow = ["tool:shell:run *"]
deny = ["tool:shell:run rm *"]
[profiles.files]
allow = ["tool:shell:run ls *", "tool:file:*"]
"""


def policy(text: str = TEXT, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


POLICY = policy()


def run(line: str) -> Action:
    return Action("shell", "run", line)


def outcome(line: str, profile: str = "p", decided: Policy = POLICY) -> str:
    return decide(decided, (Agent("main", profile),), (run(line),)).outcome.word


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", "allow"),
        ("git diff --stat", "allow"),
        ("git status && git diff; ls | ls -l", "allow"),
        ("/usr/bin/git status", "allow"),
        ("git commit -m x", "ask"),
        ("git status && git commit -m x", "ask"),
        ("git status && git push", "deny"),
        ("git commit -m x; git push", "deny"),
        ("sh -c 'git push'", "deny"),
        ("env A=1 git push", "deny"),
        ("git -C x push", "deny"),
        ("make", "deny"),
        ("git status && make", "deny"),
        ("git diff --output=x", "deny"),
        ("A=1 git status", "deny"),
        ("./git status", "deny"),
        ("ls $(make)", "deny"),
        ("", "deny"),
        ("# nothing", "deny"),
        ("A=1", "deny"),
        ("> out/x", "deny"),
    ],
)
def test_each_simple_command_is_judged_and_the_strictest_decides(line: str, expected: str) -> None:
    assert outcome(line) == expected


@pytest.mark.parametrize("line", ["eval x", "$(x)", 'sh -c "$x"', "git 'st", "ls $HOME", "(", "if"])
def test_what_is_only_known_at_run_time_is_at_least_asked_about(line: str) -> None:
    decision = decide(POLICY, (Agent("main", "standard"),), (run(line),))
    assert decision.outcome is Outcome.ASK
    # A door stays silent where only `otherwise` asks: here a rule does.
    assert decision.rule is not None
    assert (decision.rule.source, decision.rule.file, decision.rule.line) == (
        "built-in",
        "built-in",
        0,
    )
    assert outcome(line, "locked") == "deny"
    for profile in ("open", "any", "star"):
        assert outcome(line, profile) == "allow", profile


def test_a_deny_still_holds_beside_an_allow_of_any_command() -> None:
    assert outcome("eval x", "star") == "allow"
    assert outcome("eval x; rm y", "star") == "deny"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls > out/a", "allow"),
        ("ls >> out/../out/a", "allow"),
        ("ls > src/a", "deny"),
        ("ls > out/../src/a", "deny"),
        ("ls > .git/config", "deny"),
        ("ls > out/.ENV", "deny"),
        ("ls > ../a", "deny"),
        ("ls > out/../../a", "deny"),
        ("ls > /etc/passwd", "deny"),
        ("ls > ~/a", "deny"),
        ("ls > /tmp/a", "allow"),
        ("ls > /tmp/../etc/passwd", "deny"),
        ("ls > /dev/null 2>&1", "allow"),
        ("ls 2> /dev/stderr > /dev/stdout", "allow"),
        ("ls < /etc/passwd", "allow"),
    ],
)
def test_a_redirection_is_judged_as_a_write(line: str, expected: str) -> None:
    assert outcome(line) == expected


def test_a_redirection_out_of_the_workspace_is_refused_under_any_profile() -> None:
    assert outcome("ls > ../a", "open") == "deny"
    assert outcome("ls > a", "open") == "allow"


def test_a_command_may_write_what_is_generated_and_is_warned_like_a_tool() -> None:
    assert outcome("ls > yarn.lock", "files") == "allow"
    decision = decide(POLICY, (Agent("main", "files"),), (run("ls > src/a; ls > src/b"),))
    assert decision.warnings == tuple(
        f"Writing to production path: {path}. Ensure this is intentional implementation work."
        for path in ("src/a", "src/b")
    )


def test_the_reason_names_the_command_that_nobody_allows() -> None:
    decision = decide(POLICY, (Agent("main", "p"),), (run("git status && make all"),))
    assert '"tool:shell:run make all"' in decision.reason


def test_a_parent_holds_its_childs_commands_too() -> None:
    child, parent = Agent("child", "open"), Agent("parent", "p")
    assert decide(POLICY, (child, parent), (run("git push"),)).outcome is Outcome.DENY
    assert decide(POLICY, (child, parent), (run("eval x"),)).outcome is Outcome.DENY
    assert decide(POLICY, (child, parent), (run("git status"),)).outcome is Outcome.ALLOW


def test_an_untrusted_deny_of_a_command_holds_under_the_preset() -> None:
    decided = policy(
        '[profiles.standard]\ndeny = ["tool:shell:run git push *"]\nallow = ["tool:shell:*"]',
        trusted=False,
    )
    assert outcome("env git push", "standard", decided) == "deny"
    assert outcome("git status", "standard", decided) == "ask"


def test_a_command_pattern_that_can_match_nothing_does_not_load() -> None:
    with pytest.raises(Exception, match="a && b") as caught:
        policy('[profiles.p]\nallow = ["tool:shell:run a && b"]')
    assert getattr(caught.value, "where", "") == "paddock.toml:2"


def test_examples_of_command_rules_are_tests() -> None:
    rule = '[[profiles.p.rules]]\naction = "tool:shell:run git diff *"\noutcome = "{}"\n{}'
    good = [
        ("allow", 'match = ["tool:shell:run git diff a; git diff b"]'),
        (
            "allow",
            'not_match = ["tool:shell:run git diff --output=x", "tool:shell:run git diff; ls"]',
        ),
        ("deny", 'match = ["tool:shell:run ls; env git diff"]'),
    ]
    bad = [
        ("allow", 'match = ["tool:shell:run git diff; ls"]'),
        ("deny", 'not_match = ["tool:shell:run env git diff"]'),
    ]
    for outcome_word, examples in good:
        policy(rule.format(outcome_word, examples))
    for outcome_word, examples in bad:
        with pytest.raises(Exception, match="example"):
            policy(rule.format(outcome_word, examples))


# --- what a command may reach ------------------------------------------------------


NETWORK = """
[profiles.p]
allow = ["tool:shell:run ls *"]
[[profiles.p.rules]]
action = "tool:shell:run npm install *"
outcome = "ask"
network = "host"
[[profiles.p.rules]]
action = "tool:shell:run quiet *"
outcome = "ask"
network = "none"
"""


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ("npm install x", "host"),
        ("npm install x && npm install y", "host"),
        ("npm install x && ls", "loopback"),
        ("npm install x; curl y", "loopback"),
        ("env A=1 npm install x", "loopback"),
        ("npm install $(x)", "loopback"),
        ("quiet a", "none"),
        ("env A=1 quiet a", "none"),
        ("npm install x | quiet", "none"),
        ("ls", "loopback"),
    ],
)
def test_a_rule_sets_the_network_for_just_its_command(line: str, network: str) -> None:
    chain = (Agent("main", "p"),)
    assert shell_for(policy(NETWORK), chain, run(line)).network == network


def test_the_strictest_of_a_chain_holds_for_its_commands() -> None:
    decided = policy(
        """
[shell]
network = "host"
enforcement = "best-effort"
commit = "each"
[profiles.child]
[profiles.child.shell]
write = ["/srv/a", "/opt/b"]
approve = "diff"
git = "none"
limits = { processes = 10, cpu_s = 500 }
[profiles.parent]
[profiles.parent.shell]
network = "none"
enforcement = "required"
write = ["/srv", "/opt/b/c"]
read = ["/usr/lib", "/data"]
commit = "all"
limits = { memory_mb = 5 }
"""
    )
    child, parent = Agent("c", "child"), Agent("p", "parent")
    assert shell_for(decided, (child, parent)) == ShellSettings(
        network="none",
        git="none",
        read=("/usr/lib",),
        write=("/srv/a", "/opt/b/c"),
        enforcement="required",
        approve="diff",
        commit="all",
        limits=ShellLimits(processes=10, memory_mb=5, file_mb=1024, cpu_s=120),
    )
    assert shell_for(decided, (Agent("x", "open"),)) == ShellSettings(
        network="host", enforcement="best-effort", read=SYSTEM_READ
    )


def test_git_without_a_preset_is_the_loosest_where_nothing_protects_it() -> None:
    text = '[paths]\nprotected = []\n[profiles.a]\n[profiles.a.shell]\ngit = "none"\n[profiles.b]\n'
    chain = (Agent("a", "a"), Agent("b", "b"))
    assert shell_for(policy(text), chain).git == "safe"
    assert shell_for(policy(text.replace("[]", '[".git/"]')), chain).git == "none"


def test_importing_policy_and_judging_paths_loads_no_grammar() -> None:
    program = (
        "import sys; from paddock.policy import *; from paddock.values.agents import Agent; "
        "chain = (Agent('a', 'standard'),); "
        "decide(load_policy(None), chain, (parse_action('tool:file:view a'),)); "
        "sys.exit(any('tree_sitter' in name or name == 'tomllib' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
