"""The code only gets smaller: `sizes.toml` holds a number for each folder, which may only fall.

A capability that needs more has an `[[added]]` row, up to the cap of its issue. How much is
imported to do one thing has a budget, too: whoever audits that thing has to read all of it.
"""

import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support.repository import PACKAGE, ROOT, git, modules

SIZES = Path(__file__).with_name("sizes.toml")
SLACK_LINES = 60
"""A number may stand so far above what is there; then it has to follow."""
MODULES_MAX = 18
SMALL_LINES = 80
CLOSURE = """
import importlib, pkgutil, sys
asked = importlib.import_module(sys.argv[1])
for found in pkgutil.iter_modules(getattr(asked, "__path__", ())):
    importlib.import_module(f"{sys.argv[1]}.{found.name}")
files = {getattr(module, "__file__", None) for name, module in sys.modules.items()
         if name.split(".")[0] == "paddock"}
lines = 0
for file in files - {None}:
    with open(file, encoding="utf-8") as text:
        lines += sum(1 for _ in text)
print(len(files - {None}), lines)
"""


class Size(Struct, frozen=True):
    lines: int = 0
    modules: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.lines + other.lines, self.modules + other.modules)


def read(text: str) -> dict[str, Size]:
    """What each folder may hold: its number, and what was added to it since."""
    table = tomllib.loads(text)
    allowed = defaultdict(Size, {name: Size(**row) for name, row in table["folders"].items()})
    for row in table.get("added", ()):
        assert row["capability"], row
        assert row["reason"], row
        allowed[row["folder"]] += Size(row["lines"], row["modules"])
    return dict(allowed)


def measure(paths: Iterable[Path], package: Path) -> dict[str, Size]:
    found: defaultdict[str, Size] = defaultdict(Size)
    for path in paths:
        folder = path.parent.relative_to(package).as_posix()
        lines = path.read_text(encoding="utf-8").count("\n")
        found[folder] += Size(lines, path.name != "__init__.py")
    return dict(found)


def breaches(allowed: Mapping[str, Size], found: Mapping[str, Size]) -> list[str]:
    """What is larger than it may be, and which numbers have to follow what has become smaller."""
    wrong = [f"{name}: not in sizes.toml" for name in found.keys() - allowed.keys()]
    for name, most in allowed.items():
        there = found.get(name, Size())
        if there.lines > most.lines or there.modules > most.modules:
            wrong.append(f"{name}: {there}, at most {most}")
        elif there.modules < most.modules or there.lines + SLACK_LINES < most.lines:
            wrong.append(f"{name}: {most} in sizes.toml may fall to {there}")
    return sorted(wrong)


def test_no_folder_is_larger_than_its_number_and_numbers_follow_what_falls():
    found = measure(modules(), PACKAGE)

    assert breaches(read(SIZES.read_text(encoding="utf-8")), found) == []


def test_what_grew_and_what_fell_is_named():
    allowed = {"a": Size(100, 2), "b": Size(100, 2), "c": Size(100, 2), "d": Size(100, 2)}
    found = {"a": Size(101, 2), "b": Size(39, 2), "c": Size(90, 3), "d": Size(40, 2), "e": Size()}

    assert [line.partition(":")[0] for line in breaches(allowed, found)] == ["a", "b", "c", "e"]


def test_an_added_row_counts_for_its_folder():
    text = """
        [folders]
        kernel = { lines = 10, modules = 1 }
        [[added]]
        capability = "a wall"
        folder = "kernel"
        lines = 5
        modules = 1
        reason = "nobody else does it"
    """

    assert read(text) == {"kernel": Size(15, 2)}


def test_in_this_clones_history_the_sum_of_the_numbers_only_falls():
    place = SIZES.relative_to(ROOT).as_posix()
    commits = git("log", "--first-parent", "--format=%H", "--", place).split()
    texts = [
        SIZES.read_text(encoding="utf-8"),
        *(git("show", f"{each}:{place}") for each in commits),
    ]
    sums = [
        sum((Size(**row) for row in tomllib.loads(text)["folders"].values()), Size())
        for text in texts
    ]

    grown = [
        (new, old)
        for new, old in pairwise(sums)
        if new.lines > old.lines or new.modules > old.modules
    ]
    assert grown == []


def test_a_directory_has_eighteen_modules_unless_its_number_still_falls_to_that():
    crowded = {
        name: size.modules
        for name, size in measure(modules(), PACKAGE).items()
        if size.modules > MODULES_MAX
    }

    assert crowded == tomllib.loads(SIZES.read_text(encoding="utf-8"))["crowded"]


def test_modules_of_less_than_eighty_lines_become_fewer():
    small = [
        path
        for path in modules()
        if path.name != "__init__.py" and path.read_text(encoding="utf-8").count("\n") < SMALL_LINES
    ]

    assert len(small) <= tomllib.loads(SIZES.read_text(encoding="utf-8"))["small_modules"]


@pytest.mark.parametrize(
    ("name", "most"), tomllib.loads(SIZES.read_text(encoding="utf-8"))["closures"].items()
)
def test_what_is_read_to_audit_one_thing_stays_within_its_budget(name, most):
    command = [sys.executable, "-c", CLOSURE, f"paddock.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, lines = map(int, done.stdout.split())

    assert count <= most["modules"]
    assert lines <= most["lines"]
