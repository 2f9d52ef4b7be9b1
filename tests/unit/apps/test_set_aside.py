"""A damaged ledger is kept as evidence, and the plane goes on with a new one that says so."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.errors import LedgerDamagedError
from paddock.plane.environment import read_environment
from paddock.runtime.approvals import NoApprover

LEDGERS = ("governance", "ho2m", "ho1m")


def ledger(user, name: str) -> Path:
    return Path(user.run("where", "--json").json["ledgers"][name])


def accepted(user, name: str) -> list[dict]:
    ran = user.run("ledger", "query", "--ledger", name, "--type", "ROLLBACK_ACCEPTED", "--json")
    return [json.loads(row)["metadata"] for row in ran.out.splitlines()]


def edit(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"\n") + 20  # in the second line's id
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def remove_all(path: Path) -> None:
    path.unlink()
    shutil.rmtree(path.with_suffix(".d"))


DAMAGES = {
    "a byte changed": edit,
    "cut within a line": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "emptied": lambda path: path.write_bytes(b""),
    "no ledger at all": lambda path: path.write_bytes(b"\0\xff not a ledger\n"),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", LEDGERS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_kept_and_a_new_one_goes_on(lived, name, damage):
    path = ledger(lived, name)
    last = path.read_bytes().splitlines()
    DAMAGES[damage](path)
    broken = path.read_bytes() if path.exists() else None
    told = lived.run("ledger", "verify", "--full")
    assert (told.status, f"paddock ledger set-aside --ledger {name}" in told.out + told.err) == (
        4,
        True,
    )

    asked = lived.run("ledger", "set-aside", "--ledger", name)
    assert (asked.status, path.exists()) == (2, broken is not None)
    ran = lived.run("ledger", "set-aside", "--ledger", name, "--yes", "--json")

    assert (ran.status, ran.json["ledger"]) == (0, name), ran.err
    kept = Path(ran.json["kept"])
    found = kept / path.name
    assert (found.read_bytes() if found.exists() else None) == broken
    assert (kept / f"{name}.d" / "head").exists()
    assert lived.run("ledger", "verify", "--full").status == 0
    assert lived.call("view", path="f").status == 0
    [record] = accepted(lived, name)
    assert (record["by"], record["kept"]) == ("--yes", f"objects/set-aside/{kept.name}")
    assert record["signed"][0].startswith("paddock/")
    if damage == "a byte changed":
        assert record["good"] == {
            "seq": 0,
            "hash": hashlib.sha256(b"\0" + last[0]).hexdigest(),
        }
    if damage == "cut within a line":
        assert record["good"]["seq"] == len(last) - 2
    above = {"ho1m": "ho2m", "ho2m": "governance"}.get(name)
    if above is not None:
        assert accepted(lived, above)[-1] == record


def test_a_checkpoint_that_somebody_kept_still_shows_what_is_gone(lived):
    (lived.project / "kept").write_text(lived.run("ledger", "checkpoint").out, encoding="utf-8")
    edit(ledger(lived, "governance"))
    assert lived.run("ledger", "set-aside", "--ledger", "governance", "--yes").status == 0

    assert lived.run("ledger", "verify").status == 0
    assert lived.run("ledger", "verify", "--checkpoint", "kept").status == 4


@pytest.mark.parametrize("name", LEDGERS)
def test_what_can_be_gone_on_with_is_not_set_aside(lived, name):
    before = ledger(lived, name).read_bytes()

    ran = lived.run("ledger", "set-aside", "--ledger", name, "--yes")

    assert (ran.status, f"the ledger {name} is whole" in ran.err) == (2, True)
    assert ledger(lived, name).read_bytes() == before


def test_a_ledger_that_went_back_is_accepted_and_not_set_aside(lived, tmp_path):
    path = ledger(lived, "ho1m")
    shutil.copytree(path.parent, tmp_path / "backup")
    lived.call("view", path="f")
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "backup", path.parent)

    ran = lived.run("ledger", "set-aside", "--ledger", "ho1m", "--yes")

    assert (ran.status, "paddock ledger accept-rollback --ledger ho1m" in ran.err) == (2, True)
    assert lived.run("ledger", "accept-rollback", "--yes").status == 0


def test_one_that_never_was_is_said(user):
    ran = user.run("ledger", "set-aside", "--ledger", "ho1m", "--yes")

    assert (ran.status, "the ledger ho1m does not exist yet" in ran.err) == (2, True)


def test_stopped_half_way_the_same_command_goes_on(lived):
    path = ledger(lived, "ho1m")
    edit(path)
    broken = path.read_bytes()
    plane = path.parents[2]
    [signed] = (lived.home / ".config/paddock/keys").glob(f"{plane.name}.ho1m.signed")
    title = hashlib.sha256(signed.read_bytes()).hexdigest()[:16]
    # What stops it when the file is moved, and its folder is not.
    obstacle = plane / "objects/set-aside" / f"ho1m.{title}" / "ho1m.d"
    obstacle.mkdir(parents=True)

    stopped = lived.run("ledger", "set-aside", "--ledger", "ho1m", "--yes")
    assert (stopped.status, path.exists()) == (5, False)
    # Nobody begins another ledger meanwhile.
    assert lived.call("view", path="f").status == 4
    assert not path.exists()
    obstacle.rmdir()

    assert lived.run("ledger", "set-aside", "--ledger", "ho1m", "--yes").status == 0
    assert (obstacle.parent / "ho1m.jsonl").read_bytes() == broken
    assert (obstacle / "head").exists()
    [record] = accepted(lived, "ho1m")
    assert record["good"]["seq"] == 0
    assert lived.run("ledger", "verify").status == 0


@pytest.mark.parametrize("content", [b"", b"not a note", b"\xff\0"])
@pytest.mark.parametrize("is_there", [True, False])
def test_what_the_key_signed_last_may_be_spoilt_too(lived, content, is_there):
    path = ledger(lived, "ho1m")
    [signed] = (lived.home / ".config/paddock/keys").glob("*.ho1m.signed")
    signed.write_bytes(content)
    command = ["set-aside", "--ledger", "ho1m"]
    if not is_there:
        remove_all(path)
        # Nothing is left to set aside: the new one's key is told.
        lived.call("view", path="f")
    assert lived.run("ledger", "verify").status == 4

    assert lived.run("ledger", *command, "--yes").status == 0

    assert lived.run("ledger", "verify").status == 0
    [kept] = signed.parent.glob("*.ho1m.signed.before-rollback-*")
    assert kept.read_bytes() == content


def test_what_has_the_ledger_open_is_not_acknowledged_any_more(lived):
    project = open_project(lived.project, read_environment({"HOME": str(lived.home)}))
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        assert runtime.call("view", {"path": "f"}).refusal is None
        remove_all(ledger(lived, "ho1m"))
        assert lived.run("ledger", "set-aside", "--ledger", "ho1m", "--yes").status == 0
        with pytest.raises(LedgerDamagedError):
            runtime.call("view", {"path": "f"})
    assert lived.run("ledger", "verify").status == 0


def test_a_ledger_below_waits_for_the_one_that_records_it(lived):
    edit(ledger(lived, "ho1m"))
    ledger(lived, "ho2m").unlink()

    ran = lived.run("ledger", "set-aside", "--ledger", "ho1m", "--yes")

    assert (ran.status, ledger(lived, "ho1m").exists()) == (4, True)
    for name in ("ho2m", "ho1m"):
        assert lived.run("ledger", "set-aside", "--ledger", name, "--yes").status == 0
    assert lived.run("ledger", "verify").status == 0


def test_a_bare_plane_passes_its_gates_after_governance_was_set_aside(operator):
    edit(operator.plane / "HOT/ledger/governance.jsonl")
    assert operator.run("gate", "--gate", "G6", "--enforce").status == 1

    assert operator.run("ledger", "set-aside", "--ledger", "governance", "--yes").status == 0

    ran = operator.run("gate", "--all", "--json", "--enforce")
    assert (ran.status, ran.json["passed"]) == (0, 8)


def test_after_the_packages_ledger_its_operator_begins_anew(operator):
    edit(operator.plane / "HOT/ledger/packages.jsonl")
    assert operator.run("ledger", "set-aside", "--ledger", "packages", "--yes").status == 0
    # Whose key counts stood in that ledger.
    for key in (operator.plane / "HOT/registries/keys").iterdir():
        key.unlink()
    operator.run("bootstrap", "install", "--root", str(operator.plane), "--force")
    assert operator.run("package", "sign", "--installed").status == 0

    ran = operator.run("gate", "--all", "--json", "--enforce")
    assert (ran.status, ran.json["passed"]) == (0, 8)
