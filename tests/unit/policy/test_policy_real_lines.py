"""Lines that agents and people really write: what is asked about without need, and what rides along.

Each kind stands with its neighbours, from both sides.
"""

import pytest

from paddock.limits import command_chars_max, command_parts_max
from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.questions.lint import lint
from paddock.values.decisions import Action, Agent

POLICY = """
[paths]
protected = ["f", "src/g"]
[profiles.narrow]
allow = ["tool:shell:run git commit *", "tool:shell:run git status *", "tool:shell:run git log *",
         "tool:shell:run gh pr *", "tool:shell:run jq *", "tool:shell:run kubectl apply *",
         "tool:shell:run npm test *", "tool:shell:run pytest *", "tool:shell:run exit *",
         "tool:shell:run return *", "tool:shell:run ./run.sh *", "tool:shell:run python3 a.py",
         "tool:shell:run go test ./...", "tool:file:*"]
deny = ["tool:shell:run git push *"]
otherwise = { "tool:shell:*" = "ask" }
[profiles.wide]
allow = ["tool:*"]
deny = ["tool:shell:run git push *", "tool:shell:run rm -rf *", "tool:shell:run git commit --amend"]
[profiles.asking]
allow = ["tool:*"]
ask = ["tool:shell:run tool -x --long *"]
[profiles.moving]
allow = ["tool:shell:run cd *"]
"""


def policy(text: str = POLICY):
    return load_policy(PolicySource("paddock.toml", text.encode(), True))


DECIDED = policy()


def decision(line: str, profile: str):
    return decide(DECIDED, (Agent("main", profile),), (Action("shell", "run", line),))


def outcome(line: str, profile: str) -> str:
    return decision(line, profile).outcome.word


# --- here-documents ----------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "git commit -F -",
        "gh pr create --body-file -",
        "jq -f - a.json",
        "kubectl apply -f -",
        "kubectl apply -f - -n x",
    ],
)
@pytest.mark.parametrize("mark", ["'EOF'", "EOF", '"EOF"'])
def test_a_document_is_data_to_a_program_that_does_not_run_its_input(
    command: str, mark: str
) -> None:
    assert outcome(f"{command} <<{mark}\nit's\ngit push is described\nEOF", "narrow") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "bash",
        "sh -s",
        "bash -",
        "ssh host",
        "sudo -s",
        "su me",
        "at now",
        "docker exec -i c sh",
        "kubectl exec -i pod -- bash",
        "python3 -",
        "node -",
        "env -i bash",
    ],
)
def test_a_document_is_a_program_to_one_that_runs_its_input(command: str) -> None:
    assert outcome(f"{command} <<'EOF'\nx\ngit push\nEOF", "wide") == "deny"
    assert outcome(f"{command} <<'EOF'\nx\nEOF", "wide") != "deny"


@pytest.mark.parametrize("text", ["cat <<'E' | bash\ngit push\nE", "xargs git <<'E'\npush\nE"])
def test_a_document_that_becomes_a_program_behind_another_one_is_asked_about(text: str) -> None:
    assert outcome(text, "wide") == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "x='$(git push)'; echo ${x@P}",
        "x='a[$(git push)]'; echo \"${!x}\"",
        "x='a[$(git push)]'; echo ${y:x}",
        "x='a[$(git push)]'; echo \"${y:0:x}\"",
        "cat <<E\n${y:x:2}\nE",
        "x='a[$(git push)]'; read \"$x\" <<< 1",
        "x='a[$(git push)]'; printf -v \"$x\" 1",
        "x='a[$(git push)]'; [ -v \"$x\" ]",
        "x='a[$(git push)]'; declare \"$x=1\"",
        "x='a[$(git push)]'; getopts a \"$x\" -a",
        "x='a[$(git push)]'; let x",
        "declare -i x; x='a[$(git push)]'",
        "typeset -xi x; x='a[$(git push)]'",
        "compgen -W '$(git push)'",
        "setopt promptsubst; print -P '$(git push)'",
    ],
)
def test_what_evaluates_a_text_once_more_is_asked_about(line: str) -> None:
    assert outcome(line, "wide") == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "echo ${x:0:7} ${x: -3} ${x:2:-1} ${@:2} ${x:-y} ${x:=y} ${x:+y} ${x@Q} ${#x}",
        'read -rp "$prompt" x; read -t "$t" y',
        'printf -v y %s "$x"; printf "$format" "$x"',
        '[ -n "$x" ] && test "$x" = y',
        'declare -a y; declare y="$x"; local z="$x"; export v="$x"',
        'wait "$pid"; unset x; mapfile -t -n "$n" y < f',
        "getopts ab:c x; complete -F f x",
    ],
)
def test_what_names_its_variables_evaluates_nothing(line: str) -> None:
    assert outcome(line, "wide") == "allow"


