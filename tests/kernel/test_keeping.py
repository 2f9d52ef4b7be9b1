"""Commands under Landlock from a runtime's side: their output, their end, their limits."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import SandboxUnavailableError
from paddock.policy.engine import load_policy
from paddock.sandbox.canary import find_system_paths, try_landlock
from paddock.sandbox.conversation import Observed
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.landlock import enforced_by_landlock, run_in_place
from paddock.sandbox.plan import ReadJudge, WriteJudge
from paddock.sandbox.values import CommandEnd, CommandRequest, Ending, Enforcement, GitConfig
from paddock.values.calls import NEVER
from tests.support.landlocked import CHAIN, plan_for
from tests.support.sandboxes import usual
from tests.support.shells import wait_until
from tests.support.users import give_to_plain_user, plain_ids

pytestmark = pytest.mark.needs("landlock")


class Shell:
    """A workspace in which lines are run."""

    def __init__(self, root: Path) -> None:
        self.workspace = root
        policy = load_policy(None)
        self.read, self.write = ReadJudge(policy, CHAIN), WriteJudge(policy, CHAIN)
        who = (("user.name", 'A "quoted" name'), ("user.email", "a@example.com"))
        self.git_config = GitConfig(who)

    def run(
        self,
        *argv: str,
        timeout_s: float = 20.0,
        cwd: str = ".",
        cancel=NEVER,
        stdin: bytes = b"",
        on_output=None,
        **limits,
    ) -> CommandEnd:
        plan = replace(
            plan_for(self.workspace),
            environment=(("PATH", "/usr/bin:/bin"), ("LANG", "C")),
            git_config=self.git_config,
            limits=usual(**limits),
        )
        fd = os.open(self.workspace, os.O_PATH | os.O_DIRECTORY)
        try:
            env = (("CI", "1"),) if stdin else ()
            request = CommandRequest(plan, argv, cwd, timeout_s, 4096, stdin, env)
            observed = Observed(cancel=cancel, on_output=on_output)
            read, write = NameIndex(self.read), NameIndex(self.write)
            return run_in_place(request, fd, (read, write), observed)
        finally:
            os.close(fd)

    def line(self, text: str, **more) -> CommandEnd:
        return self.run("/bin/sh", "-c", text, **more)


@pytest.fixture
def shell(tmp_path):
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / ".env").write_text("SECRET\n")
    give_to_plain_user(workspace)
    return Shell(workspace)


def test_output_exit_code_and_changes_come_through(shell):
    end = shell.line("echo out; echo err >&2; echo x > src/made; cat .env; exit 7")
    assert (end.ending, end.exit_code, end.survivors) == (Ending.EXITED, 7, 0)
    assert end.stdout.head == b"out\n"
    assert b"err\n" in end.stderr.head
    assert b"SECRET" not in end.stdout.head + end.stderr.head
    assert (shell.workspace / "src/made").read_text() == "x\n"
    enforced = enforced_by_landlock(plan_for(shell.workspace))
    assert (enforced.backend, enforced.enforcement) == ("landlock", Enforcement.PARTIAL)
    assert enforced.gaps


def test_the_environment_is_the_plans_with_a_private_home_that_goes_away(shell):
    kept = shell.line("env; echo x > $TMPDIR/f && echo y > ~/f && git config -l --global || true")
    rows = dict(row.split("=", 1) for row in kept.stdout.head.decode().splitlines() if "=" in row)
    assert set(rows) >= {"HOME", "LANG", "PATH", "PWD", "TMPDIR"}
    known = {"HOME", "LANG", "PATH", "PWD", "TMPDIR", "user.name", "user.email"}
    assert set(rows) <= {*known, "GIT_CONFIG_NOSYSTEM", "safe.barerepository", "safe.directory"}
    assert rows.get("user.name", 'A "quoted" name') == 'A "quoted" name'
    assert not os.path.exists(os.path.dirname(rows["HOME"]))


@pytest.mark.needs("git")
def test_git_runs_though_the_hosts_own_configuration_is_closed(shell):
    (shell.workspace / "new").write_text("x\n")
    subprocess.run(["git", "init", "-q"], cwd=shell.workspace, check=True)
    give_to_plain_user(shell.workspace)
    end = shell.line("git status --short new")
    assert (end.exit_code, end.stdout.head, end.stderr.head) == (0, b"?? new\n", b"")
    if Path("/etc/gitconfig").exists():
        # The host's file is what would have kept it from that.
        refused = shell.line("env -u GIT_CONFIG_NOSYSTEM git status --short new")
        assert (refused.exit_code, refused.stdout.head) == (128, b"")
        assert b"/etc/gitconfig" in refused.stderr.head


def test_a_command_opens_its_outputs_by_their_names(shell):
    kept = shell.line("echo 1 > /dev/stdout; echo 2 > /dev/stderr; echo 3 | tee /dev/stderr >&2")
    assert (kept.stdout.head, kept.stderr.head) == (b"1\n", b"2\n3\n3\n")


def test_a_command_that_takes_too_long_ends_with_all_its_children(shell):
    kept = shell.line("setsid sleep 1000 & (sleep 1000 &) ; echo on; sleep 1000", timeout_s=3)
    assert (kept.ending, kept.exit_code) == (Ending.TIMED_OUT, -1)
    assert kept.stdout.head == b"on\n"
    assert kept.survivors >= 2


def test_a_background_child_that_holds_the_output_holds_no_call(shell):
    kept = shell.line("sleep 1000 & echo done")
    assert (kept.ending, kept.exit_code) == (Ending.EXITED, 0)
    assert (kept.stdout.head, kept.survivors) == (b"done\n", 1)


LEFT_ALONE = """
import os, sys
from pathlib import Path
from tests.kernel.test_keeping import Shell
Shell(Path(sys.argv[1])).line("echo > src/on; sleep 1000", timeout_s=1000.0)
"""


def test_what_a_killed_process_leaves_is_swept_before_the_next_command(
    shell, tmp_path, monkeypatch
):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    (temporary / "paddock-command-of-somebody").mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", LEFT_ALONE, shell.workspace],
        env=environment,
        cwd=Path(__file__).parents[2],
    ) as process:
        wait_until((shell.workspace / "src/on").exists)
        process.kill()
    assert len(os.listdir(temporary)) == 2

    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert shell.line("test -d $TMPDIR").exit_code == 0
    assert os.listdir(temporary) == ["paddock-command-of-somebody"]


CHAIN_OF_FORKS = """
import fcntl, os, sys
lock = os.open("src/lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_SH)
os.close(os.open("src/on" + sys.argv[2], os.O_WRONLY | os.O_CREAT))
for number in range(20_000):
    try:
        if os.fork():
            os._exit(0)
    except BlockingIOError:
        continue
    if sys.argv[1] == "away":
        os.setsid()
"""


@pytest.mark.parametrize("how", ["together", "away"])
def test_processes_that_fork_on_and_on_end_with_the_command(shell, how):
    (shell.workspace / "chain.py").write_text(CHAIN_OF_FORKS)
    start = f"for n in 1 2 3; do python3 -S chain.py {how} $n & done"
    line = f"{start}; until [ -e src/on1 -a -e src/on2 -a -e src/on3 ]; do :; done; exit 3"
    kept = shell.line(line, processes=1000)
    assert (kept.ending, kept.exit_code) == (Ending.EXITED, 3)
    with open(shell.workspace / "src/lock", "rb") as lock:
        # It is all of theirs, and goes with the last of them.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_orphans_that_have_ended_take_no_room_from_a_command(shell):
    kept = shell.line("for n in $(seq 400); do (/bin/true &); done; exit 3", processes=256)
    assert (kept.exit_code, kept.stderr.head) == (3, b"")


class Wish:
    """A wish to stop that was uttered already."""

    def on_cancel(self, callback):
        callback()
        return lambda: None


def test_a_cancelled_command_ends(shell):
    assert shell.line("sleep 1000", cancel=Wish()).ending is Ending.CANCELLED


def test_memory_over_the_whole_tree_is_limited(shell):
    line = "for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(40 << 20); time.sleep(60)' & done; wait"
    assert shell.line(line, memory_mb=100).ending is Ending.MEMORY
    kept = shell.line("python3 -c 'x = bytearray(40 << 20)'", memory_mb=100)
    assert (kept.ending, kept.exit_code) == (Ending.EXITED, 0)


def test_processes_file_size_and_time_are_limited(shell):
    forks = "import os, time\nfor n in range(60):\n  os.fork() or time.sleep(20)"
    assert (
        b"Resource temporarily unavailable"
        in shell.run("python3", "-c", forks, processes=8).stderr.head
    )
    assert shell.line("head -c 3000000 /dev/zero > src/big", file_mb=1).exit_code == 153
    assert (shell.workspace / "src/big").stat().st_size == 1 << 20
    assert shell.line("while :; do :; done", cpu_s=1).exit_code in {137, 152}


def test_input_variables_and_output_as_it_comes_are_as_in_a_sandbox(shell):
    heard: list[tuple[str, bytes]] = []
    line = "wc -c; echo $CI >&2; echo more >> /proc/self/fd/0"
    end = shell.line(line, stdin=b"x" * 3_000_000, on_output=lambda *said: heard.append(said))

    assert (end.stdout.head, end.stderr.head[:2]) == (b"3000000\n", b"1\n")
    assert end.exit_code != 0
    assert b"".join(chunk for name, chunk in heard if name == "stdout") == b"3000000\n"
    assert shell.line("cat").stdout.head == b""


def test_without_a_limit_of_processor_time_none_is_set(shell):
    assert shell.line("ulimit -t; ulimit -Ht").stdout.head == b"unlimited\nunlimited\n"
    assert shell.line("ulimit -t; ulimit -Ht", cpu_s=7).stdout.head == b"7\n8\n"


def test_a_program_that_cannot_be_started_is_said(shell):
    kept = shell.run("no-such-program")
    assert (kept.ending, kept.exit_code) == (Ending.FAILED, 127)
    assert "no-such-program" in kept.reason
    (shell.workspace / "src/text").write_text("x")
    assert shell.run("./src/text").exit_code == 126


def test_only_three_descriptors_reach_the_command(shell):
    kept = shell.line("ls /proc/self/fd")
    # ls has one of its own, for the directory.
    assert kept.stdout.head.split() == [b"0", b"1", b"2", b"3"]
    assert shell.line('read -r line; echo "got ${line:-nothing}"').stdout.head == b"got nothing\n"


@pytest.mark.needs("root")
def test_started_by_root_a_command_is_the_workspaces_owner_or_does_not_run(shell, tmp_path):
    assert shell.line("id -u; id -g").stdout.head.split() == [b"%d" % each for each in plain_ids()]
    (tmp_path / "roots").mkdir()
    with pytest.raises(SandboxUnavailableError, match="belongs to root"):
        Shell(tmp_path / "roots").line("touch made")
    assert os.listdir(tmp_path / "roots") == []


def test_nobody_learns_of_a_command_by_its_keepers_descriptors(shell):
    assert shell.line("ls /proc/$PPID/fd; cat /proc/$PPID/environ").exit_code != 0


def test_the_canary_finds_that_it_works():
    verdict = try_landlock(find_system_paths())
    assert (verdict.backend, verdict.enforcement, verdict.cause) == (
        "landlock",
        Enforcement.PARTIAL,
        "",
    )


def test_a_keeper_loads_nothing_slow():
    program = (
        Path(sys.modules["paddock.sandbox.landlock"].__file__).with_name("inside") / "supervisor.py"
    )
    # Without arguments it ends as soon as everything is loaded.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", program],
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if "|" in row}
    assert "paddock.sandbox.inside.init" in loaded
    assert not loaded & {"typing", "dataclasses", "enum", "socket", "json", "signal", "subprocess"}
