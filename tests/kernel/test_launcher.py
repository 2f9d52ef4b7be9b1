"""The launcher's own life: one for each process, gone with it, and nothing outlives it."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paddock.errors import HostError
from paddock.kernel import mounts, syscalls
from paddock.sandbox.backends import examine_host
from paddock.sandbox.canary import SystemPaths, gaps_over, try_stage, try_workspace
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.staging_area import StagingArea
from paddock.sandbox.values import BackendVerdict, ConfinementError, Ending, Enforcement
from tests.support.disks import mounted_tmpfs
from tests.support.repository import ROOT
from tests.support.sandboxes import PYTHON, Room, a_room, said, system_places

pytestmark = pytest.mark.needs("stage")


@pytest.fixture
def room(tmp_path: Path):
    with a_room(tmp_path) as made:
        yield made


def launcher_of(room: Room) -> int:
    return room.launcher._running._process.pid


def wait_until_gone(pid: int) -> None:
    """Until the process has ended; it may not be our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    assert waiting.poll(30_000), "still there"
    os.close(fd)


def test_a_launcher_starts_once_and_serves_many_commands(room: Room):
    room.shell("true")
    first = launcher_of(room)
    for _ in range(5):
        room.shell("true")

    assert launcher_of(room) == first


def test_a_launcher_loads_little(room: Room):
    room.shell("true")
    maps = Path(f"/proc/{launcher_of(room)}/maps").read_text()
    code = (
        "import sys; sys.argv = ['x']; exec(open(sys.orig_argv[-1]).read().split('if __name__')[0],"
        " {'__file__': sys.orig_argv[-1], '__name__': 'x'}); print(*sorted(sys.modules))"
    )
    program = ROOT / "src/paddock/sandbox/inside/main.py"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(program)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert "python" in maps
    assert {"typing", "dataclasses", "enum", "re", "socket", "json", "signal"} & set(
        loaded
    ) == set()
    assert [
        name
        for name in loaded
        if name.startswith("paddock.") and ".inside" not in name and ".kernel" not in name
    ] == ["paddock.sandbox"]


def test_a_killed_launcher_takes_every_command_with_it_and_the_next_is_new(room: Room):
    meeting = room.home / "meeting"
    meeting.mkdir()
    room.writable = (str(meeting),)
    room.shell("true")
    first = launcher_of(room)
    failed = []

    def run() -> None:
        try:
            room.shell(f"echo $$ > {meeting}/begun; setsid sleep 96.1 & sleep 96.1")
        except HostError as error:
            failed.append(error.message)

    running = threading.Thread(target=run)
    running.start()
    while len(marked("sleep\x0096.1")) < 2:
        continue
    os.kill(first, signal.SIGKILL)
    running.join()

    assert failed == ["a sandbox ended without a report"]
    assert marked("sleep\x0096.1") == []
    assert said(room.shell("echo again")) == "again\n"
    assert launcher_of(room) != first


def marked(text: str) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and text.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


