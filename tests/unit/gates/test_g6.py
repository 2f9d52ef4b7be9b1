"""G6: every ledger verifies, and the packages ledger tells what is installed."""

import json
import os
import shutil

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.gates.checks import NOTHING_OUTSIDE
from paddock.gates.results import Status
from paddock.ledger.verify import ChainFault, LedgerProblem, verify
from paddock.packages.rows import Failure
from tests.support.gates import failed_files

LEDGERS = ("governance", "packages", "ho2m", "ho1m")
PKG = "PKG-A-001"


def file_of(plane, name: str) -> str:
    return plane.ledger(name).relative_to(plane.root).as_posix()


def edit_bytes(plane, name, change) -> None:
    path = plane.ledger(name)
    path.write_bytes(change(path.read_bytes()))


def lines(change):
    def edit(content: bytes) -> bytes:
        found = content.splitlines(keepends=True)
        changed = change(found)
        return b"".join(changed if isinstance(changed, list) else found)

    return edit


def last(name, value):
    """The last line in another form, which nothing after it is chained to."""

    def change(found):
        entry = json.loads(found[-1])
        entry[name] = value
        found[-1] = json.dumps(entry, separators=(",", ":")).encode() + b"\n"

    return change


EDITS = {
    "a line is missing": lines(lambda found: found.pop(1)),
    "the first line is missing": lines(lambda found: found.pop(0)),
    "a line twice": lines(lambda found: found.insert(1, found[1])),
    "a line of garbage": lines(lambda found: found.insert(1, b"garbage\n")),
    "an empty line": lines(lambda found: found.insert(1, b"\n")),
    "the last line is cut off": lines(lambda found: found[:-1]),
    "half of the last line is cut off": lambda content: content[:-9],
    "NULs at the end": lambda content: content + b"\0" * 9,
    "a changed last line": lines(last("reason", "another")),
    "other line ends": lambda content: content.replace(b"\n", b"\r\n"),
    "a mark before it": lambda content: b"\xef\xbb\xbf" + content,
}


@pytest.mark.parametrize("name", LEDGERS)
@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_a_ledger_that_is_not_as_it_was_written_is_found(plane, name, change):
    edit_bytes(plane, name, change)

    assert file_of(plane, name) in failed_files(plane.check("G6"))


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_that_is_gone_is_found_by_what_stands_beside_it(plane, name):
    plane.ledger(name).unlink()

    assert file_of(plane, name) in failed_files(plane.check("G6"))


@pytest.mark.parametrize("name", LEDGERS)
@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "fifo"])
def test_a_ledger_that_is_no_file_is_found(plane, name, kind):
    path = plane.ledger(name)
    moved = plane.root / "HO2/scratch" / path.name
    path.rename(moved)
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "dangling":
        path.symlink_to("nowhere")
        shutil.rmtree(path.with_suffix(".d"))
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)

    assert file_of(plane, name) in failed_files(plane.check("G6"))


@pytest.mark.parametrize("name", ["governance", "packages"])
def test_a_ledger_that_there_has_to_be_is_missed(plane, name):
    plane.ledger(name).unlink()
    shutil.rmtree(plane.ledger(name).with_suffix(".d"))

    assert file_of(plane, name) in failed_files(plane.check("G6"))


@pytest.mark.parametrize("name", ["ho2m", "ho1m"])
def test_a_ledger_that_was_never_made_is_no_failure(plane, name):
    plane.ledger(name).unlink()
    shutil.rmtree(plane.ledger(name).with_suffix(".d"))

    assert plane.check("G6").status is Status.PASS


def installed(package, **metadata):
    def change(entries):
        for entry in entries:
            if entry["metadata"].get("package_id") == package:
                entry["metadata"] |= metadata

    return change


REWRITTEN = {
    "the end was cut off": lambda entries: entries[:-1],
    "two installs were swapped": lambda entries: [*entries[:3], *reversed(entries[3:])],
    "another digest": installed(PKG, digest="sha256:" + "0" * 64),
    "another version": installed(PKG, version="9.9.9"),
    "another package": installed(PKG, package_id="PKG-OTHER"),
    "another receipt": installed(PKG, receipt="sha256:" + "0" * 64),
    "another set": installed(PKG, set_digest="sha256:" + "0" * 64),
    "a version before it": installed(PKG, previous={"digest": "sha256:" + "0" * 64}),
    "no digest": installed(PKG, digest=None),
    "a number for a text": installed(PKG, version=1),
    "an uninstall that never was": lambda entries: [
        *entries,
        {
            **entries[-1],
            "event_type": "PACKAGE_UNINSTALLED",
            "id": "LED-" + "0" * 32,
        },
    ],
    "other ids": lambda entries: [
        {**each, "id": "LED-" + f"{number:032x}"} for number, each in enumerate(entries)
    ],
}


