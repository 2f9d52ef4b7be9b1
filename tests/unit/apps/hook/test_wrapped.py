"""A wrapped command, started as the client's shell starts it: output, status, signals, directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support import forked
from tests.support.hooks import Client
from tests.support.places import new_place

EXEC = Path(__file__).parents[4] / "src" / "paddock" / "apps" / "hook" / "exec.py"
REAL = (sys.executable, "-I", str(EXEC))
STANDARD = """
[profiles.standard]
allow = ["tool:file:*", "tool:shell:*"]
"""

pytestmark = pytest.mark.needs("stage")


class Shell(Struct, dict=True):
    """A client's shell in front of a project that has an agent."""

    client: Client
    is_forked: bool = True

    @property
    def project(self) -> Path:
        return self.client.place.project

    def arguments(self, command: str, *options: str, agent: str = "main") -> list[str]:
        named = ["--plane", str(self.project), "--agent", agent, *options, "--", command]
        start = forked.command(forked.WRAPPED) if self.is_forked else [*REAL]
        return [*start, *named]

    @property
    def environment(self) -> dict[str, str]:
        base = {"HOME": str(self.client.place.home), "PATH": "/usr/bin:/bin"}
        return {**base, **self.client.variables}

    def run(
        self, command: str, *options: str, agent: str = "main"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(command, *options, agent=agent),
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def started(self, command: str, *options: str) -> Generator[subprocess.Popen[str], None, None]:
        """A wrapper whose command has said that it is ready."""
        with subprocess.Popen(
            self.arguments(f"echo ready; {command}", *options),
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stdout is not None
            # Only of a stream that comes through while the command runs.
            assert running.stdout.readline() == "ready\n"
            yield running


@contextmanager
def opened_shell() -> Generator[Shell]:
    with new_place() as place:
        client = Client(place)
        client.write_policy(STANDARD)
        assert place.run("call", "view", '{"path": "README.md"}').status == 0
        yield Shell(client)


@pytest.fixture
def shell() -> Generator[Shell]:
    with opened_shell() as made:
        yield made


def test_output_and_status_are_the_commands_own(shell: Shell):
    shell.is_forked = False
    ran = shell.run("printf 'out\\033[1m'; printf err >&2; echo x > made; exit 3")

    assert (ran.stdout, ran.stderr, ran.returncode) == ("out\x1b[1m", "err", 3)
    assert (shell.project / "made").read_text() == "x\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_nothing_of_it_lands(number: signal.Signals, shell: Shell):
    with shell.started("echo x > made; sleep 1000 & sleep 1000") as running:
        running.send_signal(number)
        _, said = running.communicate()

    assert running.returncode == 128 + number
    ended = f"the command was stopped by {number.name}; its changes were discarded"
    assert said == f"paddock: {ended}\n"
    assert not (shell.project / "made").exists()


def test_a_killed_wrapper_leaves_no_process_and_no_change(shell: Shell):
    with shell.started("echo x > made; exec sleep 1000") as running:
        running.kill()
        out, _ = running.communicate()

    assert (out, running.returncode) == ("", -signal.SIGKILL)
    assert not (shell.project / "made").exists()


def test_the_command_ends_with_the_clients_shell(shell: Shell):
    with (
        subprocess.Popen(["/bin/sleep", "1000"]) as parent,
        shell.started("echo x > made; sleep 1000", f"--shell={parent.pid}") as running,
    ):
        parent.kill()
        parent.wait()
        running.communicate()

    assert running.returncode == 128 + signal.SIGHUP
    assert not (shell.project / "made").exists()


def test_the_clients_time_limit_ends_the_command_and_nothing_of_it_lands(shell: Shell):
    ran = shell.run("echo x > made; sleep 1000", "--limit-ms=3000")

    said = (
        "the command was stopped after 1.5 s, the client's time limit; its changes were discarded"
    )
    assert ran.stderr == f"paddock: {said}; run it again with a longer timeout\n"
    assert ran.returncode == 124
    assert not (shell.project / "made").exists()


def test_where_a_call_names_none_claude_codes_own_limit_counts(shell: Shell):
    shell.client.variables |= {"CLAUDECODE": "1", "BASH_DEFAULT_TIMEOUT_MS": "2000"}

    assert shell.run("sleep 1000").returncode == 124
    assert shell.run("echo x > made", "--limit-ms=600000").returncode == 0
    assert (shell.project / "made").read_text() == "x\n"


def test_a_reader_that_goes_away_ends_the_command(shell: Shell):
    with shell.started("yes") as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait() == 128 + signal.SIGPIPE


def told(shell: Shell, command: str, *options: str) -> str:
    """Where the client's shell is told to go."""
    reading, writing = os.pipe()
    line = 'exec 3>&"$1"; shift; exec "$@"'
    with os.fdopen(reading) as heard:
        subprocess.run(
            ["/bin/bash", "-c", line, "shell", str(writing), *shell.arguments(command, *options)],
            cwd=shell.project,
            env=shell.environment,
            pass_fds=(writing,),
            capture_output=True,
            check=False,
        )
        os.close(writing)
        return heard.read()


def test_the_shell_hears_where_the_command_ended(shell: Shell):
    (shell.project / "it's a place").mkdir()
    assert told(shell, "cd src") == f"{shell.project}/src/."
    assert told(shell, "mkdir new; cd new; false") == f"{shell.project}/new/."
    assert told(shell, 'cd "it\'s a place"; exit 3') == f"{shell.project}/it's a place/."
    assert told(shell, "cd ..", "--directory=src") == f"{shell.project}/."


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "(cd src)",
        "cd /tmp",
        "cd src; exec true",
        "trap - EXIT; echo /etc > /run/ended-in",
        "trap - EXIT; echo ../outside > /run/ended-in",
        "trap - EXIT; ln -s /etc/hostname /run/ended-in",
        "trap - EXIT; head -c 9999 /dev/zero > /run/ended-in",
        # A link of the workspace that leads out of it, and what was refused.
        'trap - EXIT; pwd > /run/ended-in; printf %s/out "$PWD" > /run/ended-in',
        "mkdir .git/x; cd .git/x",
    ],
)
def test_the_shell_stays_where_it_is(command: str, shell: Shell):
    assert told(shell, command) == ""


