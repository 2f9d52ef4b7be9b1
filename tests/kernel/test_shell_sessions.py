"""Sessions: what one command leaves to the next, what they share, and what nobody else gets."""

import pytest

from paddock.runtime.approvals import ApprovalRequest, CallbackApprover
from tests.support.shells import Terminal, Yard, a_terminal, hide, start

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

NARROW = """
[profiles.standard]
allow = ["tool:file:*", "tool:shell:run git status"]
otherwise = { "tool:shell:*" = "ask" }
"""


@pytest.fixture
def terminal(tmp_path):
    with a_terminal(tmp_path) as made:
        made.yard.write({"sub/deep/f": "f\n", "a": "a\n"})
        yield made


def one_after_the_other(terminal: Terminal, *lines: str) -> dict[str, object]:
    for line in lines[:-1]:
        terminal.run(line, session="s")
    return terminal.run(lines[-1], session="s")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("cd sub/deep", "cat f; basename $PWD", "f\ndeep\n"),
        ("cd /tmp", "pwd", "/tmp\n"),
        ("export A='it is' B=", 'echo "$A.${B-unset}."', "it is..\n"),
        ("A=only-here; true", 'echo "${A-unset}"', "unset\n"),
        ("unset LANG PATH_OF_NOBODY; export LC_ALL=C", 'echo "$LC_ALL ${LANG-unset}"', "C unset\n"),
        ('f() { echo "f of $1"; }', "f x", "f of x\n"),
        ("shopt -s expand_aliases; alias hi='echo hi'", "hi you", "hi you\n"),
        # Of the shell itself nothing is kept: its own variables are those of each shell.
        ("f() { :; }", 'echo "$BASH_EXECUTION_STRING"', 'echo "$BASH_EXECUTION_STRING"\n'),
        ("set -e", "false; echo on", ""),
        (
            "set -u -o pipefail; shopt -s nullglob",
            "shopt -q nullglob && set -o | grep -c 'on$'",
            None,
        ),
        ("set -x", "echo traced", "traced\n"),
        ("export X=$'two\\nlines \\'quoted\\''", 'echo "$X"', "two\nlines 'quoted'\n"),
        ("export X=$'caf\\xe9 \\e[1m'", "[[ $X == $'caf\\xe9 \\e[1m' ]] && echo same", "same\n"),
        ('cd() { builtin cd "$@" && echo moved; }; cd sub', "basename $PWD", "sub\n"),
        ("echo kept > /tmp/note", "cat /tmp/note", "kept\n"),
        ("(exit 3); f() { return 4; }", "f; echo $?", "4\n"),
        ("exit 7", "pwd | grep -c .", "1\n"),
    ],
)
def test_a_command_begins_where_the_one_before_ended(terminal: Terminal, before, after, said):
    found = one_after_the_other(terminal, before, after)

    assert found["stdout"] == said or said is None, found


def test_a_virtual_environment_stays_activated(terminal: Terminal):
    terminal.run("python3 -m venv --without-pip .venv", session="s")

    found = one_after_the_other(
        terminal, "source .venv/bin/activate", "command -v python; deactivate"
    )

    assert found["stdout"] == f"{terminal.yard.root}/.venv/bin/python\n"
    assert "/.venv/" not in terminal.run("command -v python3", session="s")["stdout"]


def test_another_session_and_no_session_have_nothing_of_it(terminal: Terminal):
    terminal.run("cd sub; export A=1; f() { :; }; touch /tmp/x", session="s")

    line = 'basename "$PWD"; echo "${A-unset}"; type f 2>&1 | tail -n 1 | grep -c "not found"; ls /tmp/x'
    for arguments in ({}, {"session": "other"}):
        found = terminal.run(line, **arguments)
        assert found["stdout"] == f"{terminal.yard.root.name}\nunset\n1\n", arguments


def test_a_session_that_is_reset_begins_anew(terminal: Terminal):
    terminal.run("cd sub; export A=1; touch /tmp/x", session="s")

    found = terminal.run('echo "${A-unset}"; ls /tmp | grep -cx x', session="s", reset=True)

    assert found["stdout"] == "unset\n0\n"


@pytest.mark.parametrize("end", ["kill -9 $$", "exec true", "trap : EXIT", "sleep 60"])
def test_a_shell_that_leaves_nothing_leaves_the_session_as_it_was(terminal: Terminal, end):
    terminal.run("export A=before", session="s")

    terminal.call("run_shell", command=f"export A=after; {end}", session="s", timeout=2)

    assert terminal.run('echo "$A"', session="s")["stdout"] == "before\n"


@pytest.mark.parametrize(
    "left",
    [
        "ln -s /etc/passwd /run/ended-in",
        "mkfifo /run/ended-in",
        "head -c 2000000 /dev/zero > /run/ended-in",
        "printf '/\\0A=1\\0\\0shopt -s x; rm -rf .\\0\\0' > /run/ended-in",
        "printf '/\\0A=1' > /run/ended-in",
    ],
)
def test_what_is_no_snapshot_is_none(terminal: Terminal, left):
    terminal.run("export A=before", session="s")

    terminal.run(f"trap - EXIT; {hide(left)}", session="s")

    assert terminal.run('echo "$A"', session="s")["stdout"] == "before\n"
    assert (terminal.yard.root / "a").exists()


@pytest.mark.parametrize(
    "left",
    [
        "export BIG=$(head -c 60000 /dev/zero | tr '\\0' b)",
        "eval \"f() { echo $'caf\\xe9'; }\"",
    ],
)
def test_what_no_line_could_be_judged_behind_is_not_kept_and_that_is_said(terminal, left):
    terminal.run("export A=before", session="s")

    result = terminal.call("run_shell", command=f"export A=after; {left}", session="s")

    assert "[the session is as it was before this command: " in result.content
    assert terminal.run('echo "$A"', session="s")["stdout"] == "before\n"


