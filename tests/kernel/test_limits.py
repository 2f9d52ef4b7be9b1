"""What a command may use, over its whole tree; and that nothing of it is left afterwards."""

import os
import platform
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.sandbox.conversation import Observed
from paddock.sandbox.values import Ending
from tests.support.sandboxes import PYTHON, Room, a_room, complained, said, usual

pytestmark = pytest.mark.needs("stage")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory):
    with a_room(tmp_path_factory.mktemp("limits")) as made:
        yield made


def processes_named(mark: str) -> list[str]:
    """Every process of the host whose command line has the mark."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(entry)
    return found


ESCAPES = {
    "background": "sleep 97.{mark} & echo started",
    "nohup": "nohup sleep 97.{mark} > /dev/null 2>&1 & echo started",
    "session": "setsid sleep 97.{mark} & echo started",
    "double fork": "(setsid sh -c 'sleep 97.{mark} & exec sleep 97.{mark}' &) ; echo started",
    "holds the pipe": "(exec sleep 97.{mark}) & echo started",
    "ignores signals": "trap '' TERM INT HUP; (trap '' TERM HUP; sleep 97.{mark}) & echo started",
    "stopped": "sleep 97.{mark} & kill -STOP $!; echo started",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_what_a_command_leaves_running_is_killed_and_counted(room: Room, escape: str):
    mark = f"{os.getpid()}{list(ESCAPES).index(escape)}"

    end = room.shell(ESCAPES[escape].format(mark=mark), timeout_s=30)

    assert (end.ending, end.exit_code, said(end)) == (Ending.EXITED, 0, "started\n")
    assert end.survivors >= 1
    assert processes_named(f"97.{mark}") == []


def test_a_command_that_leaves_nothing_running_has_no_survivors(room: Room):
    end = room.shell("sleep 0.01 & wait; true | true; echo done")

    assert (end.exit_code, end.survivors, said(end)) == (0, 0, "done\n")


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_command_out_of_time_is_killed_with_all_that_it_started(room: Room, escape: str):
    mark = f"{os.getpid()}9{list(ESCAPES).index(escape)}"

    end = room.shell(
        f"{ESCAPES[escape].format(mark=mark)}; trap '' TERM; sleep 97.{mark}", timeout_s=2
    )

    assert (end.ending, end.exit_code) == (Ending.TIMED_OUT, -1)
    assert said(end) == "started\n"
    assert processes_named(f"97.{mark}") == []


class Wish:
    """Somebody's wish to stop: `on_cancel` as the runtime offers it."""

    def __init__(self) -> None:
        self.callbacks = []
        self.is_uttered = False

    def on_cancel(self, callback):
        if self.is_uttered:
            callback()
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def utter(self) -> None:
        self.is_uttered = True
        for callback in self.callbacks:
            callback()


def test_a_command_is_cancelled_from_another_thread(room: Room):
    wish = Wish()
    seen: list[float] = []
    request = room.request("/bin/sh", "-c", "echo begun; sleep 98.5", timeout_s=60)

    def progress(seconds: float, total_bytes: int) -> None:
        seen.append(seconds)
        if total_bytes:
            threading.Thread(target=wish.utter).start()

    with room.launcher.open_stage(request.plan, room.fd) as stage:
        end = room.launcher.run(request, stage, Observed(progress=progress, cancel=wish))

    assert (end.ending, said(end)) == (Ending.CANCELLED, "begun\n")
    assert seen
    assert wish.callbacks == []
    assert processes_named("98.5") == []


def test_a_command_that_was_cancelled_before_does_not_go_on(room: Room):
    wish = Wish()
    wish.utter()
    request = room.request("/bin/sh", "-c", "sleep 98.6", timeout_s=60)

    with room.launcher.open_stage(request.plan, room.fd) as stage:
        end = room.launcher.run(request, stage, Observed(cancel=wish))

    assert end.ending is Ending.CANCELLED
    assert processes_named("98.6") == []


def test_a_fork_bomb_meets_the_limit_of_processes(room: Room):
    code = """
import os, time
made = 0
try:
    for _ in range(700):
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except BlockingIOError as error:
    print(made, error.errno)
"""
    room.limits = usual(processes=64)
    end = room.python(code)
    room.limits = usual()

    made, number = said(end).split()
    assert (number, int(made)) == ("11", 63)
    assert end.survivors == 63


