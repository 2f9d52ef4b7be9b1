"""The shell on a real terminal: typing, completing, cancelling, resizing, leaving."""

import os
import signal
import termios

import pytest

from tests.support.admin_shells import PADDOCK, new_plane, new_project
from tests.support.terminals import Terminal
from tests.support.wire_server import Speak, WireServer
from tests.support.wire_words import says

GREETED = "/help lists the commands, /tools its tools; Ctrl-D leaves"


def test_the_program_itself_opens_talks_and_leaves(plane):
    with Terminal.start([str(PADDOCK), "admin"], plane.variables(), plane.here) as terminal:
        terminal.wait_for(GREETED)
        terminal.wait_for_prompt()
        before = terminal.settings()
        terminal.type("hello\r")
        terminal.wait_for("Hello. I am Paddock's built-in model")
        terminal.wait_for_prompt()
        terminal.type("\x04")
        assert terminal.result() == 0
        after = terminal.settings()
    assert "1 turn, 0 tokens" in terminal.everything()
    assert not before[3] & termios.ECHO
    assert after[3] & termios.ECHO
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_what_is_typed_is_edited_and_said_once(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("hxx\x7f\x7fello, ther\x05e\x01why \x0b")
        terminal.wait_until(lambda: terminal.line() == "> why", "what was cut off")
        terminal.type("\x19\x01\x1bd\x04")
        terminal.wait_until(lambda: terminal.line() == "> hello, there", "what was put back")
        terminal.type("\r")
        terminal.wait_for("> hello, there")
        terminal.wait_for_prompt()
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello, there"


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_what_is_typed_and_is_no_text_is_refused_and_the_shell_goes_on(plane, options):
    with plane.open(*options) as terminal:
        terminal.wait_until(lambda: terminal.line() in {">", "admin>"}, "a prompt")
        os.write(terminal.master, b"bad \xff byte\r")
        terminal.wait_for("error[usage]: 'bad \\xff byte' is not UTF-8: it was not run")
        terminal.wait_until(lambda: terminal.line() in {">", "admin>"}, "a prompt")
        terminal.type("hello\r")
        terminal.wait_for("Hello. I am Paddock's built-in model")
        terminal.wait_until(lambda: terminal.line() in {">", "admin>"}, "a prompt")
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello"


@pytest.mark.parametrize("newline", ["\x1b\r", "\n", "\\\r"])
def test_a_message_may_have_several_lines(plane, newline):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"hello{newline}hello again")
        terminal.wait_until(lambda: terminal.line() == "  hello again", "the second line")
        terminal.type("\r")
        terminal.wait_for_prompt()
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello\nhello again"


