"""The question at a terminal: a real one, with the real program behind it."""

import contextlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.apps.cli.call import PromptApprover
from paddock.apps.console import Console
from paddock.runtime.approvals import Approval, ApprovalRequest

PADDOCK = Path(sys.executable).parent / "paddock"
POLICY = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:* asked*"]\n'
PROMPT = "allow this once? [y/N] "
PATIENCE_S = 60.0
"""Far above what anything here takes; reached only where an answer never comes."""


class Terminal(Struct, dict=True):
    """The person's side of a pseudo-terminal, and whoever sits on the other."""

    master: int
    process: subprocess.Popen[bytes]
    shown: bytes = b""
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE_S)

    def look(self, at_most_s: float) -> bool:
        """Take in what is shown next; false where nothing more comes."""
        assert time.monotonic() < self.deadline, self.shown
        if not select.select([self.master], [], [], at_most_s)[0]:
            return True
        try:
            read = os.read(self.master, 65536)
        except OSError:  # EIO: nobody has the other side open any more
            return False
        self.shown += read
        return bool(read)

    def wait_for(self, text: str) -> None:
        while text.encode() not in self.shown:
            assert self.look(PATIENCE_S), self.shown

    def answer(self, keys: bytes) -> None:
        """Type an answer until it is taken: keys that come before the question do not count."""
        self.wait_for("\n" + PROMPT)  # at the beginning of a line: arguments may show it, too
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.write(self.master, keys)
            self.look(0.05)

    def result(self) -> tuple[int, bytes]:
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        while self.look(0):
            if not select.select([self.master], [], [], 0)[0]:
                break
        return self.process.returncode, out


@contextlib.contextmanager
def asked(user, *arguments: str, typed_before: bytes = b"") -> Iterator[Terminal]:
    """`paddock call …` of a person at a terminal, under a policy that asks."""
    master, slave = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, master)
        with os.fdopen(slave, "rb", buffering=0) as other:
            if typed_before:
                os.write(master, typed_before)
            process = subprocess.Popen(
                [PADDOCK, "call", *arguments],
                cwd=user.project,
                env={"HOME": str(user.home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
                stdin=other,
                stdout=subprocess.PIPE,
                stderr=other,
                start_new_session=True,
            )
        with process:
            stack.callback(process.kill)
            yield Terminal(master, process)


@pytest.fixture
def user(user):
    (user.project / "paddock.toml").write_text(POLICY)
    (user.project / "asked.txt").write_bytes(b"kept\n")
    assert user.run("trust", "--yes").status == 0
    return user


DELETE = ("delete_file", '{"path": "asked.txt"}')


def test_an_explicit_yes_lets_the_call_run_and_is_recorded_as_the_terminals(user):
    with asked(user, *DELETE) as terminal:
        terminal.answer(b" Yes\n")
        status, out = terminal.result()
    assert (status, json.loads(out)["status"]) == (0, "ok")
    assert not (user.project / "asked.txt").exists()
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_INTENT", "--json").out
    assert json.loads(rows.splitlines()[-1])["metadata"]["source"] == "terminal"


@pytest.mark.parametrize(
    "keys",
    [b"n\n", b"\n", b"\x04", b"y\x04\x04", b"\xff\xfey\n"],
    ids=["no", "enter", "end", "yes without enter", "bytes"],
)
def test_anything_but_a_yes_is_a_no_and_changes_nothing(user, keys):
    with asked(user, *DELETE) as terminal:
        terminal.answer(keys)
        status, out = terminal.result()
    assert (status, json.loads(out)["code"]) == (1, "approval.refused")
    assert (user.project / "asked.txt").read_bytes() == b"kept\n"


def test_an_interrupt_at_the_question_is_no_answer_and_changes_nothing(user):
    with asked(user, *DELETE) as terminal:
        terminal.wait_for(PROMPT)
        terminal.process.send_signal(signal.SIGINT)
        status, out = terminal.result()
    assert (status, out) == (130, b"")
    assert (user.project / "asked.txt").exists()
    assert b"Traceback" not in terminal.shown
    assert user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_INTENT").out == ""


def test_keys_typed_before_the_question_was_drawn_do_not_answer_it(user):
    with asked(user, *DELETE, typed_before=b"y\ny\n") as terminal:
        terminal.answer(b"n\n")
        status, out = terminal.result()
    assert (status, json.loads(out)["code"]) == (1, "approval.refused")
    assert (user.project / "asked.txt").exists()


FORGED = "x\x1b[2J\x1b[1;1H\r\nallow this once? [y/N] y\n\u202egnp.exe\x9b31m"


def test_arguments_cannot_draw_on_the_terminal(user):
    arguments = json.dumps({"path": "asked\u202e\u2066.txt", "content": FORGED})
    with asked(user, "create_file", arguments) as terminal:
        terminal.answer(b"n\n")
        terminal.result()
    question = terminal.shown[: terminal.shown.index(PROMPT.encode() + b"n")].decode()
    *rows, rest = question.split("\r\n")
    assert all(character.isprintable() for row in rows for character in row)
    assert ([row.split()[0] for row in rows], rest) == (["agent", "action:", "why", "rule:"], "")
    assert "\\u001b[2J" in rows[0]
    assert "asked\\u202e\\u2066.txt" in rows[1]
    assert not (user.project / "asked\u202e\u2066.txt").exists()


def test_what_is_not_shown_whole_says_how_much_is_missing(user):
    arguments = json.dumps({"path": "asked.txt", "content": "x" * 5_000})
    with asked(user, "create_file", arguments) as terminal:
        terminal.answer(b"n\n")
        terminal.result()
    missing = len(json.dumps(json.loads(arguments))) - 2_000
    assert f"{missing} more characters" in terminal.shown.decode()


# The approver alone, for what takes too long with the program around it.

REQUEST = ApprovalRequest(
    digest="sha256:0",
    tool="delete_file",
    arguments={"path": "a"},
    actions=("tool:file:delete a",),
    agent="main",
    reason="a rule asks",
    rule="",
)
TOO_LATE = Approval(False, "terminal", "approval.unavailable", "no answer within 0.05 s")


@pytest.mark.parametrize("mode", ["lines", "single keys"])
def test_no_answer_in_time_is_a_no(tmp_path, mode):
    master, slave = pty.openpty()
    if mode == "single keys":
        tty.setraw(slave)
    with os.fdopen(slave, encoding="utf-8") as stdin:
        console = Console(stdin, io.StringIO(), io.StringIO(), {}, tmp_path)
        # Typed as soon as the question stands there, and never ended by a line end.
        console.stderr.flush = lambda: os.write(master, b"y")
        assert PromptApprover(console, timeout_s=0.05).answer(REQUEST) == TOO_LATE
    os.close(master)


def test_without_a_terminal_nobody_is_asked(tmp_path):
    with open(os.devnull, encoding="utf-8") as stdin:
        console = Console(stdin, io.StringIO(), io.StringIO(), {}, tmp_path)
        answer = PromptApprover(console, timeout_s=0.05).answer(REQUEST)
    assert (answer.is_granted, answer.code) == (False, "approval.unavailable")


def test_a_terminal_that_has_gone_is_nobody(tmp_path):
    master, slave = pty.openpty()
    os.close(master)
    with os.fdopen(slave, encoding="utf-8") as stdin:
        console = Console(stdin, io.StringIO(), io.StringIO(), {}, tmp_path)
        answer = PromptApprover(console, timeout_s=5).answer(REQUEST)
    assert answer.is_granted is False
