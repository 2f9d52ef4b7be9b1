"""A real terminal for a program: a pty on the one side, a drawn screen on the other.

    with Terminal.start(argv, environment) as terminal:
        terminal.wait_for("> ")
        terminal.type("hello\r")
        terminal.wait_for("Hello.")
        print(terminal.text())

Nothing sleeps: one waits for what the screen shows, up to a deadline far above what
anything takes, and a screen that never shows it is in the failure's message. The cursor is
hidden while a screen is drawn: what is seen then is half of one screen and half of
another, and counts for nothing.
"""

import contextlib
import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyte
from msgspec import Struct

from tests.support import forked

Program = subprocess.Popen[bytes] | forked.Forked
PATIENCE_S = 120.0
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""The program becomes the one that a hang-up, and Ctrl-C on a cooked terminal, are for."""


class Terminal(Struct, dict=True):
    """A screen of so many columns and rows, with everything that scrolled off above it."""

    process: Program
    master: int
    columns: int
    rows: int

    def __post_init__(self) -> None:
        self.raw = b""
        self.screen = pyte.HistoryScreen(self.columns, self.rows, history=10_000, ratio=1)
        self.stream = pyte.ByteStream(self.screen)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        here: Path,
        columns: int = 80,
        rows: int = 24,
    ) -> Self:
        """A program on a terminal."""

        def begin(slave: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *argv],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=here,
                env=dict(environment),
                start_new_session=True,
            )

        return cls._of(begin, columns, rows)

    @classmethod
    def fork(
        cls,
        code: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        here: Path,
        columns: int = 80,
        rows: int = 24,
    ) -> Self:
        """What `python -c CODE ARGUMENTS` does, on a terminal, from `tests.support.forked`."""

        def begin(slave: int) -> forked.Forked:
            streams = (slave, slave, slave)
            return forked.start(
                code, arguments, streams, env=environment, cwd=here, on_terminal=True
            )

        return cls._of(begin, columns, rows)

    @classmethod
    def _of(cls, begin: Callable[[int], Program], columns: int, rows: int) -> Self:
        master, slave = pty.openpty()
        _resize(slave, columns, rows)
        try:
            process = begin(slave)
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        return cls(process, master, columns, rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.master >= 0:
            os.close(self.master)

    # Typing

    def type(self, text: str) -> None:
        """Press keys."""
        left = text.encode()
        deadline = time.monotonic() + PATIENCE_S
        while left:
            try:
                left = left[os.write(self.master, left) :]
            except BlockingIOError:
                assert time.monotonic() < deadline, f"nobody reads {text!r}:\n{self.everything()}"
                self._take(0.1)

    def say(self, text: str) -> None:
        """Type a line, and wait until everything that comes of it is over."""
        before = self._said(text)
        self.wait_for_prompt()
        self.type(f"{text}\r")
        self.wait_until(lambda: self._said(text) > before and self.line() == ">", "an end")

    def answer(self, question: str, keys: str) -> int:
        """Type an answer until it is taken, for what was typed before a question does not count.

        What the program ends with.
        """
        self.wait_for(question)
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"{keys!r} was not taken:\n{self.everything()}"
            with contextlib.suppress(OSError):
                self.type(keys)
            self._take(0.05)
        return self.result()

    def _said(self, text: str) -> int:
        """How often this line was said."""
        return self.everything().split("\n").count(f"> {text}"[: self.columns].rstrip())

    def resize(self, columns: int, rows: int) -> None:
        """As a window does that is drawn to another size."""
        self.columns, self.rows = columns, rows
        self.screen.resize(rows, columns)
        _resize(self.master, columns, rows)

    def signal(self, number: int) -> None:
        """Send a signal to the program itself."""
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """The terminal goes away."""
        os.close(self.master)
        self.master = -1

    # Looking

    def wait_for(self, text: str) -> None:
        """Until the text stands on the screen."""
        # Only what was drawn since can have brought it.
        seen = -1

        def stands() -> bool:
            nonlocal seen
            before, seen = seen, len(self.raw)
            return before != seen and text in self.text()

        self.wait_until(stands, f"{text!r} on the screen")

    def wait_for_prompt(self) -> None:
        """Until an empty line is there to be typed in."""
        self.wait_until(lambda: self.line() == ">", "an empty prompt")

    def line(self) -> str:
        """The line that the cursor is in."""
        return self._row(self.screen.buffer[self.screen.cursor.y])

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.screen.cursor.hidden or not holds():
            assert time.monotonic() < deadline, f"waited for {what}:\n{self.everything()}"
            if not self._take(0.05) and not holds():
                raise AssertionError(
                    f"the program is gone; waited for {what}:\n{self.everything()}"
                )

    def result(self) -> int:
        """What the program ends with."""
        while self.master >= 0 and self._take(0.05):
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                break
        return self.process.wait(PATIENCE_S)

    def text(self) -> str:
        """The screen, without spaces at the ends of its lines."""
        return "\n".join(
            map(self._row, map(self.screen.buffer.__getitem__, range(self.rows)))
        ).rstrip()

    def everything(self) -> str:
        """The screen, and all that scrolled off above it."""
        return "\n".join([*map(self._row, self.screen.history.top), self.text()])

    def _row(self, drawn: Any) -> str:
        """A row of the screen, of which only what was drawn on is there."""
        last = max(drawn, default=-1)
        return "".join(drawn[x].data for x in range(min(last + 1, self.columns))).rstrip()

    def settings(self) -> list[object]:
        """How the terminal is set: who left it raw?"""
        return termios.tcgetattr(self.master)

    def _take(self, at_most_s: float) -> bool:
        """Take in what is shown next; false where nothing more comes."""
        if self.master < 0:
            return False
        if not select.select([self.master], [], [], at_most_s)[0]:
            return True
        try:
            read = os.read(self.master, 65_536)
        except BlockingIOError:
            return True
        except OSError as error:
            assert error.errno == errno.EIO  # nobody has the other side open any more
            return False
        self.raw += read
        self.stream.feed(read)
        return bool(read)


def _resize(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
