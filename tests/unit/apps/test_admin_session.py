"""The admin's session on a bare plane, line by line, with the built-in model and no key."""

import json
from collections.abc import Iterator

import pytest

from paddock.agent.contracts import SYNTHESIZE
from paddock.agent.events import CallFinished, TurnOutcome
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session
from tests.support.agents import Heard
from tests.support.models import provider_for
from tests.support.planes import RISKY, Operator, operator_with_plane
from tests.support.wire_server import WireServer
from tests.support.wire_words import WIRES, calls, says


@pytest.fixture
def operator() -> Iterator[Operator]:
    with operator_with_plane("--dev") as made:
        yield made


class Talk:
    """A session, and what each line led to."""

    def __init__(self, operator: Operator, variables: dict[str, str]) -> None:
        self.heard = Heard()
        project = open_project(operator.plane, operator.environment(variables))
        self.session = open_session(project, SessionWish(listener=self.heard))

    def say(self, line: str) -> tuple[str, list[tuple[str, dict]]]:
        """The answer, and the calls that were made for it."""
        self.heard.events.clear()
        result = self.session.handle_turn(line)
        assert (result.outcome, result.quality_gate_passed) == (TurnOutcome.SUCCESS, True)
        calls = self.heard.of(CallFinished)
        assert [call.result.status for call in calls] == ["ok"] * len(calls)
        return result.response, [(call.tool, dict(call.arguments)) for call in calls]


@pytest.fixture
def talk(operator):
    opened = Talk(operator, RISKY)
    yield opened
    opened.session.close()


def test_hello_is_answered_and_calls_nothing(talk):
    response, calls = talk.say("hello")

    assert "built-in model" in response
    assert calls == []


@pytest.mark.parametrize("line", ["help", "what can you do?"])
def test_help_names_the_tools_that_there_are(talk, line):
    response, calls = talk.say(line)

    assert (calls, "query_ledger" in response, "write_file_dev" in response) == ([], True, True)


def test_turn_events_come_from_the_session_ledger(talk):
    talk.say("hello")

    response, calls = talk.say("show me turn events from the session ledger")

    assert calls == [("query_ledger", {"ledger": "ho2m", "event_type": "TURN_RECORDED"})]
    assert '"user_message": "hello"' in response


def test_the_kernel_directory_is_listed(talk):
    _, calls = talk.say("what files are in the kernel directory?")

    assert calls == [("list_files", {"path": "HOT/kernel"})]


def test_what_is_installed_is_listed(talk):
    response, calls = talk.say("what frameworks are installed?")

    assert calls == [("list_packages", {})]
    assert "FMWK-" in response
    assert "  installed" in response


def test_the_gates_are_checked_and_no_acceptance_command_runs(talk, operator):
    response, calls = talk.say("run the gate check")

    assert calls == [("gate_check", {"gate": "all"})]
    for row in (
        "G0B  pass",
        "G1-COMPLETE  pass",
        "G2  not applicable",
        "G4  not applicable  0 checks  not run yet",
        "5 passed, 0 failed, 3 not applicable",
    ):
        assert row in response
    told = operator.entries("governance", "GATE_RESULT")
    assert [each["metadata"]["gate"] for each in told] == [
        "G0B", "G1", "G1-COMPLETE", "G2", "G3", "G5", "G6",
    ]  # fmt: skip
    assert {each["agent"] for each in told} == {"admin"}


@pytest.mark.needs("stage")
def test_the_operators_last_run_of_the_acceptance_commands_is_told(talk, operator):
    assert operator.run("gate", "--gate", "G4").status == 0

    response, _ = talk.say("run G4")

    assert "G4  pass" in response
    assert "  run " in response


def test_a_gate_that_fails_is_an_answer_with_file_and_reason(talk, operator):
    operator.write("HOT/kernel/.hidden", b"x")

    response, calls = talk.say("run gate G0B")

    assert calls == [("gate_check", {"gate": "G0B"})]
    assert "'HOT/kernel/.hidden': no package owns this file" in response


def test_with_the_gate_open_a_file_is_written_and_found(talk, operator):
    _, calls = talk.say('write a file at HO2/scratch/test.txt with the content "hello from admin"')
    written = {
        "path": "HO2/scratch/test.txt",
        "content": "hello from admin",
        "create_dirs": True,
    }
    assert calls == [("write_file_dev", written)]
    assert (operator.plane / "HO2/scratch/test.txt").read_text() == "hello from admin"

    operator.write("HO2/kernel/turns.py", b"def handle_turn():\n    return 1\n")
    response, calls = talk.say('search for "def handle_turn" in the HO2 directory')
    assert calls == [("grep_dev", {"pattern": "def handle_turn", "path": "HO2"})]
    assert "HO2/kernel/turns.py" in response


def test_with_the_gate_closed_there_is_no_such_tool(operator):
    talk = Talk(operator, {})
    response, calls = talk.say('write a file at HO2/scratch/test.txt with the content "x"')
    talk.session.close()

    assert ("which I do not have here" in response, calls) == (True, [])
    assert not (operator.plane / "HO2/scratch/test.txt").exists()


