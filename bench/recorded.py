"""What it costs that a call is durable and on record, beside the bare system calls.

    python bench/recorded.py

A recorded `view` beside an append of as many bytes with fdatasync, also while two other
programs compute and sleep in turn, as a build does; a `create_file` of 1 kB beside a bare
write, fsync, rename, fsync of the directory and two synced appends. Prints milliseconds
(medians of turns) and ratios (medians of neighbours). Musts: 4, 4 and 2.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import paddock
from paddock.runtime.runtime import Runtime

ROUNDS = 300
BUSY = 2
COMPUTE_AND_SLEEP = """
import time
while True:
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    time.sleep(0.005)
"""
ENTRY = b"x" * 800 + b"\n"
CONTENT = "a line of text\n" * 68
MUST_VIEW, MUST_CREATE = 4.0, 2.0


def appended(log: Path) -> None:
    """One append that is durable."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, ENTRY)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def created(root: Path, name: str) -> None:
    """One file that is whole and durable under its name."""
    draft, place = root / f".{name}", root / name
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, CONTENT.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.rename(place)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def call(runtime: Runtime, tool: str, arguments: dict[str, object]) -> None:
    result = runtime.call(tool, arguments)
    assert result.status == "ok", result


def in_turns(ours: Callable[[int], None], bare: Callable[[int], None]) -> tuple[float, float]:
    """Milliseconds of ours, and the ratio."""
    taken: list[list[float]] = [[], []]
    for number in range(ROUNDS):
        for act, found in zip((ours, bare), taken, strict=True):
            started = time.perf_counter_ns()
            act(number)
            found.append((time.perf_counter_ns() - started) / 1e6)
    ratio = statistics.median(a / b for a, b in zip(*taken, strict=True))
    return statistics.median(taken[0]), ratio


def told(title: str, found: tuple[float, float], must: float) -> bool:
    print(f"{title:<34}{found[0]:8.2f} ms   x {found[1]:5.2f}  (must {must})")
    return found[1] <= must


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        root, home, bare = (Path(directory, name) for name in ("root", "home", "bare"))
        for folder in (root, home, bare):
            folder.mkdir()
        (root / "a.txt").write_text(CONTENT)
        os.environ["HOME"] = str(home)
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        log = bare / "log"

        def create_bare(number: int) -> None:
            appended(log)
            created(bare, f"f{number}")
            appended(log)

        with paddock.open(root) as runtime:

            def view(_: int) -> None:
                call(runtime, "view", {"path": "a.txt"})

            def create(number: int) -> None:
                call(runtime, "create_file", {"path": f"f{number}", "content": CONTENT})

            is_met = told("view", in_turns(view, lambda _: appended(log)), MUST_VIEW)
            is_met &= told("create_file of 1 kB", in_turns(create, create_bare), MUST_CREATE)
            busy = [
                subprocess.Popen([sys.executable, "-c", COMPUTE_AND_SLEEP]) for _ in range(BUSY)
            ]
            try:
                found = in_turns(view, lambda _: appended(log))
            finally:
                for each in busy:
                    each.kill()
                    each.wait()
            is_met &= told("view, beside two busy programs", found, MUST_VIEW)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
