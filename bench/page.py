"""Run every benchmark and write docs/performance.md from what they print.

    make bench            (python bench/page.py --write docs/performance.md)

Nothing on that page is typed by hand. Figures are of one machine in one run;
carry the ratios, which were taken side by side, and not the milliseconds. Beside the
page stands its picture. What is over its budget (bench/budgets.toml), or was not
measured, is listed at the end, and the exit status is 1. Peers that could not be had are
said and not counted. The one part that takes too long to run each time is copied from
bench/growth_largest.txt, with the command that wrote it.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import budget
import figure
from machine import describe_machine, describe_programs
from msgspec import Struct

HERE = Path(__file__).parent
INTRODUCTION = """\
# Performance

Made by `make bench`, which runs the programs in `bench/` and copies what they print.
A ratio compares two ways of doing the same work, taken in turns in one run;
look at those, as milliseconds are this machine's.
How Paddock and other sets of tools deal with hostile files is in [the comparison](comparison.md).

![how much of each budget is used](performance.svg)
"""


class Part(Struct, frozen=True, dict=True):
    """One section of the page: a benchmark and how it is called."""

    title: str
    program: str
    arguments: tuple[str, ...] = ()
    is_markdown: bool = False
    """Whether what it prints stands on the page as it is."""

    @property
    def command(self) -> str:
        """As a person types it."""
        return f"python bench/{self.call}"

    @property
    def call(self) -> str:
        """The program and its arguments, as bench/budgets.toml names them."""
        return " ".join((self.program, *self.arguments))

    def run(self) -> str:
        """What it prints; what went wrong, if it did."""
        done = subprocess.run(
            [sys.executable, str(HERE / self.program), *self.arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"{done.stdout}\n(ended with {done.returncode}: {done.stderr[-500:]})".strip()
        return done.stdout.strip()

    def section(self, printed: str) -> str:
        """Its part of the page."""
        shown = printed if self.is_markdown else f"```text\n{printed}\n```"
        return f"## {self.title}\n\n`{self.command}`\n\n{shown}\n"


PARTS = (
    Part("The same work beside other sets of tools", "compare.py", ("--speed",), is_markdown=True),
    Part("Search and listing", "search.py"),
    Part("A view deep in a long file", "view.py"),
    Part("An edit", "edit.py"),
    Part("What it costs to be durable and on record", "recorded.py"),
    Part("A governed call around an empty tool", "overhead.py"),
    Part("A policy decision", "policy.py"),
    Part("Binding arguments", "arguments.py"),
    Part("Resolving a path", "resolve.py"),
    Part("Ledger appends", "ledger_append.py"),
    Part("Ledger appends, where a sync takes longer", "ledger_append.py", ("--slower-ms", "0.2")),
    Part("Asking a ledger", "ledger_query.py"),
    Part("Verifying a ledger", "ledger_verify.py", ("--entries", "300000")),
    Part("Starting a confined command", "spawn.py"),
    Part("A command in other sandboxes", "spawn_peers.py"),
    Part("run_shell", "shell.py"),
    Part("The network of a command", "network.py"),
    Part("The hook", "hook.py"),
    Part("The console in a browser", "console.py"),
    Part("MCP", "mcp.py"),
    Part("MCP beside other servers", "mcp_peers.py"),
    Part("Starting the command line", "startup.py"),
    Part("Growth", "growth.py"),
)
LARGEST = HERE / "growth_largest.txt"
LARGEST_PART = Part(
    "Growth, with a ledger of 10^7 entries",
    "growth.py",
    ("--largest", "--write", "bench/growth_largest.txt"),
)
"""Not run with the others; its last output is kept in the repository."""


def run(parts: Sequence[Part]) -> dict[str, str]:
    """What each part printed, by its call."""
    printed = {}
    for part in parts:
        print(f"== {part.command}", end=" ", file=sys.stderr, flush=True)
        began = time.monotonic()
        printed[part.call] = part.run()
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return printed


def write_page(parts: Sequence[Part], printed: dict[str, str], rows: list[budget.Kept]) -> str:
    """The page."""
    pieces = [
        INTRODUCTION,
        f"Machine: {describe_machine()}.",
        f"Programs: {describe_programs()}; others are named with their versions below.\n",
        budget.table(rows) + "\n",
    ]
    pieces += [part.section(printed[part.call]) for part in parts]
    pieces.append(LARGEST_PART.section(_largest()))
    return "\n".join(pieces)


def _largest() -> str:
    """What the long command printed when it was last run."""
    return LARGEST.read_text(encoding="utf-8").strip() if LARGEST.exists() else "not measured yet"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, default=None, help="where the page goes")
    parser.add_argument("--only", default="", help="programs whose name holds this word")
    arguments = parser.parse_args()
    parts = [part for part in PARTS if arguments.only in part.program]
    printed = run(parts)
    budgets = [row for row in budget.read_budgets() if row.bench in printed]
    rows = budget.compare(budgets, printed)
    page = write_page(parts, printed, rows)
    if arguments.write is None:
        print(page)
    else:
        arguments.write.write_text(page, encoding="utf-8")
        arguments.write.with_suffix(".svg").write_text(figure.draw(rows), encoding="utf-8")
    broken = [row for row in rows if not row.holds]
    for row in broken:
        found = "not measured" if row.found is None else f"{row.found:g}"
        print(f"over budget: {row.budget.area}: {found}, must {row.budget.must:g}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
