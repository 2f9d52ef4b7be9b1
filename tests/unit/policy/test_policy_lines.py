"""Decisions about command lines: every simple command, what is unknown, every redirection."""

import json
import subprocess
import sys
from itertools import product

import pytest

from paddock.errors import ConfigError
from paddock.policy.commands import parse_line
from paddock.policy.decide import decide, names_line, shell_for
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.profiles import written_path
from paddock.policy.settings import SYSTEM_READ, ShellLimits, ShellSettings
from paddock.values.decisions import Action, Agent, Held, Outcome, confined

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


@pytest.mark.parametrize("line", ["eval x", "$(x)", 'sh -c "$x"', "git 'st", "ls $HOME"])
def test_what_is_only_known_at_run_time_is_left_to_otherwise_where_no_rule_could_be_meant(
    line: str,
) -> None:
    assert outcome(line, "standard") == "confine"
    assert outcome(line, "locked") == "deny"
    assert outcome(line, "admin") == "allow"
    for profile in ("open", "any"):
        assert outcome(line, profile) == "allow", profile
    # Never by a narrow rule.
    assert outcome(line, "files") == "deny"


GUARDED = policy("""
[profiles.guarded]
allow = ["tool:*"]
deny = ["tool:shell:run git push *"]
[profiles.asking]
allow = ["tool:*"]
ask = ["tool:shell:run npm publish *"]
[profiles.opening]
allow = ["tool:shell:run *"]
[[profiles.opening.rules]]
action = "tool:shell:run npm install *"
outcome = "allow"
network = "host"
""")


# Threat: fault 16. A denied command as the value of a variable, the content of a file, half a quote.
@pytest.mark.parametrize(
    "line",
    [
        "g=git; $g push",
        'eval "$(cat f)"',
        "echo 'unclosed",
        "$(echo git) push",
        'sh -c "$x"',
        ". /dev/stdin",
        "cd / && . dev/stdin",
        "cd /proc/self && . fd/0",
        ". ../../proc/self/environ",
        "source /tmp/../dev/stdin",
        ". <(cat f)",
        'source "$f"',
        "BASH_ENV=f bash g",
        "cat f | sh",
        "xargs -I{} {} push",
        "git $sub",
        "git -C $d push",
        'git -c "$c" log',
        "echo push | xargs git",
        "echo $((a[$x]))",
    ],
)
def test_what_could_be_a_denied_command_is_asked_about(line: str) -> None:
    decision = decide(GUARDED, (Agent("main", "guarded"),), (run(line),))
    assert decision.outcome >= Outcome.ASK


@pytest.mark.parametrize(
    "line",
    [
        ". ./setup",
        "source .venv/bin/activate && ls",
        ". ../../dev/env.sh",
        "PATH=.:$PATH ls",
        "PYTHONPATH=. ls",
    ],
)
def test_a_file_under_the_name_of_a_program_runs_where_the_sandbox_holds_it(line: str) -> None:
    # As any script does, whose commands no rule sees; where nothing guards, nothing is different.
    decision = decide(GUARDED, (Agent("main", "guarded"),), (run(line),))
    assert decision.outcome is Outcome.CONFINE
    assert decision.reason.endswith('so "tool:shell:run git push *" (paddock.toml:4) could match')
    assert outcome(line, "open") == "allow"
    assert outcome(line, "open", GUARDED) == "allow"


def test_who_asks_about_what_could_be_denied_says_which_rule_it_could_be() -> None:
    decision = decide(GUARDED, (Agent("main", "guarded"),), (run("g=git; $g push"),))
    assert decision.reason == (
        "a variable's value is only known at run time, "
        'so "tool:shell:run git push *" (paddock.toml:4) could match'
    )
    # A door stays silent where only `otherwise` asks: here a rule does.
    assert decision.rule is not None
    assert (decision.rule.source, decision.rule.place) == ("built-in", "built-in")


@pytest.mark.parametrize(
    "line",
    [
        'echo "$HOME"',
        'git commit -m "$(date)"',
        "for f in *.py; do wc -l $f; done",
        "git log $range",
        "find . | xargs grep push",
        "python3 -",
        "cat <<E\n$x\nE",
    ],
)
def test_an_unknown_word_of_a_known_program_is_only_a_word(line: str) -> None:
    assert outcome(line, "guarded", GUARDED) == "allow"


def test_a_rule_that_asks_or_opens_the_network_is_as_good_a_reason_to_ask() -> None:
    assert outcome("npm $what", "asking", GUARDED) == "ask"
    assert outcome("yarn $what", "asking", GUARDED) == "allow"
    assert outcome("npm $what", "opening", GUARDED) == "ask"
    assert outcome("$npm install", "opening", GUARDED) == "ask"
    assert outcome("make $what", "opening", GUARDED) == "allow"