ALLOCATIONS = {
    "one process": "x = bytearray(600 << 20); touch(x); time.sleep(30)",
    "in children": """
for _ in range(6):
    if os.fork() == 0:
        x = bytearray(100 << 20); touch(x); time.sleep(30)
time.sleep(30)""",
    "shared between parent and child": """
x = mmap.mmap(-1, 600 << 20); touch(x)
if os.fork() == 0: time.sleep(30)
time.sleep(30)""",
    "unreadable for others": """
libc = ctypes.CDLL(None); libc.prctl(4, 0, 0, 0, 0)
x = bytearray(600 << 20); touch(x); time.sleep(30)""",
    "behind a first thread that has ended": """
import threading
def work():
    x = bytearray(600 << 20); touch(x); time.sleep(30)
if os.fork() == 0:
    threading.Thread(target=work).start()
    ctypes.CDLL(None).syscall(EXIT_OF_A_THREAD, 0)
os.wait()""".replace("EXIT_OF_A_THREAD", {"x86_64": "60", "aarch64": "93"}[platform.machine()]),
    "segments that nobody has mapped": """
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
for _ in range(6):
    s = libc.shmget(0, 100 << 20, 0o1600); a = libc.shmat(s, None, 0)
    ctypes.memset(a, 1, 100 << 20); libc.shmdt(ctypes.c_void_p(a))
time.sleep(30)""",
}
PRELUDE = """
import ctypes, mmap, os, sys, time
def touch(x):
    for at in range(0, len(x), 4096): x[at] = 1
"""


@pytest.mark.parametrize("how", ALLOCATIONS)
def test_too_much_memory_over_the_whole_tree_ends_the_command(room: Room, how: str):
    room.limits = usual(memory_mb=256)
    end = room.python(PRELUDE + ALLOCATIONS[how], timeout_s=25)
    room.limits = usual()

    assert end.ending is Ending.MEMORY, (end, complained(end))
    assert end.exit_code == 137
    assert end.memory_kb > 256 * 1024


def test_memory_that_many_processes_share_counts_once(room: Room):
    code = (
        PRELUDE
        + """
x = bytearray(150 << 20); touch(x)
children = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.6); os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
print("done")
"""
    )
    room.limits = usual(memory_mb=256)
    end = room.python(code)
    room.limits = usual()

    assert (end.ending, said(end)) == (Ending.EXITED, "done\n")


def test_what_the_host_keeps_in_tmp_is_not_the_commands_memory(room: Room):
    room.writable, room.limits = ("/tmp",), usual(memory_mb=40)

    end = room.shell("sleep 0.3; echo over")
    room.writable, room.limits = (), usual()

    assert (end.ending, said(end), end.memory_kb < 40 * 1024) == (Ending.EXITED, "over\n", True)


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/run", "/var/tmp", "$HOME"])
def test_private_directories_hold_half_the_memory_at_most(room: Room, place: str):
    room.limits = usual(memory_mb=64)
    end = room.shell(
        f"head -c 1M /dev/zero > {place}/small && echo fits; head -c 40M /dev/zero > {place}/large"
    )
    room.limits = usual()

    assert said(end) == "fits\n"
    assert "No space left on device" in complained(end)


def test_a_file_larger_than_the_limit_is_not_written(room: Room):
    room.limits = usual(file_mb=8)
    end = room.shell("head -c 4M /dev/zero > small && echo fits; head -c 9M /dev/zero > large")
    room.limits = usual()

    assert said(end) == "fits\n"
    assert end.exit_code in (1, 128 + 25)


def test_a_process_out_of_processor_time_is_killed(room: Room):
    room.limits = usual(cpu_s=1)
    end = room.shell("while :; do :; done", timeout_s=50)
    room.limits = usual()

    # SIGXCPU, which says what it was; one that does not heed it is killed a little later.
    assert (end.ending, end.exit_code) == (Ending.EXITED, 128 + 24)


def test_no_signal_reaches_the_first_process_from_within(room: Room):
    end = room.shell(
        "for s in 1 2 3 6 9 10 12 13 14 15 17 19 25; do kill -$s 1; done; sleep 0.2; echo on"
    )

    assert (end.ending, end.exit_code, said(end)) == (Ending.EXITED, 0, "on\n")


def test_limits_cannot_be_raised_from_within(room: Room):
    code = """
import resource
for name in ("CPU", "FSIZE", "NOFILE", "NPROC", "RTPRIO", "NICE"):
    what = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(what)
    try:
        resource.setrlimit(what, (soft, hard + 1))
        print("raised", name)
    except ValueError:
        print("kept", name, soft == hard)
"""
    end = room.python(code)

    assert said(end) == "".join(
        f"kept {name} True\n" for name in ("CPU", "FSIZE", "NOFILE", "NPROC", "RTPRIO", "NICE")
    )


@pytest.mark.parametrize("wanted", ["0", "unlimited"])
def test_no_crash_starts_the_hosts_handler_whatever_limit_a_command_asks_for(
    room: Room, wanted: str
):
    # Of 1 alone the kernel makes an exception.
    end = room.python(
        "import resource as r, subprocess as s\n"
        f"s.run(['sh', '-c', 'ulimit -c {wanted}'], check=True)\n"
        f"r.setrlimit(r.RLIMIT_CORE, (r.RLIM_INFINITY if {wanted!r} != '0' else 0,) * 2)\n"
        "print(r.getrlimit(r.RLIMIT_CORE), r.prlimit(0, r.RLIMIT_CORE))"
    )

    assert (end.exit_code, said(end)) == (0, "(1, 1) (1, 1)\n"), complained(end)


