"""Commands that go on running: their output and input, their view, their changes, their end."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.shells import (
    Background,
    Terminal,
    Yard,
    a_terminal,
    hide,
    processes,
    refused,
    start,
    wait_until,
)

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

WATCHES = textwrap.dedent("""
    import os, time
    seen = None
    while True:
        try:
            now = open('page.html').read()
        except FileNotFoundError:
            now = 'gone\\n'
        if now != seen:
            print('page:', now, end='', flush=True)
            seen = now
        time.sleep(0.02)
""")
_BASH = "TERM=dumb PS1='now> ' bash --norc -i"
NARROW = """
[profiles.standard]
allow = ["tool:file:*", "tool:shell:*"]
deny = ["tool:file:* kept/**"]
"""


@pytest.fixture
def terminal(tmp_path):
    with a_terminal(tmp_path) as made:
        made.yard.write({"page.html": "first\n", "sub/a": "a\n", "watch.py": WATCHES})
        yield made


def read(terminal: Terminal, path: str) -> str | None:
    found = Path(terminal.yard.root) / path
    return found.read_text() if found.exists() else None


# Output, input, end


def test_what_a_command_prints_is_told_once_and_again_from_an_offset(terminal: Terminal):
    process = start(terminal, "echo one; echo two >&2; cat")

    process.until("one").until("two").type("three\n").until("three")
    again = terminal.call("shell_output", process=process.name, offset=0).details
    process.type("\x04")

    assert sorted(str(again["output"]).split()) == ["one", "three", "two"]
    assert process.ended() | {"output": "", "offset": 0} == {
        "process": process.name,
        "running": False,
        "output": "",
        "offset": 0,
        "missing_bytes": 0,
        "exit_code": 0,
    }


def test_more_output_than_is_kept_is_counted(terminal: Terminal):
    process = start(terminal, "head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    process.ended()

    first = terminal.call("shell_output", process=process.name, offset=0).details
    begin = int(str(first["offset"]))
    rest = terminal.call("shell_output", process=process.name, offset=begin).details

    text = str(first["output"]) + str(rest["output"])
    assert int(str(first["missing_bytes"])) + len(text) == rest["offset"] == 3_000_004
    assert text.endswith("xend\n")


def test_nobody_waits_longer_than_asked_for_or_for_one_that_has_ended(terminal: Terminal):
    process = start(terminal, "sleep 1000")
    assert process.look(1)["output"] == ""
    process.stop()

    assert process.look(600)["running"] is False


def test_input_for_one_that_has_ended_is_refused(terminal: Terminal):
    process = start(terminal, "true")
    process.ended()

    result = terminal.call("shell_input", process=process.name, text="x")

    assert result.refusal is not None
    assert result.refusal.code == "args.invalid"


def test_a_process_that_nobody_knows_is_refused_by_name(terminal: Terminal):
    for tool, more in (("shell_output", {}), ("shell_input", {"text": "x"}), ("shell_stop", {})):
        result = terminal.call(tool, process="SHP-00000000", **more)
        assert result.refusal.code == "args.invalid", tool
        assert "SHP-00000000" in result.refusal.error


def test_sixteen_run_at_once_and_a_seventeenth_does_not(terminal: Terminal):
    running = [start(terminal, "yes | head -c 20000000; sleep 1000") for _ in range(16)]

    assert terminal.refuse("true", background=True) == "sandbox.unavailable"
    running[0].stop()
    start(terminal, "true").ended()
    for each in running:
        each.stop()


def _memory_kb_of(lines: int, terminal: Terminal) -> int:
    """The most memory that this process has while sixteen commands print so many lines each."""
    Path("/proc/self/clear_refs").write_text("5")
    running = [start(terminal, f"yes | head -n {lines}; echo all") for _ in range(16)]
    for each in running:
        each.until("all").ended()
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])


def test_what_they_pour_out_does_not_pile_up_in_memory(terminal: Terminal):
    little = _memory_kb_of(3_000_000, terminal)

    much = _memory_kb_of(10_000_000, terminal)

    # They printed 220 MB more; each has its buffers, and what is freed is not given back at once.
    assert much - little < 80_000, (little, much)


def test_one_that_is_asked_to_end_may_do_so_by_itself(terminal: Terminal):
    line = "trap 'echo bye > farewell; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    process = start(terminal, line).until("ready")

    assert process.stop()["exit_code"] == 5
    assert read(terminal, "farewell") == "bye\n"


def test_one_that_does_not_listen_is_killed_and_what_it_wrote_lands(terminal: Terminal):
    line = "trap '' TERM; echo done > work; echo ready; while :; do sleep 0.01; done"
    process = start(terminal, line).until("ready")

    assert process.stop()["files_changed"] == ["work"]
    assert read(terminal, "work") == "done\n"


# Terminals


def test_a_terminal_has_its_size_and_is_not_the_hosts(terminal: Terminal):
    process = start(terminal, "stty size; tty; ps -o tty= -p $$", tty=True, columns=100, rows=30)
    process.ended()

    assert process.said.split() == ["30", "100", "/dev/pts/0", "pts/0"]


def test_a_terminal_is_of_a_kind_that_programs_know_whatever_the_hosts_is(tmp_path):
    host = {"TERM": "dumb", "COLUMNS": "200", "LINES": "60"}
    line = "env | grep -E '^(TERM|COLUMNS|LINES)=' | sort; stty size"
    with Yard(tmp_path, variables=host).make().opened() as terminal:
        process = start(terminal, line, tty=True)
        process.ended()
        without = terminal.run("env | grep -E '^(TERM|COLUMNS|LINES)=' | sort")

    assert process.said.split() == ["TERM=xterm-256color", "24", "80"]
    assert without["stdout"].split() == ["COLUMNS=200", "LINES=60", "TERM=dumb"]


def test_interrupt_reaches_what_runs_in_front(terminal: Terminal):
    process = start(terminal, _BASH, tty=True).until("now> ")

    process.type("sh -c 'echo u''p; exec sleep 1000'\n").until("\nup")
    process.type("\x03").until("^C").type("echo still-$((40+2))\n").until("still-42")
    process.type("exit\n")

    assert process.ended()["running"] is False


def test_a_repl_answers(terminal: Terminal):
    process = start(terminal, "python3 -q", tty=True).until(">>> ")

    process.type("6 * 7\n").until("42").type("\x04")

    assert process.ended()["exit_code"] == 0


def test_a_password_is_asked_for_and_not_shown(terminal: Terminal):
    line = "python3 -c 'import getpass; print(len(getpass.getpass()))'"
    process = start(terminal, line, tty=True).until("Password: ")

    process.type("secret\n").ended()

    assert "secret" not in process.said
    assert "6" in process.said


def test_hunks_are_chosen_by_answers(terminal: Terminal):
    terminal.run("git init -q . && git add page.html && echo more >> page.html")
    process = start(terminal, "git --no-pager add -p", tty=True).until("Stage this hunk")

    process.type("y\n").ended()

    assert terminal.run("git diff --cached --name-only")["stdout"] == "page.html\n"


@pytest.mark.needs("vim")
def test_a_full_screen_editor_edits(terminal: Terminal):
    process = start(terminal, "vim -u NONE page.html", tty=True).until("first")

    process.type("ccsecond\x1b").type(":wq\n").ended()

    assert read(terminal, "page.html") == "second\n"
    assert "\x1b" not in process.said


# Its view


def test_a_watcher_sees_what_a_tool_changes(terminal: Terminal):
    process = start(terminal, "python3 watch.py").until("page: first")

    terminal.call("str_replace", path="page.html", old_str="first", new_str="second")
    process.until("page: second")
    terminal.run("echo third > page.html")
    process.until("page: third")
    terminal.call("delete_file", path="page.html")
    process.until("page: gone")
    terminal.call("create_file", path="page.html", content="fourth\n")
    process.until("page: fourth")

    assert process.stop()["files_changed"] == []
    assert read(terminal, "page.html") == "fourth\n"


def test_a_watcher_of_the_kernels_hears_of_it(terminal: Terminal):
    pytest.importorskip("ctypes")
    line = textwrap.dedent("""
        python3 - <<'END'
        import ctypes, os
        libc = ctypes.CDLL(None)
        fd = libc.inotify_init()
        libc.inotify_add_watch(fd, b'.', 0x80 | 0x200)
        print('ready', flush=True)
        while True:
            for name in (b'page.html', b'made'):
                pass
            print(os.read(fd, 4096).replace(b'\\0', b' '), flush=True)
        END""")
    process = start(terminal, line).until("ready")

    terminal.call("str_replace", path="page.html", old_str="first", new_str="second")
    process.until("page.html")
    terminal.call("create_file", path="made", content="x")
    process.until("made")
    process.stop()


def test_directories_that_come_and_go_do_so_in_its_view(terminal: Terminal):
    process = start(terminal, "cat sub/a; echo ready; read _; ls -R; cat new/deep/f; ls sub")
    process.until("ready")

    terminal.run("mkdir -p new/deep; echo f > new/deep/f; chmod 750 new; rm -r sub")
    process.type("\n").ended()

    assert "new/deep:\nf\n" in process.said
    # A directory that is gone may be seen yet, with nothing in it.
    assert "./sub:\na" not in process.said
    assert not (terminal.yard.root / "sub").exists()
    assert (terminal.yard.root / "new").stat().st_mode & 0o777 == 0o750


def test_what_it_may_not_read_is_not_shown_to_it(tmp_path):
    with a_terminal(tmp_path) as terminal:
        process = start(terminal, "echo ready; read _; cat .env; ls -a").until("ready")

        (terminal.yard.root / ".env").write_text("token=1\n")
        # The next command's look at the workspace finds it.
        terminal.run("touch seen")
        process.type("\n").ended()

        assert "token=" not in process.said
        assert "seen" in process.said


def test_a_file_that_both_change_is_its_own_and_a_conflict(terminal: Terminal):
    process = start(terminal, "echo mine > page.html; echo ready; read _; cat page.html")
    process.until("ready")

    terminal.call("create_file", path="page.html", content="theirs\n")
    process.type("\n")
    ended = process.ended()
    told = process.stop()

    assert "mine" in process.said
    assert ended["own_changes"] == ["page.html"]
    assert "another process changed 'page.html' while" in str(told["conflict"])
    assert read(terminal, "page.html") == "theirs\n"


def test_a_file_that_it_was_shown_and_then_changes_lands(terminal: Terminal):
    process = start(terminal, "echo ready; read _; cat page.html; echo more >> page.html")
    process.until("ready")

    terminal.call("create_file", path="page.html", content="theirs\n")
    process.type("\n").ended()

    assert read(terminal, "page.html") == "theirs\nmore\n"


def test_one_that_changes_what_it_was_shown_before_somebody_else_does_again_conflicts(
    terminal: Terminal,
):
    process = start(terminal, "echo ready; read _; echo mine > page.html; echo did; read _")
    process.until("ready")
    terminal.call("create_file", path="page.html", content="theirs\n")
    process.type("\n").until("did")
    terminal.call("create_file", path="page.html", content="theirs again\n")
    process.type("\n").ended()

    assert "changed 'page.html'" in str(process.stop()["conflict"])
    assert read(terminal, "page.html") == "theirs again\n"


def test_more_changes_than_are_shown_are_told_as_unseen(terminal: Terminal):
    process = start(terminal, "echo ready; read _; ls many | wc -l").until("ready")

    terminal.run("mkdir few && touch few/{1..50}")
    assert "unseen_changes" not in process.look()
    terminal.run("mkdir many && touch many/{1..5001}")

    assert len(process.look()["unseen_changes"]) == 20
    assert "which does not see that" in terminal.call("shell_output", process=process.name).content
    process.stop()


def test_two_processes_that_change_one_file_conflict_and_the_first_lands(terminal: Terminal):
    one = start(terminal, "echo ready; read _; echo one > page.html").until("ready")
    two = start(terminal, "echo two > page.html; echo ready; read _").until("ready")

    one.type("\n").ended()
    two.type("\n").ended()

    assert read(terminal, "page.html") == "one\n"
    assert "page.html" in str(two.stop()["conflict"])


# Changes brought in while it runs


def test_changes_are_brought_in_while_it_runs_and_then_are_the_base(terminal: Terminal):
    process = start(
        terminal,
        "echo 1 > made; rm sub/a; echo ready; read _; echo 2 >> made; mkdir d; touch d/f;"
        " echo more; read _; echo 3 >> made",
    ).until("ready")

    assert sorted(process.sync()["files_changed"]) == ["made", "sub/a"]
    assert (read(terminal, "made"), read(terminal, "sub/a")) == ("1\n", None)
    assert process.sync()["files_changed"] == []
    process.type("\n").until("more")
    assert sorted(process.sync()["files_changed"]) == ["d", "d/f", "made"]
    process.type("\n").ended()
    assert read(terminal, "made") == "1\n2\n3\n"


def test_what_landed_and_somebody_else_changed_since_is_not_taken_back(terminal: Terminal):
    process = start(terminal, "echo 1 > made; echo ready; read _; touch other").until("ready")
    process.sync()

    terminal.call("create_file", path="made", content="theirs\n")
    process.type("\n").ended()

    assert (read(terminal, "made"), read(terminal, "other")) == ("theirs\n", "")


def test_what_policy_refuses_stays_out_at_every_time(tmp_path):
    with a_terminal(tmp_path, NARROW) as terminal:
        terminal.yard.write({"kept/f": "f\n"})
        line = f"echo x > open; {hide('echo x > kept/f')}; echo ready; read _; touch later"
        process = start(terminal, line).until("ready")

        synced = process.sync()
        assert synced["files_changed"] == ["open"]
        assert "kept/f" in refused(synced)
        process.type("\n").ended()

        assert "kept/f" in refused(process.stop())
        assert (read(terminal, "kept/f"), read(terminal, "later")) == ("f\n", "")


def test_a_process_stands_still_while_its_changes_are_taken(terminal: Terminal):
    """Each line that it writes is whole, and so are two files that belong together."""
    line = textwrap.dedent("""
        python3 - <<'END'
        import os
        n = 0
        print('ready', flush=True)
        while True:
            n += 1
            for name in ('one', 'two'):
                with open(name + '.new', 'w') as f:
                    f.write(f'{n} ' * 5000)
                os.rename(name + '.new', name)
        END""")
    process = start(terminal, line).until("ready")

    for _ in range(5):
        process.sync()
        for name in ("one", "two"):
            lines = (read(terminal, name) or "").split()
            assert len(set(lines)) <= 1, name
            assert len(lines) in (0, 5000)
    process.stop()


def test_a_job_that_the_command_stopped_itself_stays_stopped(terminal: Terminal):
    process = start(terminal, _BASH, tty=True).until("now> ")
    process.type("sh -c 'echo u''p; exec sleep 1000'\n").until("\nup")
    process.type("\x1a").until("Stopped")

    process.sync()
    process.type('echo ne""xt; jobs -l; echo do""ne\n').until("\ndone")

    assert "Stopped" in process.said.partition("\nnext")[2]
    process.stop()


# Records


def test_start_sync_and_end_are_on_record_and_can_be_undone(terminal: Terminal):
    yard = terminal.yard
    process = start(terminal, "echo 1 > made; echo ready; read _; echo 2 >> made").until("ready")
    process.sync()
    process.type("\n").ended()

    calls = {each["tool"]: each for each in yard.calls()}
    assert list(calls) == ["shell_sync", "shell_stop"]
    assert yard.cli("undo", calls["shell_stop"]["call"]).status == 0
    assert read(terminal, "made") == "1\n"


# From a program


def test_a_program_has_a_shell_that_lasts(terminal: Terminal):
    with terminal.runtime.shell() as shell:
        shell.run("cd sub; export A=1")
        assert shell.run('echo "$A"; ls').details["stdout"] == "1\na\n"
        process = shell.start("python3 -q -i", tty=True)
        process.write("print(6 * 7)\n")
        wait_until(lambda: "42" in str(process.read(offset=0, wait_s=1).details["output"]))
        process.write("open('made', 'w').write('x')\n")
        wait_until(lambda: process.sync().details["files_changed"] == ["sub/made"])
        assert process.stop().details["process"] == process.id

    with terminal.runtime.shell("named") as unused:
        assert unused.name == "named"


# Nothing outlives the runtime


CLINGS = (
    "setsid sh -c 'sleep 7331 & disown; trap \"\" TERM HUP INT; while :; do sleep 7331; done' &"
    " sh -c 'kill -STOP $$' & (sleep 7331 &) ; trap '' TERM HUP; echo ready; sleep 7331"
)


@pytest.mark.parametrize("tty", [False, True])
def test_nothing_goes_on_when_the_runtime_is_closed(tmp_path, tty):
    # Another worker's commands have another number.
    mark = f"74{os.getpid() % 10_000:04}"
    with a_terminal(tmp_path) as terminal:
        start(terminal, f"touch made; {CLINGS.replace('7331', mark)}", tty=tty).until("ready")
        assert mark in processes()

    assert mark not in processes()
    assert read(terminal, "made") == ""


RUNS = """
import sys
sys.path.insert(0, {tree!r})
from pathlib import Path
from tests.support.shells import Yard, start
with Yard(Path({base!r})).opened() as terminal:
    for tty in (False, True):
        start(terminal, {line!r}, tty=tty).until("ready")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("round_", range(int(os.environ.get("KILL_ROUNDS", "3"))))