def test_a_parent_asks_about_what_could_be_denied_to_it() -> None:
    chain = (Agent("child", "open"), Agent("parent", "guarded"))
    assert decide(GUARDED, chain, (run("$g push"),)).outcome is Outcome.ASK
    assert decide(GUARDED, chain, (run("ls $x"),)).outcome is Outcome.ALLOW


def test_an_untrusted_rule_asks_about_what_it_could_be() -> None:
    cloned = policy(
        '[profiles.open]\nallow = ["tool:*"]\ndeny = ["tool:shell:run git push *"]', trusted=False
    )
    assert outcome("$g push", "open", cloned) == "ask"
    assert outcome("ls $x", "open", cloned) == "allow"


def test_a_deny_still_holds_beside_an_allow_of_any_command() -> None:
    assert outcome("eval x", "star") == "ask"
    assert outcome("eval x; rm y", "star") == "deny"


CONFINING = policy("""
[profiles.p]
allow = ["tool:shell:run *"]
confine = ["tool:shell:run make *"]
ask = ["tool:shell:run make install *"]
deny = ["tool:shell:run make clean *"]
[profiles.asking]
confine = ["tool:shell:run make *"]
otherwise = { "tool:shell:*" = "ask" }
[profiles.nothing]
confine = ["tool:shell:run make *"]
[profiles.all]
confine = ["tool:shell:*"]
""")


@pytest.mark.parametrize(
    ("profile", "line", "expected"),
    [
        ("p", "ls", "allow"),
        ("p", "make", "confine"),
        ("p", "ls && make", "confine"),
        # It matches widely: nothing slips from it to the allow.
        ("p", "env X=1 make", "confine"),
        ("p", "/opt/make", "confine"),
        ("p", "MAKE all", "confine"),
        ("p", "make install", "ask"),
        ("p", "make clean", "deny"),
        ("asking", "make all", "confine"),
        ("asking", "make; ls", "ask"),
        # Where only a reading of the command is meant, it does not soften what stands behind it.
        ("asking", "env X=1 make", "ask"),
        ("asking", "make $x", "ask"),
        ("nothing", "make", "confine"),
        ("nothing", "sh -c make", "deny"),
        ("nothing", "ls", "deny"),
        ("all", "sh -c make", "confine"),
        ("all", "eval x", "confine"),
    ],
)
def test_confine_stands_between_allow_and_ask(profile: str, line: str, expected: str) -> None:
    assert outcome(line, profile, CONFINING) == expected


def test_a_child_is_confined_where_its_parent_is() -> None:
    for chain in (
        (Agent("child", "p"), Agent("parent", "asking")),
        (Agent("child", "asking"), Agent("parent", "p")),
    ):
        assert decide(CONFINING, chain, (run("make"),)).outcome is Outcome.CONFINE
        assert decide(CONFINING, chain, (run("ls"),)).outcome is Outcome.ASK


def test_an_untrusted_confine_tightens_an_allow_and_loosens_nothing() -> None:
    text = '[profiles.open]\nallow = ["tool:*"]\nconfine = ["tool:shell:run make *"]'
    assert outcome("make", "open", policy(text, trusted=False)) == "confine"
    loose = '[profiles.admin]\nconfine = ["tool:shell:*"]\n[profiles.locked]\nconfine = ["tool:shell:*"]'
    assert outcome("make", "locked", policy(loose, trusted=False)) == "deny"


@pytest.mark.parametrize(
    ("held", "comes_to", "said"),
    [
        ("full", Outcome.CONFINE, "confine"),
        ("partial", Outcome.ASK, "confine (here: ask)"),
        ("none", Outcome.ASK, "confine (here: ask)"),
        ("", Outcome.ASK, "confine"),
    ],
)
def test_confine_is_an_answer_only_where_the_command_is_held_whole(
    held: Held, comes_to: Outcome, said: str
) -> None:
    decision = confined(decide(CONFINING, (Agent("main", "p"),), (run("make"),)), held)
    assert (decision.outcome, decision.comes_to) == (Outcome.CONFINE, comes_to)
    assert (decision.said, decision.enforcement) == (said, held)
    for line in ("ls", "make install", "make clean"):
        other = decide(CONFINING, (Agent("main", "p"),), (run(line),))
        assert confined(other, held) == other


