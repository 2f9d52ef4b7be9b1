"""The loop and its commands, on a pipe and in this process: no terminal, no key, no network."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from paddock.apps.admin.plain import PlainKeyboard, PlainScreen, Vocabulary
from paddock.apps.admin.session import Setting
from paddock.apps.admin.shell import run_shell
from paddock.apps.admin.show import Sandboxed
from paddock.assembly.agents import create_agent
from paddock.assembly.project import Project
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session
from paddock.errors import HostError
from paddock.plane.agents import AgentSpec
from tests.support.admin_program import SANDBOXES
from tests.support.admin_shells import RISKY, Site, new_plane
from tests.support.wire_server import Hang, WireServer


def blocks(shown: str) -> dict[str, list[str]]:
    """What was shown below each line that was typed."""
    found: dict[str, list[str]] = {}
    rows: list[str] = []
    for each in shown.split("\n"):
        head, prompt, said = each.partition("> ")
        if prompt and head.split("] ")[-1] in {"admin", "main"}:
            rows = found.setdefault(said, [])
        else:
            rows.append(each)
    return found


@pytest.mark.loopback
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_the_shell_on_a_pipe_ends_turn_and_session_on_record(plane, number):
    with WireServer() as server:
        server.reply(Hang())

        def end() -> None:
            server.wait_for_request()
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=end)
        thread.start()
        model = plane.use_server("chat", server.url)
        status, shown = plane.shell("go\nnever read\n", model=model)
        thread.join()

    assert status == 128 + number
    assert "cancelled" in shown
    assert "never read" not in shown
    (turn,) = plane.entries("ho2m", "TURN_RECORDED")
    assert (turn.metadata["user_message"], turn.metadata["outcome"]) == ("go", "cancelled")
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_a_pipe_that_ends_ends_the_session(plane):
    status, shown = plane.shell("hello\n")
    assert status == 0
    assert "1 turn, 0 tokens" in shown
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_a_last_line_without_its_end_counts(plane):
    plane.shell("hello")
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello"


@pytest.mark.parametrize("command", ["/exit", "/quit"])
def test_exit_leaves_and_nothing_behind_it_is_read(plane, command):
    _, shown = plane.shell(f"{command}\nhello\n")
    assert plane.entries("ho2m", "TURN_RECORDED") == []
    assert "0 turns" in shown


def test_empty_lines_say_nothing(plane):
    plane.shell("\n   \n\t\n")
    assert plane.entries("ho2m", "TURN_RECORDED") == []


def test_a_turn_without_an_answer_is_the_status_of_a_pipe(project):
    model = project.script({"error": {"kind": "request", "message": "no"}})
    assert project.shell("go\n", model=model)[0] == 1
    model = project.script({"text": "yes"})
    assert project.shell("go\n", model=model)[0] == 0


def test_a_command_that_fails_says_so_and_the_shell_goes_on(plane):
    _, shown = plane.shell("/resume SES-0\n/sesions\n/call\n/show x\n/ledger x\n/expand\nhello\n")
    found = blocks(shown)
    assert found["/resume SES-0"][0] == "error[usage]: no session named 'SES-0'"
    assert found["/sesions"][1].startswith("  hint:  did you mean /sessions")
    assert found["/call"][0] == "error[usage]: no tool given"
    assert found["/show x"][0] == "error[usage]: cannot show 'x'"
    assert found["/ledger x"][0] == "error[usage]: no ledger named 'x'"
    assert found["/expand"][0] == "error[usage]: no call yet"
    assert found["hello"][0].startswith("┃ Hello.")


def test_a_line_that_begins_with_a_space_is_said_to_the_model(plane):
    plane.shell(" /cost\n")
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "/cost"


def test_the_frameworks_and_the_gates_are_listed(plane):
    lines = {"what frameworks are installed?": "list_packages", "run the gate check": "gate_check"}
    _, shown = plane.shell("\n".join([*lines, "/show packages", "/show frameworks", ""]))
    found = blocks(shown)
    for said, tool in lines.items():
        first = found[said][0]
        assert first.startswith("  #")
        assert f" ok {tool} " in first
    for what in ("packages", "frameworks"):
        assert " ok list_packages" in found[f"/show {what}"][0]


@pytest.mark.parametrize(
    "given", ['{"path": "HOT/config"}', "path=HOT/config", "path='HOT/config'"]
)
def test_a_call_of_ones_own_is_governed_and_recorded(plane, given):
    _, shown = plane.shell(f"/call list_files {given}\n")
    assert "  │ HOT/config/admin_config.json" in shown
    [start] = plane.entries("ho2m", "SESSION_START")
    [intent] = plane.entries("ho1m", "TOOL_INTENT")
    assert (intent.session_id, intent.agent) == (start.session_id, "admin")


def test_a_call_of_ones_own_is_refused_as_every_other(plane):
    _, shown = plane.shell("/call nothing\n/call write_file_dev path=a content=b\n/call view {\n")
    found = blocks(shown)
    assert "tool.unknown · not run" in found["/call nothing"][0]
    assert "tool.unknown · not run" in found["/call write_file_dev path=a content=b"][0]
    assert found["/call view {"][0].startswith("error[args.invalid]")
    denied = [entry.metadata["code"] for entry in plane.entries("ho1m", "TOOL_DENIED")]
    assert denied == ["tool.unknown", "tool.unknown"]
    assert not (plane.here / "a").exists()


def test_on_a_pipe_nobody_is_asked_and_the_question_waits(project):
    _, shown = project.shell("delete README.md\ny\ny\n")
    assert "asks to run delete_file" in shown
    assert "ask: no · approval.unavailable · not run" in shown
    assert "[y/N" not in shown
    assert (project.here / "README.md").exists()
    assert len(list(project.base.rglob("APR-*"))) == 1


def test_sessions_are_listed_and_resumed(plane):
    plane.shell("hello\n")
    [start] = plane.entries("ho2m", "SESSION_START")
    before = start.session_id
    _, shown = plane.shell(f"/sessions\n/resume {before}\nshow me turn events\n/resume {before}\n")
    found = blocks(shown)
    [row] = [each for each in found["/sessions"] if before in each]
    assert row.split()[2:] == ["ended", "1", "hello"]
    assert f"resumed {before} after 1 turn" in found[f"/resume {before}"]
    assert any("this session is open already" in each for each in found[f"/resume {before}"])
    turns = [(e.session_id, e.metadata["turn"]) for e in plane.entries("ho2m", "TURN_RECORDED")]
    assert turns == [(before, 1), (before, 2)]
    ends = [entry.session_id for entry in plane.entries("ho2m", "SESSION_END")]
    assert (len(ends), ends[-1]) == (3, before)


class ByAgent:
    """A host that holds the commands of each agent otherwise, as their profiles ask for it."""

    def __call__(self, project: Project, agent: str | None) -> Sandboxed:
        return SANDBOXES["none" if agent == "loose" else "refused"]


class FirstAlone:
    """A host that can be examined once."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, project: Project, agent: str | None) -> Sandboxed:
        self._asked += 1
        if self._asked > 1:
            raise HostError("nothing can be tried")
        return SANDBOXES["full"]


