"""The swap race, briefly; PADDOCK_TORTURE_SECONDS makes it as long as one likes."""

import os

import pytest

from tests.support.programs import report_beside

SECONDS = os.environ.get("PADDOCK_TORTURE_SECONDS", "2")
ACTS = {"view", "create", "edit", "move", "delete"}


def race(resolution: str, user: str, seconds: str, *more: str) -> tuple[int, dict]:
    options = [f"--resolution={resolution}", f"--user={user}", f"--seconds={seconds}", *more]
    return report_beside(__file__, *options, timeout_s=float(seconds) + 60)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("user", ["same", pytest.param("plain", marks=pytest.mark.needs("root"))])
@pytest.mark.parametrize(
    "resolution", [pytest.param("openat2", marks=pytest.mark.needs("openat2")), "walk"]
)
def test_no_act_reaches_outside_while_names_are_swapped_for_links(resolution, user):
    code, found = race(resolution, user, SECONDS)
    assert found["acts"].keys() == ACTS
    # Both sides of the race were seen: acts that found the real thing, and acts that did not.
    assert all(act["done"] and act["refused"] for act in found["acts"].values()), found
    assert (code, found["escapes"]) == (0, 0), found


@pytest.mark.needs("linux")
def test_the_same_race_catches_a_check_by_name():
    # Ends at once when it is caught; on a busy machine that can take a while.
    code, found = race("naive", "same", "120", "--act=view", "--until-escape")
    assert code == 1
    assert found["escapes"] > 0
