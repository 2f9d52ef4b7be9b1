"""G4: acceptance commands run and pass; to a model the last run is told, with its age."""

from datetime import UTC, datetime

import pytest

from paddock.errors import SandboxUnavailableError
from paddock.gates.results import GateResult, Status, not_applicable
from paddock.ledger.query import Filter, query
from paddock.packages.change import AcceptanceResult
from paddock.packages.rows import Failure
from tests.support.gates import failed_files, install_approved, make_plain_plane
from tests.support.indexes import hide_all
from tests.support.packages import Runner

PKG = "PKG-A-001"


class Failing:
    """The command of this number fails."""

    def __init__(self, number: int) -> None:
        self._left = number

    def run(self, acceptance, staged):
        self._left -= 1
        passed = self._left != 0
        return AcceptanceResult(acceptance.command, passed, 0 if passed else 3, "it said no", 0.1)


class Unconfined:
    def run(self, acceptance, staged):
        raise SandboxUnavailableError("no namespaces here")


def test_every_command_runs_once_with_its_own_time_out(plane):
    plane.runner = Runner()

    result = plane.check("G4")

    assert (result.status, result.checks, plane.runner.ran) == (Status.PASS, 3, ["pass"] * 3)


@pytest.mark.parametrize(("number", "package"), [(1, PKG), (2, PKG), (3, "PKG-T-001")])
def test_one_command_that_fails_fails_it(plane, number, package):
    plane.runner = Failing(number)

    result = plane.check("G4")

    assert result.failures == (
        Failure(f"HOT/installed/{package}/manifest.json", "'pass' ended with 3: it said no"),
    )


def test_commands_that_cannot_be_confined_do_not_pass(plane):
    plane.runner = Unconfined()

    assert failed_files(plane.check("G4")) == {
        f"HOT/installed/{PKG}/manifest.json",
        "HOT/installed/PKG-T-001/manifest.json",
    }


COMMAND = [{"command": "evil", "timeout_s": 5}]
MUTANTS = {
    "a command was added": lambda p: p.edit_package(PKG, acceptance=COMMAND),
    "the commands were taken out": lambda p: p.edit_package(PKG, acceptance=[]),
    "the time-out was raised": lambda p: p.edit_package(
        PKG, acceptance=[{"command": "pass", "timeout_s": 300}]
    ),
    "only the manifest was changed": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/manifest.json", acceptance=[]
    ),
    "the manifest is gone": lambda p: p.remove(f"HOT/installed/{PKG}/manifest.json"),
    "the package is gone": lambda p: p.remove(f"HOT/installed/{PKG}"),
    "all packages are gone": lambda p: p.remove("HOT/installed"),
    "the ledger is gone": lambda p: p.remove("HOT/ledger/packages.jsonl"),
    "the ledger tells of another manifest": lambda p: p.edit_install(
        PKG, digest="sha256:" + "0" * 64
    ),
}


@pytest.mark.parametrize("spoil", MUTANTS.values(), ids=MUTANTS)
def test_a_command_that_was_not_installed_so_never_runs_and_is_no_pass(plane, spoil):
    plane.runner = Runner()
    spoil(plane)

    assert plane.check("G4").status is Status.FAIL
    assert plane.runner.ran == []
    assert plane.check_for_model("G4").status is not Status.PASS


def test_where_no_package_declares_a_command_there_is_nothing_to_run(tmp_path):
    result = make_plain_plane(tmp_path / "plane").check("G4")

    assert result == not_applicable("G4", "no installed package declares an acceptance test")


# As a model gets it


def test_a_model_runs_no_command_and_hears_that_there_was_no_run(plane):
    plane.runner = Runner()

    assert plane.check_for_model("G4") == not_applicable("G4", "not run yet")
    assert plane.runner.ran == []


def last_timestamp(plane) -> float:
    rows = query(str(plane.ledger("governance")), Filter("GATE_RESULT"), last=1).entries
    return datetime.fromisoformat(rows[0].timestamp).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("passed_s", "age"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_300, "2 h"), (200_000, "2 d")]
)
def test_a_model_hears_of_the_last_run_with_its_age(plane, passed_s, age):
    plane.record(plane.check("G4"))
    plane.runner = Runner()
    plane.now = last_timestamp(plane) + passed_s + 0.5

    told = plane.check_for_model("G4")

    assert told == GateResult("G4", Status.PASS, 3, note=f"run {age} ago")
    assert plane.runner.ran == []


def test_a_run_that_failed_is_told_with_its_failures(plane):
    plane.record(plane.check("G4"))
    plane.runner = Failing(2)
    failed = plane.check("G4")
    plane.record(failed)

    told = plane.check_for_model("G4")
    assert (told.status, told.failures) == (Status.FAIL, failed.failures)


def test_a_run_that_failed_is_told_where_no_question_finds_it(plane):
    plane.record(plane.check("G4"))
    plane.runner = Failing(2)
    plane.record(plane.check("G4"))
    path = plane.ledger("governance")
    last = query(str(path), Filter("GATE_RESULT"), last=1).entries[0]
    hide_all(path, path.read_bytes().index(last.line))
    assert last not in query(str(path), Filter("GATE_RESULT"), last=9).entries

    assert plane.check_for_model("G4").status is Status.FAIL


def test_a_run_counts_only_for_what_was_installed_then(plane):
    plane.record(plane.check("G4"))
    with plane.bench() as bench:
        install_approved(bench, {"HOT/kernel/n": b"n"}, package_id="PKG-N")

    told = plane.check_for_model("G4")
    assert told.status is Status.NOT_APPLICABLE
    assert told.note.startswith(
        "not run yet on the packages that are installed now; the last was run "
    )


def test_what_other_gates_said_is_no_run(plane):
    plane.record(plane.check("G3"))
    plane.record(not_applicable("G4", "nothing declared"))

    assert plane.check_for_model("G4") == not_applicable("G4", "not run yet")
