"""What writes into a client's own file asks a person first, at a real terminal."""

import os

import pytest

from tests.support.forked import CONSOLE
from tests.support.terminals import Terminal

QUESTION = "write this? [y/N]"
INSTALLS = pytest.mark.parametrize(
    ("command", "name"),
    [
        ("hook install --client claude", ".claude/settings.json"),
        ("hook install --client codex", ".codex/config.toml"),
        ("mcp install --client claude", ".mcp.json"),
        ("mcp install --client codex --scope project", ".codex/config.toml"),
    ],
)


def at_a_terminal(user, command: str) -> Terminal:
    variables = {"HOME": str(user.home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    return Terminal.fork(CONSOLE, command.split(), variables, user.project, columns=500)


@INSTALLS
def test_a_yes_writes_what_was_shown(user, command, name):
    with at_a_terminal(user, command) as terminal:
        assert terminal.answer(QUESTION, "y\r") == 0
    shown = [row[1:] for row in terminal.everything().splitlines() if row[:1] == "+"][1:]
    assert (user.project / name).read_text().splitlines() == shown


@pytest.mark.parametrize("keys", ["n\r", "\r", "\x04"], ids=["no", "enter", "end"])
@INSTALLS
def test_anything_but_a_yes_writes_nothing(user, command, name, keys):
    with at_a_terminal(user, command) as terminal:
        assert terminal.answer(QUESTION, keys) == 1
    assert "nothing was changed" in terminal.everything()
    assert not (user.project / name).exists()


@INSTALLS
def test_what_stands_there_already_asks_nobody(user, command, name):
    assert user.run(*command.split(), "--yes").status == 0
    before = (user.project / name).read_bytes()
    with at_a_terminal(user, command) as terminal:
        assert terminal.result() == 0
    assert "already installed in" in terminal.everything()
    assert (user.project / name).read_bytes() == before
