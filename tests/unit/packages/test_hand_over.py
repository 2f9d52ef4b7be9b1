"""Two packages never own one file; a direct dependency may hand one over, and gets it back."""

import os

import pytest

from paddock.packages.install import InstallWish
from paddock.packages.installed import read_installed
from paddock.packages.refusals import GateRefusedError, OwnershipRefusedError
from paddock.values.digests import digest_of
from tests.support.changes import memory_directory
from tests.support.packages import PROGRAM, Runner, open_bench, require_whole

BASE = {"HOT/kernel/a": b"base\n", "HOT/kernel/b": PROGRAM}
PATH = "HOT/kernel/a"


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install(BASE, package_id="PKG-BASE")
        yield bench
        require_whole(bench)


def over(bench, content=b"over\n", needs=("PKG-BASE",), **fields):
    return bench.install(
        {PATH: content, "HOT/kernel/more": b"m"}, **{"package_id": "PKG-OVER", "dependencies": list(needs), **fields}
    )  # fmt: skip


def owner(bench, path=PATH):
    found = read_installed(bench.layout).owner_of(path)
    return None if found is None else found.package_id


def read(bench, path=PATH):
    return (bench.root / path).read_bytes()


def test_a_file_of_another_package_is_not_taken(bench):
    before = bench.tree()
    for needs in ((), ("PKG-OTHER",)):
        if needs:
            bench.install({"HOT/kernel/o": b"o"}, package_id="PKG-OTHER", dependencies=["PKG-BASE"])
            before = bench.tree()
        with pytest.raises(OwnershipRefusedError, match="PKG-BASE"):
            over(bench, needs=needs)
        assert bench.tree() == before


def test_the_same_content_makes_no_difference(bench):
    with pytest.raises(OwnershipRefusedError):
        over(bench, BASE[PATH], needs=())


def test_a_direct_dependency_hands_over_and_it_is_recorded(bench):
    report = over(bench)

    assert report.handed_over == ((PATH, "PKG-BASE"),)
    assert (owner(bench), read(bench)) == ("PKG-OVER", b"over\n")
    assert bench.log().entries[-1].entry.metadata["handed_over"] == [
        {"path": PATH, "from": "PKG-BASE"}
    ]
    assert owner(bench, "HOT/kernel/b") == "PKG-BASE"


def test_it_comes_back_with_content_and_mode(bench):
    before = bench.tree()
    bench.install(
        {"HOT/kernel/b": b"no program\n"}, package_id="PKG-OVER", dependencies=["PKG-BASE"]
    )
    assert (bench.root / "HOT/kernel/b").stat().st_mode & 0o777 == 0o644

    bench.uninstall("PKG-OVER")

    assert bench.tree() == before
    assert owner(bench, "HOT/kernel/b") == "PKG-BASE"
    assert os.listdir(bench.layout.objects / "packages/kept") == []


def test_it_comes_back_after_the_history_was_pruned(bench):
    before = bench.tree()
    over(bench)
    with memory_directory() as elsewhere:
        for name in os.listdir(bench.layout.objects):
            path = bench.layout.objects / name
            if path.is_file() and len(name) >= 64:
                path.rename(elsewhere / name)
    bench.uninstall("PKG-OVER")
    assert bench.tree() == before


def test_the_giver_does_not_leave_before_the_taker(bench):
    over(bench)
    with pytest.raises(GateRefusedError, match="G3"):
        bench.uninstall("PKG-BASE")


def test_a_taker_that_is_upgraded_keeps_it(bench):
    before = bench.tree()
    over(bench)
    over(bench, b"over 2\n", version="2.0.0")
    assert (owner(bench), read(bench)) == ("PKG-OVER", b"over 2\n")
    bench.uninstall("PKG-OVER")
    assert bench.tree() == before


def test_a_taker_that_lets_go_of_it_gives_it_back(bench):
    over(bench)
    bench.install(
        {"HOT/kernel/more": b"m"}, package_id="PKG-OVER", dependencies=["PKG-BASE"], version="2.0.0"
    )
    assert (owner(bench), read(bench)) == ("PKG-BASE", b"base\n")


def test_a_taker_that_does_not_depend_on_the_giver_any_more_may_not_keep_it(bench):
    over(bench)
    with pytest.raises(OwnershipRefusedError):
        over(bench, needs=(), version="2.0.0")
    assert owner(bench) == "PKG-OVER"


def test_a_giver_may_change_everything_but_what_it_gave_up(bench):
    over(bench)
    for files in ({**BASE, PATH: b"base 2\n"}, {"HOT/kernel/b": PROGRAM}):
        with pytest.raises(OwnershipRefusedError, match="took it over"):
            bench.install(files, package_id="PKG-BASE", version="2.0.0")
    bench.install({**BASE, "HOT/kernel/c": b"c"}, package_id="PKG-BASE", version="2.0.0")
    assert (owner(bench), read(bench)) == ("PKG-OVER", b"over\n")
    bench.uninstall("PKG-OVER")
    assert (owner(bench), read(bench)) == ("PKG-BASE", b"base\n")


