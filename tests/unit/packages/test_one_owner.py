"""Two packages never own one file: not a dependency's, not with the same content."""

import json

import pytest

from paddock.errors import ConfigError
from paddock.packages.install import InstallWish
from paddock.packages.installed import Put, Remove, parse_receipt, plan_ownership, read_installed
from paddock.packages.rows import GateRefusedError, OwnershipRefusedError
from paddock.values.entries import digest_of
from tests.support.changes import memory_directory
from tests.support.packages import PROGRAM, Runner, manifest_of, open_bench, require_whole

BASE = {"HOT/kernel/a": b"base\n", "HOT/kernel/b": PROGRAM}
PATH = "HOT/kernel/a"
TAKEN = {"path": PATH, "from": "PKG-BASE", "sha256": digest_of(b"base\n"), "mode": "644"}


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install(BASE, package_id="PKG-BASE")
        yield bench
        require_whole(bench)


def over(bench, content=b"over\n", needs=(), **fields):
    files = {PATH: content, "HOT/kernel/more": b"m"}
    return bench.install(files, package_id="PKG-OVER", dependencies=list(needs), **fields)


def owner(bench, path=PATH):
    found = read_installed(bench.layout).owner_of(path)
    return None if found is None else found.package_id


@pytest.mark.parametrize("content", [b"over\n", BASE[PATH]])
@pytest.mark.parametrize("needs", [(), ("PKG-OTHER",), ("PKG-BASE",)])
def test_a_file_of_another_package_is_not_taken(needs, content, bench):
    bench.install({"HOT/kernel/o": b"o"}, package_id="PKG-OTHER", dependencies=["PKG-BASE"])
    before = bench.tree()

    with pytest.raises(OwnershipRefusedError, match="it belongs to PKG-BASE") as caught:
        over(bench, content, needs)

    assert [failure.file for failure in caught.value.failures] == [PATH]
    assert (bench.tree(), owner(bench)) == (before, "PKG-BASE")
    files = {"HOT/kernel/more": b"m"}
    bench.install(files, package_id="PKG-OVER", dependencies=list(needs))
    assert owner(bench, "HOT/kernel/more") == "PKG-OVER"


def test_an_upgrade_takes_no_file_of_another_package(bench):
    bench.install({"HOT/kernel/more": b"m"}, package_id="PKG-OVER", dependencies=["PKG-BASE"])
    before = bench.tree()
    with pytest.raises(OwnershipRefusedError, match="PKG-BASE"):
        over(bench, needs=("PKG-BASE",), version="2.0.0")
    assert bench.tree() == before


def test_a_file_that_its_package_gave_up_may_come_from_another(bench):
    bench.install({"HOT/kernel/b": PROGRAM}, package_id="PKG-BASE", version="2.0.0")
    over(bench)
    assert (owner(bench), (bench.root / PATH).read_bytes()) == ("PKG-OVER", b"over\n")


def test_edited_configuration_of_another_package_is_not_taken(bench):
    name = "HOT/config/x"
    bench.install({name: b"1\n"}, package_id="PKG-C", config=(name,))
    bench.write(name, b"edited\n")
    with pytest.raises(OwnershipRefusedError):
        bench.install({name: b"2\n"}, package_id="PKG-D", dependencies=["PKG-C"], config=(name,))
    assert (bench.root / name).read_bytes() == b"edited\n"


def test_names_that_are_one_somewhere_are_one_file(bench):
    for path in ("HOT/kernel/A", "HOT/Kernel/c", "HOT/kernel/a/below", "HOT/kernel"):
        with pytest.raises(OwnershipRefusedError):
            bench.install({path: b"x"}, package_id="PKG-OVER", dependencies=["PKG-BASE"])


def test_a_receipt_that_took_a_file_over_does_not_load_and_no_package_changes(bench):
    """An earlier version let a package take files of another over."""
    path = bench.root / "HOT/installed/PKG-BASE/receipt.json"
    receipt = path.read_bytes()
    old = json.dumps(json.loads(receipt) | {"handed_over": [TAKEN]}).encode()
    with pytest.raises(ConfigError, match="took a file over") as caught:
        parse_receipt(old, "receipt.json")
    assert "uninstall it with the version" in caught.value.hint

    path.write_bytes(old)
    for dry in (True, False):
        wish = InstallWish(dev=True, is_dry_run=dry)
        with pytest.raises(GateRefusedError, match="took a file over"):
            bench.install({"HOT/kernel/c": b"c"}, wish, package_id="PKG-C")
    with pytest.raises(GateRefusedError, match="took a file over"):
        bench.uninstall("PKG-BASE")
    path.write_bytes(receipt)


def test_a_repair_goes_on_beside_a_package_that_is_missing(bench):
    away = bench.root.parent / "away"
    bench.install({"HOT/kernel/c": b"c"}, package_id="PKG-C")
    own = bench.root / "HOT/installed/PKG-BASE"
    own.rename(away)
    bench.write("HOT/kernel/c", b"edited")

    repair = InstallWish(dev=True, repairs=True)
    assert bench.install({"HOT/kernel/c": b"c"}, repair, package_id="PKG-C").status == "repaired"

    away.rename(own)
    assert (bench.root / "HOT/kernel/c").read_bytes() == b"c"


# What an upgrade or an uninstall does to each path


KEPT, GONE, NEW = "HOT/kernel/a", "HOT/kernel/b", "HOT/kernel/c"


@pytest.fixture
def installed():
    """A package of two files, and another."""
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install({KEPT: b"a\n", GONE: b"b\n"}, package_id="PKG-BASE")
        bench.install({"HOT/kernel/other": b"o\n"}, package_id="PKG-OTHER")
        yield read_installed(bench.layout)


def upgraded(*paths):
    files = dict.fromkeys(paths, b"new\n")
    return manifest_of(files, package_id="PKG-BASE", version="2.0.0")


def test_an_upgrade_puts_what_it_brings_and_removes_the_rest(installed):
    old = installed.packages["PKG-BASE"]
    new = upgraded(KEPT, NEW)
    assert plan_ownership(new, old, installed) == (
        Put(new.by_path[KEPT], old.files[KEPT]),
        Remove(GONE, old.files[GONE]),
        Put(new.by_path[NEW], None),
    )


def test_an_uninstall_removes_all(installed):
    old = installed.packages["PKG-BASE"]
    assert plan_ownership(None, old, installed) == (
        Remove(KEPT, old.files[KEPT]),
        Remove(GONE, old.files[GONE]),
    )