def test_what_a_session_keeps_may_be_long(terminal: Terminal):
    terminal.run("export BIG=$(head -c 40000 /dev/zero | tr '\\0' b)", session="s")

    assert terminal.run("echo ${#BIG}", session="s")["stdout"] == "40000\n"


def test_what_the_loader_or_a_shell_reads_at_its_start_is_not_kept(terminal: Terminal):
    terminal.run("export LD_PRELOAD=/tmp/x.so BASH_ENV=/tmp/env LD_LIBRARY_PATH=/tmp", session="s")

    found = terminal.run("env | grep -cE '^(LD_|BASH_ENV)'", session="s")

    assert found["stdout"] == "0\n"


def test_a_line_is_judged_behind_what_the_session_defines(tmp_path):
    """The neighbour: the same line where nothing is defined."""
    asked: list[str] = []

    def answer(request: ApprovalRequest) -> bool:
        asked.append(request.actions[0])
        return True

    with Yard(tmp_path, NARROW).make().opened(CallbackApprover(answer)) as terminal:
        terminal.run("git status", session="s")
        assert asked == []
        terminal.run("export PAGER=./evil", session="s")
        terminal.run("git status", session="s")
        terminal.run("git status", session="t")
        terminal.run("git status")

    assert asked == [
        "tool:shell:run export PAGER=./evil",
        "tool:shell:run export PAGER=./evil\ngit status",
    ]


def test_a_line_is_judged_again_where_its_session_changes_while_it_is_asked_about(tmp_path):
    """A client makes several calls at once, each alone: the quicker one must not fail the other."""
    asked: list[str] = []

    def answer(request: ApprovalRequest) -> bool:
        asked.append(request.actions[0])
        if len(asked) == 1:
            terminal.run("export PAGER=less", session="s")
        return True

    asking = '[profiles.standard]\notherwise = { "tool:shell:*" = "ask" }\n'
    with Yard(tmp_path, asking).make().opened(CallbackApprover(answer)) as terminal:
        said = terminal.run('echo "$PAGER"', session="s")

    assert asked == [
        'tool:shell:run echo "$PAGER"',
        "tool:shell:run export PAGER=less",
        'tool:shell:run export PAGER=less\necho "$PAGER"',
    ]
    assert (said["exit_code"], said["stdout"]) == (0, "less\n")


def test_a_line_that_is_denied_is_denied_behind_any_definition(tmp_path):
    policy = '[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:shell:run git push *"]\n'
    with a_terminal(tmp_path, policy) as terminal:
        terminal.run("f() { echo; }; cd /tmp", session="s")

        assert terminal.refuse("git push origin", session="s") == "policy.denied"
        assert terminal.refuse("git push origin") == "policy.denied"


def test_a_session_has_one_loopback_and_no_other_reaches_it(terminal: Terminal):
    server = start(terminal, "python3 -u -m http.server 8123", session="s").until("Serving")

    asked = "curl -s -m 5 localhost:8123/a; echo $?"
    assert terminal.run(asked, session="s")["stdout"] == "a\n0\n"
    assert terminal.run(asked, session="other")["stdout"] == "7\n"
    assert terminal.run(asked)["stdout"] == "7\n"
    server.stop()


def test_the_network_of_a_session_can_be_changed_by_none_of_its_commands(terminal: Terminal):
    found = terminal.run(
        "ip link set lo down; ip addr add 10.0.0.1/8 dev lo; unshare -r true; nsenter -t 1 -n true;"
        " grep -c . /proc/net/dev",
        session="s",
    )

    assert found["stdout"] == "3\n"
    found = terminal.run("grep Cap /proc/self/status | grep -vc 0000000000000000", session="s")
    assert found["stdout"] == "0\n"


def test_a_session_ends_by_name_with_all_that_runs_in_it(terminal: Terminal):
    process = start(terminal, "sleep 1000", session="s")

    assert terminal.call("shell_stop", session="s").refusal is None
    assert process.ended()["running"] is False
    assert terminal.call("shell_list").details["sessions"] == []
    assert terminal.call("shell_stop", session="s").refusal.code == "args.invalid"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"session": "a b"}, "session: 'a b' is not a valid name"),
        ({"session": "../x"}, "is not a valid name"),
        ({"reset": True}, "reset needs session"),
        ({"tty": True}, "tty needs background"),
        (
            {"background": True, "stdin": "x"},
            "a background command takes neither dry_run nor stdin",
        ),
        (
            {"background": True, "dry_run": True},
            "a background command takes neither dry_run nor stdin",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(terminal: Terminal, arguments, error):
    result = terminal.call("run_shell", command="true", **arguments)

    assert (result.refusal.code, error in result.refusal.error) == ("args.invalid", True), result


def test_seventeen_sessions_are_too_many_and_sixteen_are_not(terminal: Terminal):
    for number in range(16):
        terminal.run("true", session=f"s{number}")

    assert terminal.refuse("true", session="one-more") == "sandbox.unavailable"
    assert terminal.run("echo on", session="s3")["stdout"] == "on\n"


def test_two_commands_of_a_session_come_one_after_the_other(terminal: Terminal):
    process = start(terminal, "true", session="s")
    process.ended()

    terminal.run("for i in 1 2 3; do echo $i >> /tmp/n; done", session="s")

    assert terminal.run("cat /tmp/n", session="s")["stdout"] == "1\n2\n3\n"
