"""Every budget is of a benchmark that `make bench` runs, and the page shows all of them."""

import re
import sys

import pytest

from tests.support.repository import ROOT

sys.path.append(str(ROOT / "bench"))

import budget
import page

BUDGETS = budget.read_budgets()
ROW = budget.Budget("a row", "x.py", r"ratio ([\d.]+)", must=1.5, moonshot=1.1)


@pytest.mark.parametrize("row", BUDGETS, ids=lambda row: row.area)
def test_a_budget_names_a_benchmark_and_one_figure(row: budget.Budget):
    assert row.bench in {part.call for part in page.PARTS}
    assert re.compile(row.find).groups == 1
    assert row.moonshot >= row.must if row.least else row.moonshot <= row.must


def test_every_area_has_a_name_of_its_own():
    assert len({row.area for row in BUDGETS}) == len(BUDGETS)


@pytest.mark.parametrize(
    ("printed", "said", "holds"),
    [
        ("ratio 1.0", "moonshot", True),
        ("ratio 1.5", "kept", True),
        ("ratio 1.51", "OVER", False),
        ("it broke", "NOT MEASURED", False),
    ],
)
def test_what_a_run_makes_of_a_budget(printed: str, said: str, holds: bool):
    (kept,) = budget.compare([ROW], {"x.py": printed})

    assert (kept.said, kept.holds) == (said, holds)


def test_a_least_is_broken_from_below():
    least = budget.Budget("a row", "x.py", r"ratio ([\d.]+)", must=4, moonshot=6, least=True)
    told = [budget.compare([least], {"x.py": f"ratio {figure}"})[0].said for figure in (3.9, 4, 6)]

    assert told == ["OVER", "kept", "moonshot"]


def test_a_program_that_fails_is_not_hidden():
    part = page.Part("broken", "no-such-program.py")

    assert "ended with 2" in part.run()


def test_figures_are_shown_as_they_were_printed_and_tables_as_tables():
    figures = page.Part("Figures", "x.py", ("--all",))
    table = page.Part("A table", "y.py", is_markdown=True)

    assert figures.section("1  2") == (
        "## Figures\n\n`python bench/x.py --all`\n\n```text\n1  2\n```\n"
    )
    assert table.section("| 1 |") == "## A table\n\n`python bench/y.py`\n\n| 1 |\n"
