"""What a view deep inside a large file costs, beside `sed -n 'A,Bp;Bq'`.

    python bench/view.py [--lines 1000000] [--at 900000] [--rounds 15]

Three figures: the lines alone (`OpenFile.window`), the lines with the version of
the whole file, as the `view` tool gives them (a SHA-256 of every byte, in a
second thread), and a second view of the same file. The rounds alternate with
sed; the ratio is the median of the rounds' ratios. `hash alone` is the time of
hashing the same bytes in memory, which no view with a version can beat.
"""

import argparse
import hashlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from paddock.workspace import Workspace

SHOWN_BYTES = 100_000
LINES = 101


def make_file(path: Path, lines: int) -> None:
    with path.open("wb") as file:
        for number in range(lines):
            file.write(b"line %07d of a long file: %s\n" % (number, b"x" * (number % 90)))
    # Nothing is remembered of a file that changed within the last second.
    os.utime(path, (1_700_000_000, 1_700_000_000))


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e3


class Contestants:
    """The same window in several ways; a workspace opened anew knows nothing of the file."""

    def __init__(self, folder: str, name: str, at: int) -> None:
        self.folder = folder
        self.name = name
        self.at = at
        self.warm = Workspace.open(folder)

    def sed(self) -> None:
        last = self.at + LINES - 1
        command = ["sed", "-n", f"{self.at},{last}p;{last}q", f"{self.folder}/{self.name}"]
        subprocess.run(command, stdout=subprocess.PIPE, check=True)

    def lines(self) -> None:
        with Workspace.open(self.folder) as workspace:
            self._window(workspace)

    def with_version(self) -> None:
        with Workspace.open(self.folder) as workspace:
            path = workspace.resolve_read(self.name)
            with workspace.open_file(path) as file:
                file.window(self.at, LINES, SHOWN_BYTES)

    def again(self) -> None:
        path = self.warm.resolve_read(self.name)
        with self.warm.open_file(path) as file:
            file.window(self.at, LINES, SHOWN_BYTES)

    def _window(self, workspace: Workspace) -> None:
        with workspace.open_file(workspace.resolve_read(self.name)) as file:
            file.window(self.at, LINES, SHOWN_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--at", type=int, default=900_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.txt"
        make_file(file, arguments.lines)
        content = file.read_bytes()
        ways = Contestants(folder, file.name, arguments.at)
        time.sleep(1.1)  # until the file counts as settled
        ways.again()
        acts: dict[str, Callable[[], object]] = {
            "lines alone": ways.lines,
            "with version": ways.with_version,
            "again": ways.again,
            "hash alone": lambda: hashlib.sha256(content).digest(),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
        for _ in range(arguments.rounds):
            for name, act in acts.items():
                found[name].append((timed(act), timed(ways.sed)))
        load = os.getloadavg()[0]
        print(f"{len(content) / 1e6:.0f} MB, line {arguments.at}, load {load:.1f}")
        for name, pairs in found.items():
            ours = statistics.median(one for one, _ in pairs)
            ratio = statistics.median(one / other for one, other in pairs)
            print(f"{name:13} {ours:7.2f} ms  {ratio:.3f} of sed")


if __name__ == "__main__":
    main()
