"""What an upgrade does to a file that another package took over: nothing, or it is refused."""

import pytest

from paddock.packages.installed import read_installed
from paddock.packages.ownership import Leave, plan_ownership
from paddock.packages.refusals import OwnershipRefusedError
from tests.support.changes import memory_directory
from tests.support.packages import Runner, manifest_of, open_bench

PATH = "HOT/kernel/a"


@pytest.fixture
def installed():
    """A package, and one that took its only file over."""
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install({PATH: b"base\n"}, package_id="PKG-BASE")
        bench.install({PATH: b"over\n"}, package_id="PKG-OVER", dependencies=["PKG-BASE"])
        yield read_installed(bench.layout)


def upgraded(content=b"base\n"):
    return manifest_of({PATH: content}, package_id="PKG-BASE", version="2.0.0")


@pytest.mark.parametrize("modes", [{PATH: 0o644}, {}])
def test_a_file_that_stays_as_it_was_taken_is_left_to_its_taker(modes, installed):
    old = installed.packages["PKG-BASE"]
    assert plan_ownership(upgraded(), old, installed, modes) == (Leave(PATH),)


@pytest.mark.parametrize(
    ("content", "mode"), [(b"base\n", 0o755), (b"another\n", 0o644), (b"another\n", 0o755)]
)
def test_another_content_or_mode_waits_until_the_taker_lets_go(content, mode, installed):
    old = installed.packages["PKG-BASE"]
    with pytest.raises(OwnershipRefusedError, match="PKG-OVER took it over") as caught:
        plan_ownership(upgraded(content), old, installed, {PATH: mode})
    assert [failure.file for failure in caught.value.failures] == [PATH]
