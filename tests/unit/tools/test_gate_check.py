"""`gate_check`: what the gates say, as a model sees it."""

import jsonschema
import pytest
from msgspec.structs import replace

from paddock.errors import InvalidArgumentsError
from paddock.gates.results import PLANE_GATES, GateResult, Status, not_applicable
from paddock.packages.rows import Failure
from paddock.tools.plane import GATE_CHECK
from paddock.values.decisions import Action


def judged(gate: str, checks: int, failures: tuple[Failure, ...]) -> GateResult:
    return GateResult(gate, Status.FAIL if failures else Status.PASS, checks, failures)


class Saying:
    """Each gate says what it was told to, and passes otherwise."""

    def __init__(self, *results: GateResult) -> None:
        self._results = {result.gate: result for result in results}
        self.asked: list[tuple[str, ...]] = []

    def check(self, names):
        self.asked.append(tuple(names))
        return tuple(self._results.get(name, judged(name, 3, ())) for name in names)


@pytest.fixture
def asking(desk):
    def run(gates, **arguments):
        here = replace(desk, ports=replace(desk.ports, gates=gates and gates.check))
        output = here.run("gate_check", **arguments)
        answer = {"status": "ok", "content": output.content, **output.details}
        jsonschema.Draft202012Validator(GATE_CHECK.spec.output_schema).validate(answer)
        return output

    return run


def test_every_gate_has_a_row_and_all_are_counted(asking):
    gates = Saying(
        judged("G0B", 9, (Failure("HOT/kernel/x", "no package owns this file"),)),
        not_applicable("G4", "not run yet"),
    )

    output = asking(gates, gate="all")

    assert gates.asked == [PLANE_GATES]
    assert output.content.splitlines() == [
        "G0B  FAIL  9 checks",
        "  'HOT/kernel/x': no package owns this file",
        "G1  pass  3 checks",
        "G1-COMPLETE  pass  3 checks",
        "G2  pass  3 checks",
        "G3  pass  3 checks",
        "G4  not applicable  0 checks  not run yet",
        "G5  pass  3 checks",
        "G6  pass  3 checks",
        "6 passed, 1 failed, 1 not applicable",
    ]
    assert output.details["gates"][0] == {
        "name": "G0B",
        "status": "fail",
        "passed": False,
        "checks": 9,
        "failures": [{"file": "HOT/kernel/x", "reason": "no package owns this file"}],
        "note": "",
    }
    counts = [output.details[name] for name in ("passed", "failed", "not_applicable")]
    assert counts == [6, 1, 1]


def test_what_is_not_applicable_has_not_passed(asking):
    output = asking(Saying(not_applicable("G2", "why")), gate="G2")

    assert output.details["gates"][0]["passed"] is False


def test_one_gate_is_asked_alone(asking):
    gates = Saying()
    asking(gates, gate="G1-COMPLETE")
    asking(gates)

    assert gates.asked == [("G1-COMPLETE",), PLANE_GATES]


@pytest.mark.parametrize("name", ["G7", "g0b", "ALL", "all ", "G0B\x1b"])
def test_a_gate_that_there_is_not_is_refused_with_those_that_there_are(desk, name):
    with pytest.raises(InvalidArgumentsError) as caught:
        desk.plan("gate_check", gate=name)

    assert "Valid: all, G0A, G0B, G1, G1-COMPLETE" in caught.value.message
    assert "\x1b" not in caught.value.message


def test_names_from_files_forge_no_row(asking):
    failure = Failure("x\nG6  pass  1 checks", "it\nis")
    content = asking(Saying(judged("G6", 1, (failure,))), gate="G6").content

    assert len(content.splitlines()) == 3


def test_many_failures_are_cut_and_the_cut_is_said(asking):
    failures = [Failure(f"f{number}", "r") for number in range(50)]
    output = asking(Saying(judged("G0B", 50, failures)), gate="G0B")

    assert "  [30 more failures are not listed]" in output.content
    assert len(output.details["gates"][0]["failures"]) == 50


def test_files_that_are_not_shown_are_counted_and_not_named(asking):
    failures = (Failure("secret.txt", "r"), Failure("HOT/x", "r"), Failure("", "r"))
    output = asking(Saying(judged("G0B", 3, failures)), gate="G0B")

    assert "secret" not in str(output)
    assert "  [1 failures of files that are not shown]" in output.content
    assert [each["file"] for each in output.details["gates"][0]["failures"]] == ["HOT/x", ""]


def test_a_workspace_that_is_on_no_plane_has_no_gates(desk):
    output = desk.run("gate_check", gate="all")

    assert {row["status"] for row in output.details["gates"]} == {Status.NOT_APPLICABLE}


def test_it_is_judged_as_one_action_of_its_own(desk):
    assert desk.plan("gate_check", gate="G1").actions == (Action("gate", "check", "G1"),)
