"""The session that the admin shell is for, line by line, with every model that can answer."""

import json
from collections.abc import Iterator

import pytest

from tests.support.admin_shells import RISKY, Site, new_plane
from tests.support.wire_server import WireServer
from tests.support.wire_words import Said, calls, says

LINES = (
    "hello",
    "show me turn events from the session ledger",
    "what files are in the kernel directory?",
    'write a file at HO2/scratch/test.txt with the content "hello from admin"',
    'search for "def handle_turn" in the HO2 directory',
)
CALLS = (
    ("query_ledger", {"ledger": "ho2m", "event_type": "TURN_RECORDED"}),
    ("list_files", {"path": "HOT/kernel"}),
    ("write_file_dev", {"path": "HO2/scratch/test.txt", "content": "hello from admin"}),
    ("grep_dev", {"pattern": "def handle_turn", "path": "HO2"}),
)
SESSION = "\n".join([*LINES, "/exit", "never said", ""])


@pytest.fixture
def plane(tmp_path) -> Site:
    site = new_plane(tmp_path, "development")
    (site.here / "HOT/kernel/loader.py").write_text("x = 1\n")
    (site.here / "HO2/scratch/code.py").write_text("def handle_turn(): ...\n")
    return site


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as found:
        yield found


def require_the_session(plane: Site, status: int, shown: str) -> None:
    """What happened is what the lines ask for, and nothing else."""
    assert status == 0, shown
    turns = plane.entries("ho2m", "TURN_RECORDED")
    assert [turn.metadata["user_message"] for turn in turns] == list(LINES), shown
    assert {turn.metadata["outcome"] for turn in turns} == {"success"}, shown
    intents = plane.entries("ho1m", "TOOL_INTENT")
    assert [intent.metadata["tool"] for intent in intents] == [name for name, _ in CALLS], shown
    assert intents[0].metadata["arguments"] == CALLS[0][1]
    assert intents[1].metadata["arguments"] == CALLS[1][1]
    assert (plane.here / "HO2/scratch/test.txt").read_text() == "hello from admin"
    for number, (name, _) in enumerate(CALLS, start=1):
        assert f"  #{number} ok {name} " in shown
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_the_built_in_model_has_the_session_line_by_line(plane):
    status, shown = plane.shell(SESSION, **RISKY)
    require_the_session(plane, status, shown)
    assert "Hello. I am Paddock's built-in model" in shown
    assert "HOT/kernel/loader.py" in shown
    assert "HO2/scratch/code.py:1:def handle_turn(): ..." in shown


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("HO2/scratch/new/deep/a.txt", "ok write_file_dev"),
        ("HO2/scratch/a.txt", "ok write_file_dev"),
        ("HOT/kernel/new/a.txt", "policy.forbidden"),
        ("../out/a.txt", "path.escape"),
    ],
)
def test_the_built_in_model_makes_the_folders_that_a_file_needs(plane, path, outcome):
    line = f'write a file at {path} with the content "hello"\n/exit\n'
    status, shown = plane.shell(line, **RISKY)

    assert status == 0
    assert outcome in shown
    file = plane.here / path
    assert (file.read_text() == "hello") if "ok" in outcome else not file.parent.exists()


@pytest.mark.loopback
@pytest.mark.parametrize("wire", ["anthropic", "responses", "chat"])
def test_a_server_has_the_session_line_by_line(plane, server, wire):
    server.say(*_script())
    model = plane.use_server(wire, server.url)
    status, shown = plane.shell(SESSION, model=model, **RISKY)
    require_the_session(plane, status, shown)
    assert server.replies_left == 0
    assert "Good day" in shown
    # Each request holds what was found before: the answer to the listing, for one.
    assert any("HOT/kernel/loader.py" in json.dumps(each.body) for each in server.requests)


def _script() -> Iterator[Said]:
    yield _classified("greeting")
    yield says("Good day")
    for number, call in enumerate(CALLS):
        yield _classified("command" if number > 1 else "question")
        yield calls(call)
        yield says("That is ", "what there is.")


def _classified(speech_act: str) -> Said:
    return says(json.dumps({"speech_act": speech_act, "ambiguity": "low"}))


@pytest.mark.parametrize("variables", [{}, {"CP_ADMIN_ENABLE_RISKY_TOOLS": "true"}])
def test_without_the_gate_the_last_two_lines_have_no_tool(plane, variables):
    status, shown = plane.shell(SESSION, **variables)
    assert status == 0
    names = [intent.metadata["tool"] for intent in plane.entries("ho1m", "TOOL_INTENT")]
    assert names == ["query_ledger", "list_files"]
    assert not (plane.here / "HO2/scratch/test.txt").exists()
    assert shown.count("which I do not have here") == 2


def test_the_same_session_runs_on_a_pipe_of_the_program_itself(plane):
    ran = plane.pipe(SESSION, **RISKY)
    assert ran.stderr == ""
    require_the_session(plane, ran.returncode, ran.stdout)
