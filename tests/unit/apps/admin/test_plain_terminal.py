"""The plain shell on a terminal: lines only, and the same promises."""

import pytest

from tests.support.admin_shells import new_project
from tests.support.terminals import Terminal

DELETE = "delete README.md\n"


def wait_for_prompt(terminal: Terminal) -> None:
    terminal.wait_until(lambda: terminal.line() == "main>", "a prompt")


@pytest.fixture(params=["--plain", "a dumb terminal"])
def plain(project, request) -> Terminal:
    is_asked = request.param == "--plain"
    options = ["--plain"] if is_asked else []
    with project.open(*options, TERM="xterm-256color" if is_asked else "dumb") as terminal:
        yield terminal


def test_nothing_but_lines_is_written(plain):
    wait_for_prompt(plain)
    plain.type("hello\n")
    plain.wait_for("I am Paddock's built-in model")
    wait_for_prompt(plain)
    plain.type("\x04")
    assert plain.result() == 0
    assert b"\x1b" not in plain.raw


def test_a_yes_is_asked_for_and_counts(plain, project):
    wait_for_prompt(plain)
    plain.type(DELETE)
    plain.wait_for("Q1 allow delete_file? [y/N/a]")
    plain.type("y\n")
    plain.wait_for("ask: yes by terminal")
    assert not (project.here / "README.md").exists()


def test_keys_typed_before_the_question_do_not_answer_it(plain, project):
    wait_for_prompt(plain)
    plain.type(f"{DELETE}y\ny\n")
    plain.wait_for("Q1 allow delete_file? [y/N/a]")
    plain.type("n\n")
    plain.wait_for("ask: no")
    assert (project.here / "README.md").exists()


def test_ctrl_c_at_a_question_is_a_no_and_cancels(plain, project):
    wait_for_prompt(plain)
    plain.type(DELETE)
    plain.wait_for("Q1 allow delete_file? [y/N/a]")
    plain.type("\x03")
    plain.wait_for("\ncancelled")
    wait_for_prompt(plain)
    assert (project.here / "README.md").exists()


def test_ctrl_c_twice_on_an_empty_line_leaves(plain):
    wait_for_prompt(plain)
    plain.type("\x03")
    plain.wait_for("press Ctrl-C again to leave")
    wait_for_prompt(plain)
    plain.type("\x03")
    assert plain.result() == 0


@pytest.mark.needs("stage")
def test_ctrl_c_ends_a_command_and_comes_back(tmp_path):
    project = new_project(tmp_path, '[profiles.standard]\nallow = ["tool:*"]\n')
    with project.open("--plain") as terminal:
        wait_for_prompt(terminal)
        terminal.type("$ echo made > made.txt; sleep 1000\n")
        terminal.wait_until(lambda: bool(project.entries("ho1m", "TOOL_INTENT")), "the call")
        terminal.type("\x03")
        terminal.wait_for("it changed nothing")
        wait_for_prompt(terminal)
    assert not (project.here / "made.txt").exists()
