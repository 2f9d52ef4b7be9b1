"""What a command through `run_shell` costs, side by side with what it stands in for.

    python bench/shell.py [--folder DIR] [--files 100 70000] [--rounds 30] [--skip ROW ...]

    start     one `true`, warm, over a bare spawn: at so many files, with secrets among them,
              from the call to its recorded result. Must: 10 ms
    cold      a whole `paddock call run_shell`, from nothing, over a bare spawn. No must
    files     file-heavy work over the same under bubblewrap. Must: 1.5. And the whole call, with
              every file judged and committed durably, over bubblewrap and a sync
    output    100 MB of output over `head | cat`, all of it kept in the history, and how much
              larger that makes us. Must: 2.0, and 5 MiB
    kill      a tree of five with escapees that is out of time: how long after it the call has
              ended, beside killpg, and what is left. Must: nothing

Rows that need a program that is not there are skipped, with the reason. Machines and disks
differ: rounds alternate, so look at the ratios. `--folder` is where the workspaces are made;
on a file system in memory the files row says little, for there a file costs nothing.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from spawn import TREE, kill_group, marked

from tests.support.shells import OPEN, Terminal, Yard

START_MUST_MS = 10.0
FILES_MUST = 1.5
OUTPUT_MUST = 2.0
OUTPUT_BYTES = 100_000_000
MEMORY_MUST_KIB = 5 * 1024
TIMEOUT_S = 1
HEAVY = """
import os
os.makedirs("heavy", exist_ok=True)
for n in range(2000):
    with open(f"heavy/t{n}", "w") as f: f.write("x" * 1000)
    with open(f"heavy/t{n}") as f: f.read()
    os.stat(f"heavy/t{n}")
    os.rename(f"heavy/t{n}", f"heavy/f{n}")