@pytest.mark.parametrize(("variables", "is_open"), [(RISKY, True), ({}, False)])
def test_what_the_gate_found_is_recorded_when_the_session_starts(operator, variables, is_open):
    talk = Talk(operator, variables)
    talk.session.close()

    (start,) = operator.entries("ho2m", "SESSION_START")
    (gate,) = operator.entries("governance", "DUAL_GATE")
    assert start["metadata"]["dual_gate"]["open"] is is_open
    assert ("write_file_dev" in start["metadata"]["tools_allowed"]) is is_open
    assert gate["metadata"] == start["metadata"]["dual_gate"]
    assert gate["session_id"] == start["session_id"] == talk.session.session_id


def test_the_context_of_a_turn_names_the_tier_and_other_sessions_turns(operator):
    first = Talk(operator, {})
    first.say("hello")
    first.session.close()
    (operator.home / ".config/paddock").mkdir(parents=True, exist_ok=True)
    (operator.home / ".config/paddock/config.toml").write_text(
        "[ledger]\nkeep_model_contents = true\n"
    )
    second = Talk(operator, {})
    second.say("hello")
    second.session.close()

    kept = [json.loads(e["metadata"]["contents"]) for e in operator.entries("ho1m", "LLM_CALL")[2:]]
    prompt = kept[1]["messages"][0]["text"]
    assert '"tier": "HOT"' in prompt
    assert '"user_message": "hello"' in prompt
    assert prompt.endswith("<user_message>hello</user_message>")


def test_classify_can_be_turned_off(operator):
    operator.change(classify=False)
    talk = Talk(operator, {})
    talk.say("hello")
    talk.session.close()

    planned = operator.entries("ho2m", "WO_PLANNED")
    assert [entry["metadata"]["wo_type"] for entry in planned] == ["synthesize"]


def test_a_tool_that_the_configuration_leaves_out_is_not_offered(operator):
    found = json.loads(operator.config.read_bytes())["tools"]
    operator.change(tools=[tool for tool in found if tool["tool_id"] != "query_ledger"])
    talk = Talk(operator, {})
    response, calls = talk.say("show me turn events from the session ledger")
    talk.session.close()

    assert (calls, "which I do not have here" in response) == ([], True)


CONTRACT = {
    "contract_id": SYNTHESIZE,
    "input_schema": {
        "type": "object",
        "properties": {"user_message": {"type": "string"}},
        "additionalProperties": False,
    },
    "output_schema": None,
    "template": "say hello",
    "boundary": {},
}


def test_a_planes_own_contract_is_used_and_its_digest_recorded(operator):
    operator.write(f"HO1/contracts/{SYNTHESIZE}.json", json.dumps(CONTRACT).encode())
    talk = Talk(operator, {})
    response, _ = talk.say("what files are in the kernel directory?")
    talk.session.close()

    assert "built-in model" in response
    planned = operator.entries("ho2m", "WO_PLANNED")[-1]
    assert planned["metadata"]["contract_digest"].startswith("sha256:")


def test_an_unpacked_planes_contracts_and_prompt_do_not_speak_for_the_operator(operator, tmp_path):
    operator.write(f"HO1/contracts/{SYNTHESIZE}.json", json.dumps(CONTRACT).encode())
    stranger = tmp_path / "unpacked"
    operator.plane.rename(stranger)
    # Found from within, and neither named nor registered.
    project = open_project(stranger / "HO2", operator.environment(RISKY))
    with open_session(project, SessionWish()) as session:
        assert session.charter.system_prompt.startswith("You are the admin agent")
        result = session.handle_turn("what files are in the kernel directory?")

    assert result.cost.tool_ids_used == ("list_files",)
    assert "write_file_dev" not in session.charter.tools_allowed


# --- with a server that speaks a vendor's API -----------------------------------------

LINES = [
    ("hello", None),
    ("what frameworks are installed?", ("list_packages", {})),
    (
        "show me turn events from the session ledger",
        ("query_ledger", {"ledger": "ho2m", "event_type": "TURN_RECORDED"}),
    ),
    ("what files are in the kernel directory?", ("list_files", {"path": "HOT/kernel"})),
    ("run the gate check", ("gate_check", {"gate": "all"})),
    (
        'write a file at HO2/scratch/test.txt with the content "hello from admin"',
        ("write_file_dev", {"path": "HO2/scratch/test.txt", "content": "hello from admin"}),
    ),
    (
        'search for "hello from" in the HO2 directory',
        ("grep_dev", {"pattern": "hello from", "path": "HO2/scratch"}),
    ),
]


@pytest.mark.loopback
@pytest.mark.parametrize("wire", list(WIRES))
def test_the_same_session_with_a_vendors_model(operator, wire):
    project = open_project(operator.plane, operator.environment(RISKY))
    with WireServer() as server:
        wish = SessionWish(provider=provider_for(wire, server.url))
        with open_session(project, wish) as session:
            for line, call in LINES:
                server.say(says('{"speech_act": "command", "ambiguity": "low"}'))
                server.say(*([] if call is None else [calls(call)]), says(f"done: {line}"))
                result = session.handle_turn(line)
                assert (result.response, result.outcome) == (f"done: {line}", TurnOutcome.SUCCESS)
                used = () if call is None else (call[0],)
                assert result.cost.tool_ids_used == used
        assert server.replies_left == 0
    assert (operator.plane / "HO2/scratch/test.txt").read_text() == "hello from admin"
    assert len(operator.entries("ho2m", "TURN_RECORDED")) == len(LINES)