def test_nothing_goes_on_when_the_runtime_is_killed(tmp_path, round_):
    Yard(tmp_path).make()
    mark = f"73{os.getpid() % 10_000:04}{round_:03}"
    tree = str(Path(__file__).parents[2])
    text = RUNS.format(tree=tree, base=str(tmp_path), line=CLINGS.replace("7331", mark))
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        assert mark in processes()
        program.send_signal(signal.SIGKILL)
        program.wait()

    wait_until(lambda: mark not in processes(), "something goes on")


def test_when_a_session_has_ended_what_it_ran_has_landed(terminal: Terminal):
    for name in ("one", "other"):
        line = f"echo {name} >{name}; echo ready; sleep 1000"
        start(terminal, line, session="s").until("ready")

    assert terminal.call("shell_stop", session="s").refusal is None

    assert (read(terminal, "one"), read(terminal, "other")) == ("one\n", "other\n")


@pytest.mark.parametrize(("given", "session"), [({}, "background"), ({"session": "s"}, "s")])
def test_the_answer_of_a_background_names_the_session_that_reaches_it(
    terminal: Terminal, given: dict[str, str], session: str
):
    result = terminal.call("run_shell", command="sleep 1000", background=True, **given)
    assert result.content == (
        f"{result.details['process']} runs in the background, in session {session}: give "
        f"session={session} to reach its ports; shell_output shows what it prints"
    )


