"""An install that dies at any step, and a recovery that does: the old plane or the new one."""

import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.packages.change import recover_packages, tidy
from paddock.packages.install import InstallWish
from tests.support.changes import memory_directory
from tests.support.dying import run_until
from tests.support.packages import PROGRAM, Bench, Runner, open_bench, require_whole

BASE = {"HOT/kernel/base": b"base\n", "HOT/scripts/sub/run.sh": PROGRAM}
OLD = {"HOT/kernel/a": b"old\n", "HOT/kernel/gone/x": b"x\n"}
NEW = {"HOT/kernel/a": b"new\n", "HOT/kernel/made/y": b"y\n", "HOT/kernel/more": b"over\n"}
STRIDE = int(os.environ.get("PADDOCK_DYING_STRIDE", "7"))
"""Every so many-th step; 1 for all of them."""
TESTED = [{"command": "pass", "timeout_s": 5}]


def install(bench: Bench) -> None:
    bench.install(NEW, package_id="PKG-N", dependencies=["PKG-BASE"])


def install_tested(bench: Bench) -> None:
    bench.install(NEW, package_id="PKG-N", dependencies=["PKG-BASE"], acceptance=TESTED)


def upgrade_tested(bench: Bench) -> None:
    bench.install(
        NEW, package_id="PKG-O", dependencies=["PKG-BASE"], acceptance=TESTED, version="2.0.0"
    )


def uninstall(bench: Bench) -> None:
    bench.uninstall("PKG-O")


ACTS: dict[str, tuple[Callable[[Bench], None], bool]] = {
    "install": (install, False),
    "tested install": (install_tested, False),
    "tested upgrade": (upgrade_tested, True),
    "uninstall": (uninstall, True),
}
"""What is done, and whether PKG-O is there before."""


def prepare(root: Path, with_old: bool) -> None:
    with open_bench(root, Runner()) as bench:
        bench.install(BASE, package_id="PKG-BASE")
        if with_old:
            bench.install(OLD, package_id="PKG-O")


def do(root: Path, act: Callable[[Bench], None]) -> None:
    with open_bench(root, Runner()) as bench:
        act(bench)


def recover(root: Path) -> None:
    with open_bench(root, Runner()) as bench:
        recover_packages(bench.depot)


def state(root: Path) -> object:
    """The tree, but for what differs between two installs of one package."""
    with open_bench(root, Runner()) as bench:
        found = bench.tree()
        return {name: None if "receipt.json" in name else found[name] for name in found}


def settled(root: Path) -> None:
    """The next command on the plane, and what holds after it."""
    with open_bench(root, Runner()) as bench:
        recover_packages(bench.depot)
        with bench.depot.pending.locked():
            tidy(bench.depot)
        require_whole(bench)


def planes(base: Path, what: str) -> tuple[Path, object, object]:
    """A prepared plane to copy, and its states before and after."""
    act, with_old = ACTS[what]
    prepared, done = base / "prepared", base / "done"
    prepare(prepared, with_old)
    before = state(prepared)
    shutil.copytree(prepared, done, symlinks=True)
    do(done, act)
    return prepared, before, state(done)


@pytest.mark.parametrize("what", ACTS)
def test_killed_at_any_step_the_plane_is_the_old_or_the_new_one(what):
    act, _ = ACTS[what]
    with memory_directory() as base:
        prepared, before, after = planes(base, what)
        plane = base / "plane"
        seen = set()
        for dies_at in itertools.count(list(ACTS).index(what) % STRIDE, STRIDE):
            shutil.copytree(prepared, plane, symlinks=True)
            steps = run_until(dies_at, lambda: do(plane, act))
            settled(plane)
            found = state(plane)
            assert found in (before, after), dies_at
            seen.add(found == after)
            shutil.rmtree(plane)
            if steps is not None:
                assert found == after
                break
        assert dies_at > 40
        assert seen == {True, False} or before == after


@pytest.mark.parametrize("what", ACTS)
def test_a_recovery_that_is_killed_is_done_again(what):
    act, _ = ACTS[what]
    chance = random.Random(what)
    with memory_directory() as base:
        prepared, before, after = planes(base, what)
        plane = base / "plane"
        shutil.copytree(prepared, plane, symlinks=True)
        steps = run_until(None, lambda: do(plane, act))
        shutil.rmtree(plane)
        for _ in range(int(os.environ.get("PADDOCK_DYING_RECOVERIES", "5"))):
            shutil.copytree(prepared, plane, symlinks=True)
            run_until(chance.randrange(steps), lambda: do(plane, act))
            for _ in range(3):
                run_until(chance.randrange(60), lambda: recover(plane))
            settled(plane)
            assert state(plane) in (before, after)
            shutil.rmtree(plane)


def repair(bench: Bench) -> None:
    bench.install(OLD, InstallWish(dev=True, repairs=True), package_id="PKG-O")


def test_a_repair_that_dies_at_any_step_is_on_record_where_it_happened_and_there_alone():
    with memory_directory() as base:
        prepared, plane = base / "prepared", base / "plane"
        prepare(prepared, with_old=True)
        (prepared / "HOT/kernel/a").write_bytes(b"edited\n")
        seen = set()
        for dies_at in itertools.count(0, STRIDE):
            shutil.copytree(prepared, plane, symlinks=True)
            steps = run_until(dies_at, lambda: do(plane, repair))
            recover(plane)
            with open_bench(plane, Runner()) as bench:
                assert not bench.depot.pending.exists()
                found = (plane / "HOT/kernel/a").read_bytes(), len(bench.events())
            assert found in ((b"edited\n", 2), (b"old\n", 3)), dies_at
            seen.add(found)
            shutil.rmtree(plane)
            if steps is not None:
                break
        assert found == (b"old\n", 3)
        assert len(seen) == 2
