"""Screen and keyboard on a terminal: output scrolls above, the input line stays below.

One prompt of prompt_toolkit runs in the main thread as long as the shell, which runs in a
second thread and calls it through the two ports. The prompt holds the growing line, the
input line, the badge and the status line; everything else is drawn by rich, printed above
it and stays in the terminal's scrollback.
"""

import asyncio
import io
import os
import queue
import termios
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Always, Condition, Filter, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.key_binding.bindings.search import abort_search
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from paddock.apps.admin import plain
from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.show import (
    COLUMN_GAP,
    TABLE_INDENT,
    Block,
    FittedLine,
    Row,
    ShownTable,
    ShownText,
    StatusLine,
    TextLook,
    TextSpan,
    line,
    note,
    row,
    shown_text,
    status_text,
)
from paddock.errors import PaddockError

_MENU_ROWS: Final = 9
_LIVE_ROWS_MAX: Final = 8
_WIDTH_MIN: Final = 20
_STYLE: Final = Style.from_dict(
    {"prompt": "bold", "question": "bold", "badge": "bold reverse ansired"}
)


class Mode(Enum):
    READING = auto()
    """The user edits a line; Enter sends it."""
    BUSY = auto()
    """The user edits the next line; Enter does nothing, Ctrl-C cancels the turn or call."""
    DRAWING = auto()
    """A question is being drawn: every key is dropped."""
    ASKING = auto()
    """The user types the answer; Enter gives it."""