def test_a_background_is_told_of_in_the_list(terminal: Terminal):
    process = start(terminal, "sleep 1000", session="s")

    listed = terminal.call("shell_list").details

    assert listed == {
        "sessions": ["s"],
        "processes": [
            {"process": process.name, "session": "s", "command": "sleep 1000", "running": True}
        ],
    }
    assert isinstance(process, Background)


def test_a_sandbox_that_somebody_killed_is_told_as_that_and_its_session_can_begin_anew(
    terminal: Terminal,
):
    process = start(terminal, "echo up; sleep 1000", session="s").until("up")
    ours = ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "pid=,args="]
    children = subprocess.run(ours, capture_output=True, text=True, check=True).stdout.splitlines()
    for child in children:
        if "inside/main.py" in child:
            os.kill(int(child.split()[0]), signal.SIGKILL)
    wait_until(lambda: not process.look(1)["running"])

    ended = terminal.call("shell_stop", process=process.name)
    goes_on = terminal.call("run_shell", command="echo on", session="s")
    anew = terminal.run("echo anew", session="s", reset=True)

    assert ended.refusal is not None
    assert (ended.refusal.code, ended.refusal.error) == (
        "sandbox.unavailable",
        "the sandbox failed: a sandbox ended without a report",
    )
    assert goes_on.refusal is not None
    assert "start the session again: reset" in goes_on.content
    assert anew["stdout"] == "anew\n"


