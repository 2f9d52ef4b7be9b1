"""A set becomes as few steps as names change, in the order of its phases."""

import pytest

from paddock import limits
from paddock.errors import InternalError, InvalidPathError
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    MakeDirectory,
    MakeLink,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StoredContent,
    WriteFile,
    paths_of,
    plan_changes,
)
from paddock.workspace.paths import unchecked_path as at

OLD = AtVersion("sha256:0")


def write(name, old=None):
    return WriteFile(at(name), StoredContent("sha256:1"), old or Absent())


def make(name):
    return MakeDirectory(at(name), Absent())


def remove(name):
    return RemoveFile(at(name), OLD)


def clear(name):
    return RemoveDirectory(at(name))


def steps(*phases):
    """Each step's path, and all that is removed and created there."""
    return [
        (
            swap.path.relative,
            sorted(path.relative for path in paths_of(swap.removed)) if swap.removed else [],
            sorted(path.relative for path in paths_of(swap.created)) if swap.created else [],
        )
        for swap in plan_changes(phases).swaps
    ]


def test_a_new_tree_is_one_step_and_so_is_one_that_goes():
    changes = [write("n/d/x"), make("n"), make("n/d"), clear("o"), remove("o/x"), write("f")]
    assert steps(changes) == [
        ("f", [], ["f"]),
        ("n", [], ["n", "n/d", "n/d/x"]),
        ("o", ["o", "o/x"], []),
    ]


def test_a_removal_and_a_creation_at_one_path_are_one_step():
    changes = [clear("p"), remove("p/x"), write("p"), remove("q"), make("q"), write("q/x")]
    assert steps(changes) == [("p", ["p", "p/x"], ["p"]), ("q", ["q"], ["q", "q/x"])]


def test_phases_come_one_after_the_other_and_a_tree_with_its_last():
    objects, refs = [write("z"), make("m")], [write("a"), write("m/x")]
    assert [path for path, _, _ in steps(objects, refs)] == ["z", "a", "m"]


def test_changes_in_place_come_last_and_a_directory_after_what_it_holds():
    changes = [SetMetadata(at(name), OLD, 0o700) for name in ("d", "d/x", "d/y")]
    plan = plan_changes([[*changes, write("d/new")]])
    assert [change.path.relative for change in plan.metadata] == ["d/y", "d/x", "d"]
    assert [path.relative for path in plan.directories()] == ["d", "."]


@pytest.mark.parametrize(
    "changes",
    [
        [write("x"), write("x")],
        [remove("x"), clear("x")],
        [SetMetadata(at("x"), OLD, 1), SetMetadata(at("x"), OLD, 2)],
        [remove("x"), write("x", OLD)],
        [write("x"), write("x/y")],
        [MakeLink(at("x"), "y", Absent()), make("x/y")],
        [clear("x"), write("x/y")],
        [clear("x"), clear("x/d"), make("x"), write("x/d/y")],
        [remove("x"), remove("x/y")],
        [clear("x"), remove("x/d/y")],
        [make("x"), remove("x/y")],
        [write("x"), SetMetadata(at("x"), OLD, 1)],
        [make("x"), SetMetadata(at("x/y"), OLD, 1)],
    ],
    ids=str,
)
def test_changes_that_contradict_each_other_are_our_defect(changes):
    with pytest.raises(InternalError, match="set of changes: 'x"):
        plan_changes([changes])


def test_the_root_and_what_is_too_deep_are_refused():
    deep = "/".join(["d"] * limits.path_depth_max)
    assert steps([write(deep)]) == [(deep, [], [deep])]
    for name in (".", deep + "/d"):
        with pytest.raises(InvalidPathError):
            plan_changes([[write(name)]])
