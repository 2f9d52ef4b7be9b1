"""One command in a sandbox: Paddock's beside others, and beside none.

    python bench/spawn_peers.py [--rounds 15]

Two commands: /usr/bin/true, and a shell that writes a file of the workspace. Every way has a
turn in each round; shown are medians in milliseconds, and medians of the ratios of
neighbours: of each to the bare command, and of Paddock's ways to each.

  made ahead   Paddock's sandbox alone, where one was made after the command before
  not ahead    the same, made while the command waits
  run_shell    the whole call: parsed, decided, recorded durably before and after, and what
               the command wrote judged, kept in the history and committed
  srt, Codex   a process each that sets the sandbox up, as `paddock call` is

Other sandboxes are installed by name at first; each is tried before it is timed, and one
that cannot be had, or does not confine here, is said and not counted.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.sandboxes import Spawned, Way, gather, try_out, writing
from spawn import PAUSE_S, milliseconds

import paddock
from paddock.sandbox.values import CommandRequest
from tests.support.sandboxes import Room, a_room
from tests.support.shells import Terminal, Yard

BARE, WARM, WHOLE = "none", "Paddock, made ahead", "Paddock, run_shell"
TRUE = ("/usr/bin/true",)


class Sandbox(Struct, dict=True):
    """Paddock's launcher. What a command writes is dropped, so it takes no part in writing."""

    name: str
    room: Room
    networks: list[str]
    """Taken in turns: with two, the sandbox that was made ahead is never the one asked for."""

    @property
    def workspace(self) -> Path:
        return self.room.workspace

    def run(self, argv: Sequence[str]) -> None:
        plan = replace(self.room.plan(), network=self.networks[0])
        self.networks.append(self.networks.pop(0))
        with self.room.launcher.open_stage(plan, self.room.fd) as stage:
            request = CommandRequest(plan, tuple(argv), ".", 60.0, 100_000)
            assert self.room.launcher.run(request, stage).exit_code == 0

    def end(self) -> None:
        pass


class Tool(Struct, dict=True):
    """`run_shell`, as an agent calls it."""

    name: str
    terminal: Terminal

    @property
    def workspace(self) -> Path:
        return self.terminal.yard.root

    def run(self, argv: Sequence[str]) -> None:
        details = self.terminal.run(shlex.join(argv))
        assert details["exit_code"] == 0, details
        assert not details["changes_refused"], details

    def end(self) -> None:
        pass


class Command(Spawned):
    """`paddock call`, a process for each."""

    def run(self, argv: Sequence[str]) -> None:
        super().run((json.dumps({"command": shlex.join(argv)}), "--yes"))


def own(base: Path, stack: ExitStack) -> list[Way]:
    """Paddock's ways."""
    rooms: list[Room] = []
    for name in ("ahead", "not-ahead"):
        (base / name).mkdir()
        rooms.append(stack.enter_context(a_room(base / name)))
    yard, other = Yard(base / "tool").make(), Yard(base / "call").make()
    terminal = stack.enter_context(yard.opened())
    program = str(Path(sys.executable).with_name("paddock"))
    return [
        Sandbox(WARM, rooms[0], ["none"]),
        Sandbox("Paddock, not ahead", rooms[1], ["none", "loopback"]),
        Tool(WHOLE, terminal),
        Command("paddock call", other.root, (program, "call", "run_shell"), other.all_variables),
    ]


def take_turns(
    ways: list[Way], commands: Sequence[Sequence[str]], pause_s: float
) -> dict[str, list[float]]:
    """Milliseconds of each way, from rounds in which each has one turn; the first is not kept."""
    took: dict[str, list[float]] = {way.name: [] for way in ways}
    for number, command in enumerate(commands):
        for way in ways:
            # Or what those before have written would be waited for by who waits for the disk.
            os.sync()
            spent = milliseconds(lambda: way.run(command))  # noqa: B023 - called in this turn
            if number:
                took[way.name].append(spent)
            # The next sandbox is made meanwhile, as between two calls of a model.
            time.sleep(pause_s)
    return took


def show(title: str, took: dict[str, list[float]]) -> list[str]:
    """A line for each way: its median, and the ratios."""
    ours = [name for name in (WARM, WHOLE) if name in took]
    lines = []
    for name, each in took.items():
        ratios = [median_ratio(each, took[BARE])]
        ratios += [median_ratio(took[one], each) for one in ours]
        figures = "".join(f"{ratio:17.3f}" for ratio in ratios)
        lines.append(f"{title:6}{name:30}{statistics.median(each):9.2f}{figures}")
    columns = ("to none", *(f"{name.partition(', ')[2]} to it" for name in ours))
    head = "".join(f"{column:>17}" for column in columns)
    return [f"{'':36}{'ms':>9}{head}", *lines]


def median_ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds between two turns")
    options = parser.parse_args()
    numbers = range(options.rounds + 1)
    with tempfile.TemporaryDirectory(prefix="paddock-spawn-") as name, ExitStack() as stack:
        base = Path(name)
        (base / "theirs").mkdir()
        theirs, versions, away = gather(base / "theirs", base / "settings.json")
        for way in theirs:
            stack.callback(way.end)
        ours = own(base, stack)
        for way in ours:
            if not isinstance(way, Sandbox):
                try_out(way, base / "not-for-paddock")
        print(", ".join([f"Paddock {paddock.__version__}", *versions]))
        for who in away:
            print(f"not here: {who}")
        bare = Spawned(BARE, base / "theirs")
        ways = [bare, *ours, *theirs]
        print("\n".join(show("true", take_turns(ways, [TRUE for _ in numbers], options.pause))))
        ways = [way for way in ways if not isinstance(way, Sandbox)]
        lines = [writing(f"text{number}") for number in numbers]
        print("\n".join(show("write", take_turns(ways, lines, options.pause))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
