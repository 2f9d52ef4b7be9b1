"""One question at a terminal, with a yes or a no for an answer."""

import os
import select
import termios
import time
from typing import Final, TextIO

_READ_BYTES: Final = 4096
"""As much as a terminal gives at once (N_TTY_BUF_SIZE); a longer answer is no answer."""


class NoTerminalError(Exception):
    """Nobody can be asked here."""


def ask_yes(source: TextIO, screen: TextIO, question: str, timeout_s: float) -> bool | None:
    """Whether an explicit yes was typed after the question; None when time is up.

    Raises: NoTerminalError.
    """
    try:
        screen.write(question)
        screen.flush()
        descriptor = source.fileno()
        # Threat: keys that were typed before the question stood there would answer it.
        termios.tcflush(descriptor, termios.TCIFLUSH)
        said = _read_line(descriptor, timeout_s)
    except (OSError, termios.error, ValueError) as error:
        raise NoTerminalError from error
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
