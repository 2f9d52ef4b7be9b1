"""The race of searches, briefly; PADDOCK_TORTURE_SECONDS makes it as long as one likes."""

import os

import pytest

from tests.support.programs import report_beside

SECONDS = os.environ.get("PADDOCK_TORTURE_SECONDS", "2")
SEARCHES = {
    "grep",
    "grep_first",
    "grep_below",
    "grep_dev",
    "find",
    "find_below",
    "ls",
}


def race(resolution: str, user: str, seconds: str, *more: str) -> tuple[int, dict]:
    options = [f"--resolution={resolution}", f"--user={user}", f"--seconds={seconds}", *more]
    return report_beside(__file__, *options, timeout_s=float(seconds) + 60)


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    ("resolution", "user"),
    [
        pytest.param("openat2", "same", marks=pytest.mark.needs("openat2")),
        ("walk", "same"),
        pytest.param("walk", "plain", marks=pytest.mark.needs("root")),
    ],
)
def test_no_search_tells_what_stands_outside_while_names_are_swapped_for_links(resolution, user):
    code, found = race(resolution, user, SECONDS)
    assert found["searches"].keys() == SEARCHES
    # Searches found the real files: an answer without rows proves nothing.
    assert all(search["with_rows"] for search in found["searches"].values()), found
    assert (code, found["escapes"]) == (0, 0), found


@pytest.mark.needs("linux")
def test_the_same_race_catches_what_ripgrep_prints():
    # Ends at once when it is caught; on a busy machine that can take a while.
    code, found = race("naive", "same", "120", "--until-escape")
    assert code == 1
    assert found["escapes"] > 0
