"""Whatever goes wrong, the call does not run: a denial in JSON, else status 2.

The installed command is started as a client starts it, without a shell, in a new process.
"""

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import limits
from paddock.apps.hook.lean import handler, start
from tests.support.hooks import LAUNCHER, Client
from tests.support.places import new_place
from tests.support.users import give_to_plain_user


@pytest.fixture
def client() -> Iterator[Client]:
    with new_place() as place:
        yield Client(place)


ALLOWED = {"file_path": "{root}/docs/a", "content": "x"}


def refused(done: subprocess.CompletedProcess[bytes]) -> str:
    """The reason of a refusal that every client honours."""
    if done.returncode == 2:
        line = done.stderr.decode().strip()
        assert line.count("\n") == 0
        return line
    assert done.returncode == 0, done
    # One whole object, and nothing before it: else it would be taken for plain text.
    assert done.stdout.startswith(b"{")
    fields = json.loads(done.stdout)["hookSpecificOutput"]
    assert fields["permissionDecision"] == "deny"
    return fields["permissionDecisionReason"]


def allowed(client: Client) -> bytes:
    return client.event("Write", tool_input=ALLOWED)


def test_without_a_fault_the_same_call_goes_its_usual_way(client: Client):
    first, second = client.start(allowed(client)), client.start(allowed(client))

    assert [(done.returncode, done.stdout, done.stderr) for done in (first, second)] == [
        (0, b"", b"")
    ] * 2
    assert len(client.entries()) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"tool_name": "Write"}',
        b'{"tool_name": "Write", "tool_input": []}',
        b'{"tool_name": "", "tool_input": {}}',
        b'{"tool_name": ["Write"], "tool_input": {}}',
        b'{"tool_name": "Write", "tool_input": {}}',
        b'{"tool_name": "Write", "tool_input": {"file_path": 7}}',
        b'{"tool_name": "Write", "tool_input": {"file_path": ""}}',
        b'{"tool_name": "Write", "tool_input": {"file_path": "a\\u0000b"}}',
        b'{"tool_name": "Write", "tool_input": {"file_path": "~root/x"}}',
        b'{"tool_name": "Bash", "tool_input": {"cmd": "ls"}}',
        b'{"tool_name": "apply_patch", "tool_input": {"command": "no patch"}}',
        b'{"tool_name": "Read", "tool_name": "Write", "tool_input": {"file_path": "a"}}',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a", "file_path": "b"}}',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a", "n": NaN}}',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a"}} x',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a"}, "hook_event_name": "Other"}',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a"}, "session_id": 7}',
        b'{"tool_name": "Read", "tool_input": {"file_path": "a"}, "cwd": "relative"}',
        b'{"tool_name": "Read", "tool_input": ' + b"[" * 100_000,
        b'{"tool_name": "Read", "tool_input": {"n": ' + b"9" * 10_000 + b"}}",
    ],
    ids=range(25),
)
def test_an_input_that_is_not_understood_is_refused(data, client: Client):
    assert refused(client.start(data)) != ""


def test_a_huge_input_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch):
    data = b'{"tool_name":"Write","tool_input":{"file_path":"a","content":"%s"}}' % (
        b"x" * 2_000_000
    )

    assert client.say(data).word == "none"
    monkeypatch.setattr(limits, "hook_input_bytes_max", 1_000_000)
    assert "more than 1000000 bytes" in client.say(data).reason


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "[paths]\nprotected = 7\n",
        "[hook]\nunknown = 1\n",
        "[profiles.standard]\nallow = ['tool:x:y']\n",
    ],
)
def test_a_broken_policy_refuses_every_call(policy, client: Client):
    client.start(allowed(client))
    client.write_policy(policy, trusted=False)

    assert "paddock.toml" in refused(client.start(allowed(client)))


def test_two_policies_refuse_every_call(client: Client):
    client.write_policy("[paths]\n")
    client.write_policy({})

    assert "two policies" in refused(client.start(allowed(client)))


def damaged_ledger(client: Client) -> None:
    lines = client.ledger.read_bytes().splitlines(keepends=True)
    client.ledger.write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b"docs", b"dogs"))


def missing_ledger(client: Client) -> None:
    client.ledger.unlink()


def ledger_is_a_directory(client: Client) -> None:
    ledger = client.ledger
    ledger.unlink()
    ledger.mkdir()


