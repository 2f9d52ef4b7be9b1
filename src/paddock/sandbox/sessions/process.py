"""One command that goes on running: what it printed, what it is given, and how it ended."""

import contextlib
import fcntl
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from paddock.errors import InvalidArgumentsError, PaddockError
from paddock.sandbox.sessions.view import LiveView
from paddock.sandbox.staged import StagedCommand
from paddock.sandbox.streams import OUTPUT_BYTES, Spooling, safe_text
from paddock.sandbox.values import PreparedLine, ShellOutcome
from paddock.values.calls import Cancel

_GRACE_S: Final = 2.0
"""From the wish that it ends to its end by force."""
_WRITE_S: Final = 5.0
_END_OF_INPUT: Final = "\x04"


class Printed(Struct, frozen=True):
    """A part of what was printed, as text; `begins` and `ends` count bytes from the first."""

    text: str
    begins: int
    ends: int
    missing: int = 0
    """Bytes before `begins` that are not kept."""


class Transcript:
    """The last of what a command printed, both streams in their order. Safe for threads."""

    def __init__(self, bytes_max: int = OUTPUT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._total = 0
        self._told = 0
        self._is_ended = False
        self._changed = threading.Condition()

    def add(self, _: Literal["stdout", "stderr"], chunk: bytes) -> None:
        with self._changed:
            self._kept += chunk
            self._total += len(chunk)
            # Half as much again, so that not every chunk moves all that is kept.
            if len(self._kept) > self._bytes_max * 3 // 2:
                del self._kept[: len(self._kept) - self._bytes_max]
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def read(self, offset: int | None, wait_s: float, cancel: Cancel) -> Printed:
        """Return what was printed from `offset` on, else since this was last asked; wait for some.

        Waits at most `wait_s`, and not for a command that has ended.
        """
        undo = cancel.on_cancel(self._wake)
        try:
            with self._changed:
                begin = self._told if offset is None else offset
                self._changed.wait_for(
                    lambda: self._total > begin or self._is_ended or cancel.is_cancelled, wait_s
                )
                first = self._total - len(self._kept)
                at = min(max(begin, first), self._total)
                end = min(self._total, at + self._bytes_max)
                content = bytes(self._kept[at - first : end - first])
                self._told = end
        finally:
            undo()
        return Printed(safe_text(content), at, end, max(0, at - begin))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Process:
    """Owned by one shell; `begin` runs it in a thread of its own."""

    def __init__(self, name: str, prepared: PreparedLine, spooling: Spooling) -> None:
        self.name = name
        self.prepared = prepared
        self.spooling = spooling
        self.transcript = Transcript()
        self.turn = threading.Lock()
        """Held by who finishes it, or takes its changes."""
        self.view: LiveView | None = None
        self.command: StagedCommand | None = None
        self.failure: PaddockError | None = None
        self.outcome: ShellOutcome | None = None
        """Of one that has ended, once it was concluded."""
        self.has_terminal = prepared.line.terminal[1] > 0
        self._input = -1
        self._input_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.begun = threading.Event()
        """Set when its command was sent into its sandbox."""
        self._has_input = threading.Event()
        self._ended = threading.Event()

    def begin(self, run: Callable[[], StagedCommand], on_end: Callable[[], None]) -> None:
        """Start it; return when its sandbox is there. Raises: what `run` raises before."""

        def serve() -> None:
            try:
                self.command = run()
            except PaddockError as error:
                self.failure = error
            finally:
                self._close_input()
                self._ended.set()
                self.begun.set()
                self._has_input.set()
                self.transcript.end()
                on_end()

        self._thread = threading.Thread(target=serve, name=f"paddock-{self.name}", daemon=True)
        self._thread.start()
        self.begun.wait()
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        """Wait until who hears of its end has heard of it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def show(self, view: LiveView) -> None:
        self.view = view

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def open_input(self) -> int:
        """Return the end of a pipe that its command reads from."""
        theirs, self._input = os.pipe()
        os.set_blocking(self._input, False)
        self._has_input.set()
        return theirs

    def take_terminal(self, fd: int) -> None:
        self._close_input()
        self._input = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._has_input.set()

    def write(self, text: str) -> int:
        """Give it text; return how many bytes it took within five seconds.

        A lone end of input (^D) closes the input of one that has no terminal. Raises:
        InvalidArgumentsError for one that takes no input any more.
        """
        self._has_input.wait(_WRITE_S)
        with self.turn:
            if self._input < 0 or not self.is_running:
                raise InvalidArgumentsError(
                    f"{self.name} takes no input: it has ended, or its input was closed",
                    where="process",
                    hint="shell_output shows what it printed",
                )
            if text == _END_OF_INPUT and not self.has_terminal:
                self._close_input()
                return 1
            return self._write(text.encode("utf-8", "surrogateescape"))

    def offer(self, content: bytes) -> int:
        """Give it what it takes at once; return how many bytes that were."""
        with self._input_lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            return os.write(self._input, content) if self._input >= 0 else 0
        return 0

    def _write(self, content: bytes) -> int:
        events = select.poll()
        events.register(self._input, select.POLLOUT)
        until_s, taken = time.monotonic() + _WRITE_S, 0
        while taken < len(content) and time.monotonic() < until_s and self.is_running:
            taken += self.offer(content[taken:])
            if taken < len(content):
                events.poll(100)
        return taken

    def stop(self) -> None:
        """Ask it to end, then end it with all that it started; return when it has."""
        if self.view is not None:
            self.view.ask_to_end()
            if not self._ended.wait(_GRACE_S):
                self.view.end()
        self._ended.wait()

    def _close_input(self) -> None:
        with self._input_lock:
            fd, self._input = self._input, -1
            if fd >= 0:
                os.close(fd)
