"""What an upgrade or an uninstall does to each path."""

import pytest

from paddock.packages.installed import Put, Remove, plan_ownership, read_installed
from tests.support.changes import memory_directory
from tests.support.packages import Runner, manifest_of, open_bench

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
