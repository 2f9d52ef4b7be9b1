"""What patterns of a line stand for, and how much is looked at for it."""

import glob
import os
from pathlib import Path

import pytest

from paddock.apps.hook import expanding
from paddock.apps.hook.expanding import Expander, TooManyStepsError


@pytest.fixture
def place(tmp_path: Path) -> str:
    for name in ("a/x", "a/.y", "b.d/x", "b.d/c/x", ".git/config", "x", "[z]"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "out").symlink_to("b.d")
    (tmp_path / "round").symlink_to("round")
    return str(tmp_path)


@pytest.mark.parametrize(
    "pattern",
    [
        "*", "*/", "*/x", "*/*", ".*", ".*/*", "**/x", "a/*", "a/.*", "a/../*", "*/../*/x", "./*",
        "[ab]*", "[!a]*/", "?", "out/*", "*/c/*", "x/*", "no/*", "[[]z]", "a//*", "*//x", "*/./x",
        "[z", "a", "a/", "x/", "round/*", "*/nothing",
    ],
)  # fmt: skip
def test_a_pattern_stands_for_what_glob_says(pattern, place):
    found = Expander().expand(pattern, place)
    assert list(found) == glob.glob(pattern, root_dir=place)


def test_a_pattern_from_the_top_of_the_disk_does_too(place):
    pattern = os.path.join(glob.escape(place), "*/x")
    assert list(Expander().expand(pattern, "/")) == glob.glob(pattern)


def test_steps_are_counted_over_all_patterns(place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expanding, "STEPS_MAX", 12)
    expander = Expander()
    assert list(expander.expand("a/*", place)) == ["a/x"]
    with pytest.raises(TooManyStepsError):
        list(expander.expand("*/*", place))
    with pytest.raises(TooManyStepsError):
        list(expander.expand("a/*", place))


def test_a_pattern_that_looks_into_the_same_directories_again_and_again_ends(place):
    with pytest.raises(TooManyStepsError):
        list(Expander().expand("*/../" * 12 + "x*", place))
    with pytest.raises(TooManyStepsError):
        Expander().expand("*/" * 5_000, place)