def test_no_command_slows_the_first_process_with_all_of_its_user(room: Room):
    code = """
import os
def niceness(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[16])
before = niceness(1), niceness("self")
for who in (0, os.getuid()):
    try:
        os.setpriority(os.PRIO_USER, who, 19)
        print("slowed")
    except PermissionError:
        pass
os.setpriority(os.PRIO_PROCESS, 0, 19)
print(niceness(1) == before[0], niceness("self"))
"""
    end = room.python(code)

    assert said(end) == "True 19\n", complained(end)


def test_a_command_opens_its_outputs_by_their_names(room: Room):
    end = room.shell("echo 1 > /dev/stdout; echo 2 > /dev/stderr; echo 3 | tee /dev/stderr >&2")

    assert (said(end), complained(end)) == ("1\n", "2\n3\n3\n")


def test_the_exit_status_of_a_command_is_told(room: Room):
    assert room.shell("exit 7").exit_code == 7
    assert room.shell("kill -9 $$").exit_code == 137
    assert room.shell("kill -PIPE $$").exit_code == 141


def test_a_program_that_is_not_there_is_said_to_be_so(room: Room):
    end = room.run("no-such-program")

    assert (end.ending, end.exit_code) == (Ending.FAILED, 127)
    assert end.reason == "no-such-program: No such file or directory"


def test_a_file_that_is_no_program_is_said_to_be_so(room: Room):
    (room.workspace / "text").write_text("no program")

    end = room.run("./text")

    assert (end.ending, end.exit_code) == (Ending.FAILED, 126)


def test_a_directory_that_is_not_there_is_said_to_be_so(room: Room):
    end = room.shell("true", cwd="nowhere")

    assert (end.ending, end.exit_code) == (Ending.FAILED, 127)
    assert end.reason.startswith(f"{room.workspace}/nowhere: ")


def test_output_is_kept_at_both_ends_and_counted(room: Room):
    end = room.shell("seq 1 200000; seq 5 >&2", kept=1000)

    whole = "".join(f"{number}\n" for number in range(1, 200001)).encode()
    assert (end.stdout.head, end.stdout.tail) == (whole[:500], whole[-500:])
    assert end.stdout.total_bytes == len(whole)
    assert end.stdout.missing_bytes == len(whole) - 1000
    assert complained(end) == "1\n2\n3\n4\n5\n"


def test_many_commands_run_at_once(room: Room):
    meeting = room.home / "meeting"
    meeting.mkdir()
    room.writable = (str(meeting),)
    # Each waits for all the others: one after the other, none would ever end.
    line = f"touch {meeting}/{{0}}; until [ $(ls {meeting} | wc -l) = 8 ]; do sleep 0.01; done; echo {{0}}"
    ends = {}

    def one(number: int) -> None:
        ends[number] = room.shell(line.format(number), timeout_s=50)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    room.writable = ()

    assert {number: said(end) for number, end in ends.items()} == {
        number: f"{number}\n" for number in range(8)
    }


def test_each_command_has_an_environment_of_its_own_and_three_descriptors(room: Room):
    os.environ["PADDOCK_TEST_SECRET"] = "hunter2"
    leaked = os.open("/", os.O_RDONLY)
    os.set_inheritable(leaked, True)

    end = room.run(
        PYTHON,
        "-I",
        "-c",
        "import os; print(sorted(os.environ)); print(sorted(map(int, os.listdir('/proc/self/fd'))))",
    )

    os.close(leaked)
    names, fds = said(end).splitlines()
    assert eval(names) == ["HOME", "LANG", "PATH", "PWD", "TMPDIR"]
    # The fourth is the directory that is listed.
    assert eval(fds) == [0, 1, 2, 3]


def test_standard_input_is_empty_and_there_is_no_terminal(room: Room):
    end = room.shell("cat; tty; ps -o sess= -p $$; (exec < /dev/tty) 2>&1; echo end")

    assert "not a tty" in said(end)
    assert said(end).splitlines()[-1] == "end"
    assert "/dev/tty" in said(end)


def test_no_network_at_all_where_the_plan_says_none(room: Room):
    code = "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)"
    request = room.request(PYTHON, "-c", code)
    request = replace(request, plan=replace(request.plan, network="none"))

    with room.launcher.open_stage(request.plan, room.fd) as stage:
        end = room.launcher.run(request, stage)

    assert said(end) == "1\n"


@pytest.mark.loopback
def test_the_hosts_network_is_reached_only_where_the_plan_says_so(room: Room):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})); print('reached')"
        refused = room.python(code)
        room.network = "host"
        granted = room.python(code)
        room.network = "loopback"

    assert "reached" not in said(refused)
    assert said(granted) == "reached\n"