def test_a_rule_that_names_a_command_is_told_from_one_for_any() -> None:
    chain = (Agent("main", "asking"),)
    assert names_line(CONFINING, chain, run("make"))
    assert not names_line(CONFINING, chain, run("make; ls"))
    assert not names_line(CONFINING, (Agent("main", "all"),), run("make"))
    assert not names_line(CONFINING, (*chain, Agent("boss", "all")), run("make"))


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
        ("ls > ~/a", "allow"),
        ("ls > ~/.config/a", "allow"),
        ("ls > ~/../a", "deny"),
        ("ls > ~other/a", "deny"),
        ("ls > /tmp/a", "allow"),
        ("ls > /tmp/a 2>&1", "allow"),
        ("ls > /var/tmp/a", "allow"),
        ("ls > /dev/shm/a", "allow"),
        ("ls > //tmp//a", "allow"),
        ("ls > /tmp", "deny"),
        ("ls > /tmp/.", "deny"),
        ("ls > /tmpx/a", "deny"),
        ("ls > /dev/sda", "deny"),
        ("ls > /var/a", "deny"),
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


def outcome_in(cwd: str, line: str, profile: str = "open") -> str:
    """What is decided where the caller adds what the line writes from `cwd`."""
    written = (written_path(target, cwd) for target in parse_line(line).writes)
    added = [Action("file", "create", path) for path in dict.fromkeys(written) if path]
    return decide(POLICY, (Agent("main", profile),), (run(line), *added)).outcome.word


@pytest.mark.parametrize(
    ("cwd", "line", "expected"),
    [
        ("sub", "echo x > ../docs/a", "allow"),
        ("sub", "echo 'a -> b' >> ./../docs/a 2> /dev/null", "allow"),
        ("a/b", "cat <<'E' > ../../c\nx\nE", "allow"),
        ("a/b", "ls *.py | sort > ../x; ls > y > /tmp/z", "allow"),
        ("sub", "> ../a", "allow"),
        ("sub", "ls > ../.git/config", "deny"),
        ("sub", "ls > ../../a", "deny"),
        ("sub", "ls > ../../docs/a; ls > ../docs/a", "deny"),
        ("sub", "ls > ../docs/a > ../../sub/docs/a", "deny"),
        ("sub", "ls > ../docs/a > /etc/a", "deny"),
        ("sub", "ls > ../docs/a > ~/a", "allow"),
        ("sub", "ls > ../docs/a > ~/../a", "deny"),
    ],
)
def test_what_leaves_the_workspace_is_told_from_where_the_line_runs(
    cwd: str, line: str, expected: str
) -> None:
    assert outcome_in(cwd, line) == expected
    assert outcome(line, "open") == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "cd .. && ls > ../docs/a",
        "command cd ..; ls > ../docs/a",
        "c\\d ..; ls > ../docs/a",
        "time cd ..; ls > ../docs/a",
        "pushd ..; ls > ../docs/a",
        "if cd ..; then ls > ../docs/a; fi",
        "f() { cd ..; }; f; ls > ../docs/a",
        "eval 'cd ..'; ls > ../docs/a",
        "trap 'cd ..' DEBUG; ls > ../docs/a",
        "mapfile -C 'cd ..' -c 1 < f; ls > ../docs/a",
        ". ./f; ls > ../docs/a",
        "$X ..; ls > ../docs/a",
        "c? ..; ls > ../docs/a",
        "sh -c 'ls > ../docs/a'",
        "env -C .. sh -c 'ls > ../docs/a'",
        "find . -execdir sh -c 'ls > ../docs/a' \\;",
        "ls > link/../../docs/a",
        "ls > ../link/../../docs/a",
    ],
)
def test_where_a_line_may_change_its_place_it_is_read_from_the_root_as_well(line: str) -> None:
    assert outcome_in("sub", line) == "deny"


def test_a_line_is_read_from_the_root_as_well_for_all_that_does_not_leave_it() -> None:
    assert outcome_in("sub", "ls > .git/config") == "deny"
    assert outcome_in("out", "ls > out/a", "files") == "allow"
    assert outcome_in("out", "ls > a", "p") == "deny"


def test_no_write_passes_as_another_ones_whatever_a_caller_adds() -> None:
    targets = ("a", "b/a", "../a", "../b/a", "../../a", "../../b/a", "../../../a")
    for cwd in ("a", "b", "a/b", "b/a", "a/a", "a/b/a"):
        for pair in product(targets, repeat=2):
            line = f"ls > {pair[0]} > {pair[1]}"
            stays = all(written_path(target, cwd) for target in pair)
            assert outcome_in(cwd, line) == ("allow" if stays else "deny"), (cwd, line)