BODY = 'it\'s "done" (1); $x `y`\n\ngit push is described'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"git commit -m \"$(cat <<'EOF'\n{BODY}\nEOF\n)\"", "allow"),
        (f"gh pr create --body \"$(cat <<'END'\n{BODY}\nEND\n)\" --title x", "allow"),
        ('git commit -m "$(cat <<EOF\nplain\nEOF\n)" && git status', "allow"),
        ("git commit -m \"$(cat <<'EOF'\nEOF\n)\"", "allow"),
        ('git commit -m "$(cat <<EOF\n$x\nEOF\n)"', "ask"),
        ('git commit -m "$(cat <<EOF\n`x`\nEOF\n)"', "ask"),
        ("git commit -m \"$(cat <<'EOF' | sh\nx\nEOF\n)\"", "ask"),
        ("git commit -m \"$(cat a <<'EOF'\nx\nEOF\n)\"", "ask"),
        ("git commit -m \"$(cat <<'EOF'\nx\nEOF\nmake\n)\"", "ask"),
        ("git commit -m $(cat <<'EOF'\nx\nEOF\n)", "ask"),
        ("bash -c \"$(cat <<'EOF'\ngit push\nEOF\n)\"", "deny"),
        ("\"$(cat <<'EOF'\ngit\nEOF\n)\" push", "deny"),
    ],
)
def test_cat_of_a_quoted_document_is_a_constant(line: str, expected: str) -> None:
    assert outcome(line, "narrow") == expected


# --- what has no effect of its own -------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "cd src && git status",
        "cd src/a; git log -3",
        "(cd src && git status)",
        "git -C src status",
        "git --no-pager log",
        "git --no-pager -C src log --oneline",
        "NODE_ENV=test npm test",
        "CI=1 NO_COLOR=1 npm test",
        "GIT_PAGER=cat git log",
        "timeout 60 npm test",
        "timeout -k 5 1.5m npm test",
        "nice npm test",
        "nice -n 5 timeout 60 npm test",
        "time npm test",
        "if true; then git status; fi",
        "if [ -f x ]; then git status; else git log; fi",
        "for i in 1 2; do npm test; done",
        "pytest -q 2>&1 | tail -15",
        "npm test | grep -v 'foo bar' | head -n 5",
        "git log | cut -d' ' -f1 | sort | uniq -c | sort -rn | wc -l",
        "git log | tr a-z A-Z | cat -n",
        "cd src && go test ./... 2>&1 | tail",
    ],
)
def test_what_has_no_effect_of_its_own_needs_no_rule(line: str) -> None:
    assert outcome(line, "narrow") == "allow"


RIDING = [
    # Another directory.
    "cd /etc && git status",
    "cd .. && git status",
    "cd src/../.. && git status",
    "cd - && git status",
    "cd ~ && git status",
    "cd $x && git status",
    "cd s* && git status",
    "pushd src && git status",
    "git -C .. status",
    "git -C /x status",
    "git -C s* status",
    "git -C $'src' status",
    "git -C {a,b} status",
    "time {npm,x} test",
    "cd a; cd b; cd c; cd d; cd e; git status",
    # Another file of the same name.
    "cd src && ./run.sh",
    "cd src && python3 a.py",
    # Another environment.
    "PATH=. npm test",
    "NODE_OPTIONS=x npm test",
    "NODE_ENV=$(x) npm test",
    "LC_ALL=/tmp/x npm test",
    "GIT_PAGER=./x git log",
    "CI+=x FOO=1 npm test",
    "for path in x; do npm test; done",
    "for PATH in x; do npm test; done",
    # Another program behind one that is seen through.
    "timeout 60 make",
    "timeout $x npm test",
    "timeout -s '9 5' 5 npm test; make",
    "nice -n 5 make",
    "time -o f npm test",
    "git --no-pager -c core.pager=x log",
    "git -c core.fsmonitor=x --no-pager log",
    "env CI=1 npm test",
    # A filter that reads or writes a file, or none.
    "npm test | cat a",
    "npm test | grep x a",
    "npm test | grep -e x a",
    "npm test | grep -f a",
    "npm test | grep -r x",
    "npm test | head a",
    "npm test | sort -o a",
    "npm test | sort --files0-from=a",
    "npm test | uniq - a",
    "npm test | wc --files0-from=a",
    "npm test | cat < a",
    "npm test | ./cat",
    "npm test | sed p",
    "npm test && tail -5",
    "cat",
    "npm test | grep -v x | sh",
    "if make; then git status; fi",
    "if [ -v 'a[$(make)]' ]; then git status; fi",
    "true",
]


