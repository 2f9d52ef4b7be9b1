"""The budgets of bench/budgets.toml, and what a run of the benchmarks makes of them."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

FILE = Path(__file__).with_name("budgets.toml")


class Budget(Struct, frozen=True, dict=True):
    """One promise: a ratio that a benchmark prints, and the most that it may be."""

    area: str
    bench: str
    """The benchmark, as `make bench` calls it, without `python bench/`."""
    find: str
    """A regular expression in what it prints; its one group is the figure."""
    must: float
    moonshot: float
    least: bool = False
    """Whether `must` is the least that it may be, instead of the most."""
    unless: str | None = None
    """A regular expression in what it prints where the other side could not be had here: then
    there is nothing to keep."""


class Kept(Struct, frozen=True, dict=True):
    """A budget beside what was measured; None where the benchmark did not print it."""

    budget: Budget
    found: float | None
    is_away: bool = False
    """Whether there was nobody to measure against."""

    @property
    def said(self) -> str:
        """In one word, for the table."""
        if self.is_away:
            return "not here"
        if self.found is None:
            return "NOT MEASURED"
        if not self.holds:
            return "OVER"
        return "moonshot" if self._within(self.budget.moonshot) else "kept"

    @property
    def holds(self) -> bool:
        """Whether the must is met, where there is one."""
        return self.is_away or self._within(self.budget.must)

    @property
    def share(self) -> float | None:
        """How much of the budget is used: 1 is all of it."""
        if self.found is None:
            return None
        used = self.found / self.budget.must
        return 1 / used if self.budget.least else used

    def _within(self, bound: float) -> bool:
        if self.found is None:
            return False
        return self.found >= bound if self.budget.least else self.found <= bound


def read_budgets() -> list[Budget]:
    """Return the budgets in the file's order. Raises: TypeError for an unknown key."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["budget"]
    return [Budget(**row) for row in rows]


def compare(budgets: list[Budget], printed: Mapping[str, str]) -> list[Kept]:
    """Find each budget's figure in what its benchmark printed."""
    return [_look(budget, printed.get(budget.bench, "")) for budget in budgets]


def _look(budget: Budget, printed: str) -> Kept:
    found = re.search(budget.find, printed, re.MULTILINE)
    if found:
        return Kept(budget, float(found[1]))
    is_away = budget.unless is not None and re.search(budget.unless, printed) is not None
    return Kept(budget, None, is_away)


def table(rows: list[Kept]) -> str:
    """The rows as Markdown."""
    lines = ["| area | measured | must | moonshot | |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        budget = row.budget
        found = "-" if row.found is None else f"{row.found:g}"
        sign = "≥" if budget.least else "≤"
        lines.append(
            f"| {budget.area} | {found} | {sign} {budget.must:g} | {sign} {budget.moonshot:g} "
            f"| {row.said} |"
        )
    return "\n".join(lines)
