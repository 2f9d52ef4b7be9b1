"""One command through the door: its output as it comes, its time, its input and variables."""

import os
from pathlib import Path

import pytest

from paddock.runtime.prepared import Bounds
from tests.support.shells import Terminal, a_terminal, processes

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("yard")) as made:
        yield made


# Output as it comes


def test_output_is_heard_while_the_command_still_runs(terminal: Terminal):
    mark = f"2.{os.getpid()}"
    heard: list[tuple[str, str, bool]] = []
    line = f"echo ready; sleep {mark}; echo done >&2"

    terminal.runtime.run_shell(
        line, on_output=lambda name, text: heard.append((name, text, mark in processes()))
    )

    assert [(name, text) for name, text, _ in heard] == [
        ("stdout", "ready\n"),
        ("stderr", "done\n"),
    ]
    assert heard[0][2]


def test_a_character_that_comes_in_two_pieces_is_heard_as_one(terminal: Terminal):
    heard: list[tuple[str, str]] = []
    line = r"printf '\xc3'; sleep 0.2; printf '\xa9\xff'; sleep 0.2; printf '\xc3'"

    terminal.runtime.run_shell(line, on_output=lambda name, text: heard.append((name, text)))

    assert "".join(text for _, text in heard) == "é\ufffd\ufffd"
    assert all(text for _, text in heard)


def test_bytes_are_heard_as_they_were_printed_all_of_them_in_one_thread(terminal: Terminal):
    heard: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    bounds = Bounds(on_output=lambda name, chunk: heard[name].extend(chunk))
    line = "head -c 3000000 /dev/zero; printf '\\x1b[31m\\xff' >&2"

    result = terminal.runtime.call("run_shell", {"command": line}, bounds=bounds)

    assert result.refusal is None
    assert heard == {"stdout": bytearray(3_000_000), "stderr": bytearray(b"\x1b[31m\xff")}


def test_what_a_listener_raises_ends_the_command_and_nothing_lands(terminal: Terminal):
    class Enough(Exception):
        pass

    def refuse(stream: str, text: str) -> None:
        raise Enough(f"{stream}: {text}")

    result = terminal.runtime.call(
        "run_shell", {"command": "echo x > left; echo out; sleep 60"}, on_output=refuse
    )

    assert result.refusal is not None
    assert not (terminal.yard.root / "left").exists()
    assert terminal.run("echo still")["stdout"] == "still\n"


def test_a_question_about_a_difference_is_heard_while_it_runs_too(tmp_path: Path):
    policy = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:shell:*"]\n'
    policy += '[shell]\napprove = "diff"\n'
    heard: list[str] = []
    with a_terminal(tmp_path, policy) as terminal:
        terminal.runtime.call(
            "run_shell",
            {"command": "echo seen; echo x > f"},
            on_output=lambda _, text: heard.append(text),
        )

    assert heard == ["seen\n"]
