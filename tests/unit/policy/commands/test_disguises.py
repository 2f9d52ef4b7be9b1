"""A deny sees through disguises, and does not see things."""

import pytest

from paddock.policy.commands import compile_command_pattern, parse_line

PUSHES = (
    "git push origin main",
    "/usr/bin/git push origin main",
    # Where the file system knows no letter case.
    "Git push origin main",
    "/usr/bin/GIT push origin main",
    "./git push origin main",
    "bin/../bin/git push",
    r"\git push origin main",
    "'git' push origin main",
    "g'i't pu\"sh\" origin main",
    r"g\it p\ush origin main",
    "$'git' push origin main",
    r"$'g\x69t' $'\160ush' origin main",
    r"$'\u0067it' push",
    "git   push\torigin main",
    "git \\\n push origin main",
    "git pu\\\nsh origin main",
    "GIT_TRACE=1 git push origin main",
    "A=b C=d git push origin main",
    "git -C . push origin main",
    "git -c user.name=x push origin main",
    "git --git-dir=.git --work-tree . push origin main",
    "git --no-pager -C sub -c a.b=c push",
    "git -c alias.p=push p origin main",
    "git -c alias.p='!git push' p",
    "env git push origin main",
    "env -i A=b git push origin main",
    "env -u X -C sub -- git push",
    "env -S 'git push origin main'",
    "env --split-string='git push'",
    "env -vS'git push' origin",
    "command git push origin main",
    "command -p -- git push origin main",
    "builtin command git push",
    "exec -a x git push origin main",
    "nice -n 5 git push origin main",
    "nohup nice -5 git push origin main",
    "time -p git push origin main",
    "timeout -k 5 -s KILL 60 git push origin main",
    "timeout --sig=KILL 60 git push",
    "stdbuf -oL git push origin main",
    "setsid -w git push",
    "ionice -c2 -n 7 git push",
    "chrt -f 10 git push",
    "taskset -c 0 git push",
    "flock /tmp/lock git push origin main",
    "flock /tmp/lock -c 'git push origin main'",
    "sudo -u me -- git push origin main",
    "sudo A=b git push",
    "doas -u me git push",
    "su me -c 'git push'",
    "echo origin | xargs git push",
    "xargs -0 -n 1 -I{} git push {} main",
    "busybox git push",
    "watch -n 5 git push",
    "watch 'git push origin main'",
    "parallel git push ::: a b",
    "sh -c 'git push origin main'",
    'bash -lc "git push origin main"',
    "bash -o errexit -c 'cd x; git push'",
    "sh -c 'sh -c \"git push\"'",
    "dash -ec 'true && git push'",
    "eval 'git push origin main'",
    "eval git push origin main",
    "find . -maxdepth 0 -exec git push ';'",
    r"find . -exec sh -c 'git push' \;",
    "true; git push",
    "true && git push origin main",
    "true | git push",
    "true & git push",
    "if true; then git push; fi",
    "while git push; do :; done",
    "for x in a; do git push; done",
    "case x in x) git push;; esac",
    "{ git push; }",
    "(git push)",
    "! git push",
    "f() { git push; }; f",
    "echo $(git push)",
    "echo `git push`",
    'echo "x $(git push) y"',
    "cat <(git push)",
    "x=$(git push)",
    "echo ${x:-$(git push)}",
    "echo $((a[$(git push)]))",
    "cat <<EOF\n$(git push)\nEOF",
    "bash <<'EOF'\ngit push\nEOF",
    "bash <<< 'git push'",
    "trap 'git push' EXIT",
    "alias x='git push'; x",
    "coproc git push",
    "{git,push,origin}",
    "time { git push; }",
    "time -p if true; then git push; fi",
    "git {push,origin}",
    "git p* origin",
    "/usr/bin/gi? push",
    "> out git push",
    "git > out push origin",
    "git push > out",
    "git 2>&1 push",
    "true\ngit push",
    "unshare --new-option git push",
    "strace -f -o out git push",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/git push",
    "uv run git push",
    "git push; echo 'unclosed",
    "git push && (",
    "git push \x07",
    # To zsh.
    "=git push",
    "true &!git push",
    "true &!=git push; ls",
    # What is expanded in a here-document, or in braces.
    "cat <<E\n`git push`\nE",
    "cat <<E > $(ls)\nx `git push` y\nE",
    "cat <<E | wc\n\\\\`git push`\nE",
    "cat <<-E\n\t$(git push)\n\tE",
    "cat <<-E\n\t`git push`\n\tE",
    "cat <<E\n${x:-`git push`}\nE",
    "bash -c 'cat <<E\n`git push`\nE'",
    'git commit -m "$(cat <<E\n`git push`\nE\n)"',
    "echo ${x:-`git push`}",
    "echo \"${x:-'`git push`'}\"",
    "echo ${x/a/`git push`}",
    "export x=${y:=`git push`}",
    "for x in 'a'${y:-`git push`}; do true; done",
    # Backquotes in backquotes.
    "echo `echo \\`git push\\``",
    "echo a$`echo \\`git push\\``",
    'echo "`echo \\`git \\"push\\"\\``"',
    "`echo \\`echo \\\\\\`git push\\\\\\`\\``",
    "x" * 100_001 + "; git push",
    "; ".join(["true"] * 5000) + "; git push",
    "env " * 300 + "git push",
)

