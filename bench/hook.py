"""One hook decision in a new process, ledger entry and its sync included.

    python bench/hook.py [--rounds N] [--jq PATH ...]

Beside it, in turns, a bash script with jq and realpath that makes the same checks of paths
(bench/hook_jq.sh; of a command it sees little, and it only adds a line to a log), once for
each jq, and the interpreter alone (`python -I -S -c pass`). Without --jq these are the one on
the PATH and, where that is older than 1.7, one built from PyPI's sources. Prints milliseconds
(medians) and ratios (medians of neighbouring runs) of both wall and processor time, the second
for machines that do something else besides; with valgrind the instructions of the process.

A start of the interpreter is most of it, and builds of Python differ in that: `paddock hook
install` names the quickest that fits, and where that is not this environment's own, the own
has rows, too. The musts are for what is installed.

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
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from peers.installing import Unavailable, new_jq, printed_by

from paddock.apps.hook.settings.claude import Program
from paddock.apps.hook.settings.interpreters import choose_program, find_programs

HERE = Path(__file__).resolve().parent
NEW_JQ = (1, 7)
MUST_OLD_JQ, MUST_NEW_JQ, MUST_INSTRUCTIONS = 0.4, 1.0, 1.6


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


def version_of(jq: str) -> tuple[int, int]:
    said = printed_by(jq, "--version")
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


def interpreters() -> list[Interpreter]:
    """What the installed entry starts here, and this environment's own where that is another."""
    programs = find_programs()
    chosen = choose_program(programs)
    print(f"paddock hook install names {chosen.python}")
    found = [Interpreter(f"as installed, {version_of_python(chosen.python)}", chosen)]
    if chosen is not programs[0]:
        own = version_of_python(programs[0].python)
        found.append(Interpreter(f"its own Python {own}", programs[0]))
    return found


def version_of_python(python: str) -> str:
    line = "import platform; print(platform.python_version())"
    return printed_by(python, "-c", line).strip()


def scripts(given: list[str]) -> dict[str, tuple[int, int]]:
    """Each jq with its version: those given, or an old one and a new one."""
    if given:
        return {jq: version_of(jq) for jq in given}
    installed = shutil.which("jq")
    found = {installed: version_of(installed)} if installed else {}
    if not any(version < NEW_JQ for version in found.values()):
        print(f"not here: jq 1.6 or earlier: on the PATH is {installed or 'none'}")
    if not any(version >= NEW_JQ for version in found.values()):
        try:
            jq = new_jq()
            found[jq] = version_of(jq)
        except Unavailable as reason:
            print(f"not here: jq 1.7 or later: {reason}")
    return found


def take_turns(rows: dict[str, Row], data: bytes, rounds: int) -> dict[str, list[Cost]]:
    """The costs of each, from rounds in which each has one turn."""
    costs: dict[str, list[Cost]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            costs[name].append(run(row.command, data, row.environment))
    return costs


def compare(
    case: Case,
    costs: dict[str, list[Cost]],
    pythons: list[Interpreter],
    programs: dict[str, tuple[int, int]],
) -> bool:
    """Print what one case cost; whether its musts hold, with this environment's Python."""
    is_met = True
    titles = [f"{kind}, {each.name}" for each in pythons for kind in ("hook", "alone")]
    for number, title in enumerate(titles):
        print(f"{case.name if number == 0 else '':16}{title:<31}{shown(costs[title])}")
    for program, version in programs.items():
        must = MUST_OLD_JQ if version < NEW_JQ else MUST_NEW_JQ
        label = f"bash, jq {version[0]}.{version[1]}"
        print(f"{'':16}{label:<31}{shown(costs[program])}")
        for each in pythons:
            wall, cpu = ratios(costs[f"hook, {each.name}"], costs[program])
            if each is pythons[0] and case.tool != "Bash":
                # Of a command the script sees little, so there it does less.
                is_met = is_met and wall <= must
            said = f"ratio {wall:5.2f}, cpu {cpu:5.2f}  (must {must})"
            print(f"{'':16}{f'{each.name} / {label}':<40}{said}")
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
    parser.add_argument("--jq", action="append", default=[])
    options = parser.parse_args()
    pythons, programs = interpreters(), scripts(options.jq)
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
        rows: dict[str, Row] = {}
        for each in pythons:
            rows[f"hook, {each.name}"] = Row(each.hook, environment)
            rows[f"alone, {each.name}"] = Row(each.alone, environment)
        for program in programs:
            script = ("bash", str(HERE / "hook_jq.sh"))
            rows[program] = Row(script, environment | {"JQ": program})
        # The first calls make the plane, the policy's image and what is compiled.
        for case in CASES:
            take_turns(rows, case.data(root), 1)
        for case in CASES:
            costs = take_turns(rows, case.data(root), options.rounds)
            is_met = compare(case, costs, pythons, programs) and is_met
        if shutil.which("valgrind"):
            is_met = count(pythons[0], root, environment) and is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
