"""One hook decision in a new process, ledger entry and its sync included.

    python bench/hook.py [--rounds N]

Beside it, in turns, the interpreter alone (`python -I -S -c pass`). Prints milliseconds
(medians) and ratios (medians of neighbouring runs) of both wall and processor time, the second
for machines that do something else besides; with valgrind the instructions of the process.

A start of the interpreter is most of it. The musts: 2.5 times the interpreter's time, 1.6 times
its instructions.
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
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from peers.installing import printed_by

from paddock.apps.hook.settings.claude import Program
from paddock.apps.hook.settings.install import own_program

MUST, MUST_INSTRUCTIONS = 2.5, 1.6


class Case(Struct, frozen=True, dict=True):
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


class Interpreter(Struct, frozen=True, dict=True):
    """A Python that the hook can be installed with."""

    name: str
    program: Program

    @property
    def hook(self) -> tuple[str, ...]:
        return (self.program.python, *self.program.arguments("claude"))

    @property
    def alone(self) -> tuple[str, ...]:
        return (self.program.python, "-I", "-S", "-c", "pass")


class Row(Struct, frozen=True, dict=True):
    """What takes a turn."""

    command: tuple[str, ...]
    environment: dict[str, str]


class Cost(Struct, frozen=True, dict=True):
    """Of one run, in milliseconds; `cpu` is of the process and all that it waited for."""

    wall: float
    cpu: float


def run(command: Sequence[str], data: bytes, environment: dict[str, str]) -> Cost:
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


def instructions(command: Sequence[str], data: bytes, environment: dict[str, str]) -> int:
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


def interpreters() -> list[Interpreter]:
    """What the installed entry starts."""
    program = own_program()
    return [Interpreter(f"as installed, {version_of_python(program.python)}", program)]


def version_of_python(python: str) -> str:
    line = "import platform; print(platform.python_version())"
    return printed_by(python, "-c", line).strip()


def take_turns(rows: dict[str, Row], data: bytes, rounds: int) -> dict[str, list[Cost]]:
    """The costs of each, from rounds in which each has one turn."""
    costs: dict[str, list[Cost]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            costs[name].append(run(row.command, data, row.environment))
    return costs


def compare(case: Case, costs: dict[str, list[Cost]], pythons: list[Interpreter]) -> bool:
    """Print what one case cost; whether its must holds, with the Python that is installed."""
    is_met = True
    titles = [f"{kind}, {each.name}" for each in pythons for kind in ("hook", "alone")]
    for number, title in enumerate(titles):
        print(f"{case.name if number == 0 else '':16}{title:<31}{shown(costs[title])}")
    for each in pythons:
        wall, cpu = ratios(costs[f"hook, {each.name}"], costs[f"alone, {each.name}"])
        is_met = is_met and (each is not pythons[0] or wall <= MUST)
        print(f"{'':16}{each.name:<40}ratio {wall:5.2f}, cpu {cpu:5.2f}  (must {MUST})")
    return is_met


def count(python: Interpreter, root: str, environment: dict[str, str]) -> bool:
    """Print the instructions of a process; whether their must holds."""
    is_met = True
    least = instructions(python.alone, b"", environment)
    print(f"instructions    interpreter {least / 1e6:8.2f} M")
    for case in CASES:
        ours = instructions(python.hook, case.data(root), environment)
        ratio = ours / least
        is_met = is_met and ratio <= MUST_INSTRUCTIONS
        said = f"ratio {ratio:5.2f}  (must {MUST_INSTRUCTIONS})"
        print(f"{'':16}{case.name:<16}{ours / 1e6:8.2f} M   {said}")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    pythons = interpreters()
    is_met = True
    with tempfile.TemporaryDirectory() as directory:
        root, home = f"{directory}/project", f"{directory}/home"
        for folder in (f"{root}/.git", f"{root}/docs", home):
            Path(folder).mkdir(parents=True)
        environment = {"HOME": home, "CLAUDE_PROJECT_DIR": root, "PATH": os.environ["PATH"]}
        rows: dict[str, Row] = {}
        for each in pythons:
            rows[f"hook, {each.name}"] = Row(each.hook, environment)
            rows[f"alone, {each.name}"] = Row(each.alone, environment)
        # The first calls make the plane, the policy's image and what is compiled.
        for case in CASES:
            take_turns(rows, case.data(root), 1)
        for case in CASES:
            costs = take_turns(rows, case.data(root), options.rounds)
            is_met = compare(case, costs, pythons) and is_met
        if shutil.which("valgrind"):
            is_met = count(pythons[0], root, environment) and is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
