"""`paddock --help` and a cold `paddock call view` beside `python -c pass`, as whole processes.

    python bench/startup.py

The call is recorded, and its ledgers are covered by checkpoints, as at the end of any program.
Prints milliseconds (medians of runs in turns) and the ratios. Musts: 6 and 8.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 25
MUST_HELP, MUST_VIEW = 6.0, 8.0


def milliseconds(command: list[str], root: str, environment: dict[str, str]) -> float:
    started = time.perf_counter_ns()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=root, env=environment)
    return (time.perf_counter_ns() - started) / 1e6


def main() -> int:
    python = sys.executable
    program = str(Path(python).with_name("paddock"))
    bare = [python, "-c", "pass"]
    asked = {
        "paddock --help": ([program, "--help"], MUST_HELP),
        "paddock call view": ([program, "call", "view", '{"path": "a.txt"}'], MUST_VIEW),
    }
    is_met = True
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as root:
        environment = {**os.environ, "HOME": home}
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        Path(root, "a.txt").write_text("a line\n")
        milliseconds([program, "init"], root, environment)
        for name, (command, must) in asked.items():
            # The first call makes what is compiled, and what governance does not know yet.
            milliseconds(command, root, environment)
            least: list[float] = []
            taken: list[float] = []
            for _ in range(RUNS):
                least.append(milliseconds(bare, root, environment))
                taken.append(milliseconds(command, root, environment))
            ratio = statistics.median(a / b for a, b in zip(taken, least, strict=True))
            is_met = is_met and ratio <= must
            print(f"python -c pass     {statistics.median(least):8.2f} ms")
            print(f"{name:<19}{statistics.median(taken):8.2f} ms")
            print(f"{name + ', ratio':<26}{ratio:6.2f}  (must {must})")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
