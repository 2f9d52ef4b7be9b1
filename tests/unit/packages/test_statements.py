"""Signing the installed set: what counts, what does not, and what a kill leaves."""

import pytest

from paddock.packages.ledger import enrolled_entry
from paddock.packages.signing import public_half, read_keys
from paddock.packages.statements import approve, read_vouched, sign_installed_set
from tests.support.changes import memory_directory
from tests.support.packages import KEY, Runner, manifest_of, open_bench

FILES = {"HOT/kernel/a.txt": b"a\n"}


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