class Terminal(plain.Screen):
    def __init__(self, source: TextIO, out: TextIO, history: HistoryFile, *, colours: bool) -> None:
        """`history` provides earlier lines; if it fails, only this shell's lines are recalled."""
        self._source, self._out = Vt100Input(source), out
        self._drawing = RichDrawing(colours=colours)
        depth = None if colours else ColorDepth.DEPTH_1_BIT
        self._output = _Output(out, depth)
        self._history: HistoryFile | None = history
        self._pending: deque[Block] = deque()
        self.mode = Mode.BUSY
        self._live = ""
        self._status: StatusLine | None = None
        self._question: plain.Question | None = None
        self._ahead = Document()
        """The line typed when the question came; it is not the answer, and restored after it."""
        self._vocabulary = plain.Vocabulary()
        session = PromptSession[Any](
            self._growing_text,
            multiline=True,
            complete_while_typing=False,
            completer=_VocabularyCompleter(lambda: self._vocabulary),
            reserve_space_for_menu=_MENU_ROWS,
            history=InMemoryHistory(self._past(history)),
            input_processors=[BeforeInput(self._prompt)],
            prompt_continuation="  ",
            bottom_toolbar=self._toolbar,
            key_bindings=self._keys(),
            style=_STYLE,
            include_default_pygments_style=False,
            color_depth=depth,
            erase_when_done=True,
            input=self._source,
            output=self._output,
        )
        # Keeps the status line right below the input, not at the end of the window.
        session.layout.current_window.dont_extend_height = Always()
        self._line: Buffer = session.default_buffer
        self.app: Application[Any] = session.app
        self.app.after_render += self._has_rendered
        self._lock = threading.Lock()
        self._is_scheduled = False
        self._said: queue.SimpleQueue[plain.UserInput] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[plain.PersonsAnswer | plain.Silence] = queue.SimpleQueue()
        self._stop: Callable[[], None] | None = None
        self._has_left = False
        self._is_gone = False

    def run(self, shell: Callable[[], int]) -> int:
        """Run the shell in a thread that outlives the terminal, so that its session ends well."""
        running: list[Future[int]] = []
        with ThreadPoolExecutor(1, thread_name_prefix="paddock-shell") as threads:

            def start() -> None:
                loop = asyncio.get_running_loop()
                for number in plain.ENDING:
                    loop.add_signal_handler(number, self._hang_up)
                loop.set_exception_handler(self._loop_failed)
                running.append(threads.submit(shell))
                running[0].add_done_callback(lambda _: self._in_loop(self._end_app))

            try:
                self.app.run(pre_run=start, set_exception_handler=False)
            except (EOFError, OSError):
                self._is_gone = True
            # The shell may still wait for input or an answer.
            self._hang_up()
        self._print_rest()
        return running[0].result() if running else 0

    # Screen

    def show(self, block: Block) -> None:
        with self._lock:
            self._pending.append(block)
        self._schedule()

    def live(self, text: str) -> None:
        self._live = text
        self._schedule()

    def status(self, status: StatusLine) -> None:
        self._status = status
        self._schedule()

    # Keyboard

    def read(self) -> plain.UserInput:
        if self._has_left:
            return plain.InputEnded()
        self._in_loop(partial(self._begin, Mode.READING))
        said = self._said.get()
        if isinstance(said, plain.Typed) and self._history is not None:
            try:
                self._history.add(said.text)
            except PaddockError as error:
                self._without_history(error)
        return said

    def learn(self, known: plain.Vocabulary) -> None:
        self._vocabulary = known

    def answer(self, question: plain.Question) -> plain.PersonsAnswer | plain.Silence:
        if self._has_left:
            return plain.Silence.CLOSED
        for block in (*question.blocks, question.keys):
            self.show(block)
        self._in_loop(partial(self._ask, question))
        answer = self._answers.get()
        said = answer.choice.value if isinstance(answer, plain.PersonsAnswer) else answer.value
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

    # Modes; from here on everything runs in the application's loop.

    def _begin(self, mode: Mode) -> None:
        self.mode = mode
        # Leaves a history search: an answer must not go into the search field.
        self.app.layout.focus(self._line)
        # The prompt may have fewer rows now: none of the old ones may remain.
        self.app.renderer.erase()
        self.app.invalidate()

    def _ask(self, question: plain.Question) -> None:
        self._draw()
        self.begin_asking(question)
        asyncio.get_running_loop().call_later(question.timeout_s, self._too_late, question)

    def begin_asking(self, question: plain.Question) -> None:
        self._question, self._ahead = question, self._line.document
        self._line.reset()
        self._begin(Mode.DRAWING)

    def _has_rendered(self, app: Application[Any]) -> None:
        if self.mode is not Mode.DRAWING:
            return
        # Threat: keys typed before the question was shown would answer it: the system's
        # buffer and any partly read key sequence are discarded.
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)
        self._source.flush_keys()
        app.key_processor.empty_queue()
        self.mode = Mode.ASKING
        app.invalidate()

    def _too_late(self, question: plain.Question) -> None:
        if self._question is question:
            self._give(plain.Silence.TOO_LATE)

    def _give(self, answer: plain.PersonsAnswer | plain.Silence) -> None:
        self._question = None
        self._line.reset(self._ahead)
        self._begin(Mode.BUSY)
        self._answers.put(answer)

    def _reply(self, text: str) -> None:
        if self._question is not None:
            choice = plain.parse_choice(text, self._question.choices)
            self._give(plain.PersonsAnswer(self._question.id, choice))

    def _say(self, said: plain.UserInput) -> None:
        self._begin(Mode.BUSY)
        if isinstance(said, plain.Typed):
            first, *rest = said.text.split("\n")
            rows = (
                row(TextSpan("> ", TextLook.STRONG), first),
                *(row("  ", each) for each in rest),
            )
            self.show(ShownText(rows))
        self._said.put(said)

    def _hang_up(self) -> None:
        self._has_left = True
        self._cancel()
        self._answers.put(plain.Silence.CLOSED)
        self._said.put(plain.InputEnded())

    def _cancel(self) -> None:
        stop = self._stop
        if stop is not None:
            # In a thread: stopping may take a moment, and the screen must stay responsive.
            threading.Thread(target=stop, name="paddock-cancel", daemon=True).start()

    # Keys

    def _is_in(self, mode: Mode) -> Condition:
        return Condition(lambda: self.mode is mode)

    def _keys(self) -> KeyBindings:
        """Return the key bindings. An `eager` one hides the key from all others."""
        keys = KeyBindings()
        reading, busy, drawing, asking = map(self._is_in, Mode)
        editing, is_empty = reading & ~is_searching, Condition(lambda: not self._line.text)

        def bind(
            *names: Keys | str, when: Filter, do: Callable[[], None], eager: bool = False
        ) -> None:
            def pressed(event: KeyPressEvent) -> None:
                do()

            keys.add(*names, filter=when, eager=eager)(pressed)

        bind("enter", when=editing, do=self._enter)
        for newline in (("escape", "enter"), ("c-j",)):
            bind(*newline, when=editing, do=lambda: self._line.newline(copy_margin=False))
        bind("tab", when=editing, do=self._complete)
        bind("c-d", when=editing & is_empty, do=lambda: self._say(plain.InputEnded()))

        # The answer can only be typed key by key; no other editing key works.
        keys.add(Keys.Any, filter=asking, eager=True)(self._type)
        keys.add("backspace", filter=asking, eager=True)(get_by_name("backward-delete-char"))
        bind("enter", when=asking, do=lambda: self._reply(self._line.text), eager=True)
        # Threat: pasted text was not typed as an answer to this question.
        bind(Keys.BracketedPaste, when=asking, do=_nothing, eager=True)
        bind("c-d", when=asking, do=lambda: self._reply(""), eager=True)

        for key in ("enter", Keys.ControlJ):
            bind(key, when=busy & ~is_searching, do=_nothing, eager=True)
        bind("c-d", when=busy & is_empty, do=_nothing, eager=True)
        bind(Keys.Any, when=drawing, do=_nothing, eager=True)
        keys.add("c-c", filter=reading & is_searching, eager=True)(abort_search)
        for key in ("c-c", Keys.SIGINT):
            bind(key, when=~(reading & is_searching), do=self._interrupt, eager=True)
        return keys

    def _enter(self) -> None:
        typed = self._line
        if typed.complete_state is not None and typed.complete_state.current_completion is not None:
            typed.complete_state = None
            return
        if typed.document.is_cursor_at_the_end and typed.text.endswith("\\"):
            typed.delete_before_cursor()
            typed.newline(copy_margin=False)
            return
        text = typed.text
        if text.strip() and not text.startswith(" "):
            typed.append_to_history()
        typed.reset()
        self._say(plain.Typed(text))

    def _complete(self) -> None:
        if self._line.complete_state:
            self._line.complete_next()
        else:
            self._line.start_completion(insert_common_part=True)

    def _type(self, event: KeyPressEvent) -> None:
        if len(event.data) == 1 and event.data.isprintable():
            self._line.insert_text(event.data)

    def _interrupt(self) -> None:
        if self.mode is not Mode.READING:
            self._cancel()
            if self.mode is Mode.ASKING:
                self._reply("")
        elif self._line.text:
            self._line.reset()
            self._begin(Mode.READING)
        else:
            self._say(plain.Interrupted())

    # The rows of the prompt

    def _growing_text(self) -> str:
        if not self._live or self._question is not None:
            return ""
        # Asked at each drawing: the terminal may have been resized.
        size = self._output.get_size()
        rows = max(1, min(_LIVE_ROWS_MAX, size.rows - 4))
        return self._drawing.wrapped(self._live, size.columns, rows) + "\n"

    def _prompt(self) -> StyleAndTextTuples:
        if self._question is None:
            return [("class:prompt", "> " if self.mode is Mode.READING else "… ")]
        # The question is shown above; its prompt appears only once it can be answered.
        prompt = self._question.prompt if self.mode is Mode.ASKING else "…"
        return [("class:question", shown_text(prompt))]

    def _toolbar(self) -> StyleAndTextTuples:
        status = self._status
        if status is None:
            return []
        columns = self._output.get_size().columns
        shown = f" {shown_text(status_text(status, columns - 2))} "
        if not status.badges:
            return [("", shown)]
        badge = self._drawing.wrapped(f" {'  ·  '.join(status.badges)} ", columns, _LIVE_ROWS_MAX)
        rows = "\n".join(each.ljust(columns) for each in badge.split("\n"))
        return [("class:badge", f"{rows}\n"), ("", shown)]

    # The history

    def _past(self, history: HistoryFile) -> list[str]:
        try:
            return history.load()
        except PaddockError as error:
            self._without_history(error)
            return []

    def _without_history(self, error: PaddockError) -> None:
        self._history = None
        self._pending.append(note(f"typed lines are not saved: {error.message}"))

    # Drawing

    def _in_loop(self, act: Callable[[], None]) -> None:
        loop = self.app.loop
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
        if self._pending:
            self.app.renderer.erase()
            self._print()
        self.app.invalidate()

    def _print(self) -> None:
        with self._lock:
            blocks = list(self._pending)
            self._pending.clear()
        for block in blocks:
            for each in self._drawing.lines(block, self._output.get_size().columns):
                self._output.write_raw(f"{each}\r\n")
        self._output.flush()

    def _print_rest(self) -> None:
        try:
            if not self._is_gone:
                self._print()
                self._out.flush()
        except OSError:
            self._is_gone = True
        if self._is_gone:
            # Buffered output has nowhere to go; flushing it at exit must not fail.
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._out.fileno())
            os.close(nowhere)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Drawing or a key binding failed: the shell ends, and `run` raises the error."""
        error = context.get("exception")
        self._is_gone = self._is_gone or isinstance(error, OSError)
        self._exit(error or RuntimeError(str(context.get("message"))))

    def _end_app(self) -> None:
        try:
            self._draw()
        except OSError:
            self._is_gone = True
        self._exit(None)

    def _exit(self, error: BaseException | None) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit() if error is None else self.app.exit(exception=error)


class _Output(Vt100_Output):
    """Without cursor position requests: their answers would arrive among the keys."""

    def __init__(self, out: TextIO, depth: ColorDepth | None) -> None:
        size = partial(_size_of, out.fileno())
        super().__init__(out, size, enable_cpr=False, enable_bell=False, default_color_depth=depth)

    def get_rows_below_cursor_position(self) -> int:
        """At least the cursor's row: a toolbar is drawn only if this is known."""
        return 1


