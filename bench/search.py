"""Searching, beside what ripgrep and ls do alone, and beside a plain loop.

    python bench/search.py [--corpus DIR] [--rounds N] [--only WORD] [--profile]

Without --corpus, a tree of 60,000 real files is copied from this machine's own /usr and
Python (once: it stays in the temporary directory), with nested .gitignore files and an
empty repository. SMALL is 562 files of Python's library, some 15 MB; a third directory
holds 100,000 empty files.

Ours are whole calls of the tools: resolving, the policy's filter with the standard
profile, ripgrep, reading every shown row again, text and details. Theirs are bare
commands whose output is read through a pipe and counted. Runs alternate in one process;
the ratio is the median of the ratios of neighbours. A row over its `must` is BROKEN, and
the exit code is 1.
"""

import argparse
import cProfile
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from paddock.policy.engine import load_policy
from paddock.runtime.prepared import PolicyJudge
from paddock.tools.grep import GREP
from paddock.tools.listing import FIND, LS
from paddock.tools.spec import Ports, ToolOutput
from paddock.values.decisions import Agent
from paddock.workspace import Workspace
from paddock.workspace.paths import ROOT
from paddock.workspace.search.grep import search_content
from paddock.workspace.search.request import Regex, Wanted
from paddock.workspace.search.ripgrep import ripgrep

BIG_FILES = 60_000
SMALL_FILES = 562
SMALL_BYTES_MIN = 8_000
ENTRIES = 100_000
FILE_BYTES_MAX = 300_000
RULES_EVERY = 250
RULES = "*.o\n*.pyc\n/build/\nout-*\n!keep.o\n*.tmp\nfoo/bar\n"
BULK = "e"
RARE = "zqxj_never_there"
REGEX = "[A-Z]+_SUSPEND"
COMMON = "def"


# --- the trees -----------------------------------------------------------------


def sources() -> list[Path]:
    """Where real files are on most machines."""
    usr = Path("/usr")
    places = [Path(sys.base_prefix, "lib"), usr / "include", *sorted(usr.glob("lib/python3*"))]
    return [path for path in (*places, usr / "share", usr / "lib") if path.is_dir()]


def real_files(root: Path) -> Iterator[Path]:
    """Regular files of a moderate size, in order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                yield path


def copy_into(target: Path, roots: list[Path], count: int, bytes_min: int = 1) -> int:
    """Copy the first files of `roots`; names that ripgrep would pass by are renamed."""
    done = 0
    for root in roots:
        for path in real_files(root):
            if done >= count:
                return done
            if not bytes_min <= path.stat().st_size <= FILE_BYTES_MAX:
                continue
            inner = str(path).strip("/").replace("node_modules", "modules").replace("/.", "/_")
            place = target / inner
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(path, place)
            except OSError:
                continue
            done += 1
            if done % RULES_EVERY == 0:
                (place.parent / ".gitignore").write_text(RULES)
    return done


def build(where: Path) -> None:
    """Make the three trees, whole or not at all."""
    fresh = where.with_name(f"{where.name}.{os.getpid()}")
    for name in ("big", "small", "many"):
        (fresh / name / ".git").mkdir(parents=True)
    copy_into(fresh / "big", sources(), BIG_FILES)
    (fresh / "big" / ".gitignore").write_text("*.pyc\n*.so\n*.a\n.*.swp\n/tmp/\n*.log\n")
    copy_into(fresh / "small", [Path(os.__file__).parent], SMALL_FILES, SMALL_BYTES_MIN)
    for number in range(ENTRIES):
        (fresh / "many" / f"entry-{number * 7919 % ENTRIES:06d}.txt").touch()
    fresh.rename(where)


# --- what is run -----------------------------------------------------------------


class Desk:
    """Tools on one tree, as an agent with the standard profile has them."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        chain = (Agent("main", "standard"),)
        judge = PolicyJudge(load_policy(None), chain)
        self.ports = Ports(Workspace.open(self.root), judge)
        self.tools = {tool.name: tool for tool in (GREP, FIND, LS)}

    def call(self, name: str, **arguments: object) -> ToolOutput:
        tool = self.tools[name]
        bound, _ = tool.binder.bind(arguments)
        return tool.handler.run(tool.handler.resolve(bound, self.ports), self.ports)

    def bulk(self, pattern: str) -> int:
        """Every match of a tree, confirmed, without a tool's limits."""
        wanted = Wanted(Regex(pattern), 0, 10_000_000)
        return search_content(self.ports.workspace, self.ports.shown, ROOT, wanted).matches


def bare(command: list[str], cwd: str, lines_max: float = float("inf")) -> int:
    """Count a command's lines; kill it once there are so many."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        lines = 0
        while piece := os.read(process.stdout.fileno(), 1 << 18):
            lines += piece.count(b"\n")
            if lines >= lines_max:
                process.kill()
                break
    return lines


def listed(command: list[str], cwd: str) -> int:
    """A command's lines as a list."""
    return len(subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=False).stdout.split())


