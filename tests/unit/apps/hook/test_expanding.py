"""What patterns of a line stand for, and how much is looked at for it."""

import glob
import os
from pathlib import Path

import pytest

from paddock.apps.hook import unconfined
from paddock.apps.hook.unconfined import read_targets
from paddock.policy.commands import parse_line


@pytest.fixture
def place(tmp_path: Path) -> str:
    for name in ("a/x", "a/.y", "b.d/x", "b.d/c/x", ".git/config", "x", "[z]"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "out").symlink_to("b.d")
    (tmp_path / "round").symlink_to("round")
    return str(tmp_path)


def found(pattern: str, place: str) -> set[str]:
    """What a line that touches the pattern is judged for, besides the pattern as it stands."""
    targets = read_targets(parse_line(f"touch {pattern}"), place).changes
    return {os.path.normpath(name) for _, _, name in targets if name != pattern}


@pytest.mark.parametrize(
    "pattern",
    [
        "*", "*/x", "*/*", ".*", ".*/*", "a/*", "a/.*", "a/../*", "*/../*/x", "./*", "[ab]*",
        "?", "out/*", "*/c/*", "x/*", "no/*", "[[]z]", "a//*", "*//x", "*/./x", "[z", "round/*",
        "*/nothing",
    ],
)  # fmt: skip
def test_a_pattern_stands_for_what_glob_says(pattern, place):
    wanted = {os.path.normpath(each) for each in glob.glob(pattern, root_dir=place)}
    assert found(pattern, place) - {pattern} == wanted - {pattern}


def test_two_stars_go_through_any_number_of_directories_also_hidden_ones(place):
    assert found("**/x", place) == {"x", "a/x", "b.d/x", "b.d/c/x", "out/x"}
    assert found("**/config", place) == {".git/config"}


def test_a_pattern_from_the_top_of_the_disk_does_too(place):
    pattern = os.path.join(place, "*/x")
    assert found(pattern, place) == set(glob.glob(pattern))


def test_what_a_quoted_hat_or_a_shells_own_class_would_stand_for(place):
    assert found("'[^a]'", place) >= {"x"}
    assert read_targets(parse_line("touch [[:alpha:]]"), place).unsure


def test_steps_are_counted_over_all_patterns(place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unconfined, "STEPS_MAX", 12)
    assert read_targets(parse_line("touch a/*"), place).unsure == {}
    assert read_targets(parse_line("touch */* a/*"), place).unsure


@pytest.mark.parametrize("pattern", ["*/../" * 12 + "x*", "*/" * 2_000 + "x", "**/" * 50 + "x"])
def test_a_pattern_that_looks_into_the_same_directories_again_and_again_ends(pattern, place):
    for number in range(30):
        os.mkdir(os.path.join(place, f"d{number}"))
    assert len(found(pattern, place)) <= unconfined.EXPANDED_MAX


def test_one_that_stands_for_too_many_names_is_asked_about(place):
    for number in range(30):
        os.mkdir(os.path.join(place, f"d{number}"))
    assert read_targets(parse_line("rm " + "*/../" * 12 + "x*"), place).unsure
