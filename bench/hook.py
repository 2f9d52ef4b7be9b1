"""One hook decision in a new process, ledger entry and its sync included.

    python bench/hook.py [--rounds N] [--jq PATH ...]

Beside it, in turns, a bash script with jq and realpath that makes the same checks of paths
(bench/hook_jq.sh; it only adds a line to a log), once for each jq given, and the
interpreter alone (`python -I -S -c pass`). Prints milliseconds (medians) and ratios
(medians of neighbouring runs) of both wall and processor time, the second for machines
that do something else besides; with valgrind the instructions of the whole process.

Musts: 0.4 of the script with jq 1.6, 1.0 of it with jq 1.7 or newer, and 1.6 times the
interpreter's instructions. Aims: 0.2, 0.7 and 1.1.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAUNCHER = HERE.parent / "src" / "paddock" / "apps" / "hook" / "launch.py"
MUST_OLD_JQ, MUST_NEW_JQ, MUST_INSTRUCTIONS = 0.4, 1.0, 1.6


@dataclass(frozen=True)
class Case:
    """One event."""

    name: str
    tool: str
    given: dict[str, str]

    def data(self, root: str) -> bytes:
        event = {
            "session_id": "6d1f3a52-7a5e-4e0c-9a52-5a2f0f0f9c11",
            "cwd": root,
            "permission_mode": "default",
            "hook_event_name": "PreToolUse",
            "tool_name": self.tool,
            "tool_input": {key: value.format(root=root) for key, value in self.given.items()},
            "tool_use_id": "toolu_01ABCDEFGHIJKLMNOPQRSTUV",
        }
        return json.dumps(event).encode()


CASES = (
    Case("write, allowed", "Write", {"file_path": "{root}/docs/a.md", "content": "x" * 2000}),
    Case("write, denied", "Write", {"file_path": "{root}/.git/config", "content": "x" * 2000}),
    Case("command", "Bash", {"command": "npm test 2>&1 | tail -20", "description": "Run it"}),
)


@dataclass(frozen=True)
class Cost:
    """Of one run, in milliseconds; `cpu` is of the process and all that it waited for."""

    wall: float
    cpu: float


def run(command: list[str], data: bytes, environment: dict[str, str]) -> Cost:
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        started = time.perf_counter_ns()
        child = subprocess.Popen(
            command, stdin=given, env=environment, stdout=subprocess.DEVNULL, cwd="/"
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = (time.perf_counter_ns() - started) / 1e6
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return Cost(wall, (used.ru_utime + used.ru_stime) * 1e3)


def instructions(command: list[str], data: bytes, environment: dict[str, str]) -> int:
    counted = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        input=data,
        env=environment,
        capture_output=True,
        check=True,
        cwd="/",
    )
    found = re.search(rb"refs:\s+([\d,]+)", counted.stderr)
    assert found is not None
    return int(found[1].replace(b",", b""))


def version_of(jq: str) -> tuple[int, int]:
    said = subprocess.run([jq, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def shown(costs: list[Cost]) -> str:
    wall = statistics.median(cost.wall for cost in costs)
    cpu = statistics.median(cost.cpu for cost in costs)
    return f"{wall:8.2f} ms, cpu {cpu:8.2f} ms"


def ratios(ours: list[Cost], theirs: list[Cost]) -> tuple[float, float]:
    """Medians of neighbouring runs: wall and processor time."""
    pairs = list(zip(ours, theirs, strict=True))
    return (
        statistics.median(one.wall / other.wall for one, other in pairs),
        statistics.median(one.cpu / other.cpu for one, other in pairs),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--jq", action="append", default=[], help="default: the one on the PATH")
    options = parser.parse_args()
    found = shutil.which("jq")
    programs = options.jq or ([found] if found else [])
    hook = [sys.executable, "-I", "-S", str(LAUNCHER), "--client", "claude"]
    floor = [sys.executable, "-I", "-S", "-c", "pass"]
    is_met = True
    with tempfile.TemporaryDirectory() as directory:
        root, home = f"{directory}/project", f"{directory}/home"
        for folder in (f"{root}/.git", f"{root}/docs", home):
            Path(folder).mkdir(parents=True)
        environment = {
            "HOME": home,
            "CLAUDE_PROJECT_DIR": root,
            "PATH": os.environ["PATH"],
            "HOOK_LOG": f"{directory}/log",
        }
        # The first call makes the plane and the policy's image.
        for case in CASES:
            run(hook, case.data(root), environment)
        for case in CASES:
            data = case.data(root)
            rows: dict[str, list[Cost]] = {"interpreter": [], "hook": []}
            rows |= {program: [] for program in programs}
            for _ in range(options.rounds):
                rows["interpreter"].append(run(floor, data, environment))
                rows["hook"].append(run(hook, data, environment))
                for program in programs:
                    script = ["bash", str(HERE / "hook_jq.sh")]
                    rows[program].append(run(script, data, environment | {"JQ": program}))
            print(f"{case.name:<16}hook         {shown(rows['hook'])}")
            print(f"{'':16}interpreter  {shown(rows['interpreter'])}")
            for program in programs:
                version = version_of(program)
                must = MUST_OLD_JQ if version < (1, 7) else MUST_NEW_JQ
                wall, cpu = ratios(rows["hook"], rows[program])
                if case.tool != "Bash":
                    # The script looks at no commands, so there it does less.
                    is_met = is_met and wall <= must
                label = f"bash, jq {version[0]}.{version[1]}"
                said = f"ratio {wall:5.2f}, cpu {cpu:5.2f}  (must {must})"
                print(f"{'':16}{label:<13}{shown(rows[program])}   {said}")
        if shutil.which("valgrind"):
            least = instructions(floor, b"", environment)
            print(f"instructions    interpreter {least / 1e6:8.2f} M")
            for case in CASES:
                ours = instructions(hook, case.data(root), environment)
                ratio = ours / least
                is_met = is_met and ratio <= MUST_INSTRUCTIONS
                said = f"ratio {ratio:5.2f}  (must {MUST_INSTRUCTIONS})"
                print(f"{'':16}{case.name:<16}{ours / 1e6:8.2f} M   {said}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
