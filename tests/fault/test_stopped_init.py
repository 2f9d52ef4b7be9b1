"""`init --bare` killed at every change that it makes: no plane yet or the whole one, never a part."""

import os
import shutil
import sys
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from paddock.assembly.audit import ORDER, Audit, audit_ledger
from paddock.assembly.bootstrap import init_bare_plane
from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_project
from paddock.packages.bootstrap import load_packages
from paddock.packages.installed import read_installed
from paddock.packages.ledger import PackageLedger, find_deviations, replay
from paddock.packages.signing import read_keys
from paddock.packages.statements import find_key_problems, read_vouched
from paddock.plane.discover import is_bare_plane, is_registered_bare_plane
from paddock.plane.environment import Environment, read_environment
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry
from tests.support.changes import memory_directory
from tests.support.packages import plane_tree

CHANGES = frozenset({"os.mkdir", "os.link", "os.rename", "os.remove", "os.truncate"})
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
KILLED, BROKEN, DONE = 9, 1, 0
STRIDE = int(os.environ.get("PADDOCK_DYING_STRIDE", "23"))
"""Every so many-th change, each of which costs a plane or three; 1 for all of them, by hand."""
PACKAGES = {archive.manifest.package_id for archive in load_packages()}


def run_until(change: int, plane: Path, environment: Environment, profile: str) -> int:
    """Make the plane in a child that ends, without a word, before its `change`th change."""
    child = os.fork()
    if child == 0:
        left = [change]

        def stop(event: str, arguments: tuple[object, ...]) -> None:
            is_change = event in CHANGES
            if event == "open" and isinstance(arguments[2], int):
                is_change = bool(arguments[2] & WRITING)
            if is_change:
                if left[0] == 0:
                    os._exit(KILLED)
                left[0] -= 1

        try:
            sys.addaudithook(stop)
            init_bare_plane(plane, environment, profile)
            os._exit(DONE)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(BROKEN)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def without_names(plane: Path) -> dict[str, object]:
    """The tree, but for what differs between two planes: ids, times and signatures."""
    return {
        name: None if name.split(" ")[0].endswith("/receipt.json") else content
        for name, content in plane_tree(plane).items()
        if not name.startswith(("HOT/registries/approvals/", "HOT/registries/keys/"))
    }


def require_whole(plane: Path, environment: Environment, profile: str) -> None:
    """Files, receipts, ledger, keys and signatures tell one story, once."""
    layout = PlaneLayout(plane, PlaneKind.BARE)
    assert is_registered_bare_plane(plane, environment)
    installed = read_installed(layout)
    assert (set(installed.packages), installed.problems) == (PACKAGES, ())
    entries = PackageLedger(layout.ledger_paths()["packages"], lambda: None).read().entries
    assert find_deviations(replay(entries), installed) == ()
    told = [stored.entry.call_id for stored in entries if stored.entry.call_id]
    assert len(told) == len(set(told)) == len(PACKAGES)
    vouched = read_vouched(entries)
    assert vouched.problems == []
    assert list(find_key_problems(vouched, read_keys(layout))) == []
    used = {package.receipt.wo_id for package in installed.packages.values()}
    if profile == "development":
        assert (used, vouched.statements) == ({None}, 0)
    else:
        standing = {
            name.removesuffix(".json") for name in os.listdir(layout.registries / "approvals")
        }
        assert used <= standing
        assert vouched.statements == 1
        assert len(vouched.rows) == len(PACKAGES)