def test_the_environment_is_the_clients_shells_as_far_as_it_is_vetted(shell: Shell):
    venv = shell.project / ".venv" / "bin"
    venv.mkdir(parents=True)
    shell.client.variables = {
        "PATH": f"{venv}:/usr/bin:/bin:/nowhere",
        "VIRTUAL_ENV": str(venv.parent),
        "JAVA_HOME": "/usr/lib",
        "CONDA_PREFIX": str(shell.client.place.outside),
        "TZ": "Asia/Tokyo",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "CI": "true",
        "TOKEN": "secret",
        "LD_PRELOAD": "/x",
        "BASH_FUNC_ls%%": "() { echo function; }",
        "PYTEST_ADDOPTS": "-q",
    }
    shell.client.write_policy('[shell]\nenv = ["PYTEST_*"]\n' + STANDARD)
    ran = shell.run("env | sort; type -t ls")

    seen = dict(row.split("=", 1) for row in ran.stdout.splitlines() if "=" in row)
    wanted = ("CI", "CONDA_PREFIX", "JAVA_HOME", "LANG", "TERM", "TOKEN", "TZ", "VIRTUAL_ENV",
              "PYTEST_ADDOPTS")  # fmt: skip
    assert {name: seen.get(name) for name in wanted} == {
        "CI": "true",
        "CONDA_PREFIX": None,
        "JAVA_HOME": "/usr/lib",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "TOKEN": None,
        "TZ": "Asia/Tokyo",
        "VIRTUAL_ENV": str(venv.parent),
        "PYTEST_ADDOPTS": "-q",
    }
    # What a command can change comes last.
    assert seen["PATH"].split(":") == ["/usr/bin", "/bin", str(venv)]
    assert "LD_PRELOAD" not in seen
    assert ran.stdout.splitlines()[-1] == "file"