class Learner(PlainKeyboard):
    """Keeps the tools that it could complete."""

    def __init__(self, source: io.StringIO, screen: PlainScreen) -> None:
        super().__init__(source, screen)
        self.learnt: list[set[str]] = []

    def learn(self, known: Vocabulary) -> None:
        self.learnt.append(set(known.parameters))


def test_a_resumed_session_is_shown_and_completed_as_its_own_agent(project):
    opened = open_project(project.here, project.environment())
    create_agent(opened, AgentSpec("loose", toolsets=("search",)))
    variables = project.variables()
    with open_session(opened, SessionWish(agent="loose", variables=variables)) as session:
        before = session.session_id
    out = io.StringIO()
    screen = PlainScreen(out)
    typed = io.StringIO(f"/resume SES-0\n/resume {before}\n/status\n")
    keyboard = Learner(typed, screen)

    run_shell(Setting(opened, None, None, variables, ByAgent()), screen, keyboard)

    shown = out.getvalue()
    refused, unconfined = (
        f"SANDBOX NONE: {said}" for said in ("commands are refused", "commands run unconfined")
    )
    assert f"[{refused}] main> /resume {before}\n" in shown
    assert f"*** {unconfined} ***\n" in shown
    assert f"[{unconfined}] loose> /status\n" in shown
    assert ["run_shell" in tools for tools in keyboard.learnt] == [True, False]