@pytest.mark.parametrize("change", REWRITTEN.values(), ids=REWRITTEN)
def test_a_packages_ledger_that_chains_and_tells_something_else_is_found(plane, change):
    plane.rechain("packages", change)

    assert plane.check("G6").status is Status.FAIL


PLANES = {
    "another manifest": lambda p: p.edit_package(PKG, title="B"),
    "a receipt names another entry": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", ledger_entry="LED-" + "0" * 32
    ),
    "a receipt names no entry": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", ledger_entry=""
    ),
    "a receipt names another change": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", transaction="TX-" + "0" * 32
    ),
    "a receipt has another time": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", installed_at="2020-01-01T00:00:00Z"
    ),
    "a receipt has another mode": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json",
        files=[
            {**each, "mode": "755"}
            for each in json.loads(p.at(f"HOT/installed/{PKG}/receipt.json").read_bytes())["files"]
        ],
    ),
    "a receipt has no approval": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", wo_id=None
    ),
    "a receipt is gone": lambda p: p.remove(f"HOT/installed/{PKG}/receipt.json"),
    "a change was left half done": lambda p: p.write("objects/packages/transaction.json", b"{}"),
}


@pytest.mark.parametrize("spoil", PLANES.values(), ids=PLANES)
def test_a_plane_that_is_not_what_its_ledger_tells_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G6").status is Status.FAIL


# What is known outside


class Witness:
    """Knows that there has to be an `ho1m`, and what is wrong with it."""

    def __init__(self, problem: str = "") -> None:
        self._problem = problem
        self.asked: list[str] = []

    def expects(self, name):
        return name == "ho1m"

    def knows_plane(self):
        return True

    def verify(self, name, path):
        self.asked.append(name)
        return verify(str(path))

    def problem(self, name, found):
        assert found.path.endswith(f"{name}.jsonl")
        return self._problem if name == "ho1m" else ""


def test_the_witness_verifies_every_ledger(plane):
    witness = Witness()

    replace(plane, witness=witness).check("G6")

    assert witness.asked == ["governance", "packages", "ho2m", "ho1m"]


def test_a_plane_of_which_nothing_is_known_outside_passes_with_a_note(plane):
    known = replace(plane, witness=Witness()).check("G6")

    assert (known.status, known.note) == (Status.PASS, "")
    assert plane.check("G6") == replace(known, note=NOTHING_OUTSIDE)


class Remembers(Witness):
    """Holds a head of `ho2m` of more entries than there are."""

    def verify(self, name, path):
        found = verify(str(path))
        if name != "ho2m":
            return found
        why = "9 entries were signed (the directory '/home/me/anchors/x'), 4 are here"
        return replace(found, problems=(LedgerProblem(ChainFault.ROLLED_BACK, 0, 0, 0, why),))


def test_a_ledger_that_went_back_is_found_and_the_way_out_is_told(plane):
    (failure,) = replace(plane, witness=Remembers()).check("G6").failures

    assert failure == Failure(
        "HO2/ledger/ho2m.jsonl",
        "9 entries were signed (the directory '…/x'), 4 are here; if it was restored from a"
        " backup: paddock ledger accept-rollback",
    )


def test_what_the_witness_says_is_a_failure(plane):
    result = replace(plane, witness=Witness("it went back")).check("G6")

    assert result.failures == (Failure("HO1/ledger/ho1m.jsonl", "it went back"),)


def test_a_ledger_that_the_witness_expects_is_missed(plane):
    plane.ledger("ho1m").unlink()
    shutil.rmtree(plane.ledger("ho1m").with_suffix(".d"))

    assert failed_files(replace(plane, witness=Witness()).check("G6")) == {"HO1/ledger/ho1m.jsonl"}


class Blind(Witness):
    def problem(self, name, found):
        raise ConfigError("the anchor does not load")


def test_a_witness_that_cannot_be_asked_is_no_pass(plane):
    assert replace(plane, witness=Blind()).check("G6").status is Status.FAIL
