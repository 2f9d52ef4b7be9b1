"""A directory is the one of the start, a stranger, or one that took another's place."""

import stat

import pytest

from paddock.sandbox.changes.differences import Ancestor, Ancestry
from paddock.sandbox.changes.upper import Look
from paddock.sandbox.hidden import KnownDirectory
from paddock.workspace.metadata import FileStatus

SAME, NEW, REPLACED = Ancestor.SAME, Ancestor.NEW, Ancestor.REPLACED
START = 1_000
BEFORE, SINCE = START - 1, START


def known(inode: int, mode: int = 0o755) -> KnownDirectory:
    return KnownDirectory((1, inode, 0, 0), mode, is_settled=True, closed=(), below=())


def standing(inode: int, changed_ns: int = BEFORE, device: int = 1) -> Look:
    return Look(FileStatus(device, inode, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 0, changed_ns))


def ancestry(start: dict[str, KnownDirectory], now: dict[str, Look]) -> Ancestry:
    return Ancestry({".": known(1), **start}, START, now)


CASES = {
    # what stood at the start, what stands now, what holds a/b/c
    "as it was": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(2), "a/b": standing(3)},
        SAME,
    ),
    "with other entries": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(2, SINCE), "a/b": standing(3, SINCE)},
        SAME,
    ),
    "exchanged right above": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(2, SINCE), "a/b": standing(4, SINCE)},
        REPLACED,
    ),
    "exchanged far above": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(9, SINCE), "a/b": standing(3)},
        REPLACED,
    ),
    "exchanged for one that keeps its time": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(9), "a/b": standing(8)},
        REPLACED,
    ),
    "exchanged for one that lacks something": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(9)},
        REPLACED,
    ),
    "the same number on another device": (
        {"a": known(2), "a/b": known(3)},
        {"a": standing(2, device=7), "a/b": standing(3, device=7)},
        REPLACED,
    ),
    "made since": ({}, {"a": standing(2, SINCE), "a/b": standing(3, SINCE)}, NEW),
    "put there since with what is in it": (
        {},
        {"a": standing(2, SINCE), "a/b": standing(3, BEFORE)},
        NEW,
    ),
    "made by the command alone": ({"a": known(2)}, {"a": standing(2)}, SAME),
    "closed to our look, and not changed since": (
        {"a": KnownDirectory((0, 0, 0, 0), 0, is_settled=False, closed=("a",), below=())},
        {"a": standing(2), "a/b": standing(3)},
        SAME,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_holds_a_path_is_told_by_all_directories_above_it(name: str):
    start, now, expected = CASES[name]

    assert ancestry(start, now).above("a/b/c") is expected


def test_what_holds_a_name_of_the_root_is_always_the_same():
    assert ancestry({}, {}).above("name") is SAME


def test_directories_that_are_found_later_count():
    found = ancestry({"a": known(2), "a/b": known(3)}, {"a": standing(2)})
    assert found.above("a/f") is SAME
    found.current["a/b"] = standing(4)

    assert found.above("a/b/c") is REPLACED


def test_the_mode_of_the_start_is_known_of_what_stood_there():
    found = ancestry({"a": known(2, 0o2750)}, {"a": standing(9), "b": standing(3)})

    assert (found.mode_before("a"), found.mode_before("b")) == (0o2750, None)