def test_a_session_whose_sandbox_cannot_be_examined_is_not_resumed(project):
    opened = open_project(project.here, project.environment())
    variables = project.variables()
    with open_session(opened, SessionWish(variables=variables)) as session:
        before = session.session_id
    out = io.StringIO()
    screen = PlainScreen(out)
    typed = io.StringIO(f"/resume {before}\n/status\n")

    run_shell(
        Setting(opened, None, None, variables, FirstAlone()), screen, PlainKeyboard(typed, screen)
    )

    shown = out.getvalue()
    assert "error[host]: nothing can be tried" in shown
    assert shown.count("agent main works on project") == 1
    begun = {entry.session_id for entry in project.entries("ho2m", "SESSION_START")}
    assert {entry.session_id for entry in project.entries("ho2m", "SESSION_END")} == begun
    [start] = [e for e in project.entries("ho2m", "SESSION_START") if e.session_id != before]
    assert re.search(f"session +{start.session_id}", shown)


def test_what_is_shown_of_the_plane_is_what_governs_it(plane):
    text = "/show config\n/policy\n/policy tool:file:create HOT/kernel/x\n/tools\n/status\n/cost\n"
    _, shown = plane.shell(f"{text}/ledger governance\n/ledger ho2m 1\n/ledger verify\n/doctor\n")
    found = blocks(shown)
    assert any("tool_profile" in each and "production" in each for each in found["/show config"])
    assert any("tool:ledger:*" in each for each in found["/policy"])
    assert (
        found["/policy tool:file:create HOT/kernel/x"][0] == "deny: tool:file:create HOT/kernel/x"
    )
    assert any(each.split()[:3] == ["list_files", "core", "reads"] for each in found["/tools"])
    assert any("dual gate" in each and "closed" in each for each in found["/status"])
    assert any("is free" in each for each in found["/cost"])
    assert any("PLANE_CREATED" in each for each in found["/ledger governance"])
    assert [each.split()[2] for each in found["/ledger ho2m 1"][1:2]] == ["SESSION_START"]
    assert {each.split()[1] for each in found["/ledger verify"][1:] if each} == {"whole"}
    assert any(each.split()[:1] == ["yes"] and "python" in each for each in found["/doctor"])


def test_the_gate_decides_what_the_model_is_offered_and_the_badge_says_so(tmp_path):
    plane = new_plane(tmp_path, "development")
    for variables, is_open in (({}, False), (RISKY, True)):
        _, shown = plane.shell("/tools\n", **variables)
        assert ("*** DEVELOPMENT TOOLS ARE ON ***" in shown) is is_open
        assert ("[DEVELOPMENT TOOLS ARE ON] admin> /tools" in shown) is is_open
        assert ("write_file_dev" in shown) is is_open


def test_what_a_pipe_holds_is_repeated_escaped(plane):
    _, shown = plane.shell("/\x1b[2J\u202e\n")
    assert "admin> /\\x1b[2J\\u202e" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_batch_ends_with_an_error_at_the_first_line_that_is_not_utf_8(plane, options):
    ran = plane.pipe_bytes(b"hello\nbad \xff byte\nhello again\n", *options)
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"error[usage]: 'bad \\xff byte' is not UTF-8")
    assert b"  where: standard input, line 2\n" in ran.stderr
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello"
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_a_batch_that_is_utf_8_is_carried_out_to_its_end(plane):
    ran = plane.pipe_bytes("caf\u00e9\n\ufffd\n".encode())
    assert (ran.returncode, ran.stderr) == (0, b"")
    said = [turn.metadata["user_message"] for turn in plane.entries("ho2m", "TURN_RECORDED")]
    assert said == ["caf\u00e9", "\ufffd"]


