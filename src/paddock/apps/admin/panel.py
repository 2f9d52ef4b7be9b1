"""What stands below everything that was shown: the growing line, the input, badge and status.

Everything here runs in the application's loop. In each mode a key means one thing:

    READING   the line is edited; Enter says it
    BUSY      the next line is edited; Enter waits, Ctrl-C cancels what runs
    DRAWING   a question is about to stand there: every key is dropped
    ASKING    the answer is typed; Enter gives it
"""

import termios
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from paddock.apps.admin.plain import (
    InputEnded,
    Interrupted,
    Mode,
    PersonsAnswer,
    Question,
    Said,
    Silence,
    Typed,
    Vocabulary,
    candidates,
    parse_choice,
)
from paddock.apps.admin.show import StatusLine, shown_text, status_text

_MENU_ROWS: Final = 8
_LIVE_ROWS_MAX: Final = 8
_STYLE: Final = Style.from_dict(
    {
        "prompt": "bold",
        "question": "bold",
        "live": "",
        "badge": "bold reverse ansired",
        "status": "reverse",
    }
)


class VocabularyCompleter(Completer):
    """Asks for the vocabulary each time: another session may have another."""

    def __init__(self, known: Callable[[], Vocabulary]) -> None:
        self._known = known

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        for found in candidates(before, self._known()):
            yield Completion(found.text, -found.replaces, display_meta=found.about)


class Wrap(Protocol):
    def __call__(self, text: str, width: int, rows_max: int, /) -> str: ...


class PanelListener(Protocol):
    def said(self, said: Said) -> None: ...

    def decided(self, answer: PersonsAnswer | Silence) -> None: ...

    def interrupted(self) -> None: ...


class Panel:
    def __init__(self, past: list[str], listener: PanelListener, wrap: Wrap) -> None:
        """`past` is what was typed before, oldest first; `wrap` makes rows of `live`."""
        self.listener = listener
        self._wrap = wrap
        self.mode = Mode.BUSY
        self.live = ""
        self.status: StatusLine | None = None
        self.vocabulary = Vocabulary()
        self.question: Question | None = None
        self.line = Buffer(
            multiline=True,
            history=InMemoryHistory(past),
            completer=VocabularyCompleter(lambda: self.vocabulary),
            enable_history_search=False,
        )
        self.reply = Buffer(multiline=False)
        search = SearchToolbar(backward_search_prompt="search back: ")
        self._search = search
        self._line_window = Window(
            BufferControl(
                self.line,
                search_buffer_control=search.control,
                input_processors=[BeforeInput(self._line_prompt)],
                preview_search=True,
            ),
            wrap_lines=True,
            dont_extend_height=True,
            height=self._line_height,
            get_line_prefix=_continue_line,
        )
        self._reply_window = Window(
            BufferControl(self.reply, input_processors=[BeforeInput(self._question_prompt)]),
            wrap_lines=True,
            dont_extend_height=True,
        )
        self._live_window = Window(
            FormattedTextControl(self._live_text), wrap_lines=True, dont_extend_height=True
        )

    def application(
        self, keys: KeyBindings, source: Vt100Input, output: Output, *, colours: bool
    ) -> Application[None]:
        app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=keys,
            style=_STYLE,
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
            input=source,
            output=output,
            erase_when_done=True,
            after_render=self._has_rendered,
        )
        self._app = app
        self._source = source
        return app

    # Modes

    def begin_reading(self) -> None:
        self.mode = Mode.READING
        self._app.layout.focus(self._line_window)
        self._redraw()

    def begin_work(self) -> None:
        self.mode = Mode.BUSY
        self._app.layout.focus(self._line_window)
        self._redraw()

    def begin_asking(self, question: Question) -> None:
        self.question = question
        self.reply.reset()
        self.mode = Mode.DRAWING
        self._app.layout.focus(self._reply_window)
        self._redraw()

    def give(self, answer: PersonsAnswer | Silence) -> None:
        self.question = None
        self.reply.reset()
        self.begin_work()
        self.listener.decided(answer)

    # Keys

    def is_in(self, mode: Mode) -> Condition:
        return Condition(lambda: self.mode is mode)

    def say(self, said: Said) -> None:
        self.begin_work()
        self.listener.said(said)

    def enter(self) -> None:
        line = self.line
        if line.complete_state is not None and line.complete_state.current_completion is not None:
            line.complete_state = None
            return
        if line.document.is_cursor_at_the_end and line.text.endswith("\\"):
            line.delete_before_cursor()
            line.newline(copy_margin=False)
            return
        text = line.text
        if text.strip() and not text.startswith(" "):
            line.append_to_history()
        line.reset()
        self.say(Typed(text))

    def complete(self) -> None:
        if self.line.complete_state:
            self.line.complete_next()
        else:
            self.line.start_completion(insert_common_part=True)

    def reply_with(self, text: str) -> None:
        if self.question is not None:
            choice = parse_choice(text, self.question.choices)
            self.give(PersonsAnswer(self.question.id, choice))

    def interrupt(self) -> None:
        if self.mode is not Mode.READING:
            self.listener.interrupted()
            if self.mode is Mode.ASKING:
                self.reply_with("")
        elif self.line.text:
            self.line.reset()
        else:
            self.say(Interrupted())

    def _has_rendered(self, app: Application[None]) -> None:
        if self.mode is not Mode.DRAWING:
            return
        # Threat: keys that were typed before the question stood there would answer it:
        # what the system holds, and what was read of a key's sequence, is thrown away.
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)
        self._source.flush_keys()
        app.key_processor.empty_queue()
        self.mode = Mode.ASKING
        app.invalidate()

    def _redraw(self) -> None:
        # The panel may have become lower: nothing of its old rows may stay.
        self._app.renderer.erase()
        self._app.invalidate()

    # What is drawn

    def _layout(self) -> Layout:
        is_asking = self.is_in(Mode.DRAWING) | self.is_in(Mode.ASKING)
        has_live = Condition(lambda: bool(self.live))
        body = HSplit(
            [
                ConditionalContainer(self._live_window, has_live & ~is_asking),
                ConditionalContainer(self._line_window, ~is_asking),
                ConditionalContainer(self._reply_window, is_asking),
                self._search,
                ConditionalContainer(
                    Window(
                        FormattedTextControl(self._badge_text),
                        wrap_lines=True,
                        dont_extend_height=True,
                        style="class:badge",
                    ),
                    Condition(lambda: bool(self.status and self.status.badges)),
                ),
                Window(FormattedTextControl(self._status_text), height=1, style="class:status"),
            ]
        )
        menu = CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1)
        root = FloatContainer(body, [Float(menu, xcursor=True, ycursor=True)])
        return Layout(root, focused_element=self._line_window)

    def _line_height(self) -> Dimension:
        # The menu is drawn over the panel's own rows, so there have to be some.
        return Dimension(min=_MENU_ROWS + 1) if self.line.complete_state else Dimension(min=1)

    def _line_prompt(self) -> StyleAndTextTuples:
        return [("class:prompt", "> " if self.mode is Mode.READING else "… ")]

    def _live_text(self) -> StyleAndTextTuples:
        # With each drawing: the terminal may have another width than at the one before.
        size = self._app.output.get_size()
        rows = max(1, min(_LIVE_ROWS_MAX, size.rows - 4))
        return [("class:live", self._wrap(self.live, size.columns, rows))]

    def _badge_text(self) -> StyleAndTextTuples:
        badges = () if self.status is None else self.status.badges
        return [("class:badge", f" {'  ·  '.join(badges)} ")]

    def _status_text(self) -> StyleAndTextTuples:
        if self.status is None:
            return []
        columns = self._app.output.get_size().columns
        return [("class:status", f" {shown_text(status_text(self.status, columns - 2))} ")]

    def _question_prompt(self) -> StyleAndTextTuples:
        # The question stands above already; that it can be answered is said when it can.
        prompt = "…"
        if self.question is not None and self.mode is Mode.ASKING:
            prompt = self.question.prompt
        return [("class:question", shown_text(prompt))]