def no_lock(client: Client) -> None:
    lock = client.ledger.with_suffix(".d") / "lock"
    lock.unlink()
    lock.mkdir()


@pytest.mark.parametrize(
    "break_it", [damaged_ledger, missing_ledger, ledger_is_a_directory, no_lock]
)
def test_a_ledger_that_cannot_commit_refuses_every_call(break_it, client: Client):
    client.start(allowed(client))
    client.start(allowed(client))
    break_it(client)

    assert refused(client.start(allowed(client))) != ""


def test_a_full_disk_refuses_the_call_and_leaves_the_ledger_whole(client: Client):
    client.start(allowed(client))
    client.start(allowed(client))
    size = client.ledger.stat().st_size

    def no_more_space() -> None:
        # A write past the limit fails with EFBIG where the signal is ignored, as Python does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))

    done = client.start(allowed(client), preexec_fn=no_more_space)

    assert "ledger" in refused(done)
    assert client.ledger.stat().st_size == size
    assert client.start(allowed(client)).stdout == b""
    assert len(client.entries()) == 3


@pytest.mark.needs("root")
def test_a_plane_that_cannot_be_written_refuses_every_call(client: Client):
    client.start(allowed(client))
    give_to_plain_user(client.place.project)
    state = client.place.home / ".local"
    os.chmod(client.place.base, 0o755)
    for folder in (client.place.home, state):
        os.chmod(folder, 0o755)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c",
         "import os; os.makedirs(os.path.expanduser('~/x'))"],
        env=client.environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    plain = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command_line()],
        input=allowed(client), env=client.environment, cwd="/", capture_output=True, check=False,
    )  # fmt: skip

    # Either the interpreter cannot be reached by that user, or the hook says why not.
    assert plain.returncode != 0 or refused(plain)
    assert not (client.place.project / "docs").exists()


def command_line() -> list[str]:
    return [sys.executable, "-I", "-S", str(LAUNCHER)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM])
def test_a_signal_in_the_middle_is_a_refusal(number, client: Client):
    child = subprocess.Popen(
        command_line(), env=client.environment, cwd=client.root,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with child:
        # Half an input: it waits for the rest, and has set up its signals when it reads.
        child.stdin.write(b"{")
        child.stdin.flush()
        wait_until_it_reads(child.pid)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)

    done = subprocess.CompletedProcess([], child.returncode, out, err)
    assert "the decision was stopped" in refused(done)


def wait_until_it_reads(pid: int) -> None:
    """Return when the process sleeps in read(2) of its input."""
    while True:
        wchan = Path(f"/proc/{pid}/syscall")
        try:
            fields = wchan.read_text().split()
        except PermissionError:
            pytest.skip("needs to see another process's system call")
        if fields[:2] == ["0", "0x0"]:
            return


