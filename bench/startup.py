"""`paddock --help` beside `python -c pass`, as whole processes.

    python bench/startup.py

Prints milliseconds (median of interleaved runs) and the ratio. Must: 6.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 25
MUST = 6.0


def milliseconds(command: list[str]) -> float:
    started = time.perf_counter_ns()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter_ns() - started) / 1e6


def main() -> int:
    python = sys.executable
    program = str(Path(python).with_name("paddock"))
    bare: list[float] = []
    help_: list[float] = []
    for _ in range(RUNS):
        bare.append(milliseconds([python, "-c", "pass"]))
        help_.append(milliseconds([program, "--help"]))
    ratio = statistics.median(a / b for a, b in zip(help_, bare, strict=True))
    print(f"python -c pass  {statistics.median(bare):8.2f} ms")
    print(f"paddock --help  {statistics.median(help_):8.2f} ms")
    print(f"ratio           {ratio:8.2f}  (must {MUST})")
    return 0 if ratio <= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
