"""Ask a person at a terminal, so that a model cannot fake the question or the answer."""

import os
import select
import termios
import time
from typing import Final

from paddock import limits
from paddock.apps.cli.console import Console
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.runtime.question import question_of

_READ_BYTES: Final = 4096
"""As much as a terminal gives at once (N_TTY_BUF_SIZE); a longer answer is no answer."""


class PromptApprover:
    """Asks on the terminal; anything but an explicit yes is no.

    Threat: arguments that carry terminal sequences or direction overrides could
    draw a question of their own, and keys typed before the question was drawn
    could answer it. The first are escaped, the second are thrown away.
    """

    def __init__(self, console: Console, timeout_s: float = limits.approval_timeout_s) -> None:
        self._console = console
        self._timeout_s = timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        """Yes or no within the time limit; end of input and time-out are a no."""
        console = self._console
        console.warn(question_of(request))
        try:
            said = ask_yes(console, "allow this once? [y/N] ", self._timeout_s)
        except (OSError, termios.error, ValueError):
            return Approval(False, "terminal", "approval.unavailable", "no terminal to ask on")
        if said is None:
            note = f"no answer within {self._timeout_s:g} s"
            console.warn("")
            return Approval(False, "terminal", "approval.unavailable", note)
        return Approval(said, "terminal")


def ask_yes(console: Console, question: str, timeout_s: float) -> bool | None:
    """Whether an explicit yes was typed after the question; None when time is up.

    Raises: OSError, termios.error or ValueError where there is no terminal.
    """
    console.stderr.write(question)
    console.stderr.flush()
    descriptor = console.stdin.fileno()
    termios.tcflush(descriptor, termios.TCIFLUSH)
    said = _read_line(descriptor, timeout_s)
    return None if said is None else said.strip().lower() in (b"y", b"yes")


def _read_line(descriptor: int, timeout_s: float) -> bytes | None:
    """What was typed up to a line end; nothing at the end of input, None when time is up.

    Read from the descriptor: a text stream stops at bytes that are no UTF-8, and on
    a terminal without line mode it would wait for a line end past any limit.
    """
    typed = b""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left)
        if not ready:
            break
        read = os.read(descriptor, _READ_BYTES)
        typed += read
        if not read or len(typed) > _READ_BYTES:
            return b""
        if b"\n" in read:
            return typed
    return None