@pytest.mark.parametrize(
    "line",
    ["", " ", "# ls", ";", "(", "if", '"', "2>&1"],
)
def test_a_line_without_a_command_is_refused_under_any_profile(line: str) -> None:
    for profile in ("open", "p"):
        decision = decide(POLICY, (Agent("main", profile),), (run(line),))
        assert (decision.outcome, decision.rule) == (Outcome.DENY, None)
        assert decision.reason.endswith(" contains no command")


def test_a_redirection_alone_is_judged_as_the_write_that_it_is() -> None:
    assert outcome("> a", "open") == "allow"
    assert outcome("> .git/a", "open") == "deny"
    assert outcome("> out/x", "p") == "deny"
    # In these stands a command.
    assert outcome("FOO=$(ls)", "open") == "allow"
    assert outcome("# a comment\nls", "open") == "allow"


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
    assert outcome("git status", "standard", decided) == "confine"


def test_a_command_pattern_that_can_match_nothing_does_not_load() -> None:
    with pytest.raises(Exception, match="a && b") as caught:
        policy('[profiles.p]\nallow = ["tool:shell:run a && b"]')
    assert getattr(caught.value, "where", "") == "paddock.toml:2"


@pytest.mark.parametrize(
    ("target", "bar"),
    [
        ("FOO=1 git log", "an assignment is before the command"),
        ("FOO+=1 *", "an assignment is before the command"),
        ("export A", "export can change what a later word of the line means"),
        ("eval x", "eval can change what a later word of the line means"),
    ],
)
def test_an_allow_that_can_match_no_command_does_not_load(target: str, bar: str) -> None:
    wanted = f"an allow of {json.dumps(target)} matches nothing: {bar}"
    short = f'[profiles.p]\nallow = ["tool:shell:run {target}"]'
    long = f'[[profiles.p.rules]]\naction = "tool:shell:run {target}"\noutcome = "allow"'
    for text in (short, long):
        with pytest.raises(ConfigError) as caught:
            policy(text)
        assert (caught.value.message, caught.value.where) == (wanted, "paddock.toml:2")
    # An ask or a deny sees such a command, whatever else the line may mean.
    for word in ("ask", "deny"):
        policy(f'[profiles.p]\n{word} = ["tool:shell:run {target}"]')
    assert (
        outcome("export A", "p", policy('[profiles.p]\nask = ["tool:shell:run export *"]')) == "ask"
    )


@pytest.mark.parametrize(
    "target",
    ["cd *", "env A=1 make *", "make A=1", "time ls", "*", "e* x", "echo export", "exporter *"],
)
def test_an_allow_that_a_builtin_is_near_to_loads(target: str) -> None:
    assert policy(f'[profiles.p]\nallow = ["tool:shell:run {target}"]').find_profile("p")


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
        ("npm install x && ls", "policy"),
        ("npm install x; curl y", "policy"),
        ("env A=1 npm install x", "policy"),
        ("npm install $(x)", "policy"),
        ("quiet a", "none"),
        ("env A=1 quiet a", "none"),
        ("npm install x | quiet", "none"),
        ("ls", "policy"),
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
        git="read-only",
        read=("/usr/lib",),
        write=("/srv/a", "/opt/b/c"),
        enforcement="required",
        approve="diff",
        commit="all",
        limits=ShellLimits(processes=10, memory_mb=5, file_mb=4096, cpu_s=500),
    )
    assert shell_for(decided, (Agent("x", "open"),)) == ShellSettings(
        network="host", enforcement="best-effort", read=SYSTEM_READ
    )


@pytest.mark.parametrize("protected", ["[]", '[".git/"]'])
@pytest.mark.parametrize(
    ("child", "parent", "both"),
    [
        ("safe", "safe", "safe"),
        ("none", "none", "none"),
        ("safe", "read-only", "read-only"),
        ("none", "safe", "read-only"),
        ("read-only", "none", "read-only"),
    ],
)
def test_of_two_presets_for_git_what_is_within_both_holds(
    protected: str, child: str, parent: str, both: str
) -> None:
    text = f"[paths]\nprotected = {protected}\n"
    text += f'[profiles.a.shell]\ngit = "{child}"\n[profiles.b.shell]\ngit = "{parent}"\n'
    assert shell_for(policy(text), (Agent("a", "a"), Agent("b", "b"))).git == both


def test_importing_policy_and_judging_paths_loads_no_grammar() -> None:
    program = (
        "import sys; from paddock.policy.rules import *; from paddock.policy.decide import *; "
        "from paddock.policy.engine import *; from paddock.values.decisions import Agent; "
        "chain = (Agent('a', 'standard'),); "
        "decide(load_policy(None), chain, (parse_action('tool:file:view a'),)); "
        "sys.exit(any('tree_sitter' in name or name == 'tomllib' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