def test_a_pasted_text_is_one_message(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("\x1b[200~hello\rhello again\x1b[201~")
        terminal.wait_until(lambda: terminal.line() == "  hello again", "the second line")
        terminal.type("\r")
        terminal.wait_for_prompt()
    [turn] = plane.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["user_message"] == "hello\nhello again"


def test_tab_completes_commands_tools_and_arguments(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("/\t")
        terminal.wait_for("tools, and who may call them")
        terminal.type("\x03/ca\t")
        terminal.wait_until(lambda: terminal.line() == "> /call", "/call")
        terminal.type(" list_f\t")
        terminal.wait_until(lambda: terminal.line() == "> /call list_files", "the tool")
        terminal.type(" pat\t")
        terminal.wait_until(lambda: terminal.line() == "> /call list_files path=", "the argument")
        terminal.type("HOT/config\r")
        terminal.wait_for("HOT/config/admin_config.json")


def test_what_was_said_before_is_there_in_the_next_shell(plane):
    with plane.open() as terminal:
        terminal.say("hello")
        terminal.say(" hello, and keep it to yourself")
        terminal.say("/cost")
        terminal.type("\x04")
        assert terminal.result() == 0
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("\x1b[A")
        terminal.wait_until(lambda: terminal.line() == "> /cost", "the last line")
        terminal.type("\x1b[A")
        terminal.wait_until(lambda: terminal.line() == "> hello", "the line before")
        terminal.type("\x1b[B\x1b[B\x12hel")
        terminal.wait_for("I-search backward")
        terminal.type("\r")
        terminal.wait_until(lambda: terminal.line() == "> hello", "what was searched for")
    file = plane.environment().paddock_home / "admin-history.jsonl"
    assert file.read_text() == '"hello"\n"/cost"\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_clears_a_line_and_twice_on_an_empty_one_leaves(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("never said")
        terminal.wait_for("> never said")
        terminal.type("\x03")
        terminal.wait_for_prompt()
        terminal.type("\x03")
        terminal.wait_for("press Ctrl-C again to leave")
        terminal.wait_for_prompt()
        terminal.say("hello")
        terminal.type("\x03")
        terminal.wait_until(lambda: terminal.text().count("press Ctrl-C again") == 2, "the word")
        terminal.wait_for_prompt()
        terminal.type("\x03")
        assert terminal.result() == 0
    assert len(plane.entries("ho2m", "TURN_RECORDED")) == 1
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


@pytest.mark.needs("stage")
def test_ctrl_c_during_a_command_ends_all_of_it_and_comes_back(tmp_path):
    project = new_project(tmp_path, '[profiles.standard]\nallow = ["tool:*"]\n')
    line = "$ sleep 1234.5 & echo made > made.txt; sleep 1234.5\r"
    with project.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type(line)
        terminal.wait_for("run_shell runs; Ctrl-C cancels")
        terminal.wait_until(lambda: _sleepers("1234.5") == 2, "the command's processes")
        terminal.type("\x03")
        terminal.wait_for("cancelled: it changed nothing")
        terminal.wait_for_prompt()
        assert _sleepers("1234.5") == 0
        terminal.say("hello")
    assert not (project.here / "made.txt").exists()
    [result] = project.entries("ho1m", "TOOL_RESULT")
    assert (result.metadata["code"], result.metadata["effect"]) == ("call.cancelled", "none")
    [turn, _] = project.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["outcome"] == "cancelled"


@pytest.mark.loopback
def test_ctrl_c_while_an_answer_comes_in_ends_it_and_comes_back(plane):
    classified = says('{"speech_act": "question", "ambiguity": "low"}')
    with WireServer() as server:
        model = plane.use_server("anthropic", server.url)
        answer = says("the first line\nand then ", "it goes on ", "and on")
        server.reply(Speak(classified), Speak(answer, hold_after=4))
        with plane.open("--model", model, TEST_KEY="sk-test") as terminal:
            terminal.wait_for_prompt()
            terminal.type("tell me\r")
            terminal.wait_for("and then it goes on")
            assert terminal.line() == "…"
            terminal.type("\x03")
            server.wait_for_hang_up()
            terminal.wait_for("\ncancelled")
            terminal.wait_for_prompt()
            server.reply(Speak(classified), Speak(says("here I am")))
            terminal.say("still there?")
            assert "here I am" in terminal.text()
            assert "and then it goes on\ncancelled" in terminal.text()
    outcomes = [turn.metadata["outcome"] for turn in plane.entries("ho2m", "TURN_RECORDED")]
    assert outcomes == ["cancelled", "success"]


def _sleepers(seconds: str) -> int:
    """Processes that sleep so long."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    count += file.read().split(b"\0")[:2] == [b"sleep", seconds.encode()]
            except OSError:
                continue
    return count


def test_a_resized_terminal_is_drawn_for_its_new_size(plane):
    with plane.open() as terminal:
        terminal.say("hello")
        terminal.resize(120, 30)
        terminal.wait_for("profile admin")
        terminal.say("hello")
        assert "I need no key and no network, and I" in terminal.text()
        terminal.resize(60, 20)
        terminal.wait_until(
            lambda: terminal.text().split("\n")[-1].startswith(" dual gate closed  sandbox full"),
            "the short status line",
        )
        terminal.wait_for_prompt()
        terminal.type("still here")
        terminal.wait_for("> still here")
        assert all(len(row) <= 60 for row in terminal.text().split("\n"))


@pytest.mark.loopback
def test_a_terminal_that_is_resized_while_an_answer_comes_in_goes_on(plane):
    classified = says('{"speech_act": "question", "ambiguity": "low"}')
    with WireServer() as server:
        model = plane.use_server("anthropic", server.url)
        answer = says(
            "a first line\n", "a line that is longer than the window will be, and goes on"
        )
        server.reply(Speak(classified), Speak(answer, hold_after=4))
        with plane.open("--model", model, TEST_KEY="sk-test") as terminal:
            terminal.wait_for_prompt()
            terminal.type("tell me\r")
            terminal.wait_for("and goes on")
            terminal.resize(40, 12)
            terminal.wait_for("than the window\nwill be, and goes on")
            terminal.type("\x03")
            terminal.wait_for("\ncancelled")
            terminal.wait_for_prompt()
            assert all(len(row) <= 40 for row in terminal.text().split("\n"))
            server.reply(Speak(classified), Speak(says("here I am")))
            terminal.say("still there?")
            assert "here I am" in terminal.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shell_that_is_told_to_end_ends_its_session(plane, number):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.signal(number)
        assert terminal.result() == 0
        assert terminal.settings()[3] & termios.ECHO
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


def test_a_terminal_that_goes_away_ends_the_session(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.hang_up()
        assert terminal.result() == 0
    assert len(plane.entries("ho2m", "SESSION_END")) == 1


@pytest.mark.needs("stage")
def test_a_terminal_that_goes_away_while_a_command_runs_ends_both(tmp_path):
    project = new_project(tmp_path, '[profiles.standard]\nallow = ["tool:*"]\n')
    with project.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("$ sleep 1235.5\r")
        terminal.wait_until(lambda: _sleepers("1235.5") == 1, "the command")
        terminal.hang_up()
        assert terminal.result() == 0
    assert _sleepers("1235.5") == 0
    [turn] = project.entries("ho2m", "TURN_RECORDED")
    assert turn.metadata["outcome"] == "cancelled"
    assert len(project.entries("ho2m", "SESSION_END")) == 1


def test_a_question_that_nobody_is_there_for_any_more_is_a_no_and_waits(project):
    with project.open() as terminal:
        terminal.wait_for_prompt()
        terminal.type("delete README.md\r")
        terminal.wait_for("Q1 allow delete_file? [y/N/a]")
        terminal.hang_up()
        assert terminal.result() == 0
    assert (project.here / "README.md").exists()
    assert len(project.entries("ho2m", "SESSION_END")) == 1


def test_sigint_from_elsewhere_is_ctrl_c(plane):
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        terminal.signal(signal.SIGINT)
        terminal.wait_for("press Ctrl-C again to leave")
        terminal.wait_for_prompt()
        terminal.signal(signal.SIGINT)
        assert terminal.result() == 0


def test_the_badge_is_loud_and_stays(plane, tmp_path):
    risky = new_plane(tmp_path / "other", "development")
    with risky.open(sandbox="refused", CP_ADMIN_ENABLE_RISKY_TOOLS="1") as terminal:
        terminal.wait_for_prompt()
        badge = " DEV PLANE  ·  DEVELOPMENT TOOLS ARE ON  ·  SANDBOX NONE: commands are refused"
        assert badge in terminal.text().split("\n")
        for _ in range(3):
            terminal.say("/help")
            assert terminal.text().split("\n")[-2] == badge
        row = terminal.screen.buffer[terminal.text().split("\n").index(badge)]
        assert (row[1].bold, row[1].reverse, row[1].fg) == (True, True, "red")
    with plane.open() as terminal:
        terminal.wait_for_prompt()
        assert "SANDBOX" not in terminal.text()


def test_without_colours_nothing_but_colours_is_missing(plane):
    texts = []
    for variables in ({}, {"NO_COLOR": "1"}):
        with plane.open(sandbox="partial", **variables) as terminal:
            terminal.say("/call list_files path=HOT")
            cells = [cell for row in terminal.screen.buffer.values() for cell in row.values()]
            colours = {cell.fg for cell in cells} | {cell.bg for cell in cells}
            texts.append((terminal.text().replace("SES", ""), colours == {"default"}))
    (_, plain_with), (_, plain_without) = texts
    assert (plain_with, plain_without) == (False, True)