LONG = "9" * 5_000
"""More digits than Python makes an integer of."""


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (f"/ledger governance {LONG}", "invalid number of entries"),
        ("/ledger governance 1234567890", "invalid number of entries '1234567890'"),
        (f"/expand {LONG}", "call '999"),
        (f"/expand #{LONG}", "call '#999"),
        ("/expand 1234567890", "call '1234567890' not found"),
        (f"/call list_files path={LONG}", "error[path."),
        (f'/call list_files {{"path": {LONG}}}', "error[args.invalid]"),
        (f"/resume {LONG}", "no session named"),
        (f"/show {LONG}", "cannot show"),
    ],
    ids=lambda text: text[:30],
)
def test_a_number_of_any_length_is_an_error_and_the_shell_goes_on(plane, typed, error):
    status, shown = plane.shell(f"{typed}\nhello\n")
    found = blocks(shown)
    assert status == 0
    assert error in "\n".join(found[typed])
    assert found["hello"][0].startswith("┃ Hello.")


def test_the_longest_number_of_entries_shows_them_all(plane):
    _, shown = plane.shell("/ledger governance 0\n/ledger governance 999999999\n")
    found = blocks(shown)
    assert any("PLANE_CREATED" in each for each in found["/ledger governance 0"])
    assert found["/ledger governance 999999999"] != []


def test_json_lines_hold_all_that_happens(plane):
    (plane.here / "HOT/kernel/loader.py").write_text("x = 1\n")
    ran = plane.pipe("what files are in the kernel directory?\n/cost\n", "--json")
    rows = [json.loads(each) for each in ran.stdout.splitlines()]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {row["kind"] for row in rows} == {"status", "text", "turn"}
    [turn] = [row for row in rows if row["kind"] == "turn"]
    assert turn["outcome"] == "success"
    assert turn["response"].startswith("Files:\nHOT/kernel/")
    assert rows[0]["kind"] == "status"
    assert rows[0]["gate_is_open"] is False
    assert ran.stdout.isascii()


VERDICT = {
    "type": "object",
    "properties": {"response_text": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["response_text", "sure"],
    "additionalProperties": False,
}


def ask_for(plane: Site, schema: dict) -> None:
    """Have the plane's contract of an answer ask for an object."""
    file = plane.here / "HO1/contracts/PRC-SYNTHESIZE-001.json"
    contract = json.loads(file.read_text()) | {"output_schema": schema}
    contract["boundary"]["structured_output"] = True
    file.chmod(0o644)
    file.write_text(json.dumps(contract))


def test_an_answer_with_a_schema_is_shown_once_and_a_rejected_one_is_not_shown(plane):
    ask_for(plane, VERDICT)
    rejected = {"structured": {"response_text": "perhaps", "sure": "no"}}
    accepted = {"structured": {"response_text": "yes\nit is", "sure": True}}
    question = {"structured": {"speech_act": "question", "ambiguity": "low"}}
    model = plane.script(question, rejected, accepted)

    shown = blocks(plane.pipe("is it so?\n", "--model", model).stdout)
    ran = plane.pipe("is it so?\n", "--json", "--model", model)

    assert shown["is it so?"] == ["┃ yes", "┃ it is", ""]
    rows = [json.loads(each) for each in ran.stdout.splitlines()]
    kinds = [row["kind"] for row in rows]
    assert rows[kinds.index("turn")]["response"] == "yes\nit is"
    said = [row["lines"] for row in rows if row["kind"] == "text"]
    assert [each for each in said if "yes" in str(each)] == [["┃ yes", "┃ it is"]]
    assert "perhaps" not in str(said)


def test_an_agent_or_model_that_is_not_there_is_an_error_with_its_exit(plane):
    for options, status in ((["--agent", "nobody"], 2), (["--model", "nothing:x"], 3)):
        ran = plane.pipe("hello\n", *options)
        assert (ran.returncode, ran.stderr.startswith("error[")) == (status, True), ran
    assert plane.entries("ho2m", "TURN_RECORDED") == []


LOADED = """
import sys
from paddock.apps.cli.main import console
try:
    console()
finally:
    found = {"rich", "prompt_toolkit"} & set(sys.modules)
    print("loaded:", sorted(found))
"""


@pytest.mark.parametrize(
    "arguments", [["admin"], ["admin", "--json"], ["call", "list_files", "{}"]]
)
def test_without_a_terminal_no_library_that_draws_is_loaded(plane, arguments):
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        input="hello\n",
        cwd=plane.here,
        env=plane.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines()[-1] == "loaded: []", ran