@pytest.mark.parametrize("line", RIDING)
def test_nothing_else_rides_along_with_it(line: str) -> None:
    assert outcome(line, "narrow") == "ask"


def test_a_rule_still_reaches_what_needs_none() -> None:
    text = (
        '[profiles.p]\nallow = ["tool:shell:run npm test"]\n'
        'ask = ["tool:shell:run cd *"]\ndeny = ["tool:shell:run tail *"]'
    )
    for line, expected in (("cd x && npm test", "ask"), ("npm test | tail", "deny")):
        action = Action("shell", "run", line)
        assert decide(policy(text), (Agent("a", "p"),), (action,)).outcome.word == expected


def test_a_rule_for_cd_is_no_mistake() -> None:
    assert outcome("cd src", "moving") == "allow"
    assert outcome("cd /etc", "moving") == "deny"


def test_a_redirection_is_judged_from_where_the_line_may_stand() -> None:
    assert outcome("cd src && git log > g", "narrow") == "deny"
    assert outcome("cd src && git log > ../h", "narrow") == "allow"
    assert outcome("cd src && git log > ../f", "narrow") == "deny"
    assert outcome("cd src && git log > ../../f", "narrow") == "deny"


# --- zsh ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "redirection", [">! f", ">>! f", "&>! f", ">!f", ">>!f", ">&! f", ">! 'f'", ">|f", "> f"]
)
def test_a_redirection_is_what_zsh_writes_too(redirection: str) -> None:
    assert outcome(f"echo a {redirection}", "wide") == "deny"
    assert outcome(f"echo a {redirection.replace('f', 'h')}", "wide") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "[[ -t 'path[$(cmd)1]' ]] && git status",
        "[[ -f a && -t x ]] && git status",
        "exit 'path[$(cmd)1]'",
        "return 'path[`cmd`]'",
    ],
)
def test_what_zsh_evaluates_is_known_at_run_time_only(line: str) -> None:
    assert outcome(line, "narrow") == "ask"


@pytest.mark.parametrize(
    "line", ["=git push", "repeat 2 git push", "- git push", "noglob git push"]
)
def test_what_zsh_starts_is_seen(line: str) -> None:
    assert outcome(line, "wide") in ("ask", "deny")


@pytest.mark.parametrize("line", ["[[ -t 1 ]] && git status", "exit 1", "exit '[1]'"])
def test_a_plain_test_and_a_plain_exit_are_allowed(line: str) -> None:
    assert outcome(line, "narrow") == "allow"


# --- what starts another program ---------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "git submodule foreach git push",
        "git submodule foreach --recursive 'git push'",
        "git rebase -x 'git push' HEAD~1",
        "git rebase --exec='make && git push' HEAD~1",
        "git bisect run git push",
        "git bisect run sh -c 'git push'",
        "git difftool -yx 'git push'",
        "git grep -O'git push' x",
        "git filter-branch --tree-filter 'git push' HEAD",
        "git -c core.pager='git push' log",
        "git -c alias.x=push x",
        "git clone -c core.sshCommand='git push' a b",
        "git config alias.x '!git push'",
        "git-push origin",
        "/usr/lib/git-core/git-push origin",
        "script -qc 'git push' /dev/null",
        "setarch x86_64 git push",
        "setarch -R git push",
        "nix develop -c git push",
        "nix-shell --run 'git push'",
        "conda run -n x git push",
        "tmux new -d 'git push'",
        "tmux send-keys 'git push' Enter",
        "mapfile -C 'git push' -c 1 x < h",
        "compgen -C 'git push' x",
        "csh -c 'git push'",
        "tcsh -c 'git push'",
        "npm exec -c 'git push'",
        "npx -c 'git push'",
        "tar -cf a.tar --checkpoint-action=exec='git push' b",
        "sort --compress-program='git push' a",
        "fd -x git push",
        "flock /tmp/l -c 'git push'",
        "emulate sh -c 'git push'",
    ],
)
def test_a_program_that_starts_another_one_does_not_hide_it(line: str) -> None:
    assert outcome(line, "wide") == "deny"
    assert outcome(line.replace("push", "pull"), "wide") == "allow"


