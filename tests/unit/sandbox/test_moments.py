"""A moment divides what was done before from what is done after, by the stamps of the files."""

import os
from pathlib import Path

import pytest

from paddock.sandbox.hidden import Moments, coarse_now_ns, wait_for_a_tick
from tests.support.changes import memory_directory


def changed_ns(path: Path) -> int:
    return os.stat(path).st_ctime_ns


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_what_is_done_before_is_older_and_what_is_done_after_is_not(where, tmp_path: Path):
    with memory_directory() as memory:
        base = tmp_path if where == "disk" else memory
        moments = Moments(base)
        fd = os.open(base, os.O_PATH | os.O_DIRECTORY)
        try:
            for number in range(200):
                before, after = base / f"b{number}", base / f"a{number}"
                before.write_text("before")
                moment_ns = moments.now(fd)
                after.write_text("after")
                assert changed_ns(before) < moment_ns <= changed_ns(after)
                os.chmod(before, 0o600)
                assert changed_ns(before) >= moment_ns
        finally:
            os.close(fd)
            moments.close()


def test_moments_on_another_file_system_are_found_by_the_clock(tmp_path: Path):
    with memory_directory() as memory:
        if memory.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("runs as a plain user without a second file system")
        moments = Moments(memory)
        fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
        try:
            (tmp_path / "before").write_text("before")
            moment_ns = moments.now(fd)
            (tmp_path / "after").write_text("after")
        finally:
            os.close(fd)
            moments.close()
        assert changed_ns(tmp_path / "before") < moment_ns <= changed_ns(tmp_path / "after")


def test_a_clock_that_was_set_back_is_not_waited_for():
    ahead_ns = coarse_now_ns() + 3_600_000_000_000

    assert wait_for_a_tick(ahead_ns) < ahead_ns
