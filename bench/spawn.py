"""A command in a sandbox beside the same command without one.

    python bench/spawn.py [--commands N]

Prints milliseconds (medians of interleaved runs) and ratios, each against a plain
`subprocess.run([...])` of the same program with its output captured:

  warm    a sandbox of the same plan was made ahead, as after any command before
  cold    none was: made while the command waits
  first   the launcher has to be started as well
  bwrap   bubblewrap with the same namespaces, where it is installed
  kill    a tree of five with escapees, until nothing is left, beside killpg, which leaves three
  100 MB  captured with head and tail kept, beside `head -c 100M /dev/zero | cat`

Musts: warm 10 ms; kill 20 times killpg with nothing left; 100 MB 2 times the pipe and
5 MB more memory.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import CommandRequest
from tests.support.sandboxes import Room, a_room

TREE = (
    "sleep {mark} & setsid sleep {mark} & (setsid sh -c 'sleep {mark} & exec sleep {mark}' &) ;"
    " nohup sleep {mark} >/dev/null 2>&1 & echo up; {end}"
)
PAUSE_S = 0.1
WARM_MUST_MS, KILL_MUST, CAPTURE_MUST, MEMORY_MUST_KB = 10.0, 20.0, 2.0, 5 * 1024


def milliseconds(act: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - started) / 1e6


def plain() -> None:
    subprocess.run(["/usr/bin/true"], capture_output=True, check=True)


def sandboxed(room: Room, request: CommandRequest) -> None:
    with room.launcher.open_stage(request.plan, room.fd) as stage:
        assert room.launcher.run(request, stage).exit_code == 0


def unready(room: Room, requests: list[CommandRequest]) -> None:
    """Another plan than the one a sandbox was made for."""
    requests.reverse()
    sandboxed(room, requests[0])


def first(room: Room, request: CommandRequest) -> float:
    """Milliseconds, the end of the launcher not among them."""
    with Launcher(room.home / "staging-first") as launcher:
        started = time.perf_counter_ns()
        with launcher.open_stage(request.plan, room.fd) as stage:
            assert launcher.run(request, stage).exit_code == 0
        return (time.perf_counter_ns() - started) / 1e6


def bubblewrapped(room: Room) -> None:
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in room.plan().readable:
        command += ["--ro-bind", path, path]
    for name, text in room.plan().links:
        command += ["--symlink", text, name]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    subprocess.run(
        [*command, "--bind", str(room.workspace), "/work", "/usr/bin/true"],
        capture_output=True,
        check=True,
    )


def interleaved(rows: dict[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(runs):
        for name, act in rows.items():
            took[name].append(milliseconds(act))
            # The next sandbox is made meanwhile, as between two calls of a model.
            time.sleep(PAUSE_S)
    return took


def show(name: str, took: list[float], base: list[float]) -> float:
    ratio = statistics.median(a / b for a, b in zip(took, base, strict=True))
    print(f"{name:24s}{statistics.median(took):9.2f} ms   min {min(took):7.2f}   x{ratio:6.2f}")
    return statistics.median(took)


def starts(room: Room, runs: int) -> bool:
    request = room.request("/usr/bin/true")
    other = replace(request, plan=replace(request.plan, network="none"))
    rows: dict[str, Callable[[], object]] = {
        "plain": plain,
        "warm": lambda: sandboxed(room, request),
    }
    if shutil.which("bwrap"):
        rows["bwrap"] = lambda: bubblewrapped(room)
    took = interleaved(rows, runs)
    base = took["plain"]
    medians = {name: show(name, each, base) for name, each in took.items()}
    rows = {"plain": plain, "cold": lambda requests=[request, other]: unready(room, requests)}
    took = interleaved(rows, max(5, runs // 4))
    show("cold", took["cold"], took["plain"])
    show("first", [first(room, request) for _ in took["plain"]], took["plain"])
    return medians["warm"] <= WARM_MUST_MS


def marked(mark: str) -> list[int]:
    """The processes whose command line has the mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_group() -> float:
    mark = f"90.{os.getpid()}"
    tree = subprocess.Popen(
        ["sh", "-c", TREE.format(mark=mark, end=f"sleep {mark}")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert tree.stdout is not None
    tree.stdout.readline()
    tree.stdout.close()
    took = milliseconds(lambda: (os.killpg(tree.pid, signal.SIGKILL), tree.wait()))
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)
    return took


def kill_sandbox(room: Room, mark: str) -> float:
    """The command's last act is to say the time; what follows is the end of all the rest."""
    request = room.request("/bin/sh", "-c", TREE.format(mark=mark, end="date +%s%N"))
    with room.launcher.open_stage(request.plan, room.fd) as stage:
        end = room.launcher.run(request, stage)
        ended = time.time_ns()
    assert end.survivors >= 4
    return (ended - int(end.stdout.head.split()[-1])) / 1e6


def kills(room: Room, runs: int) -> bool:
    """From the wish to stop until everything is gone."""
    mark = f"91.{os.getpid()}"
    took: dict[str, list[float]] = {"group": [], "sandbox": []}
    for _ in range(max(5, runs // 5)):
        took["group"].append(kill_group())
        took["sandbox"].append(kill_sandbox(room, mark))
    show("killpg, leaving three", took["group"], took["group"])
    median = show("kill, leaving none", took["sandbox"], took["group"])
    left = len(marked(mark))
    print(f"{'left behind':24s}{left:9d}")
    return left == 0 and median <= KILL_MUST * statistics.median(took["group"])


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * (
        os.sysconf("SC_PAGE_SIZE") // 1024
    )


def captures(room: Room, runs: int) -> bool:
    line = "head -c 100000000 /dev/zero"
    request = room.request("/bin/sh", "-c", line, kept=50_000)

    def piped() -> None:
        subprocess.run(f"{line} | cat > /dev/null", shell=True, check=True)

    def captured() -> None:
        with room.launcher.open_stage(request.plan, room.fd) as stage:
            assert room.launcher.run(request, stage).stdout.total_bytes == 100_000_000

    sandboxed(room, request)
    before = resident_kb()
    took = interleaved({"100 MB, piped": piped, "100 MB, captured": captured}, max(5, runs // 5))
    grown = resident_kb() - before
    base = took["100 MB, piped"]
    show("100 MB, piped", base, base)
    ratio = show("100 MB, captured", took["100 MB, captured"], base) / statistics.median(base)
    print(f"{'memory grown':24s}{grown:9d} kB")
    return ratio <= CAPTURE_MUST and grown <= MEMORY_MUST_KB


def main() -> int:
    parser = argparse.ArgumentParser(description="a command in a sandbox beside one without")
    parser.add_argument("--commands", type=int, default=40)
    runs = parser.parse_args().commands
    with tempfile.TemporaryDirectory() as home, a_room(Path(home)) as room:
        for number in range(100):
            (room.workspace / f"{number}.txt").write_text(f"{number}\n")
        done = [measure(room, runs) for measure in (starts, kills, captures)]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