def loop_grep(root: str, pattern: str) -> int:
    """What one writes first: every file, every line."""
    found, regex = 0, re.compile(pattern.encode())
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        for name in names:
            with Path(folder, name).open("rb") as file:
                found += sum(1 for line in file if regex.search(line))
    return found


def loop_find(root: str, suffix: str) -> int:
    """As above, for names."""
    return sum(1 for path in sorted(Path(root).rglob("*")) if path.name.endswith(suffix))


class Row(Struct, frozen=True, dict=True):
    """One comparison. `loop` is run once, for information."""

    name: str
    must: float
    moonshot: float
    ours: Callable[[], object]
    theirs: Callable[[], object]
    loop: Callable[[], object] | None = None
    is_slow: bool = False


def rows(where: Path) -> list[Row]:
    """Every comparison that is made."""
    rg = ripgrep()
    big, small, many = (Desk(where / name) for name in ("big", "small", "many"))
    text = [rg, "-nH", "-C2"]

    def grep(desk: Desk, pattern: str, must: float, moonshot: float) -> Row:
        size = "BIG" if desk is big else "SMALL"
        return Row(
            f"grep {size} {pattern}",
            must,
            moonshot,
            lambda: desk.call("grep", pattern=pattern, context=2, limit=500).details,
            lambda: bare([*text, pattern], desk.root),
            lambda: loop_grep(desk.root, pattern),
            is_slow=desk is big,
        )

    def first(desk: Desk, moonshot: float) -> Row:
        return Row(
            f"grep {'BIG' if desk is big else 'SMALL'} first 100 of {COMMON}",
            2.5,
            moonshot,
            lambda: desk.call("grep", pattern=COMMON, limit=100).details,
            lambda: bare([rg, "-nH", COMMON], desk.root, 100),
        )

    def find(desk: Desk, pattern: str, must: float, moonshot: float) -> Row:
        return Row(
            f"find {'BIG' if desk is big else 'SMALL'} {pattern}",
            must,
            moonshot,
            lambda: desk.call("find", pattern=pattern).details,
            lambda: listed([rg, "--files", "-g", pattern], desk.root),
            lambda: loop_find(desk.root, pattern.removeprefix("*")),
        )

    return [
        grep(big, RARE, 1.15, 1.03),
        grep(big, REGEX, 1.15, 1.03),
        grep(small, RARE, 1.25, 1.05),
        grep(small, "[A-Z]+_ERR", 1.25, 1.05),
        first(big, 1.2),
        first(small, 0.1),
        Row(
            f"bulk SMALL {BULK}",
            3.5,
            2.2,
            lambda: small.bulk(BULK),
            lambda: bare([rg, "-nH", BULK], small.root),
            is_slow=True,
        ),
        find(big, "*.h", 1.3, 1.1),
        find(big, "setup.py", 1.3, 1.1),
        find(small, "*.py", 0.6, 0.3),
        find(small, RARE, 0.6, 0.3),
        Row(
            "ls 100k limit 500",
            1.5,
            0.95,
            lambda: many.call("ls", limit=500).details,
            lambda: listed(["ls", "-1fp"], many.root),
            lambda: sorted(Path(many.root).iterdir(), key=lambda path: path.name.casefold())[:500],
        ),
    ]


def milliseconds(act: Callable[[], object]) -> tuple[float, object]:
    started = time.perf_counter_ns()
    answer = act()
    return (time.perf_counter_ns() - started) / 1e6, answer


def measure(row: Row, rounds: int) -> bool:
    """Print one comparison; whether its must holds."""
    _, expected = milliseconds(row.ours)
    milliseconds(row.theirs)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(max(3, rounds // 4) if row.is_slow else rounds):
        spent, answer = milliseconds(row.ours)
        assert answer == expected, f"{row.name}: another answer"
        ours.append(spent)
        theirs.append(milliseconds(row.theirs)[0])
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    said = "kept" if ratio <= row.must else "BROKEN"
    said = "moonshot" if ratio <= row.moonshot else said
    loop = "" if row.loop is None else f"   loop {milliseconds(row.loop)[0]:8.1f} ms"
    print(
        f"{row.name:34} {statistics.median(ours):8.2f} ms {statistics.median(theirs):8.2f} ms"
        f"  x {ratio:5.2f}  least x {min(ours) / min(theirs):5.2f}  must {row.must:4.2f}"
        f"  {said}{loop}",
        flush=True,
    )
    return ratio <= row.must


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = Path(tempfile.gettempdir(), "paddock-bench-search")
    parser.add_argument("--corpus", type=Path, default=default)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        print(f"copying files to {options.corpus}", flush=True)
        build(options.corpus)
    kept = True
    chosen = [row for row in rows(options.corpus.resolve()) if options.only in row.name]
    print(f"{'':34} {'ours':>11} {'theirs':>11}   load {os.getloadavg()[0]:.2f}")
    for row in chosen:
        if options.profile:
            cProfile.runctx("for _ in range(5): row.ours()", {}, {"row": row}, sort="tottime")
        kept = measure(row, options.rounds) and kept
    print(f"load {os.getloadavg()[0]:.2f}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