RUNTIME = """
import os, sys, threading
from pathlib import Path
from tests.support.sandboxes import a_room
with a_room(Path(sys.argv[1])) as room:
    room.writable = (sys.argv[2],)
    if sys.argv[3] == "forked":
        room.shell("true")
        pid = os.fork()
        if pid == 0:
            os.setsid(); os.closerange(0, 3)
            import time; time.sleep(60); os._exit(0)
    threading.Thread(target=room.shell, args=(f"sleep 95.7 & echo > {sys.argv[2]}/begun; sleep 95.7",), daemon=True).start()
    while not Path(sys.argv[2], "begun").exists(): continue
    print(room.launcher._running._process.pid, flush=True)
    if sys.argv[3] == "forked": print(pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_a_killed_runtime_takes_its_launcher_and_every_command_with_it(tmp_path: Path, how: str):
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", RUNTIME, str(tmp_path), str(meeting), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    ) as runtime:
        launcher = int(runtime.stdout.readline())
        child = int(runtime.stdout.readline()) if how == "forked" else None
        while len(marked("sleep\x0095.7")) < 2:
            continue
        runtime.kill()
        runtime.wait()
        # A child of the runtime that lives on must not keep its launcher alive.
        wait_until_gone(launcher)
    if child:
        os.kill(child, signal.SIGKILL)

    for pid in marked("sleep\x0095.7"):
        wait_until_gone(int(pid))
    assert marked("sleep\x0095.7") == []


def test_a_fork_gets_a_launcher_of_its_own(room: Room):
    room.shell("true")
    ours = launcher_of(room)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with room.launcher:
                assert said(room.shell("echo child")) == "child\n"
                os.write(write_end, b"%d" % launcher_of(room))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    theirs = int(os.read(read_end, 20))
    os.close(read_end)
    os.close(write_end)

    assert os.waitstatus_to_exitcode(status) == 0
    assert theirs != ours
    wait_until_gone(theirs)
    assert said(room.shell("echo parent")) == "parent\n"
    assert launcher_of(room) == ours


def test_a_fork_that_lets_go_of_its_parents_stages_leaves_them_alone(room: Room):
    request = room.request("/bin/sh", "-c", "echo > made; cat made | wc -c")
    stage = room.launcher.open_stage(request.plan, room.fd)
    child = os.fork()
    if child == 0:
        stage.close()
        room.launcher.close()
        os._exit(0)
    os.waitpid(child, 0)

    with stage:
        assert said(room.launcher.run(request, stage)) == "1\n"
        assert os.path.exists(f"{stage.path}/upper/made")


def test_closing_ends_the_launcher_and_what_runs(room: Room):
    room.shell("true")
    pid = launcher_of(room)

    room.launcher.close()

    wait_until_gone(pid)
    assert os.listdir(room.home / "staging") == []


def test_what_a_dead_launcher_left_is_swept_by_the_next(room: Room):
    staging = room.home / "staging"
    (staging / f"launcher-{'0' * 16}/stage-1/upper").mkdir(parents=True)
    alive = StagingArea(staging)

    assert os.listdir(staging) == [os.path.basename(alive.path)]
    room.shell("true")
    assert os.path.isdir(alive.path)
    alive.claim.release()


def test_a_stage_runs_one_command(room: Room):
    request = room.request("/bin/sh", "-c", "echo once")

    with room.launcher.open_stage(request.plan, room.fd) as stage:
        assert said(room.launcher.run(request, stage)) == "once\n"
        with pytest.raises(ValueError, match="one command"):
            room.launcher.run(request, stage)


def test_a_stage_that_is_never_used_leaves_nothing(room: Room):
    with room.launcher.open_stage(room.plan(), room.fd):
        pass
    room.shell("true")
    room.launcher.close()

    assert os.listdir(room.home / "staging") == []


def test_a_sandbox_is_made_ahead_and_found_by_the_next_command(room: Room):
    plan = room.plan()
    with room.launcher.open_stage(plan, room.fd) as stage:
        room.launcher.run(room.request("/bin/sh", "-c", ":"), stage)

    made = room.launcher._spare
    with room.launcher.open_stage(plan, room.fd) as stage:
        assert stage is made
        end = room.launcher.run(room.request("/bin/sh", "-c", "echo next"), stage)

    assert said(end) == "next\n"


def test_an_argument_with_a_nul_is_refused(room: Room):
    with pytest.raises(ValueError, match="NUL"):
        room.shell("echo a\0b")
    assert said(room.shell("echo fine")) == "fine\n"


def test_arguments_and_variables_may_be_large_and_of_any_bytes(room: Room):
    odd = os.fsdecode(b"\xff\n'\"")
    large = "x" * 120_000

    end = room.run(
        PYTHON,
        "-c",
        "import sys, os; print(len(sys.argv[1]), os.fsencode(sys.argv[2]))",
        large,
        odd,
    )

    assert said(end) == f"120000 {os.fsencode(odd)!r}\n"


def test_a_place_that_is_gone_is_left_out(room: Room):
    room.readable = (str(room.home / "nowhere"),)

    assert said(room.shell("echo fine")) == "fine\n"


def test_a_writable_place_is_written_directly_and_by_its_owner(room: Room):
    place = room.home / "cache"
    place.mkdir()
    room.writable = (str(place),)

    end, changes = room.run_and_read("/bin/sh", "-c", f"echo kept > {place}/made")

    made = place / "made"
    assert (end.exit_code, changes, made.read_text()) == (0, {}, "kept\n")
    assert made.stat().st_uid == os.geteuid()


def test_the_canary_says_that_sandboxes_hold_here(tmp_path: Path):
    with Launcher(tmp_path) as launcher:
        verdict = try_stage(launcher, tmp_path, SystemPaths(*system_places()))

        assert verdict == BackendVerdict("stage", Enforcement.FULL)
        assert [name for name in os.listdir(tmp_path) if name.startswith("canary")] == []


def test_what_a_canary_left_whose_process_was_killed_is_swept_by_the_next(tmp_path: Path):
    (tmp_path / f"canary-{'0' * 16}/workspace").mkdir(parents=True)
    with Launcher(tmp_path) as launcher:
        assert try_stage(launcher, tmp_path, SystemPaths(*system_places())).cause == ""
    assert os.listdir(tmp_path) == []


def test_the_canary_says_what_is_missing_where_nothing_can_be_read(tmp_path: Path):
    with Launcher(tmp_path) as launcher:
        verdict = try_stage(launcher, tmp_path, SystemPaths((), ()))

    assert verdict.enforcement is Enforcement.NONE
    assert "not started" in verdict.cause
    assert verdict.remedy


@pytest.mark.needs("root")
def test_where_nothing_can_be_written_the_doctor_gives_a_verdict(tmp_path: Path):
    with mounted_tmpfs(tmp_path, "size=1m"):
        staging = tmp_path / "staging"
        staging.mkdir()
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        stage, _ = examine_host(staging)
        assert (stage.enforcement, stage.cause) == (
            Enforcement.NONE,
            "no directory to try it in: Read-only file system",
        )
        subprocess.run(["mount", "-o", "remount,rw", str(tmp_path)], check=True)
        stage, _ = examine_host(staging)
        assert stage == BackendVerdict("stage", Enforcement.FULL)


CLOSED = """
import os, sys
from pathlib import Path
from paddock.kernel import mounts, syscalls
from paddock.sandbox.canary import SystemPaths, try_stage
from paddock.sandbox.launcher import Launcher
from tests.support.sandboxes import system_places
uid, gid = os.getuid(), os.getgid()
pid = mounts.clone_process(mounts.NEW_USER)
if pid == 0:
    mounts.write_id_maps(None, b"%d %d 1" % (uid, uid), b"%d %d 1" % (gid, gid), keep_groups=False)
    mounts.forbid_user_namespaces()
    syscalls.drop_capabilities()
    with Launcher(Path(sys.argv[1])) as launcher:
        verdict = try_stage(launcher, Path(sys.argv[1]), SystemPaths(*system_places()))
    print(verdict.enforcement.value, verdict.cause, verdict.remedy, sep="|", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.needs("plain_user")
def test_where_user_namespaces_are_closed_the_canary_says_so_and_what_to_do(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", CLOSED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    )

    assert ran.stdout == (
        "none|the host allows no user namespaces|sysctl -w user.max_user_namespaces=15000\n"
    ), ran.stderr


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("closing", "remedy"),
    [
        ("mounts.forbid_user_namespaces()", "sysctl -w user.max_user_namespaces=15000"),
        ("", "start paddock as the unprivileged owner of the workspace, or give the container"),
    ],
)
def test_roots_canary_in_a_container_with_few_users_says_so(tmp_path: Path, closing, remedy):
    code = CLOSED.replace("mounts.forbid_user_namespaces()", closing)
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            code.replace("    syscalls.drop_capabilities()\n", ""),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    )

    held, _, said = ran.stdout.split("|")
    assert (held, remedy in said) == ("none", True), ran.stdout + ran.stderr