"""


def ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def fill(root: Path, count: int) -> None:
    """Directories of a hundred files, a secret in one of ten."""
    for folder in range(max(1, count // 100)):
        path = root / f"src/{folder // 50}/{folder}"
        path.mkdir(parents=True)
        for number in range(min(100, count)):
            (path / f"f{number}.py").write_bytes(b"x = 1\n")
        if folder % 10 == 0:
            (path / ".env").write_bytes(b"token\n")
    # What is written back later would be waited for by every record.
    os.sync()


def warm(terminal: Terminal, rounds: int) -> tuple[float, float, float]:
    """Medians: a call, a bare spawn, and by how much a call takes longer than its neighbour."""
    ours, bare = [], []
    for _ in range(3):
        terminal.run("true")
    for _ in range(rounds):
        # The next sandbox is made while nobody waits, as between two calls of a model.
        time.sleep(0.05)
        ours.append(ms(lambda: terminal.run("true")))
        bare.append(ms(lambda: subprocess.run(["bash", "-c", "true"], check=True)))
    more = statistics.median(a - b for a, b in zip(ours, bare, strict=True))
    return statistics.median(ours), statistics.median(bare), more


def start_rows(base: Path, counts: list[int], rounds: int) -> int:
    over = 0
    for count in counts:
        yard = Yard(base / f"start{count}", OPEN).make()
        fill(yard.root, count)
        time.sleep(3.2)  # directories that have just changed are read anew each time
        with yard.opened() as terminal:
            ours, bare, more = warm(terminal, rounds)
        is_over = more > START_MUST_MS
        over += is_over
        print(
            f"start  {count:6} files   {ours:7.2f} ms, bare {bare:5.2f}: {more:+7.2f} ms"
            f"   must {START_MUST_MS:g}{'  OVER' if is_over else ''}"
        )
    return over


def cold_row(base: Path) -> None:
    yard = Yard(base / "cold", OPEN).make()
    program = Path(sys.executable).with_name("paddock")
    command = [str(program), "call", "run_shell", '{"command": "true"}', "--yes"]
    if not program.exists():
        command[:1] = [sys.executable, "-m", "paddock"]

    def call() -> None:
        subprocess.run(
            command, cwd=yard.root, env=yard.all_variables, check=True, stdout=subprocess.DEVNULL
        )

    call()
    found = [ms(call) for _ in range(7)]
    bare = [ms(lambda: subprocess.run(["bash", "-c", "true"], check=True)) for _ in range(7)]
    more = statistics.median(found) - statistics.median(bare)
    print(f"cold   paddock call    {statistics.median(found):7.1f} ms: {more:+7.1f} ms")


def bubblewrap(root: Path, *argv: str) -> list[str]:
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", str(root), str(root)),
        *("--chdir", str(root), *argv),
    ]


def files_row(base: Path, rounds: int) -> int:
    yard = Yard(base / "heavy", OPEN).make()
    (yard.root / "work.py").write_text(HEAVY)
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    line = f"{python} -S work.py"
    theirs = bubblewrap(yard.root, "sh", "-c", line)
    if shutil.which("bwrap") is None:
        print("files  there is no program bwrap: beside the same without a sandbox")
        theirs = ["sh", "-c", line]
    inside: list[float] = []
    whole: list[float] = []
    beside: list[float] = []
    synced: list[float] = []
    with yard.opened() as terminal:
        terminal.run("true")
        for _ in range(rounds):
            _clear(yard.root)
            whole.append(ms(lambda: inside.append(_worked(terminal.run(line, timeout=120)))))
            _clear(yard.root)
            beside.append(ms(lambda: subprocess.run(theirs, cwd=yard.root, check=True)))
            synced.append(beside[-1] + ms(lambda: _sync(yard.root)))
    ratio = statistics.median(a / b for a, b in zip(inside, beside, strict=True))
    is_over = ratio > FILES_MUST
    print(
        f"files  2000, the work  {statistics.median(inside):7.0f} ms,"
        f" bubblewrap {statistics.median(beside):6.0f}: x{ratio:.2f}"
        f"   must {FILES_MUST}{'  OVER' if is_over else ''}"
    )
    kept = statistics.median(a / b for a, b in zip(whole, synced, strict=True))
    each = statistics.median(a - b for a, b in zip(whole, inside, strict=True)) / 2000
    print(
        f"files  2000, kept      {statistics.median(whole):7.0f} ms,"
        f" and synced {statistics.median(synced):6.0f}: x{kept:.2f}"
        f"   judged, kept and recorded: {each * 1000:.0f} us a file"
    )
    return int(is_over)


def _sync(root: Path) -> None:
    subprocess.run(["sync", "-f", root], check=True)


def _clear(root: Path) -> None:
    shutil.rmtree(root / "heavy", ignore_errors=True)
    os.sync()


def _worked(said: dict) -> float:
    """Milliseconds of the command itself."""
    assert said["exit_code"] == 0, said["stderr"]
    assert not said["changes_refused"], said
    return said["duration_seconds"] * 1000


def output_row(base: Path, rounds: int) -> int:
    yard = Yard(base / "output", OPEN).make()
    log = b"2026-01-01 00:00:00 [info] step 17 of 99 took 0.017 s, nothing to report\n"
    (yard.root / "log").write_bytes((log * (OUTPUT_BYTES // len(log) + 1))[:OUTPUT_BYTES])
    os.sync()
    ours: list[float] = []
    plain: list[float] = []
    with yard.opened() as terminal:
        terminal.run("head -c 1000000 log")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(rounds):
            # Another content each time: what is kept already would only have to be let go.
            line = f"echo {number}; head -c 1000000000 log"
            ours.append(ms(lambda line=line: _printed(terminal.run(line, timeout=120))))
            plain.append(ms(lambda line=line: _piped(f"({line})", yard.root)))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ratio = statistics.median(a / b for a, b in zip(ours, plain, strict=True))
    found, free = statistics.median(ours), statistics.median(plain)
    print(
        f"output 100 MB          {found:7.0f} ms, pipe {free:6.0f}: x{ratio:.2f}"
        f"   must {OUTPUT_MUST}{'  OVER' if ratio > OUTPUT_MUST else ''}"
    )
    print(
        f"output memory          {grown / 1024:+7.1f} MiB"
        f"   must {MEMORY_MUST_KIB // 1024}{'  OVER' if grown > MEMORY_MUST_KIB else ''}"
    )
    return int(ratio > OUTPUT_MUST) + int(grown > MEMORY_MUST_KIB)


def _piped(line: str, where: Path) -> None:
    subprocess.run(f"{line} | cat > /dev/null", shell=True, cwd=where, check=True)


def _printed(said: dict) -> None:
    assert said["exit_code"] == 0, said["stderr"]
    assert "TRUNCATED" in said["stdout"]


def kill_row(base: Path, rounds: int) -> int:
    yard = Yard(base / "kill", OPEN).make()
    mark = f"92.{os.getpid()}"
    line = TREE.format(mark=mark, end=f"sleep {mark}")
    late: list[float] = []
    group: list[float] = []
    with yard.opened() as terminal:
        terminal.run("true")
        for _ in range(rounds):
            took = ms(lambda: _timed_out(terminal.run(line, timeout=TIMEOUT_S)))
            late.append(took - TIMEOUT_S * 1000)
            group.append(kill_group())
    left = len(marked(mark))
    print(
        f"kill   out of time     {statistics.median(late):7.1f} ms later,"
        f" killpg {statistics.median(group):.1f} and leaves three"
        f"   left {left}   must 0{'  OVER' if left else ''}"
    )
    return int(left > 0)


def _timed_out(said: dict) -> None:
    assert said["timed_out"], said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--files", type=int, nargs="*", default=[100, 70_000])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--skip", nargs="*", default=[])
    options = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        base = Path(name)
        if "start" not in options.skip:
            over += start_rows(base, options.files, options.rounds)
        if "cold" not in options.skip:
            cold_row(base)
        if "files" not in options.skip:
            over += files_row(base, max(3, options.rounds // 6))
        if "output" not in options.skip:
            over += output_row(base, max(3, options.rounds // 6))
        if "kill" not in options.skip:
            over += kill_row(base, max(3, options.rounds // 6))
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