def test_what_the_policy_refuses_of_a_change_is_said_and_is_no_success(shell: Shell):
    """Threat: a model, or `&&` in the client's shell, takes status 0 for done."""
    ran = shell.run("touch .env.local; echo yes > a")

    assert (ran.returncode, ran.stdout) == (123, "")
    assert ran.stderr.startswith("paddock: not changed: .env.local: ")
    assert (shell.project / "a").read_text() == "yes\n"
    assert not (shell.project / ".env.local").exists()
    failed = shell.run("touch .env.local; exit 4")
    assert failed.returncode == 4
    assert failed.stderr.startswith("paddock: policy refused the change of .env.local")
    assert failed.stderr.count("\n") == 3


def test_a_command_whose_changes_land_is_a_success(shell: Shell):
    ran = shell.run("echo yes > a && mkdir d")

    assert (ran.returncode, ran.stderr) == (0, "")


def test_so_is_one_of_git_whatever_of_a_repository_git_does_without(shell: Shell):
    shell.client.variables["PATH"] = os.environ["PATH"]
    identity = "[user]\n\tname = U\n\temail = u@example.org\n"
    (shell.client.place.home / ".gitconfig").write_text(identity)
    made = shell.run("git init -q new && cd new && git commit -q --allow-empty -m first")

    assert made.stderr.startswith("paddock: not changed: new/.git/")
    assert made.returncode == 0, made.stderr
    configured = shell.run("cd new && git config user.name other")
    assert configured.returncode == 123, configured.stderr


def test_what_a_command_left_running_is_said_to_have_ended(shell: Shell):
    ran = shell.run("sleep 1000 & echo up")

    ended = "paddock: 1 background processes were ended with the command\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "up\n", ended)


def test_what_is_thrown_away_of_a_command_is_said_and_none_of_it_is_there(shell: Shell):
    shell.client.write_policy(STANDARD + '[profiles.standard.shell]\ncommit = "none"\n')
    ran = shell.run("echo yes > a; cat a; exit 2")

    assert (ran.returncode, ran.stdout) == (2, "yes\n")
    assert ran.stderr == 'paddock: 1 change was discarded ([shell] commit = "none")\n'
    assert not (shell.project / "a").exists()
    assert shell.run("cat README.md").stderr == ""


def test_where_changes_wait_it_is_said_which_command_tells_why(shell: Shell):
    shell.client.write_policy("[shell]\nconfine_max = { deleted = 1 }\n")
    assert shell.run("touch a b c").returncode == 0
    ran = shell.run("rm a b c")

    waits, _, command = ran.stderr.strip().rpartition("Why, and what they are: paddock ")
    assert waits.startswith("paddock: its changes wait for a person; nothing was changed.")
    assert (ran.returncode, (shell.project / "a").exists()) == (125, True)
    shown = shell.client.place.run(*command.split())
    assert "confine_max" in shown.out, shown
    assert shell.run("rm a").returncode == 0


def test_what_the_policy_denies_or_asks_about_does_not_run(shell: Shell):
    rules = 'deny = ["tool:shell:run git push *"]\nask = ["tool:shell:run touch *"]\n'
    shell.client.write_policy(STANDARD + rules)
    for command in ("git push", "touch made"):
        ran = shell.run(command)
        assert ran.returncode == 126
        assert ran.stderr != ""
    assert not (shell.project / "made").exists()


def test_a_kind_of_agent_is_held_to_its_own_profile(shell: Shell):
    shell.client.write_policy(STANDARD + '[agents."Explore"]\nprofile = "locked"\n')

    assert shell.run("true").returncode == 0
    assert shell.run("true", "--kind=other").returncode == 0
    assert shell.run("true", "--kind=Explore").returncode == 126


def test_a_wrapper_started_by_a_command_gains_nothing(shell: Shell):
    # A fork would have to be asked for by a socket, and that is out of a command's reach.
    shell.is_forked = False
    inner = " ".join(f"'{each}'" for each in shell.arguments("echo x > made"))
    ran = shell.run(f"{inner}; echo ended")

    assert ran.stdout == "ended\n"
    assert not (shell.project / "made").exists()