@pytest.mark.needs("root")
def test_started_by_root_over_a_users_workspace_the_verdict_says_what_does_not_work(room: Room):
    ground = SystemPaths(*system_places())
    before = try_workspace(room.launcher, str(room.workspace), room.fd, ground)
    os.chown(room.workspace, 1234, 1234)
    after = try_workspace(room.launcher, str(room.workspace), room.fd, ground)

    assert before == BackendVerdict("stage", Enforcement.FULL)
    assert (after.enforcement, after.gaps, after.remedy) == (
        Enforcement.FULL,
        gaps_over(room.fd),
        "start paddock as the user who owns the workspace",
    )
    assert "user 1234 owns the workspace" in after.gaps[0]
    assert room.shell("echo hi > new").exit_code != 0


FILTERED = """
import os, struct, sys
from pathlib import Path
from paddock.kernel import seccomp, syscalls
from paddock.kernel.syscalls import call_number, this_machine
from paddock.sandbox.canary import SystemPaths, try_stage
from paddock.sandbox.launcher import Launcher
from tests.support.sandboxes import system_places
program = b"".join(struct.pack("<HBBI", *each) for each in [
    (0x20, 0, 0, 0), (0x15, 0, 1, call_number("clone", this_machine())), (0x20, 0, 0, 16),
    (0x45, 0, 1, 0x10000000), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000),
])
syscalls.set_no_new_privileges()
seccomp.install_filter(program)
with Launcher(Path(sys.argv[1])) as launcher:
    verdict = try_stage(launcher, Path(sys.argv[1]), SystemPaths(*system_places()))
print(verdict.enforcement.value, verdict.cause, verdict.remedy, sep="|")
"""


