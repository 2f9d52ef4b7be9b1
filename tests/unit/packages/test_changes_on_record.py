"""A change of packages follows from the record: on a plane that differs from it there is none,
a repair takes it up, and what the record has no room for does not happen."""

import os
import shutil
from pathlib import Path

import pytest

from paddock.errors import HostError, UsageError
from paddock.packages.change import settle
from paddock.packages.install import InstallWish, install
from paddock.packages.installed import read_installed
from paddock.packages.ledger import find_deviations, replay
from paddock.packages.rows import GateRefusedError
from tests.support.changes import memory_directory
from tests.support.packages import (
    Bench,
    Meddling,
    Runner,
    StoppedError,
    archive_of,
    open_bench,
    require_whole,
    stop,
)

FILES = {"HOT/kernel/a.txt": b"a\n"}
OTHER = {"HOT/kernel/b.txt": b"b\n"}
REPAIR = InstallWish(dev=True, repairs=True)
DRY = InstallWish(dev=True, is_dry_run=True)


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install(FILES)
        yield bench
        require_whole(bench)


def own(bench: Bench, package_id: str = "PKG-A-001") -> Path:
    return bench.root / "HOT/installed" / package_id


def deviations(bench: Bench) -> list[str]:
    found = find_deviations(replay(bench.log().entries), read_installed(bench.layout))
    return [str(each) for each in found]


def require_refused(bench: Bench, act, gate: str = "G6") -> None:
    """It is refused by that gate, and everything is as before."""
    before, events = bench.tree(), bench.events()
    with pytest.raises(GateRefusedError) as caught:
        act()
    assert caught.value.gate == gate
    assert "PKG-A-001" in caught.value.message
    assert (bench.tree(), bench.events()) == (before, events)
    assert not bench.depot.pending.exists()


# A plane that is not as recorded


def test_while_a_recorded_package_is_missing_nothing_is_changed(bench, tmp_path: Path):
    bench.install(OTHER, package_id="PKG-B")
    shutil.move(own(bench), tmp_path / "away")

    require_refused(bench, lambda: bench.install(OTHER, package_id="PKG-C"))
    require_refused(bench, lambda: bench.install(OTHER, DRY, package_id="PKG-B", version="2.0.0"))
    require_refused(bench, lambda: bench.install(FILES))
    require_refused(bench, lambda: bench.uninstall("PKG-B"))

    shutil.move(tmp_path / "away", own(bench))
    bench.uninstall("PKG-B")
    assert deviations(bench) == []


def test_while_a_package_stands_there_that_is_not_recorded_nothing_is_changed(bench, tmp_path):
    shutil.copytree(own(bench), tmp_path / "copy")
    bench.uninstall()
    shutil.copytree(tmp_path / "copy", own(bench))

    require_refused(bench, lambda: bench.install(OTHER, package_id="PKG-B"))
    require_refused(bench, bench.uninstall)

    shutil.rmtree(own(bench))
    bench.install(OTHER, package_id="PKG-B")
    assert deviations(bench) == []


def test_while_a_receipt_is_another_one_nothing_is_changed(bench):
    receipt = own(bench) / "receipt.json"
    good = receipt.read_bytes()
    receipt.write_bytes(good.replace(b'"dev": true', b'"dev": false'))

    require_refused(bench, lambda: bench.install(OTHER, package_id="PKG-B"))

    receipt.write_bytes(good)
    bench.install(OTHER, package_id="PKG-B")


# Putting right


def test_a_missing_package_is_put_right_as_the_record_has_it(bench):
    shutil.rmtree(own(bench))

    assert bench.install(FILES, REPAIR).status == "installed"

    metadata = bench.log().entries[-1].entry.metadata
    assert metadata["previous"]["digest"] == metadata["digest"]
    assert deviations(bench) == []
    bench.uninstall()
    assert deviations(bench) == []


def test_several_missing_packages_are_put_right_one_after_the_other(bench):
    bench.install(OTHER, package_id="PKG-B", dependencies=["PKG-A-001"])
    shutil.rmtree(bench.root / "HOT/installed")

    bench.install(FILES, REPAIR)
    assert len(deviations(bench)) == 1
    bench.install(OTHER, REPAIR, package_id="PKG-B", dependencies=["PKG-A-001"])
    assert deviations(bench) == []


def test_another_receipt_is_put_right_though_every_file_is_as_it_was_brought(bench):
    receipt = own(bench) / "receipt.json"
    receipt.write_bytes(receipt.read_bytes().replace(b'"dev": true', b'"dev": false'))

    bench.install(FILES, REPAIR)
    assert deviations(bench) == []

    events = bench.events()
    assert bench.install(FILES, REPAIR).status == "unchanged"
    assert bench.events() == events