def test_what_takes_the_place_of_a_directory_is_seen_or_told_and_no_change_of_the_process(
    terminal: Terminal,
):
    terminal.yard.write({"d/x": "x\n", "e": "e\n", "link/y": "y\n"})
    process = start(terminal, "find . -type f | xargs cat >/dev/null; echo up; cat").until("up")

    terminal.run("rm -r d; echo file > d; rm -r link; ln -s a link; rm e; mkdir e; echo in > e/in")
    terminal.run("rm -r e; ln -s sub/a e")
    terminal.call("create_file", path="own", content="theirs\n")
    unseen = set(process.look()["unseen_changes"])

    assert unseen <= {"d", "e", "link"}
    assert process.sync()["files_changed"] == []
    assert process.stop()["files_changed"] == []
    assert sorted(os.listdir(terminal.yard.root)) == sorted(
        ["d", "e", "link", "own", "paddock.toml", "page.html", "sub", "watch.py"]
    )
    assert (read(terminal, "d"), os.readlink(terminal.yard.root / "e")) == ("file\n", "sub/a")


def test_what_lands_beside_a_directory_that_another_kind_replaced_is_not_lost(terminal: Terminal):
    terminal.yard.write({"d/x": "x\n"})
    process = start(terminal, "cat d/x; read line; echo mine > mine").until("x")

    terminal.run("rm -r d; ln -s sub d")
    process.type("\n")

    process.ended()
    assert read(terminal, "mine") == "mine\n"


def test_a_directory_that_comes_again_is_seen_or_its_files_are_told(terminal: Terminal):
    process = start(terminal, "bash")
    terminal.run("mkdir -p out/sub")
    process.type("find out\n").until("out/sub")

    terminal.run("rm -r out")
    terminal.run("mkdir out; echo again > out/file")
    process.type("ls out; echo listed\n").until("listed")

    unseen = process.look().get("unseen_changes", [])
    assert ("file\n" in process.said) is ("out/file" not in unseen)
    process.stop()
    assert read(terminal, "out/file") == "again\n"


def test_text_that_nobody_reads_does_not_keep_a_command_from_being_stopped(terminal: Terminal):
    line = "trap '' TERM; head -c 1; while :; do sleep 0.1; done"
    process = start(terminal, line)
    running: list[Any] = []

    def give() -> None:
        terminal.call("shell_input", process=process.name, text="x" * 200_000)
        running.append(terminal.call("shell_list").details["processes"])

    thread = threading.Thread(target=give)
    thread.start()
    process.until("x").stop()
    thread.join()

    assert [each["running"] for each in running[0]] == [False]
