"""Posting files that lack rows, or a ledger put back: no judgement rests on them.

Each test hides rows from questions first, shows that a question does not find them any
more, and then that what is judged comes out the same.
"""

import json
import shutil
from pathlib import Path

import pytest

from paddock.ledger.query import Filter, query
from tests.support.indexes import hide_all
from tests.support.packages import archive_bytes
from tests.support.planes import Operator

FILES = {"HOT/kernel/a.txt": b"a\n"}


def ledger_of(operator: Operator, name: str) -> Path:
    (path,) = operator.plane.rglob(f"{name}.jsonl")
    return path


def hide(operator: Operator, name: str, event_type: str) -> None:
    path = ledger_of(operator, name)
    assert query(str(path), Filter(event_type)).entries != ()
    hide_all(path)
    assert query(str(path), Filter(event_type)).entries == ()


def hide_all_but_the_last(operator: Operator, name: str, event_type: str) -> None:
    path = ledger_of(operator, name)
    *before, last = query(str(path), Filter(event_type)).entries
    assert before
    hide_all(path, end=path.read_bytes().index(last.line))
    assert query(str(path), Filter(event_type)).entries == (last,)


def package(operator: Operator, *arguments: str):
    return operator.run("package", *arguments, "--json")


def approved(operator: Operator) -> str:
    """An archive, and its one approval."""
    archive = operator.base / "a.tar.gz"
    archive.write_bytes(archive_bytes(FILES))
    assert package(operator, "approve", str(archive)).status == 0
    return str(archive)


def used(operator: Operator) -> str:
    """An archive whose one approval was used, and that is not installed any more."""
    archive = approved(operator)
    assert package(operator, "install", archive).status == 0
    assert package(operator, "uninstall", "PKG-A-001").status == 0
    return archive


def checkpoints_of(operator: Operator, name: str) -> list[str]:
    report = operator.run("ledger", "verify", "--ledger", name, "--json").json[name]
    return [each["source"] for each in report["checkpoints"] if each["source"].startswith("entry")]


def test_an_approval_of_a_package_stays_used(operator):
    archive = used(operator)
    hide(operator, "packages", "PACKAGE_INSTALLED")
    ran = package(operator, "install", archive)
    assert (ran.status, "used already" in ran.json["failures"][0]["reason"]) == (2, True)


@pytest.mark.parametrize("put_back", [True, False], ids=["put back", "removed"])
def test_a_packages_ledger_of_before_allows_nothing_again(operator, tmp_path, put_back):
    archive = approved(operator)
    path = ledger_of(operator, "packages")
    beside = path.with_suffix(".d")
    shutil.copy(path, tmp_path / "before.jsonl")
    shutil.copytree(beside, tmp_path / "before.d")
    assert package(operator, "install", archive).status == 0
    assert package(operator, "uninstall", "PKG-A-001").status == 0
    path.unlink()
    shutil.rmtree(beside)
    if put_back:
        shutil.copy(tmp_path / "before.jsonl", path)
        shutil.copytree(tmp_path / "before.d", beside)
    ran = package(operator, "install", archive)
    assert (ran.status, "ledger.damaged" in ran.out + ran.err) == (4, True), ran
    assert not (operator.plane / "HOT/kernel/a.txt").exists()


def test_a_ledger_is_compared_with_every_checkpoint_in_the_one_above(operator):
    before = checkpoints_of(operator, "packages")
    assert before
    hide(operator, "governance", "CHECKPOINT")
    assert checkpoints_of(operator, "packages") == before


def test_a_ledger_that_governance_knows_is_expected(operator):
    assert operator.call("list_files").status == 0
    assert operator.run("ledger", "checkpoint", "--ledger", "ho1m").status == 0
    path = ledger_of(operator, "ho2m")
    hide(operator, "governance", "CHECKPOINT")
    assert operator.run("gate", "--gate", "G6").status == 0
    path.unlink()
    shutil.rmtree(path.with_suffix(".d"))
    ran = operator.run("gate", "--gate", "G6")
    assert ("FAIL" in ran.out, "ho2m" in ran.out) == (True, True), ran


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (["ho1m"], ["ho1m"]),
        (["ho1m", "ho2m"], ["ho2m"]),
        (["packages"], ["packages"]),
        (["governance"], ["governance"]),
        (["ho1m", "ho2m", "governance", "packages"], ["governance"]),
    ],
    ids=" ".join,
)
def test_ledgers_that_were_removed_with_all_beside_them_are_missed(operator, removed, said):
    assert operator.call("list_files").status == 0
    assert operator.run("ledger", "checkpoint", "--ledger", "ho1m").status == 0
    assert operator.run("ledger", "verify").status == 0
    for name in removed:
        path = ledger_of(operator, name)
        path.unlink()
        shutil.rmtree(path.with_suffix(".d"))
    ran = operator.run("ledger", "verify")
    assert ran.status == 4, ran
    for name in said:
        assert f"the ledger {name} is gone" in ran.err


def test_an_edited_configuration_is_not_taken_for_the_first_one(operator):
    found = json.loads(operator.config.read_bytes())
    operator.change(tool_profile="development")
    assert operator.call("list_files").status == 0  # which puts it on record
    hide_all_but_the_last(operator, "governance", "CONFIG_CHANGED")
    archive = operator.base / "a.tar.gz"
    archive.write_bytes(archive_bytes(FILES))
    ran = package(operator, "install", str(archive))
    assert (ran.status, found["tool_profile"]) == (2, "production"), ran
    assert not (operator.plane / "HOT/kernel/a.txt").exists()


def test_an_export_of_the_last_entries_has_them_all(operator):
    wanted = ["ledger", "export", "--ledger", "governance", "--type", "CHECKPOINT", "--last", "2"]
    before = operator.run(*wanted).out
    assert len(before.splitlines()) == 2
    hide(operator, "governance", "CHECKPOINT")
    assert operator.run(*wanted).out == before