def test_a_repair_that_somebody_came_between_is_not_on_record():
    with memory_directory() as base:
        path = base / "plane/HOT/kernel/a.txt"
        disk = Meddling(path, b"edited again\n")
        with open_bench(base / "plane", Runner(), disk) as bench:
            bench.install(FILES)
            path.write_bytes(b"edited\n")
            disk.is_armed = True
            with pytest.raises(HostError, match="meanwhile"):
                bench.install(FILES, REPAIR)
            assert path.read_bytes() == b"edited again\n"
            assert bench.events() == ["PACKAGE_INSTALLED"]

            bench.install(FILES, REPAIR)
            assert bench.events() == ["PACKAGE_INSTALLED"] * 2
            require_whole(bench)


def test_a_repair_that_happened_is_on_record_whatever_was_edited_since():
    with memory_directory() as base:
        with open_bench(base / "plane") as bench:
            bench.install(FILES)
            bench.write("HOT/kernel/a.txt", b"edited\n")
        with (
            open_bench(base / "plane", before_entry=stop) as bench,
            pytest.raises(StoppedError),
        ):
            bench.install(FILES, REPAIR)
        with open_bench(base / "plane") as bench:
            bench.write("HOT/kernel/a.txt", b"edited since\n")

            assert settle(bench.depot) == "PKG-A-001"

            assert bench.events() == ["PACKAGE_INSTALLED"] * 2
            assert (bench.root / "HOT/kernel/a.txt").read_bytes() == b"edited since\n"
            assert deviations(bench) == []


# Room on record


def require_no_room(bench: Bench, act, match: str) -> None:
    before, events = bench.tree(), bench.events()
    with pytest.raises(UsageError, match=match):
        act()
    assert (bench.tree(), bench.events()) == (before, events)
    assert os.listdir(bench.layout.objects / "packages") == ["lock"]


def test_acceptance_commands_that_no_entry_holds_are_refused_before_anything_happens(bench):
    many = [{"command": "pass # " + "中" * 3_900, "timeout_s": 5}] * 100
    archive = archive_of(OTHER, package_id="PKG-B", acceptance=many)
    for wish in (InstallWish(dev=True), DRY):
        require_no_room(
            bench, lambda wish=wish: install(bench.depot, archive, wish), "100 acceptance"
        )
    with pytest.raises(GateRefusedError, match="G4"):  # it is run: the runner knows `pass` alone
        bench.install(OTHER, package_id="PKG-B", acceptance=many[:50])


def limit_entries(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """For who reads a line, and for who writes one: the hook does so without `limits`."""
    monkeypatch.setattr("paddock.limits.entry_bytes_max", size_bytes)
    monkeypatch.setattr("paddock.ledger.format.line.LINE_BYTES_MAX", size_bytes)


def test_the_longest_results_that_there_can_be_have_room(bench, monkeypatch):
    """What is taken before the swap is taken after it, too."""
    tested = [{"command": "pass", "timeout_s": 300}] * 100
    for size in range(7_000, 20_000, 500):
        limit_entries(monkeypatch, size)
        try:
            bench.install(OTHER, package_id="PKG-B", acceptance=tested)
        except UsageError:
            assert bench.events() == ["PACKAGE_INSTALLED"]
            continue
        assert bench.events() == ["PACKAGE_INSTALLED"] * 2
        assert size > 7_000
        return
    raise AssertionError("it is never taken")


def test_dependencies_that_no_entry_holds_are_refused_before_anything_happens(bench, monkeypatch):
    needed = [f"PKG-{'X' * 90}-{number}" for number in range(10)]
    for name in needed:
        bench.install({f"HOT/kernel/{name}": b"x"}, package_id=name)
    taking = archive_of({"HOT/kernel/c": b"c"}, package_id="PKG-C", dependencies=needed)

    limit_entries(monkeypatch, 1_600)
    require_no_room(
        bench, lambda: install(bench.depot, taking, InstallWish(dev=True)), "10 dependencies"
    )

    monkeypatch.undo()
    assert install(bench.depot, taking, InstallWish(dev=True)).status == "installed"


def test_a_change_whose_record_could_not_be_read_again_is_refused(bench, monkeypatch):
    monkeypatch.setattr("paddock.limits.receipt_bytes_max", 1_500)
    require_no_room(bench, lambda: bench.install(OTHER, package_id="PKG-B"), "over 1500")
    monkeypatch.undo()
    bench.install(OTHER, package_id="PKG-B")