def _size_of(descriptor: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


def _nothing() -> None:
    pass


class _VocabularyCompleter(Completer):
    """Reads the vocabulary each time: it changes with the session."""

    def __init__(self, known: Callable[[], plain.Vocabulary]) -> None:
        self._known = known

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        yield from completions(document.text_before_cursor, self._known())


def completions(before: str, known: plain.Vocabulary) -> Iterator[Completion]:
    words = before.split(" ")
    last = words[-1]
    is_command, is_call = before.startswith("/"), words[0] == "/call"
    found: Iterable[tuple[str, str]] = ()
    if is_command and len(words) == 1:
        found = ((f"/{name}", about) for name, about in known.commands.items())
    elif is_command and not is_call:
        found = ((word, "") for word in known.words.get(words[0].removeprefix("/"), ()))
    elif len(words) == 1 + is_call:
        found = ((name, "a tool") for name in known.parameters if is_call or last)
    else:
        names = known.parameters.get(words[is_call], ())
        found = ((f"{name}=", "an argument") for name in names)
    for text, about in found:
        if text.startswith(last):
            yield Completion(text, -len(last), display_meta=about)


class RichDrawing:
    """Draws with colours, wrapped between words. rich knows the width of characters."""

    def __init__(self, *, colours: bool) -> None:
        self._file = io.StringIO()
        self._console = Console(
            file=self._file,
            force_terminal=True,
            color_system="standard",
            # Bold and reverse stay: NO_COLOR covers only colour.
            no_color=not colours,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def lines(self, block: Block, width: int) -> list[str]:
        width = max(width, _WIDTH_MIN)
        match block:
            case ShownText():
                inner = max(width - cell_len(block.gutter), _WIDTH_MIN // 2)
                drawn = (text for each in block.rows for text in self._row(_rich(each), inner))
                return [f"{block.gutter}{text}" for text in drawn]
            case ShownTable():
                return self._printed(_table(block), width)
            case FittedLine():
                left, right, middle = map(_rich, (block.left, block.right, (block.middle,)))
                room = max(width - left.cell_len - right.cell_len, 1)
                middle.truncate(room, overflow="ellipsis")
                return self._printed(left + middle + right, width, no_wrap=True)

    def wrapped(self, text: str, width: int, rows_max: int) -> str:
        rows = Text(shown_text(text)).wrap(self._console, max(width, _WIDTH_MIN))
        return "\n".join(each.plain.rstrip() for each in rows[-rows_max:])

    def _row(self, text: Text, width: int) -> list[str]:
        indent = min(len(text.plain) - len(text.plain.lstrip(" ")), width // 2)
        drawn = self._printed(text[indent:], width - indent, overflow="fold")
        return [f"{' ' * indent}{each}".rstrip(" ") for each in drawn]

    def _printed(self, drawn: Text | Padding, width: int, **options: Any) -> list[str]:
        self._console.print(drawn, width=width, **options)
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return [each.rstrip(" ") for each in text.removesuffix("\n").split("\n")]


def _table(block: ShownTable) -> Padding:
    table = Table(
        box=None,
        show_header=bool(block.head),
        header_style="dim",
        pad_edge=False,
        padding=(0, COLUMN_GAP, 0, 0),
    )
    count = max((len(each) for each in block.rows), default=len(block.head))
    for place in range(count):
        name = block.head[place] if place < len(block.head) else ""
        table.add_column(name, overflow="fold", no_wrap=place < count - 1)
    for each in block.rows:
        table.add_row(*(_rich((span,)) for span in each))
    return Padding(table, (0, 0, 0, TABLE_INDENT))


def _rich(row: Row) -> Text:
    found = Text()
    for span in row:
        found.append(shown_text(span.text), style=span.look.value)
    return found
