"""Screen and keyboard in plain lines: for pipes, dumb terminals and screen readers."""

import json
import os
import signal
import termios
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Final, Protocol, TextIO

from msgspec import Struct, field

from paddock.agent.events import TurnResult
from paddock.apps.admin.show import Block, StatusLine, plain_lines, shown_text, status_text
from paddock.apps.command import fields
from paddock.apps.console import read_line
from paddock.errors import UsageError
from paddock.text.json import has_half_character
from paddock.text.show import quote
from paddock.values.calls import Json


class Vocabulary(Struct, frozen=True):
    """Words to complete. `parameters` are the argument names of each tool."""

    commands: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class Typed(Struct, frozen=True):
    text: str


class Interrupted(Struct, frozen=True):
    """Ctrl-C on an empty line."""


class InputEnded(Struct, frozen=True):
    """Ctrl-D, or the end of the input."""


UserInput = Typed | Interrupted | InputEnded


class Choice(Enum):
    """The answers to a question, given as the word or its first letter."""

    YES = "yes"
    NO = "no"
    ALWAYS = "always"
    EXPAND = "expand"


class Question(Struct, frozen=True):
    """An approval question. `id` is unique: an answer to another question is ignored."""

    id: str
    blocks: tuple[Block, ...]
    keys: Block
    prompt: str
    choices: tuple[Choice, ...]
    timeout_s: float


class PersonsAnswer(Struct, frozen=True):
    question_id: str
    choice: Choice


class Silence(Enum):
    NO_TERMINAL = "no terminal to ask on"
    TOO_LATE = "too late"
    CLOSED = "the terminal was closed"


class Screen(Protocol):
    """The output. Every method may be called from any thread."""

    def show(self, block: Block) -> None:
        """Print below everything else."""
        ...

    def live(self, text: str) -> None:
        """Replace the temporary last line; "" removes it.

        Does nothing on a screen that cannot erase a line.
        """

    def status(self, status: StatusLine) -> None: ...

    def answered(self, result: TurnResult) -> None:
        """The turn is over; its text is usually shown already."""