REMOVALS = (
    "rm -rf x",
    "/bin/rm -rf x",
    r"\rm -rf x",
    "r''m -rf x",
    "command rm -rf x",
    "sudo -n rm -rf x",
    "env -i rm -rf x",
    "nohup rm -rf x &",
    "find . -name x -exec rm -rf {} +",
    "find . -execdir rm {} ';'",
    "ls | xargs rm -rf",
    "xargs -a list rm",
    "sh -c 'rm -rf x'",
    'bash -c "rm -rf x"',
    "timeout 5 rm -rf x",
    "{rm,-rf,x}",
    "$'rm' -rf x",
    "/bin/r? -rf x",
    "busybox rm -rf x",
    "cd x && rm -rf y",
    "X=1 rm -rf x",
    "rm",
    "rm\t-rf\tx",
    "time rm -rf x",
    "exec rm -rf x",
    "(rm -rf x)",
    "echo $(rm -rf x)",
    "python3 -m rm x",
)

INNOCENT_OF_PUSH = (
    "git status",
    "git pull",
    "git log push",
    "git commit -m push",
    "git commit -m 'git push'",
    "git stash push",
    "git pushx",
    "gitpush",
    "echo git push",
    "echo 'git push'",
    "grep -rn 'git push' .",
    "timeout 5 echo git push",
    "xargs grep git",
    "xargs echo git push",
    "env A=b printf 'git push'",
    "cat <<'EOF'\ngit push\nEOF",
    "sh -c 'echo git push'",
    "# git push",
    "git status # git push",
    "git 'push origin'",
    "find . -name git -print",
    "find . -exec grep git push ';'",
    "command -v git push",
    "git -C push status",
    "cat <<'E'\n`git push` $(git push)\nE",
    'cat <<"E"\n`git push`\nE',
    "cat <<E\nsay \\`git push\\` $x `date`\nE",
    "cat <<-E\n\tgit push, $x\n\tE",
    "echo 'say `git push`'$x",
    "echo $'say `git push`'$x",
    'echo "say \\`git push\\` $x"',
    "git commit -m \"$(cat <<'E'\nsay `git push`\nE\n)\"",
    "echo ${x:-git push} `echo git push`",
    "",
)


def is_denied(pattern, text):
    compiled = compile_command_pattern(pattern)
    return any(compiled.matches_any_reading(each) for each in parse_line(text).commands)


@pytest.mark.parametrize("text", PUSHES, ids=lambda text: text[:50])
def test_a_disguised_push_is_denied(text):
    assert is_denied("git push *", text)


@pytest.mark.parametrize("text", REMOVALS)
def test_a_disguised_removal_is_denied(text):
    assert is_denied("rm *", text)


@pytest.mark.parametrize("text", INNOCENT_OF_PUSH)
def test_what_only_looks_like_a_push_is_not_denied(text):
    assert not is_denied("git push *", text)


@pytest.mark.parametrize("text", ["ls rm", "echo rm x", "xargs grep rm", "grep -e rm f", "rmdir x"])
def test_what_only_looks_like_a_removal_is_not_denied(text):
    assert not is_denied("rm *", text)


def test_a_deny_of_a_path_holds_for_other_spellings_of_it():
    for text in (
        "./deploy.sh x",
        ".//deploy.sh",
        "bash ./deploy.sh x",
        ". ./deploy.sh",
    ):
        assert is_denied("./deploy.sh *", text), text
    assert not is_denied("./deploy.sh *", "scripts/deploy.sh")
    assert is_denied("deploy.sh *", "scripts/deploy.sh")


def test_a_module_run_by_python_is_read_as_the_program():
    assert is_denied("pip install *", "python3 -m pip install x")
    assert is_denied("pip install *", "/usr/bin/python3.11 -Im pip install x")


OPTIONS = ("", "-I ", "-bb ", "-X dev ", "-Xdev ", "-W error ", "-Werror ", "-Wc ", "-I -X dev ")


def is_allowed(rule, command):
    line = parse_line(command)
    pattern = compile_command_pattern(rule)
    doubts = line.problems or line.runtime_only or any(each.obstacles for each in line.commands)
    return not doubts and all(pattern.matches_exactly(each) for each in line.commands)


@pytest.mark.parametrize("options", [*OPTIONS, "--check-hash-based-pycs always "])
def test_what_a_module_loads_by_its_options_rides_on_no_rule(options):
    rule = f"python {options}-m pytest *"
    assert is_allowed(rule, f"python {options}-m pytest tests -q")
    assert not is_allowed(rule, f"python {options}-m pytest -p evil")
    assert not is_allowed(rule, f"python {options}-m pytest -c evil.ini")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_module_in_the_word_of_its_option_is_in_doubt(options):
    rule = f"python {options}-mpytest *"
    assert not is_allowed(rule, f"python {options}-mpytest -p evil")
    assert not is_allowed(rule, f"python {options}-mpytest tests")


@pytest.mark.parametrize("line", ["python x.py -m pytest -p y", "python -c 'x' -m pytest -p y"])
def test_behind_a_script_or_a_text_there_is_no_module(line):
    assert parse_line(line).commands[0].starts == (0,)
