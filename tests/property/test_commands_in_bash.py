"""Lines of odd pieces, decided and then really run by bash: what is allowed starts nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddock.policy.commands import compile_command_pattern, parse_line
from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.decisions import Action, Agent, Outcome

pytestmark = pytest.mark.needs("bash")

PATTERNS = [compile_command_pattern(text) for text in ("git status", "git diff *", "ls *")]
DENYING = load_policy(
    PolicySource(
        "paddock.toml",
        b'[profiles.p]\nallow = ["tool:shell:*", "tool:file:*"]\ndeny = ["tool:shell:run mark *"]\n',
    )
)
PIECES = (
    *("`", "`ls \\`mark\\``", "${x:-`mark`}", "cat "),
    *("mark", "$(mark)", "`mark`", "<(mark)", '"$(mark)"', "$((a[$(mark)]))", "${x:-$(mark)}"),
    *("'", '"', "\\", "$'", "{", "}", "(", ")", "((", "))", "[[", "]]", "[", "]"),
    *("<", "<<", "<<-", "<<<", "<<E", "<<'E'", "<<\\E", "\nE\n", "\nE", "\n\tE\n", "E", "E)"),
    *(">", ">>", ">&", "<&", "&>", ">|", "<>", "2>&1", "1>&", "3>", "{x}>", "&-", ">&-"),
    *("/dev/null", ">/dev/null ", "2>/dev/null ", "<<E 2>&1 ", ">x ", "<<<a "),
    *("|", "|&", "||", "&&", "&", ";", ";;", "\n", "\t", " ", "#", " #", "\\\n"),
    *("!", "~", "*", "?", "=", "a=", "x[0]=", "=(", "-", "--", "{a,b}", "$", "${", "$["),
    *("if ", "then ", "fi", "while ", "do ", "done", "for i in ", "case a in ", "esac", "a)"),
    *("f() ", "coproc ", "time ", "in ", "else ", "[[ a ", " ]]", "=~", "-eq ", "eval ", ". "),
    *("export ", "declare ", "unset ", "test ", "[ a ", "\\$\\(mark\\)", "'$(mark)'"),
    *("\u00a0", "\u2003", "\xe9"),
)
LINES = st.builds(
    lambda first, pieces, gap: first + gap.join(pieces),
    st.sampled_from(("ls ", "ls", "git diff ", "git status", "ls a ", "")),
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=12),
    st.sampled_from(("", " ")),
)
HOSTILE = "'a[$(mark)]'"
COUNTERS = (
    *("i=0", "i=7", "i=", "j=1", "i+=2", "i=$((i+1))", "i=$((j))", 'i="$((i + j))"', "i=$#"),
    *(f"i={HOSTILE}", f"j={HOSTILE}", f"i+={HOSTILE}", f"i[0]={HOSTILE}", f"i=({HOSTILE})", "i=$j"),
    *(f"read i <<< {HOSTILE}", f"read -r {{h..j}} <<< {HOSTILE}", f"read -r ? <<< {HOSTILE}"),
    *(
        f"printf -v i %s {HOSTILE}",
        f"declare i={HOSTILE}",
        f"export i={HOSTILE}",
        "export i=1",
        f"export i={{0,{HOSTILE}}}",
    ),
    *(f"mapfile -t i <<< {HOSTILE}", "declare -n i=j", "unset i", f"echo ${{i:={HOSTILE}}}"),
    *("echo $((i))", "echo $((i+1))", "echo $(( $i ))", "echo $((j$i))", "echo ${a[i]}", "((i++))"),
    *("[[ $i -lt 3 ]]", "[[ i -lt 3 ]]", "[ $i -lt 3 ]", "((j = i))", "echo ${a[$i]}", "a[i]=1"),
    *("for i in 1 2; do :; done", f"for i in {HOSTILE}; do echo $((i)); done", "x=read", ": > i"),
    *(
        f"$x i <<< {HOSTILE}",
        "for ((i = 0; i < 2; i++)); do :; done",
        "for i in {1..3}; do :; done",
    ),
    *(f"f() {{ i={HOSTILE}; }}", "f", f"trap 'i={HOSTILE[1:-1]}' DEBUG", "set -e", "set -- 1 2"),
    *("bash -c 'false && i=0; echo $((i))'", f"eval i=\\{HOSTILE}", "getopts i: i", "let i=0"),
)
COUNTING = st.builds(
    lambda pairs: "".join(f"{piece}{sign}" for piece, sign in pairs) + ":",
    st.lists(
        st.tuples(st.sampled_from(COUNTERS), st.sampled_from(("; ", " && ", " || ", "\n"))),
        min_size=2,
        max_size=7,
    ),
)


def is_allowed(text: str) -> bool:
    """Under allow rules for three programs, and nothing in doubt."""
    line = parse_line(text)
    return (
        bool(line.commands)
        and not (line.problems or line.runtime_only)
        and all(any(pattern.matches_exactly(each) for pattern in PATTERNS) for each in line.wanted)
    )


def is_seen(text: str) -> bool:
    """Whether a policy that denies what marks, and allows the rest, denies or asks."""
    decision = decide(DENYING, (Agent("main", "p"),), (Action("shell", "run", text),))
    return decision.outcome > Outcome.CONFINE


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of no effect, and one that leaves a mark."""
    made = tmp_path_factory.mktemp("bash")
    (made / "bin").mkdir()
    (made / "work").mkdir()
    for name, line in (("mark", f": > {made}/MARK"), ("ls", ":"), ("git", ":"), ("cat", ":")):
        (made / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (made / "bin" / name).chmod(0o755)
    return made


def marks(desk: Path, text: str) -> bool:
    """Whether bash starts what marks for this line."""
    (desk / "MARK").unlink(missing_ok=True)
    shutil.rmtree(desk / "work")
    (desk / "work").mkdir()
    environment = {"PATH": str(desk / "bin"), "HOME": str(desk / "work"), "LC_ALL": "C.UTF-8"}
    with open(os.devnull, "r+b") as nothing:
        subprocess.run(
            ["/bin/bash", "-c", text], cwd=desk / "work", env=environment, check=False,
            stdin=nothing, stdout=nothing, stderr=nothing, timeout=60,
        )  # fmt: skip
    return (desk / "MARK").exists()


@pytest.mark.parametrize(("text", "wanted"), [("ls $(mark)", True), ("mark", True), ("ls", False)])
def test_the_mark_tells_what_bash_starts(desk: Path, text: str, wanted: bool):
    assert marks(desk, text) is wanted


@given(text=LINES)
@example(text="ls <<E 2>/dev/null $(mark)\nE")
@example(text="ls >&\\$\\(mark\\)")
@example(text="ls 1>&'$(mark)'")
@settings(max_examples=1500)
def test_what_an_allow_covers_starts_nothing_else(desk: Path, text: str):
    if is_allowed(text):
        assert not marks(desk, text)


@given(text=COUNTING)
@example(text="i=0; i=1; echo $((i))")
@settings(max_examples=1500)
def test_a_deny_sees_what_arithmetic_starts(desk: Path, text: str):
    if "mark" in text and not is_seen(text):
        assert not marks(desk, text)


@given(text=LINES)
@example(text='export "$(mark)"')
@example(text="unset $(mark)")
@example(text="cat <<E >/dev/null $(mark)\nE")
@example(text="let 'a[$(mark)]'")
@example(text="unset 'a[$(mark)]'")
@example(text="declare 'a[$(mark)]=1'")
@example(text="read 'a[$(mark)]' <<< 1")
@example(text="printf -v 'a[$(mark)]' x")
@example(text="test -v 'a[$(mark)]'")
@example(text="cat <<E\n`mark`\nE")
@example(text="cat <<-E\n\t$(mark)\n\tE")
@example(text="echo ${x:-`mark`}")
@example(text="echo a$`ls \\`mark\\``")
@example(text="for RANDOM in 'a[$(mark)]'; do :; done")
@example(text="read RANDOM <<< 'a[$(mark)]'")
@example(text="OPTIND='a[$(mark)]'")
@example(text="cat <<E\n\\`x\\` `mark`\nE")
@example(text="echo mark | xargs env")
@example(text='echo "$x $(mark)"')
@example(text="echo ${x:-a $(mark)}")
@settings(max_examples=1500)
def test_a_deny_sees_every_program_that_bash_starts(desk: Path, text: str):
    if "mark" in text and not is_seen(text):
        assert not marks(desk, text)