def test_hand_overs_stack(bench):
    before = bench.tree()
    over(bench)
    top = {"package_id": "PKG-TOP", "dependencies": ["PKG-OVER"]}
    with pytest.raises(OwnershipRefusedError, match="PKG-OVER"):
        bench.install({PATH: b"top\n"}, package_id="PKG-TOP", dependencies=["PKG-BASE"])
    bench.install({PATH: b"top\n"}, **top)
    assert (owner(bench), read(bench)) == ("PKG-TOP", b"top\n")
    bench.uninstall("PKG-TOP")
    assert (owner(bench), read(bench)) == ("PKG-OVER", b"over\n")
    bench.uninstall("PKG-OVER")
    assert bench.tree() == before


def test_a_changed_file_is_not_taken_over(bench):
    bench.write(PATH, b"edited\n")
    with pytest.raises(GateRefusedError, match="not as PKG-BASE brought it"):
        over(bench)
    bench.write(PATH, b"base\n")


def test_edited_configuration_is_handed_over_as_it_is(bench):
    name = "HOT/config/x"
    bench.install({name: b"1\n"}, package_id="PKG-C", config=(name,))
    bench.write(name, b"edited\n")
    bench.install({name: b"2\n"}, package_id="PKG-D", dependencies=["PKG-C"], config=(name,))
    assert (owner(bench, name), read(bench, name)) == ("PKG-D", b"edited\n")
    bench.uninstall("PKG-D")
    assert (owner(bench, name), read(bench, name)) == ("PKG-C", b"edited\n")


def test_names_that_are_one_somewhere_are_one_file(bench):
    for path in ("HOT/kernel/A", "HOT/Kernel/c", "HOT/kernel/a/below", "HOT/kernel"):
        with pytest.raises(OwnershipRefusedError):
            bench.install({path: b"x"}, package_id="PKG-OVER", dependencies=["PKG-BASE"])


def test_a_refused_install_keeps_nothing(bench):
    bench.write("HOT/kernel/more", b"mine")
    with pytest.raises(OwnershipRefusedError):
        over(bench)
    assert not (bench.layout.objects / "packages/kept").exists()
    os.unlink(bench.root / "HOT/kernel/more")


KEPT = "packages/kept"


@pytest.mark.parametrize("how", ["damaged", "away"])
def test_what_was_kept_stays_while_the_takers_receipt_is_not_to_be_read(how, bench):
    before = bench.tree()
    over(bench)
    away = bench.root.parent / "away"
    kept = os.listdir(bench.layout.objects / KEPT)
    own = bench.root / "HOT/installed/PKG-OVER"
    receipt = (own / "receipt.json").read_bytes()
    if how == "damaged":
        (own / "receipt.json").write_bytes(receipt + b"x")
    else:
        own.rename(away)

    for wish in (InstallWish(dev=True, is_dry_run=True), InstallWish(dev=True)):
        with pytest.raises(GateRefusedError):
            bench.install({"HOT/kernel/c": b"c"}, wish, package_id="PKG-C")
    with pytest.raises(GateRefusedError):
        bench.uninstall("PKG-BASE")
    assert os.listdir(bench.layout.objects / KEPT) == kept

    if how == "damaged":
        (own / "receipt.json").write_bytes(receipt)
    else:
        away.rename(own)
    bench.uninstall("PKG-OVER")
    assert bench.tree() == before
    assert os.listdir(bench.layout.objects / KEPT) == []


def test_a_repair_keeps_what_a_missing_taker_needs(bench):
    """A repair goes on beside it; what was kept for others is none of its business."""
    away = bench.root.parent / "away"
    bench.install({"HOT/kernel/c": b"c"}, package_id="PKG-C")
    over(bench)
    own = bench.root / "HOT/installed/PKG-OVER"
    own.rename(away)
    bench.write("HOT/kernel/c", b"edited")

    repair = InstallWish(dev=True, repairs=True)
    assert bench.install({"HOT/kernel/c": b"c"}, repair, package_id="PKG-C").status == "upgraded"

    away.rename(own)
    bench.uninstall("PKG-OVER")
    assert read(bench) == b"base\n"


def test_a_dry_run_lets_go_of_nothing(bench):
    directory = bench.layout.objects / KEPT
    over(bench)
    (directory / ("0" * 64)).write_bytes(b"left by a killed change")
    dry = InstallWish(dev=True, is_dry_run=True)
    bench.install({"HOT/kernel/d": b"d"}, dry, package_id="PKG-D")
    assert len(os.listdir(directory)) == 2
    bench.install({"HOT/kernel/d": b"d"}, package_id="PKG-D")
    assert len(os.listdir(directory)) == 1


def test_changed_configuration_that_gives_way_to_what_comes_back_is_named(bench):
    name = "HOT/config/x"
    bench.install({name: b"1\n"}, package_id="PKG-C", config=(name,))
    bench.install({name: b"2\n"}, package_id="PKG-D", dependencies=["PKG-C"], config=(name,))
    edited = b"edited\n"
    bench.write(name, edited)
    (note,) = bench.uninstall("PKG-D").notes
    assert note.startswith(f"{name} had been changed; ")
    assert f"kept in objects as {digest_of(edited)}," in note
    assert read(bench, name) == b"1\n"
    assert bench.depot.objects.read(digest_of(edited)) == edited


def test_a_hand_over_is_undone_with_its_install(bench):
    before = bench.tree()
    with pytest.raises(GateRefusedError, match="G4"):
        over(bench, acceptance=[{"command": "fail", "timeout_s": 1}])
    assert bench.tree() == before
    assert owner(bench) == "PKG-BASE"