def _continue_line(number: int, wrapped: int) -> StyleAndTextTuples:
    return [] if number == 0 and wrapped == 0 else [("class:prompt", "  ")]


def panel_keys(panel: Panel) -> KeyBindings:
    """The bindings. The strictest come as `eager`: nothing else sees the key then."""
    keys = KeyBindings()
    reading, busy = panel.is_in(Mode.READING) & ~is_searching, panel.is_in(Mode.BUSY)
    drawing, asking = panel.is_in(Mode.DRAWING), panel.is_in(Mode.ASKING)
    is_empty = Condition(lambda: not panel.line.text)

    keys.add("enter", filter=reading)(_at(panel.enter))
    for newline in (("escape", "enter"), ("c-j",)):
        keys.add(*newline, filter=reading)(_at(partial(panel.line.newline, copy_margin=False)))
    keys.add("tab", filter=reading)(_at(panel.complete))
    keys.add("c-d", filter=reading & is_empty)(_at(partial(panel.say, InputEnded())))

    keys.add("enter", filter=asking, eager=True)(_at(lambda: panel.reply_with(panel.reply.text)))
    # Threat: what is pasted was not typed as an answer to this question.
    keys.add(Keys.BracketedPaste, filter=asking, eager=True)(_drop)
    keys.add("c-d", filter=asking, eager=True)(_at(partial(panel.reply_with, "")))

    for key in ("enter", Keys.ControlJ):
        keys.add(key, filter=busy & ~is_searching, eager=True)(_drop)
    keys.add("c-d", filter=busy & is_empty, eager=True)(_drop)
    keys.add(Keys.Any, filter=drawing, eager=True)(_drop)
    stops = ~is_searching | ~panel.is_in(Mode.READING)
    for key in ("c-c", Keys.SIGINT):
        keys.add(key, filter=stops, eager=True)(_at(panel.interrupt))
    return keys


def _at(act: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    def pressed(event: KeyPressEvent) -> None:
        act()

    return pressed


def _drop(event: KeyPressEvent) -> None:
    """The key means nothing now."""