class Keyboard(Protocol):
    """The input. Called only from the shell's thread."""

    def read(self) -> UserInput:
        """Wait for a message. Raises: PaddockError if nothing more can be read."""
        ...

    def answer(self, question: Question) -> PersonsAnswer | Silence:
        """Show the question, discard what was typed before, and wait for an answer."""
        ...

    def learn(self, known: Vocabulary) -> None:
        """Set the words to complete, if a key completes any."""

    def interrupting(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block runs, Ctrl-C calls `stop` in a separate thread."""
        ...


def parse_choice(text: str, choices: tuple[Choice, ...]) -> Choice:
    said = text.strip().lower()
    for choice in choices:
        if said in {choice.value, choice.value[0]}:
            return choice
    return Choice.NO


ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class LineScreen(Screen):
    """Prints each block whole, in the order of the calls."""

    prompt = ""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def show(self, block: Block) -> None:
        self._write("".join(f"{each}\n" for each in plain_lines(block)))

    def write(self, text: str) -> None:
        """Write unescaped: only for prompts, which hold no foreign text."""

    def _write(self, text: str) -> None:
        with self._lock:
            self._out.write(text)
            self._out.flush()


class PlainScreen(LineScreen):
    prompt = "> "
    _lasting: tuple[object, ...] = ()

    def status(self, status: StatusLine) -> None:
        badges = "".join(f"[{badge}] " for badge in status.badges)
        self.prompt = f"{badges}{status.agent}> "
        before = self._lasting
        self._lasting = (status.agent, status.profile, status.model, status.badges)
        if before != self._lasting:
            rows = (f"[{status_text(status)}]", *(f"*** {badge} ***" for badge in status.badges))
            self._write("".join(f"{each}\n" for each in rows))

    def write(self, text: str) -> None:
        self._write(text)


# {"kind": "status", "agent": …, "gate_is_open": …, "sandbox": …, "badges": […], …}
# {"kind": "text", "lines": […]}                 as shown to a person
# {"kind": "turn", "response": …, "outcome": …}  a turn's result, as `paddock run --json`


class JsonScreen(LineScreen):
    """One object per line; ASCII only, so that it cannot mislead a terminal."""

    def show(self, block: Block) -> None:
        self._object("text", {"lines": list(plain_lines(block))})

    def status(self, status: StatusLine) -> None:
        own = fields(status, "agent", "profile", "gate_is_open", "tokens", "tokens_left", "cost")
        own["model"] = {"provider": status.provider, "name": status.model}
        own["sandbox"] = status.sandbox.enforcement.value
        self._object("status", {**own, "badges": list(status.badges)})

    def answered(self, result: TurnResult) -> None:
        self._object("turn", result.as_json())

    def _object(self, kind: str, members: dict[str, Json]) -> None:
        self._write(json.dumps({"kind": kind, **members}, ensure_ascii=True) + "\n")


class PlainKeyboard(Keyboard):
    """Reads lines. A line that ends in a backslash continues on the next one.

    A pipe cannot answer a question: its lines were written before the question. They are
    echoed, so that the output reads like a session. Input is UTF-8 in every locale, like
    file names. An invalid line of a pipe ends the reading: the lines after it rely on it.
    """

    def __init__(self, source: TextIO, screen: LineScreen) -> None:
        self._source = source
        self._screen = screen
        self._is_terminal = source.isatty()
        self._lines_read = 0
        reconfigure = getattr(source, "reconfigure", None)
        if reconfigure is not None:
            # In strict decoding, one bad byte would drop all lines that were read with it.
            reconfigure(encoding="utf-8", errors="surrogateescape")
        self._woken: int | None = None
        """Readable once Ctrl-C is pressed during a turn or call."""
        self._interrupt: Callable[[int, FrameType | None], None] | None = None
        self._is_reading = False
        self.ended_by: int | None = None
        """The signal that ended the shell: see `ending`."""

    @contextmanager
    def ending(self) -> Generator[None]:
        """End the input, and cancel a turn or call, on SIGTERM and SIGHUP (unless ignored)."""
        with ExitStack() as held:
            if threading.current_thread() is threading.main_thread():
                for number in ENDING:
                    if signal.getsignal(number) is not signal.SIG_IGN:
                        held.callback(signal.signal, number, signal.signal(number, self._end))
            yield

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        if self._interrupt is not None:
            self._interrupt(number, frame)
        elif self._is_reading:
            self._is_reading = False
            raise _EndedError

    def read(self) -> UserInput:
        """Raises: UsageError: a line of a pipe is not UTF-8."""
        try:
            self._is_reading = True
            try:
                return InputEnded() if self.ended_by is not None else self._read()
            finally:
                self._is_reading = False
        except _EndedError:
            return InputEnded()

    def _read(self) -> UserInput:
        said: list[str] = []
        prompt = self._screen.prompt
        while True:
            try:
                # Inside the try: the user may press Ctrl-C before the write has returned.
                self._screen.write(prompt)
                text = self._source.readline()
            except KeyboardInterrupt:
                self._screen.write("\n")
                return Interrupted()
            self._lines_read += 1
            if not text:
                self._screen.write("\n")
                return Typed("\n".join(said)) if said else InputEnded()
            if not self._is_terminal:
                self._screen.write(f"{shown_text(text.rstrip())}\n")
                self._require_text(text, len(said))
            text = text.removesuffix("\n").removesuffix("\r")
            if not text.endswith("\\"):
                return Typed("\n".join([*said, text]))
            said.append(text[:-1])
            prompt = "... "

    def _require_text(self, text: str, lines_before: int) -> None:
        # Half a surrogate pair stands for an invalid byte (PEP 383).
        if has_half_character(text):
            first = self._lines_read - lines_before
            raise UsageError(
                f"{quote(text.rstrip())} is not UTF-8: this line and the lines after it "
                "were not run",
                where=f"standard input, line {self._lines_read}",
                hint=f"convert the input to UTF-8, and start again with line {first}: "
                "the lines before it were run",
            )

    def answer(self, question: Question) -> PersonsAnswer | Silence:
        for block in question.blocks:
            self._screen.show(block)
        if not self._is_terminal:
            return Silence.NO_TERMINAL
        self._screen.show(question.keys)
        try:
            descriptor = self._source.fileno()
            # Threat: keys typed before the question was shown would answer it. Flush before the
            # prompt is written, so that an immediate answer is not lost.
            termios.tcflush(descriptor, termios.TCIFLUSH)
            self._screen.write(question.prompt)
            typed = read_line(descriptor, question.timeout_s, self._woken)
        except (OSError, termios.error, ValueError):
            return Silence.NO_TERMINAL
        if typed is None:
            self._screen.write("\n")
            return Silence.TOO_LATE
        return PersonsAnswer(
            question.id, parse_choice(typed.decode("utf-8", "replace"), question.choices)
        )

    @contextmanager
    def interrupting(self, stop: Callable[[], None]) -> Generator[None]:
        # Signals arrive only in the main thread.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

        def interrupt(number: int, frame: FrameType | None) -> None:
            # Ends an open question too; a pipe that is full is readable anyway.
            with suppress(BlockingIOError):
                os.write(wake, b"x")
            # In a thread: the interrupted thread may hold a lock that `stop` needs.
            threading.Thread(target=stop, name="paddock-cancel", daemon=True).start()

        self._interrupt = interrupt
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            if self.ended_by is not None:
                stop()
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._interrupt = None
            os.close(wake)
            os.close(self._woken)
            self._woken = None


class _EndedError(BaseException):
    """A signal ended the reading; caught by `PlainKeyboard.read`."""
