"""Signing the installed set: what counts, what does not, and what a kill leaves."""

import pytest

from paddock.ledger.signing import make_key
from paddock.packages.install import InstallWish, install
from paddock.packages.ledger import enrolled_entry
from paddock.packages.rows import Failure, GateRefusedError
from paddock.packages.signing import enrol_key, public_half, read_keys
from paddock.packages.statements import approve, read_vouched, sign_installed_set
from tests.support.changes import memory_directory
from tests.support.packages import KEY, Runner, archive_of, manifest_of, open_bench

FILES = {"HOT/kernel/a.txt": b"a\n"}
OTHER = make_key("other/operator", bytes(32))


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        yield bench


def vouched(bench):
    return read_vouched(bench.log().entries)


def test_the_first_who_signs_becomes_the_planes_operator(bench):
    bench.install(FILES)

    signed = sign_installed_set(bench.depot, KEY)

    assert list(read_keys(bench.layout)) == [public_half(KEY).key_id] == list(vouched(bench).keys)
    assert signed.after == bench.log().entries[-2].id
    (row,) = vouched(bench).rows
    assert row == ("PKG-A-001", "1.0.0", manifest_of(FILES).digest)
    assert vouched(bench).problems == []


def test_each_statement_follows_the_one_before(bench):
    sign_installed_set(bench.depot, KEY)
    bench.install(FILES)
    sign_installed_set(bench.depot, KEY)
    sign_installed_set(bench.depot, KEY)

    assert (vouched(bench).statements, vouched(bench).problems) == (3, [])


def test_the_empty_set_is_signed_once_with_the_first_approval(bench):
    approve(bench.depot, manifest_of(FILES), KEY, (), 60)
    approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert bench.events() == ["OPERATOR_KEY_ENROLLED", "PACKAGE_SET_SIGNED"]


def test_a_kill_between_the_entry_of_a_key_and_the_key_costs_nothing(bench):
    bench.depot.ledger.append(enrolled_entry(public_half(KEY)))

    approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert vouched(bench).problems == []
    assert list(vouched(bench).keys) == [public_half(KEY).key_id]


def test_what_an_approval_finds_installed_is_not_signed_by_the_way(bench):
    bench.install(FILES)
    approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert vouched(bench).statements == 0


def test_a_key_approves_nothing_before_an_operator_vouches_for_it(bench):
    sign_installed_set(bench.depot, KEY)
    enrol_key(bench.layout, public_half(OTHER))
    archive = archive_of(FILES)
    made = approve(bench.depot, archive.manifest, OTHER, (), 60)
    before = bench.tree(), bench.events()

    with pytest.raises(GateRefusedError) as caught:
        install(bench.depot, archive, InstallWish())

    why = "no operator of this plane has vouched for its key: paddock package sign --installed"
    file = f"HOT/registries/approvals/{made.approval.wo_id}.json"
    assert (caught.value.gate, caught.value.failures) == ("G2", (Failure(file, why),))
    assert (bench.tree(), bench.events()) == before
    sign_installed_set(bench.depot, KEY)
    assert install(bench.depot, archive, InstallWish()).status == "installed"


@pytest.mark.parametrize("key", [KEY, OTHER])
def test_a_package_without_an_approval_gets_one_only_by_a_key_that_counts(bench, key):
    sign_installed_set(bench.depot, KEY)
    bench.install(FILES)
    enrol_key(bench.layout, public_half(OTHER))

    made = approve(bench.depot, manifest_of(FILES), key, (), 60)

    assert (made.settles_install, "PACKAGE_APPROVED" in bench.events()) == ((key is KEY),) * 2


def test_before_the_first_statement_the_planes_first_key_counts(bench):
    bench.install({"HOT/kernel/b.txt": b"b\n"}, package_id="PKG-B")
    approve(bench.depot, manifest_of(FILES), KEY, (), 60)

    assert vouched(bench).statements == 0
    assert install(bench.depot, archive_of(FILES), InstallWish()).status == "installed"
