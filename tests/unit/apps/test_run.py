"""`paddock run` and `paddock session`: a turn without anybody there, and what is left of it."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from paddock.apps.cli.run import cancelled_by_signals
from tests.support.places import Place, Ran, new_place
from tests.support.planes import operator_in
from tests.support.wire_server import Fail, Hang, WireServer
from tests.support.wire_words import WIRES, calls, says

LOOK = {"text": "I look.", "calls": [{"name": "view", "arguments": {"path": "README.md"}}]}


def run_script(place: Place, *steps: dict, options: tuple[str, ...] = ()) -> Ran:
    script = place.base / "steps.json"
    script.write_text(json.dumps(steps))
    return place.run("run", "--model", f"scripted:{script}", *options, "go")


def test_the_built_in_model_answers_without_anything(place):
    ran = place.run("run", "show me README.md")

    assert (ran.status, ran.err) == (0, "")
    assert "# Widgets" in ran.out


def test_json_is_the_turns_result(place):
    ran = run_script(place, {"text": "done"}, options=("--json",))

    found = ran.json
    assert set(found) == {
        "response",
        "outcome",
        "work_orders",
        "cost",
        "session_id",
        "quality_gate_passed",
        "note",
    }
    assert (ran.status, found["response"], found["outcome"]) == (0, "done", "success")
    (order,) = found["work_orders"]
    assert (order["wo_type"], order["state"]) == ("synthesize", "completed")
    assert order["session_id"] == found["session_id"]
    assert order["input_context"]["user_message"] == "go"
    assert (found["cost"]["llm_calls"], found["cost"]["tool_calls"]) == (1, 0)
    assert found["note"] == "no tool ran in this turn"


def test_a_turn_in_which_no_tool_ran_says_so(place):
    ran = run_script(place, {"text": "Let me look."})

    assert (ran.status, ran.out) == (0, "Let me look.\n")
    assert ran.err == "note: no tool ran in this turn\n"


def test_a_turn_in_which_every_call_was_refused_says_that_no_tool_ran(place):
    call = {"name": "create_file", "arguments": {"path": ".git/config", "content": "x"}}
    ran = run_script(place, {"calls": [call]}, {"text": "It is done."})

    assert (ran.status, ran.out) == (0, "It is done.\n")
    assert ran.err == "note: no tool ran in this turn\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_turn_in_which_a_tool_ran_says_nothing_more(place, options):
    ran = run_script(place, LOOK, {"text": "It is about widgets."}, options=options)

    assert (ran.status, ran.err) == (0, "")
    assert not options or ran.json["note"] == ""


GREETING = "the model took the message for a greeting, and was offered no tools"


@pytest.mark.parametrize(
    ("speech_act", "ambiguity", "note"),
    [
        ("greeting", "low", f"no tool ran in this turn: {GREETING}"),
        ("greeting", "high", "no tool ran in this turn"),
        ("question", "low", "no tool ran in this turn"),
        ("song", "low", "no tool ran in this turn"),
    ],
)
def test_an_admin_that_was_offered_no_tools_says_why(tmp_path, speech_act, ambiguity, note):
    operator = operator_in(tmp_path).make()
    script = tmp_path / "steps.json"
    answer = {"structured": {"speech_act": speech_act, "ambiguity": ambiguity}}
    script.write_text(json.dumps([answer, {"text": "Let me look."}]))
    task = ("run", "--model", f"scripted:{script}", "run the gate check")

    ran, told = operator.run(*task), operator.run("--json", *task)

    assert (ran.status, ran.out) == (0, "Let me look.\n")
    assert ran.err.splitlines()[-1] == f"note: {note}"
    assert told.json["note"] == note
    offered = [order["constraints"]["tools_allowed"] for order in told.json["work_orders"]]
    assert (offered[-1] == []) == (GREETING in note)


def test_a_degraded_answer_is_exit_1(place):
    ran = run_script(place, {"stop": "refusal", "reason": "unsafe"}, options=("--json",))

    assert (ran.status, ran.json["outcome"]) == (1, "degraded")
    assert ran.json["quality_gate_passed"] is False


def test_steps_of_a_script_that_are_left_over_are_an_error(place):
    ran = run_script(place, {"text": "done"}, {"text": "and then?"})

    assert (ran.status, ran.out) == (3, "done\n")
    assert "1 of 2 steps of the script are left over" in ran.err


@pytest.mark.parametrize("spare", [(), ({"text": "spare"},)])
def test_an_expectation_that_does_not_hold_is_exit_3_and_named_whatever_came_of_the_turn(
    place, spare
):
    wrong = {"text": "d", "expects": "no such text"}
    ran = run_script(place, LOOK, wrong, *spare)

    assert ran.status == 3
    assert ("spare" in ran.out) == bool(spare)
    assert "error[config.invalid]: step 2 of the script expects 'no such text'" in ran.err
    assert "# Widgets" in ran.err


def test_an_expectation_that_holds_is_not_spoken_of(place):
    ran = run_script(place, LOOK, {"text": "d", "expects": "# Widgets"})

    assert (ran.status, ran.out, ran.err) == (0, "d\n", "")


@pytest.mark.parametrize(
    ("mode", "told"),
    [("warn", ["note: session has 9 of 9 tokens left"]), ("off", []), ("enforce", [])],
)
def test_who_runs_a_task_is_told_once_that_a_budget_is_short(tmp_path, mode, told):
    operator = operator_in(tmp_path).make()
    operator.change(classify=False, budget={"session_tokens": 9, "mode": mode})
    script = tmp_path / "steps.json"
    look = {"calls": [{"name": "gate_check", "arguments": {}}]}
    script.write_text(json.dumps([look, {"text": "done"}]))

    ran = operator.run("run", "--model", f"scripted:{script}", "go")

    assert ran.status == (1 if mode == "enforce" else 0), ran.err + ran.out
    notes = [line for line in ran.err.splitlines() if line.startswith("note: session")]
    assert [line.partition(", ")[0] for line in notes] == told
    assert (ran.out == "done\n") == (mode != "enforce")


def test_nobody_is_asked(place):
    call = {"calls": [{"name": "create_file", "arguments": {"path": "asked.txt", "content": "x"}}]}
    (place.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:file:view"]\nask = ["tool:file:create"]\n'
    )
    assert place.run("trust", "--yes").status == 0

    ran = run_script(place, call, {"text": "no"})

    assert (ran.status, ran.out) == (0, "no\n")
    assert not (place.project / "asked.txt").exists()
    denied = place.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_DENIED", "--json")
    assert denied.json["metadata"]["code"] == "approval.unavailable"


def test_what_a_model_says_cannot_drive_the_terminal(place):
    ran = run_script(place, {"text": "\x1b[2Jgone"})

    assert ran.out == "\\x1b[2Jgone\n"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--model", "nobody"), 3),
        (("--model", ":x"), 2),
        (("--model", "scripted:/nowhere"), 3),
        (("--model", "anthropic:m"), 3),
        (("--agent", "nobody"), 2),
    ],
)
def test_what_cannot_be_opened_says_so(place, options, status):
    ran = place.run("run", *options, "go")

    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith("error[")


def local(place: Place, url: str) -> None:
    write_provider(place, f'provider = "openai"\nbase_url = "{url}/v1"\napi = "chat"\n')


def write_provider(place: Place, rows: str) -> None:
    file = place.home / ".config/paddock/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[providers.local]\nmodel = "m"\n{rows}')


@pytest.mark.loopback
def test_a_server_of_ones_own_answers(place):
    with WireServer() as server:
        local(place, server.url)
        server.say(says("from the server"))

        ran = place.run("run", "--model", "local", "go")

    assert (ran.status, ran.out) == (0, "from the server\n")


@pytest.mark.loopback
@pytest.mark.parametrize("wire", WIRES)
def test_a_recorded_task_is_played_again_without_server_and_key(place, wire):
    with WireServer() as server:
        provider, base = ("anthropic", "") if wire == "anthropic" else ("openai", "/v1")
        api = "" if wire == "anthropic" else f'api = "{wire}"\n'
        write_provider(place, f'provider = "{provider}"\nbase_url = "{server.url}{base}"\n{api}')
        look = calls(("view", {"path": "README.md"}), text=("Look.",))
        server.say(look, says("It is about ", "widgets."))
        recorded = place.run("run", "--model", "local", "--record", "tape.jsonl", "what is it?")
    tape = place.project / "tape.jsonl"
    assert (recorded.status, recorded.out) == (0, "It is about widgets.\n")
    assert len(tape.read_text().splitlines()) == 2
    assert tape.stat().st_mode & 0o777 == 0o600
    # The file is no part of what the task met when it was recorded.
    moved = tape.rename(place.base / "tape.jsonl")

    played = place.run("run", "--model", "local", "--play", str(moved), "what is it?")

    assert (played.status, played.out, played.err) == (0, recorded.out, "")
    starts = place.run("ledger", "query", "--ledger", "ho2m", "--type", "SESSION_START", "--json")
    models = [json.loads(row)["metadata"]["model"] for row in starts.out.splitlines()]
    assert [each["provider"] for each in models] == [provider, f"played {provider}"]


@pytest.mark.loopback
def test_another_task_is_not_on_the_cassette(place):
    with WireServer() as server:
        local(place, server.url)
        server.say(says("yes"))
        place.run("run", "--model", "local", "--record", "tape.jsonl", "one")

    ran = place.run("run", "--model", "local", "--play", "tape.jsonl", "two")

    assert ran.status == 1
    assert "the cassette has no answer" in ran.out


@pytest.mark.loopback
def test_a_cassette_that_is_not_played_to_its_end_says_so(place):
    with WireServer() as server:
        local(place, server.url)
        server.say(says("yes"))
        place.run("run", "--model", "local", "--record", "tape.jsonl", "one")
    tape = place.project / "tape.jsonl"
    tape.write_text(tape.read_text() + tape.read_text().splitlines()[-1] + "\n")

    ran = place.run("run", "--model", "local", "--play", "tape.jsonl", "one")

    assert (ran.status, ran.out) == (3, "yes\n")
    assert "1 exchange of the cassette left over" in ran.err


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--record", "README.md", "--model", "openai:m"), 2),
        (("--record", "nowhere/tape", "--model", "openai:m"), 5),
        (("--record", "tape", "--model", "builtin"), 2),
        (("--record", "tape", "--play", "tape"), 2),
        (("--play", "missing", "--model", "openai:m"), 2),
        (("--play", "README.md", "--model", "openai:m"), 3),
        (("--play", "README.md", "--model", "builtin"), 2),
    ],
)
def test_a_cassette_that_cannot_be_used_says_so(place, options, status):
    before = (place.project / "README.md").read_bytes()

    ran = place.run("run", *options, "go")

    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith("error[")
    assert (place.project / "README.md").read_bytes() == before


def test_without_a_key_no_cassette_is_begun(place):
    ran = place.run("run", "--model", "openai:m", "--record", "tape.jsonl", "go")

    assert (ran.status, (place.project / "tape.jsonl").exists()) == (3, False)


@pytest.mark.loopback
def test_a_server_that_answers_errors_is_exit_1(place):
    with WireServer() as server:
        local(place, server.url)
        server.reply(*[Fail(401, "authentication_error")] * 4)

        ran = place.run("run", "--model", "local", "go")

    assert ran.status == 1
    assert "gateway_error" in ran.out


@pytest.mark.loopback
def test_a_server_that_is_not_there_is_exit_5(place, monkeypatch):
    from paddock import limits

    monkeypatch.setattr(limits, "model_retry_first_s", 0.0)
    with WireServer() as server:
        local(place, server.url)

    ran = place.run("run", "--json", "--model", "local", "go")

    assert (ran.status, ran.json["outcome"]) == (5, "degraded")


@pytest.mark.loopback
def test_an_interrupt_cancels_the_turn_and_the_turn_is_recorded(place):
    with WireServer() as server:
        local(place, server.url)
        server.reply(Hang())

        def interrupt() -> None:
            server.wait_for_request()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        ran = place.run("run", "--model", "local", "go")
        thread.join()

    assert (ran.status, ran.out) == (1, "The turn was cancelled.\n")
    turn = place.run("ledger", "query", "--ledger", "ho2m", "--type", "TURN_RECORDED", "--json")
    assert turn.json["metadata"]["outcome"] == "cancelled"


@pytest.mark.loopback
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_ends_turn_and_session_on_record(place, number):
    before = signal.getsignal(number)
    with WireServer() as server:
        local(place, server.url)
        server.reply(Hang())

        def end() -> None:
            server.wait_for_request()
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=end)
        thread.start()
        ran = place.run("run", "--json", "--model", "local", "go")
        thread.join()

    assert (ran.status, ran.json["outcome"]) == (128 + number, "error")
    told = place.run("ledger", "query", "--ledger", "ho2m", "--json").out.splitlines()
    entries = [json.loads(line) for line in told]
    ending = ["TURN_RECORDED", "SESSION_END", "CHECKPOINT"]
    assert [entry["event_type"] for entry in entries][-3:] == ending
    assert entries[-3]["metadata"]["outcome"] == "cancelled"
    assert signal.getsignal(number) is before


def test_a_hang_up_that_is_ignored_stays_so(place):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cancelled_by_signals() as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert (stopping.ended_by, signal.getsignal(signal.SIGHUP)) == (None, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


# --- session ------------------------------------------------------------------------------


@pytest.fixture
def session_id(place) -> str:
    return run_script(place, {"text": "first"}, options=("--json",)).json["session_id"]


def test_sessions_are_listed_and_shown(place, session_id):
    listed = place.run("session", "list")
    assert listed.out.startswith(session_id)

    (found,) = place.run("session", "list", "--json").json
    assert (found["turns"], found["last_outcome"], found["agent"]) == (1, "success", "main")

    shown = place.run("session", "show", session_id)
    assert "> go\n  first" in shown.out
    (turn,) = place.run("session", "show", session_id, "--json").json["turns"]
    assert (turn["user_message"], turn["response"]) == ("go", "first")


def test_only_one_agents_sessions(place, session_id):
    assert place.run("agent", "create", "other").status == 0
    assert place.run("session", "list", "--agent", "main", "--json").json != []
    assert place.run("session", "list", "--agent", "other", "--json").json == []


def test_a_session_goes_on(place, session_id):
    script = place.base / "more.json"
    script.write_text(json.dumps([{"text": "second", "expects": "more"}]))

    ran = place.run("session", "resume", session_id, "--model", f"scripted:{script}", "more")

    assert (ran.status, ran.out) == (0, "second\n")
    assert "keep_model_contents" in ran.err
    turns = place.run("session", "show", session_id, "--json").json["turns"]
    assert [turn["response"] for turn in turns] == ["first", "second"]


def test_an_export_is_printed_or_a_new_file(place, session_id):
    printed = place.run("session", "export", session_id)
    assert printed.json["session"]["session_id"] == session_id

    assert place.run("session", "export", session_id, "--out", "s.json").status == 0
    file = place.project / "s.json"
    assert json.loads(file.read_text()) == printed.json
    again = place.run("session", "export", session_id, "--out", "s.json")
    assert (again.status, json.loads(file.read_text())) == (2, printed.json)


@pytest.mark.parametrize("action", ["show", "export", "resume"])
def test_a_session_that_is_not_there_is_exit_2(place, session_id, action):
    task = ("go",) if action == "resume" else ()

    assert place.run("session", action, "SES-0000000000000000", *task).status == 2


def test_a_project_without_sessions_has_none(tmp_path: Path):
    with new_place() as fresh:
        assert fresh.run("session", "list", "--json").json == []
        assert "no sessions" in fresh.run("session", "list").err