def test_a_killed_hook_says_nothing_and_fails(client: Client):
    child = subprocess.Popen(
        command_line(), env=client.environment, cwd=client.root,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with child:
        child.kill()
        out, _ = child.communicate()

    # The client refuses that by `onFailure`; half an answer there is never.
    assert (child.returncode, out) == (-signal.SIGKILL, b"")


def test_closed_streams_refuse(client: Client):
    for closed in ("<&-", ">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"):
        line = " ".join(f"'{word}'" for word in command_line())
        done = subprocess.run(
            ["sh", "-c", f"{line} {closed}"], input=allowed(client), env=client.environment,
            cwd=client.root, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2 or refused(done)


TYPED = (sys.executable, "-c", "from paddock.apps.cli.main import console; console()", "hook")
"""What a person who wires it by hand may name."""


@pytest.mark.parametrize("command", [command_line(), TYPED], ids=["installed", "typed"])
@pytest.mark.parametrize("out", [">/dev/full 2>/dev/full", ">/dev/full", ">&-", ">&- 2>&-"])
def test_a_refusal_that_nobody_can_be_told_is_status_two(out, command, client: Client):
    line = shlex.join(command)
    done = subprocess.run(
        ["sh", "-c", f"{line} {out}"], env=client.environment, cwd=client.root,
        input=client.event("Write", tool_input={"file_path": "/etc/x"}), check=False,
        capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count(b"\n") <= 1) == (2, b"", True)


@pytest.mark.parametrize("command", [command_line(), TYPED], ids=["installed", "typed"])
def test_a_reader_that_is_gone_ends_in_status_two(command, client: Client):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        command, input=client.event("Write", tool_input={"file_path": "/etc/x"}),
        env=client.environment, cwd=client.root, stdout=write_end, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write_end)

    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def copied_package(client: Client, directory: Path) -> Path:
    """The package in a place of its own, to be broken; its launcher."""
    package = directory / "paddock"
    shutil.copytree(LAUNCHER.parents[2], package, ignore=shutil.ignore_patterns("__pycache__"))
    del client
    return package / "apps" / "hook" / "launch.py"


@pytest.mark.parametrize(
    ("broken", "content"),
    [
        ("lean/start.py", "raise RuntimeError\n"),
        ("lean/start.py", "def main(:\n"),
        ("lean/handler.py", "import nothing_of_that_name\n"),
        ("lean/judge.py", ""),
        ("full.py", "raise SystemExit(0)\n"),
    ],
)
def test_a_broken_installation_refuses_and_names_the_repair(
    broken, content, client: Client, tmp_path: Path
):
    launcher = copied_package(client, tmp_path)
    (launcher.parent / broken).write_text(content)

    done = client.start(allowed(client), program=launcher)

    assert "paddock hook install" in refused(done)


def test_a_defect_before_anything_is_recorded_is_decided_by_the_full_path(
    client: Client, tmp_path: Path
):
    launcher = copied_package(client, tmp_path)
    handler = launcher.parent / "lean" / "handler.py"
    handler.write_text(handler.read_text().replace("start, today_here())", "start, nothing())", 1))
    client.start(allowed(client), program=launcher)

    done = client.start(
        client.event("Write", tool_input={"file_path": "{root}/.git/x"}), program=launcher
    )

    assert "Protected path" in refused(done)
    assert [entry.decision for entry in client.entries()] == ["allow", "deny"]


def stopped_package(client: Client, directory: Path) -> Path:
    """A package whose time is up in the middle of a decision; its launcher."""
    launcher = copied_package(client, directory)
    full = launcher.parent / "full.py"
    stopped = (
        "    import signal\n    signal.raise_signal(signal.SIGALRM)\n    context = open_context("
    )
    full.write_text(full.read_text().replace("    context = open_context(", stopped, 1))
    return launcher


def test_a_decision_that_takes_too_long_is_refused_and_on_record(client: Client, tmp_path: Path):
    done = client.start(allowed(client), program=stopped_package(client, tmp_path))

    assert "the decision was stopped" in refused(done)
    assert [(entry.decision, entry.reason) for entry in client.entries()] == [
        ("deny", "the decision was stopped")
    ]


def test_so_is_one_that_is_asked_for_on_the_command_line(client: Client, tmp_path: Path):
    stopped_package(client, tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from paddock.apps.cli.main import console\nconsole()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "hook"], input=allowed(client), env=client.environment,
        cwd=client.root, capture_output=True, check=False,
    )  # fmt: skip

    assert "the decision was stopped" in refused(done)
    assert [(entry.decision, entry.reason) for entry in client.entries()] == [
        ("deny", "the decision was stopped")
    ]


def test_the_lean_path_knows_the_same_limits():
    assert (
        limits.hook_input_bytes_max,
        limits.hook_input_bytes_max,
        limits.hook_answer_timeout_s,
    ) == (
        start.INPUT_BYTES_MAX,
        handler.INPUT_BYTES_MAX,
        start.ANSWER_TIMEOUT_S,
    )


def test_the_lean_path_imports_nothing_that_costs(client: Client):
    client.start(allowed(client))
    program = (
        "import sys; sys.argv = ['x']; sys.path.insert(0, sys.argv.pop()); import posix\n"
        f"sys.path.insert(0, {str(LAUNCHER.parent / 'lean')!r})\n"
        "status = __import__('start').main()\n"
        "costly = {'re', 'json', 'typing', 'os', 'dataclasses', 'pathlib', 'enum', 'functools'}\n"
        "posix.write(2, ' '.join(sorted(costly & set(sys.modules))).encode())\n"
        "posix._exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], input=allowed(client),
        env=client.environment, cwd=client.root, capture_output=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
