"""A session killed in the middle of a turn: what is on record, and how it goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from paddock.agent.session_log import find_session, list_sessions
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session, sessions_of
from paddock.ledger.query import Filter
from paddock.ledger.verify import verify
from paddock.plane.environment import read_environment
from paddock.providers.scripted import Say, ScriptedModel
from paddock.values.models import AssistantMessage, UserMessage
from tests.fault.turns import MESSAGE

PROGRAM = Path(__file__).with_name("turns.py")
BEFORE_THE_RECORD = [
    "after:WO_PLANNED",
    "LLM_CALL",
    "WO_COMPLETED",
    "TOOL_INTENT",
    "TOOL_RESULT",
    "QUALITY_GATE",
    "WO_CHAIN_COMPLETE",
    "TURN_RECORDED",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path


def kill_at(place: Path, where: str, message: str = MESSAGE) -> None:
    folders = (str(place / "project"), str(place / "home"))
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *folders, where, message],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout.readline() == "here\n"
        running.kill()


def project_of(place: Path):
    environment = read_environment({"HOME": str(place / "home")})
    return open_project(place / "project", environment)


def verified(project) -> bool:
    paths = project.layout.ledger_paths()
    return all(verify(str(paths[name])).is_whole for name in ("ho1m", "ho2m"))


@pytest.mark.parametrize("where", BEFORE_THE_RECORD)
def test_a_turn_that_was_killed_is_found_and_recorded_when_the_session_goes_on(place, where):
    kill_at(place, where)
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))
    assert (session.turns, session.ended) == ((), "")
    assert [turn.user_message for turn in session.unfinished] == [MESSAGE]

    model = ScriptedModel([Say("again")])
    wish = SessionWish(provider=model, resume=session.session_id)
    with open_session(project, wish) as opened:
        opened.handle_turn("are you there?")
    assert model.requests[0].messages == (
        UserMessage(MESSAGE),
        AssistantMessage("the process ended before the turn did"),
        UserMessage("<user_message>are you there?</user_message>"),
    )

    found = find_session(sessions_of(project), session.session_id)
    assert found.unfinished == ()
    assert [(turn.number, turn.user_message, turn.outcome) for turn in found.turns] == [
        (1, MESSAGE, "error"),
        (2, "are you there?", "success"),
    ]
    assert verified(project)
    orders = sessions_of(project).query("ho2m", Filter("WO_PLANNED"), None).entries
    ids = [row.entry.submission_id for row in orders]
    assert len(ids) == len(set(ids))


def list_from_a_shell(place: Path) -> str:
    """What `paddock session list` prints."""
    program = "from paddock.apps.cli.main import console; console()"
    return subprocess.run(
        [sys.executable, "-c", program, "session", "list"],
        cwd=place / "project",
        env={"HOME": str(place / "home")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def test_a_session_that_was_killed_is_listed_with_its_message_and_its_unfinished_turn(place):
    kill_at(place, "TOOL_RESULT")
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))
    row = f"{session.session_id}  {session.started}"

    assert list_from_a_shell(place) == (
        f"{row}  open   main         0 turns, 1 unfinished  {MESSAGE}\n"
    )

    with open_session(project, SessionWish(resume=session.session_id)) as opened:
        opened.handle_turn("hello")
    assert list_from_a_shell(place) == f"{row}  ended  main         2 turns  {MESSAGE}\n"


@pytest.mark.parametrize("where", ["after:WO_PLANNED", "TOOL_RESULT", "TURN_RECORDED"])
def test_a_turn_without_a_message_that_was_killed_is_recorded_too(place, where):
    kill_at(place, where, "")
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))
    assert [(turn.number, turn.user_message) for turn in session.unfinished] == [(1, "")]

    with open_session(project, SessionWish(resume=session.session_id)) as opened:
        assert "1 turn of this session had not ended" in opened.notices
        assert opened.handle_turn("hello").turn == 2

    found = find_session(sessions_of(project), session.session_id)
    assert [(turn.number, turn.user_message, turn.outcome) for turn in found.turns] == [
        (1, "", "error"),
        (2, "hello", "success"),
    ]


def test_what_a_killed_turn_called_is_restored_where_contents_are_kept(place):
    keep_contents(place)
    kill_at(place, "QUALITY_GATE")
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))

    with open_session(project, SessionWish(resume=session.session_id)) as opened:
        messages = opened.supervisor._conversation.fit(10**6)[0]

    user, call, answers, *ends = messages
    assert user == UserMessage(MESSAGE)
    assert [each.name for each in call.tool_calls] == ["create_file"]
    assert "created made.txt" in answers.answers[0].content
    ended = AssistantMessage("the process ended before the turn did")
    assert ends == [AssistantMessage("done"), ended]
    assert not any("restored" in notice for notice in opened.notices)


def test_a_call_that_a_kill_cut_off_is_missed_aloud(place):
    keep_contents(place)
    kill_at(place, "TOOL_RESULT")
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))

    with open_session(project, SessionWish(resume=session.session_id)) as opened:
        messages = opened.supervisor._conversation.fit(10**6)[0]

    ended = AssistantMessage("the process ended before the turn did")
    assert messages == (UserMessage(MESSAGE), ended)
    assert "of 1 turns the last calls before a failure are not restored" in opened.notices


def keep_contents(place: Path) -> None:
    file = place / "home/.config/paddock/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[ledger]\nkeep_model_contents = true\n")


def test_a_turn_that_is_on_record_stays_as_it_is(place):
    kill_at(place, "after:TURN_RECORDED")
    project = project_of(place)

    (session,) = list_sessions(sessions_of(project))

    assert [(turn.user_message, turn.outcome) for turn in session.turns] == [(MESSAGE, "success")]
    assert (session.unfinished, session.ended) == ((), "")
    assert (place / "project/made.txt").read_text() == "x"


def test_a_killed_session_leaves_no_lock(place):
    kill_at(place, "TURN_RECORDED")
    project = project_of(place)
    (session,) = list_sessions(sessions_of(project))

    with open_session(project, SessionWish(resume=session.session_id)) as opened:
        assert opened.session_id == session.session_id