@pytest.mark.parametrize(
    "line", ["unknown git push", "foo -x git push", "docker exec c git push", "./deploy git push x",
             "ssh host git push", "timeout 5 foo git push", "python3 a.py git push",
             "screen -dm git push", "lldb -- git push"],
)  # fmt: skip
def test_an_unknown_program_that_may_start_a_denied_command_is_asked_about(line: str) -> None:
    said = decision(line, "wide")
    assert said.outcome.word == "ask"
    assert "may start what its words name" in said.reason
    assert outcome(line.replace("push", "pull"), "wide") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "echo git push",
        "grep -rn git push",
        "git commit -m 'git push'",
        'git -c user.name="O\'Brien git push" commit -m x',
        "gh pr create --title 'git push works'",
        "make git push",
        "rg git push",
        "unknown 'git push'",
        "git checkout run",
    ],
)
def test_a_word_that_only_looks_like_one_is_a_word(line: str) -> None:
    assert outcome(line, "wide") == "allow"


@pytest.mark.parametrize("line", ["git bisect run make", "git submodule foreach make"])
def test_a_wildcard_does_not_cover_what_git_starts(line: str) -> None:
    text = '[profiles.p]\nallow = ["tool:shell:run git bisect *", "tool:shell:run git submodule *"]'
    chain = (Agent("a", "p"),)
    assert decide(policy(text), chain, (Action("shell", "run", line),)).outcome.word == "deny"
    for honest in ("git bisect good", "git submodule update"):
        action = Action("shell", "run", honest)
        assert decide(policy(text), chain, (action,)).outcome.word == "allow"


# --- options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    ["-rf", "-fr", "-r -f", "-f -v -r", "-Rf", "-rfv", "--recursive --force", "-r --force",
     "--recurs --forc", "-i -rf --"],
)  # fmt: skip
def test_the_same_options_are_the_same_rule(options: str) -> None:
    assert outcome(f"rm {options} x", "wide") == "deny"
    assert outcome(f"sudo rm {options} x", "wide") == "deny"
    assert outcome(f"rm x {options}", "wide") == "deny"


@pytest.mark.parametrize("line", ["rm -r x", "rm -f x", "rm -i x", "rm -- -rf", "rm -d --force x"])
def test_other_options_are_no_such_rule(line: str) -> None:
    assert outcome(line, "wide") == "allow"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tool --long a -x", "ask"),
        ("tool -vx --long=1", "ask"),
        ("tool -x", "allow"),
        ("tool a -x -- --long", "allow"),
        ("tool a $y", "ask"),
    ],
)
def test_an_option_may_stand_anywhere(line: str, expected: str) -> None:
    assert outcome(line, "asking") == expected


def test_lint_says_which_names_of_options_it_does_not_know() -> None:
    found = {each.message for each in lint(DECIDED) if each.code == "lint.option_names"}
    assert found == {
        '"tool:shell:run tool -x --long *" knows no other name of --long, -x',
        '"tool:shell:run git commit --amend" knows no other name of --amend',
    }


# --- what is too much --------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "bound"),
    [
        ("x" * (command_chars_max + 1), f"longer than {command_chars_max} characters"),
        ("echo " + "x " * 480_000, f"longer than {command_chars_max} characters"),
        ("a&&" * 50_000, f"longer than {command_chars_max} characters"),
        ("a&&" * (command_parts_max + 1), f"more than {command_parts_max} parts"),
        (
            ";".join(f"sh -c 'a {n}'" for n in range(300)),
            "scripts inside scripts, too many to follow",
        ),
    ],
    ids=["a word", "words", "parts", "fewer parts", "scripts"],
)
def test_a_line_over_a_bound_is_denied_whoever_asks(line: str, bound: str) -> None:
    said = decision(line, "open")
    assert said.outcome.word == "deny"
    assert bound in said.reason


@pytest.mark.parametrize(
    "line",
    ["cat > h <<'E'\n" + "a && (b); c\n" * 8000 + "E", "echo '" + "a&&" * 30_000 + "'",
     "true; " * 600],
    ids=["a document", "a text", "parts"],
)  # fmt: skip
def test_a_long_line_below_them_is_judged(line: str) -> None:
    assert outcome(line, "wide") in ("allow", "ask")
    assert outcome(line, "open") == "allow"