@pytest.mark.parametrize("profile", ["production", "development"])
def test_a_killed_init_leaves_no_plane_or_the_whole_one_and_the_next_completes_it(profile):
    with memory_directory() as base:
        whole: dict[str, object] | None = None
        change, seen_whole = 0, 0
        while True:
            here = base / "here"
            (here / "home").mkdir(parents=True)
            environment = read_environment({"HOME": str(here / "home")})
            plane = here / "plane"
            code = run_until(change, plane, environment, profile)
            if is_bare_plane(plane):
                seen_whole += 1
                left = without_names(plane)
                require_whole(plane, environment, profile)
            made, _ = init_bare_plane(plane, environment, profile)
            after = without_names(plane)
            if made.made == ():
                assert after == left
            assert made.registered
            require_whole(plane, environment, profile)
            assert [name for name in after if ".paddock-" in name] == [], change
            whole = whole or after
            assert after == whole
            assert find_project(plane, environment, plane).gate.tool_profile == profile
            shutil.rmtree(here)
            if code == DONE:
                break
            assert code == KILLED
            change += STRIDE
        assert change > 100
        assert seen_whole >= 1


def test_killed_again_and_again_it_is_made_in_the_end():
    with memory_directory() as base:
        (base / "home").mkdir()
        environment = read_environment({"HOME": str(base / "home")})
        plane = base / "plane"
        for change in range(3, 400, 112):
            if run_until(change, plane, environment, "production") == DONE:
                break
        init_bare_plane(plane, environment, "production")
        require_whole(plane, environment, "production")


def leave_a_plane_behind(plane: Path, environment: Environment) -> None:
    """A plane that was worked on, and removed: what its ledgers' keys signed stays."""
    init_bare_plane(plane, environment, "development")
    layout = PlaneLayout(plane, PlaneKind.BARE)
    for name in ORDER:
        for _ in range(3):
            with closing(PlaneLedger(layout, environment, name).open()) as ledger:
                ledger.append([Entry("TEST", reason="of the earlier plane")])
    shutil.rmtree(plane)


def problems_of(plane: Path, environment: Environment) -> dict[str, tuple[object, ...]]:
    """What is wrong with each ledger of the plane, where it has them."""
    layout = PlaneLayout(plane, PlaneKind.BARE)
    return {
        name: audit_ledger(PlaneLedger(layout, environment, name), Audit(full=True)).problems
        for name in ORDER
    }


def test_where_a_plane_stood_before_a_killed_init_leaves_no_plane_or_a_sound_one():
    sound = dict.fromkeys(ORDER, ())
    with memory_directory() as base:
        here, kept = base / "here", base / "kept"
        here.mkdir()
        environment = read_environment({"HOME": str(here / "home")})
        plane = here / "plane"
        leave_a_plane_behind(plane, environment)
        (here / "home").rename(kept)
        change, code = 200, KILLED
        while code != DONE:
            shutil.rmtree(here)
            here.mkdir()
            shutil.copytree(kept, here / "home")
            code = run_until(change, plane, environment, "development")
            assert code in {KILLED, DONE}
            if is_bare_plane(plane):
                assert problems_of(plane, environment) == sound
            init_bare_plane(plane, environment, "development")
            assert problems_of(plane, environment) == sound, change
            change += STRIDE
        assert change > 300


def test_a_plane_that_was_put_back_is_no_earlier_one_and_init_accepts_nothing_of_it(tmp_path):
    environment = read_environment({"HOME": str(tmp_path / "home")})
    plane = tmp_path / "plane"
    init_bare_plane(plane, environment, "development")
    layout = PlaneLayout(plane, PlaneKind.BARE)
    shutil.copytree(plane, tmp_path / "backup")
    with closing(PlaneLedger(layout, environment, "governance").open()) as ledger:
        ledger.append([Entry("TEST", reason="after the backup")])
    shutil.rmtree(plane)
    (tmp_path / "backup").rename(plane)

    made, _ = init_bare_plane(plane, environment, "development")

    assert made.made == ()
    assert [name for name, problems in problems_of_present(layout, environment)] == ["governance"]


def problems_of_present(layout: PlaneLayout, environment: Environment) -> list[tuple[str, object]]:
    present = (name for name in ORDER if layout.ledger_paths()[name].exists())
    found = (
        (name, audit_ledger(PlaneLedger(layout, environment, name)).problems) for name in present
    )
    return [each for each in found if each[1]]