def test_where_a_containers_filter_forbids_it_the_canary_says_so_and_what_to_do(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", FILTERED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    )

    assert ran.stdout.startswith(
        "none|a seccomp filter, such as a container's, forbids it|start the container with"
    ), (ran.stdout, ran.stderr)


def test_a_sandbox_that_cannot_be_made_for_the_moment_is_no_reason_for_a_weaker_one(
    tmp_path: Path,
):
    busy = FILTERED.replace("0x00050001", f"0x0005{errno.EAGAIN:04x}").rpartition("with Launcher")[
        0
    ]
    busy += """
from paddock.errors import SandboxUnavailableError
from paddock.sandbox.backends import Backends, attempt_here
with Launcher(Path(sys.argv[1])) as launcher:
    backends = Backends(attempt_here(launcher, Path(sys.argv[1])))
    for enforcement in ("required", "best-effort"):
        try:
            print(backends.choose(enforcement))
        except SandboxUnavailableError as error:
            print(error.message, error.hint, sep="|")
"""
    ran = subprocess.run(
        [sys.executable, "-c", busy, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    )

    said = "the sandbox failed just now: stage: cannot create the sandbox here: user namespace: "
    rest = "|try again; while it fails, commands are refused\n"
    assert ran.stdout == (said + os.strerror(errno.EAGAIN) + rest) * 2, ran.stderr


STACKED = """
import ctypes, os, sys
from pathlib import Path
from paddock.kernel import mounts
from paddock.sandbox.canary import SystemPaths, try_stage, try_workspace
from paddock.sandbox.launcher import Launcher
from tests.support.sandboxes import system_places
assert ctypes.CDLL(None).unshare(0x20000) == 0
mounts.make_mounts_private()
home = Path(sys.argv[1])
for name in ("lower", "upper", "work", "merged", "staging"): (home / name).mkdir()
mounts.mount_overlay(os.fsencode(home / "merged"),
    b"lowerdir=%b,upperdir=%b,workdir=%b" % tuple(os.fsencode(home / n) for n in ("lower", "upper", "work")))
ground = SystemPaths(*system_places())
with Launcher(home / "merged/staging") as launcher:
    print(try_stage(launcher, home / "merged/staging", ground))
with Launcher(home / "staging") as launcher:
    fd = os.open(home / "merged", os.O_PATH)
    print(try_workspace(launcher, str(home / "merged"), fd, ground))
    fd = os.open(home / "lower", os.O_PATH)
    print(try_workspace(launcher, str(home / "lower"), fd, ground))
os.environ["HOME"] = str(home)
os.chdir(home / "merged")
sys.argv[1:] = ["doctor"]
import contextlib, io
from paddock.apps.cli.main import console
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    console()
print(said.getvalue().splitlines()[-1])
"""


@pytest.mark.needs("root")
def test_where_something_is_an_overlay_itself_the_canary_says_what_to_do(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", STACKED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    )

    staged, over, beside, advice = ran.stdout.splitlines()
    assert "cannot hide names from commands: Operation not permitted" in staged
    assert "keep the plane on ext4" in staged
    assert "cannot set up identity-mapped mounts (identity-mapped mounts EINVAL)" in over
    assert "put the workspace on a file system with identity-mapped mounts" in over
    assert beside == str(BackendVerdict("stage", Enforcement.FULL))
    assert advice.startswith(
        "files: fenced. commands: refused in this workspace; start paddock as the user who owns"
    )


def test_nested_namespaces_are_refused_by_the_filter_and_by_their_number(room: Room):
    shown = said(room.shell("cat /proc/sys/user/max_user_namespaces; unshare -U true; echo $?"))

    number, status = shown.splitlines()
    assert number == "0"
    assert status != "0"


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_number_alone_refuses_a_nested_namespace(is_closed: bool):
    """Without any filter: in a namespace whose number was set to zero, no other can be made."""
    uid, gid = os.getuid(), os.getgid()
    pid = mounts.clone_process(mounts.NEW_USER)
    if pid == 0:
        code = 3
        try:
            mounts.write_id_maps(
                None, b"%d %d 1" % (uid, uid), b"%d %d 1" % (gid, gid), keep_groups=False
            )
            if is_closed:
                mounts.forbid_user_namespaces()
            syscalls.drop_capabilities()
            try:
                inner = mounts.clone_process(mounts.NEW_USER)
            except OSError:
                code = 1
            else:
                if inner == 0:
                    os._exit(0)
                os.waitpid(inner, 0)
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == (1 if is_closed else 0)


def test_a_file_in_the_stages_place_is_reported_as_a_failed_step(room: Room):
    request = room.request("/bin/sh", "-c", "true")
    with room.launcher.open_stage(request.plan, room.fd) as stage:
        assert room.launcher.run(request, stage).ending is Ending.EXITED
    (room.home / "file").write_text("no directory")
    fd = os.open(room.home / "file", os.O_RDONLY)

    with (
        room.launcher.open_stage(request.plan, fd) as stage,
        pytest.raises(ConfinementError) as caught,
    ):
        room.launcher.run(request, stage)
    os.close(fd)

    assert caught.value.code == "sandbox.unavailable"
    assert caught.value.number != 0
