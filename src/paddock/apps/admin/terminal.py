"""Screen and keyboard on a real terminal: what is shown scrolls, what is typed stands below.

One prompt_toolkit application runs for as long as the shell does, in the main thread; the
shell runs in a thread of its own and speaks to it through the two ports. The application
holds the line that still grows, the line that is typed, the badge and the status line;
everything else is printed above it and belongs to the terminal's own history.
"""

import asyncio
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.panel import Panel, panel_keys
from paddock.apps.admin.plain import (
    InputEnded,
    PersonsAnswer,
    Question,
    Said,
    Screen,
    Silence,
    Typed,
    Vocabulary,
)
from paddock.apps.admin.rich_drawing import RichDrawing
from paddock.apps.admin.show import Block, ShownText, StatusLine, TextLook, TextSpan, line, row
from paddock.errors import PaddockError

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Terminal(Screen):
    def __init__(self, source: TextIO, out: TextIO, history: HistoryFile, *, colours: bool) -> None:
        """What `history` holds can be typed again; without it, this shell's own lines can."""
        self._out = out
        self._drawing = RichDrawing(colours=colours)
        # No cursor position requests: their answers would arrive among the keys.
        self._output = Vt100_Output(
            out,
            partial(_size_of, out.fileno()),
            enable_cpr=False,
            enable_bell=False,
            default_color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
        )
        self._history: HistoryFile | None = history
        self._pending: deque[Block] = deque()
        self._panel = Panel(self._past(history), self, self._drawing.live)
        self._app: Application[None] = self._panel.application(
            panel_keys(self._panel), Vt100Input(source), self._output, colours=colours
        )
        self._lock = threading.Lock()
        self._live = ""
        self._is_scheduled = False
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[PersonsAnswer | Silence] = queue.SimpleQueue()
        self._stop: Callable[[], None] | None = None
        self._has_left = False
        self._is_gone = False

    def run(self, shell: Callable[[], int]) -> int:
        """Run the shell in a thread that outlives the terminal, so that its session ends well."""
        running: list[Future[int]] = []
        with ThreadPoolExecutor(1, thread_name_prefix="paddock-shell") as threads:

            def start() -> None:
                self._watch_signals()
                running.append(threads.submit(shell))
                running[0].add_done_callback(lambda _: self._in_loop(self._end_app))

            try:
                self._app.run(pre_run=start, set_exception_handler=False)
            except (EOFError, OSError):
                self._is_gone = True
            # Also where the shell still waits for somebody.
            self.hang_up()
        self._print_rest()
        return running[0].result() if running else 0

    # Screen

    def show(self, block: Block) -> None:
        with self._lock:
            self._pending.append(block)
        self._schedule()

    def live(self, text: str) -> None:
        with self._lock:
            self._live = text
        self._schedule()

    def status(self, status: StatusLine) -> None:
        self._panel.status = status
        self._schedule()

    # Keyboard

    def read(self) -> Said:
        if self._has_left:
            return InputEnded()
        self._in_loop(self._panel.begin_reading)
        said = self._said.get()
        if isinstance(said, Typed) and self._history is not None:
            try:
                self._history.add(said.text)
            except PaddockError as error:
                self._without_history(error)
        return said

    def learn(self, known: Vocabulary) -> None:
        self._panel.vocabulary = known

    def answer(self, question: Question) -> PersonsAnswer | Silence:
        if self._has_left:
            return Silence.LEFT
        for block in (*question.blocks, question.keys):
            self.show(block)
        self._in_loop(partial(self._begin_asking, question))
        answer = self._answers.get()
        said = answer.choice.value if isinstance(answer, PersonsAnswer) else answer.value
        self.show(line(TextSpan(f"{question.id}: ", TextLook.WARN), said))
        return answer

    @contextmanager
    def interrupting(self, stop: Callable[[], None]) -> Generator[None]:
        self._stop = stop
        if self._has_left:
            stop()
        try:
            yield
        finally:
            self._stop = None

    # What the panel hears

    def said(self, said: Said) -> None:
        if isinstance(said, Typed):
            first, *rest = said.text.split("\n")
            rows = (
                row(TextSpan("> ", TextLook.STRONG), first),
                *(row("  ", each) for each in rest),
            )
            self.show(ShownText(rows))
        self._said.put(said)

    def decided(self, answer: PersonsAnswer | Silence) -> None:
        self._answers.put(answer)

    def interrupted(self) -> None:
        stop = self._stop
        if stop is not None:
            # In a thread: what is stopped may take a moment, and the screen must go on.
            threading.Thread(target=stop, name="paddock-cancel", daemon=True).start()

    def hang_up(self) -> None:
        self._has_left = True
        self.interrupted()
        self._answers.put(Silence.LEFT)
        self._said.put(InputEnded())

    # The history

    def _past(self, history: HistoryFile) -> list[str]:
        try:
            return history.load()
        except PaddockError as error:
            self._without_history(error)
            return []

    def _without_history(self, error: PaddockError) -> None:
        self._history = None
        said = f"what is typed is not kept: {error.message}"
        self._pending.append(line(TextSpan("note: ", TextLook.WARN), said))

    # The loop

    def _in_loop(self, act: Callable[[], None]) -> None:
        loop = self._app.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(act)

    def _schedule(self) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._in_loop(self._draw)

    def _draw(self) -> None:
        with self._lock:
            self._is_scheduled = False
            blocks = list(self._pending)
            self._pending.clear()
            live = self._live
        self._panel.live = live
        if blocks:
            self._app.renderer.erase()
            self._print(blocks, self._output.get_size().columns)
        self._app.invalidate()

    def _print(self, blocks: list[Block], columns: int) -> None:
        for block in blocks:
            for each in self._drawing.lines(block, columns):
                self._output.write_raw(f"{each}\r\n")
        self._output.flush()

    def _print_rest(self) -> None:
        with self._lock:
            blocks = list(self._pending)
            self._pending.clear()
        try:
            if not self._is_gone:
                self._print(blocks, self._output.get_size().columns)
                self._out.flush()
        except OSError:
            self._is_gone = True
        if self._is_gone:
            # What waits to be written has nowhere to go, and must not fail at the very end.
            _forget(self._out)

    def _begin_asking(self, question: Question) -> None:
        self._draw()
        self._panel.begin_asking(question)
        asyncio.get_running_loop().call_later(question.timeout_s, self._too_late, question.id)

    def _too_late(self, question_id: str) -> None:
        question = self._panel.question
        if question is not None and question.id == question_id:
            self._panel.give(Silence.TOO_LATE)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self.hang_up)
        loop.set_exception_handler(self._loop_failed)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something failed while drawing or at a key: the shell ends, and `run` raises it."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self._is_gone = True
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error or RuntimeError(str(context.get("message"))))

    def _end_app(self) -> None:
        try:
            self._draw()
        except OSError:
            self._is_gone = True
        if self._app.is_running and not self._app.is_done:
            self._app.exit()


def _size_of(descriptor: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


def _forget(out: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
